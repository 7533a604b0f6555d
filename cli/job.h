/* job.h - a training run before its execution: model, recipe, graph, plan. train executes it, plan
 * prints it. */
#ifndef COH_CLI_JOB_H
#define COH_CLI_JOB_H

#include "cli/budget.h"
#include "cli/calibration.h"
#include "cli/options.h"
#include "cli/recipe.h"
#include "cli/weights.h"

typedef struct cli_job {
    const cli_options *options;
    coh_tokenizer *tokenizer; /* NULL: --tokenizer none */
    cli_weights weights;      /* the run resumes or starts from these */
    int resumed;
    uint64_t first_step; /* steps done before */
    coh_model model;
    coh_adapters adapters_before; /* of the checkpoint with the weights */
    int freezes_anew; /* this run freezes parameters that the weights' checkpoint trained */
    cli_recipe recipe;
    uint64_t data_token_count, data_window_count; /* of a run's data once it is open; else 0 */
    /* Of a launcher's process: hashes of what the run begins with (agree.h). */
    uint64_t weights_hash, adapter_hash;
    int has_start_hashes;
    int is_done;      /* train: of the resumed run no step is left, and there is no plan */
    int ended_early;  /* it is done since --stop-after-worse ended it */
    int makes_tokens; /* the recipe's data is a token file that this run made of text */
    /* The recipe's replicas: those of each rank, and the shape in which ranks' sums are added. */
    coh_fold_shape rank_replicas, ranks;
    coh_wires wires;
    coh_graph *graph;
    coh_profile *profile; /* NULL: the built-in one */
    cli_calibration calibration;
    coh_pin *pins;
    int32_t pin_count;
    const coh_plan *const *earlier; /* only while the job is opened */
    int32_t earlier_count;
    int on_gpu; /* by the profile: --device, or a what-if that is not run here */
    cli_budget budget;
    coh_plan_options plan_options; /* of recipe and budget; with the order and the disk that the
                                    * plan chose */
    coh_plan *plan;
    coh_plan_summary summary;
    coh_rehearsal rehearsal;    /* of --rehearse: cli_job_rehearse */
    const coh_plan_file *made;  /* facts of the plan's file if it is replayed; or NULL */
    uint64_t made_device_bytes; /* the budget that the file was made for */
    char refused_here[1024];    /* plan: why train would be refused on this machine now; or "" */
} cli_job;

/* Resolves everything and makes the plan, in one direction:
 *
 *     flags ──> profile, model, recipe ──> budget ──> plan options ──> plan
 *
 * Only the first two steps read flags. With --micro-batch auto a new run gets another
 * micro-batch if the default does not fit or is slower, with a note on standard error. With
 * out_job->is_done only the checkpoint and the recipe are resolved. Fails: with a message;
 * `out_job` is then closed. */
coh_status cli_job_open(const cli_options *options, cli_job *out_job);
/* As cli_job_open, but also tries `earlier`, plans for less memory or slower links
 * (coh_plan_options). They are borrowed during the call. */
coh_status cli_job_open_beside(const cli_options *options, const coh_plan *const *earlier,
                               int32_t earlier_count, cli_job *out_job);
/* As cli_job_open, but without a plan: model and recipe only. */
coh_status cli_job_open_unplanned(const cli_options *options, cli_job *out_job);
void cli_job_close(cli_job *job); /* accepts a zeroed one */

/* Rehearses the plan if --rehearse asks for it. Fails: with the first difference. */
coh_status cli_job_rehearse(cli_job *job);

/* Returns the order of sweeps that the recipe and the flags ask of a plan: any, if the plan may
 * choose it; without a flag, any that keeps the bits of the usual one. */
coh_sweep_order cli_job_order(const cli_job *job);
/* Returns the number of ranks, and the sequences of a step that each trains. */
int32_t cli_job_rank_count(const cli_job *job);
int64_t cli_job_rank_batch(const cli_job *job);

/* Bytes of the plan's emulated host tier, set by a flag or a plan file; 0: none. */
uint64_t cli_job_emulated_bytes(const cli_job *job);

/* The predicted seconds of `step_count` steps and the drain. */
double cli_job_predicted_seconds(const cli_job *job, uint64_t step_count);

/* Bytes written per day above which a run needs explicit permission, to protect the drive. */
#define CLI_WRITES_ASKED_FOR 1e12

/* cli_job_wears: would the run write more than that per day without a --disk-write-limit that
 * allows it? cli_job_check_writes refuses such a run: COH_ERR_ARGUMENT. */
int cli_job_wears(const cli_job *job);
coh_status cli_job_check_writes(const cli_job *job);

#endif
