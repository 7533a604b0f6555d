/* manual.h - the parts of the program that writes man pages and completions. */
#ifndef COH_CLI_MANUAL_H
#define COH_CLI_MANUAL_H

/* Prints the completions of "bash", "zsh" or "fish". Returns 0 for any other word. */
int cli_completions(const char *shell);

#endif
