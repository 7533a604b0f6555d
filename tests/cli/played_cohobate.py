#!/usr/bin/env python3
"""Replaces the program in tests where a played GPU would take hours. The preset is replaced by a model of two small
blocks, measured figures by a datasheet's (as_measured.c), and a budget that only the preset exceeds by one that this
model exceeds. Everything else is the program.

COH_PLAYED: a folder with the model, the budget in bytes and a link to as_measured. COH_EMULATED_NAME: the GPU's name.
"""

import os
import sys

HERE = os.environ["COH_PLAYED"]
PROGRAM = os.path.join(HERE, "as_measured")
# In the format of cohobate profile.
SAYS = """note: 16.00 MiB of pinned memory: 0.125 s per GiB to touch it first, 0.250 s to pin it
note: copies of 64.00 KiB: 10.5 GB/s to the device, 9.5 GB/s from it, 8.0 and 7.5 GB/s at once
note: reads of 1.00 MiB on the drive: 1.50 GB/s with 1, 2.75 with 2, 3.00 with 16 at a time
"""


def main():
    words = [os.path.join(HERE, "model") if word == "gpt2-nano" else word for word in sys.argv[1:]]
    if words[:1] == ["profile"]:
        sys.stderr.write(SAYS)
        words = ["measured", "h200", os.environ["COH_EMULATED_NAME"], words[words.index("-o") + 1]]
    if "--vocabulary" in words:  # the folder's
        at = words.index("--vocabulary")
        del words[at:at + 2]
    if words[:1] == ["train"] and "--device-memory" in words:
        with open(os.path.join(HERE, "budget"), encoding="utf-8") as file:
            words[words.index("--device-memory") + 1] = file.read()
    os.execv(PROGRAM, [PROGRAM, *words])


if __name__ == "__main__":
    main()
