"""Plan: where all data is and when it moves, within budgets (plan.h, plan_batch.h). Next:
engine.py."""
from __future__ import annotations

import json
import os
import types
from ctypes import byref, c_uint32, c_uint64, c_void_p, sizeof

from ._library import library
from ._owner import Owner
from ._structs import (DOCUMENTS_SEPARATE, PLAN_INFER, RECOMPUTE, SEARCH, SWEEP_LAYER,
                       SWEEP_SAME_BITS, GraphSource, coh_batch, coh_batch_plan, coh_disk, coh_graph_parameter_facts,
                       coh_optimizer_choice, coh_pin, coh_plan_operator, coh_plan_options,
                       coh_plan_parameter, coh_plan_summary, coh_tensor)
from ._values import (INT32_MOST, INT64_MOST, NO_LIMIT, THREADS_MOST, as_count, as_name, as_path,
                      as_text, chosen, facts_of, parse_size, sized)
from .engine import Engine
from .errors import Error
from .machine import device as describe_device, free_bytes
from .training import fold_shape

_MICRO_BATCH_MOST = 8  # as the program chooses it


def _freeing(plan, profile):
    """The function that frees both; the plan needs the profile."""
    def free(_pointer):
        library().coh_batch_plan_destroy(byref(plan))
        library().coh_profile_destroy(profile)
        profile.value = None

    return free


def _optimizer(name):
    if name == "":  # C's default
        raise ValueError("an optimizer's name is empty: \"adamw\" is the default")
    return as_text(name, dict(coh_plan_options._fields_)["optimizer"], "an optimizer's name")


def _choice(pattern, name):
    kinds = dict(coh_optimizer_choice._fields_)
    return coh_optimizer_choice(as_text(pattern, kinds["pattern"], "an optimizer's pattern"),
                                _optimizer(name))


def _folders(disk):
    """The folders of the far tier."""
    if disk is None:
        return []
    folders = [os.fspath(each) for each in (disk if isinstance(disk, (list, tuple)) else [disk])]
    if not all(folders):
        raise ValueError("disk has an empty path: give a folder, or None for no disk")
    return folders


class Plan(Owner):
    """Where all data is and when it moves, with predicted time and exact memory. Options and their
    defaults:

    device            "host", or the GPU to run on: "cuda:0", with a GPU's profile
    device_memory     budget of the device; None: free main memory less a reserve, as free_bytes(),
                      or what others leave free of a GPU, less what the engine keeps free
    disk, disk_limit  folder of the far tier, or a list of folders on several drives, which work as
                      one; and the limit of all. None: no such tier, no limit
    host_memory       host tier: pinned next to a GPU, emulated on the host device
    micro_batch       sequences of a micro-batch, a divisor of the batch; None: its largest divisor
                      up to 8. It is part of the numeric plan; with may_change_micro_batch another
                      one is used if it fits or is faster
    exact_clip        True: gradients are clipped by their own step's norm. False: updates are made
                      during backward
    speculate         True: both, on a disk: a step that is clipped runs twice, and the disk holds
                      weights and states twice
    optimizer         "adamw", "adamw8", "adamw8sr", "lion", "sgd": optimizers() describes them
    optimizer_for     {"wte,*.bias": "sgd"}: another one for parameters that globs match. If several
                      match, the last one wins
    profile           machine that the plan is priced for: a datasheet's name or a file; None: rough
                      constants
    forward_only      True: for Engine.logits and Engine.evaluate; there are no gradients, no states
                      and no steps. The batch is one micro-batch
    by_layers         True: each block runs all micro-batches before the next one does, as
                      --sweep-order layer. Part of the numeric plan
    replicas          (2, 2): the batch is cut into as many shares, whose gradients are added in
                      this order, as --replicas 2x2 (fold_shape.h). Part of the numeric plan
    threads           of the processor; None: one for each core
    recompute, search, chunk, pins, f32_gradients   as the flags of `cohobate train`

    Raises Refusal if nothing fits. Attributes: model, batch, micro_batch, sequence, summary,
    parameters. Closing a plan closes its engines first."""

    _what = "plan"

    def __init__(self, model, batch: int, sequence: int, *, device: str = "host",
                 device_memory: int | str | None = None,
                 disk=None, disk_limit: int | str | None = None, host_memory: int | str = 0,
                 micro_batch: int | None = None, may_change_micro_batch: bool = False,
                 exact_clip: bool = True, speculate: bool = False, optimizer: str = "adamw",
                 optimizer_for: dict | None = None, profile=None, recompute: str = "auto",
                 search: str = "usual", chunk: int | str = 0, pins=(), f32_gradients: bool = False,
                 forward_only: bool = False, threads: int | None = None, by_layers: bool = False,
                 replicas=()):
        batch = as_count(batch, "batch", 1, INT32_MOST)
        sequence = as_count(sequence, "sequence", 1, INT64_MOST)
        if forward_only and speculate:
            raise ValueError("speculate is for training steps, and a plan with forward_only has "
                             "none: leave one of the two out")
        if micro_batch is not None:
            micro_batch = as_count(micro_batch, "micro_batch", 1, batch, "; None: the usual one")
            if forward_only and micro_batch != batch:
                raise ValueError(f"micro_batch is {micro_batch} with forward_only, whose batch of "
                                 f"{batch} is one micro-batch: leave it out")
        if threads is not None:
            threads = as_count(threads, "threads", 1, THREADS_MOST, "; None: one for each core")
        self._plan = sized(coh_batch_plan)
        self._profile = c_void_p()
        free = _freeing(self._plan, self._profile)
        super().__init__(free)
        self.model, self.batch, self.sequence = model, batch, sequence
        self.device, self._disks = device, _folders(disk)
        self.disk, self.threads = disk, threads
        if threads is None:
            self.threads = library().coh_machine_core_count()
        self.exact_clip, self.speculate, self.forward_only = exact_clip, speculate, forward_only
        self._logits = coh_tensor()
        self.optimizer, self.optimizer_for = optimizer, dict(optimizer_for or {})
        self.f32_gradients, self.by_layers = f32_gradients, by_layers
        self.replicas = tuple(replicas)
        self.disk_limit = NO_LIMIT if disk_limit is None else parse_size(disk_limit)
        options = coh_plan_options()
        library().coh_plan_options_init_sized(byref(options), sizeof(options))
        options.device_memory_bytes = self._use_device(options)
        if device_memory is not None:
            options.device_memory_bytes = parse_size(device_memory)
        self._device_memory_bytes = options.device_memory_bytes
        self._profile_name = "" if profile is None else os.fsdecode(profile)
        options.host_memory_bytes = parse_size(host_memory)
        options.emulate_host = options.host_memory_bytes > 0
        options.disk_bytes = self.disk_limit if self._disks else 0
        options.drive_count = self._drive_count()
        options.thread_count, options.chunk_bytes = self.threads, parse_size(chunk)
        options.recompute = chosen(recompute, RECOMPUTE, "recompute")
        options.search = chosen(search, SEARCH, "search")
        options.sweep_order = SWEEP_LAYER if by_layers else SWEEP_SAME_BITS
        options.replicas, options.deferred_update = fold_shape(replicas, "replicas"), exact_clip
        if forward_only:
            options.mode, options.deferred_update, micro_batch = PLAN_INFER, False, batch
        options.speculates, options.f32_gradients = speculate, f32_gradients
        options.optimizer = _optimizer(optimizer)
        choices = [_choice(*each) for each in self.optimizer_for.items()]
        options.optimizer_choices = (coh_optimizer_choice * len(choices))(*choices)
        options.optimizer_choice_count = len(choices)
        options.pins, options.pin_count = (coh_pin * len(pins))(*map(self._pin, pins)), len(pins)
        try:
            if profile is not None:
                library().coh_profile_read(as_path(profile), byref(self._profile))
                options.profile = self._profile
            if micro_batch is None:
                micro_batch = self._usual_micro_batch()
            self._search(options, micro_batch, may_change_micro_batch)
        except BaseException:
            free(None)
            raise
        self._handle.pointer = c_void_p(self._plan.plan)
        self.micro_batch = self._plan.microbatch

    def _usual_micro_batch(self):
        most = min(self.batch, _MICRO_BATCH_MOST)
        return next((n for n in range(most, 0, -1) if self.batch % n == 0), self.batch)

    def _use_device(self, options):
        """Sets the kernels that the device has. Returns its memory."""
        if self.device == "host":
            return free_bytes()
        summary = describe_device(self.device)
        options.kernel_path = summary.kernel_path.encode()
        return summary.memory_bytes

    def _drive_count(self):
        if len(self._disks) < 2:
            return 1
        out_count, disks = c_uint32(), self._disk_table()
        library().coh_disks_check(disks, len(disks), byref(out_count))
        return out_count.value

    def _disk_table(self):
        """The folders as C has them. They have no limits of their own."""
        rows = [coh_disk(as_path(folder), NO_LIMIT, 0.0) for folder in self._disks]
        return (coh_disk * len(rows))(*rows)

    @staticmethod
    def _pin(text):
        pin = coh_pin()
        library().coh_pin_parse(as_name(text, "a pin"), byref(pin))
        return pin

    def _search(self, options, micro_batch, may_change):
        failure = []

        @GraphSource
        def make_graph(_, sequences, out_graph):
            try:
                sizes = byref(self.model._model), sequences, self.sequence
                if self.forward_only:
                    return library().coh_model_logits_graph(*sizes, out_graph, byref(self._logits))
                return library().coh_model_train_graph(*sizes, out_graph)
            except BaseException as error:  # Ctrl-C, too: ctypes would drop it
                failure.append(error)
                return 1

        batch = sized(coh_batch)
        batch.may_change, batch.make_graph = may_change, make_graph
        batch.batch, batch.microbatch = self.batch, micro_batch
        try:
            library().coh_batch_plan_create(byref(batch), byref(options), byref(self._plan))
        except Error:
            if failure:
                raise failure[0] from None
            raise
        if failure and not isinstance(failure[0], Exception):
            raise failure[0]  # found without it, but Ctrl-C ends the call

    @property
    def summary(self):
        """Members of coh_plan_summary: step_ns, peak_bytes["device"], link_bytes["read"], ..."""
        def read(plan):
            summary = sized(coh_plan_summary)
            library().coh_plan_summarize(plan, byref(summary))
            return facts_of(summary)

        return self._call(read)

    @property
    def parameters(self) -> dict:
        """{name: parameter} of all parameters; each has index, shape, is_frozen, the optimizer that
        trains it (None: no step changes it), and is_unused: True if it is not frozen and no step
        changes it, because the loss does not depend on it."""
        def read(plan):
            count = library().coh_graph_parameter_count(self._plan.graph)
            return dict(self._parameter(plan, index) for index in range(count))

        return self._call(read)

    def _parameter(self, plan, index):
        """Name and facts of a parameter; plan and graph own the texts."""
        facts, planned = coh_graph_parameter_facts(), sized(coh_plan_parameter)
        library().coh_graph_parameter_at(self._plan.graph, index, byref(facts))
        library().coh_plan_parameter_at(plan, index, byref(planned))
        optimizer = planned.optimizer
        return facts.name.decode(), types.SimpleNamespace(
            index=index, shape=tuple(facts.shape.dim[:facts.shape.rank]),
            is_frozen=bool(facts.is_frozen), optimizer=optimizer and optimizer.decode(),
            is_unused=bool(planned.is_unused))

    @property
    def operators(self) -> list:
        """The operators of the graph, in order: members of coh_plan_operator, which say what the
        plan decided: name, kind, activations ("keep", "recompute", "again", "move"), parameters
        and states ("device", "host", "disk"), updates, ..."""
        def row(plan, index):
            operator = sized(coh_plan_operator)
            library().coh_plan_operator_at(plan, index, byref(operator))
            return facts_of(operator)

        return self._call(lambda plan: [
            row(plan, index) for index in range(library().coh_plan_operator_count(plan))])

    @property
    def save_bytes(self) -> int:
        """The most bytes on disk of a checkpoint."""
        out_bytes = c_uint64()
        self._call(library().coh_engine_save_bytes, byref(out_bytes))
        return out_bytes.value

    @property
    def save_frozen_bytes(self) -> int:
        """How many of save_bytes are parameters that are not trained: later checkpoints of a run
        share the file of them."""
        out_bytes = c_uint64()
        self._call(library().coh_engine_save_frozen_bytes, byref(out_bytes))
        return out_bytes.value

    def write(self, path) -> None:
        """Writes plan.json, which `cohobate inspect`, `simulate` and `explain` read. A plan with
        forward_only is for `inspect` alone, as the others read plans of training."""
        if self.forward_only:
            self._call(library().coh_plan_write, as_path(path))
        else:
            self._call(library().coh_plan_write_noted, self._note(), as_path(path))

    def _note(self):
        """The note of the program's plan files (cli/replay.c)."""
        model = self.model._model
        note = {"version": 1, "batch": self.batch, "micro_batch": self.micro_batch,
                "sequence": self.sequence, "steps": 100, "clip": 1.0, "threads": self.threads,
                "device_memory_bytes": str(self._device_memory_bytes), "profile": self._profile_name}
        for name in ("dropout", "lora_dropout"):
            if getattr(model, name) > 0:
                note[name] = getattr(model, name)
        for name in ("frozen_nf4", "separate_documents"):
            if getattr(model, name):
                note[name] = True
        return json.dumps({**note, "model": self.model.note()}).encode()

    def write_program(self, path) -> None:
        """Writes the instructions of the plan, one a line."""
        self._call(library().coh_plan_write_program, as_path(path))

    def _describe(self, note):
        """The plan's part of a training note."""
        model = self.model._model
        note.batch, note.micro_batch, note.sequence = self.batch, self.micro_batch, self.sequence
        note.optimizer, note.optimizer_for = self.optimizer, self.optimizer_for
        note.f32_gradients, note.dropout = self.f32_gradients, model.dropout
        note.lora_dropout = model.lora_dropout
        note.by_layers, note.replicas, note.atomics = self.by_layers, self.replicas, model.atomics
        note.speculates, note.frozen_nf4 = self.speculate, model.frozen_nf4
        note.clips_by_previous = not self.exact_clip and not self.speculate
        if model.separate_documents:
            note.form = {"aligned": DOCUMENTS_SEPARATE}
        note.base = os.path.abspath(model.folder) if model.folder else ""
        note.trained_positions = self.model.size.positions if model.folder else 0

    def engine(self, **options) -> Engine:
        """Makes an engine and its parameters. Engine has the options."""
        return Engine(self, **options)
