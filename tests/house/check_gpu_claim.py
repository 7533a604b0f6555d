"""Which result of scripts/device the claims on a GPU take: the newest of that GPU, those programs and those sizes, whole."""

import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import gpu_claim  # noqa: E402

PHASES = ("check", "memory")
WANTED = {"device": "cuda:0", "found": "NVIDIA H200, 141 GiB", "programs": {"cohobate": "a", "gpu-check": "b"}, "tiny": False,
          "compile": True}
RIGHT = {**WANTED, "phases": {"check": {}, "memory": {}, "more": {}}}
# file, seconds of its time, what is other in it, is it taken where it is the only one?
FILES = [
    ("2026-01-01-old.json", 10, {}, True),
    ("2026-01-02-new.json", 20, {}, True),
    ("2026-01-03-device.json", 30, {"device": "cuda:1"}, False),
    ("2026-01-03-gpu.json", 30, {"found": "NVIDIA A100, 40 GiB"}, False),
    ("2026-01-03-programs.json", 30, {"programs": {"cohobate": "c", "gpu-check": "b"}}, False),
    ("2026-01-03-tiny.json", 30, {"tiny": True}, False),
    ("2026-01-03-plain.json", 30, {"compile": False}, False),
    ("2026-01-03-phase.json", 30, {"phases": {"check": {}}}, False),
    ("2026-01-03-empty.json", 30, {"phases": {}}, False),
    ("roofs.json", 40, {}, False),
]

wrong = 0


def check(what, is_right):
    global wrong
    if not is_right:
        print(what)
        wrong += 1


with tempfile.TemporaryDirectory() as together:
    for name, time, other, is_taken in FILES:
        for folder in (together, os.path.join(together, name + ".alone")):
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                json.dump({**RIGHT, **other, "name": name}, file)
            os.utime(os.path.join(folder, name), (time, time))
        alone = gpu_claim.newest(folder, WANTED, PHASES)
        check(f"{name}: {alone}", (alone is not None) == is_taken)
    found = gpu_claim.newest(together, WANTED, PHASES)
    check(f"of all: {found}", found is not None and found["name"] == "2026-01-02-new.json")
    check("of no such GPU", gpu_claim.newest(together, {**WANTED, "found": None}, PHASES) is None)
sys.exit(wrong > 0)
