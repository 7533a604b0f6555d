/* analysis.h - what a step did: busy and idle time of each lane, what compute waited for, memory,
 * and how far predictions were from it.
 *
 *     compute |  FWD 3  |/////|  FWD 4  |         a gap is charged to the wait that ended last ...
 *     read    | chunk 8 | chunk 9 |               ... which is chunk 9
 *
 * The window of a step begins with its first compute instruction and ends with that of the next
 * step, if that one was recorded, else with the end of its last instruction. In the window, the
 * busy time of a lane is the union of its spans, those of the neighbouring steps included.
 *
 * A gap is charged twice. *Exposed* time belongs to the lane of the wait that ended last. *Blame*
 * follows the chain further: while that instruction did not run, the time belongs to whatever it
 * waited for. Both sum to the idle time.
 *
 * Without a recorded step the predicted spans take their place. */
#ifndef COH_REPORT_ANALYSIS_H
#define COH_REPORT_ANALYSIS_H

#include "report/run.h"

/* A gap whose cause is no instruction: the work of issuing, or the end of what was recorded. */
#define REPORT_LANE_NONE COH_LANE_COUNT

typedef struct report_gap {
    uint64_t begin_ns, end_ns; /* from the window's begin */
    uint32_t before;           /* the instruction after it */
    uint32_t waited;           /* the wait that ended last; COH_TRACE_NONE: none */
    int lane;                  /* of it; or REPORT_LANE_NONE */
} report_gap;

/* A span in the window. `slot`: 0 the step before, 1 this step, 2 the next one. */
typedef struct report_piece {
    uint64_t begin_ns, end_ns; /* from the window's begin */
    uint32_t instruction;
    int slot;
} report_piece;

typedef struct report_lane {
    report_piece *pieces; /* by begin; clipped to the window */
    uint32_t piece_count;
    uint64_t busy_ns, exposed_ns, hidden_ns; /* exposed + hidden = busy, of lanes but compute */
    uint64_t blame_ns;
    uint64_t bytes;                        /* of the step's instructions */
    uint32_t instruction_count, in_flight; /* of the step; the most at once */
    uint64_t durations_ns, predicted_ns;   /* sums over the step's instructions */
} report_lane;

typedef struct report_window {
    const coh_trace *trace;
    uint64_t step; /* its number */
    int is_predicted, has_next;
    uint64_t window_ns;
    const coh_trace_span *spans[3]; /* of the slots; NULL: not recorded */
    int64_t shift_ns[3];            /* from a slot's times to those of the window */
    report_lane lanes[COH_LANE_COUNT];
    uint64_t idle_ns, issue_ns; /* of compute; issue: charged to no instruction */
    uint64_t *opcode_ns;        /* compute time by opcode; they sum to compute's busy time */
    uint64_t *blame_ns;         /* by instruction */
    report_gap *gaps;
    uint32_t gap_count;
    coh_trace_span *predicted; /* owned, if is_predicted */
} report_window;

/* Analyses recorded step `index`, or the predicted step for UINT32_MAX. Fails: COH_ERR_MEMORY;
 * COH_ERR_ARGUMENT: the step has no span on the compute lane. */
coh_status report_window_open(const coh_trace *trace, uint32_t index, report_window *out_window);
void report_window_close(report_window *window);

/* An operator's time on compute and host lanes, over a step. */
typedef struct report_operator {
    uint32_t index;
    double predicted_s, measured_s; /* measured: NaN without recorded steps */
    double flops;
} report_operator;

/* Bytes in use along the window: `points` parts of equal length; of each the moment when the tier
 * is fullest, by purpose. */
enum { REPORT_POINTS = 240 };
typedef struct report_memory {
    uint32_t purpose_count;
    uint64_t *bytes;                     /* [tier][point][purpose] */
    uint64_t peak_bytes[COH_TIER_COUNT]; /* with the pinned bytes */
} report_memory;

typedef enum report_kind {
    REPORT_COMPUTE,
    REPORT_WAITS,       /* for a lane at its expected rate */
    REPORT_SLOW_LINK,   /* below its profile's rate */
    REPORT_SMALL_CHUNK, /* latency, not the rate, fills the lane */
    REPORT_LATE_UPDATE,
    REPORT_BUSY_CORE,     /* compute slower than predicted on all instructions alike */
    REPORT_SLOW_OPERATOR, /* some of them */
    REPORT_THROTTLED,
    REPORT_FAULTS,
    REPORT_ISSUE,
    REPORT_KINDS
} report_kind;

typedef struct report_cause {
    report_kind kind;
    double seconds; /* of the step shown */
    double saved_s; /* the step shown is shorter by this without it: other waits remain */
    int lane;       /* or REPORT_LANE_NONE */
    uint32_t instruction, operator_index; /* the worst of it; or COH_TRACE_NONE */
    char text[320];                       /* a sentence */
} report_cause;

typedef struct report_action {
    char text[256];
    double gain;              /* of tokens per second: 0.06 is 6 % */
    double before_s, after_s; /* the step behind the gain: planned as it is, or the one shown */
    const char *source;       /* "planned", "planned quickly", "replayed", "estimated" */
    char basis[176];          /* "replayed: step 3 takes 80.0 ms instead of 100 ms" */
    int is_guess;             /* it rests on times by built-in constants, not calibrated */
} report_action;

/* A plan made for another machine or budget, by the caller. */
typedef struct report_what_if {
    char text[128];
    double step_s, gain; /* NaN: does not fit */
    int is_link;         /* the change is a faster link or drive */
    int is_quick;        /* 1: of the quick search, though the run had the usual one */
    char limit[48];
    double peak_bytes[COH_TIER_COUNT];
} report_what_if;

enum { REPORT_CAUSES = 8, REPORT_ACTIONS = 3, REPORT_WHAT_IFS = 16, REPORT_SLOW_STEPS = 8 };

typedef struct report_slow_step {
    uint64_t step; /* counted from 1 */
    double seconds;
    char why[160];
} report_slow_step;

typedef struct report_analysis {
    const report_run *run;
    int has_window;  /* 0: there is no trace */
    int is_measured; /* 1: the window is of a recorded step */
    report_window window;
    uint32_t measured_count; /* recorded steps behind the operators' times */
    report_operator *operators;
    uint32_t operator_count;
    report_memory memory;
    /* Steps since the run was begun or resumed: those before had another plan, or may have. */
    size_t timed_count;
    double step_s, predicted_s; /* median of these steps; if nothing ran, the predicted one */
    double first_s, least_s, most_s;
    double tokens_per_s, utilisation, of_in_memory; /* NaN: not known */
    report_cause causes[REPORT_CAUSES]; /* by saved_s, the largest first; computing last */
    int cause_count;
    report_action actions[REPORT_ACTIONS];
    int action_count;
    report_what_if what_ifs[REPORT_WHAT_IFS]; /* filled by the caller before */
    int what_if_count, unplanned_count;       /* those left out, because time was short, too */
    int needs_no_memory;                      /* 1: rows with more of it are left out, too */
    report_slow_step slow_steps[REPORT_SLOW_STEPS];
    int slow_count; /* all of them */
    char verdict[640];
} report_analysis;

/* Analyses a run. The caller may have filled what_ifs; the rest of *out is overwritten. Fails:
 * COH_ERR_MEMORY. */
coh_status report_analyse(const report_run *run, report_analysis *out);
void report_analysis_close(report_analysis *analysis);

/* Plays the window's program with a duration for each instruction, until the steps repeat; returns
 * the time of a step. Fails: COH_ERR_MEMORY. */
coh_status report_replay(const report_window *window, const uint64_t *durations,
                         uint64_t *out_step_ns);
/* The span of an instruction as it was (or predicted), in nanoseconds; 0: not recorded. */
uint64_t report_duration(const report_window *window, uint32_t instruction);

/* Names the causes and actions, and writes the verdict: verdict.c. */
coh_status report_judge(report_analysis *analysis);

const char *report_kind_name(report_kind kind); /* "slow link" */

#endif
