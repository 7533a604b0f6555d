/* weights.h - opens the source of a model's parameters: a checkpoint, a Hugging Face folder, or
 * none (a preset starts with the initial values of its kinds).
 *
 *     open ──> read facts, load the numbers ──> loaded: its files are closed ──> close */
#ifndef COH_CLI_WEIGHTS_H
#define COH_CLI_WEIGHTS_H

#include "cli/options.h"

typedef struct cli_weights {
    int is_checkpoint, is_folder; /* the source, also when its files are closed */
    coh_checkpoint *checkpoint;   /* NULL: none is open */
    coh_checkpoint_facts facts;   /* of the checkpoint */
    coh_folder *folder;           /* NULL: none is open */
    coh_folder_facts folder_facts;
    coh_adapter_folder *adapters; /* of --adapter; NULL: none is open */
    const coh_model *adapted;     /* the model that has them; its place must not change */
    char *loaded_path;            /* facts.path of a checkpoint whose files are closed */
} cli_weights;

/* As coh_model_resolve for a path: a folder takes precedence over a preset of the same name. Fails:
 * as that does. */
coh_status cli_weights_resolve(const char *path, int64_t vocabulary, coh_model *out_model);

/* Opens the source of a resolved model; `out_weights` is zeroed, except for --adapter. For a
 * folder, records in `model` how its tensors are stored (coh_folder_describe). Fails:
 * COH_ERR_CORRUPT, COH_ERR_IO; nothing is then open. */
coh_status cli_weights_open(coh_model *model, cli_weights *out_weights);
/* Likewise a checkpoint whose model is not known yet. */
coh_status cli_weights_open_checkpoint(const char *path, cli_weights *out_weights);
/* Call it after a failure to find a checkpoint. A folder whose run continues and has not saved yet
 * gets another sentence. Returns `status`. */
coh_status cli_weights_blame_going(const char *path, coh_status status);
/* Call it if no checkpoint was found: fails with COH_ERR_ARGUMENT if the folder is in use by a run
 * that has not saved yet. Otherwise keeps the current error message. */
coh_status cli_weights_check_not_in_use(const char *folder);
/* Opens --adapter, if it is given, and sets its adapters in `model`; the numbers below are then
 * those of the source and of the adapters. Fails: COH_ERR_ARGUMENT, COH_ERR_CORRUPT, COH_ERR_IO. */
coh_status cli_weights_open_adapters(const cli_options *options, coh_model *model,
                                     cli_weights *weights);
/* Checks that the model has a row for each id of its tokenizer. Added tokens beyond its table are
 * only noted; the vocabulary itself must fit. `tokenizer` NULL: checks nothing. Fails:
 * COH_ERR_ARGUMENT. */
coh_status cli_weights_check_vocabulary(const coh_model *model, const coh_tokenizer *tokenizer);
/* Prints a note if the tokenizer is not the one that the weights were trained with, as the
 * checkpoint's note names it or the folder holds it: rarely intended. */
void cli_weights_say_other_tokenizer(const cli_weights *weights, const coh_model *model,
                                     const cli_options *options, const coh_tokenizer *tokenizer);
/* Finds the newest checkpoint in the folder `run` of a step below *step, into `out_path` and *step;
 * 0: none. */
int cli_weights_find_older(const char *run, uint64_t *step, char out_path[CLI_PATH_BYTES]);
/* Call it after loading. If the checkpoint that a run's folder `operand` (may be NULL) stands for
 * is damaged, adds to the message which one is before it. Returns `status`. */
coh_status cli_weights_name_older(const cli_weights *weights, const char *operand,
                                  coh_status status);
/* Closes the files of the source when its numbers are loaded. Otherwise a long run would hold the
 * space of a checkpoint or a folder that is removed meanwhile. The facts stay, except that
 * facts.note_json and facts.passed_over become "". Fails: COH_ERR_MEMORY; the files stay open. */
coh_status cli_weights_loaded(cli_weights *weights);
void cli_weights_close(cli_weights *weights); /* accepts a zeroed one */

static inline int cli_weights_are_there(const cli_weights *weights)
{
    return weights->is_checkpoint || weights->is_folder;
}

/* Are all `count` numbers of tensor `name` of the folder finite? Fails: COH_ERR_CORRUPT naming the
 * tensor as its file does. */
coh_status cli_weights_check_finite(const cli_weights *weights, const char *name, uint64_t count,
                                    const float *values);

/* A coh_number_source and a coh_parameter_source; `weights` is a cli_weights. Fail: COH_ERR_CORRUPT
 * for an unknown name; the second also for a number of a folder that is not finite, since no step
 * could be saved with it. */
coh_status cli_weights_numbers(void *weights, const char *name, uint64_t element_begin,
                               uint64_t count, float *values);
coh_status cli_weights_source(void *weights, coh_parameter parameter, const char *name,
                              uint64_t element_begin, uint64_t count, float *values);

/* Prints notes about a model from a folder on standard error, one per line. */
void cli_weights_say(const coh_model *model);

#endif
