"""What scripts/device says before it measures, of made-up findings of cohobate doctor and figures of nvidia-smi; and
which figures it finds in the sentences of a profile."""

import importlib.machinery
import importlib.util
import sys

sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("device", sys.argv[1])
DEVICE = importlib.util.module_from_spec(importlib.util.spec_from_loader("device", LOADER))
LOADER.exec_module(DEVICE)


def finding(subject, level="ok", found="f", cost="", remedy=""):
    return {"subject": subject, "level": level, "found": found, "cost": cost, "remedy": remedy}


CUDA, GPU = finding("CUDA"), finding("GPU 0", found="NVIDIA H100")
LIBRARIES = [finding("cuBLASLt"), finding("cuDNN")]
FREE = {"memory.free": "80000 MiB", "memory.total": "81559 MiB"}
# name, findings, nvidia-smi's, device, words of the refusal (None: none), words of what will be missing
CASES = [
    ("all is there", [CUDA, GPU, *LIBRARIES], FREE, "cuda:0", None, []),
    ("nvidia-smi is not", [CUDA, GPU, *LIBRARIES], {}, "cuda:0", None, []),
    ("nvidia-smi does not say", [CUDA, GPU, *LIBRARIES], {"memory.free": "[N/A]"}, "cuda:0", None, []),
    ("no driver", [finding("CUDA", "warn", "no driver is installed", "c", "install one"), *LIBRARIES], {}, "cuda:0",
     ["there is no GPU 0 here", "no driver is installed", "install one"], []),
    ("no such GPU", [CUDA, GPU, *LIBRARIES], FREE, "cuda:1", ["there is no GPU 1 here"], []),
    ("an old GPU", [CUDA, finding("GPU 0", "warn", "GTX", "cannot be used", "take another")], FREE, "cuda:0",
     ["GTX", "cannot be used", "take another"], []),
    ("a full GPU", [CUDA, GPU, *LIBRARIES], {**FREE, "memory.free": "3071 MiB"}, "cuda:0",
     ["3071 of 81559 MiB free", "3072 are needed"], []),
    ("as much as is needed", [CUDA, GPU, *LIBRARIES], {**FREE, "memory.free": "3072 MiB"}, "cuda:0", None,
     ["78487 of 81559 MiB of GPU 0 are in use"]),
    ("no cuDNN", [CUDA, GPU, LIBRARIES[0], finding("cuDNN", "note", "not here", "slower", "pip install it")], FREE, "cuda:0",
     None, ["cuDNN: not here: slower; pip install it"]),
]

# What a profile says for people, as cohobate profile prints it.
TEXT = """note: 16.00 MiB of pinned memory: 0.125 s per GiB to touch it first, 0.250 s to pin it
note: copies of 64.00 KiB: 10.5 GB/s to the device, 9.5 GB/s from it, 8.0 and 7.5 GB/s at once
note: the drive is measured through posix: no io_uring
note: reads of 1.00 MiB on the drive: 1.50 GB/s with 1, 2.75 with 2, 3.00 with 16 at a time
"""
ROWS = {"copies": [{"size": "64.00 KiB", "h2d": 10.5, "d2h": 9.5, "h2d_beside": 8.0, "d2h_beside": 7.5}],
        "pinning": [{"size": "16.00 MiB", "touch_s_per_gib": 0.125, "pin_s_per_gib": 0.25}],
        "drive": [{"of": "reads", "size": "1.00 MiB", "gb_per_s_by_depth": {1: 1.5, 2: 2.75, 16: 3.0}}]}

wrong = 0
if DEVICE.told(TEXT) != ROWS:
    print(f"what a profile tells: {DEVICE.told(TEXT)!r}")
    wrong += 1
if abs(sum(DEVICE.PHASES.values()) - 1) > 1e-9 or set(DEVICE.PHASES) != set(DEVICE.RUN):
    print(f"shares of the time: {DEVICE.PHASES}")
    wrong += 1
for name, findings, smi, device, refusal_words, lack_words in CASES:
    refusal, lacks = DEVICE.preflight(findings, smi, device)
    right = (refusal is None) == (refusal_words is None) and all(word in refusal for word in refusal_words or [])
    right = right and len(lacks) == len(lack_words) and all(word in said for word, said in zip(lack_words, lacks))
    if not right:
        print(f"{name}: {refusal!r}, {lacks!r}")
        wrong += 1
sys.exit(wrong > 0)
