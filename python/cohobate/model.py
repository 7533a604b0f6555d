"""Model: what is computed (models.h). Next: plan.py."""
from __future__ import annotations

import ctypes
import json
import os
import types
from ctypes import byref

from ._library import library
from ._structs import DTYPES, MODEL_JSON_BYTES, coh_adapters, coh_model
from ._values import INT32_MOST, as_count, as_path, as_text, chosen
from .errors import Error
from .plan import Plan


class Model:
    """A model: what is computed. `what` is a preset's name, or the path of a Hugging Face folder, a
    checkpoint or a run.

    vocabulary  rows of a preset's table; 0: as published
    dtype       "f32" or "bf16"; None: as it is stored, f32 for a preset (the
                command line begins new runs in bf16 where that is fast)
    dropout     probability, in training
    atomics     True: attention's backward on a GPU may add by atomics, so that bits vary from run
                to run
    lora        rank of new adapters; everything else is frozen. lora_alpha 0 and lora_targets ""
                are PEFT's defaults. A checkpoint with adapters goes on with its own, without lora
                and freeze
    lora_also   globs of operators that are trained in full next to the adapters, such as
                "embed_tokens,lm_head" (PEFT's modules_to_save)
    lora_dropout  probability for the input of each adapter, in training (PEFT's lora_dropout)
    freeze      globs of operators that are frozen: "wte,h.0.*"
    frozen_nf4  True: training stores frozen weights of linears in 4.25 bits an element; they are
                rounded to that when they are loaded
    separate_documents  True: steps take the position of each token in its document, and a token
                attends over its own document only (TokenFile.batch has them) """

    def __init__(self, what, vocabulary: int = 0, dtype: str | None = None, dropout: float = 0.0,
                 lora: int = 0, lora_alpha: float = 0.0, lora_targets: str = "", freeze: str = "",
                 atomics: bool = False, lora_also: str = "", frozen_nf4: bool = False,
                 separate_documents: bool = False, lora_dropout: float = 0.0):
        vocabulary = as_count(vocabulary, "vocabulary", 0, INT32_MOST)
        lora = as_count(lora, "lora", 0, INT32_MOST, "; 0: no adapters")
        if not lora and (lora_alpha or lora_targets or lora_also):
            raise ValueError("lora_alpha, lora_targets and lora_also need adapters: give lora, their "
                             "rank")
        for name, share in (("dropout", dropout), ("lora_dropout", lora_dropout)):
            if not 0 <= share < 1:
                raise ValueError(f"{name} is {share}: a probability from 0 to below 1")
        self._model = coh_model()
        library().coh_model_resolve(as_path(what), vocabulary, byref(self._model))
        if dtype is not None:
            library().coh_model_dtype_set(byref(self._model), chosen(dtype, DTYPES, "dtype"))
        self._model.dropout, self._model.atomics = dropout, bool(atomics)
        self._model.frozen_nf4 = bool(frozen_nf4)
        self._model.separate_documents = bool(separate_documents)
        if (lora or freeze) and self._model.adapters.rank:
            raise Error(f"{os.fsdecode(what)} has adapters of rank {self._model.adapters.rank} "
                        "already: go on with them by leaving lora, lora_alpha, lora_targets, "
                        "lora_also and freeze out, or begin from what `cohobate export "
                        "--merge-lora` makes of it")
        if lora or freeze:
            kinds = dict(coh_adapters._fields_)
            adapters = coh_adapters(
                rank=lora, alpha=lora_alpha, freeze=as_text(freeze, kinds["freeze"], "freeze"),
                targets=as_text(lora_targets, kinds["targets"], "lora_targets"),
                also=as_text(lora_also, kinds["also"], "lora_also"))
            library().coh_model_adapters_set(byref(self._model), byref(adapters))
        if lora_dropout and not self._model.adapters.rank:
            raise ValueError("lora_dropout needs adapters: give lora, their rank")
        self._model.lora_dropout = lora_dropout

    @property
    def name(self) -> str:
        """Name of the preset or of the folder."""
        return self._model.name.decode()

    @property
    def size(self):
        """Members of coh_model_size: layers, heads, channels, vocabulary, positions; dtype is
        "f32" or "bf16"."""
        size = library().coh_model_size_get(byref(self._model))
        facts = types.SimpleNamespace(**{name: getattr(size, name) for name, _ in size._fields_})
        facts.dtype = next(name for name, number in DTYPES.items() if number == size.dtype)
        return facts

    def note(self) -> dict:
        """The model as a dict, as checkpoints store it."""
        text = ctypes.create_string_buffer(MODEL_JSON_BYTES)
        library().coh_model_to_json(byref(self._model), text, len(text))
        return json.loads(text.value)

    def plan(self, batch: int, sequence: int, **options) -> Plan:
        """Plans steps of `batch` sequences of `sequence` tokens. Plan has the options."""
        return Plan(self, batch, sequence, **options)
