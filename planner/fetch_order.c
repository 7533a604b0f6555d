/* Orders fetches by need among those whose places are free. The idea: the steps in which a place
 * becomes free and is needed are known, so a simulated link picks from a heap. Next: schedule.c
 * orders each level before the next one out is placed. */
#include "planner/fetch_order.h"

#include <assert.h>

#include "base/alloc.h"

/* Operations in the time of a byte of device memory, about those of a GPU. */
#define FLOPS_OF_BYTE 128.0

#define NONE UINT32_MAX /* no fetch */

/* ---- the clock ---- */

static double duration_of(const coh_lowered_instruction *instruction)
{
    const double bytes = (double)instruction->bytes * FLOPS_OF_BYTE;
    return instruction->flops > bytes ? instruction->flops : bytes;
}

coh_status coh_step_clock_make(const coh_lowered *lowered, coh_step_clock *out_clock)
{
    const size_t count = lowered->instruction_count;
    *out_clock = (coh_step_clock){ .step_count = (uint32_t)count };
    COH_TRY(COH_ALLOC(count + 1, &out_clock->begin));
    for (size_t i = 0; i < count; i++) {
        const coh_lowered_instruction *instruction = &lowered->instructions[i];
        const int is_compute = instruction->lane == COH_LANE_COMPUTE;
        out_clock->begin[i + 1] = out_clock->begin[i] + (is_compute ? duration_of(instruction) : 0);
    }
    return COH_OK;
}

coh_status coh_step_clock_outer(const coh_step_clock *clock, const coh_outer_list *outer,
                                coh_step_clock *out_clock)
{
    *out_clock = (coh_step_clock){ .step_count = outer->count };
    COH_TRY(COH_ALLOC(outer->count + 1, &out_clock->begin));
    for (uint32_t i = 0; i < outer->count; i++)
        out_clock->begin[i] = clock->begin[outer->at[i]];
    out_clock->begin[outer->count] = clock->begin[clock->step_count];
    return COH_OK;
}

void coh_step_clock_fini(coh_step_clock *clock)
{
    coh_free(clock->begin);
    *clock = (coh_step_clock){ 0 };
}

/* ---- fetches that wait ---- */

/* A heap of fetches whose places are free, the one needed first on top: they are numbered in the
 * order of need. */
typedef struct heap {
    uint32_t *at;
    size_t count;
} heap;

static void push(heap *h, uint32_t fetch)
{
    size_t at = h->count++;
    for (; at > 0 && h->at[(at - 1) / 2] > fetch; at = (at - 1) / 2)
        h->at[at] = h->at[(at - 1) / 2];
    h->at[at] = fetch;
}

static uint32_t pop(heap *h)
{
    const uint32_t top = h->at[0], last = h->at[--h->count];
    size_t at = 0;
    for (size_t child = 1; child < h->count; child = 2 * at + 1) {
        if (child + 1 < h->count && h->at[child + 1] < h->at[child])
            child++;
        if (h->at[child] >= last)
            break;
        h->at[at] = h->at[child];
        at = child;
    }
    h->at[at] = last;
    return top;
}

/* ---- the order ---- */

typedef struct orderer {
    const coh_step_clock *clock;
    coh_residency *residency;
    heap waiting;
    uint32_t *first, *next; /* by step and by move: lists of the fetches that this step releases */
    uint32_t step;          /* the next one to release its fetches */
} orderer;

/* Lists the fetches by the step that releases them. Returns the bytes of all. */
static double list_fetches(orderer *o, const coh_layout *layout)
{
    double bytes = 0;
    for (uint32_t step = 0; step <= o->clock->step_count; step++)
        o->first[step] = NONE;
    for (size_t i = o->residency->move_count; i-- > 0;) {
        const coh_move *move = &o->residency->moves[i];
        if (move->is_out)
            continue;
        const uint32_t step = (uint32_t)move->earliest;
        o->next[i] = o->first[step];
        o->first[step] = (uint32_t)i;
        bytes += (double)layout->chunks[move->chunk].bytes;
    }
    return bytes;
}

static void release_step(orderer *o)
{
    for (uint32_t i = o->first[o->step]; i != NONE; i = o->next[i])
        push(&o->waiting, i);
    o->step++;
}

static void order(orderer *o, const coh_layout *layout, double part)
{
    const coh_step_clock *clock = o->clock;
    const double bytes = list_fetches(o, layout);
    const double of_byte = bytes > 0 ? part * clock->begin[clock->step_count] / bytes : 0;
    double now = 0;
    int32_t step = 0;
    for (;;) {
        while (o->waiting.count == 0 && o->step <= clock->step_count) {
            now = clock->begin[o->step] > now ? clock->begin[o->step] : now;
            release_step(o);
        }
        while (o->step <= clock->step_count && clock->begin[o->step] <= now)
            release_step(o);
        if (o->waiting.count == 0)
            return;
        coh_move *move = &o->residency->moves[pop(&o->waiting)];
        step = move->earliest > step ? move->earliest : step;
        assert(step <= move->step); /* a fetch that is needed earlier was released earlier */
        move->step = step;
        now += (double)layout->chunks[move->chunk].bytes * of_byte;
    }
}

coh_status coh_fetch_order(const coh_layout *layout, const coh_step_clock *clock, double part,
                           coh_residency *residency)
{
    orderer o = { .clock = clock, .residency = residency };
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(residency->move_count, &o.waiting.at), done);
    COH_TRY_GOTO(status, COH_ALLOC(residency->move_count, &o.next), done);
    COH_TRY_GOTO(status, COH_ALLOC(clock->step_count + 1, &o.first), done);
    order(&o, layout, part);
done:
    coh_free(o.waiting.at);
    coh_free(o.next);
    coh_free(o.first);
    return status;
}
