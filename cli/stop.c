/* Stop requests (train.h): the handlers only set a flag or leave. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli/train.h"

enum { EXIT_STOPPED = 75 };

static volatile sig_atomic_t asked;

static void on_signal(int number)
{
    (void)number;
    if (asked)
        _exit(EXIT_STOPPED);
    asked = 1;
}

coh_status cli_stop_install(void)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGINT, &action, NULL) != 0 || sigaction(SIGTERM, &action, NULL) != 0)
        return cli_fail(COH_ERR_INTERNAL, "cannot handle signals: %s", strerror(errno));
    return COH_OK;
}

int cli_stop_asked(void)
{
    return asked != 0;
}
