#!/usr/bin/env python3
"""Compares ids with those of Hugging Face's tokenizers and sentencepiece, token by token.

    live_tokenizers.py RUN_TOKENIZER SOURCE_ROOT DATA [COUNT]

RUN_TOKENIZER is the program that encodes and decodes with this library. Every tokenizer of
tests/text/fixtures/tokenizers, and those present under DATA, get COUNT (10,000) generated texts, the project's sources
and a play; every character is tested with each class of characters. Exits 77 if the libraries are not installed
(scripts/reference-python)."""
import json
import os
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../reference"))
import reference_python  # noqa: E402

reference_python.need("tokenizers", "sentencepiece")

import sentencepiece  # noqa: E402
import tokenizers  # noqa: E402

# After the packages: a folder of fixtures has the name of one.
sys.path.insert(0, os.path.join(HERE, "fixtures"))
import nasty  # noqa: E402

CLASSES = [{"Regex": pattern} for pattern in (
    r"\p{L}", r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"\p{M}", r"\p{N}", r"\p{Nd}", r"\p{Nl}", r"\p{No}",
    r"\p{P}", r"\p{S}", r"\p{Z}", r"\p{Zs}", r"\s", r"\d", r"[^\s\p{L}\p{N}]", r"[\S]", r"(?i:[sk]|'d)", ".")]


class Ours:
    """The program, for many texts at a time."""

    def __init__(self, program, what):
        self.program, self.what = program, what

    def run(self, texts):
        request = b"".join(struct.pack("=I", len(text)) + text for text in texts)
        reply = subprocess.run([self.program, self.what], input=request, stdout=subprocess.PIPE, check=True).stdout
        at, out = 0, []
        for _ in texts:
            count, = struct.unpack_from("=I", reply, at)
            ids = list(struct.unpack_from(f"={count}i", reply, at + 4))
            at += 4 + 4 * count
            count, = struct.unpack_from("=I", reply, at)
            out.append((ids, reply[at + 4:at + 4 + count]))
            at += 4 + count
        return out


def compare(name, ours, encode, decode, texts):
    """Fails at the first difference; returns how many ids were compared."""
    id_count = 0
    for begin in range(0, len(texts), 2000):
        some = texts[begin:begin + 2000]
        for text, (ids, decoded) in zip(some, ours.run([text.encode() for text in some])):
            expected = encode(text)
            if ids != expected:
                at = next((i for i, pair in enumerate(zip(ids, expected)) if pair[0] != pair[1]), min(len(ids), len(expected)))
                sys.exit(f"{name}: {text[:300]!r}: token {at}: {ids[at:at + 5]}, the library has {expected[at:at + 5]}")
            wanted = decode(expected)
            if decoded.decode("utf-8", "replace") != wanted:
                sys.exit(f"{name}: {text[:300]!r} comes back as {decoded[:300]!r}, not as {wanted[:300]!r}")
            id_count += len(ids)
    return id_count


def named(folder):
    """The special tokens that texts may spell, in addition to a vocab.json: GPT-2's own if no config names others."""
    path = os.path.join(folder, "tokenizer_config.json")
    if not os.path.exists(path):
        return ["<|endoftext|>"]
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    tokens = [config[key] for key in ("unk_token", "bos_token", "eos_token")]
    return [token["content"] if isinstance(token, dict) else token for token in tokens]


def libraries(folder):
    """(what to open, encode, decode) of each file in a folder that a library reads unchanged."""
    path = os.path.join(folder, "tokenizer.json")
    if os.path.exists(path):
        loaded = tokenizers.Tokenizer.from_file(path)
        yield (path, lambda text: loaded.encode(text, add_special_tokens=False).ids,
               lambda ids: loaded.decode(ids, skip_special_tokens=False))
    model = os.path.join(folder, "tokenizer.model")
    if os.path.exists(model):
        loaded_model = sentencepiece.SentencePieceProcessor(model_file=model)
        yield model, loaded_model.encode, loaded_model.decode
    vocabulary, merges = os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt")
    if os.path.exists(vocabulary) and os.path.exists(merges):
        pair = tokenizers.ByteLevelBPETokenizer(vocabulary, merges)
        pair.add_special_tokens(named(folder))
        yield folder, lambda text: pair.encode(text).ids, lambda ids: pair.decode(ids, skip_special_tokens=False)


def sources(root, data):
    texts = []
    for folder in ("text", "include", "docs", "tests/text", "cli"):
        for at, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".md", ".py", ".txt", ".build")):
                    with open(os.path.join(at, name), encoding="utf-8") as file:
                        texts.append(file.read())
    play = os.path.join(data, "text/tinyshakespeare.txt")
    if os.path.exists(play):
        with open(play, encoding="utf-8") as file:
            texts.append(file.read())
    return texts


def characters():
    """All characters, three hundred at a time, each between two letters and two of it at the end."""
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    return ["a" + "a".join(map(chr, codes[i:i + 300])) + chr(codes[i]) * 2 for i in range(0, len(codes), 300)]


def combining():
    """Characters among marks of several classes, which composition sorts and joins."""
    codes = [code for code in range(0x30000) if not 0xD800 <= code < 0xE000]
    words = [chr(code) + "\u0315\u0300\u05b0\u3099" + chr(code) + "\u0323\u0301" for code in codes]
    return ["".join(words[i:i + 200]) for i in range(0, len(words), 200)]


def variants(root):
    """(name, tokenizer, texts): tokenizers in which each class of characters matters."""
    with open(os.path.join(root, "tests/text/fixtures/tokenizers/gpt2/tokenizer.json"), encoding="utf-8") as file:
        base = json.load(file)
    texts = characters()
    for pattern in CLASSES + ["Punctuation", "Digits"]:
        # What is taken out is missing; a piece that Digits cuts has a space before it.
        first = {"type": "Split", "pattern": pattern, "behavior": "Removed", "invert": False}
        if isinstance(pattern, str):
            first = {"type": pattern, "behavior": "Removed"} if pattern == "Punctuation" else {"type": pattern, "individual_digits": True}
        last = {"type": "ByteLevel", "add_prefix_space": pattern == "Digits", "trim_offsets": True, "use_regex": False}
        yield pattern, dict(base, pre_tokenizer={"type": "Sequence", "pretokenizers": [first, last]}), texts
    # A token that letters and digits may not touch.
    word = dict(base["added_tokens"][0], id=len(base["model"]["vocab"]) + 1, content="qq", single_word=True, special=False)
    yield "single_word", dict(base, added_tokens=base["added_tokens"] + [word]), [text.replace("a", "qq") for text in texts]
    for flag in ("lstrip", "rstrip"):
        stripped = dict(word, single_word=False, **{flag: True})
        yield flag, dict(base, added_tokens=base["added_tokens"] + [stripped]), [text.replace("a", "qq") for text in texts]
    yield "NFC", dict(base, normalizer={"type": "NFC"}), texts + combining()


def compare_characters(program, root):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokenizer.json")
        for what, variant, texts in variants(root):
            with open(path, "w", encoding="utf-8") as file:
                json.dump(variant, file)
            loaded = tokenizers.Tokenizer.from_file(path)
            compare(f"characters of {what}", Ours(program, path),
                    lambda text: loaded.encode(text, add_special_tokens=False).ids,
                    lambda ids: loaded.decode(ids, skip_special_tokens=False), texts)


def main():
    program, root, data = sys.argv[1:4]
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 10000
    fixtures = os.path.join(root, "tests/text/fixtures/tokenizers")
    folders = [os.path.join(fixtures, name) for name in sorted(os.listdir(fixtures))]
    folders += [os.path.join(data, name) for name in ("gpt2", "llama2")]
    texts = nasty.TEXTS + [nasty.generated(seed) for seed in range(1000, 1000 + count)]
    long_texts = sources(root, data)
    for folder in folders:
        if not os.path.isdir(folder):
            continue
        for what, encode, decode in libraries(folder):
            id_count = compare(what, Ours(program, what), encode, decode, texts + long_texts)
            print(f"{what}: {id_count} ids of {len(texts) + len(long_texts)} texts are the library's", flush=True)
    compare_characters(program, root)
    print("every character is in the library's classes")


if __name__ == "__main__":
    main()
