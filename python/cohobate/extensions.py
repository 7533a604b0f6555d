"""Extensions: kinds, optimizers and models of your own, in a shared object (extension.h)."""
from __future__ import annotations

import ctypes
import functools
import os
import types
from ctypes import POINTER

from ._library import library
from ._structs import coh_extension
from .errors import Error


@functools.lru_cache(None)
def _export_the_library():
    """Makes the library's functions those that a shared object finds: such an object is built
    without it, since the command line program has its own copy."""
    ctypes.CDLL(library()._name, mode=ctypes.RTLD_GLOBAL)


def load_extension(path):
    """Loads a shared object and makes its models, optimizers and rank patterns known to this
    process: Model then finds the models, and Plan the optimizers, by their names. It stays loaded.
    Runs code of the file. Returns name, revision, models and optimizers (lists of names)."""
    _export_the_library()
    path = os.path.realpath(os.fsdecode(path))
    if not os.path.exists(path):
        raise Error(f"{path} does not exist: build it first")
    try:
        function = ctypes.CDLL(path).cohobate_extension
    except OSError as error:
        raise Error(f"{path} cannot be loaded: {error}", "COH_ERR_CORRUPT", 4) from None
    except AttributeError:
        raise Error(f"{path} exports no extension: define one with COH_EXTENSION "
                    "(cohobate/extension.h)", "COH_ERR_CORRUPT", 4) from None
    function.restype, function.argtypes = POINTER(coh_extension), []
    found = function()
    library().coh_extension_register(found)
    extension = found.contents
    return types.SimpleNamespace(
        name=extension.name.decode(), revision=extension.revision,
        models=[each.contents.name.decode() for each in extension.models[:extension.model_count]],
        optimizers=[each.contents.name.decode()
                    for each in extension.optimizers[:extension.optimizer_count]])
