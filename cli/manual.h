/* manual.h - what the builder of man pages and completions is made of. */
#ifndef COH_CLI_MANUAL_H
#define COH_CLI_MANUAL_H

/* Prints the completions of "bash", "zsh" or "fish". Returns 0 for any other word. */
int cli_completions(const char *shell);

#endif
