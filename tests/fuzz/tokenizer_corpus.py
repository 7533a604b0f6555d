#!/usr/bin/env python3
"""Writes the seeds of fuzz_tokenizer_json and fuzz_tokenizer_model: tokenizer_corpus.py FOLDER

FOLDER gets tokenizer_json/ and tokenizer_model/, the contents of tests/fuzz/corpus."""
import json
import os
import struct
import sys

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SPLIT = {"type": "Split", "pattern": {"Regex": r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+"},
         "behavior": "Isolated", "invert": False}
METASPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
LLAMA = {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}


def token(number, content, **flags):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **flags}


def seed(**parts):
    base = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [token(512, "<s>")], "normalizer": None,
            "pre_tokenizer": BYTE_LEVEL, "post_processor": None, "decoder": BYTE_LEVEL, "model": {"type": "BPE", "vocab": {}, "merges": []}}
    return json.dumps({**base, **parts}, ensure_ascii=False).replace('"vocab": {', '"vocab": {@@, ').replace("@@, }", "@@}")


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def characters(**parts):
    """Characters: ids 512 on are the tokens."""
    model = {"type": "BPE", "byte_fallback": True, "vocab": {"\u2581": 512, "ab": 513, "\u2581a": 514}, "merges": ["a b", ["\u2581", "a"]]}
    return seed(decoder=LLAMA, model=model, added_tokens=[], **parts)


JSON = {
    "gpt2": seed(model={"type": "BPE", "vocab": {"ab": 512, "abc": 513}, "merges": ["a b", "ab c"]}, added_tokens=[token(514, "<s>")]),
    "llama3": seed(pre_tokenizer=sequence(SPLIT, {**BYTE_LEVEL, "use_regex": False}),
                   model={"type": "BPE", "ignore_merges": True, "vocab": {"ab": 512}, "merges": []}, added_tokens=[token(513, "<s>")]),
    "composed": seed(normalizer={"type": "NFC"}, added_tokens=[token(512, "e\u0301", normalized=True), token(513, "a", single_word=True, lstrip=True)]),
    "cut": seed(pre_tokenizer=sequence({"type": "Digits", "individual_digits": False}, {"type": "Punctuation", "behavior": "MergedWithNext"},
                                       {**BYTE_LEVEL, "add_prefix_space": True})),
    "llama2": characters(pre_tokenizer=None, normalizer={"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}),
    "metaspace": characters(pre_tokenizer={**METASPACE, "split": True}),
    "around": seed(post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                                   "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [512], "tokens": ["<s>"]}}}),
}


def piece(name, score, kind):
    name = name.encode()
    inner = b"\x0a" + bytes([len(name)]) + name + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind])
    return b"\x0a" + bytes([len(inner)]) + inner


MODEL = {
    "pieces": b"\xff" + piece("a", -1, 1) + piece("b", -2, 1) + piece("ab", -3, 1) + piece("\u2581ab", -4, 1) + piece("<s>", 0, 3),
    "unnamed": b"\xff" + piece("ab", -3, 1) + piece("bc", -3, 1) + piece("abc", -4, 1) + piece("xyz", 0, 4),
    "whole": b"\x0a\x09\x0a\x05<unk>\x18\x02" + piece("a", -1, 1) + b"\x12\x02\x18\x02\x1a\x02\x20\x00",
}


def main():
    for folder, seeds in (("tokenizer_json", JSON), ("tokenizer_model", MODEL)):
        path = os.path.join(sys.argv[1], folder)
        os.makedirs(path, exist_ok=True)
        for name, content in seeds.items():
            with open(os.path.join(path, name), "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())


if __name__ == "__main__":
    main()
