/* calls.h - what the generated calls (write_calls.py) share with the program that runs them. */
#ifndef COH_TESTS_API_CALLS_H
#define COH_TESTS_API_CALLS_H

#include <float.h>
#include <math.h>

#include "tests/api/objects.h"

/* ANY: a status and, if it is a failure, a sentence. REFUSED: a failure. ARGUMENT:
 * COH_ERR_ARGUMENT. */
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

/* Ends the case as failed if `status`, or this thread's sentence with it, is not what must be. */
void judge(coh_status status, int judges);
/* Adds an operator of `kind` with these attributes to a graph whose inputs it takes; judges that.
 */
void judge_kind(const coh_op_kind *kind, const void *attributes, size_t attribute_bytes,
                int judges);
/* A text that a function returned can be read. */
void look(const char *text);

#endif
