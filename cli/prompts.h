/* prompts.h - reads the prompts of flags and files and encodes all of them before the first token
 * is computed, so that an error in the last prompt is found early.
 *
 *     --prompt ... ─> --prompt-file ─> --prompts, by lines ─> --messages, by conversations
 *
 * is their order. With --chat a prompt is a user's message, and its ids are those of the whole
 * conversation up to the answer; --messages implies --chat. */
#ifndef COH_CLI_PROMPTS_H
#define COH_CLI_PROMPTS_H

#include "cli/inference.h"

typedef struct cli_prompt {
    char *text; /* as given; NULL: a conversation, which is not printed */
    size_t text_bytes;
    int32_t *ids;
    size_t count;
} cli_prompt;

typedef struct cli_prompts {
    const cli_inference *inference;
    coh_chat *chat;      /* NULL: plain text */
    int32_t end_of_turn; /* of the chat, or of a run on conversations; -1: none */
    cli_prompt *list;
    size_t count, capacity;
    uint64_t answered_count; /* conversations that ended with an answer, which is left out */
    /* Prompts of the current file that are refused, so that the others are looked at, too. */
    size_t refused_count;
    coh_status refused; /* the first of them, and its message */
    char refused_text[1024];
} cli_prompts;

/* Reads and encodes all prompts. Fails: COH_ERR_ARGUMENT (none, an empty one, one too long for the
 * model, flags that contradict one another), COH_ERR_CORRUPT (a file that holds no messages, or an
 * id that the model does not have), COH_ERR_IO, COH_ERR_MEMORY. Close it in either case. */
coh_status cli_prompts_open(const cli_inference *inference, cli_prompts *out_prompts);
void cli_prompts_close(cli_prompts *prompts); /* accepts a zeroed one */

/* Fails if no flag gives a prompt, before anything is opened: COH_ERR_ARGUMENT. */
coh_status cli_prompts_check_flags(const cli_options *options);

#endif
