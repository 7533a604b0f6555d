/* stop.h - signals that ask for a stop: SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU. The
 * first asks the running command to stop where it can; the second ends the process at once. SIGHUP,
 * SIGUSR1, SIGUSR2 and SIGXCPU stay ignored where they were as the program began (nohup). */
#ifndef COH_CLI_STOP_H
#define COH_CLI_STOP_H

#include "cli/say.h"

/* Writes beyond ulimit -f fail with EFBIG from now on, as on a full disk: SIGXFSZ, which would end
 * the process, is ignored. */
void cli_stop_survive_limits(void);

/* From now on; SIGPIPE is ignored meanwhile. `kept`: something is there that the work can be
 * resumed from. `left`, `lost`: the line of a second signal where that is so, and where it is not,
 * with a newline before (of a line that is being written over) and after; they live as long as the
 * process. */
coh_status cli_stop_install(int kept, const char *left, const char *lost);

/* The system's way again: one ends the process. */
void cli_stop_uninstall(void);

/* Has there been one? */
int cli_stop_asked(void);

/* COH_ERR_STOPPED with "stopped on request <when>" where there has been one. Any thread. */
coh_status cli_stop_check(const char *when);

/* From now on something is kept. */
void cli_stop_kept(void);

/* Of a process that was stopped: 75 where the work can go on, 1 where nothing was kept. */
int cli_stop_exit_code(void);

#endif
