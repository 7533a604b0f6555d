/* pattern_choice.h - which pattern (pattern.h) each class of parameter groups has: a decision of
 * the search, stored in plan.json. A plain value: it can be copied and compared as it is. */
#ifndef COH_PLANNER_PATTERN_CHOICE_H
#define COH_PLANNER_PATTERN_CHOICE_H

#include "base/file_text.h"
#include "cohobate/plan.h"

/* Classes of parameter groups, by the kind of operator that introduces them. */
typedef enum coh_group_class {
    COH_CLASS_PLAIN,   /* always read whole: biases, norms, small weights */
    COH_CLASS_TABLE,   /* rows are gathered from, or passed over: embedding, classifier */
    COH_CLASS_PRODUCT, /* the weight of a product that may compute some output columns at a time */
    COH_CLASS_COUNT
} coh_group_class;

typedef enum coh_pattern_id {
    COH_PATTERN_REPLICATE,
    COH_PATTERN_SLICE,
    COH_PATTERN_COUNT
} coh_pattern_id;

typedef struct coh_pattern_choice {
    uint8_t of[COH_CLASS_COUNT]; /* coh_pattern_id, by class */
} coh_pattern_choice;

/* Returns the choice of the search: tables are sliced; products if they may be taken in more than
 * one of `slices` (coh_decisions). */
coh_pattern_choice coh_pattern_choose(int slices);
int coh_pattern_choice_equal(const coh_pattern_choice *a, const coh_pattern_choice *b);

/* Appends the canonical text, "plain=replicate,table=slice,product=replicate". Fails:
 * COH_ERR_MEMORY. */
coh_status coh_pattern_choice_write(const coh_pattern_choice *choice, coh_text *text);
/* Reads exactly such a text. Fails: COH_ERR_CORRUPT, also for a pattern that a class cannot
 * have. */
coh_status coh_pattern_choice_read(const char *text, coh_pattern_choice *out_choice);

#endif
