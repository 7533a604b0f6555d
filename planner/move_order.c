/* Orders moves by the steps in which they may and must run. The idea: both are known when a level
 * is placed, so a simulated link picks from a heap. Next: schedule.c orders each level before the
 * next one out is placed. */
#include "planner/move_order.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"

/* Operations in the time of a byte of device memory, about those of a GPU. */
#define FLOPS_OF_BYTE 128.0

#define NONE UINT32_MAX /* no job */

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

/* ---- one link ---- */

/* A move that the link is to carry. It may run when step `from` begins and must run before step
 * `until`, both in [0, step_count]; `at`: the step before which it is keyed. */
typedef struct job {
    uint32_t move;
    int32_t from, until, at;
    double bytes;
} job;

/* Sorts jobs by deadline, of equal ones in the order of decision. Deadlines are as dense as steps,
 * so they are counted. */
static coh_status sort_jobs(const coh_step_clock *clock, const job *jobs, size_t count,
                            job *out_sorted)
{
    uint32_t *place = NULL; /* by deadline: of its next job */
    COH_TRY(COH_ALLOC(clock->step_count + 2, &place));
    for (size_t i = 0; i < count; i++)
        place[jobs[i].until + 1]++;
    for (uint32_t step = 0; step <= clock->step_count; step++)
        place[step + 1] += place[step];
    for (size_t i = 0; i < count; i++)
        out_sorted[place[jobs[i].until]++] = jobs[i];
    coh_free(place);
    return COH_OK;
}

/* A heap of jobs that may run, the one that must run first on top: they are numbered so. */
typedef struct heap {
    uint32_t *at;
    size_t count;
} heap;

static void push(heap *h, uint32_t index)
{
    size_t at = h->count++;
    for (; at > 0 && h->at[(at - 1) / 2] > index; at = (at - 1) / 2)
        h->at[at] = h->at[(at - 1) / 2];
    h->at[at] = index;
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

typedef struct link_state {
    const coh_step_clock *clock;
    job *jobs;
    size_t count;
    heap waiting;
    uint32_t *first, *next; /* by step and by job: lists of the jobs that this step releases */
    uint32_t step;          /* the next one to release its jobs */
} link_state;

/* Lists the jobs by the step that releases them. Returns the bytes of all. */
static double list_jobs(link_state *l)
{
    double bytes = 0;
    for (uint32_t step = 0; step <= l->clock->step_count; step++)
        l->first[step] = NONE;
    for (size_t i = l->count; i-- > 0;) {
        const uint32_t step = (uint32_t)l->jobs[i].from;
        l->next[i] = l->first[step];
        l->first[step] = (uint32_t)i;
        bytes += l->jobs[i].bytes;
    }
    return bytes;
}

static void release_step(link_state *l)
{
    for (uint32_t i = l->first[l->step]; i != NONE; i = l->next[i])
        push(&l->waiting, i);
    l->step++;
}

/* Carries the jobs, and keys each before the first step that lets it and all before it run. */
static void carry(link_state *l, double part)
{
    const coh_step_clock *clock = l->clock;
    const double bytes = list_jobs(l);
    const double of_byte = bytes > 0 ? part * clock->begin[clock->step_count] / bytes : 0;
    double now = 0;
    int32_t step = 0;
    for (;;) {
        while (l->waiting.count == 0 && l->step <= clock->step_count) {
            now = clock->begin[l->step] > now ? clock->begin[l->step] : now;
            release_step(l);
        }
        while (l->step <= clock->step_count && clock->begin[l->step] <= now)
            release_step(l);
        if (l->waiting.count == 0)
            return;
        job *taken = &l->jobs[pop(&l->waiting)];
        step = taken->from > step ? taken->from : step;
        assert(step <= taken->until); /* one that must run earlier was released earlier */
        taken->at = step;
        now += taken->bytes * of_byte;
    }
}

static coh_status run_link(const coh_step_clock *clock, double part, job *jobs, size_t count)
{
    link_state l = { .clock = clock, .jobs = jobs, .count = count };
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(count, &l.waiting.at), done);
    COH_TRY_GOTO(status, COH_ALLOC(count, &l.next), done);
    COH_TRY_GOTO(status, COH_ALLOC(clock->step_count + 1, &l.first), done);
    carry(&l, part);
done:
    coh_free(l.waiting.at);
    coh_free(l.next);
    coh_free(l.first);
    return status;
}

/* ---- fetches ---- */

/* Lists the moves of one direction; `out_jobs` has room for all. Returns their number. */
static size_t list_moves(const coh_layout *layout, const coh_residency *residency, int is_out,
                         job *out_jobs)
{
    size_t count = 0;
    for (size_t i = 0; i < residency->move_count; i++) {
        const coh_move *move = &residency->moves[i];
        if (move->is_out != is_out)
            continue;
        out_jobs[count++] = (job){ .move = (uint32_t)i,
                                   .from = is_out ? move->step + 1 : move->earliest,
                                   .until = is_out ? move->latest + 1 : move->step,
                                   .bytes = (double)layout->chunks[move->chunk].bytes };
    }
    return count;
}

coh_status coh_fetch_order(const coh_layout *layout, const coh_step_clock *clock, double part,
                           coh_residency *residency)
{
    job *jobs = NULL;
    COH_TRY(COH_ALLOC(residency->move_count, &jobs));
    const size_t count = list_moves(layout, residency, 0, jobs);
    const coh_status status = run_link(clock, part, jobs, count);
    for (size_t i = 0; status == COH_OK && i < count; i++)
        residency->moves[jobs[i].move].step = jobs[i].at;
    coh_free(jobs);
    return status;
}

/* ---- stores ---- */

/* Bytes of the tier, and the newest store from them. */
typedef struct emptied {
    uint64_t begin, end;
    uint32_t store;
} emptied;

/* Disjoint ranges in the order of their offsets. */
typedef struct emptied_list {
    emptied *at;
    size_t count;
} emptied_list;

/* Returns the first range that ends after `offset`. */
static size_t find_range(const emptied_list *list, uint64_t offset)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (list->at[middle].end > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Adds a range in place of what it covers. The list has room for two more. */
static void add_range(emptied_list *list, emptied range)
{
    const size_t begin = find_range(list, range.begin);
    size_t end = begin, count = 0;
    emptied pieces[3];
    while (end < list->count && list->at[end].begin < range.end)
        end++;
    if (end > begin && list->at[begin].begin < range.begin) {
        pieces[count] = list->at[begin];
        pieces[count++].end = range.begin;
    }
    pieces[count++] = range;
    if (end > begin && list->at[end - 1].end > range.end) {
        pieces[count] = list->at[end - 1];
        pieces[count++].begin = range.end;
    }
    if (begin + count != end)
        memmove(&list->at[begin + count], &list->at[end], (list->count - end) * sizeof(range));
    memcpy(&list->at[begin], pieces, count * sizeof(range));
    list->count = list->count - (end - begin) + count;
}

static void lower_latest(coh_move *store, const coh_move *fetch)
{
    if (store->latest >= fetch->step)
        store->latest = fetch->step - 1;
}

/* Lowers the stores' last steps: a store runs before each fetch that was decided after it, into a
 * place that it reads or of its chunk. */
static coh_status limit_by_fetches(const coh_layout *layout, coh_residency *residency)
{
    emptied_list list = { 0 };
    uint32_t *store_of = NULL; /* by chunk: its newest store */
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(2 * residency->move_count + 1, &list.at), done);
    COH_TRY_GOTO(status, COH_ALLOC(layout->chunk_count, &store_of), done);
    for (uint32_t chunk = 0; chunk < layout->chunk_count; chunk++)
        store_of[chunk] = NONE;
    for (size_t i = 0; i < residency->move_count; i++) {
        const coh_move *move = &residency->moves[i];
        const coh_extent *extent = &residency->extents[move->extent];
        const uint64_t end = extent->offset + extent->bytes;
        if (move->is_out) {
            store_of[move->chunk] = (uint32_t)i;
            add_range(&list, (emptied){ extent->offset, end, (uint32_t)i });
            continue;
        }
        if (store_of[move->chunk] != NONE)
            lower_latest(&residency->moves[store_of[move->chunk]], move);
        for (size_t k = find_range(&list, extent->offset); k < list.count && list.at[k].begin < end;
             k++)
            lower_latest(&residency->moves[list.at[k].store], move);
    }
done:
    coh_free(list.at);
    coh_free(store_of);
    return status;
}

coh_status coh_store_order(const coh_layout *layout, const coh_step_clock *clock, double part,
                           coh_residency *residency)
{
    job *listed = NULL, *jobs = NULL;
    size_t count = 0;
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(residency->move_count, &listed), done);
    COH_TRY_GOTO(status, COH_ALLOC(residency->move_count, &jobs), done);
    COH_TRY_GOTO(status, limit_by_fetches(layout, residency), done);
    count = list_moves(layout, residency, 1, listed);
    COH_TRY_GOTO(status, sort_jobs(clock, listed, count, jobs), done);
    COH_TRY_GOTO(status, run_link(clock, part, jobs, count), done);
    for (size_t i = 0; i < count; i++)
        residency->moves[jobs[i].move].step = jobs[i].at - 1;
done:
    coh_free(listed);
    coh_free(jobs);
    return status;
}
