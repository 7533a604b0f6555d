/* trace_tables.h - storage of a trace (cohobate/trace.h), and the check that its tables agree.
 *
 * The one idea: a trace and all that it points to is one allocation, so that coh_trace_free is the
 * same for a plan's trace and for one that was read. */
#ifndef COH_PLANNER_TRACE_TABLES_H
#define COH_PLANNER_TRACE_TABLES_H

#include <stddef.h>

#include "cohobate/trace.h"

/* The latest time of a trace, 36 years: sums of a few times stay within 63 bits. */
#define COH_TRACE_TIME_MOST ((uint64_t)1 << 60)

/* The tables of a trace, to be filled. `texts` has room for the bytes asked for. */
typedef struct coh_trace_tables {
    const char **opcodes, **purposes;
    coh_trace_operator *operators;
    coh_trace_instruction *instructions;
    coh_trace_wait *waits;
    coh_trace_extent *extents;
    char *texts;
} coh_trace_tables;

/* Allocates a trace with zeroed tables of the counts in `counts`, and a zeroed step with spans for
 * each of counts->step_count. Copies the other numbers of `counts`. Free with coh_trace_free.
 * Fails: COH_ERR_FULL (a size overflows), COH_ERR_MEMORY. */
coh_status coh_trace_allocate(const coh_trace *counts, size_t text_bytes,
                              coh_trace_tables *out_tables, coh_trace **out_trace);

/* Copies `text` to *texts and moves *texts behind it; returns the copy. */
const char *coh_trace_text(const char *text, char **texts);

/* coh_plan_trace, with is_shared by instruction (NULL: 0 everywhere). */
coh_status coh_plan_trace_shared(const coh_plan *plan, const uint8_t *is_shared,
                                 coh_trace **out_trace);

/* Checks that all indices are within their tables, that all tables and texts are there and that
 * times and rates are possible. Fails: `failure`. */
coh_status coh_trace_check(const coh_trace *trace, coh_status failure);

#endif
