"""Engine: runs a plan (engine.h).

The one idea: parameters, gradients and batches pass through as buffers of float32 and int32, and
the engine alone knows where the data is between two calls."""
from __future__ import annotations

import contextlib
import json
import logging
from array import array
from ctypes import (byref, c_double, c_float, c_int, c_size_t, c_uint64, c_void_p, cast,
                    create_string_buffer, memmove, sizeof)

from ._library import library
from ._owner import Owner
from ._structs import (DISK_WORTH_BYTES, FETCH_GRADIENT, FETCH_VALUE, GROUP_SETS_DECAY,
                       GROUP_SETS_RATE, OPERATIONS, SENTENCE_BYTES, Log, ParameterSink,
                       ParameterSource, Progress, coh_checkpoint_note, coh_engine_facts,
                       coh_engine_ledger_row, coh_engine_options, coh_hyperparameter_value,
                       coh_load_facts, coh_parameter, coh_parameter_group, coh_step_input,
                       coh_step_result)
from ._values import (as_count, as_name, as_path, columns_of, counted, facts_of, floats_of, ids_of,
                      padded, pointer, rows_of, shaped, sized)
from .checkpoint import Checkpoint, state_array
from .errors import Error
from .machine import stream_of
from .training import Schedule, TrainingNote, last_of

_PATIENCE_MS = 100  # between two looks at signals, in a wait for a step

_GROUP_NUMBERS = {"rate_factor": GROUP_SETS_RATE, "weight_decay": GROUP_SETS_DECAY}


def _group(pattern, numbers):
    """A parameter group of C."""
    if not numbers or not set(numbers) <= set(_GROUP_NUMBERS):
        raise ValueError(f"group {pattern!r} is {numbers!r}: give a dict with rate_factor, "
                         "weight_decay, or both")
    sets = sum(_GROUP_NUMBERS[name] for name in numbers)
    return coh_parameter_group(as_name(pattern, "a pattern"), sets, **numbers)


def _pairs(groups):
    """Groups as a list of patterns and numbers."""
    pairs = list(groups.items() if isinstance(groups, dict) else groups or ())
    for pair in pairs:
        if isinstance(pair, str) or len(pair) != 2:
            raise ValueError(f"groups has {pair!r}: give a dict of patterns, or a list of pairs of "
                             "a pattern and its numbers")
    return pairs


def _hyperparameter(name, value):
    """A number of all optimizers, or, with a dot, of one."""
    optimizer, _, number = as_name(name, "a hyperparameter").rpartition(b".")
    return coh_hyperparameter_value(optimizer or None, number, value)


def _telling(progress, raised):
    """The C function that calls `progress` until it raises: ctypes would drop the exception, also
    that of Ctrl-C."""
    if progress is None:
        return Progress()
    if not callable(progress):
        raise TypeError("progress is called as progress(\"load\", done, total), and "
                        f"{progress!r} cannot be called")

    def tell(_, operation, done, total):
        try:
            if not raised:
                progress(OPERATIONS[operation], done, total)
        except BaseException as error:
            raised.append(error)

    return Progress(tell)


def _destroy(engine):
    """Frees an engine. Returns the error of a save that was under way."""
    try:
        library().coh_engine_save_wait(engine)
    except Error as error:
        return error
    finally:
        library().coh_engine_destroy(engine)
    return None


@contextlib.contextmanager
def _numbers_of(model, wanted):
    """The function that supplies the numbers of a model's folder or checkpoint, which has no tensor
    that is not wanted; None: it has neither."""
    if model.folder:
        folder = c_void_p()
        library().coh_folder_open(byref(model), byref(folder))
        try:
            yield lambda *piece: library().coh_folder_numbers(folder, *piece)
        finally:
            library().coh_folder_close(folder)
    elif model.checkpoint:
        with Checkpoint(model.checkpoint) as checkpoint:
            tensors, path = checkpoint.tensors, checkpoint.facts.path
            is_adapter = library().coh_model_is_adapter_name
            has_adapters = any(is_adapter(name.encode()) for name in tensors)
            for name in sorted(tensors.keys() - wanted):
                raise Error(f"checkpoint {path} has a tensor {name!r}, which the model lacks: it "
                            "is of another model", "COH_ERR_CORRUPT", 4)

            def read(_, name, begin, count, values):
                tensor = tensors.get(name.decode())
                if tensor is not None:
                    checkpoint._call(library().coh_checkpoint_read, tensor.index, 0, begin, count,
                                     values)
                elif has_adapters or not is_adapter(name):  # new ones keep first values
                    raise Error(f"checkpoint {path} has no tensor {name.decode()!r}: it is of "
                                "another model", "COH_ERR_CORRUPT", 4)

            yield read
    else:
        yield None


class Engine(Owner):
    """Runs a plan. The parameters are those of the model's folder or checkpoint, else initialised
    from `seed`.

    weights          {name: array} of parameters that begin with other values: float32 arrays of
                     their shapes (Plan.parameters), or lists and tensors
    own              globs of parameters that keep the first values of `seed`, such as a new head:
                     "lm_head,h.11.*". The folder or checkpoint is not asked for them
    weight_decay     of parameters whose kind has weight decay
    groups           parameters with a learning rate or a weight decay of their own, by globs of
                     their names: {"*.bias": {"weight_decay": 0.0}, "wte,h.0.*": {"rate_factor":
                     0.1}}, or a list of such pairs. rate_factor multiplies the step's learning
                     rate. If several groups set a number of a parameter, the last one wins
    hyperparameters  {"beta2": 0.99}, of every optimizer that has the number, or {"lion.beta2":
                     0.99}. optimizers() lists them
    device           None: the plan's
    progress         called as progress("load", done, total) during long operations: init, load,
                     save, hash, fetch, put. Its exception is raised after the operation; a call
                     of the engine in it, or of its plan's close(), is an Error

    Attributes: plan, seed, step_count (the number of the next step), weight_decay, groups,
    hyperparameters. An engine is used by one thread at a time. The library's remarks go to
    logging.getLogger("cohobate")."""

    _what = "engine"
    _has_threads = True

    def __init__(self, plan, *, seed: int = 1, weights: dict | None = None,
                 own: str | None = None, weight_decay: float = 0.1, groups=None,
                 hyperparameters: dict | None = None, device: str | None = None, progress=None):
        super().__init__(_destroy, made_from=plan)
        self.plan, self.seed, self.step_count = plan, as_count(seed, "seed"), 0
        self.weight_decay, self.groups = weight_decay, _pairs(groups)
        self.hyperparameters = dict(hyperparameters or {})
        self._parameters, self._under_way = plan.parameters, 0  # steps
        weights = {name: self._numbers(name, values) for name, values in (weights or {}).items()}
        options = coh_engine_options()
        library().coh_engine_options_init_sized(byref(options), sizeof(options))
        disks = plan._disk_table()
        if len(disks) > 1 and plan.summary.peak_bytes["disk"] >= DISK_WORTH_BYTES:
            library().coh_disks_measure(disks, len(disks))
        options.disks, options.disk_count = disks, len(disks)
        options.disk_bytes, options.thread_count = plan.disk_limit, plan.threads
        options.weight_decay = weight_decay
        options.device = as_name(plan.device if device is None else device, "device")
        rows = [_group(*each) for each in self.groups]
        options.groups, options.group_count = (coh_parameter_group * len(rows))(*rows), len(rows)
        rows = [_hyperparameter(*each) for each in self.hyperparameters.items()]
        options.hyperparameters = (coh_hyperparameter_value * len(rows))(*rows)
        options.hyperparameter_count = len(rows)
        self._log = Log(lambda _, sentence: logging.getLogger("cohobate").info(
            sentence.decode(errors="replace")))
        self._raised = []
        self._progress = _telling(progress, self._raised)
        options.log, options.progress = self._log, self._progress
        plan._call(library().coh_engine_create, byref(options), byref(self._handle.pointer))
        try:
            self._begin(weights, own)
        except BaseException:
            self.close()  # its memory would stay as long as the exception's traceback
            raise

    @contextlib.contextmanager
    def _telling(self):
        """Around calls that report progress: raises its exception."""
        try:
            yield
        finally:
            if self._raised:
                raise self._raised.pop() from None

    def _passing(self, kind, function, call, *arguments):
        """Calls the library with a callback that takes or gives pieces of parameters. An exception
        of the callback ends the call, and is raised: ctypes would drop it."""
        failure = []

        @kind
        def passed(_, *piece):
            try:
                function(*piece)
                return 0
            except BaseException as error:  # no memory, Ctrl-C
                failure.append(error)
                return 1

        try:
            with self._telling():
                self._call(call, *arguments, cast(passed, c_void_p), None)
        except Error:
            if failure:
                raise failure[0] from None
            raise

    # ---- initial parameters ----

    def _begin(self, weights, own):
        """Initialises the parameters: by their kinds' rules, then, except those of `own`, from the
        model's folder or checkpoint, then from `weights`."""
        model, asked = self.plan.model._model, set()
        if not weights and not model.folder and not model.adapters.rank and own is None:
            with self._telling():
                self._call(library().coh_engine_init, self.seed)
            if model.checkpoint:
                self.load_weights(model.checkpoint)
            return
        with _numbers_of(model, self._parameters.keys()) as model_numbers:

            def give(parameter, name, begin, count, values):
                asked.add(name.decode())
                if model_numbers is not None:
                    model_numbers(parameter, name, begin, count, values)
                numbers = weights.get(name.decode())
                if numbers is not None:
                    memmove(values, byref(numbers, 4 * begin), 4 * count)

            if own is None:
                self._passing(ParameterSource, give, library().coh_engine_init_from, self.seed)
            else:
                self._passing(ParameterSource, give, library().coh_engine_init_partly, self.seed,
                              as_name(own, "own"))
        for name in weights.keys() - asked:
            raise ValueError(f"{name!r} is in weights, and own matches it: leave it out of one")

    def load_weights(self, path, *, own: str | None = None) -> None:
        """Takes the parameters of a checkpoint, also of one that another optimizer trained.
        Optimizer states are zero after it; step_count stays.

        own  globs of parameters that begin with the first values of the engine's seed, such as a
             new head. The checkpoint must have all others, and may have more"""
        with self._telling():
            if own is None:
                self._call(library().coh_engine_load_weights, as_path(path))
            else:
                self._call(library().coh_engine_load_partly, self.seed, as_name(own, "own"),
                           as_path(path))

    # ---- steps ----

    def _whole_rows(self, sequences):
        """Positions of rows that are one document each."""
        if self.plan.model._model.separate_documents:
            return array("i", range(self.plan.sequence)) * sequences
        return None

    def _ids(self, tokens, targets, positions, sequences):
        """The inputs of a step."""
        sequence, is_separate = self.plan.sequence, self.plan.model._model.separate_documents
        if positions is not None and not is_separate:
            raise ValueError("positions are for a model that is made with separate_documents=True")
        if positions is None and is_separate:
            raise ValueError("the model has separate_documents: give the positions of the tokens "
                             "in their documents (TokenFile.batch with positions=True)")
        given = [(tokens, "tokens"), (targets, "targets")]
        if is_separate:
            given += [(positions, "positions")]
        return [ids_of(values, sequences, sequence, what) for values, what in given]

    def _input(self, tokens, targets, *positions, **numbers):
        """A step on ids, which have to live until the call of the library ends."""
        step = sized(coh_step_input)
        step.step = as_count(self.step_count, "step_count")
        step.seed, step.loss_factor = as_count(self.seed, "seed"), 1.0
        for name, value in numbers.items():
            setattr(step, name, value)
        used = counted(targets)
        if used == 0:
            step.learning_rate = 0.0
        elif used < len(targets):
            step.loss_factor = len(targets) / used
        for i, each in enumerate((tokens, targets, *positions)):
            step.inputs[i] = each.buffer_info()[0]
        return step

    def submit(self, tokens, targets, learning_rate, clip: float = 1.0, *, positions=None) -> None:
        """Starts a step on [batch, sequence] tokens and targets, and returns. At most two steps run
        at once; wait() ends the older one.

        targets        the token after each token; -1: it does not count. The loss is the mean over
                       those that count
        learning_rate  a number, or a function of the step's number: a Schedule
        clip           limit of the global gradient norm; 0: off
        positions      of a model with separate_documents: the position of each token in its
                       document, from 0 on"""
        rate = learning_rate(self.step_count) if callable(learning_rate) else learning_rate
        ids = self._ids(tokens, targets, positions, self.plan.batch)
        step = self._input(*ids, learning_rate=rate, clip=clip)
        self.step_count += 1
        self._under_way += 1  # before the call: Ctrl-C may be raised just after it
        try:
            self._call(library().coh_engine_submit, byref(step))
        except Error:
            self.step_count -= 1
            self._under_way -= 1
            raise

    def wait(self):
        """Waits for the oldest step. Returns the members of coh_step_result: step, loss, grad_norm
        (before clipping), finite (0: there was a NaN or infinity, and with exact_clip no parameter
        changed), step_ns, peak_bytes["device"], link_bytes["read"], exposed_ns["read"] (how long
        computing waited for a lane), ...

        Ctrl-C is raised while the step runs, which goes on: wait() again for its result, or
        close()."""
        result, is_done = sized(coh_step_result), c_int()
        while not is_done.value:
            self._call(library().coh_engine_wait_for, _PATIENCE_MS, byref(is_done))
        try:
            self._call(library().coh_engine_wait, byref(result))
        finally:  # a step that failed has ended, too
            self._under_way -= 1
        return facts_of(result)

    def step(self, tokens, targets, learning_rate, clip: float = 1.0, *, positions=None):
        """submit() and wait(): trains on one batch, and returns the step's result. Waits first for
        steps that are under way, such as one whose step() Ctrl-C ended, and drops their results."""
        while self._under_way:
            try:
                self.wait()
            except Error:
                self._under_way = 0
                raise
        self.submit(tokens, targets, learning_rate, clip, positions=positions)
        return self.wait()

    def evaluate(self, tokens, targets, positions=None) -> float:
        """Mean loss over the targets that count of any number of sequences, [n, sequence], without
        training on them. They run micro-batch by micro-batch. positions as in submit(); None: a
        sequence is one document."""
        sequence, total, used = self.plan.sequence, 0.0, 0
        rows = rows_of(tokens, sequence)
        positions = self._whole_rows(rows) if positions is None else positions
        ids = self._ids(tokens, targets, positions, rows)
        piece = self.plan.micro_batch * sequence
        for begin in range(0, len(ids[0]), piece):
            parts = [padded(each[begin:begin + piece], piece, fill)
                     for each, fill in zip(ids, (0, -1, 0))]
            count = counted(parts[1])
            if count > 0:
                total += count * self._forward(*parts)
                used += count
        return total / used if used else 0.0

    def _forward(self, *ids):
        """The loss of one micro-batch."""
        loss = c_double()
        step = self._input(*ids)
        self._call(library().coh_engine_evaluate, byref(step), byref(loss))
        return loss.value

    def logits(self, tokens):
        """The logits after each token of [batch, n] tokens, n up to the plan's sequence: a float32
        array [batch, n, vocabulary]. Tokens alone, [n], are for a plan with a batch of one. The
        plan has to be made with forward_only."""
        self._object  # raises if it was closed
        if not self.plan.forward_only:
            raise Error("this engine's plan is for training: make one with forward_only=True for "
                        "logits")
        batch, sequence = self.plan.batch, self.plan.sequence
        length = columns_of(tokens, batch, "tokens")
        if not 1 <= length <= sequence:
            raise ValueError(f"tokens has {length} ids in a sequence, the plan takes 1 to "
                             f"{sequence}")
        ids, rows = ids_of(tokens, batch, length, "tokens"), array("i")
        for row in range(batch):
            rows += padded(ids[row * length:(row + 1) * length], sequence, 0)
        self._forward(*self._ids(rows, array("i", [-1]) * len(rows), self._whole_rows(batch), batch))
        return self._call(self._output, batch, length)

    def _output(self, engine, batch, length):
        """The logits of the first `length` tokens of each row."""
        data, size = c_void_p(), c_size_t()
        library().coh_engine_output(engine, self.plan._logits, byref(data), byref(size))
        row_bytes = size.value // batch
        kept = row_bytes // self.plan.sequence * length
        values = array("f", bytes(batch * kept))
        for row in range(batch):
            memmove(values.buffer_info()[0] + row * kept, data.value + row * row_bytes, kept)
        return shaped(values, "float32", (batch, length, kept // length // 4))

    def scan(self, tokens, targets, result, *, positions=None) -> str:
        """Names the first operator and tensor with a NaN or infinity, after a step whose `result`
        has finite 0, on the batch of that step. No step may be running. Changes no parameter; a
        step after the broken one is undone and has to be submitted again."""
        ids = self._ids(tokens, targets, positions, self.plan.batch)
        step = self._input(*ids, step=result.step)
        sentence = create_string_buffer(SENTENCE_BYTES)
        self._call(library().coh_engine_scan, byref(step), result.applied_count, sentence)
        return sentence.value.decode(errors="replace")

    # ---- parameters ----

    def parameter(self, name: str):
        """Values of a parameter after the last step, as a float32 array of its shape."""
        return self._fetch(name, FETCH_VALUE)

    def gradient(self, name: str):
        """Gradient of a parameter as the last step left it, before clipping, as a float32 array of
        its shape. It stays until the next step: parameter, evaluate, hash, put and save do not
        change it. A plan with updates in backward keeps no gradients, which is an Error."""
        return self._fetch(name, FETCH_GRADIENT)

    def parameters(self, names=None) -> dict:
        """Values of several parameters, without `names` of all, as a dict of float32 arrays. One
        pass over the model, where parameter() makes a pass for each."""
        return self._fetch_all(names, FETCH_VALUE)

    def gradients(self, names=None) -> dict:
        """Gradients of several parameters, without `names` of all that are trained, as gradient()
        has them; in one pass."""
        return self._fetch_all(names, FETCH_GRADIENT)

    def _found(self, name):
        """A parameter and its number of elements."""
        if name not in self._parameters:
            raise KeyError(f"the model has no parameter {name!r}; its names are the keys of "
                           "Plan.parameters")
        found, count = self._parameters[name], 1
        for extent in found.shape:
            count *= extent
        return found, count

    def _fetch(self, name, what):
        found, count = self._found(name)
        values = array("f", bytes(4 * count))
        with self._telling():
            self._call(library().coh_engine_fetch, coh_parameter(found.index), what,
                       pointer(values, c_float))
        return shaped(values, "float32", found.shape)

    def _fetch_all(self, names, what):
        arrays = {}
        if isinstance(names, str):
            raise TypeError(f"names is a list of names, not {names!r}")
        wanted = {self._found(name)[0].index: name
                  for name in (self._parameters if names is None else names)}

        def take(parameter, _name, begin, count, values):
            name = wanted.get(parameter.index)
            if name is not None:
                if name not in arrays:
                    arrays[name] = array("f", bytes(4 * self._found(name)[1]))
                memmove(arrays[name].buffer_info()[0] + 4 * begin, values, 4 * count)

        self._passing(ParameterSink, take, library().coh_engine_fetch_all, what)
        missing = [] if names is None else [name for name in wanted.values() if name not in arrays]
        for name in missing:
            self._fetch(name, what)  # has no gradient: the library's sentence
        return {name: shaped(arrays[name], "float32", self._parameters[name].shape)
                for name in wanted.values() if name in arrays}

    def _numbers(self, name, values):
        """Values for a parameter, as an array of C's."""
        found, count = self._found(name)
        view = floats_of(values, found.shape, f"parameter {name!r}")
        numbers = c_float * count
        take = numbers.from_buffer_copy if view.readonly else numbers.from_buffer
        return take(view.cast("B"))

    def put(self, name: str, values) -> None:
        """Writes a parameter between two steps: a float32 array of its shape, of finite numbers,
        or a list or tensor, with NumPy or without. Optimizer states stay. It makes a pass over the
        model."""
        (found, count), numbers = self._found(name), self._numbers(name, values)
        with self._telling():
            self._call(library().coh_engine_put, coh_parameter(found.index), 0, count, numbers)

    def state(self, name: str, stream: str):
        """An optimizer state of a parameter after the last step, such as "m" or "v" of adamw: a
        float32 array of its shape, or the bytes of a state in another form. optimizers() has the
        names."""
        found, _ = self._found(name)
        values, formed = state_array(stream_of(stream), found.shape)
        with self._telling():
            self._call(library().coh_engine_fetch_state, coh_parameter(found.index), stream.encode(),
                       values.buffer_info()[0])
        return formed(values)

    # ---- facts ----

    @property
    def facts(self):
        """Members of coh_engine_facts: arena_bytes["device"], overhead_bytes, store_backend,
        kernel_path, ..."""
        facts = sized(coh_engine_facts)
        self._call(library().coh_engine_facts_get, byref(facts))
        return facts_of(facts)

    @property
    def ledger(self) -> list:
        """Who holds which bytes: rows with tier, purpose, owner, bytes (now), and peak_bytes (the
        most so far)."""
        rows, row = [], coh_engine_ledger_row()
        while self._call(library().coh_engine_ledger_row_at, len(rows), byref(row)):
            rows.append(facts_of(row))
        return rows

    # ---- hashes and checkpoints ----

    def hash(self) -> int:
        """One number of all parameters and optimizer states: that of `cohobate train` for the same
        numeric plan, data and seed, whatever the budget. `f"{engine.hash():016x}"` is the text that
        the program prints."""
        out_hash = c_uint64()
        with self._telling():
            self._call(library().coh_engine_hash, byref(out_hash))
        return out_hash.value

    def training_note(self, schedule, *, steps: int | None = None, clip: float = 1.0,
                      tokenizer=None, data=None, **members) -> TrainingNote:
        """The note of a run on this engine, for save(). It has what plan and engine know, and

        schedule   the Schedule of its learning rates
        steps      of the whole run; None: those of the schedule
        clip       as in step()
        tokenizer  the Tokenizer of its data; None: the data are ids
        data       the TokenFile whose batch(step, ...) with the engine's seed is each step's; None:
                   `cohobate train --resume` needs --data

        `members` are further members of TrainingNote."""
        if not isinstance(schedule, Schedule):
            raise TypeError(f"schedule is {schedule!r}: a note needs a Schedule, since a resumed "
                            "run computes each step's rate from it; of a constant rate it is "
                            "Schedule(rate, steps, lowest=rate)")
        note = TrainingNote(schedule=schedule, clip=clip, seed=self.seed, tokenizer="none",
                            steps=schedule.steps if steps is None else steps,
                            weight_decay=self.weight_decay, hyperparameters=self.hyperparameters)
        rates = last_of((pattern, numbers["rate_factor"] * schedule.highest)
                        for pattern, numbers in self.groups if "rate_factor" in numbers)
        decays = last_of((pattern, numbers["weight_decay"])
                         for pattern, numbers in self.groups if "weight_decay" in numbers)
        note.lr_for, note.weight_decay_for = rates, decays
        for source in (self.plan, tokenizer, data):
            if source is not None:
                source._describe(note)
        for name, value in members.items():
            setattr(note, name, value)
        return note

    def save(self, path, *, training: TrainingNote | None = None, wait: bool = True,
             **note) -> None:
        """Writes a checkpoint to a new folder, whole or not at all. Checkpoint, Model, and the
        commands `cohobate eval`, `generate` and `export` read it. Its parent folder has to exist;
        if it is named step-N, the parent is a run, of which the newest checkpoint is read.

        training  how the run goes on, as training_note() has it. `cohobate train --resume` needs
                  it, and the commands need no --tokenizer with it
        wait      False: returns when all numbers are written; flushing them to the drive goes on
                  beside the next steps, until save_wait(), or close(), which raise its Error
        note      texts and numbers of your own, which Checkpoint.note has. Names of the recipe are
                  refused"""
        model = self.plan.model
        whole = {"model": model.note()} if training is None else training._json(model._model)
        for name in note.keys() & whole.keys():
            raise ValueError(f"the checkpoint's note has a {name!r} of its own: give yours another "
                             "name")
        checkpoint = sized(coh_checkpoint_note)
        checkpoint.step = as_count(self.step_count, "step_count")
        checkpoint.json = json.dumps({**note, **whole}).encode()
        save = library().coh_engine_save if wait else library().coh_engine_save_begin
        with self._telling():
            self._call(save, as_path(path), byref(checkpoint))

    def save_wait(self) -> None:
        """Waits for the save that save(wait=False) began. An Error if it failed."""
        self._call(library().coh_engine_save_wait)

    @property
    def is_saving(self) -> bool:
        """True if save_wait() would wait."""
        is_done = c_int()
        self._call(library().coh_engine_save_is_done, byref(is_done))
        return not is_done.value

    def load(self, path) -> bool:
        """Continues from a checkpoint: parameters, optimizer states and step_count. Returns True if
        it was made under another numeric plan, so that bits differ from those of one long run.

        If the checkpoint cannot be opened or is of another model, nothing changes. If a read fails
        halfway, as of a damaged file, the old values are gone: load a whole one before the next
        step. So it is with load_weights."""
        facts = sized(coh_load_facts)
        with self._telling():
            self._call(library().coh_engine_load, as_path(path), byref(facts))
        self.step_count = facts.step
        return bool(facts.numeric_changed)
