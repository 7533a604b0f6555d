"""Engine: runs a plan (engine.h).

The one idea: parameters, gradients and batches pass through as buffers of float32 and int32, and
the engine alone knows where the data is between two calls."""
from __future__ import annotations

import contextlib
import json
import logging
from array import array
from ctypes import (byref, c_double, c_float, c_uint64, c_void_p, cast, memmove, sizeof)

from ._library import library
from ._owner import Owner
from ._structs import (FETCH_GRADIENT, FETCH_VALUE, OPERATIONS, Log, ParameterSink, Progress,
                       coh_checkpoint_note, coh_engine_options, coh_hyperparameter_value,
                       coh_load_facts, coh_parameter, coh_step_input, coh_step_result)
from ._values import as_path, facts_of, ids_of, pointer, shaped, sized
from .errors import Error


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


class Engine(Owner):
    """Runs a plan. The parameters are those of the model's folder or checkpoint, else initialised
    from `seed`.

    weight_decay     of parameters whose kind has weight decay
    hyperparameters  {"beta2": 0.99, ...}, for every optimizer that has them
    device           "host", or a GPU: "cuda:0", for plans made with a GPU's profile
    progress         called as progress("load", done, total) during long operations: init, load,
                     save, hash, fetch, put. It must not use the engine, which would wait for
                     itself. An exception of it is raised after the operation

    An engine is used by one thread at a time. The library's remarks go to
    logging.getLogger("cohobate")."""

    _what = "engine"
    _has_threads = True

    def __init__(self, plan, *, seed: int = 1, weight_decay: float = 0.1,
                 hyperparameters: dict | None = None, device: str = "host", progress=None):
        super().__init__(library().coh_engine_destroy, made_from=plan)
        self.plan, self.seed, self.step_count = plan, seed, 0
        options = coh_engine_options()
        library().coh_engine_options_init_sized(byref(options), sizeof(options))
        options.disk_folder = None if plan.disk is None else as_path(plan.disk)
        options.disk_bytes, options.thread_count = plan.disk_limit, plan.threads
        options.weight_decay = weight_decay
        numbers = [coh_hyperparameter_value(None, name.encode(), value)
                   for name, value in (hyperparameters or {}).items()]
        options.hyperparameters = (coh_hyperparameter_value * len(numbers))(*numbers)
        options.hyperparameter_count, options.device = len(numbers), device.encode()
        self._log = Log(lambda _, sentence: logging.getLogger("cohobate").info(
            sentence.decode(errors="replace")))
        self._raised = []
        self._progress = _telling(progress, self._raised)
        options.log, options.progress = self._log, self._progress
        self._create(library().coh_engine_create, plan._object, byref(options))
        self._parameters = plan.parameters
        with self._telling():
            self._begin()

    @contextlib.contextmanager
    def _telling(self):
        """Around calls that report progress: raises its exception."""
        try:
            yield
        finally:
            if self._raised:
                raise self._raised.pop() from None

    def _begin(self):
        model = self.plan.model._model
        if model.folder:
            folder = c_void_p()
            library().coh_folder_open(byref(model), byref(folder))
            try:
                library().coh_engine_init_from(self._object, self.seed,
                                               cast(library().coh_folder_numbers, c_void_p), folder)
            finally:
                library().coh_folder_close(folder)
            return
        library().coh_engine_init(self._object, self.seed)
        if model.checkpoint:
            library().coh_engine_load_weights(self._object, model.checkpoint)

    # ---- steps ----

    def _input(self, tokens, targets, sequences, **numbers):
        count = sequences * self.plan.sequence
        tokens, targets = (ids_of(values, sequences, self.plan.sequence, what)
                           for values, what in ((tokens, "tokens"), (targets, "targets")))
        step = sized(coh_step_input)
        step.step, step.seed, step.loss_factor = self.step_count, self.seed, 1.0
        for name, value in numbers.items():
            setattr(step, name, value)
        counted = count - sum(target < 0 for target in targets)
        if counted == 0:
            step.learning_rate = 0.0
        elif counted < count:
            step.loss_factor = count / counted
        step.inputs[0], step.inputs[1] = (each.buffer_info()[0] for each in (tokens, targets))
        return step, (tokens, targets)

    def submit(self, tokens, targets, learning_rate: float, clip: float = 1.0) -> None:
        """Starts a step on [batch, sequence] tokens and targets, and returns. A target of -1 does
        not count; the loss is the mean over those that count. At most two steps run at once;
        wait() ends the older one."""
        step, _kept = self._input(tokens, targets, self.plan.batch, learning_rate=learning_rate,
                                  clip=clip)
        library().coh_engine_submit(self._object, byref(step))
        self.step_count += 1

    def wait(self):
        """Waits for the oldest step. Returns the members of coh_step_result: loss, grad_norm,
        finite, step_ns, ..."""
        result = sized(coh_step_result)
        library().coh_engine_wait(self._object, byref(result))
        return facts_of(result)

    def step(self, tokens, targets, learning_rate: float, clip: float = 1.0):
        """submit() and wait()."""
        self.submit(tokens, targets, learning_rate, clip)
        return self.wait()

    def evaluate(self, tokens, targets) -> float:
        """Mean loss of one micro-batch, [micro_batch, sequence], without training on it."""
        loss = c_double()
        step, _kept = self._input(tokens, targets, self.plan.micro_batch)
        library().coh_engine_evaluate(self._object, byref(step), byref(loss))
        return loss.value

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
            library().coh_engine_fetch(self._object, coh_parameter(found.index), what,
                                       pointer(values, c_float))
        return shaped(values, "float32", found.shape)

    def _fetch_all(self, names, what):
        arrays, failure = {}, []
        wanted = {self._found(name)[0].index: name
                  for name in (self._parameters if names is None else names)}

        @ParameterSink
        def take(_, parameter, _name, begin, count, values):
            try:
                name = wanted.get(parameter.index)
                if name is not None:
                    if name not in arrays:
                        arrays[name] = array("f", bytes(4 * self._found(name)[1]))
                    memmove(arrays[name].buffer_info()[0] + 4 * begin, values, 4 * count)
                return 0
            except BaseException as error:  # no memory, Ctrl-C: ctypes would drop it
                failure.append(error)
                return 1

        try:
            with self._telling():
                library().coh_engine_fetch_all(self._object, what, cast(take, c_void_p), None)
        except Error:
            if failure:
                raise failure[0] from None
            raise
        missing = [] if names is None else [name for name in wanted.values() if name not in arrays]
        for name in missing:
            self._fetch(name, what)  # has no gradient: the library's sentence
        return {name: shaped(arrays[name], "float32", self._parameters[name].shape)
                for name in wanted.values() if name in arrays}

    def put(self, name: str, values) -> None:
        """Writes a parameter between two steps: a float32 array of its shape, of finite numbers.
        Optimizer states stay."""
        (found, count), view = self._found(name), memoryview(values)
        if view.format != "f" or view.shape != found.shape or not view.c_contiguous:
            raise ValueError(f"parameter {name!r} takes contiguous float32 numbers of shape "
                             f"{found.shape}, not {view.format!r} of shape {view.shape}")
        numbers = (c_float * count).from_buffer_copy(view.cast("B"))
        with self._telling():
            library().coh_engine_put(self._object, coh_parameter(found.index), 0, count, numbers)

    # ---- hashes and checkpoints ----

    def hash(self) -> int:
        """One number of all parameters and optimizer states: that of `cohobate train` for the same
        numeric plan, data and seed, whatever the budget. `f"{engine.hash():016x}"` is the text that
        the program prints."""
        out_hash = c_uint64()
        with self._telling():
            library().coh_engine_hash(self._object, byref(out_hash))
        return out_hash.value

    def save(self, path, **note) -> None:
        """Writes a checkpoint to a new folder, which `cohobate eval`, `generate` and `export` (with
        --tokenizer) and Model read. `note` is kept in it."""
        text = json.dumps({**note, "model": self.plan.model.note()})
        checkpoint = coh_checkpoint_note(struct_bytes=sizeof(coh_checkpoint_note),
                                         step=self.step_count, json=text.encode())
        with self._telling():
            library().coh_engine_save(self._object, as_path(path), byref(checkpoint))

    def load(self, path) -> bool:
        """Continues from a checkpoint: parameters, optimizer states and the number of the next
        step. Returns True if it was made under another numeric plan, so that bits differ from
        those of one long run."""
        facts = sized(coh_load_facts)
        with self._telling():
            library().coh_engine_load(self._object, as_path(path), byref(facts))
        self.step_count = facts.step
        return bool(facts.numeric_changed)
