/* inference.h - prepares a checkpoint or a Hugging Face folder for forward passes; shared by
 * generate and eval. */
#ifndef COH_CLI_INFERENCE_H
#define COH_CLI_INFERENCE_H

#include "cli/options.h"
#include "cli/recipe.h"
#include "cli/weights.h"

typedef struct cli_inference {
    const cli_options *options;
    cli_weights weights;
    coh_model model;
    cli_recipe recipe;        /* for a folder: from flags and defaults */
    int64_t trained_tokens;   /* of a sequence, up to which the positions are trained */
    coh_tokenizer *tokenizer; /* NULL: --tokenizer none */
    coh_graph *graph;         /* made by the caller, owned by this struct */
    coh_graph *small_graph;   /* likewise, for coh_engine_options.small_graph; NULL: none */
    coh_profile *profile;     /* of a GPU; NULL: the host's */
    coh_plan *plan;
    coh_plan_summary summary;
    coh_engine *engine;
} cli_inference;

/* Opens weights, recipe and tokenizer. Fails: COH_ERR_CORRUPT, COH_ERR_IO; `out_inference`
 * is then closed. */
coh_status cli_inference_open(const cli_options *options, cli_inference *out_inference);
void cli_inference_close(cli_inference *inference);

/* Plans inference->graph within the budget flags. Fails: COH_ERR_FULL; there is then no plan. */
coh_status cli_inference_plan(cli_inference *inference);

/* Checks the plan against this machine's memory (fails: COH_ERR_FULL), prints what it needs, makes
 * the engine, loads the parameters, closes their files. */
coh_status cli_inference_start(cli_inference *inference);

#endif
