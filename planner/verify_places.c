/* Checks the places of extents and file ranges: alignment, overlap in the file, arena sizes, peaks,
 * and bytes written per run (rules ALIGNMENT, OVERLAP, CAPACITY, WEAR). Lifetimes are checked in
 * verify_lifetime.c; the list of files is in verify_state.h. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "planner/verify_state.h"

static int is_paged(uint64_t offset, uint64_t bytes)
{
    return offset % COH_PAGE_BYTES == 0 && bytes % COH_PAGE_BYTES == 0;
}

static int is_inside(uint64_t offset, uint64_t bytes, uint64_t limit)
{
    return offset <= limit && bytes <= limit - offset;
}

/* ---- arenas ---- */

static coh_status check_extents(coh_verifier *v, uint64_t *highest)
{
    const uint64_t *arena_bytes = v->layout->arena_bytes;
    highest[COH_TIER_DEVICE] = v->layout->pinned_bytes;
    for (uint32_t i = 0; i < v->program->extent_count; i++) {
        const coh_extent *extent = &v->program->extents[i];
        if (!is_paged(extent->offset, extent->bytes) ||
            !is_inside(extent->offset, extent->bytes, arena_bytes[extent->tier]))
            COH_TRY(coh_verify_breach(
                v, COH_RULE_ALIGNMENT, COH_NO_INSTRUCTION, extent->chunk,
                "extent %" PRIu32 " at %" PRIu64 " + %" PRIu64
                " is not whole pages inside the %s arena of %" PRIu64 " bytes",
                i, extent->offset, extent->bytes, coh_tier_name((coh_tier)extent->tier),
                arena_bytes[extent->tier]));
        if (extent->offset + extent->bytes > highest[extent->tier])
            highest[extent->tier] = extent->offset + extent->bytes;
    }
    return COH_OK;
}

static coh_status check_capacity(coh_verifier *v, const uint64_t *highest)
{
    for (int tier = COH_TIER_DEVICE; tier <= COH_TIER_HOST; tier++) {
        if (highest[tier] > v->options->budget_bytes[tier])
            COH_TRY(coh_verify_breach(
                v, COH_RULE_CAPACITY, COH_NO_INSTRUCTION, UINT32_MAX,
                "the highest extent of the %s tier ends at %" PRIu64 ", the budget is %" PRIu64,
                coh_tier_name((coh_tier)tier), highest[tier], v->options->budget_bytes[tier]));
        if (highest[tier] != v->program->peak_bytes[tier])
            COH_TRY(coh_verify_breach(v, COH_RULE_CAPACITY, COH_NO_INSTRUCTION, UINT32_MAX,
                                      "it says a peak of %" PRIu64 " bytes in the %s tier, its "
                                      "extents end at %" PRIu64,
                                      v->program->peak_bytes[tier], coh_tier_name((coh_tier)tier),
                                      highest[tier]));
    }
    if (v->layout->file_bytes > v->options->budget_bytes[COH_TIER_DISK])
        COH_TRY(coh_verify_breach(v, COH_RULE_CAPACITY, COH_NO_INSTRUCTION, UINT32_MAX,
                                  "the working store has %" PRIu64 " bytes, the budget is %" PRIu64,
                                  v->layout->file_bytes, v->options->budget_bytes[COH_TIER_DISK]));
    return COH_OK;
}

/* ---- the file ---- */

typedef struct file_place {
    uint64_t offset, bytes;
    uint32_t chunk;
} file_place;

static int by_offset(const void *a, const void *b)
{
    const file_place *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Stamps the chunks that need a place in the file: those touched there, and survivors that are
 * stored there. */
static void stamp_file_chunks(coh_verifier *v)
{
    for (uint32_t c = 0; v->layout->file_bytes > 0 && c < v->layout->chunk_count; c++)
        v->chunk_stamps[c] = coh_chunk_object(v, c)->survives && !coh_chunk_object(v, c)->pinned;
    for (uint32_t i = 0; i < v->layout->resident_count; i++)
        v->chunk_stamps[v->layout->residents[i].chunk] = 0;
    for (uint32_t i = 0; i < v->program->instruction_count; i++)
        for (uint32_t o = 0; o < v->program->instructions[i].operand_count; o++) {
            const coh_operand *operand = &coh_instruction_operands(v, i)[o];
            for (uint32_t t = 0; operand->tier == COH_TIER_DISK && t < operand->touch_count; t++)
                v->chunk_stamps[coh_operand_touches(v, operand)[t].chunk] = 1;
        }
}

static coh_status check_file_places(coh_verifier *v, file_place *places)
{
    size_t count = 0;
    stamp_file_chunks(v);
    for (uint32_t c = 0; c < v->layout->chunk_count; c++) {
        const coh_chunk *chunk = &v->layout->chunks[c];
        if (v->chunk_stamps[c] == 0)
            continue;
        v->chunk_stamps[c] = 0;
        const uint64_t offsets[] = { chunk->file_offset, chunk->odd_offset };
        for (int home = 0; home < 1 + coh_chunk_keeps_old(v->layout, c); home++) {
            places[count++] = (file_place){ offsets[home], chunk->bytes, c };
            if (!is_paged(offsets[home], chunk->bytes) ||
                !is_inside(offsets[home], chunk->bytes, v->layout->file_bytes))
                COH_TRY(coh_verify_breach(v, COH_RULE_ALIGNMENT, COH_NO_INSTRUCTION, c,
                                          "its place in the file, %" PRIu64 " + %" PRIu64
                                          ", is not whole pages inside %" PRIu64 " bytes",
                                          offsets[home], chunk->bytes, v->layout->file_bytes));
        }
    }
    qsort(places, count, sizeof(*places), by_offset);
    for (size_t i = 1; i < count; i++)
        if (places[i - 1].bytes > places[i].offset - places[i - 1].offset)
            COH_TRY(coh_verify_breach(v, COH_RULE_OVERLAP, COH_NO_INSTRUCTION, places[i].chunk,
                                      "its place in the file, %" PRIu64
                                      ", lies in that of chunk %" PRIu32,
                                      places[i].offset, places[i - 1].chunk));
    return COH_OK;
}

static coh_status check_wear(coh_verifier *v)
{
    uint64_t written = 0;
    for (uint32_t i = 0; i < v->program->instruction_count; i++)
        for (uint32_t o = 0; o < v->program->instructions[i].operand_count; o++) {
            const coh_operand *operand = &coh_instruction_operands(v, i)[o];
            if (operand->tier == COH_TIER_DISK && (operand->access & COH_ACCESS_WRITE))
                written += operand->bytes;
        }
    if (v->options->wear_bytes != 0 && written > v->options->wear_bytes)
        COH_TRY(coh_verify_breach(v, COH_RULE_WEAR, COH_NO_INSTRUCTION, UINT32_MAX,
                                  "a run writes %" PRIu64 " bytes to disk, the limit is %" PRIu64,
                                  written, v->options->wear_bytes));
    return COH_OK;
}

coh_status coh_verify_places(coh_verifier *v)
{
    uint64_t highest[COH_TIER_COUNT] = { 0 };
    file_place *places = NULL;
    COH_TRY(check_extents(v, highest));
    COH_TRY(check_capacity(v, highest));
    COH_TRY(check_wear(v));
    COH_TRY(COH_ALLOC(2 * (size_t)v->layout->chunk_count, &places));
    coh_status status = check_file_places(v, places);
    coh_free(places);
    return status;
}
