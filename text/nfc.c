/* Normalizes text to NFC, run by run. The one idea: most characters are separate runs that NFC does
 * not change, found with one bit per character; only longer runs take the full algorithm. Next:
 * nfc_tables.h for the data, normalize.c for the caller. */
#include "text/nfc.h"

#include "text/characters.h"
#include "text/nfc_tables.h"

#define HANGUL_L     0x1100u
#define HANGUL_V     0x1161u
#define HANGUL_T     0x11a7u /* one before the first; this value means no final consonant */
#define HANGUL_S     0xac00u
#define HANGUL_L_ALL 19u
#define HANGUL_V_ALL 21u
#define HANGUL_T_ALL 28u
#define HANGUL_S_ALL (HANGUL_L_ALL * HANGUL_V_ALL * HANGUL_T_ALL)

/* No character below begins a combination or joins one from its left. */
#define FIRST_JOINING      0x300u
#define FIRST_JOINING_BYTE 0xcc
#define CHARACTERS         0x110000u

/* A character of the current run. */
typedef struct part {
    uint32_t value;
    uint8_t combining;
} part;

struct coh_nfc {
    uint8_t joining[CHARACTERS / 8]; /* one bit per character: it does not begin a run */
    part *parts, *sorted;
    size_t part_capacity, sorted_capacity, part_count;
};

/* ---- tables ---- */

static uint8_t combining_class(uint32_t value)
{
    size_t low = 0, high = coh_nfc_class_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const coh_nfc_class *row = &coh_nfc_classes[middle];
        if (value >= row->first && value <= row->last)
            return row->combining;
        if (value < row->first)
            high = middle;
        else
            low = middle + 1;
    }
    return 0;
}

/* Decomposes `value` by one step; returns the number of characters, 1 if it has no
 * decomposition. */
static int decompose_once(uint32_t value, uint32_t out[2])
{
    size_t low = 0, high = coh_nfc_pair_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const coh_nfc_pair *row = &coh_nfc_pairs[middle];
        if (row->code == value) {
            out[0] = row->first;
            out[1] = row->second;
            return 2;
        }
        if (value < row->code)
            high = middle;
        else
            low = middle + 1;
    }
    for (low = 0, high = coh_nfc_single_count; low < high;) {
        size_t middle = (low + high) / 2;
        const coh_nfc_single *row = &coh_nfc_singles[middle];
        if (row->code == value) {
            out[0] = row->other;
            return 1;
        }
        if (value < row->code)
            high = middle;
        else
            low = middle + 1;
    }
    out[0] = value;
    return 1;
}

/* The composition of two characters; 0: none. */
static uint32_t compose(uint32_t first, uint32_t second)
{
    if (first - HANGUL_L < HANGUL_L_ALL && second - HANGUL_V < HANGUL_V_ALL)
        return HANGUL_S + ((first - HANGUL_L) * HANGUL_V_ALL + (second - HANGUL_V)) * HANGUL_T_ALL;
    if (first - HANGUL_S < HANGUL_S_ALL && (first - HANGUL_S) % HANGUL_T_ALL == 0 &&
        second > HANGUL_T && second < HANGUL_T + HANGUL_T_ALL)
        return first + (second - HANGUL_T);
    size_t low = 0, high = coh_nfc_composing_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const coh_nfc_pair *row = &coh_nfc_pairs[coh_nfc_composing[middle]];
        if (row->first == first && row->second == second)
            return row->code;
        if (first < row->first || (first == row->first && second < row->second))
            high = middle;
        else
            low = middle + 1;
    }
    return 0;
}

static void mark_joining(coh_nfc *nfc, uint32_t first, uint32_t last)
{
    for (uint32_t value = first; value <= last; value++)
        nfc->joining[value / 8] |= (uint8_t)(1u << value % 8);
}

coh_status coh_nfc_create(coh_nfc **out_nfc)
{
    *out_nfc = NULL;
    coh_nfc *nfc;
    COH_TRY(COH_ALLOC(1, &nfc));
    for (size_t i = 0; i < coh_nfc_class_count; i++)
        mark_joining(nfc, coh_nfc_classes[i].first, coh_nfc_classes[i].last);
    for (size_t i = 0; i < coh_nfc_single_count; i++)
        mark_joining(nfc, coh_nfc_singles[i].code, coh_nfc_singles[i].code);
    for (size_t i = 0; i < coh_nfc_pair_count; i++) {
        const coh_nfc_pair *row = &coh_nfc_pairs[i];
        uint32_t joins = row->is_composed ? row->second : row->code;
        mark_joining(nfc, joins, joins);
    }
    mark_joining(nfc, HANGUL_V, HANGUL_V + HANGUL_V_ALL - 1);
    mark_joining(nfc, HANGUL_T + 1, HANGUL_T + HANGUL_T_ALL - 1);
    *out_nfc = nfc;
    return COH_OK;
}

coh_status coh_nfc_copy(const coh_nfc *nfc, coh_nfc **out_nfc)
{
    coh_nfc *copy;
    *out_nfc = NULL;
    COH_TRY(COH_ALLOC(1, &copy));
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

static coh_status add_part(coh_nfc *nfc, uint32_t value)
{
    COH_TRY(COH_GROW(&nfc->parts, &nfc->part_capacity, nfc->part_count + 1));
    nfc->parts[nfc->part_count++] = (part){ value, combining_class(value) };
    return COH_OK;
}

static coh_status decompose(coh_nfc *nfc, uint32_t value)
{
    if (value - HANGUL_S < HANGUL_S_ALL) {
        uint32_t index = value - HANGUL_S;
        COH_TRY(add_part(nfc, HANGUL_L + index / (HANGUL_V_ALL * HANGUL_T_ALL)));
        COH_TRY(add_part(nfc, HANGUL_V + index / HANGUL_T_ALL % HANGUL_V_ALL));
        return index % HANGUL_T_ALL ? add_part(nfc, HANGUL_T + index % HANGUL_T_ALL) : COH_OK;
    }
    /* The first of the two may decompose further, the second never does. */
    uint32_t parts[2], seconds[4];
    size_t second_count = 0;
    for (;;) {
        int count = decompose_once(value, parts);
        if (count == 2 && second_count < sizeof(seconds) / sizeof(seconds[0]))
            seconds[second_count++] = parts[1];
        else if (parts[0] == value)
            break;
        value = parts[0];
    }
    COH_TRY(add_part(nfc, value));
    while (second_count > 0)
        COH_TRY(add_part(nfc, seconds[--second_count]));
    return COH_OK;
}

/* Sorts parts[begin..end), whose classes are not 0, stably by class. Counting sort, since a text
 * may consist only of accents. */
static coh_status sort_parts(coh_nfc *nfc, size_t begin, size_t end)
{
    size_t places[257] = { 0 }, count = end - begin;
    if (count < 2)
        return COH_OK;
    COH_TRY(COH_GROW(&nfc->sorted, &nfc->sorted_capacity, count));
    for (size_t i = begin; i < end; i++)
        places[nfc->parts[i].combining + 1]++;
    for (size_t i = 1; i < 257; i++)
        places[i] += places[i - 1];
    for (size_t i = begin; i < end; i++)
        nfc->sorted[places[nfc->parts[i].combining]++] = nfc->parts[i];
    memcpy(nfc->parts + begin, nfc->sorted, count * sizeof(part));
    return COH_OK;
}

static coh_status sort_run(coh_nfc *nfc)
{
    size_t begin = 0;
    for (size_t i = 0; i <= nfc->part_count; i++) {
        if (i < nfc->part_count && nfc->parts[i].combining)
            continue;
        COH_TRY(sort_parts(nfc, begin, i));
        begin = i + 1;
    }
    return COH_OK;
}

/* Composes each part with the last one of class 0, unless a part of its class or a higher one, or
 * of class 0, is between them. */
static void compose_run(coh_nfc *nfc)
{
    size_t kept = 0, starter = SIZE_MAX;
    for (size_t i = 0; i < nfc->part_count; i++) {
        part now = nfc->parts[i];
        int is_next = starter != SIZE_MAX && starter + 1 == kept;
        int is_free =
            starter != SIZE_MAX && (is_next || (nfc->parts[kept - 1].combining < now.combining &&
                                                nfc->parts[kept - 1].combining != 0));
        uint32_t joined = is_free ? compose(nfc->parts[starter].value, now.value) : 0;
        if (joined) {
            nfc->parts[starter].value = joined;
            continue;
        }
        if (now.combining == 0)
            starter = kept;
        nfc->parts[kept++] = now;
    }
    nfc->part_count = kept;
}

/* `text` is one run of at least two characters, or a joining character that has none before it. */
static coh_status append_run(coh_nfc *nfc, const uint8_t *text, size_t byte_count,
                             coh_byte_list *out)
{
    nfc->part_count = 0;
    for (size_t at = 0, length; at < byte_count; at += length) {
        length = coh_utf8_character(text + at, byte_count - at);
        COH_TRY(decompose(nfc, coh_utf8_value(text + at, length)));
    }
    COH_TRY(sort_run(nfc));
    compose_run(nfc);
    for (size_t i = 0; i < nfc->part_count; i++) {
        uint8_t bytes[4];
        COH_TRY(coh_byte_list_add(out, bytes, coh_utf8_write(nfc->parts[i].value, bytes)));
    }
    return COH_OK;
}

/* ---- text ---- */

static int is_joining(const coh_nfc *nfc, const uint8_t *text, size_t length)
{
    if (length == 0 || text[0] < FIRST_JOINING_BYTE)
        return 0;
    uint32_t value = coh_utf8_value(text, length);
    return nfc->joining[value / 8] >> value % 8 & 1;
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
