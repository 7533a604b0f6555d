/* The instructions of a body as the planner writes them, the layout of the objects that they touch
 * in a window, and memory for many windows: an arena of the processor, or a part of a GPU's arena.
 * The GPU's part is filled with one piece from the host and copies of it that double in size. Next:
 * measure.h, measure_operator.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/half.h"
#include "base/rng.h"
#include "engine/measure.h"
#include "planner/effort.h"

/* ---- instructions ---- */

static coh_plan_options options_of(const coh_measure *m, const coh_graph *graph,
                                   const char *optimizer, int32_t microbatch_count)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    options.profile = m->profile;
    options.f32_gradients = m->options->f32_gradients;
    if (optimizer != NULL)
        snprintf(options.optimizer, sizeof(options.optimizer), "%s", optimizer);
    options.microbatch_count = microbatch_count;
    options.mode = graph->loss >= 0 ? COH_PLAN_TRAIN : COH_PLAN_INFER;
    return options;
}

static coh_decisions decisions_of(uint64_t chunk_bytes, int with_cache)
{
    return (coh_decisions){ .chunk_bytes = chunk_bytes,
                            .cache = with_cache,
                            .row_passes = 1,
                            .patterns = coh_pattern_choose(1) };
}

coh_status coh_measure_plans_chunks(const coh_measure *m, const coh_graph *graph,
                                    uint64_t chunk_bytes, int *out_plans)
{
    const coh_plan_options options = options_of(m, graph, NULL, 1);
    const coh_decisions decisions = decisions_of(chunk_bytes, 1);
    coh_effort effort;
    *out_plans = 0;
    COH_TRY(coh_effort_of(graph, &options, &decisions, &effort));
    *out_plans = effort.chunks <= COH_CHUNKS_MOST;
    return COH_OK;
}

coh_status coh_measure_lowered_init(const coh_measure *m, const coh_graph *graph,
                                    uint64_t chunk_bytes, const char *optimizer, int with_cache,
                                    int32_t microbatch_count, coh_measure_lowered *out_lowered)
{
    const coh_plan_options options = options_of(m, graph, optimizer, microbatch_count);
    const coh_decisions decisions = decisions_of(chunk_bytes, with_cache);
    const coh_block_set none = { 0 }; /* no block is recomputed */
    *out_lowered = (coh_measure_lowered){ .graph = graph, .microbatch_count = microbatch_count };
    coh_status status =
        coh_layout_build(graph, &options, &decisions, &out_lowered->layout, &out_lowered->map);
    if (status == COH_OK)
        status = coh_lower(graph, &options, &out_lowered->layout, &out_lowered->map, &none, 0,
                           COH_PROGRAM_BODY, &out_lowered->body);
    if (status != COH_OK)
        coh_measure_lowered_fini(out_lowered);
    return status;
}

void coh_measure_lowered_fini(coh_measure_lowered *lowered)
{
    coh_lowered_fini(&lowered->body);
    coh_object_map_fini(&lowered->map);
    coh_layout_fini(&lowered->layout);
    *lowered = (coh_measure_lowered){ 0 };
}

const coh_lowered_operand *coh_lowered_find(const coh_lowered *lowered,
                                            const coh_lowered_instruction *instruction,
                                            coh_role role)
{
    for (uint32_t i = 0; i < instruction->operand_count; i++)
        if (lowered->operands[instruction->operand_begin + i].role == role)
            return &lowered->operands[instruction->operand_begin + i];
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

static coh_status add_operand(coh_window *window, const coh_layout *layout,
                              const coh_lowered_operand *operand)
{
    const coh_chunk *chunks = &layout->chunks[layout->objects[operand->object].chunk_begin];
    const coh_chunk *last = &chunks[operand->touch_end - 1];
    const uint64_t begin = chunks[operand->touch_begin].object_offset;
    const uint64_t end = last->object_offset + last->bytes;
    const int known = find_object(window, operand->object);
    if (known >= 0 && window->begins[known] <= begin && window->ends[known] >= end)
        return COH_OK;
    if (known >= 0 || window->count == COH_WINDOW_OBJECTS_MOST)
        return coh_fail(COH_ERR_INTERNAL, "an instruction touches what no window has room for");
    window->objects[window->count] = operand->object;
    window->begins[window->count] = begin;
    window->ends[window->count] = end;
    window->offsets[window->count++] = window->bytes;
    window->bytes += end - begin;
    return COH_OK;
}

coh_status coh_window_add(coh_window *window, const coh_measure_lowered *lowered,
                          const coh_lowered_instruction *instruction)
{
    for (uint32_t i = 0; i < instruction->operand_count; i++)
        COH_TRY(add_operand(window, &lowered->layout,
                            &lowered->body.operands[instruction->operand_begin + i]));
    return COH_OK;
}

uint64_t coh_window_place(const coh_window *window, int32_t object, uint64_t object_offset)
{
    int index = find_object(window, object);
    return index >= 0 ? window->offsets[index] + (object_offset - window->begins[index]) : 0;
}

/* ---- cold memory ---- */

enum { PIECE_BYTES = 1 << 20, TILE_BYTES = 1 << 16, INSTRUCTION_BYTES = 64 };

coh_status coh_cold_open(coh_bed *bed, uint64_t bytes, coh_cold *out_cold)
{
    *out_cold = (coh_cold){ .bytes = (bytes + PIECE_BYTES - 1) / PIECE_BYTES * PIECE_BYTES };
    if (bed->is_host) {
        COH_TRY(coh_arena_create(out_cold->bytes, "memory to measure in", COH_TIER_DEVICE, NULL,
                                 bed->thread_count, &out_cold->arena));
        out_cold->base = coh_arena_base(out_cold->arena);
    } else {
        out_cold->begin = bed->used;
        COH_TRY(coh_bed_part(bed, out_cold->bytes, &out_cold->base));
    }
    out_cold->bed = bed;
    return COH_OK;
}

coh_status coh_cold_open_most(coh_bed *bed, uint64_t bytes, coh_cold *out_cold)
{
    const uint64_t most = coh_bed_room(bed);
    return coh_cold_open(bed, bytes < most ? bytes : most, out_cold);
}

void coh_cold_close(coh_cold *cold)
{
    coh_arena_destroy(cold->arena);
    if (cold->bed != NULL && !cold->bed->is_host)
        cold->bed->used = cold->begin;
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

static coh_status fill_device(const coh_cold *cold, fill *f)
{
    const coh_bed *bed = cold->bed;
    const coh_device_ops *ops = bed->what->ops;
    void *piece;
    COH_TRY(coh_alloc(PIECE_BYTES, 1, &piece));
    f->base = piece;
    fill_piece(f, 0);
    coh_status status = ops->put(bed->device, cold->base, piece, PIECE_BYTES);
    coh_free(piece);
    COH_TRY(status);
    for (uint64_t done = PIECE_BYTES; done < cold->bytes; done *= 2) {
        const uint64_t left = cold->bytes - done;
        ops->copy(bed->queues[COH_LANE_COMPUTE], cold->base + done, cold->base,
                  (size_t)(left < done ? left : done));
    }
    ops->finish(bed->queues[COH_LANE_COMPUTE]);
    return ops->failure(bed->device);
}

coh_status coh_cold_fill(coh_cold *cold, int positive)
{
    /* Normal numbers of deviation 2^-5 in bf16, and the upper halves of such floats. */
    fill f = { .base = cold->base };
    for (uint64_t i = 0; i < sizeof(f.tile) / sizeof(*f.tile); i++) {
        const float value = 0x1p-5f * (float)coh_rng_normal(1, 0, i);
        f.tile[i] = coh_bf16_of_f32(positive ? fabsf(value) : value);
    }
    if (!cold->bed->is_host)
        return fill_device(cold, &f);
    coh_pool_run(cold->bed->pool, (int64_t)(cold->bytes / PIECE_BYTES), fill_piece, &f);
    return COH_OK;
}

typedef struct reading {
    const char *begin;
    uint64_t bytes;
    _Atomic uint64_t sum; /* pieces add to it */
} reading;

static void read_piece(void *argument, int64_t index)
{
    reading *r = argument;
    uint64_t end = (uint64_t)(index + 1) * PIECE_BYTES, sum = 0;
    end = end < r->bytes ? end : r->bytes;
    for (uint64_t at = (uint64_t)index * PIECE_BYTES; at < end; at += INSTRUCTION_BYTES)
        sum += (unsigned char)r->begin[at];
    r->sum += sum;
}

void coh_cold_read(coh_cold *cold, const void *begin, uint64_t bytes)
{
    reading r = { .begin = begin, .bytes = bytes };
    if (!cold->bed->is_host)
        return;
    coh_pool_run(cold->bed->pool, (int64_t)((bytes + PIECE_BYTES - 1) / PIECE_BYTES), read_piece,
                 &r);
    cold->sum += r.sum;
}

uint32_t coh_cold_windows(const coh_cold *cold, const coh_window *window, uint32_t most)
{
    uint64_t count = window->bytes > 0 ? cold->bytes / window->bytes : most;
    return count < most ? (uint32_t)count : most;
}
