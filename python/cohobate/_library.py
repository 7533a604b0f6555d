"""Loads the library and declares its functions.

The one idea: FUNCTIONS is a table of prototypes under the C names, and a function of it that
reports a status raises Error or Refusal unless the status is COH_OK. So every method of the
package calls library().coh_... and checks nothing. tests/python/test_layout.py compares the table
with the headers. Next: errors.py, and _owner.py."""
import ctypes
import functools
import os
import re
import types
from ctypes import (POINTER, byref, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t,
                    c_uint32, c_uint64, c_void_p, sizeof)

from ._structs import *  # noqa: F403  every struct is used in the table
from .errors import Error, Refusal

_SONAME = "libcohobate.so.0"

STATUS = "coh_status"  # a result that raises unless it is COH_OK

# Name: result, parameters.
FUNCTIONS = {
    "coh_version": (c_char_p, []),
    "coh_last_error": (c_char_p, []),
    "coh_last_refusal": (c_int32, [POINTER(coh_refusal)]),
    "coh_terms_set": (STATUS, [POINTER(c_char_p), c_int32]),
    "coh_status_name": (c_char_p, [c_int]),
    "coh_status_exit_code": (c_int, [c_int]),
    "coh_refusal_reason_name": (c_char_p, [c_int]),
    "coh_change_kind_name": (c_char_p, [c_int]),
    "coh_tier_name": (c_char_p, [c_int]),
    "coh_lane_name": (c_char_p, [c_int]),
    "coh_plan_bound_name": (c_char_p, [c_int]),
    "coh_size_parse": (STATUS, [c_char_p, POINTER(c_uint64)]),
    "coh_machine_free_bytes": (c_uint64, []),
    "coh_device_summarize": (STATUS, [c_char_p, POINTER(coh_device_summary)]),
    "coh_machine_core_count": (c_int, []),
    "coh_kernel_path": (c_char_p, []),
    "coh_extension_register": (STATUS, [POINTER(coh_extension)]),
    "coh_optimizer_count": (c_int32, []),
    "coh_optimizer_at": (POINTER(coh_optimizer), [c_int32]),
    "coh_model_preset_name": (c_char_p, [c_int32]),
    "coh_model_resolve": (STATUS, [c_char_p, c_int64, POINTER(coh_model)]),
    "coh_model_size_get": (coh_model_size, [POINTER(coh_model)]),
    "coh_model_dtype_set": (None, [POINTER(coh_model), c_int]),
    "coh_model_adapters_set": (STATUS, [POINTER(coh_model), POINTER(coh_adapters)]),
    "coh_model_train_graph": (STATUS, [POINTER(coh_model), c_int64, c_int64, POINTER(c_void_p)]),
    "coh_model_logits_graph": (
        STATUS, [POINTER(coh_model), c_int64, c_int64, POINTER(c_void_p), POINTER(coh_tensor)]),
    "coh_model_is_adapter_name": (c_int, [c_char_p]),
    "coh_model_to_json": (STATUS, [POINTER(coh_model), c_char_p, c_size_t]),
    "coh_folder_open": (STATUS, [POINTER(coh_model), POINTER(c_void_p)]),
    "coh_folder_close": (None, [c_void_p]),
    "coh_folder_numbers": (
        STATUS, [c_void_p, coh_parameter, c_char_p, c_uint64, c_uint64, POINTER(c_float)]),
    "coh_graph_parameter_count": (c_int32, [c_void_p]),
    "coh_graph_parameter_at": (STATUS, [c_void_p, c_int32, POINTER(coh_graph_parameter_facts)]),
    "coh_profile_read": (STATUS, [c_char_p, POINTER(c_void_p)]),
    "coh_profile_destroy": (None, [c_void_p]),
    "coh_profile_shipped": (c_char_p, [c_size_t]),
    "coh_disks_check": (STATUS, [POINTER(coh_disk), c_uint32, POINTER(c_uint32)]),
    "coh_disks_measure": (STATUS, [POINTER(coh_disk), c_uint32]),
    "coh_pin_parse": (STATUS, [c_char_p, POINTER(coh_pin)]),
    "coh_plan_options_init_sized": (None, [POINTER(coh_plan_options), c_size_t]),
    "coh_batch_plan_create": (
        STATUS, [POINTER(coh_batch), POINTER(coh_plan_options), POINTER(coh_batch_plan)]),
    "coh_batch_plan_destroy": (None, [POINTER(coh_batch_plan)]),
    "coh_plan_summarize": (STATUS, [c_void_p, POINTER(coh_plan_summary)]),
    "coh_plan_write": (STATUS, [c_void_p, c_char_p]),
    "coh_plan_write_noted": (STATUS, [c_void_p, c_char_p, c_char_p]),
    "coh_plan_write_program": (STATUS, [c_void_p, c_char_p]),
    "coh_plan_operator_count": (c_int32, [c_void_p]),
    "coh_plan_operator_at": (STATUS, [c_void_p, c_int32, POINTER(coh_plan_operator)]),
    "coh_plan_parameter_at": (STATUS, [c_void_p, c_int32, POINTER(coh_plan_parameter)]),
    "coh_engine_save_bytes": (STATUS, [c_void_p, POINTER(c_uint64)]),
    "coh_engine_save_frozen_bytes": (STATUS, [c_void_p, POINTER(c_uint64)]),
    "coh_engine_options_init_sized": (None, [POINTER(coh_engine_options), c_size_t]),
    "coh_engine_create": (STATUS, [c_void_p, POINTER(coh_engine_options), POINTER(c_void_p)]),
    "coh_engine_destroy": (None, [c_void_p]),
    "coh_engine_init": (STATUS, [c_void_p, c_uint64]),
    "coh_engine_init_from": (STATUS, [c_void_p, c_uint64, c_void_p, c_void_p]),
    "coh_engine_init_partly": (STATUS, [c_void_p, c_uint64, c_char_p, c_void_p, c_void_p]),
    "coh_engine_load": (STATUS, [c_void_p, c_char_p, POINTER(coh_load_facts)]),
    "coh_engine_load_weights": (STATUS, [c_void_p, c_char_p]),
    "coh_engine_load_partly": (STATUS, [c_void_p, c_uint64, c_char_p, c_char_p]),
    "coh_engine_submit": (STATUS, [c_void_p, POINTER(coh_step_input)]),
    "coh_engine_wait": (STATUS, [c_void_p, POINTER(coh_step_result)]),
    "coh_engine_wait_for": (STATUS, [c_void_p, c_uint32, POINTER(c_int)]),
    "coh_engine_evaluate": (STATUS, [c_void_p, POINTER(coh_step_input), POINTER(c_double)]),
    "coh_engine_fetch": (STATUS, [c_void_p, coh_parameter, c_int, POINTER(c_float)]),
    "coh_engine_fetch_all": (STATUS, [c_void_p, c_int, c_void_p, c_void_p]),
    "coh_engine_put": (STATUS, [c_void_p, coh_parameter, c_uint64, c_uint64, POINTER(c_float)]),
    "coh_engine_fetch_state": (STATUS, [c_void_p, coh_parameter, c_char_p, c_void_p]),
    "coh_engine_facts_get": (STATUS, [c_void_p, POINTER(coh_engine_facts)]),
    "coh_engine_ledger_row_at": (c_int, [c_void_p, c_uint32, POINTER(coh_engine_ledger_row)]),
    "coh_engine_output": (STATUS, [c_void_p, coh_tensor, POINTER(c_void_p), POINTER(c_size_t)]),
    "coh_engine_scan": (STATUS, [c_void_p, POINTER(coh_step_input), c_uint64, c_char_p]),
    "coh_engine_hash": (STATUS, [c_void_p, POINTER(c_uint64)]),
    "coh_engine_save": (STATUS, [c_void_p, c_char_p, POINTER(coh_checkpoint_note)]),
    "coh_engine_save_begin": (STATUS, [c_void_p, c_char_p, POINTER(coh_checkpoint_note)]),
    "coh_engine_save_is_done": (STATUS, [c_void_p, POINTER(c_int)]),
    "coh_engine_save_wait": (STATUS, [c_void_p]),
    "coh_schedule_kind_rate": (c_double, [POINTER(coh_schedule), c_int, c_uint64, c_uint64]),
    "coh_training_note_init_sized": (None, [POINTER(coh_training_note), c_size_t]),
    "coh_training_note_write": (
        STATUS, [POINTER(coh_training_note), POINTER(coh_model), c_char_p, c_size_t]),
    "coh_training_note_read": (STATUS, [c_char_p, POINTER(coh_training_note)]),
    "coh_checkpoint_open": (STATUS, [c_char_p, POINTER(c_void_p)]),
    "coh_checkpoint_close": (None, [c_void_p]),
    "coh_checkpoint_facts_get": (STATUS, [c_void_p, POINTER(coh_checkpoint_facts)]),
    "coh_checkpoint_tensor_at": (STATUS, [c_void_p, c_int32, POINTER(coh_checkpoint_tensor)]),
    "coh_checkpoint_stream_at": (STATUS, [c_void_p, c_int32, POINTER(coh_state_stream)]),
    "coh_checkpoint_check": (STATUS, [c_void_p, POINTER(c_uint64)]),
    "coh_checkpoint_read": (
        STATUS, [c_void_p, c_int32, c_int32, c_uint64, c_uint64, c_void_p]),
    "coh_checkpoint_remove": (STATUS, [c_char_p]),
    "coh_tokenizer_open": (STATUS, [c_char_p, POINTER(c_void_p)]),
    "coh_tokenizer_close": (None, [c_void_p]),
    "coh_tokenizer_vocabulary": (c_int64, [c_void_p]),
    "coh_tokenizer_end_of_text": (c_int32, [c_void_p]),
    "coh_tokenizer_begin_of_text": (c_int32, [c_void_p]),
    "coh_tokenizer_token_id": (c_int32, [c_void_p, c_char_p]),
    "coh_tokenizer_around": (None, [c_void_p, POINTER(POINTER(c_int32)), POINTER(c_size_t),
                                    POINTER(POINTER(c_int32)), POINTER(c_size_t)]),
    "coh_tokenizer_identity": (c_uint64, [c_void_p]),
    "coh_tokenizer_encode": (
        STATUS, [c_void_p, c_char_p, c_size_t, POINTER(POINTER(c_int32)), POINTER(c_size_t)]),
    "coh_tokenizer_decode": (
        STATUS, [c_void_p, POINTER(c_int32), c_size_t, POINTER(c_void_p), POINTER(c_size_t)]),
    "coh_text_free": (None, [c_void_p]),
    "coh_token_build_options_init_sized": (None, [POINTER(coh_token_build_options), c_size_t]),
    "coh_token_file_make": (
        STATUS, [c_void_p, POINTER(coh_token_build_options), POINTER(coh_token_build_facts)]),
    "coh_token_mix_options_init_sized": (None, [POINTER(coh_token_mix_options), c_size_t]),
    "coh_token_file_mix": (
        STATUS, [POINTER(c_void_p), POINTER(c_double), c_int32, POINTER(coh_token_mix_options),
                 POINTER(c_uint64)]),
    "coh_token_file_open_raw": (STATUS, [c_char_p, c_int64, c_int32, POINTER(c_void_p)]),
    "coh_token_file_open": (STATUS, [c_char_p, POINTER(c_void_p)]),
    "coh_token_file_close": (None, [c_void_p]),
    "coh_token_file_facts_get": (STATUS, [c_void_p, POINTER(coh_token_file_facts)]),
    "coh_token_file_check": (STATUS, [c_void_p]),
    "coh_token_file_read": (STATUS, [c_void_p, c_uint64, c_size_t, POINTER(c_int32)]),
    "coh_token_file_stretch_positions": (
        STATUS, [c_void_p, c_uint64, c_int64, POINTER(c_int32), POINTER(c_int32),
                 POINTER(c_int32)]),
    "coh_token_file_window_count": (c_uint64, [c_void_p, c_int64]),
    "coh_token_file_window_positions": (
        STATUS, [c_void_p, c_uint64, c_uint64, c_int64, POINTER(c_int32), POINTER(c_int32),
                 POINTER(c_int32)]),
}


@functools.lru_cache(None)
def library():
    """Loads the library once. If it lacks a function, it is older than this package."""
    path = os.environ.get("COHOBATE_LIBRARY") or _SONAME  # empty: as if it were not set
    try:
        loaded = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"{error}: install Cohobate, or set COHOBATE_LIBRARY to the path of "
                          f"{_SONAME}") from None
    for name, (result, parameters) in FUNCTIONS.items():
        try:
            function = getattr(loaded, name)
        except AttributeError:
            raise ImportError(f"{path} has no {name}: it is older than this package") from None
        function.restype, function.argtypes = c_int if result is STATUS else result, parameters
        if result is STATUS:
            function.errcheck = _check
    loaded.coh_terms_set(_TERMS, len(_TERMS))
    return loaded


# What messages call an option, where the library's words are of another one here (terms.h).
_TERMS = (c_char_p * TERM_COUNT)()
_TERMS[TERM_DISK_LIMIT] = b"disk_limit"
_TERMS[TERM_WEIGHTS] = b"load_weights"


# What a sentence of the library calls by its C name, as this package has it.
_NAMES = {
    "coh_engine_evaluate": "Engine.evaluate", "coh_engine_facts_get": "Engine.facts",
    "coh_engine_fetch": "Engine.parameter", "coh_engine_fetch_all": "Engine.parameters",
    "coh_engine_fetch_state": "Engine.state", "coh_engine_hash": "Engine.hash",
    "coh_engine_init": "Plan.engine", "coh_engine_init_from": "Plan.engine",
    "coh_engine_init_partly": "Plan.engine", "coh_engine_ledger_row_at": "Engine.ledger",
    "coh_engine_load": "Engine.load", "coh_engine_load_partly": "Engine.load_weights",
    "coh_engine_load_weights": "Engine.load_weights", "coh_engine_output": "Engine.logits",
    "coh_engine_put": "Engine.put", "coh_engine_save": "Engine.save",
    "coh_engine_save_begin": "Engine.save", "coh_engine_save_is_done": "Engine.is_saving",
    "coh_engine_save_wait": "Engine.save_wait", "coh_engine_scan": "Engine.scan",
    "coh_engine_submit": "Engine.submit", "coh_engine_wait": "Engine.wait",
    "coh_engine_wait_for": "Engine.wait",
    "coh_graph_parameter_at": "Plan.parameters", "coh_extension_register": "load_extension",
    "coh_training_note_write": "Engine.training_note",
    "coh_training_note_read": "Checkpoint.training", "coh_checkpoint_open": "Checkpoint",
    "coh_checkpoint_remove": "Checkpoint.remove", "coh_device_summarize": "device",
    "coh_folder_numbers": "Plan.engine", "coh_model_is_adapter_name": "Plan.engine",
    "coh_model_resolve": "Model", "coh_model_to_json": "Model.note",
    "coh_pin_parse": "Model.plan", "coh_plan_write": "Plan.write",
    "coh_plan_write_noted": "Plan.write", "coh_plan_write_program": "Plan.write_program",
    "coh_profile_read": "Model.plan", "coh_size_parse": "parse_size",
    "coh_token_file_make": "tokenize", "coh_token_file_mix": "mix",
    "coh_token_file_open": "TokenFile", "coh_token_file_open_raw": "TokenFile",
    "coh_tokenizer_encode": "Tokenizer.encode", "coh_tokenizer_open": "Tokenizer",
    "coh_tokenizer_token_id": "Tokenizer.token_id",
}


# What it says of C's options, likewise.
_OPTIONS = {
    "deferred_update 1 and speculates 0": "exact_clip=True and speculate=False",
    "speculates is 1 with deferred_update 0": "speculate is True with exact_clip=False",
    "set deferred_update to 1": "set exact_clip to True",
    "a plan of COH_PLAN_INFER": "a plan with forward_only=True",
    "plan with COH_PLAN_INFER": "plan with forward_only=True",
    "open it with coh_token_file_open": "leave id_bytes out",
    "parameters have no values: init or load first":
        "parameters have no values, since a load failed halfway: load a whole checkpoint, or make "
        "another engine",
    "options->": "",
}


def _in_python(sentence):
    """The sentence with the names of this package."""
    for option, mine in _OPTIONS.items():
        sentence = sentence.replace(option, mine)
    return re.sub(r"\bcoh_[a-z_]+\b", lambda name: _NAMES.get(name[0], name[0]), sentence)


def _check(code, _function, _arguments):
    """Raises what the library reports."""
    if code == 0:
        return code
    refusal = coh_refusal(struct_bytes=sizeof(coh_refusal))
    is_refusal = library().coh_last_refusal(byref(refusal))
    sentence = _in_python(library().coh_last_error().decode(errors="replace"))
    status = library().coh_status_name(code).decode()
    exit_code = library().coh_status_exit_code(code)
    if is_refusal:
        raise Refusal(sentence, status, exit_code, **_figures(refusal))
    raise Error(sentence, status, exit_code)


def _tier_name(tier):
    return library().coh_tier_name(tier).decode() if tier >= 0 else None


def _figures(refusal):
    """The members of a coh_refusal that Refusal has."""
    figures = {name: getattr(refusal, name)
               for name in ("given_bytes", "needed_bytes", "short_bytes", "microbatch")}
    for name in ("is_proven", "is_least", "is_gpu", "is_with_disk"):
        figures[name] = bool(getattr(refusal, name))
    for name in ("operator_name", "pin", "profile", "path", "items"):
        figures[name] = getattr(refusal, name).decode(errors="replace")
    changes = [types.SimpleNamespace(kind=library().coh_change_kind_name(change.kind).decode(),
                                     tier=_tier_name(change.tier), bytes=change.bytes,
                                     microbatch=change.microbatch, is_least=bool(change.is_least))
               for change in refusal.changes[:refusal.change_count]]
    return {"reason": library().coh_refusal_reason_name(refusal.reason).decode(),
            "tier": _tier_name(refusal.tier), "changes": changes, **figures}
