/* ends.h - the ids at which generate ends a text.
 *
 *     the tokenizer's end of text ─┐
 *     the end of a turn ───────────┼──> one mark for each id
 *     eos_token_id of the model ───┘
 *
 * A model may end its texts with several ids: Gemma's <eos> and <end_of_turn>, Llama 3's three.
 * They are in "eos_token_id", a number or a list, of generation_config.json or config.json. */
#ifndef COH_CLI_ENDS_H
#define COH_CLI_ENDS_H

#include "cli/generation_config.h"
#include "cli/inference.h"

/* Sets ends[id] to 1 for each id that ends a text; `ends` has `count` zeroed entries, and
 * `end_of_turn` is below 0 if no id ends a turn. Ids from `count` on are never drawn, so they are
 * left out. Prints a note about a member that holds no ids. Call it before the weights
 * are loaded, with an open tokenizer. */
void cli_ends_mark(const cli_inference *inference, const cli_generation_config *config,
                   int32_t end_of_turn, int64_t count, uint8_t *ends);

/* Is the tokenizer, opened from `chosen`, another one than that of a model's folder (NULL: there is
 * none)? Ids that the folder's files name are then other tokens. A folder that holds no tokenizer
 * has been given its own by the flag. */
int cli_ends_are_of_another(const char *folder, const char *chosen, const coh_tokenizer *tokenizer);

#endif
