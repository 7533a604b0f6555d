"""The structs, callbacks and numbers of the C headers that the package uses, as ctypes has them.

The one idea: each class repeats a struct of include/cohobate under its C name, member by member.
tests/python/test_layout.py compares them with what a C compiler sees, so a struct that grew in a
header shows there. Next: _library.py, the functions."""
import inspect
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int,
                    c_int32, c_int64, c_uint32, c_uint64, c_void_p)

TIERS, LANES, BOUNDS = 3, 8, 14
DTYPES = {"f32": 0, "bf16": 1}
RECOMPUTE = {"auto": 0, "none": 1, "all": 2}
SEARCH = {"usual": 0, "quick": 1, "thorough": 4}
PLAN_INFER = 1
SWEEP_LAYER, SWEEP_SAME_BITS = 1, 3
FETCH_VALUE, FETCH_GRADIENT = 0, 1  # coh_fetch
OPERATIONS = ("init", "load", "save", "hash", "fetch", "put")  # by coh_operation
MODEL_JSON_BYTES = 8448
TRAINING_NOTE_BYTES = 12288
GROUP_SETS_RATE, GROUP_SETS_DECAY = 1, 2
DATA_FORMS = {"text": 0, "jsonl": 1, "chat": 2}
SCHEDULES = {"cosine": 0, "linear": 1, "constant": 2, "wsd": 3}
CHAT_FORMS = {"auto": 0, "chatml": 1, "llama3": 2, "llama2": 3, "plain": 4, "gemma": 5, "qwen3": 6}
DISK_WORTH_BYTES = 64 << 20
DOCUMENTS_SEPARATE = 3  # COH_DOCUMENTS_SEPARATE
SENTENCE_BYTES = 256  # of coh_engine_scan
STOPPED = 9  # COH_ERR_STOPPED
TERM_COUNT, TERM_DISK_LIMIT, TERM_WEIGHTS = 40, 4, 39


class coh_shape(Structure):
    _fields_ = [("dtype", c_int), ("rank", c_int32), ("dim", c_int64 * 5)]


class coh_tensor(Structure):
    _fields_ = [("index", c_int32)]


class coh_parameter(Structure):
    _fields_ = [("index", c_int32)]


class coh_graph_parameter_facts(Structure):
    _fields_ = [("name", c_char_p), ("shape", coh_shape), ("is_frozen", c_int32)]


class coh_adapters(Structure):
    _fields_ = [("freeze", c_char * 256), ("targets", c_char * 256), ("rank", c_int32),
                ("alpha", c_float), ("also", c_char * 256)]


class coh_model(Structure):
    # `_configurations` is the union of the families' configurations, which only the library reads.
    _fields_ = [("name", c_char * 128), ("family", c_int), ("stored", c_int),
                ("_configurations", c_int64 * 23), ("adapters", coh_adapters),
                ("checkpoint", c_char * 4096), ("folder", c_char * 4096), ("extras", c_char * 2048),
                ("dtypes", c_char * 2048), ("metadata", c_char * 1024), ("notes", c_char * 2048),
                ("dropout", c_double), ("atomics", c_int32), ("frozen_nf4", c_int32),
                ("separate_documents", c_int32), ("lora_dropout", c_double)]


class coh_model_size(Structure):
    _fields_ = [("layers", c_int64), ("heads", c_int64), ("channels", c_int64),
                ("vocabulary", c_int64), ("positions", c_int64), ("dtype", c_int)]


class coh_own_model(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("name", c_char_p), ("size", coh_model_size),
                ("build", CFUNCTYPE(c_int, c_void_p)), ("context", c_void_p)]


class coh_pin(Structure):
    _fields_ = [("target", c_char * 128), ("place", c_int), ("pattern", c_char * 32)]


class coh_state_stream(Structure):
    _fields_ = [("name", c_char_p), ("bytes_per_block", c_uint32), ("elements_per_block", c_uint32),
                ("is_f32", c_int32)]


class coh_hyperparameter(Structure):
    _fields_ = [("name", c_char_p), ("initial", c_float), ("least", c_float), ("most", c_float)]


Update = CFUNCTYPE(None, c_void_p)


class coh_optimizer(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("name", c_char_p), ("revision", c_int32),
                ("stream_count", c_int32), ("streams", coh_state_stream * 8),
                ("hyperparameter_count", c_int32), ("hyperparameters", coh_hyperparameter * 8),
                ("scalar_count", c_int32), ("scalars", c_int32 * 4), ("update", Update),
                ("takes_bf16", c_int32), ("cuda_kernel", c_char_p), ("flops", c_double),
                ("rounds_work", c_int32)]


class coh_extension(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("kind_abi", c_uint32), ("name", c_char_p),
                ("revision", c_uint32), ("kind_count", c_int32), ("optimizer_count", c_int32),
                ("model_count", c_int32), ("kinds", c_void_p * 16),
                ("optimizers", POINTER(coh_optimizer) * 16),
                ("models", POINTER(coh_own_model) * 16), ("rank_pattern_count", c_int32),
                ("rank_patterns", c_void_p * 16)]


class coh_optimizer_choice(Structure):
    _fields_ = [("pattern", c_char * 256), ("optimizer", c_char * 16)]


class coh_fold_shape(Structure):
    _fields_ = [("factors", c_int32 * 3)]


class coh_wires(Structure):
    _fields_ = [("weights", c_int), ("gradients", c_int)]


class coh_plan_options(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("mode", c_int), ("device_memory_bytes", c_uint64),
                ("host_memory_bytes", c_uint64), ("emulate_host", c_int32),
                ("disk_bytes", c_uint64), ("link_bytes_per_s", c_double),
                ("spare_disk_bytes", c_uint64), ("wear_bytes", c_uint64),
                ("disk_write_bytes_per_day", c_uint64), ("thread_count", c_int32),
                ("chunk_bytes", c_uint64), ("recompute", c_int), ("microbatch_count", c_int32),
                ("sweep_order", c_int), ("deferred_update", c_int32), ("kernel_path", c_char * 128),
                ("bf16_is_fast", c_int32), ("profile", c_void_p), ("uncalibrated", c_int32),
                ("pins", POINTER(coh_pin)), ("pin_count", c_int32), ("earlier", POINTER(c_void_p)),
                ("earlier_count", c_int32), ("f32_gradients", c_int32), ("search", c_int),
                ("optimizer", c_char * 16), ("optimizer_choices", POINTER(coh_optimizer_choice)),
                ("optimizer_choice_count", c_int32), ("drive_count", c_int32),
                ("replicas", coh_fold_shape), ("ranks", coh_fold_shape), ("pair_ranks", c_int32),
                ("node_ranks", c_int32), ("speculates", c_int32), ("rank_pattern", c_char * 32),
                ("wires", coh_wires), ("reduce", c_int64), ("main_memory_limit_bytes", c_uint64)]


GraphSource = CFUNCTYPE(c_int, c_void_p, c_int64, POINTER(c_void_p))


class coh_plan_operator(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("name", c_char_p), ("kind", c_char_p),
                ("block", c_int32), ("parameter_bytes", c_uint64), ("activation_bytes", c_uint64),
                ("saved_bytes", c_uint64), ("activations", c_char_p), ("parameters", c_char_p),
                ("states", c_char_p), ("updates", c_char_p), ("pattern", c_char_p)]


class coh_plan_parameter(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("name", c_char_p), ("optimizer", c_char_p),
                ("is_unused", c_int32)]


class coh_batch(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("may_change", c_int32), ("make_graph", GraphSource),
                ("context", c_void_p), ("batch", c_int64), ("microbatch", c_int64)]


class coh_batch_plan(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("graph", c_void_p), ("plan", c_void_p),
                ("microbatch", c_int64), ("wanted_step_ns", c_uint64), ("chosen_step_ns", c_uint64)]


class coh_rank_parts(Structure):
    _fields_ = [("work", c_int32), ("grad", c_int32), ("state", c_int32)]


class coh_plan_summary(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("peak_bytes", c_uint64 * TIERS),
                ("smallest_device_bytes", c_uint64), ("smallest_is_proven", c_int32),
                ("parameter_count", c_uint64), ("parameter_bytes", c_uint64),
                ("stream_bytes", c_uint64), ("step_ns", c_uint64), ("bound_ns", c_uint64),
                ("bounds_ns", c_uint64 * BOUNDS), ("binding", c_int), ("runner_up", c_int),
                ("drain_ns", c_uint64), ("save_ns", c_uint64), ("evaluate_ns", c_uint64),
                ("busy_ns", c_uint64 * LANES), ("exposed_ns", c_uint64 * LANES),
                ("link_bytes", c_uint64 * LANES), ("least_link_bytes", c_uint64 * LANES),
                ("work_link_bytes", c_uint64), ("grad_link_bytes", c_uint64),
                ("state_link_bytes", c_uint64), ("other_link_bytes", c_uint64),
                ("instruction_count", c_uint32), ("program_count", c_uint32),
                ("numeric_fingerprint", c_uint64), ("program_hash", c_uint64),
                ("chunk_bytes", c_uint64), ("host_update_bytes", c_uint64), ("sweep_order", c_int),
                ("recomputes", c_int32), ("forward_ns", c_uint64), ("recompute_ns", c_uint64),
                ("caches", c_int32), ("row_passes", c_int32), ("verified_instructions", c_int32),
                ("disk_bytes_written", c_double), ("disk_limit_bytes", c_uint64),
                ("step_alone_ns", c_uint64), ("step_contended_ns", c_uint64),
                ("step_p10_ns", c_uint64), ("step_p50_ns", c_uint64), ("step_p90_ns", c_uint64),
                ("order_keeps_bits", c_int32), ("unmeasured_kind", c_char_p),
                ("unmeasured_operators", c_int32), ("kept_bytes", c_uint64),
                ("rank_parts", coh_rank_parts), ("rank_pattern", c_char * 32),
                ("step_peak_bytes", c_uint64 * 3)]


class coh_parameter_group(Structure):
    _fields_ = [("pattern", c_char_p), ("sets", c_uint32), ("rate_factor", c_float),
                ("weight_decay", c_float)]


class coh_hyperparameter_value(Structure):
    _fields_ = [("optimizer", c_char_p), ("name", c_char_p), ("value", c_float)]


class coh_disk(Structure):
    _fields_ = [("folder", c_char_p), ("bytes", c_uint64), ("bytes_per_s", c_double)]


ParameterSource = CFUNCTYPE(c_int, c_void_p, coh_parameter, c_char_p, c_uint64, c_uint64,
                            POINTER(c_float))
ParameterSink = CFUNCTYPE(c_int, c_void_p, coh_parameter, c_char_p, c_uint64, c_uint64, c_void_p)
Log = CFUNCTYPE(None, c_void_p, c_char_p)
Progress = CFUNCTYPE(None, c_void_p, c_int, c_uint64, c_uint64)
GoOn = CFUNCTYPE(c_int, c_void_p)


class coh_engine_options(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("disk_folder", c_char_p), ("disk_bytes", c_uint64),
                ("thread_count", c_int32), ("weight_decay", c_float), ("poison", c_int32),
                ("delay_seed", c_uint64), ("delay_most_us", c_uint32), ("store", c_char_p),
                ("log", Log), ("log_context", c_void_p), ("device", c_char_p),
                ("groups", POINTER(coh_parameter_group)), ("group_count", c_uint32),
                ("hyperparameters", POINTER(coh_hyperparameter_value)),
                ("hyperparameter_count", c_uint32), ("disks", POINTER(coh_disk)),
                ("disk_count", c_uint32), ("record_steps", c_uint64), ("check_calls", c_int32),
                ("progress", Progress), ("progress_context", c_void_p), ("world", c_void_p),
                ("rank_timeout_s", c_double), ("go_on", GoOn), ("go_on_context", c_void_p),
                ("small_graph", c_void_p)]


class coh_device_summary(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("name", c_char * 64), ("is_gpu", c_int32),
                ("memory_bytes", c_uint64), ("kernel_path", c_char * 128),
                ("total_bytes", c_uint64)]


class coh_engine_facts(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("arena_bytes", c_uint64 * TIERS),
                ("overhead_bytes", c_uint64), ("store_backend", c_char_p),
                ("store_direct", c_int32), ("store_read_bytes_per_s", c_uint64),
                ("store_write_bytes_per_s", c_uint64),
                ("kernel_path", c_char * 128), ("arena_huge_pages", c_int32 * TIERS),
                ("arena_node_count", c_int32 * TIERS), ("arena_is_near", c_int32 * TIERS),
                ("arena_touch_ns", c_uint64 * TIERS), ("device_context_bytes", c_uint64),
                ("device_library_bytes", c_uint64), ("device_free_bytes", c_uint64)]


class coh_engine_ledger_row(Structure):
    _fields_ = [("tier", c_char_p), ("purpose", c_char * 32), ("owner", c_char * 32),
                ("bytes", c_uint64), ("peak_bytes", c_uint64)]


class coh_step_input(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("step", c_uint64), ("seed", c_uint64),
                ("learning_rate", c_float), ("clip", c_float), ("inputs", c_void_p * 8),
                ("loss_factor", c_float), ("graph", c_void_p)]


class coh_step_result(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("step", c_uint64), ("loss", c_double),
                ("grad_norm", c_double), ("finite", c_int32), ("applied_count", c_uint64),
                ("step_ns", c_uint64), ("exposed_ns", c_uint64 * LANES),
                ("link_bytes", c_uint64 * LANES), ("peak_bytes", c_uint64 * TIERS),
                ("frozen_bytes", c_uint64 * LANES), ("is_stop_asked", c_int32),
                ("ran_twice", c_int32)]


class coh_checkpoint_note(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("step", c_uint64), ("json", c_char_p)]


class coh_load_facts(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("numeric_changed", c_int32), ("step", c_uint64)]


class coh_schedule(Structure):
    _fields_ = [("highest", c_double), ("lowest", c_double), ("warmup_steps", c_uint64),
                ("schedule_steps", c_uint64)]


class coh_pattern_number(Structure):
    _fields_ = [("pattern", c_char * 256), ("value", c_double)]


class coh_pattern_numbers(Structure):
    _fields_ = [("count", c_int64), ("at", coh_pattern_number * 16)]


class coh_pattern_optimizers(Structure):
    _fields_ = [("count", c_int64), ("at", coh_optimizer_choice * 16)]


class coh_text_form(Structure):
    _fields_ = [("field", c_char * 4096), ("chat", c_int64), ("chat_form", c_int64),
                ("aligned", c_int64), ("validation_split", c_double), ("id_bytes", c_int64)]


class coh_training_note(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("steps", c_uint64), ("schedule", coh_schedule),
                ("batch", c_int64), ("micro_batch", c_int64), ("sequence", c_int64),
                ("by_layers", c_uint64), ("f32_gradients", c_uint64), ("atomics", c_uint64),
                ("beta1", c_double), ("beta2", c_double), ("weight_decay", c_double),
                ("clip", c_double), ("dropout", c_double), ("clips_by_previous", c_uint64),
                ("lr_for", coh_pattern_numbers), ("weight_decay_for", coh_pattern_numbers),
                ("optimizer", c_char * 16), ("optimizer_for", coh_pattern_optimizers),
                ("hyperparameters", coh_pattern_numbers), ("seed", c_uint64),
                ("tokenizer", c_char * 4096), ("tokenizer_identity", c_uint64),
                ("base", c_char * 4096), ("data", c_char * 4096), ("data_hash", c_uint64),
                ("validation", c_char * 4096), ("validation_hash", c_uint64),
                ("validation_id_bytes", c_int64), ("form", coh_text_form),
                ("kernels", c_char * 4096), ("data_first_step", c_uint64),
                ("data_first_window", c_uint64), ("replicas", coh_fold_shape),
                ("speculates", c_uint64), ("save_every", c_uint64), ("keep", c_uint64),
                ("validation_every", c_uint64), ("validation_windows", c_uint64),
                ("stop_after_worse", c_uint64), ("schedule_kind", c_uint64),
                ("decay_steps", c_uint64), ("frozen_nf4", c_uint64),
                ("trained_positions", c_int64), ("skip_bad", c_uint64),
                ("lora_dropout", c_double), ("base_trained", c_uint64),
                ("frozen_rounded", c_uint64)]


class coh_checkpoint_tensor(Structure):
    _fields_ = [("name", c_char_p), ("shape", coh_shape), ("optimizer", c_char_p),
                ("stream_count", c_int32), ("streams", c_int32 * 8)]


class coh_checkpoint_facts(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("path", c_char_p), ("step", c_uint64),
                ("applied_count", c_uint64), ("numeric_fingerprint", c_uint64), ("hash", c_uint64),
                ("tensor_count", c_int32), ("parameter_count", c_uint64), ("bytes", c_uint64),
                ("is_trained", c_int32), ("stream_count", c_int32), ("note_json", c_char_p),
                ("passed_over", c_char_p), ("grad_norm", c_double), ("frozen_bytes", c_uint64)]


class coh_change(Structure):
    _fields_ = [("kind", c_int), ("tier", c_int32), ("is_least", c_int32), ("microbatch", c_int64),
                ("bytes", c_uint64)]


class coh_refusal(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("status", c_int), ("reason", c_int), ("tier", c_int32),
                ("is_gpu", c_int32), ("given_bytes", c_uint64), ("needed_bytes", c_uint64),
                ("short_bytes", c_uint64), ("is_least", c_int32), ("is_proven", c_int32),
                ("count", c_uint64), ("count_most", c_uint64), ("chunk_bytes", c_uint64),
                ("unit", c_int), ("microbatch_count", c_int32), ("microbatch", c_int64),
                ("largest_microbatch", c_int64), ("is_with_disk", c_int32), ("by_hand", c_uint32),
                ("change_count", c_int32), ("changes", coh_change * 6),
                ("operator_name", c_char * 64), ("pin", c_char * 160), ("profile", c_char * 256),
                ("path", c_char * 256), ("items", c_char * 256)]


class coh_token_build_options(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("form", c_int), ("in_path", c_char_p),
                ("out_path", c_char_p), ("field", c_char_p), ("chat_folder", c_char_p),
                ("chat_form", c_int), ("window", c_int64), ("held_out", c_int32),
                ("validation_split", c_double), ("seed", c_uint64), ("held_out_path", c_char_p),
                ("thread_count", c_int32), ("vocabulary", c_int64), ("go_on", GoOn),
                ("go_on_context", c_void_p), ("fitted", c_int32), ("sequence", c_int64),
                ("skip_bad", c_int32), ("separate", c_int32)]


class coh_token_build_facts(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("token_count", c_uint64),
                ("held_out_token_count", c_uint64), ("document_count", c_uint64),
                ("held_out_document_count", c_uint64), ("empty_window_count", c_uint64),
                ("lines_as_text_count", c_uint64), ("replaced_count", c_uint64),
                ("chat_form", c_char * 160), ("file_count", c_uint64), ("binary_count", c_uint64),
                ("first_binary", c_char * 160), ("other_count", c_uint64),
                ("cut_byte", c_uint64), ("text_bytes", c_uint64),
                ("cut_document_count", c_uint64), ("longest_document", c_uint64),
                ("skipped_count", c_uint64), ("skipped_reasons", c_char * 256),
                ("first_skipped", c_char * 512), ("target_count", c_uint64),
                ("held_out_target_count", c_uint64)]


class coh_token_mix_options(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("out_path", c_char_p), ("seed", c_uint64),
                ("go_on", GoOn), ("go_on_context", c_void_p)]


class coh_token_file_facts(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("token_count", c_uint64), ("vocabulary", c_int64),
                ("tokenizer_identity", c_uint64), ("hash", c_uint64), ("window", c_int64),
                ("has_mask", c_int32), ("is_raw", c_int32), ("is_llmc", c_int32),
                ("id_bytes", c_int32), ("target_count", c_uint64),
                ("marks_documents", c_int32)]


STRUCTS = tuple(each for each in list(globals().values())
                if inspect.isclass(each) and issubclass(each, Structure) and each is not Structure)
