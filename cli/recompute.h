/* recompute.h - reports the cost when most of the forward pass is recomputed in backward: its time,
 * and the device memory that would avoid it.
 *
 * The memory is found by planning again with more memory, at a few sizes below that of a run that
 * keeps everything in memory. That size is the answer if no smaller one is found. */
#ifndef COH_CLI_RECOMPUTE_H
#define COH_CLI_RECOMPUTE_H

#include "cli/job.h"

typedef struct cli_recompute {
    double seconds; /* of a step's compute time; 0: no recompute */
    double of_forward, of_compute, of_step;
    int is_large;     /* of_forward is more than half */
    int is_asked_for; /* requested by --recompute or a pin */
    /* With this device memory and otherwise equal options, recompute is not large. 0: it is not
     * large now, it is requested, or the step is too long to plan again (20,000 lines). */
    uint64_t end_bytes;
    double end_of_forward; /* of that plan */
    int is_planned;        /* such a plan was made; else end_bytes keeps all on the device */
} cli_recompute;

/* Makes up to two plans if recompute is large and the job's plan was searched.
 * Fails: COH_ERR_MEMORY. */
coh_status cli_recompute_find(const cli_job *job, uint64_t in_memory_bytes,
                              cli_recompute *out_recompute);

/* "repeat: 97 % of the forward pass ..."; adds nothing if recompute is not large. */
void cli_recompute_add(const cli_recompute *recompute, cli_line *line);

#endif
