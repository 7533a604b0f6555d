/* kept_tokens.h - the tokens that a refused run leaves in its folder, so that the next try need not
 * make them again.
 *
 * The one idea: a file next to them names each with its hash. So a later run knows them from tokens
 * that somebody put there, and a folder holds one such copy at most. */
#ifndef COH_CLI_KEPT_TOKENS_H
#define COH_CLI_KEPT_TOKENS_H

#include "cli/data.h"
#include "cli/options.h"

/* Notes that the files of `data`, and of `held_out` at that path (""; closed: none), in `folder`
 * are such tokens. A failure leaves them to be taken for somebody else's. */
void cli_kept_tokens_note(const char *folder, const cli_data *data, const char *held_out_path,
                          const cli_data *held_out);

/* Removes such tokens of an earlier try, before the drive's room is looked at, if this run makes
 * its own from text. What has changed since, and what the run reads, stays. Call it under the
 * folder's lock. */
void cli_kept_tokens_drop(const char *folder, const cli_options *options);

/* For a run that has begun: it may train on them, so from now on they are no rest. */
void cli_kept_tokens_forget(const char *folder);

#endif
