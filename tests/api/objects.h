/* objects.h - a valid argument of every type of the public interface, for the calls that
 * write_calls.py generates.
 *
 * Objects are made on first use and live until the process ends; structs are fresh copies, so that
 * a case may change one field. All objects are tiny: a GPT-2 with one layer of width 16. */
#ifndef COH_TESTS_API_OBJECTS_H
#define COH_TESTS_API_OBJECTS_H

#include "cohobate/cohobate.h"

coh_graph *valid_coh_graph(void);  /* a new one at each call, with a loss */
coh_graph *valid_open_graph(void); /* a new one, to which operators can be added */
coh_plan *valid_coh_plan(void);
coh_engine *valid_coh_engine(void);
coh_profile *valid_coh_profile(void);
coh_profile *valid_datasheet(void);
coh_checkpoint *valid_coh_checkpoint(void);
coh_tokenizer *valid_coh_tokenizer(void);
coh_chat *valid_coh_chat(void);
coh_token_file *valid_coh_token_file(void);
coh_folder *valid_coh_folder(void);
coh_adapter_folder *valid_coh_adapter_folder(void);
coh_merge *valid_coh_merge(void);
coh_trace_file *valid_coh_trace_file(void);
coh_world *valid_coh_world(void); /* of one rank, which never waits for another */

coh_model valid_coh_model(void);
coh_model valid_model_of(coh_family family);
coh_gpt2_config valid_coh_gpt2_config(void);
coh_adapters valid_coh_adapters(void);
coh_engine_options valid_coh_engine_options(void);
coh_step_input valid_coh_step_input(void);
coh_checkpoint_note valid_coh_checkpoint_note(void);
coh_plan_options valid_coh_plan_options(void);
coh_measure_options valid_coh_measure_options(void);
coh_chat_turn valid_coh_chat_turn(void);
coh_token_build_options valid_coh_token_build_options(void);
coh_token_mix_options valid_coh_token_mix_options(void);
coh_folder_write_options valid_coh_folder_write_options(void);
coh_adapters_write_options valid_coh_adapters_write_options(void);
coh_op_kind valid_coh_op_kind(void);
coh_op_args valid_coh_op_args(void);
coh_op_check_options valid_coh_op_check_options(void);
coh_layer valid_coh_layer(void);
coh_chain_link valid_coh_chain_link(void);
coh_shape valid_coh_shape(void);
coh_call valid_coh_call(void);
coh_optimizer valid_coh_optimizer(void);
coh_rank_pattern valid_coh_rank_pattern(void);
coh_rank_levels valid_coh_rank_levels(void);
coh_extension valid_coh_extension(void);
coh_pin valid_coh_pin(void);
coh_fold_shape valid_coh_fold_shape(void);
coh_wires valid_coh_wires(void);
coh_nearest valid_coh_nearest(void);
coh_space_item valid_coh_space_item(void);
coh_disk valid_coh_disk(void);
coh_space_hold valid_coh_space_hold(void);
coh_run_lock valid_coh_run_lock(void);
coh_refusal valid_coh_refusal(void);
coh_batch valid_coh_batch(void);
coh_trace valid_coh_trace(void);
coh_trace_step valid_coh_trace_step(void);
coh_schedule valid_coh_schedule(void);
coh_training_note valid_coh_training_note(void);
coh_world_options valid_coh_world_options(void);

/* Returns text for parameter `name` of `function`. */
const char *valid_text(const char *function, const char *name);
/* Returns an untyped object where one is expected: a coh_folder, a coh_merge, room for states, a
 * record. */
void *valid_object(const char *function, const char *name);
/* Returns room for an output: 1 MiB of zeros, one of 8 by number. */
void *scratch(int number);

coh_status no_numbers(void *context, const char *name, uint64_t begin, uint64_t count,
                      float *values);
coh_status no_parameters(void *context, coh_parameter parameter, const char *name, uint64_t begin,
                         uint64_t count, float *values);
coh_status drop_parameters(void *context, coh_parameter parameter, const char *name, uint64_t begin,
                           uint64_t count, const float *values);
void no_report(void *context, const coh_kernel_timing *timing);
void no_piece(void *argument, int64_t index);

#endif
