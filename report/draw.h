/* draw.h - the forms of a report, each appended to a text. Inside of report/. */
#ifndef COH_REPORT_DRAW_H
#define COH_REPORT_DRAW_H

#include "base/file_text.h"
#include "report/report.h"

coh_status report_draw_text(const report_analysis *a, coh_text *out);
coh_status report_draw_json(const report_analysis *a, coh_text *out);
coh_status report_draw_html(const report_analysis *const *analyses, int count, coh_text *out);
coh_status report_draw_diff(const report_analysis *before, const report_analysis *after,
                            coh_text *out);

/* ---- of all forms ---- */

/* A part of the step shown: computing by opcode, waits by lane, the rest. Parts sum to the
 * window. */
typedef enum report_part_kind {
    REPORT_PART_COMPUTE,
    REPORT_PART_WAIT,
    REPORT_PART_ISSUE
} report_part_kind;
typedef struct report_part {
    char name[48];
    report_part_kind kind;
    uint64_t ns;
} report_part;
enum { REPORT_PARTS = 32 };
/* Fills at most REPORT_PARTS parts that are not 0; returns their number. */
int report_parts(const report_analysis *a, report_part out[REPORT_PARTS]);

/* Text in `columns` columns, cut or filled with spaces: negative: to the right. Counts characters
 * of UTF-8. */
coh_status report_add_cell(coh_text *out, const char *text, int columns);

#endif
