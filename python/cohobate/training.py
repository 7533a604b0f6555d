"""How a run goes on: its learning rates, and the note that a checkpoint has of it
(training_note.h).

    Schedule ──> Engine.step             Engine.training_note ──> Engine.save
                                         Checkpoint.training  <── the checkpoint

The one idea: a note has everything that determines the numbers of a run except its weights, so that
`cohobate train --resume` goes on with a checkpoint that a loop in Python saved, and the reverse."""
from __future__ import annotations

import json
import operator
import os
import types
from ctypes import Array, Structure, byref, c_double, c_float, create_string_buffer, sizeof

from ._library import library
from ._structs import (DOCUMENTS_SEPARATE, SCHEDULES, TRAINING_NOTE_BYTES, coh_fold_shape,
                       coh_optimizer_choice, coh_pattern_number, coh_pattern_numbers, coh_pattern_optimizers,
                       coh_schedule, coh_training_note)
from ._values import INT32_MOST, as_count, as_text, chosen, facts_of


class Schedule:
    """Learning rates of a run: a linear warm-up to `highest`, a decay to `lowest`, then flat.
    `schedule(step)` is the rate of a step, counted from 0; Engine.step takes a schedule, or any
    function of the step's number, in place of a rate. A schedule is not changed once it is made.

    steps         until the rate is lowest, warm-up included
    warmup_steps  of the warm-up
    lowest        None: a tenth of the highest
    kind          of the decay: "cosine", "linear", "constant" (none), or "wsd": `highest`, then a
                  line over the last decay_steps (coh_schedule_kind, training_note.h)
    decay_steps   of "wsd", which needs 1 or more, and no more than follow the warm-up"""

    def __init__(self, highest: float, steps: int, *, warmup_steps: int = 0,
                 lowest: float | None = None, kind: str = "cosine", decay_steps: int = 0):
        self.__dict__.update(
            highest=highest, lowest=highest / 10 if lowest is None else lowest,
            warmup_steps=as_count(warmup_steps, "warmup_steps"), steps=steps, kind=kind,
            decay_steps=as_count(decay_steps, "decay_steps"))
        chosen(kind, SCHEDULES, "kind")
        if (kind == "wsd") != (decay_steps > 0):
            raise ValueError(f"kind {kind!r} with decay_steps {decay_steps}: give them to wsd, 1 or "
                             "more, and to no other kind")
        if steps < 1:
            raise ValueError(f"a schedule of {steps} steps: give 1 or more")
        if kind == "wsd" and warmup_steps + decay_steps > steps:
            raise ValueError(f"a warm-up of {warmup_steps} steps and a decay of {decay_steps} are "
                             f"longer than the schedule of {steps}: lower decay_steps or "
                             "warmup_steps, or raise steps")
        for name in ("highest", "lowest"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}: give a finite rate from 0 on")

    def __setattr__(self, name, _value):
        raise AttributeError(f"a schedule is not changed, and neither is {name!r} of it: make "
                             "another one")

    @property
    def _schedule(self):
        return coh_schedule(self.highest, self.lowest, as_count(self.warmup_steps, "warmup_steps"),
                            as_count(self.steps, "steps"))

    def __call__(self, step: int) -> float:
        return library().coh_schedule_kind_rate(byref(self._schedule), SCHEDULES[self.kind],
                                                self.decay_steps, as_count(step, "step"))

    def __eq__(self, other):
        return isinstance(other, Schedule) and vars(self) == vars(other)

    def __repr__(self):
        return (f"Schedule({self.highest!r}, {self.steps!r}, warmup_steps={self.warmup_steps!r}, "
                f"lowest={self.lowest!r}, kind={self.kind!r}, decay_steps={self.decay_steps!r})")


class _Patterns(dict):
    """Patterns of a note. A change would be lost, as the note has them in a struct of C."""

    def _refuse(self, *_arguments, **_more):
        raise TypeError("patterns of a training note are not changed in place: assign a whole dict "
                        "to the note's member, {**note.lr_for, \"wte\": 1e-4}")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self):
        return dict, (dict(self),)


class _Form(types.SimpleNamespace):
    """A struct within a note. A change would be lost, likewise."""

    def __setattr__(self, name, _value):
        raise AttributeError(f"{name!r} of a training note's form is not changed in place: assign "
                             "a whole form to the note, {**vars(note.form), \"id_bytes\": 2}")

    __delattr__ = __setattr__

    def __repr__(self):
        return repr(vars(self))


class TrainingNote:
    """The recipe of a run. Attributes are the members of coh_training_note (training_note.h):
    texts, numbers, a Schedule, and lists of patterns as dicts {pattern: number}, in their order.
    A member is assigned whole; what it has is not changed in place.

    TrainingNote() is what `cohobate train` does without flags; Engine.training_note knows what the
    engine does. Both take members by their names."""

    def __init__(self, **members):
        self.__dict__["_note"] = coh_training_note()
        library().coh_training_note_init_sized(byref(self._note), sizeof(self._note))
        for name, value in members.items():
            setattr(self, name, value)

    def __getattr__(self, name):
        if name not in _MEMBERS:
            raise AttributeError(f"a training note has no member {name!r}")
        if name == "schedule":
            return self._schedule()
        return _out(getattr(self._note, name))

    def _schedule(self):
        """The schedule, of which the note has kind and decay in members of their own."""
        rates, kinds = self._note.schedule, {number: name for name, number in SCHEDULES.items()}
        return Schedule(rates.highest, rates.schedule_steps, warmup_steps=rates.warmup_steps,
                        lowest=rates.lowest, kind=kinds[self._note.schedule_kind],
                        decay_steps=self._note.decay_steps)

    def __copy__(self):
        copy = TrainingNote()
        copy.__dict__["_note"] = coh_training_note.from_buffer_copy(self._note)
        return copy

    def __setattr__(self, name, value):
        if name not in _MEMBERS:
            raise AttributeError(f"a training note has no member {name!r}; its members are "
                                 f"{', '.join(_MEMBERS)}")
        _set(self._note, name, _MEMBERS[name], value)
        if name == "schedule":
            self._note.schedule_kind = SCHEDULES[value.kind]
            self._note.decay_steps = value.decay_steps

    def __dir__(self):
        return [*super().__dir__(), *_MEMBERS]

    def __eq__(self, other):
        return isinstance(other, TrainingNote) and self._values() == other._values()

    def _values(self):
        """The members, with the order of patterns."""
        values = [getattr(self, name) for name in _MEMBERS]
        return [list(value.items()) if isinstance(value, dict) else value for value in values]

    def __repr__(self):
        usual = TrainingNote()
        changed = [name for name in _MEMBERS if getattr(self, name) != getattr(usual, name)]
        return f"TrainingNote({', '.join(f'{name}={getattr(self, name)!r}' for name in changed)})"

    # ---- a run that goes on ----

    def model_options(self) -> dict:
        """What Model needs of the recipe, next to the path of the checkpoint, which has the rest:
        Model("run", **note.model_options())."""
        return {"dropout": self.dropout, "atomics": bool(self.atomics),
                "frozen_nf4": bool(self.frozen_nf4),
                "separate_documents": self.form.aligned == DOCUMENTS_SEPARATE,
                "lora_dropout": self.lora_dropout}

    def plan_options(self) -> dict:
        """What Model.plan needs for the numeric plan of the run, batch and sequence included.
        Budgets are not in a note, since they change no bit."""
        return {"batch": self.batch, "sequence": self.sequence, "micro_batch": self.micro_batch,
                "exact_clip": not self.clips_by_previous, "speculate": bool(self.speculates),
                "optimizer": self.optimizer or "adamw", "optimizer_for": dict(self.optimizer_for),
                "f32_gradients": bool(self.f32_gradients), "by_layers": bool(self.by_layers),
                "replicas": self.replicas}

    def engine_options(self) -> dict:
        """What Plan.engine needs: seed, weight decay, groups and hyperparameters."""
        highest, groups = self.schedule.highest, []
        if self.lr_for and not highest:
            raise ValueError("lr_for follows the schedule, whose highest rate is 0")
        groups += [(pattern, {"rate_factor": rate / highest}) for pattern, rate in
                   self.lr_for.items()]
        groups += [(pattern, {"weight_decay": decay}) for pattern, decay in
                   self.weight_decay_for.items()]
        betas = {name: getattr(self, name) for name in ("beta1", "beta2")
                 if getattr(self, name) >= 0}
        return {"seed": self.seed, "weight_decay": self.weight_decay, "groups": groups,
                "hyperparameters": {**betas, **self.hyperparameters}}

    def data_options(self) -> dict:
        """What TokenFile.batches needs to go on with the windows of the run, next to the step to
        start from: batch, sequence, seed, where its data began, and `stop`, its last step."""
        return {"batch": self.batch, "sequence": self.sequence, "seed": self.seed,
                "first_step": self.data_first_step, "first_window": self.data_first_window,
                "stop": self.steps}

    def _json(self, model) -> dict:
        """The note of a run of a model, as a checkpoint stores it."""
        text = create_string_buffer(TRAINING_NOTE_BYTES)
        library().coh_training_note_write(byref(self._note), byref(model), text, len(text))
        return json.loads(text.value)

    @classmethod
    def _read(cls, text: bytes):
        note = cls()
        library().coh_training_note_read(text, byref(note._note))
        return note


# Attributes: `schedule` has its kind and its decay, too.
_MEMBERS = {name: kind for name, kind in coh_training_note._fields_
            if name not in ("struct_bytes", "schedule_kind", "decay_steps")}


def last_of(rows):
    """A dict of rows of which a later one wins: of equal patterns the last one stays, in its
    place."""
    found = {}
    for pattern, value in rows:
        found.pop(pattern, None)
        found[pattern] = value
    return found


def fold_shape(factors, name):
    """Replicas as C has them."""
    kind = coh_fold_shape._fields_[0][1]
    if len(factors) > kind._length_:
        raise ValueError(f"{name} has {len(factors)} factors: at most {kind._length_}")
    return coh_fold_shape(kind(*(as_count(each, name, 0, INT32_MOST) for each in factors)))


def _out(value):
    """A member as Python has it."""
    if isinstance(value, bytes):
        return os.fsdecode(value)
    if isinstance(value, coh_pattern_numbers):
        return _Patterns(last_of((os.fsdecode(each.pattern), each.value)
                                 for each in value.at[:value.count]))
    if isinstance(value, coh_pattern_optimizers):
        return _Patterns(last_of((os.fsdecode(each.pattern), each.optimizer.decode())
                                 for each in value.at[:value.count]))
    if isinstance(value, coh_fold_shape):
        return tuple(value.factors)
    return _Form(**vars(facts_of(value))) if isinstance(value, Structure) else value


def _set(struct, name, kind, value):
    """Sets a member from what Python has of it."""
    if issubclass(kind, Array):  # a text
        value = as_text(value, kind, name)
    elif kind is coh_schedule:
        if not isinstance(value, Schedule):
            raise TypeError(f"{name} is {value!r}: give a Schedule")
        value = value._schedule
    elif kind in (coh_pattern_numbers, coh_pattern_optimizers):
        row = coh_pattern_number if kind is coh_pattern_numbers else coh_optimizer_choice
        rows, value = value, kind()
        if len(rows) > len(value.at):
            raise ValueError(f"{name} has {len(rows)} patterns, and a note has room for "
                             f"{len(value.at)}")
        value.count = len(rows)
        for i, (pattern, of) in enumerate(rows.items()):
            for (field, field_kind), each in zip(row._fields_, (pattern, of)):
                _set(value.at[i], field, field_kind, each)
    elif kind is coh_fold_shape:
        value = fold_shape(value, name)
    elif issubclass(kind, Structure):
        members = vars(value) if isinstance(value, types.SimpleNamespace) else value
        value, kinds = kind(), dict(kind._fields_)
        for field in members:
            if field not in kinds:
                raise AttributeError(f"{name} of a training note has no member {field!r}; its "
                                     f"members are {', '.join(kinds)}")
            _set(value, field, kinds[field], members[field])
    elif kind not in (c_double, c_float):
        value = operator.index(value)
        if kind(value).value != value:
            raise ValueError(f"{name} is {value}, which {kind.__name__[2:]} cannot hold")
    setattr(struct, name, value)
