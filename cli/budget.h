/* budget.h - from the budget flags to plan and engine options: where things may stand, never what
 * is computed. The same for train, plan, generate and eval. */
#ifndef COH_CLI_BUDGET_H
#define COH_CLI_BUDGET_H

#include "cli/options.h"

/* Flags that this build or machine refuses, or that contradict one another.
 * Fails: COH_ERR_ARGUMENT. */
coh_status cli_budget_check(const cli_options *options);

/* Returns `status`. If the limit of the address space is behind it, that limit and its remedy begin
 * the sentence: raising --device-memory would not help. */
coh_status cli_budget_blame_limit(const cli_options *options, coh_status status);

/* Is --device a GPU? */
int cli_budget_on_gpu(const cli_options *options);

/* Main memory that a run on a GPU takes beside its host tier at most: what chunks of so many bytes
 * in f32 come and go through. */
uint64_t cli_budget_stage_bytes(uint64_t chunk_bytes);

/* The name of the datasheet of the GPU that --device names, which is said.
 * Fails: COH_ERR_ARGUMENT: there is none; COH_ERR_DEVICE. */
coh_status cli_budget_datasheet(const cli_options *options, const char **out_name);

/* Takes the kernel table at `path` ("": none), before anything is planned. `noted`: it comes from
 * a checkpoint's note, and where it is gone the standard products are taken, which is said. So is
 * what it costs a model of `dtype`.
 * Fails: COH_ERR_CORRUPT, COH_ERR_IO; COH_ERR_ARGUMENT. */
coh_status cli_budget_use_kernels(const char *path, int noted, coh_dtype dtype);

/* --profile, else the datasheet of the GPU that --device names; NULL where there is neither. What
 * it means for this command is checked, and said where times become a what-if. The caller destroys
 * it, after the plan. */
coh_status cli_budget_open_profile(const cli_options *options, coh_profile **out_profile);

/* --pin and --pins together; the caller frees them, after the plan. */
coh_status cli_budget_open_pins(const cli_options *options, coh_pin **out_pins, int32_t *out_count);

/* Is the plan for a GPU? */
int cli_budget_is_gpu(const coh_profile *profile);

/* Are its times a what-if: of a datasheet, of given entries, of another machine, or of another
 * number of threads than the command's? */
int cli_budget_is_what_if(const cli_options *options, const coh_profile *profile);

/* Budgets, chunk, threads, recomputation; micro-batches and clipping are the caller's. A GPU's
 * profile (NULL: none) gives the room that no flag does; its disk is taken last, by the caller. */
void cli_budget_plan_options(const cli_options *options, const coh_profile *profile,
                             coh_plan_mode mode, coh_plan_options *out_options);

/* --threads, or the cores this process has. */
int32_t cli_budget_thread_count(const cli_options *options);

/* Plans `graph`, or replays --plan; *plan_options has the tiers of the file then. */
coh_status cli_budget_plan(const cli_options *options, const coh_graph *graph,
                           coh_plan_options *plan_options, coh_plan **out_plan);

/* Has the profile's drive room for the plan of `path`? Where a host device's profile knows none,
 * nothing is asked. Fails: COH_ERR_FULL. */
coh_status cli_budget_check_disk(const coh_profile *profile, const char *path,
                                 const coh_plan_summary *summary);

/* Disk folder, threads, test modes; the optimizer's numbers are the caller's. Sentences of the
 * engine go to standard error. */
void cli_budget_engine_options(const cli_options *options, coh_engine_options *out_options);

/* The flags of budget and threads as they were given ("--device-memory 64MiB --disk ..."), the
 * folder absolute, for the sentence that says how to resume. */
void cli_budget_add_flags(const cli_options *options, cli_line *line);

/* The working store and `checkpoint_count` checkpoints must fit, summed per file system.
 * `run_folder` NULL: none are kept. Fails: COH_ERR_FULL with the bytes short. */
coh_status cli_budget_preflight(const char *disk_folder, uint64_t store_bytes,
                                const char *run_folder, uint64_t checkpoint_count,
                                uint64_t checkpoint_bytes);

#endif
