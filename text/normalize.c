/* Applies a tokenizer's normalization to the parts of a segment. The one idea: NFC keeps a tail
 * that more text may change; the later steps work character by character. Most characters are
 * separate runs that NFC does not change, found with one bit per character; only longer runs go
 * through utf8proc, without the characters that Unicode 9.0 does not treat. Next: nfc_tables.c, and
 * pipeline.c for the caller. */
#include "text/normalize.h"

#include <utf8proc.h>

#include "text/characters.h"

/* No character below begins a combination or joins one from its left. */
#define FIRST_JOINING_BYTE 0xcc
#define CHARACTERS         0x110000u

/* UTF8PROC_STABLE excludes compositions that NFC must not make. */
#define NFC (UTF8PROC_STABLE | UTF8PROC_COMPOSE)

/* One bit per character: NFC treats it; it does not begin a run. */
struct coh_nfc {
    uint8_t treated[CHARACTERS / 8], joining[CHARACTERS / 8];
};

static void mark(uint8_t *bits, const coh_nfc_range *range)
{
    for (uint32_t value = range->first; value <= range->last; value++)
        bits[value / 8] |= (uint8_t)(1u << value % 8);
}

static int is_marked(const uint8_t *bits, uint32_t value)
{
    return bits[value / 8] >> value % 8 & 1;
}

/* ---- creation ---- */

coh_status coh_normalizer_add_nfc(coh_normalizer *normalizer)
{
    COH_TRY(COH_ALLOC(1, &normalizer->nfc));
    for (size_t i = 0; i < coh_nfc_range_count; i++) {
        mark(normalizer->nfc->treated, &coh_nfc_ranges[i]);
        if (coh_nfc_ranges[i].joins)
            mark(normalizer->nfc->joining, &coh_nfc_ranges[i]);
    }
    return COH_OK;
}

coh_status coh_normalizer_add_step(coh_normalizer *normalizer, coh_slice from, coh_slice to)
{
    COH_TRY(COH_GROW(&normalizer->steps, &normalizer->step_capacity, normalizer->step_count + 1));
    coh_normalize_step *step = &normalizer->steps[normalizer->step_count++];
    COH_TRY(coh_byte_list_add(&step->from, from.bytes, from.count));
    return coh_byte_list_add(&step->to, to.bytes, to.count);
}

void coh_normalizer_fini(coh_normalizer *normalizer)
{
    for (size_t i = 0; i < normalizer->step_count && !normalizer->is_fork; i++) {
        coh_free(normalizer->steps[i].from.bytes);
        coh_free(normalizer->steps[i].to.bytes);
    }
    if (!normalizer->is_fork) {
        coh_free(normalizer->steps);
        coh_free(normalizer->nfc);
    }
    coh_free(normalizer->parts);
    coh_free(normalizer->sorted);
    coh_free(normalizer->tail.bytes);
    coh_free(normalizer->scratch[0].bytes);
    coh_free(normalizer->scratch[1].bytes);
    *normalizer = (coh_normalizer){ 0 };
}

coh_normalizer coh_normalizer_fork(const coh_normalizer *normalizer)
{
    return (coh_normalizer){ .nfc = normalizer->nfc,
                             .steps = normalizer->steps,
                             .step_count = normalizer->step_count,
                             .is_fork = 1 };
}

void coh_normalizer_restart(coh_normalizer *normalizer)
{
    normalizer->tail.count = 0;
    normalizer->is_begun = 0;
}

/* ---- NFC of one run ---- */

static size_t class_of(utf8proc_int32_t value)
{
    return (size_t)utf8proc_get_property(value)->combining_class;
}

static coh_status decompose(coh_normalizer *n, uint32_t value)
{
    enum { PARTS_MOST = 8 }; /* canonical decompositions have at most 4 */
    int boundary = 0;
    COH_TRY(COH_GROW(&n->parts, &n->part_capacity, n->part_count + PARTS_MOST));
    n->part_count +=
        (size_t)utf8proc_decompose_char((utf8proc_int32_t)value, n->parts + n->part_count,
                                        PARTS_MOST, UTF8PROC_DECOMPOSE, &boundary);
    return COH_OK;
}

/* Sorts parts[begin..end), whose classes are not 0, stably by class. Counting sort, since a text
 * may consist only of accents; utf8proc's own sort takes quadratic time. */
static coh_status sort_parts(coh_normalizer *n, size_t begin, size_t end)
{
    size_t places[257] = { 0 }, count = end - begin;
    if (count < 2)
        return COH_OK;
    COH_TRY(COH_GROW(&n->sorted, &n->sorted_capacity, count));
    for (size_t i = begin; i < end; i++)
        places[class_of(n->parts[i]) + 1]++;
    for (size_t i = 1; i < 257; i++)
        places[i] += places[i - 1];
    for (size_t i = begin; i < end; i++)
        n->sorted[places[class_of(n->parts[i])]++] = n->parts[i];
    memcpy(n->parts + begin, n->sorted, count * sizeof(*n->parts));
    return COH_OK;
}

static coh_status sort_run(coh_normalizer *n)
{
    size_t begin = 0;
    for (size_t i = 0; i <= n->part_count; i++) {
        if (i < n->part_count && class_of(n->parts[i]) != 0)
            continue;
        COH_TRY(sort_parts(n, begin, i));
        begin = i + 1;
    }
    return COH_OK;
}

/* `text` is one run of at least two characters, or a joining character that has none before it. */
static coh_status append_run(coh_normalizer *n, const uint8_t *text, size_t byte_count,
                             coh_byte_list *out)
{
    size_t at = coh_utf8_character(text, byte_count);
    const uint32_t first = coh_utf8_value(text, at);
    n->part_count = 0;
    /* A later version may compose its new characters with the next one. */
    if (is_marked(n->nfc->treated, first))
        COH_TRY(decompose(n, first));
    else
        COH_TRY(coh_byte_list_add(out, text, at));
    for (size_t length; at < byte_count; at += length) {
        length = coh_utf8_character(text + at, byte_count - at);
        COH_TRY(decompose(n, coh_utf8_value(text + at, length)));
    }
    COH_TRY(sort_run(n));
    const utf8proc_ssize_t count =
        utf8proc_normalize_utf32(n->parts, (utf8proc_ssize_t)n->part_count, NFC);
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        uint8_t bytes[4];
        COH_TRY(coh_byte_list_add(out, bytes, coh_utf8_write((uint32_t)n->parts[i], bytes)));
    }
    return COH_OK;
}

static int is_joining(const coh_nfc *nfc, const uint8_t *text, size_t length)
{
    if (length == 0 || text[0] < FIRST_JOINING_BYTE)
        return 0;
    return is_marked(nfc->joining, coh_utf8_value(text, length));
}

/* Appends the NFC form of text[0..*out_consumed) to `out`: of all of it, or, if it is open, of all
 * runs except the last. */
static coh_status append_nfc(coh_normalizer *n, const uint8_t *text, size_t byte_count, int is_open,
                             coh_byte_list *out, size_t *out_consumed)
{
    size_t copied = 0;    /* text before this position is in `out` */
    size_t run_begin = 0; /* the current run; is_run: NFC may change it */
    int is_run = 0, has_run = 0;
    for (size_t at = 0, length; at <= byte_count; at += length) {
        int is_end = at == byte_count;
        length = is_end ? 1 : coh_utf8_character(text + at, byte_count - at);
        if (!is_end && is_joining(n->nfc, text + at, length)) {
            /* At the start of the text or after invalid bytes, it is a separate run. */
            if (!has_run)
                run_begin = at;
            has_run = is_run = 1;
            continue;
        }
        if (is_run && !(is_end && is_open)) {
            COH_TRY(coh_byte_list_add(out, text + copied, run_begin - copied));
            COH_TRY(append_run(n, text + run_begin, at - run_begin, out));
            copied = at;
        }
        if (is_end)
            break;
        has_run = length != 0;
        is_run = 0;
        run_begin = at;
        length += !length;
    }
    *out_consumed = is_open && byte_count ? run_begin : byte_count;
    if (*out_consumed > copied)
        return coh_byte_list_add(out, text + copied, *out_consumed - copied);
    return COH_OK;
}

/* ---- segments ---- */

static coh_status replace(const coh_normalize_step *step, const uint8_t *text, size_t byte_count,
                          coh_byte_list *out)
{
    const uint8_t *from = step->from.bytes;
    size_t from_bytes = step->from.count, at = 0;
    while (at < byte_count) {
        const uint8_t *found = memmem(text + at, byte_count - at, from, from_bytes);
        size_t end = found ? (size_t)(found - text) : byte_count;
        COH_TRY(coh_byte_list_add(out, text + at, end - at));
        if (found)
            COH_TRY(coh_byte_list_add(out, step->to.bytes, step->to.count));
        at = found ? end + from_bytes : end;
    }
    return COH_OK;
}

static coh_status run_steps(coh_normalizer *normalizer, const uint8_t *text, size_t byte_count,
                            coh_byte_list *out)
{
    if (byte_count == 0)
        return COH_OK;
    for (size_t i = 0; i < normalizer->step_count; i++) {
        const coh_normalize_step *step = &normalizer->steps[i];
        int is_last = i + 1 == normalizer->step_count;
        coh_byte_list *to = is_last ? out : &normalizer->scratch[i & 1];
        if (!is_last)
            to->count = 0;
        if (step->from.count) {
            COH_TRY(replace(step, text, byte_count, to));
        } else {
            if (!normalizer->is_begun)
                COH_TRY(coh_byte_list_add(to, step->to.bytes, step->to.count));
            COH_TRY(coh_byte_list_add(to, text, byte_count));
        }
        text = to->bytes;
        byte_count = to->count;
    }
    normalizer->is_begun = 1;
    return normalizer->step_count ? COH_OK : coh_byte_list_add(out, text, byte_count);
}

coh_status coh_normalizer_append(coh_normalizer *normalizer, const uint8_t *text, size_t byte_count,
                                 int is_open, coh_byte_list *out)
{
    if (!normalizer->nfc)
        return run_steps(normalizer, text, byte_count, out);
    coh_byte_list *tail = &normalizer->tail, *composed = &normalizer->scratch[1];
    size_t consumed;
    if (tail->count) {
        COH_TRY(coh_byte_list_add(tail, text, byte_count));
        text = tail->bytes;
        byte_count = tail->count;
    }
    if (normalizer->step_count == 0)
        composed = out;
    else
        composed->count = 0;
    COH_TRY(append_nfc(normalizer, text, byte_count, is_open, composed, &consumed));
    if (tail->count)
        coh_byte_list_drop(tail, consumed);
    else
        COH_TRY(coh_byte_list_add(tail, text + consumed, byte_count - consumed));
    if (normalizer->step_count == 0)
        return COH_OK;
    return run_steps(normalizer, composed->bytes, composed->count, out);
}

coh_status coh_normalizer_apply(coh_normalizer *normalizer, coh_slice text, coh_byte_list *out)
{
    coh_status status =
        coh_normalizer_append(normalizer, (const uint8_t *)text.bytes, text.count, 0, out);
    coh_normalizer_restart(normalizer);
    return status;
}
