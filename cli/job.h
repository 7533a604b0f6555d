/* job.h - a training run before it runs: model, recipe, graph, plan. What train executes and plan
 * prints. */
#ifndef COH_CLI_JOB_H
#define COH_CLI_JOB_H

#include "cli/calibration.h"
#include "cli/options.h"
#include "cli/recipe.h"
#include "cli/weights.h"

typedef struct cli_job {
    const cli_options *options;
    coh_tokenizer *tokenizer; /* NULL: --tokenizer none */
    cli_weights weights;      /* what the run goes on from, or starts from */
    int resumed;
    uint64_t first_step; /* steps done before */
    coh_model model;
    coh_adapters adapters_before; /* of the checkpoint that the weights are from */
    int freezes_anew;             /* what the checkpoint that the weights are from had trained */
    cli_recipe recipe;
    coh_graph *graph;
    coh_profile *profile; /* NULL: the built-in one */
    cli_calibration calibration;
    coh_pin *pins;
    int32_t pin_count;
    const coh_plan *const *earlier; /* while it is opened */
    int32_t earlier_count;
    int on_gpu; /* the profile's: --device's, or a what-if that nothing here runs */
    coh_plan_options plan_options;
    int uncalibrated;    /* plans are made to choose by, not to run */
    int asks_what_fits;  /* a refusal looks for a remedy: plans need not be fast */
    int is_order_chosen; /* the recipe's sweep order is not to be chosen again */
    uint64_t wear_bytes; /* the most that a step may write to disk; 0: no limit */
    coh_plan *plan;
    coh_plan_summary summary;
    const coh_plan_file *made;  /* what the plan's file says, where it is replayed; or NULL */
    uint64_t made_device_bytes; /* and the budget that it was made for */
} cli_job;

/* Resolves everything and makes the plan. With --micro-batch auto a run that does not go on gets
 * another micro-batch where the default does not fit or is slower, and that is said on standard
 * error. Fails: with a sentence; `out_job` is then closed. */
coh_status cli_job_open(const cli_options *options, cli_job *out_job);
/* The same; plans of less memory or slower links (coh_plan_options) are tried as well. They are
 * borrowed while it is opened. */
coh_status cli_job_open_beside(const cli_options *options, const coh_plan *const *earlier,
                               int32_t earlier_count, cli_job *out_job);
/* The same without a plan: model and recipe. */
coh_status cli_job_open_unplanned(const cli_options *options, cli_job *out_job);
void cli_job_close(cli_job *job); /* accepts a zeroed one */

/* Bytes of the plan's emulated host tier, whether a flag or a plan file asked for it; 0: none. */
uint64_t cli_job_emulated_bytes(const cli_job *job);

/* Seconds that `step_count` steps, then the drain, will take by the plan. */
double cli_job_predicted_seconds(const cli_job *job, uint64_t step_count);

/* Bytes a day above which a drive's life is worth a question. */
#define CLI_WRITES_ASKED_FOR 1e12

/* Would the run write more than that in one of its days, with no --disk-write-limit that allows it?
 * Then / the refusal of it: COH_ERR_ARGUMENT. */
int cli_job_wears(const cli_job *job);
coh_status cli_job_check_writes(const cli_job *job);

#endif
