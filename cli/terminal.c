/* Takes the terminal for a screen. The one idea: signals are read from a descriptor, next to the
 * keys, so no handler runs while the terminal is in a state that the shell could not use. Next:
 * cmd_watch.c. */
#include "cli/terminal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* The alternate screen keeps what was on the terminal before. */
static const char enter[] = "\033[?1049h\033[?25l\033[2J", leave[] = "\033[?25h\033[?1049l";

int cli_terminal_is_there(void)
{
    const char *name = getenv("TERM");
    return isatty(STDOUT_FILENO) && name && name[0] && strcmp(name, "dumb") != 0;
}

void cli_terminal_size(int *out_columns, int *out_rows)
{
    struct winsize size = { 0 };
    (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    *out_columns = size.ws_col > 0 ? size.ws_col : 80;
    *out_rows = size.ws_row > 0 ? size.ws_row : 24;
}

static coh_status set_keys(const cli_terminal *terminal)
{
    struct termios keys = terminal->as_was;
    keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    if (terminal->has_keys && tcsetattr(STDIN_FILENO, TCSADRAIN, &keys) != 0)
        return cli_fail(COH_ERR_IO, "the terminal cannot be set: %s", strerror(errno));
    return cli_write(STDOUT_FILENO, enter, sizeof(enter) - 1);
}

static void reset_keys(const cli_terminal *terminal)
{
    (void)cli_write(STDOUT_FILENO, leave, sizeof(leave) - 1);
    if (terminal->has_keys)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal->as_was);
}

coh_status cli_terminal_take(cli_terminal *out_terminal)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH };
    cli_terminal *t = out_terminal;
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        sigaddset(&set, numbers[i]);
    *t = (cli_terminal){ .signals = -1 };
    t->has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &t->as_was) == 0;
    if (sigprocmask(SIG_BLOCK, &set, &t->former) != 0 ||
        (t->signals = signalfd(-1, &set, SFD_CLOEXEC)) < 0)
        return cli_fail(COH_ERR_IO, "signals cannot be read: %s", strerror(errno));
    const coh_status status = set_keys(t);
    if (status != COH_OK)
        cli_terminal_give_back(t);
    return status;
}

void cli_terminal_give_back(cli_terminal *terminal)
{
    if (terminal->signals < 0)
        return;
    reset_keys(terminal);
    close(terminal->signals);
    terminal->signals = -1;
    (void)sigprocmask(SIG_SETMASK, &terminal->former, NULL);
}

coh_status cli_terminal_show(const char *text)
{
    cli_line line;
    cli_line_clear(&line);
    cli_line_add(&line, "\033[H");
    while (*text) {
        const size_t bytes = strcspn(text, "\n");
        const char *next = text + bytes + (text[bytes] == '\n');
        /* no end after the last line: it would scroll */
        cli_line_add(&line, "%.*s\033[K%s", (int)bytes, text, *next ? "\r\n" : "");
        text = next;
    }
    cli_line_add(&line, "\033[J");
    return cli_write(STDOUT_FILENO, line.text, line.used);
}

/* Takes a signal. Returns 0 if it does not end the process. */
static int take_signal(const cli_terminal *terminal, int number)
{
    switch (number) {
    case SIGTSTP: /* stops as Ctrl-Z does, with the terminal as it was meanwhile */
        reset_keys(terminal);
        (void)raise(SIGSTOP);
        return 0;
    case SIGCONT: /* after that, or after a SIGSTOP: a shell has set the terminal meanwhile */
        (void)set_keys(terminal);
        return 0;
    case SIGWINCH:
        return 0;
    default:
        return number;
    }
}

int cli_terminal_wait(cli_terminal *terminal, int milliseconds)
{
    struct pollfd all[] = { { .fd = terminal->signals, .events = POLLIN },
                            { .fd = STDIN_FILENO, .events = POLLIN } };
    struct signalfd_siginfo got;
    unsigned char key;
    if (poll(all, terminal->has_keys ? 2 : 1, milliseconds) <= 0)
        return 0;
    if (all[0].revents && read(terminal->signals, &got, sizeof(got)) == (ssize_t)sizeof(got))
        return -take_signal(terminal, (int)got.ssi_signo);
    if (terminal->has_keys && all[1].revents)
        return read(STDIN_FILENO, &key, 1) == 1 ? key : -SIGHUP; /* the terminal is gone */
    return 0;
}
