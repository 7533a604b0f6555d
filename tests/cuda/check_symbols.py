#!/usr/bin/env python3
"""Checks that every kernel of kernels/cuda/kernel_list.h is in the fatbin of its file, for every requested GPU and as
PTX for newer ones, and that every kernel in a fatbin is in the list.

    check_symbols.py KERNEL_LIST ARCHS FATBIN...    ARCHS: 80,90
    check_symbols.py --self-test

A fatbin holds one ELF file for each GPU, whose sections .text.NAME are its kernels. After a header of 16 bytes it has
entries, each with a header: the type, the lengths of the header and of the data, and the GPU."""

import os
import re
import struct
import sys

ENTRY = re.compile(r'^COH_CUDA_(KERNEL|PAIR|DROPS)\(\w+, "(\w+)", "(\w+)"\)', re.M)
ENDINGS = {"KERNEL": [""], "PAIR": ["_f32", "_bf16"], "DROPS": ["", "_drop"]}
CUDA_MACHINE = 190
FATBIN_MAGIC, FATBIN_PTX = 0xba55ed50, 1
PTX_OF = "90"  # kernels/cuda/meson.build


def read_list(text):
    """{file: {symbol}}"""
    files = {}
    for entry, symbol, file in ENTRY.findall(text):
        files.setdefault(file, set()).update(symbol + ending for ending in ENDINGS[entry])
    return files


def kernels_of_elf(data, begin):
    """(GPU, {kernel}) of the ELF file at this offset, or None."""
    machine, = struct.unpack_from("<H", data, begin + 18)
    if machine != CUDA_MACHINE:
        return None
    sections_at, flags = struct.unpack_from("<QI", data, begin + 40)
    size, count, names_index = struct.unpack_from("<HHH", data, begin + 58)
    headers = [begin + sections_at + i * size for i in range(count)]
    names_at, = struct.unpack_from("<Q", data, headers[names_index] + 24)
    kernels = set()
    for header in headers:
        name_at = begin + names_at + struct.unpack_from("<I", data, header)[0]
        name = data[name_at:data.index(b"\0", name_at)].decode()
        if name.startswith(".text."):
            kernels.add(name.removeprefix(".text."))
    return flags >> 8 & 0xff, kernels


def read_fatbin(data):
    """{GPU: {kernel}}"""
    found = {}
    for match in re.finditer(b"\x7fELF", data):
        elf = kernels_of_elf(data, match.start())
        if elf:
            found[str(elf[0])] = elf[1]
    return found


def ptx_of(data):
    """The GPUs that a fatbin has PTX for."""
    found = set()
    magic, _, at, size = struct.unpack_from("<IHHQ", data, 0)
    end = at + size if magic == FATBIN_MAGIC else 0
    while at < end:
        kind, _, header_bytes, data_bytes = struct.unpack_from("<HHIQ", data, at)
        if kind == FATBIN_PTX:
            found.add(str(struct.unpack_from("<I", data, at + 28)[0]))
        at += header_bytes + data_bytes
    return found


def compare(name, listed, gpus, found, ptx):
    """A message for each difference."""
    errors = [f"{name}: no code for GPU {gpu}" for gpu in gpus if gpu not in found]
    if PTX_OF not in ptx:
        errors.append(f"{name}: no PTX for GPUs newer than {PTX_OF}")
    for gpu, kernels in found.items():
        errors += [f"{name}: {symbol} is in kernel_list.h but not in the code for GPU {gpu}"
                   for symbol in sorted(listed - kernels)]
        errors += [f"{name}: {symbol} is in the code for GPU {gpu} but not in kernel_list.h"
                   for symbol in sorted(kernels - listed)]
    return errors


def self_test():
    listed = {"a", "b"}
    both = {"a", "b"}
    cases = [({"80": both, "90": both}, {"90"}, 0), ({"80": both}, {"90"}, 1), ({"80": both, "90": {"a"}}, {"90"}, 1),
             ({"80": both | {"c"}, "90": both}, {"90"}, 1), ({"80": both, "90": both}, set(), 1),
             ({"80": both, "90": both}, {"80"}, 1)]
    wrong = [found for found, ptx, errors in cases if len(compare("x", listed, ["80", "90"], found, ptx)) != errors]
    entries = b"".join(struct.pack("<HHIQ12xI32x", kind, 257, 64, 8, arch) + b"\0" * 8 for kind, arch in ((2, 80), (1, 90)))
    wrong += [entries] if ptx_of(struct.pack("<IHHQ", FATBIN_MAGIC, 1, 16, len(entries)) + entries) != {"90"} else []
    print(f"self-test: {len(cases) + 1} cases, {len(wrong)} misjudged")
    return 1 if wrong else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    list_path, gpus, paths = sys.argv[1], re.findall(r"\d+", sys.argv[2]), sys.argv[3:]
    with open(list_path, encoding="utf-8") as file:
        listed = read_list(file.read())
    errors, kernel_count = [], 0
    for path in paths:
        name = os.path.basename(path).split(".")[0]
        with open(path, "rb") as file:
            data = file.read()
        errors += compare(name, listed.pop(name, set()), gpus, found := read_fatbin(data), ptx_of(data))
        kernel_count += sum(map(len, found.values()))
    errors += [f"{name}: kernel_list.h names it, no such .cu was compiled" for name in listed]
    for error in errors:
        print(error)
    print(f"{kernel_count} kernels in {len(paths)} fatbins of sm_{', sm_'.join(gpus)} and PTX, {len(errors)} wrong")
    return 1 if errors or kernel_count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
