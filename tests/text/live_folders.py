#!/usr/bin/env python3
"""Compares our use of a folder's files with that of transformers: tokens that begin and end a text, tokens added around
it, ids.

    live_folders.py RUN_TOKENIZER

Needs transformers (5; also protobuf for a tokenizer.model); exits 77 without it (scripts/reference-python)."""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../reference"))
import reference_python  # noqa: E402

reference_python.need("transformers", "tokenizers", "sentencepiece", "google.protobuf")

import transformers  # noqa: E402

FIXTURES = os.path.join(HERE, "fixtures/tokenizers")
FAST = "PreTrainedTokenizerFast"
PLAIN = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
LLAMA3 = {"eos_token": "<|eot_id|>", "bos_token": "<|begin_of_text|>"}
OPT = {"eos_token": "</s>", "bos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
LLAMA2 = {"eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>"}
ADDED = ["the<|im_end|> of", "a <|x|>  b", "the [PAD]x", "x </s> y"]



def taken_apart(fixture):
    """vocab.json and merges.txt with the vocabulary of a tokenizer.json."""
    with open(os.path.join(FIXTURES, fixture, "tokenizer.json"), encoding="utf-8") as file:
        model = json.load(file)["model"]
    return {"vocab.json": model["vocab"], "merges.txt": "".join(" ".join(pair) + "\n" for pair in model["merges"])}


QWEN2 = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {
    str(416 + i): {"content": name, "special": True, **PLAIN} for i, name in enumerate(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])}}
WORDS = ["  the 1234 cats'LL e\u0301 \n\n a.\nb\t\t x", "IT'S 12\r\n  (word", "the", " the"]

# (class, files of fixtures, files that are written)
CASES = [
    (FAST, ["gpt2/tokenizer.json"], {"tokenizer_config.json": {"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}}),
    (FAST, ["qwen2/tokenizer.json"], {"tokenizer_config.json": {"eos_token": "<|im_end|>", "add_bos_token": False}}),
    (FAST, ["llama3/tokenizer.json"], {"tokenizer_config.json": LLAMA3}),
    (FAST, ["llama3/tokenizer.json"], {"tokenizer_config.json": LLAMA3,
                                       "special_tokens_map.json": {"eos_token": {"content": "<|end_of_text|>", **PLAIN}}}),
    (FAST, ["llama3/tokenizer.json"], {"tokenizer_config.json": {"added_tokens_decoder": {}, **LLAMA3},
                                       "special_tokens_map.json": {"eos_token": {"content": "<|end_of_text|>", **PLAIN}}}),
    (FAST, ["llama2-json/tokenizer.json"], {"tokenizer_config.json": LLAMA2}),
    ("GPT2Tokenizer", ["opt/vocab.json", "opt/merges.txt"], {"tokenizer_config.json": {"add_bos_token": True, **OPT},
                                                             "added_tokens.json": {"<|im_end|>": 420, "<|x|>": 421}}),
    ("GPT2Tokenizer", ["opt/vocab.json", "opt/merges.txt"], {"tokenizer_config.json": {**OPT, "eos_token": "<|im_end|>", "added_tokens_decoder": {
        "420": {"content": "<|im_end|>", "special": True, **PLAIN},
        "421": {"content": "<|x|>", "special": False, **PLAIN, "rstrip": True}}}}),
    ("GPT2Tokenizer", ["opt/vocab.json", "opt/merges.txt"], {"tokenizer_config.json": {"add_prefix_space": True, **OPT,
                                                                                       "tokenizer_class": "GPT2Tokenizer"}}),
    ("Qwen2Tokenizer", [], {"tokenizer_config.json": QWEN2, **taken_apart("qwen2")}),
    ("AutoTokenizer", [], {"tokenizer_config.json": QWEN2, **taken_apart("qwen2")}),
    ("LlamaTokenizer", ["llama2/tokenizer.model"], {"tokenizer_config.json": {"add_bos_token": True, "legacy": True, **LLAMA2},
                                                    "added_tokens.json": {"[PAD]": 520}}),
    ("LlamaTokenizer", ["llama2/tokenizer.model"], {"tokenizer_config.json": {"add_bos_token": False, "add_eos_token": True, **LLAMA2}}),
]
TOKENS = ["<|im_end|>", "<|x|>", "[PAD]", "</s>", "<|eot_id|>", "<|endoftext|>"]


def known(number):
    return -1 if number is None else number


def expected(name, folder, texts):
    tokenizer = getattr(transformers, name).from_pretrained(folder)
    bare, whole = (tokenizer("x", add_special_tokens=flag).input_ids for flag in (False, True))
    at = next(i for i in range(len(whole)) if whole[i:i + len(bare)] == bare)
    vocabulary = tokenizer.get_vocab()
    facts = {"begin": known(tokenizer.bos_token_id), "end": known(tokenizer.eos_token_id), "before": whole[:at],
             "after": whole[at + len(bare):], "tokens": [vocabulary.get(token, -1) for token in TOKENS]}
    return facts, [tokenizer(text, add_special_tokens=False).input_ids for text in texts]


def ours(program, folder, texts):
    facts = json.loads(subprocess.run([program, folder, "facts", *TOKENS], stdout=subprocess.PIPE, check=True).stdout)
    request = b"".join(struct.pack("=I", len(text.encode())) + text.encode() for text in texts)
    reply = subprocess.run([program, folder], input=request, stdout=subprocess.PIPE, check=True).stdout
    at, ids = 0, []
    for _ in texts:
        count, = struct.unpack_from("=I", reply, at)
        ids.append(list(struct.unpack_from(f"={count}i", reply, at + 4)))
        at += 4 + 4 * count
        count, = struct.unpack_from("=I", reply, at)
        at += 4 + count
    return facts, ids


def check_saved(name, folder, texts):
    """Saved by transformers as a tokenizer.json, it gives the same ids."""
    tokenizer = getattr(transformers, name).from_pretrained(folder)
    saved = os.path.join(folder, "saved")
    tokenizer.save_pretrained(saved)
    want = [tokenizer(text, add_special_tokens=False).input_ids for text in texts]
    have = ours(sys.argv[1], saved, texts)[1]
    if have != want:
        sys.exit(f"{folder}, saved: {have}, transformers has {want}")


def main():
    transformers.logging.set_verbosity_error()
    for name, files, written in CASES:
        with tempfile.TemporaryDirectory() as folder:
            for file in files:
                shutil.copy(os.path.join(FIXTURES, file), folder)
            for file, content in written.items():
                with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
                    out.write(content if isinstance(content, str) else json.dumps(content))
            # A control piece in a text is plain text to sentencepiece, and to us with a
            # tokenizer.model; it is a token to transformers.
            texts = ADDED[:3] if name == "LlamaTokenizer" else WORDS + ADDED
            have, want = ours(sys.argv[1], folder, texts), expected(name, folder, texts)
            if have != want:
                sys.exit(f"{files} with {written}: {have}, transformers has {want}")
            if name == "GPT2Tokenizer":
                check_saved(name, folder, texts)
    print(f"{len(CASES)} folders are what transformers {transformers.__version__} makes of them")


if __name__ == "__main__":
    main()
