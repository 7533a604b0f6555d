/* html.h - the parts of the HTML report. Inside of report/: page.c has the frame and the tables,
 * figures.c the drawings. All positions are in per cent, so a drawing fits any width and needs no
 * script. */
#ifndef COH_REPORT_HTML_H
#define COH_REPORT_HTML_H

#include "report/draw.h"

/* Appends at most `most` characters of a text: those of HTML escaped, control characters
 * replaced. */
coh_status report_add_escaped(coh_text *out, const char *text, int most);

/* Section bodies; each is called only if there is something to draw. */
coh_status report_figure_lanes(const report_analysis *a, coh_text *out);
coh_status report_figure_memory(const report_analysis *a, coh_text *out);
coh_status report_figure_curves(const report_analysis *const *analyses, int count, coh_text *out);
/* A bar from `begin` to `end`, shares of the width of its cell. */
coh_status report_figure_bar(const char *style, double begin, double end, coh_text *out);
/* The counts of a latency histogram that are not 0, as bars. */
coh_status report_figure_latency(const coh_trace_latency *latency, coh_text *out);
/* The class of the style sheet for an opcode; movers: "move". */
const char *report_style_of(const coh_trace *trace, uint32_t opcode, int lane);

#endif
