"""Checkpoint: reads a checkpoint without a model, a plan or an engine (checkpoint.h)."""
from __future__ import annotations

import json
import math
import os
import types
from array import array
from ctypes import byref, c_uint64

from ._library import library
from ._owner import Owner
from ._structs import coh_checkpoint_facts, coh_checkpoint_tensor, coh_state_stream
from ._values import as_path, facts_of, shaped, sized
from .training import TrainingNote


def state_bytes(stream, elements):
    """Bytes of a state stream for this many elements (coh_state_bytes)."""
    return -(-elements // stream.elements_per_block) * stream.bytes_per_block


def state_array(stream, shape):
    """Memory for a stream of a tensor, and a function that gives it its form: float32 numbers of
    the tensor's shape if the stream has one for each element, else bytes."""
    size = state_bytes(stream, math.prod(shape))
    if stream.is_f32 and stream.elements_per_block == 1 and stream.bytes_per_block == 4:
        return array("f", bytes(size)), lambda values: shaped(values, "float32", shape)
    return array("B", bytes(size)), lambda values: shaped(values, "uint8", (size,))


def _stream(checkpoint, number):
    """A stream of an open checkpoint, which owns its name."""
    stream = coh_state_stream()
    library().coh_checkpoint_stream_at(checkpoint, number, byref(stream))
    return stream


def _tensor(checkpoint, index):
    """Name and facts of a tensor of an open checkpoint."""
    tensor = coh_checkpoint_tensor()
    library().coh_checkpoint_tensor_at(checkpoint, index, byref(tensor))
    numbers = tensor.streams[:tensor.stream_count]
    return tensor.name.decode(), types.SimpleNamespace(
        index=index, shape=tuple(tensor.shape.dim[:tensor.shape.rank]),
        optimizer=tensor.optimizer.decode() if tensor.optimizer else None,
        streams={_stream(checkpoint, number).name.decode(): number for number in numbers})


def _facts(facts):
    """The facts, with a path that opens the checkpoint, whatever its bytes."""
    found = facts_of(facts)
    found.path = os.fsdecode(facts.path)
    return found


class Checkpoint(Owner):
    """An open checkpoint: the folder that Engine.save or `cohobate train` wrote. Of a run's folder
    it is the newest whole one in it.

        with cohobate.Checkpoint("run") as checkpoint:
            for name, tensor in checkpoint.tensors.items():
                print(name, tensor.shape, checkpoint.read(name).std())"""

    _what = "checkpoint"
    _takes_turns = True

    def __init__(self, path):
        super().__init__(library().coh_checkpoint_close)
        self._create(library().coh_checkpoint_open, as_path(path))

    def _facts(self, take):
        """What `take` makes of the facts, whose texts belong to the checkpoint."""
        def read(checkpoint):
            facts = sized(coh_checkpoint_facts)
            library().coh_checkpoint_facts_get(checkpoint, byref(facts))
            return take(facts)

        return self._call(read)

    @property
    def facts(self):
        """Members of coh_checkpoint_facts: path, step, hash, tensor_count, parameter_count, bytes,
        grad_norm, ..."""
        return self._facts(_facts)

    @property
    def note(self) -> dict:
        """The whole note: the model, what Engine.save was given, and the recipe of a training
        note."""
        return json.loads(self._facts(lambda facts: facts.note_json))

    @property
    def training(self) -> TrainingNote:
        """How the run goes on. An Error if the checkpoint was saved without a training note."""
        return TrainingNote._read(self._facts(lambda facts: facts.note_json))

    @property
    def tensors(self) -> dict:
        """{name: tensor} in order; each has shape, optimizer (None: it is not trained), and
        streams, the names of its optimizer states."""
        def read(checkpoint):
            facts = sized(coh_checkpoint_facts)
            library().coh_checkpoint_facts_get(checkpoint, byref(facts))
            return dict(_tensor(checkpoint, index) for index in range(facts.tensor_count))

        return self._call(read)

    def read(self, name: str, stream: str = "work"):
        """The weights of a tensor, or one of its optimizer states ("m"): a float32 array of its
        shape, or the bytes of a state in another form. Compares the hashes of what it reads."""
        tensors = self.tensors
        if name not in tensors:
            raise KeyError(f"the checkpoint has no tensor {name!r}; its names are the keys of "
                           "Checkpoint.tensors")
        tensor = tensors[name]
        streams = {"work": 0, **tensor.streams}
        if stream not in streams:
            raise KeyError(f"tensor {name!r} has no stream {stream!r}; it has {', '.join(streams)}")

        def read(checkpoint):
            values, formed = state_array(_stream(checkpoint, streams[stream]), tensor.shape)
            library().coh_checkpoint_read(checkpoint, tensor.index, streams[stream], 0,
                                          math.prod(tensor.shape), values.buffer_info()[0])
            return formed(values)

        return self._call(read)

    def check(self) -> int:
        """Reads every byte and compares every hash. Returns that of the whole: Engine.hash()."""
        out_hash = c_uint64()
        self._call(library().coh_checkpoint_check, byref(out_hash))
        return out_hash.value

    @staticmethod
    def remove(path) -> None:
        """Deletes a checkpoint's folder, so that a crash halfway leaves nothing that looks whole. A
        folder with another program's manifest.json is left as it is, which is an Error."""
        library().coh_checkpoint_remove(as_path(path))
