"""Facts about the library, and about the machine that it runs on."""
from __future__ import annotations

import itertools
import types
from ctypes import byref

from ._library import library
from ._structs import coh_device_summary
from ._values import as_name, facts_of, sized


def version() -> str:
    """The library's version, "0.1.0"."""
    return library().coh_version().decode()


def free_bytes() -> int:
    """Bytes of main memory that a run may take now: the default budget of a plan."""
    return library().coh_machine_free_bytes()


def kernel_path() -> str:
    """Instruction set and matrix products in use: equal paths give equal bits."""
    return library().coh_kernel_path().decode()


def device(name: str = "host"):
    """What "host" or a GPU, "cuda:0", is: name, is_gpu, memory_bytes (the largest budget
    now), kernel_path (equal ones give equal bits), total_bytes (also what others use)."""
    summary = sized(coh_device_summary)
    library().coh_device_summarize(as_name(name, "device"), byref(summary))
    return facts_of(summary)


def _names(name_at):
    """The names that a function has by index, up to the first NULL."""
    names = iter(map(name_at, itertools.count()))
    return [name.decode() for name in itertools.takewhile(lambda name: name is not None, names)]


def presets() -> list:
    """Names for Model: gpt2-nano and published models. Those of extensions are not listed."""
    return _names(library().coh_model_preset_name)


def datasheets() -> list:
    """Names of machines for Plan's `profile`."""
    return _names(library().coh_profile_shipped)


def _optimizers():
    """The table of each optimizer."""
    return [library().coh_optimizer_at(index).contents
            for index in range(library().coh_optimizer_count())]


def stream_of(name):
    """The form of a state by its name. Optimizers that share a name share the form."""
    known = {each.name.decode(): each for optimizer in _optimizers()
             for each in optimizer.streams[:optimizer.stream_count]}
    if name not in known:
        raise KeyError(f"no optimizer has a state {name!r}; there are {', '.join(known)}")
    return known[name]


def optimizers() -> dict:
    """{name: optimizer} for Plan, those of extensions, too. Each has streams (the names of its
    states) and hyperparameters ({name: default})."""
    found = {}
    for optimizer in _optimizers():
        numbers = optimizer.hyperparameters[:optimizer.hyperparameter_count]
        found[optimizer.name.decode()] = types.SimpleNamespace(
            streams=[each.name.decode() for each in optimizer.streams[:optimizer.stream_count]],
            # a float of C, in the decimals that it was written with
            hyperparameters={each.name.decode(): float(f"{each.initial:.7g}") for each in numbers})
    return found
