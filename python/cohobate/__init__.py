"""Trains models larger than the memory that they are given: the C library of Cohobate from Python.

    model ──> Model.plan ──> Plan.engine ──> Engine.step ... ──> Engine.save

    tokenizer = cohobate.Tokenizer("bytes")
    cohobate.tokenize(tokenizer, "corpus.txt", "corpus.tokens")
    data = cohobate.TokenFile("corpus.tokens")
    model = cohobate.Model("gpt2-nano", vocabulary=tokenizer.vocabulary)
    rate = cohobate.Schedule(6e-4, steps=100, warmup_steps=10)
    with model.plan(8, 64, device_memory="64MiB", disk="/var/tmp") as plan, plan.engine() as engine:
        for tokens, targets in data.batches(8, 64, stop=100):
            print(engine.step(tokens, targets, rate).loss)
        engine.save("checkpoint",
                    training=engine.training_note(rate, tokenizer=tokenizer, data=data))

The one idea: this package holds no algorithm. Each class owns one object of the library, each
method is one or two of its calls, and attributes of results have the names of the C structs'
members, so that the headers document both: model.h, models.h, plan.h, engine.h, text.h and
refusal.h in include/cohobate.

Batches are arrays of 32-bit integers: NumPy's, or any object with a buffer, or lists. Arrays that
come back are NumPy's if NumPy is installed, else memoryviews of the same shape. Sizes are bytes as
an int, or text such as "64MiB".

Ownership: every object is freed by close(), by a with block, with its last reference, or at the
interpreter's exit. Closing a plan closes its engines. A closed object raises Error when it is used.
Threads: an engine belongs to the thread that made it. Several threads may use one tokenizer, token
file or checkpoint, whose calls wait for one another. close() during a call of another thread is an
Error, and frees nothing.
Errors: a call that fails raises Error with the library's sentence; one that does not fit raises
Refusal, which has the figures as attributes.

The library is libcohobate.so.0: the file that COHOBATE_LIBRARY names, else the one that the loader
finds.

To read the package, begin with model.py, plan.py and engine.py, in that order. text.py is data,
training.py and checkpoint.py are how a run goes on. _structs.py and _library.py declare what the
headers declare."""
from ._values import NO_LIMIT, parse_size
from .checkpoint import Checkpoint
from .engine import Engine
from .errors import Error, Refusal
from .extensions import load_extension
from .machine import datasheets, device, free_bytes, kernel_path, optimizers, presets, version
from .model import Model
from .plan import Plan
from .text import TokenFile, Tokenizer, mix, tokenize
from .training import Schedule, TrainingNote

__all__ = ["NO_LIMIT", "Checkpoint", "Engine", "Error", "Model", "Plan", "Refusal", "Schedule",
           "TokenFile", "Tokenizer", "TrainingNote", "datasheets", "device", "free_bytes",
           "kernel_path", "load_extension", "mix", "optimizers", "parse_size", "presets", "tokenize",
           "version"]
