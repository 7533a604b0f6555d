/* agree.h - compares the settings of the processes of a launcher before they train together.
 *
 *     rank 0   flags ──> recipe ──> settings ─┐
 *     rank 1   flags ──> recipe ──> settings ─┴─> the first one that differs, by its flag
 *
 * The one idea: each setting is a fact with the words that a sentence has for it, and one more fact
 * is a hash of the whole note of the run. So a setting that the table forgets is found, too. */
#ifndef COH_CLI_AGREE_H
#define COH_CLI_AGREE_H

#include "cli/job.h"

/* Waits for the other processes of the run, if there are any, and compares everything that decides
 * its numbers, or how often ranks wait for each other. Paths are not compared, but what lies there.
 * Call it before planning, so that a sentence names a flag instead of a plan, and again when the
 * data is open, which decides the hashes of its ids and with --epochs the steps. The weights that
 * the run begins with are open and not loaded yet: the hash that a checkpoint holds is compared, or
 * 64 numbers of each tensor of a folder.
 * Fails: COH_ERR_ARGUMENT, on rank 0, with the rank and the flag;
 * as reading the weights does. */
coh_status cli_agree(cli_job *job);

/* Continues *hash, at first 0, by the form of a model: all but its name, which is that of its
 * folder, and what belongs to a run. Fails: as coh_model_to_json. */
coh_status cli_agree_hash_model(const coh_model *model, uint64_t *hash);
/* Returns a hash of a text; of NULL 0. */
uint64_t cli_agree_hash_text(const char *text);

#endif
