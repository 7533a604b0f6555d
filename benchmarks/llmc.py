"""llm.c's CPU trainer as a worker: the third side of benchmarks/compare, if someone has built it.

It takes no requests: it trains for 41 steps and prints a line after each. So it is stopped (SIGSTOP) as soon as a line
is there, and continued (SIGCONT) for as many steps as requested, on a pseudo-terminal, so that each line arrives when
it is printed. Every tenth step also validates, and every twentieth generates: these are run and not counted. It reads a
checkpoint and token files in its own formats; random ones are used."""

import os
import pty
import re
import signal
import subprocess
import time

import measure

# Its formats: 256 integers, then the data. Magic, version, then sizes.
MODEL_MAGIC, MODEL_VERSION = 20240326, 3
TOKENS_MAGIC, TOKENS_VERSION = 20240520, 1
POSITIONS, VOCABULARY, LAYERS, HEADS, CHANNELS, PADDED = 1024, 50257, 12, 12, 768, 50304


def write_model(path):
    """GPT-2 124M with random weights, tensor kinds in sequence, each for all layers."""
    import numpy
    random = numpy.random.default_rng(1)
    C, L = CHANNELS, LAYERS
    header = numpy.zeros(256, numpy.int32)
    header[:8] = (MODEL_MAGIC, MODEL_VERSION, POSITIONS, VOCABULARY, L, HEADS, C, PADDED)
    normal, one, zero = 0.02, "one", "zero"
    tensors = [(PADDED * C, normal), (POSITIONS * C, normal),
               (L * C, one), (L * C, zero), (L * 3 * C * C, normal), (L * 3 * C, zero),
               (L * C * C, normal), (L * C, zero), (L * C, one), (L * C, zero),
               (L * 4 * C * C, normal), (L * 4 * C, zero), (L * C * 4 * C, normal), (L * C, zero),
               (C, one), (C, zero)]
    with open(path, "wb") as file:
        file.write(header.tobytes())
        for count, kind in tensors:
            values = (numpy.ones(count, numpy.float32) if kind == one else numpy.zeros(count, numpy.float32)
                      if kind == zero else random.standard_normal(count, numpy.float32) * numpy.float32(kind))
            file.write(values.tobytes())


def write_tokens(path, count):
    import numpy
    header = numpy.zeros(256, numpy.int32)
    header[:3] = (TOKENS_MAGIC, TOKENS_VERSION, count)
    tokens = numpy.random.default_rng(2).integers(0, VOCABULARY, count).astype(numpy.uint16)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(header.tobytes() + tokens.tobytes())


class Llmc(measure.Worker):
    """Behaves like a worker: run(count) makes it do count plain steps."""

    def __init__(self, folder, threads):  # pylint: disable=super-init-not-called
        program = os.path.join(folder, "train_gpt2")
        if not os.access(program, os.X_OK):
            raise measure.Failed(f"no train_gpt2 in the folder of llm.c: make train_gpt2 there")
        self.name, self.last = "llm.c", {}
        if not os.path.exists(os.path.join(folder, "gpt2_124M.bin")):
            write_model(os.path.join(folder, "gpt2_124M.bin"))
        for part in ("train", "val"):
            path = os.path.join(folder, "dev", "data", "tinyshakespeare", f"tiny_shakespeare_{part}.bin")
            if not os.path.exists(path):
                write_tokens(path, 65536)
        parent, child = pty.openpty()
        self.process = subprocess.Popen([program], stdin=subprocess.DEVNULL, stdout=child, cwd=folder,
                                        env=measure.environment(OMP_NUM_THREADS=threads))
        os.close(child)
        self.lines = os.fdopen(parent, "r", encoding="utf-8", errors="replace")
        revision = subprocess.run(["git", "-C", folder, "rev-parse", "--short=12", "HEAD"], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, check=False).stdout.strip()
        self.facts = {"llm.c": revision or "not a checkout", "threads": threads}
        self.step()  # the first one allocates

    def step(self):
        """Continues it until the next step's line, then stops it. Returns the step's number and our time for it."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGCONT)
        while True:
            try:
                line = self.lines.readline()
            except OSError:  # the terminal's other end is gone
                line = ""
            if not line:
                self.close()
                raise measure.Failed("llm.c stopped: it makes 41 steps, or its files are not what it expects")
            found = re.match(r"step (\d+): train loss", line)
            if found:
                self.process.send_signal(signal.SIGSTOP)
                return int(found[1]), time.monotonic() - begin

    def run(self, count=1):
        seconds = []
        while len(seconds) < count:
            number, took = self.step()
            if number % 10 != 0:
                seconds.append(took)
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as status:
            resident = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
        self.last = {"seconds": seconds, "resident_kib": resident}
        return sum(seconds) / count

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.lines.close()
