/* Handles signals that request a stop. The handler only sets a flag, or writes one line and ends
 * the process. Next: train_loop.c, which polls the flag.
 *
 * Other signals keep their meaning: SIGQUIT ends the process with a core dump, for debugging. */
#include "cli/stop.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_NOTHING_KEPT = 1, EXIT_STOPPED = 75 };
enum { REPEAT_MS = 1000 }; /* the same signal again within this time is the same request */

static const char *volatile kept_line, *volatile lost_line; /* the handler may run at any time */
static volatile sig_atomic_t asked, pressed, kept_any;      /* pressed: the first signal's number */
static volatile int64_t pressed_ms;
static void (*volatile tell_one)(void *);
static void *volatile told_one;
static void (*former_sigpipe)(int) = SIG_DFL;
static volatile sig_atomic_t skipped_bytes; /* of those lines: no newline without a live line */

/* Requests to stop: by hand (SIGINT), by an administrator or a batch system (SIGTERM; SIGUSR1 and
 * SIGUSR2 before a job's end), by the end of the session (SIGHUP), by ulimit -t (SIGXCPU). */
static const int requests[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU };
enum { REQUEST_COUNT = sizeof(requests) / sizeof(*requests) };

static int64_t now_ms(void)
{
    struct timespec now = { 0 };
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* async-signal-safe */
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Is the signal the first request again? timeout(1) sends each signal twice: to the process, then
 * to its group. */
static int is_repeat(int number)
{
    return number == pressed && now_ms() - pressed_ms < REPEAT_MS;
}

static void on_signal(int number)
{
    /* The system repeats SIGXCPU every second; the hard limit ends the process. A lost terminal
     * sends SIGHUP twice, by the shell and by the system, and a logout sends it after SIGTERM. */
    if (is_repeat(number))
        return;
    if (pressed && number != SIGXCPU && number != SIGHUP) {
        const size_t skip = (size_t)skipped_bytes;
        const char *line = kept_any ? kept_line : lost_line;
        const ssize_t written = write(STDERR_FILENO, line + skip, strlen(line) - skip);
        (void)written;
        _exit(cli_stop_exit_code());
    }
    if (number != SIGHUP && !pressed) {
        pressed_ms = now_ms();
        pressed = number;
    }
    asked = 1;
    if (tell_one != NULL)
        tell_one(told_one);
}

int cli_stop_exit_code(void)
{
    return kept_any ? EXIT_STOPPED : EXIT_NOTHING_KEPT;
}

void cli_stop_kept(void)
{
    kept_any = 1;
}

void cli_stop_say_kept(const char *left)
{
    kept_line = left;
}

/* nohup(1) makes the process ignore SIGHUP, which is kept. Shells make background jobs ignore
 * SIGINT, which still requests a stop here. */
static int stays_ignored(int number)
{
    struct sigaction now;
    return number != SIGINT && number != SIGTERM && sigaction(number, NULL, &now) == 0 &&
           now.sa_handler == SIG_IGN;
}

coh_status cli_stop_install(int kept, const char *left, const char *lost)
{
    kept_any = kept;
    kept_line = left;
    lost_line = lost;
    skipped_bytes = isatty(STDERR_FILENO) ? 0 : 1;
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < REQUEST_COUNT; i++)
        if (!stays_ignored(requests[i]) && sigaction(requests[i], &action, NULL) != 0)
            return cli_fail(COH_ERR_INTERNAL, "cannot handle signals: %s", strerror(errno));
    /* The run continues if the reader of its progress ends. */
    former_sigpipe = signal(SIGPIPE, SIG_IGN);
    return COH_OK;
}

void cli_stop_uninstall(void)
{
    for (int i = 0; i < REQUEST_COUNT; i++)
        if (!stays_ignored(requests[i]))
            (void)signal(requests[i], SIG_DFL);
    (void)signal(SIGPIPE, former_sigpipe == SIG_ERR ? SIG_DFL : former_sigpipe);
}

void cli_stop_survive_limits(void)
{
    (void)signal(SIGXFSZ, SIG_IGN);
}

coh_status cli_stop_check(const char *when)
{
    return asked ? cli_fail(COH_ERR_STOPPED, "stopped on request %s", when) : COH_OK;
}

int cli_stop_asked(void)
{
    return asked != 0;
}

void cli_stop_tell(void (*tell)(void *), void *told)
{
    tell_one = NULL; /* never with the argument of the one before */
    told_one = told;
    tell_one = tell;
    if (asked && tell != NULL)
        tell(told);
}
