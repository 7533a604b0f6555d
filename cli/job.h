/* job.h - a training run before it runs: model, recipe, graph, plan. What train executes and plan
 * prints. */
#ifndef COH_CLI_JOB_H
#define COH_CLI_JOB_H

#include "cli/options.h"
#include "cli/recipe.h"
#include "cli/weights.h"

typedef struct cli_job {
    const cli_options *options;
    coh_tokenizer *tokenizer;
    cli_weights weights; /* what the run goes on from, or starts from */
    int resumed;
    uint64_t first_step; /* steps done before */
    coh_model model;
    int freezes_anew; /* what the checkpoint that the weights are from had trained */
    cli_recipe recipe;
    coh_graph *graph;
    coh_profile *profile; /* NULL: the built-in one */
    int on_gpu;           /* the profile's: a what-if that nothing here runs */
    coh_plan_options plan_options;
    coh_plan *plan;
    coh_plan_summary summary;
} cli_job;

/* Resolves everything and makes the plan. A micro-batch that was neither given nor resumed is
 * lowered where nothing else fits, and that is said on standard error. Fails: with a sentence;
 * `out_job` is then closed. */
coh_status cli_job_open(const cli_options *options, cli_job *out_job);
/* The same without a plan: model and recipe. */
coh_status cli_job_open_unplanned(const cli_options *options, cli_job *out_job);
void cli_job_close(cli_job *job); /* accepts a zeroed one */

/* Seconds that `step_count` steps, then the drain, will take by the plan. */
double cli_job_predicted_seconds(const cli_job *job, uint64_t step_count);

/* The plan in a few lines of text: what is trained, budgets, predicted peaks, bytes, time. */
void cli_job_describe(const cli_job *job, cli_line *line);

#endif
