"""Common parts of the tests against PyTorch: runs the dump program and reads its output. Each test file is run as
`test_x.py PATH-OF-DUMP [--device cuda:0 --profile h200] [unittest arguments]`, prints its worst ratios in its last
line, and exits 77 if PyTorch is not installed. PyTorch always computes on the processor. With --device, the GPU's
kernels must meet the same criteria; the profile, of any GPU, prices plans and changes no result."""

import math
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy
    import torch
except ImportError as missing:
    print(f"{sys.executable} has no {missing.name}: install python3-torch and python3-numpy to compare with PyTorch")
    sys.exit(77)

import gpt2_torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from length import SHORT, in_full

def taken(flag):
    """The value of a command line flag, which is then hidden from unittest; None: absent."""
    if flag not in sys.argv[:-1]:
        return None
    at = sys.argv.index(flag)
    value = sys.argv[at + 1]
    del sys.argv[at:at + 2]
    return value


DUMP = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "parity_dump"
# Where the engine runs; empty: on the host device.
WHERE = {name: value for name in ("device", "profile") if (value := taken("--" + name)) is not None}
UNIT = 2.0 ** -24  # largest relative error of one rounding to float
# As the engine has them: rounded to float. 1 - beta is exact in float for betas in [0.5, 1].
SETTINGS = {name: float(numpy.float32(value))
            for name, value in (("beta1", 0.9), ("beta2", 0.95), ("epsilon", 1e-8), ("decay", 0.1))}

# Odd sizes, targets of -1, biases and gains that matter.
ODD = {"layers": 3, "heads": 4, "channels": 64, "positions": 40, "vocabulary": 311, "sequences": 3, "tokens": 33,
       "microbatches": 2, "ignored": 0.06, "drawn": True}
# More rows than a block of the table (1024), more tokens than a block of attention (128 queries, 128 keys).
WIDE_TABLE = {"layers": 2, "heads": 3, "channels": 48, "positions": 300, "vocabulary": 2311, "sequences": 2,
              "tokens": 273, "microbatches": 1, "ignored": 0.0, "drawn": True}
# The smallest preset on bytes, from its own initialisation.
NANO = {"layers": 6, "heads": 6, "channels": 384, "positions": 1024, "vocabulary": 257, "sequences": 2, "tokens": 48,
        "microbatches": 2, "ignored": 0.0, "drawn": False}

FIGURES = {}


def remember(name, ratio):
    """Keeps the worst ratio; NaN is worse than any."""
    FIGURES[name] = ratio if math.isnan(ratio) else max(FIGURES.get(name, 0.0), ratio)


def made_batches(config, steps, seed=7):
    """Text that can be learned: the next token mostly follows from the one before."""
    draw = numpy.random.default_rng(seed)
    shape = (steps, config["microbatches"], config["sequences"])
    text = draw.integers(config["vocabulary"], size=shape + (config["tokens"] + 1,), dtype=numpy.int32)
    for t in range(config["tokens"]):
        follows = draw.random(shape) < 0.8
        text[..., t + 1] = numpy.where(follows, (text[..., t] * 3 + 1) % config["vocabulary"], text[..., t + 1])
    tokens, targets = text[..., :-1].copy(), text[..., 1:].copy()
    targets[draw.random(targets.shape) < config["ignored"]] = -1
    return list(zip(tokens, targets))


def drawn_weights(tensors, seed=11):
    """Larger than GPT-2's initial weights, no bias zero, no gain one: each term of each formula matters."""
    draw = numpy.random.default_rng(seed)
    weights = {}
    for name, (shape, _) in tensors.items():
        noise = draw.standard_normal(shape).astype(numpy.float32)
        is_gain = name.endswith("weight") and len(shape) == 1
        weights[name] = numpy.float32(0.08 if len(shape) == 2 else 0.2) * noise + numpy.float32(is_gain)
    return weights


class Run:
    """One run of the dump program and its output."""

    def __init__(self, folder, config, steps, weights=None, environment=None, batches=None, **more):
        self.folder = tempfile.mkdtemp(dir=folder)
        self.batches = made_batches(config, steps) if batches is None else batches
        batches = os.path.join(self.folder, "batches")
        with open(batches, "wb") as file:
            for tokens, targets in self.batches:
                file.write(tokens.tobytes() + targets.tobytes())
        settings = {"deferred": 1, "threads": 2, "lr": 1e-3, "min_lr": 1e-4, "warmup": 0, "clip": 1.0,
                    **{key: value for key, value in config.items() if isinstance(value, int)}, **WHERE, **more}
        settings.update(steps=steps, batches=batches, out=self.folder, disk=self.folder)
        if weights is not None:
            settings["weights"] = os.path.join(self.folder, "weights")
            with open(settings["weights"], "wb") as file:
                for value in weights.values():
                    file.write(value.tobytes())
        done = subprocess.run([DUMP, *(f"{key}={value}" for key, value in settings.items())], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              env={**os.environ, **(environment or {})})
        if done.returncode != 0:
            raise AssertionError(f"{settings}\n{done.stdout}")
        with open(self.path("tensors"), encoding="utf-8") as file:
            lines = [line.split() for line in file]
        self.tensors = {line[0]: (tuple(map(int, line[2:])), line[1] == "1") for line in lines}
        self.decays = {name: decays for name, (_, decays) in self.tensors.items()}
        with open(self.path("frozen"), encoding="utf-8") as file:
            self.frozen = set(file.read().split())
        with open(self.path("plan"), encoding="utf-8") as file:
            self.plan = dict(line.split(" ", 1) for line in file)
        with open(self.path("steps"), encoding="utf-8") as file:
            rows = numpy.array([[float(value) for value in line.split()] for line in file])
        self.rates, self.losses, self.norms = rows.reshape(-1, 3).T

    def path(self, name):
        return os.path.join(self.folder, name)

    def stream(self, name, count):
        values = numpy.fromfile(self.path(f"{name}-{count}"), dtype=numpy.float32)
        found, at = {}, 0
        for tensor, (shape, _) in self.tensors.items():
            if tensor in self.frozen and name != "value":
                continue
            elements = math.prod(shape)
            found[tensor] = values[at:at + elements].reshape(shape)
            at += elements
        assert at == len(values)
        return found


def norm_of(tensors):
    return math.sqrt(sum((numpy.asarray(value, dtype=numpy.float64) ** 2).sum() for value in tensors.values()))


def torch_gradients(weights, config, batch, dtype):
    values = gpt2_torch.leaves(weights, dtype)
    loss = gpt2_torch.gradients_of(values, config, batch)
    return loss, {name: value.grad.double().numpy() for name, value in values.items()}


class ParityTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="cohobate-parity-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_dump(self, config, steps, **more):
        weights = None
        if config["drawn"]:
            weights = drawn_weights(Run(self.folder, config, 0).tensors)
        return Run(self.folder, config, steps, weights=weights, **more)

    def holds(self, name, found, bound, what):
        """found <= bound, so that NaN fails; the ratio is remembered as `name`."""
        remember(name, found / bound)
        if not found <= bound:
            self.fail(f"{what}: {found:g} is more than {bound:g}")


def main():
    torch.set_num_threads(1)  # its threads spin, which costs minutes on a machine that is busy
    result = unittest.main(exit=False).result
    print(f"worst error / bound, PyTorch {torch.__version__}: " +
          ", ".join(f"{name} {ratio:.3g}" for name, ratio in FIGURES.items()), flush=True)
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
