#!/usr/bin/env python3
"""The oracle of GPT-2's byte pair encoding: slow, with Python's own Unicode tables and no regular expressions. Text
that spells <|endoftext|> gets its id.

    python3 reference_bpe.py FOLDER CASES

FOLDER holds vocab.json and merges.txt. CASES holds texts, each after a line with its byte count. Writes one line of ids
per text."""
import json
import os
import sys
import unicodedata

CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")
END = b"<|endoftext|>"
SPACES = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
          0x205F, 0x3000}


def kind(character):
    if ord(character) in SPACES:
        return "S"
    major = unicodedata.category(character)[0]
    return major if major in "LN" else "O"


def run_end(text, begin):
    """The end of the run of characters of one kind that begins there."""
    end = begin
    while end < len(text) and kind(text[end]) == kind(text[begin]):
        end += 1
    return end


def word_end(text, begin):
    for contraction in CONTRACTIONS:
        if text.startswith(contraction, begin):
            return begin + len(contraction)
    first = begin + (text[begin] == " ")
    if first < len(text) and kind(text[first]) != "S":
        return run_end(text, first)
    end = run_end(text, begin)
    if end < len(text) and end - begin > 1:
        return end - 1  # the last white space goes with the word that follows
    return end


def stretches(data):
    """Splits into valid UTF-8 as str, and other bytes one by one as bytes."""
    begin = 0
    while begin < len(data):
        try:
            yield data[begin:].decode("utf-8")
            return
        except UnicodeDecodeError as error:
            if error.start:
                yield data[begin:begin + error.start].decode("utf-8")
            yield data[begin + error.start:begin + error.start + 1]
            begin += error.start + 1


def words(data):
    for stretch in stretches(data):
        if isinstance(stretch, bytes):
            yield stretch
            continue
        begin = 0
        while begin < len(stretch):
            end = word_end(stretch, begin)
            yield stretch[begin:end].encode("utf-8")
            begin = end


def alphabet():
    own = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    rest = [b for b in range(256) if b not in own]
    return {**{b: chr(b) for b in own}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


class Reference:
    def __init__(self, folder):
        with open(os.path.join(folder, "vocab.json"), encoding="utf-8") as file:
            self.ids = json.load(file)
        with open(os.path.join(folder, "merges.txt"), encoding="utf-8") as file:
            lines = [line.split() for line in file if not line.startswith("#version")]
        self.rank = {tuple(line): i for i, line in enumerate(lines)}
        self.name = alphabet()
        self.seen = {}

    def word(self, data):
        if data not in self.seen:
            symbols = [self.name[byte] for byte in data]
            while len(symbols) > 1:
                ranks = [self.rank.get(pair, len(self.rank)) for pair in zip(symbols, symbols[1:])]
                best = min(ranks)
                if best == len(self.rank):
                    break
                i = ranks.index(best)
                symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
            self.seen[data] = [self.ids[symbol] for symbol in symbols]
        return self.seen[data]

    def encode(self, data):
        first, *rest = data.split(END)
        ids = [i for word in words(first) for i in self.word(word)]
        for part in rest:
            ids.append(self.ids[END.decode()])
            ids += [i for word in words(part) for i in self.word(word)]
        return ids


def main():
    reference = Reference(sys.argv[1])
    with open(sys.argv[2], "rb") as file:
        while length := file.readline():
            print(*reference.encode(file.read(int(length))))


if __name__ == "__main__":
    main()
