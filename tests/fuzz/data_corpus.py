#!/usr/bin/env python3
"""Writes the seeds of fuzz_id_files and fuzz_json_lines into corpus/: python3 data_corpus.py"""
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))


def token_file(ids, vocabulary, version=1, width=2, window=0, flags=0):
    header = struct.pack("<8sIIQQQQIIQ", b"COHTOKEN", version, width, len(ids), vocabulary, 0, 0, window, flags, 0)
    return header + b"".join(i.to_bytes(width, "little") for i in ids)


ID_FILES = {
    "packed": token_file(range(30), 300),
    "wide": token_file(range(70000, 70012), 80000, width=4),
    "masked": token_file([i | (i % 3 == 0) << 15 for i in range(30)], 300, version=2, flags=1),
    "aligned": token_file([i | (i % 5 == 0) << 31 for i in range(30)], 40000, version=2, width=4, window=4, flags=1),
    "empty": token_file([], 1),
    "llmc": struct.pack("<3I", 20240520, 1, 20) + bytes(1012) + struct.pack("<20H", *range(20)),
    "llmc32": struct.pack("<3I", 20240801, 7, 8) + bytes(1012) + struct.pack("<8I", *range(8)),
    "nanogpt": struct.pack("<20H", *range(1000, 1020)),
}
JSON_LINES = {
    "documents": b'{"text": "one"}\n{"text": "two \\u00e9\\n", "id": 12345678901234567890}\r\n\n{"text": ""}',
    "chat": b'{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"},'
            b' {"role": "assistant", "content": "a"}]}\n',
    "both": b'{"text": "x", "messages": [{"role": "assistant", "content": "a"}]}\n' * 3,
    "marked": b'\xef\xbb\xbf{"text": "x"}',
    "forms": b'{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}], "system": "s"}\n'
             b'{"prompt": [{"role": "user", "content": [{"type": "text", "text": "q"}]}, {"role": "assistant", "content": "x"}],'
             b' "completion": [{"role": "assistant", "content": "a", "weight": 1}]}\n{"prompt": "q", "completion": "a"}\n'
             b'{"instruction": "q", "input": "1", "output": "a", "history": []}\n',
    "bad": b'{"text": 1}\n{"messages": [{"role": "tool", "content": null, "tool_calls": []}]}',
}

for name, seeds in (("id_files", ID_FILES), ("json_lines", JSON_LINES)):
    os.makedirs(os.path.join(HERE, "corpus", name), exist_ok=True)
    for seed, data in seeds.items():
        with open(os.path.join(HERE, "corpus", name, seed), "wb") as file:
            file.write(data)
