/* What the measuring of lines stands on: the lines of a body as the planner writes them, and memory
 * in which what they touch is placed. */
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/rng.h"
#include "engine/measure.h"

/* ---- lines ---- */

coh_status coh_measure_sheet_init(const coh_graph *graph, uint64_t chunk_bytes, int with_cache,
                                  coh_measure_sheet *out_sheet)
{
    coh_plan_options options;
    const coh_block_set none = { 0 }; /* is recomputed */
    *out_sheet = (coh_measure_sheet){ .graph = graph };
    coh_plan_options_init(&options);
    options.mode = graph->loss >= 0 ? COH_PLAN_TRAIN : COH_PLAN_INFER;
    coh_status status = coh_layout_build(graph, &options, chunk_bytes, with_cache, 1,
                                         &out_sheet->layout, &out_sheet->map);
    if (status == COH_OK)
        status = coh_lower(graph, &options, &out_sheet->layout, &out_sheet->map, &none, 1, 0,
                           COH_PROGRAM_BODY, &out_sheet->sheet);
    if (status != COH_OK)
        coh_measure_sheet_fini(out_sheet);
    return status;
}

void coh_measure_sheet_fini(coh_measure_sheet *sheet)
{
    coh_sheet_fini(&sheet->sheet);
    coh_object_map_fini(&sheet->map);
    coh_layout_fini(&sheet->layout);
    *sheet = (coh_measure_sheet){ 0 };
}

const coh_need *coh_sheet_need(const coh_sheet *sheet, const coh_sheet_line *line, coh_role role)
{
    for (uint32_t i = 0; i < line->need_count; i++)
        if (sheet->needs[line->need_begin + i].role == role)
            return &sheet->needs[line->need_begin + i];
    return NULL;
}

/* ---- windows ---- */

static int find_object(const coh_window *window, int32_t object)
{
    for (uint32_t i = 0; i < window->count; i++)
        if (window->objects[i] == object)
            return (int)i;
    return -1;
}

static coh_status add_need(coh_window *window, const coh_layout *layout, const coh_need *need)
{
    const coh_chunk *chunks = &layout->chunks[layout->objects[need->object].chunk_begin];
    const coh_chunk *last = &chunks[need->touch_end - 1];
    const uint64_t begin = chunks[need->touch_begin].object_offset;
    const uint64_t end = last->object_offset + last->bytes;
    const int known = find_object(window, need->object);
    if (known >= 0 && window->begins[known] <= begin && window->ends[known] >= end)
        return COH_OK;
    if (known >= 0 || window->count == COH_WINDOW_OBJECTS_MOST)
        return coh_fail(COH_ERR_INTERNAL, "a line touches what no window has room for");
    window->objects[window->count] = need->object;
    window->begins[window->count] = begin;
    window->ends[window->count] = end;
    window->offsets[window->count++] = window->bytes;
    window->bytes += end - begin;
    return COH_OK;
}

coh_status coh_window_add(coh_window *window, const coh_measure_sheet *sheet,
                          const coh_sheet_line *line)
{
    for (uint32_t i = 0; i < line->need_count; i++)
        COH_TRY(add_need(window, &sheet->layout, &sheet->sheet.needs[line->need_begin + i]));
    return COH_OK;
}

uint64_t coh_window_place(const coh_window *window, int32_t object, uint64_t object_offset)
{
    int index = find_object(window, object);
    return index >= 0 ? window->offsets[index] + (object_offset - window->begins[index]) : 0;
}

/* ---- memory ---- */

enum { PIECE_BYTES = 1 << 20, TILE_BYTES = 1 << 16, LINE_BYTES = 64 };

coh_status coh_cold_open(const coh_measure *m, uint64_t bytes, coh_cold *out_cold)
{
    *out_cold = (coh_cold){ .pool = m->pool,
                            .bytes = (bytes + PIECE_BYTES - 1) / PIECE_BYTES * PIECE_BYTES };
    COH_TRY(coh_arena_create(out_cold->bytes, "memory to measure in", COH_TIER_DEVICE, NULL,
                             m->options->thread_count, &out_cold->arena));
    out_cold->base = coh_arena_base(out_cold->arena);
    return COH_OK;
}

void coh_cold_close(coh_cold *cold)
{
    coh_arena_destroy(cold->arena);
    *cold = (coh_cold){ 0 };
}

typedef struct fill {
    char *base;
    uint16_t tile[TILE_BYTES / sizeof(uint16_t)];
} fill;

static void fill_piece(void *argument, int64_t index)
{
    const fill *f = argument;
    for (int i = 0; i < PIECE_BYTES / TILE_BYTES; i++)
        memcpy(f->base + index * PIECE_BYTES + i * TILE_BYTES, f->tile, TILE_BYTES);
}

void coh_cold_fill(coh_cold *cold, int positive)
{
    /* 2^-5 in bf16 and any fraction: the upper half of a float of the same magnitude. */
    const uint16_t exponent = 0x3d00, fraction = 0x7f, sign = positive ? 0 : 0x8000;
    fill f = { .base = cold->base };
    for (uint64_t i = 0; i < sizeof(f.tile) / sizeof(*f.tile); i++) {
        uint64_t bits = coh_rng_below(1, 0, i, 1 << 16);
        f.tile[i] = (uint16_t)(exponent | (bits & (fraction | sign)));
    }
    coh_pool_run(cold->pool, (int64_t)(cold->bytes / PIECE_BYTES), fill_piece, &f);
}

typedef struct reading {
    const char *begin;
    uint64_t bytes;
    _Atomic uint64_t sum; /* the pieces add */
} reading;

static void read_piece(void *argument, int64_t index)
{
    reading *r = argument;
    uint64_t end = (uint64_t)(index + 1) * PIECE_BYTES, sum = 0;
    end = end < r->bytes ? end : r->bytes;
    for (uint64_t at = (uint64_t)index * PIECE_BYTES; at < end; at += LINE_BYTES)
        sum += (unsigned char)r->begin[at];
    r->sum += sum;
}

void coh_cold_read(coh_cold *cold, const void *begin, uint64_t bytes)
{
    reading r = { .begin = begin, .bytes = bytes };
    coh_pool_run(cold->pool, (int64_t)((bytes + PIECE_BYTES - 1) / PIECE_BYTES), read_piece, &r);
    cold->sum += r.sum;
}

uint32_t coh_cold_windows(const coh_cold *cold, const coh_window *window, uint32_t most)
{
    uint64_t count = window->bytes > 0 ? cold->bytes / window->bytes : most;
    return count < most ? (uint32_t)count : most;
}
