/* weights.h - where the parameters of a model come from: a checkpoint, a Hugging Face folder, or
 * nowhere (a preset begins with its kinds' initial values). */
#ifndef COH_CLI_WEIGHTS_H
#define COH_CLI_WEIGHTS_H

#include "cli/say.h"

typedef struct cli_weights {
    coh_checkpoint *checkpoint; /* NULL: none */
    coh_checkpoint_facts facts; /* its */
    coh_folder *folder;         /* NULL: none */
    coh_folder_facts folder_facts;
} cli_weights;

/* coh_model_resolve of a path: a folder that is called as a preset is that folder all the same.
 * Fails: as that does. */
coh_status cli_weights_resolve(const char *path, int64_t vocabulary, coh_model *out_model);

/* Opens what the model was resolved from. Of a folder, `model` is told how its tensors are stored
 * (coh_folder_describe). Fails: COH_ERR_CORRUPT, COH_ERR_IO; nothing is open then. */
coh_status cli_weights_open(coh_model *model, cli_weights *out_weights);
/* The same for a checkpoint whose model is not known yet. */
coh_status cli_weights_open_checkpoint(const char *path, cli_weights *out_weights);
/* Where no checkpoint was found: a run that has not saved yet holds the folder, and that is the
 * reason. Otherwise the sentence that is there stays. Fails: COH_ERR_ARGUMENT: so it is. */
coh_status cli_weights_check_not_in_use(const char *folder);
/* Has the model a row for each id of its tokenizer? Added tokens beyond its table are said, the
 * vocabulary itself must fit. `tokenizer` NULL: nothing to check. Fails: COH_ERR_ARGUMENT. */
coh_status cli_weights_check_vocabulary(const coh_model *model, const coh_tokenizer *tokenizer);
void cli_weights_close(cli_weights *weights); /* accepts a zeroed one */

static inline int cli_weights_are_there(const cli_weights *weights)
{
    return weights->checkpoint || weights->folder;
}

/* Are all `count` numbers of tensor `name` of the folder finite? Fails: COH_ERR_CORRUPT naming the
 * tensor as its file does. */
coh_status cli_weights_check_finite(const cli_weights *weights, const char *name, uint64_t count,
                                    const float *values);

/* A coh_number_source and a coh_parameter_source; `weights` is a cli_weights. Fail:
 * COH_ERR_CORRUPT for a name that is not there; the second also for a folder's number that is not
 * finite, with which no step could be saved. */
coh_status cli_weights_numbers(void *weights, const char *name, uint64_t element_begin,
                               uint64_t count, float *values);
coh_status cli_weights_source(void *weights, coh_parameter parameter, const char *name,
                              uint64_t element_begin, uint64_t count, float *values);

/* What the user should know of a model that came from a folder, on standard error, a line each. */
void cli_weights_say(const coh_model *model);

#endif
