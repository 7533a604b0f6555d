"""Checks scripts/device with made-up data: its messages before it measures (findings of cohobate doctor, figures of
nvidia-smi), the figures it reads from a profile's sentences, its verdicts on programs that end in various ways (right,
skipped, rows kept), and what it builds."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import sys
import tempfile
import types

sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("device", sys.argv[1])
DEVICE = importlib.util.module_from_spec(importlib.util.spec_from_loader("device", LOADER))
LOADER.exec_module(DEVICE)


def finding(subject, level="ok", found="f", cost="", remedy=""):
    return {"subject": subject, "level": level, "found": found, "cost": cost, "remedy": remedy}


CUDA, GPU = finding("CUDA"), finding("GPU 0", found="NVIDIA H100")
LIBRARIES = [finding("cuBLASLt"), finding("cuDNN")]
FREE = {"memory.free": "80000 MiB", "memory.total": "81559 MiB"}
# name, findings, nvidia-smi's, device, words of the refusal (None: none), words on what will be missing
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

# A profile's report for people, as cohobate profile prints it.
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


def expect(what, found, wanted):
    global wrong
    if found != wanted:
        print(f"{what}: {found!r}, not {wanted!r}")
        wrong += 1


class Played:
    """A session whose programs print given texts. said: name of a program, or its first argument, -> exit code,
    standard output and error."""

    def __init__(self, said, build="not-built", **results):
        self.said, self.skipped, self.check, self.calibration = said, [], "gpu-check", "c"
        self.options = type("options", (), {"tiny": False, "build": build, "python": "python", "compile": False})
        self.results = {"phases": {}, **results}

    def skip(self, what, reason):
        self.skipped.append(f"{what}: {reason}")

    def run_any(self, *command, **_):
        return next((self.said[str(word)] for word in command if str(word) in self.said), (0, "", ""))


def quietly(run, *arguments):
    with contextlib.redirect_stdout(io.StringIO()):
        return run(*arguments)


# ---- groups of gpu-check ----
LAST = "rows             right\n"
NOT_HERE = "skipped: cuDNN is not on this machine"
played = Played({"attention-cudnn": (0, f"attention-cudnn  {NOT_HERE}\n", ""),
                 "matmul": (77, "skipped: no CUDA driver\n", ""), "rows": (0, LAST, ""), "optimizer": (None, "", ""),
                 "indices": (1, "indices          WRONG, 1 of its tests\n", "")})
checked = quietly(DEVICE.check, played)
expect("groups", {name: checked["groups"][name] for name in ("attention-cudnn", "matmul", "rows", "optimizer",
                                                             "indices")},
       {"attention-cudnn": "skipped", "matmul": "skipped", "rows": "right", "optimizer": "cut off", "indices": "WRONG"})
expect("groups that fail", checked["failed"], "wrong or cut off: optimizer, indices")
expect("groups skipped", sorted(played.skipped),
       ["check: attention-cudnn: skipped: cuDNN is not on this machine", "check: matmul: skipped: no CUDA driver",
        "check: optimizer: cut off: its phase was over", "check: own-cuda-layer: it is not built"])
with open(os.path.join(os.path.dirname(__file__), "..", "cuda", "gpu_check.c"), encoding="utf-8") as source:
    expect("groups that are checked", sorted(DEVICE.CHECKS), sorted(re.findall(r'^    { "([\w-]+)", ', source.read(), re.M)))

# ---- benchmarks ----
with tempfile.TemporaryDirectory() as build:
    os.mkdir(os.path.join(build, "benchmarks"))
    ROW = {"shape": "XL", "median": 1.0, "unit": "GFLOP", "ceiling": 2.0}
    GOOD, BAD = ({**ROW, "ratio": ratio, "of_roof": 0.25, "goal": 0.9, "is_below_goal": ratio < 0.9} for ratio in (0.95, 0.5))
    said = {}
    for name, done in (("gpu_rows", (0, "".join(json.dumps(row) + "\n" for row in (ROW, GOOD, BAD)),
                                     "gpu_rows   XL  1.0 GFLOP/s\n")),
                       ("gpu_attention", (0, "", "gpu_attention: cuDNN has no plan for XL\n"))):
        said[os.path.join(build, "benchmarks", "bench_" + name)] = done
        open(os.path.join(build, "benchmarks", "bench_" + name), "w").close()
    played = Played(said, build)
    expect("benches", quietly(DEVICE.benches, played, dict.fromkeys(("gpu_rows", "gpu_attention", "gpu_products"), [])),
           {"rows": {"gpu_rows": [ROW, GOOD, BAD], "gpu_attention": []},
            "below_goals": ["gpu_rows XL: 1 GFLOP, ceiling 2, 0.500 of it, 0.250 of the roof, BELOW its goal of 0.9"]})
    expect("benches skipped", [one.partition(": it")[0] for one in played.skipped],
           ["gpu_attention: cuDNN has no plan for XL", "gpu_products"])

# ---- models ----


def run_of(model, flags, graphs):
    """gpt2-xl: another hash with updates on the host; opt-6.7b does not fit in memory."""
    alone = flags == DEVICE.IN_MEMORY
    if model == "opt-6.7b" and alone:
        raise DEVICE.Failed("exit 3: 7 bytes short")
    return {"tokens_per_second": 1e5 if alone else 2e5, "predicted_step_seconds": 0.1, "step_seconds": 0.2,
            "link_bytes": {} if alone else {"h2d": 7}, "hash": "other" if model == "gpt2-xl" and not alone else "h"}


DEVICE.train = lambda session, model, *case, graphs=True: run_of(model, tuple(case[5:]), graphs)
played = Played({}, datasheet={"bf16_flops_per_s": 1e15})
played.results["phases"]["profile"] = {"profile": {"flops_per_s": {"bf16": [1, 8e14, 9e14, 3]}}}
found = quietly(DEVICE.memory, played)
expect("rows in memory", sorted(found["rows"]), ["gpt2", "gpt2-xl"])
expect("rows by default", sorted(found["by_default"]), ["gpt2", "gpt2-xl", "opt-6.7b"])
expect("bits", found["failed"], "other bits: gpt2-xl as train divides it")
expect("models skipped", played.skipped, ["memory: opt-6.7b: exit 3: 7 bytes short"])
# by hand: 6 (12 layers x 12 x 768^2 + 50257 x 768) + 12 x 12 x 768 x 1024 operations a token, at 100,000 tokens/s
parts = found["rows"]["gpt2"]["utilisation"]
expect("FLOP of a token", parts["flops_per_token"], 6 * (84934656 + 38597376) + 113246208)
expect("of the roofs", [round(parts[of], 6) for of in ("of_measured_roof", "of_datasheet")], [0.106805, 0.085444])

# ---- PyTorch ----


class Small(Played):
    """A GPU without room for f32 parameters."""

    def run_any(self, *command, **_):
        mode = command[command.index("--mode") + 1]
        if mode == "autocast":
            return 1, "", "torch.OutOfMemoryError: CUDA out of memory. Tried\n"
        return 0, "\n".join(json.dumps(row) for row in ({"mode": mode}, {"seconds": [9]}, {"seconds": [2.0]})), ""


row = DEVICE.by_pytorch(Small({}), 257, 16, 4, 2, 3, (6, 6, 384))
expect("where f32 does not fit", (row["mode"], row["tokens_per_second"], "note" in row), ("bf16", 32.0, True))

# ---- builds ----


class Building(Played):
    """Records what is run, and its time limit."""

    def __init__(self, build, allow_build):
        super().__init__({}, build)
        self.options.allow_build, self.ran = allow_build, []
        self.cohobate, self.check = (os.path.join(build, name) for name in ("cohobate", "gpu-check"))

    def begin(self, seconds):
        self.ran.append(seconds)

    def run(self, *command):
        self.ran.append(command)


def built(build, allow_build=True):
    session = Building(build, allow_build)
    try:
        DEVICE.build_if_missing(session)
    except DEVICE.Failed:
        return "refused"
    return session.ran


DEVICE.shutil.which = lambda name: name
with tempfile.TemporaryDirectory() as build:
    options = ("-Dbenchmarks=true", "-Dtests=true", "-Dcuda=enabled", build, DEVICE.ROOT)
    ninja = ("ninja", "-C", build)
    expect("nothing there", built(build, False), "refused")
    expect("a build", built(build), [DEVICE.BUILD_S, ("meson", "setup", *options), ninja])
    for name in ("cohobate", "gpu-check", "build.ninja"):
        open(os.path.join(build, name), "w").close()
    expect("programs without benchmarks", built(build, False), [])
    expect("benchmarks", built(build), [DEVICE.BUILD_S, ("meson", "setup", "--reconfigure", *options), ninja])
# ---- ids: 2 bytes each, or 4 for a vocabulary above 65,536 (docs/data.md) ----
with tempfile.TemporaryDirectory() as folder:
    for vocabulary, id_bytes in ((257, 2), (1 << 16, 2), (151936, 4)):
        ids = DEVICE.random_ids(types.SimpleNamespace(work=folder), vocabulary, 1000)
        expect(f"bytes of 1,000 ids below {vocabulary}", os.path.getsize(ids), 1000 * id_bytes)

# ---- the log of a result names no folder of the machine that made it ----
with tempfile.TemporaryDirectory() as folder:
    session = DEVICE.Session(types.SimpleNamespace(build=folder, minutes=1, device="cuda:0", tiny=True, compile=False))
    session.run_any("true", os.path.join(folder, "cli", "cohobate"), "--of=" + folder, folder + "s")
    expect("the command of a log", session.results["log"][0]["command"],
           ["true", "build/cli/cohobate", "--of=build", folder + "s"])

sys.exit(wrong > 0)
