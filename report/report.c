/* Writes a report in the form asked for. The one idea: a form is built in memory and then written
 * whole, so a full disk leaves no half report. Next: text.c, json.c, page.c. */
#include "report/report.h"

#include <stdio.h>
#include <string.h>

#include "report/draw.h"

int report_parts(const report_analysis *a, report_part out[REPORT_PARTS])
{
    const report_window *w = &a->window;
    int count = 0;
    if (!a->has_window)
        return 0;
    for (uint32_t op = 0; op < w->trace->opcode_count; op++) {
        if (w->opcode_ns[op] == 0)
            continue;
        if (count == REPORT_PARTS - COH_LANE_COUNT - 1) { /* the rest in one part */
            out[count - 1].ns += w->opcode_ns[op];
            snprintf(out[count - 1].name, sizeof(out[0].name), "other");
            continue;
        }
        out[count] = (report_part){ .kind = REPORT_PART_COMPUTE, .ns = w->opcode_ns[op] };
        snprintf(out[count++].name, sizeof(out[0].name), "%.40s", w->trace->opcodes[op]);
    }
    for (int lane = 1; lane < COH_LANE_COUNT; lane++) {
        if (w->lanes[lane].exposed_ns == 0)
            continue;
        out[count] = (report_part){ .kind = REPORT_PART_WAIT, .ns = w->lanes[lane].exposed_ns };
        snprintf(out[count++].name, sizeof(out[0].name), "wait for %s",
                 coh_lane_name((coh_lane)lane));
    }
    if (w->issue_ns > 0) {
        out[count] = (report_part){ .kind = REPORT_PART_ISSUE, .ns = w->issue_ns };
        snprintf(out[count++].name, sizeof(out[0].name), "issue and end");
    }
    return count;
}

coh_status report_add_cell(coh_text *out, const char *text, int columns)
{
    const int width = columns < 0 ? -columns : columns;
    int used = 0;
    size_t bytes = 0;
    while (text[bytes] && used < width) {
        bytes++;
        while (((unsigned char)text[bytes] & 0xc0) == 0x80)
            bytes++;
        used++;
    }
    return coh_text_add(out, "%*s%.*s%*s", columns < 0 ? width - used : 0, "", (int)bytes, text,
                        columns < 0 ? 0 : width - used, "");
}

/* ---- writing ---- */

/* Replaces the characters that a report uses beyond ASCII, and any others by '?'. */
static void make_ascii(coh_text *text)
{
    static const struct {
        const char *from, *to;
    } table[] = { { "µ", "u" }, { "·", "-" }, { "█", "#" }, { "▌", "=" }, { "░", "." },
                  { "▒", ":" }, { "─", "-" }, { "×", "x" }, { "→", ">" } };
    size_t to = 0;
    for (size_t from = 0; from < text->bytes;) {
        const char *at = text->data + from;
        size_t bytes = 1;
        char letter = *at;
        if ((unsigned char)letter >= 0x80) {
            while (from + bytes < text->bytes && ((unsigned char)at[bytes] & 0xc0) == 0x80)
                bytes++;
            letter = '?';
            for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
                if (strlen(table[i].from) == bytes && memcmp(at, table[i].from, bytes) == 0)
                    letter = table[i].to[0];
        }
        text->data[to++] = letter;
        from += bytes;
    }
    text->data[to] = '\0';
    text->bytes = to;
}

static coh_status finish(coh_status status, report_form form, const char *path, coh_text *text)
{
    if (status == COH_OK && form == REPORT_ASCII)
        make_ascii(text);
    if (status == COH_OK && path)
        status = coh_file_write_whole(path, text->data, text->bytes);
    else if (status == COH_OK)
        (void)fwrite(text->data, 1, text->bytes, stdout); /* stdio keeps an error for the caller */
    coh_text_fini(text);
    return status;
}

coh_status report_write(const report_analysis *const *analyses, int count, report_form form,
                        const char *path)
{
    coh_text text = { 0 };
    coh_status status;
    if (form == REPORT_HTML)
        status = report_draw_html(analyses, count, &text);
    else if (form == REPORT_JSON)
        status = report_draw_json(analyses[0], &text);
    else
        status = report_draw_text(analyses[0], &text);
    return finish(status, form, path, &text);
}

coh_status report_diff(const report_analysis *before, const report_analysis *after,
                       report_form form)
{
    coh_text text = { 0 };
    return finish(report_draw_diff(before, after, &text), form, NULL, &text);
}
