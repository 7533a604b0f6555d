/* stop.h - handles signals that request a stop: SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and
 * SIGXCPU. The first signal asks the running command to stop at the next safe point; the second
 * ends the process at once. The first signal again within one second is the same request. SIGHUP
 * counts as neither, it only asks; a repeated SIGXCPU ends nothing. SIGHUP, SIGUSR1, SIGUSR2 and
 * SIGXCPU stay ignored if they were ignored when the program started (nohup). */
#ifndef COH_CLI_STOP_H
#define COH_CLI_STOP_H

#include "cli/say.h"

/* Makes writes beyond ulimit -f fail with EFBIG, as on a full disk, by ignoring SIGXFSZ, which
 * would end the process. */
void cli_stop_survive_limits(void);

/* Installs the handlers; SIGPIPE is ignored while they are installed. `kept`: the work could be
 * resumed from what is already saved. `left`, `lost`: the message of a second signal if it could be
 * resumed, and if not; with a newline before (to end the live line) and after. They must live as
 * long as the process. */
coh_status cli_stop_install(int kept, const char *left, const char *lost);

/* Changes the message of a second signal if the work could be resumed, as `left` above. */
void cli_stop_say_kept(const char *left);

/* Restores the default: one signal ends the process. */
void cli_stop_uninstall(void);

/* Was a stop requested? */
int cli_stop_asked(void);

/* Calls `tell` with `told` when a stop is requested, or now if one was requested before; NULL: no
 * more. It is called in the handler, so it must be async-signal-safe. Of one thread at a time. */
void cli_stop_tell(void (*tell)(void *told), void *told);

/* Fails with COH_ERR_STOPPED and "stopped on request <when>" if a stop was requested. Any
 * thread. */
coh_status cli_stop_check(const char *when);

/* Records that the work can now be resumed. */
void cli_stop_kept(void);

/* The exit code of a stopped process: 75 if the work can be resumed, 1 if nothing was kept. */
int cli_stop_exit_code(void);

#endif
