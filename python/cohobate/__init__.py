"""Trains models larger than the memory that they are given: the C library of Cohobate from Python.

    model ──> Model.plan ──> Plan.engine ──> Engine.step ... ──> Engine.save

The one idea: this file holds no algorithm. Each class owns one object of the library, each method is one or two of its
calls, and attributes of results have the names of the C structs' members, so that the headers document both:
model.h, models.h, plan.h, engine.h, text.h and refusal.h in include/cohobate.

Batches are arrays of 32-bit integers: NumPy's, or any object with a buffer, or lists. Arrays that come back are NumPy's if
NumPy is installed, else memoryviews of the same shape. Sizes are bytes as an int, or text such as "64MiB".

Ownership: every object is freed by close(), by a with block, or with its last reference. Closing a plan closes its engines.
Threads: an engine belongs to the thread that made it; a token file and a tokenizer are used by one thread at a time.
Errors: a call that fails raises Error with the library's sentence; one that does not fit raises Refusal, which has the
figures as attributes.

The library is libcohobate.so.0: the file that COHOBATE_LIBRARY names, else the one that the loader finds."""

import contextlib
import ctypes
import functools
import json
import logging
import operator
import os
import types
from array import array
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64,
                    c_size_t, c_uint32, c_uint64, c_void_p, cast, memmove, sizeof)

try:
    import numpy
except ImportError:
    numpy = None

__all__ = ["Engine", "Error", "Model", "Plan", "Refusal", "TokenFile", "Tokenizer", "free_bytes", "parse_size",
           "tokenize", "version"]

NO_LIMIT = 2**64 - 1
_SONAME = "libcohobate.so.0"
_TIERS, _LANES, _BOUNDS = 3, 8, 14
_DTYPES = {"f32": 0, "bf16": 1}
_RECOMPUTE = {"auto": 0, "none": 1, "all": 2}
_SEARCH = {"usual": 0, "quick": 1}
_SWEEP_SAME_BITS = 3
_FETCH_VALUE, _FETCH_GRADIENT = 0, 1  # coh_fetch
_MICRO_BATCH_MOST = 8  # as the program chooses it
_MODEL_JSON_BYTES = 8448

# ---- structs and functions of the headers: tests/python compares them with the headers ----


class coh_shape(Structure):
    _fields_ = [("dtype", c_int), ("rank", c_int32), ("dim", c_int64 * 5)]


class coh_parameter(Structure):
    _fields_ = [("index", c_int32)]


class coh_graph_parameter_facts(Structure):
    _fields_ = [("name", c_char_p), ("shape", coh_shape), ("is_frozen", c_int32)]


class coh_adapters(Structure):
    _fields_ = [("freeze", c_char * 256), ("targets", c_char * 256), ("rank", c_int32), ("alpha", c_float)]


class coh_model(Structure):
    # `_configurations` is the union of the families' configurations, which only the library reads.
    _fields_ = [("name", c_char * 128), ("family", c_int), ("stored", c_int), ("_configurations", c_int64 * 23),
                ("adapters", coh_adapters), ("checkpoint", c_char * 4096), ("folder", c_char * 4096), ("extras", c_char * 2048),
                ("dtypes", c_char * 2048), ("metadata", c_char * 1024), ("notes", c_char * 2048), ("dropout", c_double),
                ("atomics", c_int32)]


class coh_model_size(Structure):
    _fields_ = [("layers", c_int64), ("heads", c_int64), ("channels", c_int64), ("vocabulary", c_int64),
                ("positions", c_int64), ("dtype", c_int)]


class coh_pin(Structure):
    _fields_ = [("target", c_char * 128), ("place", c_int), ("pattern", c_char * 32)]


class coh_optimizer_choice(Structure):
    _fields_ = [("pattern", c_char * 256), ("optimizer", c_char * 16)]


class coh_fold_shape(Structure):
    _fields_ = [("factors", c_int32 * 3)]


class coh_wires(Structure):
    _fields_ = [("weights", c_int), ("gradients", c_int)]


class coh_plan_options(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("mode", c_int), ("device_memory_bytes", c_uint64),
                ("host_memory_bytes", c_uint64), ("emulate_host", c_int32), ("disk_bytes", c_uint64),
                ("link_bytes_per_s", c_double), ("spare_disk_bytes", c_uint64), ("wear_bytes", c_uint64),
                ("disk_write_bytes_per_day", c_uint64), ("thread_count", c_int32), ("chunk_bytes", c_uint64),
                ("recompute", c_int), ("microbatch_count", c_int32), ("sweep_order", c_int), ("deferred_update", c_int32),
                ("kernel_path", c_char * 128), ("bf16_is_fast", c_int32), ("profile", c_void_p), ("uncalibrated", c_int32),
                ("pins", POINTER(coh_pin)), ("pin_count", c_int32), ("earlier", POINTER(c_void_p)),
                ("earlier_count", c_int32), ("f32_gradients", c_int32), ("search", c_int), ("optimizer", c_char * 16),
                ("optimizer_choices", POINTER(coh_optimizer_choice)), ("optimizer_choice_count", c_int32),
                ("drive_count", c_int32), ("replicas", coh_fold_shape), ("ranks", coh_fold_shape),
                ("pair_ranks", c_int32), ("node_ranks", c_int32), ("speculates", c_int32),
                ("rank_pattern", c_char * 32), ("wires", coh_wires)]


_GraphSource = CFUNCTYPE(c_int, c_void_p, c_int64, POINTER(c_void_p))


class coh_batch(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("may_change", c_int32), ("make_graph", _GraphSource), ("context", c_void_p),
                ("batch", c_int64), ("microbatch", c_int64)]


class coh_batch_plan(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("graph", c_void_p), ("plan", c_void_p), ("microbatch", c_int64),
                ("wanted_step_ns", c_uint64), ("chosen_step_ns", c_uint64)]


class coh_rank_parts(Structure):
    _fields_ = [("work", c_int32), ("grad", c_int32), ("state", c_int32)]


class coh_plan_summary(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("peak_bytes", c_uint64 * _TIERS), ("smallest_device_bytes", c_uint64),
                ("smallest_is_proven", c_int32), ("parameter_count", c_uint64), ("parameter_bytes", c_uint64),
                ("stream_bytes", c_uint64), ("step_ns", c_uint64), ("bound_ns", c_uint64), ("bounds_ns", c_uint64 * _BOUNDS),
                ("binding", c_int), ("runner_up", c_int), ("drain_ns", c_uint64), ("save_ns", c_uint64),
                ("evaluate_ns", c_uint64), ("busy_ns", c_uint64 * _LANES), ("exposed_ns", c_uint64 * _LANES),
                ("link_bytes", c_uint64 * _LANES), ("least_link_bytes", c_uint64 * _LANES), ("work_link_bytes", c_uint64),
                ("grad_link_bytes", c_uint64), ("state_link_bytes", c_uint64), ("other_link_bytes", c_uint64),
                ("instruction_count", c_uint32), ("program_count", c_uint32), ("numeric_fingerprint", c_uint64),
                ("program_hash", c_uint64), ("chunk_bytes", c_uint64), ("host_update_bytes", c_uint64),
                ("sweep_order", c_int), ("recomputes", c_int32), ("forward_ns", c_uint64), ("recompute_ns", c_uint64),
                ("caches", c_int32), ("row_passes", c_int32), ("verified_instructions", c_int32),
                ("disk_bytes_written", c_double), ("disk_limit_bytes", c_uint64), ("step_alone_ns", c_uint64),
                ("step_contended_ns", c_uint64), ("step_p10_ns", c_uint64), ("step_p50_ns", c_uint64),
                ("step_p90_ns", c_uint64), ("order_keeps_bits", c_int32), ("unmeasured_kind", c_char_p),
                ("unmeasured_operators", c_int32), ("kept_bytes", c_uint64), ("rank_parts", coh_rank_parts),
                ("rank_pattern", c_char * 32)]


class coh_parameter_group(Structure):
    _fields_ = [("pattern", c_char_p), ("sets", c_uint32), ("rate_factor", c_float), ("weight_decay", c_float)]


class coh_hyperparameter_value(Structure):
    _fields_ = [("optimizer", c_char_p), ("name", c_char_p), ("value", c_float)]


class coh_disk(Structure):
    _fields_ = [("folder", c_char_p), ("bytes", c_uint64), ("bytes_per_s", c_double)]


_ParameterSink = CFUNCTYPE(c_int, c_void_p, coh_parameter, c_char_p, c_uint64, c_uint64, c_void_p)
_Log = CFUNCTYPE(None, c_void_p, c_char_p)
_Progress = CFUNCTYPE(None, c_void_p, c_int, c_uint64, c_uint64)
_OPERATIONS = ("init", "load", "save", "hash", "fetch", "put")  # by coh_operation


class coh_engine_options(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("disk_folder", c_char_p), ("disk_bytes", c_uint64), ("thread_count", c_int32),
                ("weight_decay", c_float), ("poison", c_int32), ("delay_seed", c_uint64), ("delay_most_us", c_uint32),
                ("store", c_char_p), ("log", _Log), ("log_context", c_void_p), ("device", c_char_p),
                ("groups", POINTER(coh_parameter_group)), ("group_count", c_uint32),
                ("hyperparameters", POINTER(coh_hyperparameter_value)), ("hyperparameter_count", c_uint32),
                ("disks", POINTER(coh_disk)), ("disk_count", c_uint32), ("record_steps", c_uint64), ("check_calls", c_int32),
                ("progress", _Progress), ("progress_context", c_void_p), ("world", c_void_p), ("rank_timeout_s", c_double)]


class coh_step_input(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("step", c_uint64), ("seed", c_uint64), ("learning_rate", c_float),
                ("clip", c_float), ("inputs", c_void_p * 8), ("loss_factor", c_float)]


class coh_step_result(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("step", c_uint64), ("loss", c_double), ("grad_norm", c_double),
                ("finite", c_int32), ("applied_count", c_uint64), ("step_ns", c_uint64), ("exposed_ns", c_uint64 * _LANES),
                ("link_bytes", c_uint64 * _LANES), ("peak_bytes", c_uint64 * _TIERS), ("frozen_bytes", c_uint64 * _LANES),
                ("is_stop_asked", c_int32), ("ran_twice", c_int32)]


class coh_checkpoint_note(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("step", c_uint64), ("json", c_char_p)]


class coh_load_facts(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("numeric_changed", c_int32), ("step", c_uint64)]


class coh_checkpoint_facts(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("path", c_char_p), ("step", c_uint64), ("applied_count", c_uint64),
                ("numeric_fingerprint", c_uint64), ("hash", c_uint64), ("tensor_count", c_int32),
                ("parameter_count", c_uint64), ("bytes", c_uint64), ("is_trained", c_int32), ("stream_count", c_int32),
                ("note_json", c_char_p), ("passed_over", c_char_p), ("grad_norm", c_double)]


class coh_change(Structure):
    _fields_ = [("kind", c_int), ("tier", c_int32), ("is_least", c_int32), ("microbatch", c_int64), ("bytes", c_uint64)]


class coh_refusal(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("status", c_int), ("reason", c_int), ("tier", c_int32), ("is_gpu", c_int32),
                ("given_bytes", c_uint64), ("needed_bytes", c_uint64), ("short_bytes", c_uint64), ("is_least", c_int32),
                ("is_proven", c_int32), ("count", c_uint64), ("count_most", c_uint64), ("chunk_bytes", c_uint64),
                ("unit", c_int), ("microbatch_count", c_int32), ("microbatch", c_int64), ("largest_microbatch", c_int64),
                ("is_with_disk", c_int32), ("by_hand", c_uint32), ("change_count", c_int32), ("changes", coh_change * 6),
                ("operator_name", c_char * 64), ("pin", c_char * 160), ("profile", c_char * 256), ("path", c_char * 256),
                ("items", c_char * 256)]


class coh_token_file_facts(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("token_count", c_uint64), ("vocabulary", c_int64),
                ("tokenizer_identity", c_uint64), ("hash", c_uint64), ("window", c_int64), ("has_mask", c_int32),
                ("is_raw", c_int32), ("is_llmc", c_int32), ("id_bytes", c_int32)]


_STRUCTS = (coh_shape, coh_parameter, coh_graph_parameter_facts, coh_adapters, coh_model, coh_model_size, coh_pin, coh_rank_parts, coh_wires,
            coh_optimizer_choice, coh_plan_options, coh_batch, coh_batch_plan, coh_plan_summary, coh_parameter_group,
            coh_hyperparameter_value, coh_disk, coh_engine_options, coh_step_input, coh_step_result, coh_checkpoint_note,
            coh_checkpoint_facts, coh_change, coh_refusal, coh_token_file_facts)

_STATUS = "coh_status"  # a result that raises unless it is COH_OK

# Name: result, parameters.
_FUNCTIONS = {
    "coh_version": (c_char_p, []),
    "coh_last_error": (c_char_p, []),
    "coh_last_refusal": (c_int32, [POINTER(coh_refusal)]),
    "coh_status_name": (c_char_p, [c_int]),
    "coh_status_exit_code": (c_int, [c_int]),
    "coh_refusal_reason_name": (c_char_p, [c_int]),
    "coh_change_kind_name": (c_char_p, [c_int]),
    "coh_tier_name": (c_char_p, [c_int]),
    "coh_lane_name": (c_char_p, [c_int]),
    "coh_plan_bound_name": (c_char_p, [c_int]),
    "coh_size_parse": (_STATUS, [c_char_p, POINTER(c_uint64)]),
    "coh_machine_free_bytes": (c_uint64, []),
    "coh_machine_core_count": (c_int, []),
    "coh_model_resolve": (_STATUS, [c_char_p, c_int64, POINTER(coh_model)]),
    "coh_model_size_get": (coh_model_size, [POINTER(coh_model)]),
    "coh_model_dtype_set": (None, [POINTER(coh_model), c_int]),
    "coh_model_adapters_set": (_STATUS, [POINTER(coh_model), POINTER(coh_adapters)]),
    "coh_model_train_graph": (_STATUS, [POINTER(coh_model), c_int64, c_int64, POINTER(c_void_p)]),
    "coh_model_to_json": (_STATUS, [POINTER(coh_model), c_char_p, c_size_t]),
    "coh_folder_open": (_STATUS, [POINTER(coh_model), POINTER(c_void_p)]),
    "coh_folder_close": (None, [c_void_p]),
    "coh_folder_numbers": (_STATUS, [c_void_p, coh_parameter, c_char_p, c_uint64, c_uint64, POINTER(c_float)]),
    "coh_graph_parameter_count": (c_int32, [c_void_p]),
    "coh_graph_parameter_at": (_STATUS, [c_void_p, c_int32, POINTER(coh_graph_parameter_facts)]),
    "coh_profile_read": (_STATUS, [c_char_p, POINTER(c_void_p)]),
    "coh_profile_destroy": (None, [c_void_p]),
    "coh_pin_parse": (_STATUS, [c_char_p, POINTER(coh_pin)]),
    "coh_plan_options_init_sized": (None, [POINTER(coh_plan_options), c_size_t]),
    "coh_batch_plan_create": (_STATUS, [POINTER(coh_batch), POINTER(coh_plan_options), POINTER(coh_batch_plan)]),
    "coh_batch_plan_destroy": (None, [POINTER(coh_batch_plan)]),
    "coh_plan_summarize": (_STATUS, [c_void_p, POINTER(coh_plan_summary)]),
    "coh_plan_write": (_STATUS, [c_void_p, c_char_p]),
    "coh_engine_options_init_sized": (None, [POINTER(coh_engine_options), c_size_t]),
    "coh_engine_create": (_STATUS, [c_void_p, POINTER(coh_engine_options), POINTER(c_void_p)]),
    "coh_engine_destroy": (None, [c_void_p]),
    "coh_engine_init": (_STATUS, [c_void_p, c_uint64]),
    "coh_engine_init_from": (_STATUS, [c_void_p, c_uint64, c_void_p, c_void_p]),
    "coh_engine_load": (_STATUS, [c_void_p, c_char_p, POINTER(coh_load_facts)]),
    "coh_engine_load_weights": (_STATUS, [c_void_p, c_char_p]),
    "coh_engine_submit": (_STATUS, [c_void_p, POINTER(coh_step_input)]),
    "coh_engine_wait": (_STATUS, [c_void_p, POINTER(coh_step_result)]),
    "coh_engine_evaluate": (_STATUS, [c_void_p, POINTER(coh_step_input), POINTER(c_double)]),
    "coh_engine_fetch": (_STATUS, [c_void_p, coh_parameter, c_int, POINTER(c_float)]),
    "coh_engine_fetch_all": (_STATUS, [c_void_p, c_int, c_void_p, c_void_p]),
    "coh_engine_put": (_STATUS, [c_void_p, coh_parameter, c_uint64, c_uint64, POINTER(c_float)]),
    "coh_engine_hash": (_STATUS, [c_void_p, POINTER(c_uint64)]),
    "coh_engine_save": (_STATUS, [c_void_p, c_char_p, POINTER(coh_checkpoint_note)]),
    "coh_checkpoint_open": (_STATUS, [c_char_p, POINTER(c_void_p)]),
    "coh_checkpoint_close": (None, [c_void_p]),
    "coh_checkpoint_facts_get": (_STATUS, [c_void_p, POINTER(coh_checkpoint_facts)]),
    "coh_tokenizer_open": (_STATUS, [c_char_p, POINTER(c_void_p)]),
    "coh_tokenizer_close": (None, [c_void_p]),
    "coh_tokenizer_vocabulary": (c_int64, [c_void_p]),
    "coh_tokenizer_end_of_text": (c_int32, [c_void_p]),
    "coh_tokenizer_encode": (_STATUS, [c_void_p, c_char_p, c_size_t, POINTER(POINTER(c_int32)), POINTER(c_size_t)]),
    "coh_tokenizer_decode": (_STATUS, [c_void_p, POINTER(c_int32), c_size_t, POINTER(c_void_p), POINTER(c_size_t)]),
    "coh_text_free": (None, [c_void_p]),
    "coh_token_file_build": (_STATUS, [c_void_p, c_char_p, c_char_p, c_int, c_char_p, POINTER(c_uint64)]),
    "coh_token_file_open": (_STATUS, [c_char_p, POINTER(c_void_p)]),
    "coh_token_file_close": (None, [c_void_p]),
    "coh_token_file_facts_get": (_STATUS, [c_void_p, POINTER(coh_token_file_facts)]),
    "coh_token_file_window_count": (c_uint64, [c_void_p, c_int64]),
    "coh_token_file_window": (_STATUS, [c_void_p, c_uint64, c_uint64, c_int64, POINTER(c_int32), POINTER(c_int32)]),
}


@functools.lru_cache(None)
def _library():
    """Loads the library once. A prototype that the library lacks means that it is older than this file."""
    path = os.environ.get("COHOBATE_LIBRARY", _SONAME)
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"{error}: install Cohobate, or set COHOBATE_LIBRARY to the path of {_SONAME}") from None
    for name, (result, parameters) in _FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"{path} has no {name}: it is older than this package") from None
        function.restype, function.argtypes = c_int if result is _STATUS else result, parameters
        if result is _STATUS:
            function.errcheck = _check
    return library


# ---- errors ----


class Error(Exception):
    """A call of the library failed. The text is the library's sentence: what failed, with which figures, what to do.

    status     name of the C code: "COH_ERR_ARGUMENT", "COH_ERR_IO", ... (status.h)
    exit_code  exit code that the command line program ends with"""

    def __init__(self, code):
        library = _library()
        super().__init__(library.coh_last_error().decode(errors="replace"))
        self.status = library.coh_status_name(code).decode()
        self.exit_code = library.coh_status_exit_code(code)


class Refusal(Error):
    """A plan or a run does not fit. Attributes are the members of coh_refusal (refusal.h):

    reason       "in-memory", "far-tier", "step", ...
    tier         the tier that is short: "device", "host", "disk"; None: none, or several
    given_bytes, needed_bytes, short_bytes; 0: not about bytes
    is_proven    True: no plan of these options fits
    changes      what helps, the cheapest first: each has kind ("raise", "add-disk", ...), tier, bytes, microbatch, is_least
    and is_least, microbatch, operator_name, pin, profile, path, items"""

    def __init__(self, code, refusal):
        super().__init__(code)
        library = _library()
        self.reason = library.coh_refusal_reason_name(refusal.reason).decode()
        self.tier = _tier_name(refusal.tier)
        for name in ("given_bytes", "needed_bytes", "short_bytes", "microbatch"):
            setattr(self, name, getattr(refusal, name))
        for name in ("is_proven", "is_least", "is_gpu", "is_with_disk"):
            setattr(self, name, bool(getattr(refusal, name)))
        for name in ("operator_name", "pin", "profile", "path", "items"):
            setattr(self, name, getattr(refusal, name).decode(errors="replace"))
        self.changes = [types.SimpleNamespace(kind=library.coh_change_kind_name(change.kind).decode(),
                                              tier=_tier_name(change.tier), bytes=change.bytes,
                                              microbatch=change.microbatch, is_least=bool(change.is_least))
                        for change in refusal.changes[:refusal.change_count]]


def _tier_name(tier):
    return _library().coh_tier_name(tier).decode() if tier >= 0 else None


def _check(code, function, arguments):
    """Raises what the library reports."""
    if code == 0:
        return code
    refusal = _sized(coh_refusal)
    if _library().coh_last_refusal(byref(refusal)):
        raise Refusal(code, refusal)
    raise Error(code)


# ---- values ----


def _sized(struct):
    return struct(struct_bytes=sizeof(struct))


def _path(path):
    return os.fsencode(path)


def _facts(struct):
    """A struct's members as attributes; arrays by tier, lane and bound become dicts by their names."""
    library, facts = _library(), types.SimpleNamespace()
    names = {_TIERS: library.coh_tier_name, _LANES: library.coh_lane_name, _BOUNDS: library.coh_plan_bound_name}
    for name, _ in struct._fields_[1:]:
        value = getattr(struct, name)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        elif isinstance(value, ctypes.Array):
            value = {names[len(value)](i).decode(): each for i, each in enumerate(value)}
        setattr(facts, name, value)
    return facts


def _flat(values, rows, columns, what):
    """The integers of a list, or of a list of `rows` rows of `columns` integers."""
    if not isinstance(values, (list, tuple)):
        return [values]
    if not any(hasattr(value, "__len__") for value in values):
        return values
    lengths = [len(value) if hasattr(value, "__len__") else 1 for value in values]
    if len(lengths) != rows or set(lengths) != {columns}:
        raise ValueError(f"{what} has {len(lengths)} rows of {min(lengths)} to {max(lengths)} ids, the plan's step takes "
                         f"{rows} of {columns}: [batch, sequence]")
    return [each for value in values for each in (value.tolist() if hasattr(value, "tolist") else value)]


def _ids(values, rows, columns, what):
    """Ids as an array of 32-bit integers. Other integers are converted, and refused if they are too large."""
    count, shape = rows * columns, tuple(getattr(values, "shape", ()))
    if len(shape) > 1 and shape != (rows, columns):
        raise ValueError(f"{what} has the shape {shape}, the plan's step takes {(rows, columns)}: [batch, sequence]")
    try:
        view = memoryview(values)
    except TypeError:
        view = None
    if view is not None and view.format == "i":
        ids = array("i", view.tobytes())
    else:
        ids = array("i", _flat(values.tolist() if hasattr(values, "tolist") else values, rows, columns, what))
    if len(ids) != count:
        raise ValueError(f"{what} has {len(ids)} ids, the plan's step takes {count}")
    return ids


def _shaped(values, dtype, shape):
    """The memory of an array.array as a NumPy array of that shape, or as a memoryview of it."""
    if numpy is not None:
        return numpy.frombuffer(values, dtype).reshape(shape)
    return memoryview(values).cast("B").cast(values.typecode, list(shape))


def _pointer(values, kind):
    return (kind * len(values)).from_buffer(values)


def parse_size(size):
    """Bytes of an int, or of a text such as "64MiB" or "40GB"."""
    if not isinstance(size, str):
        size = operator.index(size)
        if not 0 <= size <= NO_LIMIT:  # ctypes would take it modulo 2**64
            raise ValueError(f"a size of {size} bytes is not 0 to 2**64 - 1")
        return size
    out_bytes = c_uint64()
    _library().coh_size_parse(size.encode(), byref(out_bytes))
    return out_bytes.value


def free_bytes():
    """Bytes of main memory that a run may take now: the default budget of a plan."""
    return _library().coh_machine_free_bytes()


def version():
    """The library's version, "0.1.0"."""
    return _library().coh_version().decode()


def _destroy(name, pointer):
    """Frees what `pointer` points to, by the function `name`, unless that is done."""
    closed, pointer.value = c_void_p(pointer.value), None
    if closed:
        getattr(_library(), name)(closed)


class _Owner:
    """Owns one object of the library. close() frees it; further use of it fails with a sentence."""

    _close_name = ""

    def __init__(self):
        self._object = c_void_p()

    def close(self):
        """Frees the object. May be called again."""
        _destroy(self._close_name, self._object)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_object", None):
            self.close()


# ---- text ----


class Tokenizer(_Owner):
    """Turns text into ids and back. `what` is "bytes", a Hugging Face folder, or a tokenizer's file."""

    _close_name = "coh_tokenizer_close"

    def __init__(self, what="bytes"):
        super().__init__()
        _library().coh_tokenizer_open(_path(what), byref(self._object))

    @property
    def vocabulary(self):
        """Number of ids."""
        return _library().coh_tokenizer_vocabulary(self._object)

    @property
    def end_of_text(self):
        """The id that ends a text; -1: none."""
        return _library().coh_tokenizer_end_of_text(self._object)

    def encode(self, text):
        """Ids of a str or of bytes, as an int32 array."""
        text = text.encode() if isinstance(text, str) else bytes(text)
        ids, count = POINTER(c_int32)(), c_size_t()
        _library().coh_tokenizer_encode(self._object, text, len(text), byref(ids), byref(count))
        try:
            values = array("i", ids[:count.value])
        finally:
            _library().coh_text_free(ids)
        return _shaped(values, "int32", (len(values),)) if len(values) else values

    def decode(self, ids):
        """Bytes of the text of ids."""
        ids = array("i", list(ids))
        text, count = c_void_p(), c_size_t()
        _library().coh_tokenizer_decode(self._object, _pointer(ids, c_int32) if ids else None, len(ids), byref(text),
                                        byref(count))
        try:
            return ctypes.string_at(text, count.value)
        finally:
            _library().coh_text_free(text)


def tokenize(tokenizer, text_path, out_path):
    """Writes the token file of a text file, or of every text file in a folder. Returns its number of ids."""
    count = c_uint64()
    _library().coh_token_file_build(tokenizer._object, _path(text_path), _path(out_path), 0, None, byref(count))
    return count.value


class TokenFile(_Owner):
    """A token file, cut into windows of training as `cohobate train` cuts it."""

    _close_name = "coh_token_file_close"

    def __init__(self, path):
        super().__init__()
        _library().coh_token_file_open(_path(path), byref(self._object))

    @property
    def facts(self):
        """Members of coh_token_file_facts: token_count, vocabulary, hash, ..."""
        facts = _sized(coh_token_file_facts)
        _library().coh_token_file_facts_get(self._object, byref(facts))
        return _facts(facts)

    def window_count(self, sequence):
        """Windows of `sequence` tokens in one pass over the data."""
        return _library().coh_token_file_window_count(self._object, sequence)

    def batch(self, step, batch, sequence, seed=1):
        """Tokens and targets of step `step`, counted from 0: two int32 arrays [batch, sequence]. A target of -1 does not
        count. The same windows as those of `cohobate train --seed`."""
        tokens, targets = (array("i", bytes(4 * batch * sequence)) for _ in range(2))
        to, to_targets = _pointer(tokens, c_int32), _pointer(targets, c_int32)
        for i in range(batch):
            at = 4 * i * sequence
            _library().coh_token_file_window(self._object, seed, step * batch + i, sequence,
                                             cast(byref(to, at), POINTER(c_int32)),
                                             cast(byref(to_targets, at), POINTER(c_int32)))
        del to, to_targets
        return _shaped(tokens, "int32", (batch, sequence)), _shaped(targets, "int32", (batch, sequence))


# ---- model, plan, engine ----


class Model:
    """A model: what is computed. `what` is a preset's name, or the path of a Hugging Face folder, a checkpoint or a run.

    vocabulary  rows of a preset's table; 0: as published
    dtype       "f32" or "bf16"; None: as it is stored, f32 for a preset
    dropout     probability, in training
    lora        rank of adapters; everything else is frozen. lora_alpha 0 and lora_targets "" are PEFT's defaults
    freeze      globs of operators that are frozen: "wte,h.0.*" """

    def __init__(self, what, vocabulary=0, dtype=None, dropout=0.0, lora=0, lora_alpha=0.0, lora_targets="", freeze=""):
        library = _library()
        self._model = coh_model()
        library.coh_model_resolve(_path(what), vocabulary, byref(self._model))
        if dtype is not None:
            if dtype not in _DTYPES:
                raise ValueError(f"dtype {dtype!r} is not one of {', '.join(_DTYPES)}")
            library.coh_model_dtype_set(byref(self._model), _DTYPES[dtype])
        self._model.dropout = dropout
        if lora or freeze:
            adapters = coh_adapters(rank=lora, alpha=lora_alpha, targets=lora_targets.encode(), freeze=freeze.encode())
            library.coh_model_adapters_set(byref(self._model), byref(adapters))

    @property
    def name(self):
        """Name of the preset or of the folder."""
        return self._model.name.decode()

    @property
    def size(self):
        """Members of coh_model_size: layers, heads, channels, vocabulary, positions; dtype is "f32" or "bf16"."""
        size = _library().coh_model_size_get(byref(self._model))
        facts = types.SimpleNamespace(**{name: getattr(size, name) for name, _ in size._fields_})
        facts.dtype = next(name for name, number in _DTYPES.items() if number == size.dtype)
        return facts

    def note(self):
        """The model as a dict, as checkpoints store it."""
        text = ctypes.create_string_buffer(_MODEL_JSON_BYTES)
        _library().coh_model_to_json(byref(self._model), text, len(text))
        return json.loads(text.value)

    def plan(self, batch, sequence, **options):
        """Plans steps of `batch` sequences of `sequence` tokens. Plan has the options."""
        return Plan(self, batch, sequence, **options)


class Plan(_Owner):
    """Where all data is and when it moves, with predicted time and exact memory. Options and their defaults:

    device_memory     budget of the device; None: free main memory less a reserve, as free_bytes(). Give it for a GPU
    disk, disk_limit  folder of the far tier, and its limit; None: no such tier, no limit
    host_memory       host tier: pinned next to a GPU, emulated on the host device
    micro_batch       sequences of a micro-batch, a divisor of the batch; None: its largest divisor up to 8. It is part of
                      the numeric plan; with may_change_micro_batch another one is used if it fits or is faster
    exact_clip        True: gradients are clipped by their own step's norm. False: updates are made during backward
    speculate         True: both, on a disk: a step that is clipped runs twice, and the disk holds weights and states twice
    optimizer         "adamw", "adamw8", "adamw8sr", "lion", "sgd"
    profile           machine that the plan is priced for: a datasheet's name or a file; None: rough constants
    recompute, search, chunk, pins, f32_gradients, threads   as the flags of `cohobate train`

    Raises Refusal if nothing fits. Attributes: model, batch, micro_batch, sequence, summary, parameters."""

    def __init__(self, model, batch, sequence, *, device_memory=None, disk=None, disk_limit=None, host_memory=0,
                 micro_batch=None, may_change_micro_batch=False, exact_clip=True, speculate=False, optimizer="adamw",
                 profile=None, recompute="auto", search="usual", chunk=0, pins=(), f32_gradients=False, threads=None):
        super().__init__()
        self._plan, self._profile = _sized(coh_batch_plan), c_void_p()
        library = _library()
        self.model, self.batch, self.sequence = model, batch, sequence
        self.disk, self.threads = disk, threads or library.coh_machine_core_count()
        self.disk_limit = NO_LIMIT if disk_limit is None else parse_size(disk_limit)
        # The engines' pointers: if a plan and its engine are freed as garbage together, the plan may be the first.
        self._engines = {}  # by id()
        wanted = micro_batch or next((n for n in range(min(batch, _MICRO_BATCH_MOST), 0, -1) if batch % n == 0), batch)
        options = coh_plan_options()
        library.coh_plan_options_init_sized(byref(options), sizeof(options))
        options.device_memory_bytes = free_bytes() if device_memory is None else parse_size(device_memory)
        options.host_memory_bytes = parse_size(host_memory)
        options.emulate_host = options.host_memory_bytes > 0
        options.disk_bytes = self.disk_limit if disk is not None else 0
        options.thread_count, options.chunk_bytes = self.threads, parse_size(chunk)
        options.recompute, options.search = _RECOMPUTE[recompute], _SEARCH[search]
        options.sweep_order, options.deferred_update, options.speculates = _SWEEP_SAME_BITS, exact_clip, speculate
        options.optimizer, options.f32_gradients = optimizer.encode(), f32_gradients
        options.pins, options.pin_count = (coh_pin * len(pins))(*map(self._pin, pins)), len(pins)
        if profile is not None:
            library.coh_profile_read(_path(profile), byref(self._profile))
            options.profile = self._profile
        self._create(options, wanted, may_change_micro_batch)

    @staticmethod
    def _pin(text):
        pin = coh_pin()
        _library().coh_pin_parse(text.encode(), byref(pin))
        return pin

    def _create(self, options, micro_batch, may_change):
        library, failure = _library(), []

        @_GraphSource
        def make_graph(_, sequences, out_graph):
            try:
                return library.coh_model_train_graph(byref(self.model._model), sequences, self.sequence, out_graph)
            except BaseException as error:  # Ctrl-C, too: ctypes would drop it
                failure.append(error)
                return 1

        batch = _sized(coh_batch)
        batch.may_change, batch.make_graph, batch.batch, batch.microbatch = may_change, make_graph, self.batch, micro_batch
        try:
            library.coh_batch_plan_create(byref(batch), byref(options), byref(self._plan))
        except Error:
            self._free()
            if failure:
                raise failure[0] from None
            raise
        self._object, self.micro_batch = c_void_p(self._plan.plan), self._plan.microbatch

    def _free(self):
        _library().coh_batch_plan_destroy(byref(self._plan))
        _library().coh_profile_destroy(self._profile)
        self._plan, self._profile = _sized(coh_batch_plan), c_void_p()

    def close(self):
        """Frees the plan, after its engines."""
        while self._engines:
            _destroy(Engine._close_name, self._engines.popitem()[1])
        self._object = c_void_p()
        self._free()

    @property
    def summary(self):
        """Members of coh_plan_summary: step_ns, peak_bytes["device"], link_bytes["read"], ..."""
        summary = _sized(coh_plan_summary)
        _library().coh_plan_summarize(self._object, byref(summary))
        return _facts(summary)

    @property
    def parameters(self):
        """{name: parameter} of all parameters; each has index, shape and is_frozen."""
        library, found = _library(), {}
        for index in range(library.coh_graph_parameter_count(self._plan.graph)):
            facts = coh_graph_parameter_facts()
            library.coh_graph_parameter_at(self._plan.graph, index, byref(facts))
            found[facts.name.decode()] = types.SimpleNamespace(
                index=index, shape=tuple(facts.shape.dim[:facts.shape.rank]), is_frozen=bool(facts.is_frozen))
        return found

    def write(self, path):
        """Writes plan.json, which `cohobate inspect`, `simulate` and `explain` read."""
        _library().coh_plan_write(self._object, _path(path))

    def engine(self, **options):
        """Makes an engine and its parameters. Engine has the options."""
        return Engine(self, **options)


class Engine(_Owner):
    """Runs a plan. The parameters are those of the model's folder or checkpoint, else initialised from `seed`.

    weight_decay     of parameters whose kind has weight decay
    hyperparameters  {"beta2": 0.99, ...}, for every optimizer that has them
    device           "host", or a GPU: "cuda:0", for plans made with a GPU's profile
    progress         called as progress("load", done, total) during long operations: init, load, save, hash, fetch.
                     It must not use the engine, which would wait for itself. What it raises is raised after the operation
    An engine is used by one thread at a time. The library's remarks go to logging.getLogger("cohobate")."""

    _close_name = "coh_engine_destroy"

    def __init__(self, plan, *, seed=1, weight_decay=0.1, hyperparameters=None, device="host", progress=None):
        super().__init__()
        library = _library()
        self.plan, self.seed, self.step_count = plan, seed, 0
        options = coh_engine_options()
        library.coh_engine_options_init_sized(byref(options), sizeof(options))
        options.disk_folder = None if plan.disk is None else _path(plan.disk)
        options.disk_bytes, options.thread_count, options.weight_decay = plan.disk_limit, plan.threads, weight_decay
        numbers = [coh_hyperparameter_value(None, name.encode(), value) for name, value in (hyperparameters or {}).items()]
        options.hyperparameters = (coh_hyperparameter_value * len(numbers))(*numbers)
        options.hyperparameter_count, options.device = len(numbers), device.encode()
        self._log = _Log(lambda _, sentence: logging.getLogger("cohobate").info(sentence.decode(errors="replace")))
        if progress is not None and not callable(progress):
            raise TypeError(f"progress is called as progress(\"load\", done, total), and {progress!r} cannot be called")
        self._raised = []
        self._progress = _Progress() if progress is None else _Progress(
            lambda _, operation, done, total: self._tell(progress, _OPERATIONS[operation], done, total))
        options.log, options.progress = self._log, self._progress
        library.coh_engine_create(plan._object, byref(options), byref(self._object))
        plan._engines[id(self._object)] = self._object
        self._parameters = plan.parameters
        with self._telling():
            self._begin()

    def close(self):
        """Frees the engine. May be called again."""
        self.plan._engines.pop(id(self._object), None)
        super().close()

    def _tell(self, progress, *arguments):
        """Calls progress until it raises: ctypes would drop what it raised, Ctrl-C, too."""
        try:
            if not self._raised:
                progress(*arguments)
        except BaseException as error:
            self._raised.append(error)

    @contextlib.contextmanager
    def _telling(self):
        """Around calls that report progress: raises what it raised."""
        try:
            yield
        finally:
            if self._raised:
                raise self._raised.pop() from None

    def _begin(self):
        library, model = _library(), self.plan.model._model
        if model.folder:
            folder = c_void_p()
            library.coh_folder_open(byref(model), byref(folder))
            try:
                library.coh_engine_init_from(self._object, self.seed, cast(library.coh_folder_numbers, c_void_p), folder)
            finally:
                library.coh_folder_close(folder)
            return
        library.coh_engine_init(self._object, self.seed)
        if model.checkpoint:
            library.coh_engine_load_weights(self._object, model.checkpoint)

    def _input(self, tokens, targets, sequences, **numbers):
        count = sequences * self.plan.sequence
        tokens, targets = (_ids(values, sequences, self.plan.sequence, what)
                           for values, what in ((tokens, "tokens"), (targets, "targets")))
        step = _sized(coh_step_input)
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

    def submit(self, tokens, targets, learning_rate, clip=1.0):
        """Starts a step on [batch, sequence] tokens and targets, and returns. A target of -1 does not count; the loss is
        the mean over those that count. At most two steps run at once; wait() ends the older one."""
        step, _kept = self._input(tokens, targets, self.plan.batch, learning_rate=learning_rate, clip=clip)
        _library().coh_engine_submit(self._object, byref(step))
        self.step_count += 1

    def wait(self):
        """Waits for the oldest step. Returns the members of coh_step_result: loss, grad_norm, finite, step_ns, ..."""
        result = _sized(coh_step_result)
        _library().coh_engine_wait(self._object, byref(result))
        return _facts(result)

    def step(self, tokens, targets, learning_rate, clip=1.0):
        """submit() and wait()."""
        self.submit(tokens, targets, learning_rate, clip)
        return self.wait()

    def evaluate(self, tokens, targets):
        """Mean loss of one micro-batch, [micro_batch, sequence], without training on it."""
        loss = c_double()
        step, _kept = self._input(tokens, targets, self.plan.micro_batch)
        _library().coh_engine_evaluate(self._object, byref(step), byref(loss))
        return loss.value

    def parameter(self, name):
        """Values of a parameter after the last step, as a float32 array of its shape."""
        return self._fetch(name, _FETCH_VALUE)

    def gradient(self, name):
        """Gradient of a parameter as the last step left it, before clipping, as a float32 array of its shape. No later
        call that ends with the step's updates (parameter, hash, save, evaluate) may come in between. A plan with updates
        in backward keeps none, which is an Error."""
        return self._fetch(name, _FETCH_GRADIENT)

    def parameters(self, names=None):
        """Values of several parameters, without `names` of all, as a dict of float32 arrays. One pass over the model, where
        parameter() makes a pass for each."""
        return self._fetch_all(names, _FETCH_VALUE)

    def gradients(self, names=None):
        """Gradients of several parameters, without `names` of all that are trained, as gradient() has them; in one pass."""
        return self._fetch_all(names, _FETCH_GRADIENT)

    def _found(self, name):
        """A parameter and its number of elements."""
        if name not in self._parameters:
            raise KeyError(f"the model has no parameter {name!r}; its names are the keys of Plan.parameters")
        found, count = self._parameters[name], 1
        for extent in found.shape:
            count *= extent
        return found, count

    def _fetch(self, name, what):
        found, count = self._found(name)
        values = array("f", bytes(4 * count))
        with self._telling():
            _library().coh_engine_fetch(self._object, coh_parameter(found.index), what, _pointer(values, c_float))
        return _shaped(values, "float32", found.shape)

    def _fetch_all(self, names, what):
        arrays, failure = {}, []
        wanted = {self._found(name)[0].index: name for name in (self._parameters if names is None else names)}

        @_ParameterSink
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
                _library().coh_engine_fetch_all(self._object, what, cast(take, c_void_p), None)
        except Error:
            if failure:
                raise failure[0] from None
            raise
        missing = [] if names is None else [name for name in wanted.values() if name not in arrays]
        for name in missing:
            self._fetch(name, what)  # has no gradient: the library's sentence
        return {name: _shaped(arrays[name], "float32", self._parameters[name].shape)
                for name in wanted.values() if name in arrays}

    def put(self, name, values):
        """Writes a parameter between two steps: a float32 array of its shape, of finite numbers. Optimizer states stay."""
        (found, count), view = self._found(name), memoryview(values)
        if view.format != "f" or view.shape != found.shape or not view.c_contiguous:
            raise ValueError(f"parameter {name!r} takes contiguous float32 numbers of shape {found.shape}, not "
                             f"{view.format!r} of shape {view.shape}")
        numbers = (c_float * count).from_buffer_copy(view.cast("B"))
        with self._telling():
            _library().coh_engine_put(self._object, coh_parameter(found.index), 0, count, numbers)

    def hash(self):
        """One number of all parameters and optimizer states: that of `cohobate train` for the same numeric plan, data and
        seed, whatever the budget. `f"{engine.hash():016x}"` is the text that the program prints."""
        out_hash = c_uint64()
        with self._telling():
            _library().coh_engine_hash(self._object, byref(out_hash))
        return out_hash.value

    def save(self, path, **note):
        """Writes a checkpoint to a new folder, which `cohobate eval`, `generate` and `export` (with --tokenizer) and Model
        read. `note` is kept in it."""
        text = json.dumps({**note, "model": self.plan.model.note()})
        checkpoint = coh_checkpoint_note(struct_bytes=sizeof(coh_checkpoint_note), step=self.step_count, json=text.encode())
        with self._telling():
            _library().coh_engine_save(self._object, _path(path), byref(checkpoint))

    def load(self, path):
        """Continues from a checkpoint: parameters, optimizer states and the number of the next step. Returns True if it was
        made under another numeric plan, so that bits differ from those of one long run."""
        facts = _sized(coh_load_facts)
        with self._telling():
            _library().coh_engine_load(self._object, _path(path), byref(facts))
        self.step_count = facts.step
        return bool(facts.numeric_changed)
