/* generation_config.h - reads generation_config.json of a model: how its texts end, and how its
 * makers draw them.
 *
 *     generation_config.json ─┬─> eos_token_id ──────────────────────> ends.h
 *                             └─> temperature, top_k, top_p, ... ────> sample.h, without a flag
 *
 * transformers and vLLM take these values, too, so the same model writes the same kind of text. The
 * file is that of the folder that the weights began from, as an export copies it. */
#ifndef COH_CLI_GENERATION_CONFIG_H
#define COH_CLI_GENERATION_CONFIG_H

#include "cli/inference.h"
#include "cli/sample.h"

typedef struct cli_generation_config {
    const char *folder; /* in which it is; NULL: the weights come from none. The inference's */
    char path[CLI_PATH_BYTES];
    struct json_t *root; /* an object of JSON; NULL: there is no such file */
} cli_generation_config;

/* Opens the file of the model; none is no failure, and a file that is no JSON gets a note. */
void cli_generation_config_open(const cli_inference *inference, cli_generation_config *out_config);
void cli_generation_config_close(cli_generation_config *config); /* accepts a zeroed one */

/* Fills the sampler from the flags, and where one is not given, from the file of a model or of a
 * run that began with a model's weights. Prints a note with the file's values, and one for each
 * that is out of its flag's range and so not taken, and one that names the members that change
 * transformers' text and have no flag here. The seed is that of --seed. */
void cli_generation_config_sampler(const cli_generation_config *config,
                                   const cli_inference *inference, cli_sampler *out_sampler);

#endif
