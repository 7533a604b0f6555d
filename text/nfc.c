/* Normalizes text to NFC, run by run. The one idea: most characters are separate runs that NFC does
 * not change, found with one bit per character; only longer runs go through utf8proc, without the
 * characters that Unicode 9.0 does not treat. Next: nfc_tables.h, and normalize.c, the caller. */
#include "text/nfc.h"

#include <utf8proc.h>

#include "text/characters.h"
#include "text/nfc_tables.h"

/* No character below begins a combination or joins one from its left. */
#define FIRST_JOINING      0x300u
#define FIRST_JOINING_BYTE 0xcc
#define CHARACTERS         0x110000u

/* UTF8PROC_STABLE excludes compositions that NFC must not make. */
#define NFC (UTF8PROC_STABLE | UTF8PROC_COMPOSE)

struct coh_nfc {
    /* one bit per character: NFC treats it; it does not begin a run */
    uint8_t treated[CHARACTERS / 8], joining[CHARACTERS / 8];
    utf8proc_int32_t *parts, *sorted; /* characters of the current run */
    size_t part_capacity, sorted_capacity, part_count;
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

coh_status coh_nfc_create(coh_nfc **out_nfc)
{
    *out_nfc = NULL;
    coh_nfc *nfc;
    COH_TRY(COH_ALLOC(1, &nfc));
    for (size_t i = 0; i < coh_nfc_range_count; i++) {
        mark(nfc->treated, &coh_nfc_ranges[i]);
        if (coh_nfc_ranges[i].joins)
            mark(nfc->joining, &coh_nfc_ranges[i]);
    }
    *out_nfc = nfc;
    return COH_OK;
}

coh_status coh_nfc_copy(const coh_nfc *nfc, coh_nfc **out_nfc)
{
    coh_nfc *copy;
    *out_nfc = NULL;
    COH_TRY(COH_ALLOC(1, &copy));
    memcpy(copy->treated, nfc->treated, sizeof(copy->treated));
    memcpy(copy->joining, nfc->joining, sizeof(copy->joining));
    *out_nfc = copy;
    return COH_OK;
}

void coh_nfc_destroy(coh_nfc *nfc)
{
    if (!nfc)
        return;
    coh_free(nfc->sorted);
    coh_free(nfc->parts);
    coh_free(nfc);
}

/* ---- one run ---- */

static size_t class_of(utf8proc_int32_t value)
{
    return (size_t)utf8proc_get_property(value)->combining_class;
}

static coh_status decompose(coh_nfc *nfc, uint32_t value)
{
    enum { PARTS_MOST = 8 }; /* canonical decompositions have at most 4 */
    int boundary = 0;
    COH_TRY(COH_GROW(&nfc->parts, &nfc->part_capacity, nfc->part_count + PARTS_MOST));
    nfc->part_count +=
        (size_t)utf8proc_decompose_char((utf8proc_int32_t)value, nfc->parts + nfc->part_count,
                                        PARTS_MOST, UTF8PROC_DECOMPOSE, &boundary);
    return COH_OK;
}

/* Sorts parts[begin..end), whose classes are not 0, stably by class. Counting sort, since a text
 * may consist only of accents; utf8proc's own sort takes quadratic time. */
static coh_status sort_parts(coh_nfc *nfc, size_t begin, size_t end)
{
    size_t places[257] = { 0 }, count = end - begin;
    if (count < 2)
        return COH_OK;
    COH_TRY(COH_GROW(&nfc->sorted, &nfc->sorted_capacity, count));
    for (size_t i = begin; i < end; i++)
        places[class_of(nfc->parts[i]) + 1]++;
    for (size_t i = 1; i < 257; i++)
        places[i] += places[i - 1];
    for (size_t i = begin; i < end; i++)
        nfc->sorted[places[class_of(nfc->parts[i])]++] = nfc->parts[i];
    memcpy(nfc->parts + begin, nfc->sorted, count * sizeof(*nfc->parts));
    return COH_OK;
}

static coh_status sort_run(coh_nfc *nfc)
{
    size_t begin = 0;
    for (size_t i = 0; i <= nfc->part_count; i++) {
        if (i < nfc->part_count && class_of(nfc->parts[i]) != 0)
            continue;
        COH_TRY(sort_parts(nfc, begin, i));
        begin = i + 1;
    }
    return COH_OK;
}

/* `text` is one run of at least two characters, or a joining character that has none before it. */
static coh_status append_run(coh_nfc *nfc, const uint8_t *text, size_t byte_count,
                             coh_byte_list *out)
{
    size_t at = coh_utf8_character(text, byte_count);
    const uint32_t first = coh_utf8_value(text, at);
    nfc->part_count = 0;
    /* A later version may compose its new characters with the next one. */
    if (is_marked(nfc->treated, first))
        COH_TRY(decompose(nfc, first));
    else
        COH_TRY(coh_byte_list_add(out, text, at));
    for (size_t length; at < byte_count; at += length) {
        length = coh_utf8_character(text + at, byte_count - at);
        COH_TRY(decompose(nfc, coh_utf8_value(text + at, length)));
    }
    COH_TRY(sort_run(nfc));
    const utf8proc_ssize_t count =
        utf8proc_normalize_utf32(nfc->parts, (utf8proc_ssize_t)nfc->part_count, NFC);
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        uint8_t bytes[4];
        COH_TRY(coh_byte_list_add(out, bytes, coh_utf8_write((uint32_t)nfc->parts[i], bytes)));
    }
    return COH_OK;
}

/* ---- text ---- */

static int is_joining(const coh_nfc *nfc, const uint8_t *text, size_t length)
{
    if (length == 0 || text[0] < FIRST_JOINING_BYTE)
        return 0;
    return is_marked(nfc->joining, coh_utf8_value(text, length));
}

coh_status coh_nfc_append(coh_nfc *nfc, const uint8_t *text, size_t byte_count, int is_open,
                          coh_byte_list *out, size_t *out_consumed)
{
    size_t copied = 0;    /* text before this position is in `out` */
    size_t run_begin = 0; /* the current run; is_run: NFC may change it */
    int is_run = 0, has_run = 0;
    for (size_t at = 0, length; at <= byte_count; at += length) {
        int is_end = at == byte_count;
        length = is_end ? 1 : coh_utf8_character(text + at, byte_count - at);
        if (!is_end && is_joining(nfc, text + at, length)) {
            /* At the start of the text or after invalid bytes, it is a separate run. */
            if (!has_run)
                run_begin = at;
            has_run = is_run = 1;
            continue;
        }
        if (is_run && !(is_end && is_open)) {
            COH_TRY(coh_byte_list_add(out, text + copied, run_begin - copied));
            COH_TRY(append_run(nfc, text + run_begin, at - run_begin, out));
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
