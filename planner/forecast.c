/* Predicts the spread of a step's time and the memory in each tier over time. The idea: simulate
 * the program with random durations, one draw per price source and one of the run, and fold the
 * extents' lifetimes into one period. Prices: price.h; the walks: simulate.h. */
#include "planner/forecast.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "planner/calibration.h"

/* Walks that the quantiles are computed from; an odd number has a median. */
enum { WALKS = 101 };

/* 90 % of a normal distribution lie below this many standard deviations. */
#define NORMAL_P90 1.2815515655446004

#define DRAW_SEED 0x636f686f62617465u

/* The draw of the run as a whole: the number of no source. */
#define RUN_SOURCE UINT32_MAX

/* ---- prices ---- */

typedef struct priced {
    coh_price *prices;
    double *uncertainty; /* by instruction: coh_price_uncertainty */
    uint64_t *service_ns;
} priced;

static void priced_fini(priced *p)
{
    coh_free(p->prices);
    coh_free(p->uncertainty);
    coh_free(p->service_ns);
}

/* Fills the prices of all instructions, and their medians. */
static coh_status priced_init(priced *p, const coh_layout *layout, const coh_program *program,
                              const coh_pricer *pricer)
{
    COH_TRY(COH_ALLOC(program->instruction_count, &p->prices));
    COH_TRY(COH_ALLOC(program->instruction_count, &p->uncertainty));
    COH_TRY(COH_ALLOC(program->instruction_count, &p->service_ns));
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        p->prices[i] = coh_price_instruction(pricer, layout, program, &program->instructions[i]);
        p->uncertainty[i] = coh_price_uncertainty(pricer->profile, &program->instructions[i]);
        p->service_ns[i] = coh_whole_ns(p->prices[i].p50);
    }
    return COH_OK;
}

/* ---- quantiles ---- */

static int has_spread(const priced *p, uint32_t instruction_count)
{
    int found = 0;
    for (uint32_t i = 0; i < instruction_count; i++)
        found |= p->prices[i].p10 != p->prices[i].p90 || p->uncertainty[i] > 0;
    return found;
}

/* Draws the durations: two halves of a normal distribution, joined at the median, with the price's
 * own p10 and p90. All instructions of one source share a draw, since they share the error of their
 * figure. A further draw is of the run, which is fast or slow as a whole: all instructions share
 * it, each by as much as the runs that calibrate it differed. */
static void draw(priced *p, uint32_t instruction_count, uint64_t walk)
{
    const double of_run = coh_rng_normal(DRAW_SEED, walk, RUN_SOURCE);
    for (uint32_t i = 0; i < instruction_count; i++) {
        const coh_price *price = &p->prices[i];
        double deviation = coh_rng_normal(DRAW_SEED, walk, price->source) / NORMAL_P90;
        double side = deviation < 0 ? price->p50 - price->p10 : price->p90 - price->p50;
        double run = 1 + of_run * p->uncertainty[i];
        run = run < COH_CALIBRATION_LEAST ? COH_CALIBRATION_LEAST : run;
        p->service_ns[i] = coh_whole_ns((price->p50 + deviation * side) * run);
    }
}

static int compare_ns(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Scales the walks' percentiles by (step at median prices, out->p50_ns) / (median of the walks).
 * With many sources whose times can only grow, the median of the walks lies above the step at
 * median prices, which is the one planned and printed. */
static coh_status find_quantiles(const coh_program *program, const coh_profile *profile, priced *p,
                                 coh_forecast *out)
{
    uint64_t periods[WALKS];
    coh_simulation simulation;
    out->p10_ns = out->p90_ns = out->p50_ns;
    if (!has_spread(p, program->instruction_count))
        return COH_OK;
    for (uint64_t walk = 0; walk < WALKS; walk++) {
        draw(p, program->instruction_count, walk);
        COH_TRY(
            coh_simulate(program, profile, p->service_ns, COH_CONTENTION_FLUID, &simulation, NULL));
        periods[walk] = simulation.period_ns;
    }
    qsort(periods, WALKS, sizeof(periods[0]), compare_ns);
    const size_t middle = WALKS / 2, tenth = WALKS / 10;
    const double median = (double)periods[middle], step = (double)out->p50_ns;
    if (median > 0) {
        out->p10_ns = coh_whole_ns(step * ((double)periods[tenth] / median));
        out->p90_ns = coh_whole_ns(step * ((double)periods[WALKS - 1 - tenth] / median));
    }
    return COH_OK;
}

static coh_status make(const coh_layout *layout, const coh_program *program,
                       const coh_pricer *pricer, priced *p, coh_forecast *out)
{
    coh_simulation simulation;
    COH_TRY(priced_init(p, layout, program, pricer));
    COH_TRY(coh_simulate(program, pricer->profile, p->service_ns, COH_CONTENTION_NONE, &simulation,
                         NULL));
    out->alone_ns = simulation.period_ns;
    COH_TRY(coh_simulate(program, pricer->profile, p->service_ns, COH_CONTENTION_ALL, &simulation,
                         NULL));
    out->contended_ns = simulation.period_ns;
    if (out->p50_ns == 0)
        COH_TRY(coh_simulate(program, pricer->profile, p->service_ns, COH_CONTENTION_FLUID,
                             &simulation, NULL));
    out->p50_ns = out->p50_ns == 0 ? simulation.period_ns : out->p50_ns;
    return find_quantiles(program, pricer->profile, p, out);
}

coh_status coh_forecast_make(const coh_layout *layout, const coh_program *program,
                             const coh_pricer *pricer, uint64_t period_ns,
                             coh_forecast *out_forecast)
{
    priced p = { 0 };
    *out_forecast = (coh_forecast){ .p50_ns = period_ns };
    coh_status status = make(layout, program, pricer, &p, out_forecast);
    priced_fini(&p);
    return status;
}

/* ---- memory ---- */

/* Bytes that appear or disappear at a time of the period. */
typedef struct change {
    uint64_t when;
    int64_t bytes;
    uint8_t stream;
} change;

typedef struct curve {
    uint64_t *instruction_ns; /* begin and end of each instruction, in the settled run */
    uint32_t *root;           /* by extent: coh_program_extent_roots */
    /* Of each extent that is its own root: the begin of the first instruction that uses its bytes,
     * and the end of the last one. */
    uint64_t *lives;
    change *changes;
    size_t count;
    int64_t at_begin[COH_STREAM_COUNT]; /* bytes present when the period begins */
    uint64_t period_ns;
} curve;

static int compare_changes(const void *left, const void *right)
{
    const change *a = left, *b = right;
    if (a->when != b->when)
        return (a->when > b->when) - (a->when < b->when);
    return (a->bytes > b->bytes) - (a->bytes < b->bytes); /* bytes are freed first */
}

static uint64_t periods_begun(const curve *c, uint64_t when)
{
    return when / c->period_ns + (when % c->period_ns > 0);
}

/* Adds `bytes` present from `begin` to `end` in every run: the times fold into one period. If the
 * end precedes the begin, it corrects the excess of a neighbouring run. */
static void add_life(curve *c, uint64_t begin, uint64_t end, int64_t bytes, uint8_t stream)
{
    c->at_begin[stream] +=
        ((int64_t)periods_begun(c, end) - (int64_t)periods_begun(c, begin)) * bytes;
    if (begin % c->period_ns > 0)
        c->changes[c->count++] = (change){ begin % c->period_ns, bytes, stream };
    if (end % c->period_ns > 0)
        c->changes[c->count++] = (change){ end % c->period_ns, -bytes, stream };
}

static void add_instruction_to_life(const curve *c, uint32_t instruction, uint32_t extent)
{
    uint64_t *life = &c->lives[2 * (size_t)c->root[extent]];
    const uint64_t *times = &c->instruction_ns[2 * (size_t)instruction];
    life[0] = times[0] < life[0] ? times[0] : life[0];
    life[1] = times[1] > life[1] ? times[1] : life[1];
}

static void find_lives(const coh_program *body, const curve *c)
{
    coh_program_extent_roots(body, c->root);
    for (uint32_t i = 0; i < body->extent_count; i++)
        c->lives[2 * (size_t)i] = UINT64_MAX;
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_operand *operands = &body->operands[body->instructions[i].operand_begin];
        for (uint32_t o = 0; o < body->instructions[i].operand_count; o++)
            for (uint32_t t = 0; t < operands[o].touch_count; t++) {
                uint32_t extent = body->touches[operands[o].touch_begin + t].extent;
                if (extent != COH_EXTENT_FILE)
                    add_instruction_to_life(c, i, extent);
            }
    }
}

/* Counts the working store: every chunk that survives, or that some instruction moves, has a
 * place in it. */
static void add_file(const coh_layout *layout, const coh_program *body, curve *c)
{
    uint64_t listed = 0;
    for (uint32_t i = 0; layout->file_bytes > 0 && i < layout->object_count; i++)
        if (layout->objects[i].survives && !layout->objects[i].pinned) {
            c->at_begin[layout->objects[i].stream] += (int64_t)layout->objects[i].bytes;
            listed += layout->objects[i].bytes;
        }
    /* the rest appears and disappears within a step: its stream is that of the first such
     * instruction */
    uint8_t stream = COH_STREAM_ACTIVATION;
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_operand *operand = &body->operands[body->instructions[i].operand_begin];
        if (body->instructions[i].opcode == COH_OP_WRITE &&
            !layout->objects[operand->object].survives) {
            stream = layout->objects[operand->object].stream;
            break;
        }
    }
    c->at_begin[stream] += (int64_t)(layout->file_bytes - listed);
}

static void add_pinned(const coh_layout *layout, curve *c)
{
    uint64_t listed = 0;
    for (uint32_t i = 0; i < layout->object_count; i++)
        if (layout->objects[i].pinned) {
            c->at_begin[layout->objects[i].stream] += (int64_t)layout->objects[i].bytes;
            listed += layout->objects[i].bytes;
        }
    c->at_begin[COH_STREAM_CELLS] += (int64_t)(layout->pinned_bytes - listed); /* padding */
}

/* Collects the lives of a tier. Extents present at the begin count from the begin, extents that
 * stay count until the end. A run finds what the run before left, so the exact time of the change
 * does not matter. */
static void gather(const coh_layout *layout, const coh_program *body, int tier, curve *c)
{
    const uint64_t *lives = c->lives;
    c->count = 0;
    memset(c->at_begin, 0, sizeof(c->at_begin));
    if (tier == COH_TIER_DEVICE)
        add_pinned(layout, c);
    else if (tier == COH_TIER_DISK)
        add_file(layout, body, c);
    for (uint32_t i = 0; i < body->extent_count; i++) {
        const coh_extent *extent = &body->extents[i];
        int is_pinned = tier == COH_TIER_DEVICE && extent->offset < layout->pinned_bytes;
        int is_used = lives[2 * i] != UINT64_MAX;
        if (extent->tier != tier || is_pinned || (!is_used && !extent->at_begin))
            continue;
        uint64_t begin = extent->at_begin ? 0 : lives[2 * i];
        uint64_t end = extent->at_end ? c->period_ns : is_used ? lives[2 * i + 1] : 0;
        add_life(c, begin, end, (int64_t)extent->bytes,
                 layout->objects[layout->chunks[extent->chunk].object].stream);
    }
    qsort(c->changes, c->count, sizeof(*c->changes), compare_changes);
}

static int64_t bytes_at_begin(const curve *c)
{
    int64_t bytes = 0;
    for (int stream = 0; stream < COH_STREAM_COUNT; stream++)
        bytes += c->at_begin[stream];
    return bytes;
}

static void sample(const curve *c, uint32_t count, uint64_t *out_bytes)
{
    int64_t bytes = bytes_at_begin(c);
    size_t next = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t end = (uint64_t)((double)c->period_ns * (i + 1) / count);
        int64_t most = bytes;
        while (next < c->count && (c->changes[next].when < end || i + 1 == count)) {
            bytes += c->changes[next++].bytes;
            most = bytes > most ? bytes : most;
        }
        out_bytes[i] = most > 0 ? (uint64_t)most : 0;
    }
}

/* Finds the bytes by stream at the moment with the most bytes. */
static void find_fullest(const curve *c, uint64_t *out_bytes)
{
    int64_t now[COH_STREAM_COUNT], most[COH_STREAM_COUNT];
    int64_t bytes = bytes_at_begin(c), most_bytes = bytes;
    memcpy(now, c->at_begin, sizeof(now));
    memcpy(most, now, sizeof(most));
    for (size_t i = 0; i < c->count; i++) {
        now[c->changes[i].stream] += c->changes[i].bytes;
        bytes += c->changes[i].bytes;
        if (bytes <= most_bytes)
            continue;
        most_bytes = bytes;
        memcpy(most, now, sizeof(most));
    }
    for (int stream = 0; stream < COH_STREAM_COUNT; stream++)
        out_bytes[stream] = most[stream] > 0 ? (uint64_t)most[stream] : 0;
}

static void curve_fini(curve *c)
{
    coh_free(c->changes);
    coh_free(c->lives);
    coh_free(c->root);
    coh_free(c->instruction_ns);
}

/* Simulates the body and computes the lifetime of every extent of its settled run. */
static coh_status curve_init(const coh_layout *layout, const coh_program *body,
                             const coh_pricer *pricer, curve *c)
{
    coh_simulation simulation;
    COH_TRY(COH_ALLOC(2 * (size_t)body->instruction_count, &c->instruction_ns));
    COH_TRY(COH_ALLOC(2 * (size_t)body->extent_count, &c->lives));
    COH_TRY(COH_ALLOC(body->extent_count, &c->root));
    COH_TRY(COH_ALLOC(2 * (size_t)body->extent_count, &c->changes));
    COH_TRY(coh_simulate_priced(layout, body, pricer, &simulation, c->instruction_ns));
    c->period_ns = simulation.period_ns > 0 ? simulation.period_ns : 1;
    find_lives(body, c);
    return COH_OK;
}

coh_status coh_forecast_memory(const coh_layout *layout, const coh_program *body,
                               const coh_pricer *pricer, uint32_t count, uint64_t *out_bytes)
{
    curve c = { 0 };
    coh_status status = curve_init(layout, body, pricer, &c);
    for (int tier = 0; status == COH_OK && tier < COH_TIER_COUNT; tier++) {
        gather(layout, body, tier, &c);
        sample(&c, count, out_bytes + (size_t)tier * count);
    }
    curve_fini(&c);
    return status;
}

coh_status coh_forecast_fullest(const coh_layout *layout, const coh_program *body,
                                const coh_pricer *pricer,
                                uint64_t out_bytes[COH_TIER_COUNT][COH_STREAM_COUNT])
{
    curve c = { 0 };
    coh_status status = curve_init(layout, body, pricer, &c);
    for (int tier = 0; status == COH_OK && tier < COH_TIER_COUNT; tier++) {
        gather(layout, body, tier, &c);
        find_fullest(&c, out_bytes[tier]);
    }
    curve_fini(&c);
    return status;
}
