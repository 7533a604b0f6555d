/* budget.h - turns the budget flags into plan and engine options. They decide where data may be
 * stored, never what is computed. Shared by train, plan, generate and eval. */
#ifndef COH_CLI_BUDGET_H
#define COH_CLI_BUDGET_H

#include "cli/options.h"

/* Refuses flags that this build or machine does not support, or that contradict one another. Fails:
 * COH_ERR_ARGUMENT. */
coh_status cli_budget_check(const cli_options *options);

/* Returns `status`. If the limit of the address space caused it, puts that limit and its remedy
 * before the message, since raising --device-memory would not help. */
coh_status cli_budget_blame_limit(const cli_options *options, coh_status status);

/* Is --device a GPU? */
int cli_budget_on_gpu(const cli_options *options);

/* Upper bound of main memory that a run on a GPU needs in addition to its host tier: staging
 * buffers for chunks of `chunk_bytes`, in f32. */
uint64_t cli_budget_stage_bytes(uint64_t chunk_bytes);

/* Returns the name of the datasheet of the GPU that --device names, and prints it. Fails:
 * COH_ERR_ARGUMENT: there is none; COH_ERR_DEVICE. */
coh_status cli_budget_datasheet(const cli_options *options, const char **out_name);

/* Selects the kernel table at `path` ("": none); call it before planning. `noted`: the path is from
 * a checkpoint's note; if that file no longer exists, the standard products are used, with a note.
 * Also prints a note about its cost for a model of `dtype`. Fails: COH_ERR_CORRUPT, COH_ERR_IO;
 * COH_ERR_ARGUMENT. */
coh_status cli_budget_use_kernels(const char *path, int noted, coh_dtype dtype);

/* Opens --profile, else the datasheet of the GPU that --device names; NULL if there is neither.
 * Checks that the command can use it, and prints a note if predicted times become a what-if. The
 * caller destroys it, after the plan. */
coh_status cli_budget_open_profile(const cli_options *options, coh_profile **out_profile);

/* Reads --pin and --pins together; the caller frees them, after the plan. */
coh_status cli_budget_open_pins(const cli_options *options, coh_pin **out_pins, int32_t *out_count);

/* Is the plan for a GPU? */
int cli_budget_is_gpu(const coh_profile *profile);

/* Are its times a what-if: from a datasheet, from given entries, of another machine, or for another
 * number of threads than the command's? */
int cli_budget_is_what_if(const cli_options *options, const coh_profile *profile);

/* Is the plan for this machine's memory? Not for that of a profile of another one. --device names a
 * GPU of this machine. */
int cli_budget_is_here(const cli_options *options, const coh_profile *profile);

/* Sets budgets, chunk, threads, recomputation; the caller sets micro-batches and clipping. A GPU's
 * profile (NULL: none) provides capacities that no flag gives; its disk is the spare one. If it was
 * measured on this machine, memory is what is free now. */
void cli_budget_plan_options(const cli_options *options, const coh_profile *profile,
                             coh_plan_mode mode, coh_plan_options *out_options);

/* The value of --threads, or each rank's share of the cores this process may use. */
int32_t cli_budget_thread_count(const cli_options *options);
/* Returns the number of ranks, and of those that share this machine. */
int32_t cli_budget_rank_count(const cli_options *options);
int32_t cli_budget_local_ranks(const cli_options *options);
/* Returns the number of processes in which those are: 1 without a launcher. */
int32_t cli_budget_local_processes(const cli_options *options);

/* The decisions of flags about a plan. Code that is given a budget reads no flag. */
typedef struct cli_budget {
    coh_plan_options options;          /* as cli_budget_plan_options; the caller adds pins */
    coh_engine_options engine_options; /* as cli_budget_engine_options */
    const char *plan_file;             /* replayed; NULL: a new plan */
    const char *plan_text;             /* of that file; NULL: it is read */
    int has_disk_folder;
    int is_run_here; /* not only planned */
    int may_change_micro_batch, may_choose_order;
    int keeps_order;               /* the sweep order was given */
    int takes_planned_micro_batch; /* that of plan_file, since none is given */
} cli_budget;

void cli_budget_resolve(const cli_options *options, const coh_profile *profile,
                        cli_budget *out_budget);

/* Reads the facts of budget->plan_file. */
coh_status cli_budget_plan_file(const cli_budget *budget, coh_plan_file *out_file);

/* Replays budget->plan_file; *plan_options then has the tiers of that file. */
coh_status cli_budget_replay(const cli_budget *budget, const coh_graph *graph,
                             coh_plan_options *plan_options, coh_plan **out_plan);

/* Checks that the profile's drive has room for the plan of `path`. If the profile, of the host
 * device, has no drive, checks nothing. Fails: COH_ERR_FULL. */
coh_status cli_budget_check_disk(const coh_profile *profile, const char *path,
                                 const coh_plan_summary *summary);

/* Returns the largest total of arenas in main memory that each rank here may have now, next to a
 * GPU's pinned host tier if `is_pinned`. */
uint64_t cli_budget_most_bytes(const cli_options *options, int is_pinned);

/* Checks a plan's arenas against this machine's memory, before an engine allocates them. The
 * refusal names a budget for which a plan fits. Fails: COH_ERR_FULL. */
coh_status cli_budget_check_memory(const cli_options *options, int on_gpu,
                                   const coh_plan_summary *summary);

/* Checks the arena of a plan for --device, a GPU, against the memory that it has free. The engine
 * checks when it starts. Fails: COH_ERR_FULL; COH_ERR_DEVICE. */
coh_status cli_budget_check_gpu(const cli_options *options, const coh_plan_summary *summary);

/* Sets the limit of the store, threads, test modes; the caller sets its folders and the optimizer's
 * numbers. The engine's messages go to standard error. */
void cli_budget_engine_options(const cli_options *options, coh_engine_options *out_options);

#endif
