/* The handler only sets a flag, or writes one line and leaves. */
#include "cli/stop.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_NOTHING_KEPT = 1, EXIT_STOPPED = 75 };

static const char *kept_line, *lost_line;
static size_t kept_bytes, lost_bytes;
static volatile sig_atomic_t asked, kept_any;
static volatile sig_atomic_t skipped_bytes; /* of those lines: no newline where no live line is */

static void on_signal(int number)
{
    (void)number;
    if (asked) {
        const size_t skip = (size_t)skipped_bytes;
        const ssize_t written = kept_any
                                    ? write(STDERR_FILENO, kept_line + skip, kept_bytes - skip)
                                    : write(STDERR_FILENO, lost_line + skip, lost_bytes - skip);
        (void)written;
        _exit(cli_stop_exit_code());
    }
    asked = 1;
}

int cli_stop_exit_code(void)
{
    return kept_any ? EXIT_STOPPED : EXIT_NOTHING_KEPT;
}

void cli_stop_kept(void)
{
    kept_any = 1;
}

coh_status cli_stop_install(int kept, const char *left, const char *lost)
{
    kept_any = kept;
    kept_line = left;
    kept_bytes = strlen(left);
    lost_line = lost;
    lost_bytes = strlen(lost);
    skipped_bytes = isatty(STDERR_FILENO) ? 0 : 1;
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGINT, &action, NULL) != 0 || sigaction(SIGTERM, &action, NULL) != 0)
        return cli_fail(COH_ERR_INTERNAL, "cannot handle signals: %s", strerror(errno));
    return COH_OK;
}

void cli_stop_uninstall(void)
{
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
}

coh_status cli_stop_check(const char *when)
{
    return asked ? cli_fail(COH_ERR_STOPPED, "stopped on request %s", when) : COH_OK;
}

int cli_stop_asked(void)
{
    return asked != 0;
}
