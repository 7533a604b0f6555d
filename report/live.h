/* live.h - follows a run's folder while the run trains.
 *
 *     run.json     read again after it was replaced    facts, how the run ended
 *     steps.jsonl  read on from the last whole line    sums, the last steps, a curve
 *     step-N/      listed                              the newest checkpoint
 *     lock         examined (cohobate/run.h)           does the run still hold it?
 *
 * The one idea: everything is kept in arrays of fixed length, so memory does not grow with the run,
 * and a line is read once. Next: cli/watch.h draws it. */
#ifndef COH_REPORT_LIVE_H
#define COH_REPORT_LIVE_H

#include <sys/stat.h>

#include "report/run.h"

enum {
    REPORT_LIVE_RECENT = 63,       /* steps */
    REPORT_LIVE_POINTS = 512,      /* of the curve */
    REPORT_LIVE_BLOCK = 64 * 1024, /* longer lines are left out */
    REPORT_LIVE_MOST = 8 << 20     /* bytes read by one call */
};

/* The mean loss of `stride` steps: `sum` over `count` of them. */
typedef struct report_live_point {
    double sum;
    uint32_t count;
} report_live_point;

typedef struct report_live {
    report_run run;      /* facts alone */
    struct stat seen;    /* of the run.json that was read */
    off_t offset, bytes; /* read so far, and the length, of steps.jsonl */
    double written_at;   /* seconds since 1970: its last change; 0: there is none */
    int is_in_long_line; /* its begin was left out */
    char *block;         /* REPORT_LIVE_BLOCK bytes */

    /* by line_count modulo REPORT_LIVE_RECENT */
    report_line recent[REPORT_LIVE_RECENT];
    uint64_t line_count; /* of steps; a resumed run repeats some */
    uint64_t skipped_count, slow_count, slow_step, bad_lines;
    double throttled_s, store_retries;
    double link_bytes[COH_LANE_COUNT];
    uint64_t validation_count;
    report_line validation, best_validation; /* the last and the lowest, if there was one */

    report_live_point points[REPORT_LIVE_POINTS]; /* of steps i * stride + 1 .. (i + 1) * stride */
    uint64_t stride;

    uint64_t saved_step; /* 0: no checkpoint */
    double saved_at;     /* seconds since 1970 */
    int is_saving;       /* a checkpoint is being written */

    int is_going; /* the folder is locked by a run */
    int64_t process;
} report_live;

/* Begins to follow a run; nothing is read of its steps yet. Fails: as report_run_read, and
 * COH_ERR_ARGUMENT if the run has not begun its first step. */
coh_status report_live_open(const char *folder, report_live *out_live);
void report_live_close(report_live *live); /* accepts a zeroed one */

/* Looks again, and reads at most REPORT_LIVE_MOST bytes of steps; *out_is_more is 1 if there are
 * more. After a call that finds is_going 0 and no more, nothing changes any longer.
 * Fails: COH_ERR_IO, COH_ERR_ARGUMENT (the folder is gone), COH_ERR_CORRUPT. */
coh_status report_live_look(report_live *live, int *out_is_more);

/* The newest step; NULL: there is none yet. */
const report_line *report_live_last(const report_live *live);

/* Means over the last steps. NaN: not known. */
typedef struct report_pace {
    uint64_t steps;
    double step_s, tokens_per_s, left_s, done; /* done: share of the steps */
    double waits[COH_LANE_COUNT];              /* shares of the time */
    double link_bytes[COH_LANE_COUNT];         /* of a step */
    double median_s;
} report_pace;
void report_live_pace(const report_live *live, report_pace *out_pace);

#endif
