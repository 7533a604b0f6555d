/* terminal.h - takes the terminal for a screen that is rewritten, and gives it back as it was.
 *
 *     take ──> wait, draw, wait, draw, ... ──> give back
 *
 * While it is taken: the alternate screen, no cursor, keys without Enter or echo. Signals are
 * blocked and come out of cli_terminal_wait, so that every way out gives the terminal back. One
 * terminal at a time; it belongs to the calling thread. */
#ifndef COH_CLI_TERMINAL_H
#define COH_CLI_TERMINAL_H

#include <signal.h>
#include <termios.h>

#include "cli/say.h"

typedef struct cli_terminal {
    int signals;     /* a signalfd; -1: the terminal is not taken */
    int has_keys;    /* standard input is a terminal, too */
    sigset_t former; /* the mask before */
    struct termios as_was;
} cli_terminal;

/* Can standard output show a screen? */
int cli_terminal_is_there(void);
/* The size of the terminal; 80 x 24 if it does not say. */
void cli_terminal_size(int *out_columns, int *out_rows);

/* Fails: COH_ERR_IO; the terminal is then as it was. */
coh_status cli_terminal_take(cli_terminal *out_terminal);
/* Does nothing if it is not taken. Signals that came meanwhile have their usual effect now. */
void cli_terminal_give_back(cli_terminal *terminal);

/* Replaces the screen by `text`: lines with their ends. Fails: COH_ERR_IO. */
coh_status cli_terminal_show(const char *text);

/* Waits up to `milliseconds` for a key or a signal. Returns 0, the key, or minus the number of a
 * signal that ends the process; a change of the size, and a stop (Ctrl-Z) after it was continued,
 * return 0 early. */
int cli_terminal_wait(cli_terminal *terminal, int milliseconds);

#endif
