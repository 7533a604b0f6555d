"""Public functions that the Python package does not declare, each with the reason. test_layout.py compares: a new function
of the headers has to be declared in python/cohobate/_library.py, or named here."""

LEFT_OUT = {
    # reason: functions
    "graphs, layers and kinds of one's own are written in C, and reach Python as an extension (load_extension)":
        """coh_cuda_begin coh_dtype_array_bytes coh_dtype_bytes coh_graph_chain coh_graph_create coh_graph_destroy coh_graph_input coh_graph_loss
        coh_graph_op coh_graph_operator_at coh_graph_operator_count coh_graph_output coh_graph_tensor_shape coh_kind_fail
        coh_layer_clear_grads coh_layer_infer coh_op_check coh_op_fault_name coh_optimizer_register coh_parallel
        coh_random_words coh_rank_pattern_register coh_shape_elements""",
    "ranks are processes that the launcher of the command line connects: `cohobate train --ranks`":
        """coh_engine_ask_stop coh_fold_shape_divide coh_fold_shape_parse coh_fold_shape_replicas coh_fold_shape_write
        coh_link_level_name coh_rank_copy_find coh_rank_parts_find coh_rank_pattern_at coh_rank_pattern_count coh_rank_pattern_find
        coh_wire_bytes coh_wire_name coh_wires_parse coh_wires_write coh_world_barrier coh_world_close coh_world_find_pairs coh_world_gather
        coh_world_level_ranks coh_world_open coh_world_open_threads coh_world_rank coh_world_share_plan
        coh_world_set_pair_ranks coh_world_share_text coh_world_size coh_world_stop""",
    "decoders and conversations: `cohobate generate` and `cohobate eval` run a checkpoint; Engine.logits runs a window":
        """coh_chat_answer_prefix coh_chat_close coh_chat_description coh_chat_end_of_turn coh_chat_open coh_chat_prompt coh_chat_prompt_json
        coh_chat_template_text
        coh_gpt2_decode_graph coh_model_decode_graph coh_model_prefill_graph coh_model_token_losses_graph coh_tokenizer_piece""",
    "folders and adapters are written by `cohobate export`, from a checkpoint, and adapters are read by `cohobate train`":
        """coh_adapters_close coh_adapters_frozen_nf4 coh_adapters_numbers coh_adapters_open coh_adapters_write coh_adapters_write_bytes
        coh_folder_clear coh_folder_describe coh_folder_facts_get
        coh_folder_tensor_at coh_folder_write coh_folder_write_bytes coh_folder_write_tokenizer coh_merge_close coh_merge_numbers coh_merge_open
        coh_model_adapter_at coh_model_adapter_count coh_model_adapter_elements coh_model_from_config coh_model_is_adapted
        coh_model_name_find coh_model_tensor_at coh_model_tensor_count coh_model_tensor_stored
        coh_model_text_free coh_model_to_config coh_model_type_name""",
    "machines are measured by `cohobate profile`, `tune` and `doctor`, whose files Plan reads":
        """coh_calibration_path coh_disks_share coh_engine_calibrate
        coh_kernel_fallback coh_kernel_product_name coh_kernels_hash coh_kernels_onednn coh_kernels_tune coh_kernels_use
        coh_machine_arena_bytes coh_machine_bf16_is_fast coh_machine_cgroup_bytes coh_machine_examine coh_machine_examine_world
        coh_machine_file_bytes coh_machine_is_limited coh_machine_limit coh_machine_most_bytes
        coh_measure_options_init_sized coh_profile_builtin_create coh_profile_calibrate coh_profile_check_entry
        coh_profile_is_of_drives coh_profile_is_of_here coh_profile_measure coh_profile_origin_at coh_profile_summarize
        coh_profile_write""",
    "plans are explained by `cohobate explain`, `inspect`, `simulate` and `plan`, from the file that Plan.write writes":
        """coh_batch_plan_estimate coh_engine_instruction_classes coh_engine_rehearse coh_pin_decision coh_pin_place_name coh_pins_free
        coh_pins_read coh_plan_check_budgets coh_plan_check_file coh_plan_estimate coh_plan_file_parse coh_plan_file_read
        coh_plan_in_memory_bytes coh_plan_least_ns coh_plan_least_written coh_plan_memory coh_plan_memory_curve
        coh_plan_parse coh_plan_profile coh_plan_read coh_plan_try coh_plan_try_update
        coh_reduce_name coh_sweep_order_name""",
    "recorded steps are those of `cohobate train --record`, for `cohobate report` and `trace`":
        """coh_engine_latencies coh_engine_recorded coh_engine_trace coh_plan_trace coh_trace_file_bytes
        coh_trace_file_close coh_trace_file_create coh_trace_file_put coh_trace_file_put_latencies coh_trace_free
        coh_trace_read""",
    "folders of runs, their locks and their disk space, and a save after a failure belong to a program's main loop":
        """coh_checkpoint_damage coh_checkpoint_note_set coh_engine_undo coh_name_flush coh_partial_open coh_run_lock_holder
        coh_run_lock_release coh_run_lock_take coh_space_check
        coh_space_free_bytes coh_space_hold_keep coh_space_hold_release coh_space_hold_take""",
    "Refusal has the figures as attributes, and the library's words for options are those of the headers":
        "coh_name_edits coh_nearest_meant coh_nearest_offer coh_refusal_remedy coh_refusal_sentence coh_refusal_unit_name coh_refuse coh_term_text",
    "a function that the package declares does the same, or more":
        """coh_engine_create_within coh_engine_drain coh_engine_ledger coh_engine_load_from coh_engine_step coh_gpt2_preset
        coh_gpt2_train_graph coh_graph_parameter_find coh_model_from_json coh_model_is_frozen coh_model_preset
        coh_model_trained_count coh_schedule_kind_name coh_schedule_rate coh_optimizer_find coh_parameter_group_count coh_plan_create coh_plan_destroy
        coh_daily_round_up coh_size_format coh_size_round_up coh_text_is_about_data coh_token_file_build coh_token_file_stretch coh_token_file_unigram_entropy coh_token_file_window coh_tokenizer_own_vocabulary""",
}
