/* calls.h - the interface between the generated calls (write_calls.py) and the program that runs
 * them. */
#ifndef COH_TESTS_API_CALLS_H
#define COH_TESTS_API_CALLS_H

#include <float.h>
#include <math.h>

#include "tests/api/objects.h"

/* ANY: a status and, for a failure, a message. REFUSED: a failure. ARGUMENT: COH_ERR_ARGUMENT. */
enum { MUST_ANY, MUST_REFUSED, MUST_ARGUMENT };

typedef struct call_case {
    const char *text; /* "engine NULL" */
    int judges;
} call_case;

typedef struct call_entry {
    const char *function;
    void (*call)(int what, int judges);
    const call_case *cases;
    int case_count;
} call_entry;

extern const call_entry call_entries[];
extern const int call_entry_count;

/* Ends the case as failed if `status`, or this thread's message with it, is not as required. */
void judge(coh_status status, int judges);
/* Adds an operator of `kind` with these attributes to a graph whose inputs fit; judges the
 * result. */
void judge_kind(const coh_op_kind *kind, const void *attributes, size_t attribute_bytes,
                int judges);
/* Checks that a text returned by a function is readable. */
void look(const char *text);

#endif
