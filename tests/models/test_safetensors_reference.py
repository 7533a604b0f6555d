#!/usr/bin/env python3
"""Our reader and writer compared with the package `safetensors`, the format's reference.

    test_safetensors_reference.py TOOL RECORDED

Skipped (77) without the package or numpy. TOOL is safetensors_tool, RECORDED the file that safetensors_cases.py wrote.
"""

import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../reference"))
import reference_python  # noqa: E402

reference_python.need("numpy", "safetensors")

import numpy  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

from safetensors_cases import CASES, reference_verdict  # noqa: E402

TOOL, RECORDED = sys.argv[1:]
MUTANTS, SEED = 6000, 4

# Parts of our messages that are allowed against an "ok" of the reference: safetensors.h lists them.
STRICTER = [
    "occurs twice", "is empty", "is too long", "holds a control character", "holds a NUL",
    "begins with '{'", "which is not known", "'{' is missing", "string is missing",
    "more than 8 numbers", "more elements than 64 bits",
]


def run(*arguments):
    return subprocess.run([TOOL, *arguments], stdout=subprocess.PIPE, check=True, text=True).stdout


def judge(contents):
    """Our verdict on each: "ok" or a message."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, str(i)) for i in range(len(contents))]
        for path, content in zip(paths, contents):
            with open(path, "wb") as target:
                target.write(content)
        verdicts = []
        for begin in range(0, len(paths), 500):
            verdicts += run("judge", *paths[begin:begin + 500]).splitlines()
    assert len(verdicts) == len(contents)
    return verdicts


def the_recorded_verdicts_are_those_of_the_installed_package():
    with open(RECORDED, encoding="ascii") as source:
        recorded = [line.rstrip("\n").split("\t") for line in source]
    assert [line[0] for line in recorded] == [case[0] for case in CASES], "run safetensors_cases.py again"
    for (name, verdict, ours, content), case in zip(recorded, CASES):
        assert (ours, content) == (case[1], case[2].hex()), name
        assert verdict == reference_verdict(case[2]), name


def mutate(content, draw):
    content = bytearray(content)
    header_bytes = int.from_bytes(content[:8], "little")
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        at = draw.randrange(len(content)) if draw.random() < 0.1 else draw.randrange(8, 8 + header_bytes)
        how = draw.random()
        if how < 0.5:
            content[at] = draw.choice(b"{}[]\":,0123456789\\u- \n\tabe.\x00\xc3\xff")
        elif how < 0.7:
            content[at] ^= 1 << draw.randrange(8)
        elif how < 0.85 and header_bytes > 1:  # one byte less, with a correct length
            del content[min(at, 7 + header_bytes)]
            header_bytes -= 1
        else:
            content.insert(at, draw.choice(b"{}[]\":,0123456789\\ -"))
            header_bytes += 1
        if draw.random() < 0.98:
            content[:8] = header_bytes.to_bytes(8, "little")
    return bytes(content)


def mutants_get_the_verdict_of_the_reference():
    draw = random.Random(SEED)
    good = [content for _, ours, content in CASES if ours == "ok" and len(content) < 500]
    mutants = [mutate(draw.choice(good), draw) for _ in range(MUTANTS)]
    counts = {"both ok": 0, "both refuse": 0, "stricter": 0}
    for content, verdict in zip(mutants, judge(mutants)):
        reference = reference_verdict(content)
        if reference == "refused":
            assert verdict != "ok", f"accepted, seed {SEED}: {content!r}"
            counts["both refuse"] += 1
        elif verdict == "ok":
            counts["both ok"] += 1
        else:
            assert any(part in verdict for part in STRICTER), f"{verdict}, seed {SEED}: {content!r}"
            counts["stricter"] += 1
    print(counts)
    assert counts["both ok"] > MUTANTS // 50 and counts["both refuse"] > MUTANTS // 4


def made_tensors(draw):
    """Of every dtype that numpy has, in odd shapes; floats have any bits, including NaNs."""
    tensors = {}
    for i in range(draw.randrange(1, 30)):
        dtype = draw.choice(["f4", "f4", "f2", "f2", "f8", "i8", "i1", "u2", "?"])
        shape = tuple(draw.choice([0, 1, 2, 3, 5, 17, 300]) for _ in range(draw.randrange(0, 4)))
        size = int(numpy.prod(shape, dtype=int)) * numpy.dtype(dtype).itemsize
        content = draw.randbytes(size) if dtype != "?" else bytes(draw.randrange(2) for _ in range(size))
        name = draw.choice(["h", "model.layers", "größe", "a\"b\\"]) + f".{i}.weight"
        tensors[name] = numpy.ndarray(shape, dtype, bytearray(content or b"x"))
    return tensors


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].dtype == right[name].dtype and left[name].shape == right[name].shape, name
        assert left[name].tobytes() == right[name].tobytes(), name


def read(path):
    with open(path, "rb") as source:
        return source.read()


def files_of_the_reference_are_copied_byte_for_byte():
    draw = random.Random(SEED)
    for i in range(40):
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = os.path.join(folder, "theirs"), os.path.join(folder, "ours")
            save_file(made_tensors(draw), theirs, draw.choice([None, {}, {"format": "pt"}, {"a": "1", "b": "é\n"}]))
            run("copy", theirs, ours)
            assert read(theirs) == read(ours), f"model {i}, seed {SEED}"


def shards_are_read_by_the_reference_and_come_back():
    draw = random.Random(SEED + 1)
    for i in range(20):
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = os.path.join(folder, "theirs"), os.path.join(folder, "ours")
            shards = os.path.join(folder, "shards")
            tensors = made_tensors(draw)
            save_file(tensors, theirs, {"format": "pt"})
            limit = draw.choice([1, 1000, 100000])
            run("split", theirs, shards, str(limit))
            found = {}
            files = sorted(name for name in os.listdir(shards) if name.endswith(".safetensors"))
            for name in files:
                found.update(load_file(os.path.join(shards, name)))
            assert_same(tensors, found)
            if len(files) > 1:
                text = read(os.path.join(shards, "model.safetensors.index.json")).decode()
                index = json.loads(text)
                assert text == json.dumps(index, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
                assert index["metadata"]["total_size"] == sum(t.nbytes for t in tensors.values())
                assert index["weight_map"].keys() == tensors.keys()
            run("copy", shards, ours)
            # Shards are in the reference's order, so joining them gives the reference's file.
            assert read(theirs) == read(ours), f"model {i}, seed {SEED + 1}"


def f16_is_rounded_as_numpy_rounds_it():
    draw = numpy.random.default_rng(SEED)
    bits = draw.integers(0, 1 << 32, 200000, dtype=numpy.uint32)
    near = (draw.standard_normal(200000) * 10.0 ** draw.integers(-9, 6, 200000)).astype(numpy.float32)
    values = numpy.concatenate([bits.view(numpy.float32), near])
    with tempfile.TemporaryDirectory() as folder, numpy.errstate(all="ignore"):
        wide, half, back = (os.path.join(folder, name) for name in ["wide", "half", "back"])
        save_file({"x": values}, wide)
        run("copy", wide, half, "F16")
        found, expected = load_file(half)["x"], values.astype(numpy.float16)
        numbers = ~numpy.isnan(values)
        assert (found.view(numpy.uint16) == expected.view(numpy.uint16))[numbers].all()
        assert numpy.isnan(found[~numbers]).all()
        run("copy", half, back, "F32")
        assert numpy.array_equal(load_file(back)["x"], found.astype(numpy.float32), equal_nan=True)


if __name__ == "__main__":
    for claim in [
        the_recorded_verdicts_are_those_of_the_installed_package,
        mutants_get_the_verdict_of_the_reference,
        files_of_the_reference_are_copied_byte_for_byte,
        shards_are_read_by_the_reference_and_come_back,
        f16_is_rounded_as_numpy_rounds_it,
    ]:
        claim()
        print("ok", claim.__name__)
