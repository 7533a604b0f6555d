#!/usr/bin/env python3
"""Writes the assembly that puts fatbins into the library, with the table that kernels/cuda/launch.c
declares.

    embed.py OUT.S NAME.fatbin..."""

import os
import sys

BLOB = """
    .section .rodata
    .balign 16
coh_fatbin_{name}:
    .incbin "{path}"
coh_fatbin_{name}_end:
coh_fatbin_{name}_name:
    .asciz "{name}"
"""
ROW = "    .quad coh_fatbin_{name}_name, coh_fatbin_{name}, coh_fatbin_{name}_end - coh_fatbin_{name}\n"


def main():
    out, paths = sys.argv[1], sys.argv[2:]
    names = {os.path.basename(path).split(".")[0]: os.path.abspath(path) for path in paths}
    with open(out, "w", encoding="utf-8") as file:
        for name, path in names.items():
            file.write(BLOB.format(name=name, path=path))
        file.write("""
    .section .data.rel.ro, "aw"
    .balign 8
    .globl coh_fatbins
    .hidden coh_fatbins
    .type coh_fatbins, %object
coh_fatbins:
""")
        for name in names:
            file.write(ROW.format(name=name))
        file.write("    .quad 0, 0, 0\n    .size coh_fatbins, . - coh_fatbins\n"
                   '\n    .section .note.GNU-stack, "", %progbits\n')


if __name__ == "__main__":
    main()
