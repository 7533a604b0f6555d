"""What scripts/device says before it measures: made-up findings of cohobate doctor and figures of nvidia-smi."""

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
    ("a full GPU", [CUDA, GPU, *LIBRARIES], {**FREE, "memory.free": "2559 MiB"}, "cuda:0",
     ["2559 of 81559 MiB free", "2560 are needed"], []),
    ("as much as is needed", [CUDA, GPU, *LIBRARIES], {**FREE, "memory.free": "2560 MiB"}, "cuda:0", None,
     ["78999 of 81559 MiB of GPU 0 are in use"]),
    ("no cuDNN", [CUDA, GPU, LIBRARIES[0], finding("cuDNN", "note", "not here", "slower", "pip install it")], FREE, "cuda:0",
     None, ["cuDNN: not here: slower; pip install it"]),
]

wrong = 0
for name, findings, smi, device, refusal_words, lack_words in CASES:
    refusal, lacks = DEVICE.preflight(findings, smi, device)
    right = (refusal is None) == (refusal_words is None) and all(word in refusal for word in refusal_words or [])
    right = right and len(lacks) == len(lack_words) and all(word in said for word, said in zip(lack_words, lacks))
    if not right:
        print(f"{name}: {refusal!r}, {lacks!r}")
        wrong += 1
sys.exit(wrong > 0)
