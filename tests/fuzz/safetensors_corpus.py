#!/usr/bin/env python3
"""Writes the cases of tests/models/safetensors_cases.py as inputs of fuzz_safetensors.

    safetensors_corpus.py FOLDER [all]

Without "all" only the well-formed: the corpus that is kept in the tree."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models"))
from safetensors_cases import CASES  # noqa: E402


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    for name, ours, content in CASES:
        header_bytes = int.from_bytes(content[:8], "little")
        if (ours != "ok" and sys.argv[2:] != ["all"]) or 8 + header_bytes > len(content):
            continue
        data_bytes = len(content) - 8 - header_bytes
        clean = "".join(letter if letter.isalnum() else "-" for letter in name)
        with open(os.path.join(sys.argv[1], clean), "wb") as target:
            target.write(data_bytes.to_bytes(4, "little") + content[8:8 + header_bytes])
    return 0


if __name__ == "__main__":
    sys.exit(main())
