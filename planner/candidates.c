/* Builds and simulates sets of decisions, several at once, and keeps the best. The idea: batches
 * are formed by effort, never by time or threads, so results are reproducible. Sets of decisions
 * come from initial.c and neighbours.c; the interface is candidates.h. */
#include "planner/candidates.h"

#include <string.h>

#include "base/alloc.h"
#include "planner/at_once.h"
#include "planner/fold.h"
#include "planner/live.h"
#include "planner/schedule.h"

/* More threads would each hold a schedule for little gain. */
enum { THREADS_MOST = 8 };

/* The effort of rejecting a candidate without building it. */
enum { REFUSED_EFFORT = 1000 };

/* A budget of this many chunks is enough for any instruction that takes one chunk. */
enum { CHUNKS_ROOMY = 16 };

/* Bytes of all tiers that can hold the data of a step. */
static uint64_t room_of(const coh_plan *plan, const coh_decisions *decisions)
{
    const coh_plan_options *o = &plan->options;
    uint64_t room = o->device_memory_bytes;
    if (!decisions->in_memory && __builtin_add_overflow(room, o->host_memory_bytes, &room))
        return UINT64_MAX;
    if (!decisions->in_memory && __builtin_add_overflow(room, o->disk_bytes, &room))
        return UINT64_MAX;
    return room;
}

/* Begins a candidate, which is refused if its effort is too large. */
static coh_status begin(const coh_plan *plan, const coh_decisions *decisions,
                        coh_candidate *out_candidate)
{
    coh_effort effort;
    int is_bearable;
    *out_candidate = (coh_candidate){ .decisions = *decisions };
    COH_TRY(coh_fold_effort(plan, decisions, &effort, &is_bearable));
    out_candidate->effort = coh_effort_sum(&effort);
    out_candidate->is_refused = !is_bearable;
    return COH_OK;
}

/* Rejects a begun candidate without building it if its effort or its live bytes are too large. A
 * short program is built in any case: its refusal then has exact numbers. */
static coh_status refuse_early(const coh_plan *plan, coh_candidate *candidate)
{
    uint64_t live_bytes = 0;
    if (candidate->effort <= COH_SHORT_EFFORT)
        return COH_OK;
    COH_TRY(coh_live_bytes(plan->graph, &plan->options, &candidate->decisions.recompute,
                           candidate->decisions.light, 0, &live_bytes));
    if (live_bytes <= room_of(plan, &candidate->decisions))
        return COH_OK;
    candidate->is_refused = 1;
    candidate->device_bytes = candidate->decisions.in_memory ? live_bytes : 0;
    return COH_OK;
}

/* Fills the candidate from a finished body, of some or of all micro-batches. */
static coh_status note_body(const coh_plan *plan, const coh_layout *layout, const coh_program *body,
                            coh_candidate *candidate, coh_simulation *out_simulation)
{
    uint64_t *instruction_ns = NULL;
    if (plan->folded)
        COH_TRY(COH_ALLOC(2 * (size_t)body->instruction_count, &instruction_ns));
    const coh_status status =
        coh_simulate_priced(layout, body, &plan->pricer, out_simulation, instruction_ns);
    if (status == COH_OK && plan->folded)
        coh_fold_continue(body, instruction_ns, plan->folded, plan->options.microbatch_count,
                          out_simulation);
    coh_free(instruction_ns);
    COH_TRY(status);
    candidate->step_ns = out_simulation->period_ns;
    candidate->instruction_count = body->instruction_count;
    candidate->device_bytes = layout->arena_bytes[COH_TIER_DEVICE];
    candidate->valid = candidate->device_bytes <= plan->options.device_memory_bytes;
    candidate->has_only_map = layout->has_only_map;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        candidate->link_bytes += out_simulation->link_bytes[lane];
    if (plan->options.wear_bytes > 0 && candidate->valid &&
        out_simulation->link_bytes[COH_LANE_WRITE] > plan->options.wear_bytes) {
        candidate->valid = 0;
        candidate->worn_bytes = out_simulation->link_bytes[COH_LANE_WRITE];
    }
    return COH_OK;
}

/* Frees what coh_candidate_build made; accepts nothing, too. */
static void release(coh_layout *layout, coh_program *programs)
{
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        coh_program_fini(&programs[kind]);
    coh_layout_fini(layout);
}

/* As coh_candidate_build, of a begun candidate. */
static coh_status build_begun(const coh_plan *plan, int all, coh_candidate *candidate,
                              coh_layout *out_layout, coh_program *out_programs,
                              coh_simulation *out_simulation)
{
    *out_layout = (coh_layout){ 0 };
    memset(out_programs, 0, COH_PROGRAM_KIND_COUNT * sizeof(*out_programs));
    COH_TRY(refuse_early(plan, candidate));
    if (candidate->is_refused)
        return COH_OK;
    coh_status status =
        coh_schedule_build(plan->graph, &plan->options, &plan->profile, &candidate->decisions,
                           plan->folded, all, out_layout, out_programs);
    if (status == COH_ERR_FULL) {
        candidate->far_bytes =
            out_layout->arena_bytes[COH_TIER_HOST] + out_layout->arena_bytes[COH_TIER_DISK];
        return COH_OK;
    }
    COH_TRY(status);
    status =
        note_body(plan, out_layout, &out_programs[COH_PROGRAM_BODY], candidate, out_simulation);
    if (status != COH_OK)
        release(out_layout, out_programs);
    return status;
}

/* As coh_candidate_make, of a begun candidate. */
static coh_status make_begun(const coh_plan *plan, coh_candidate *candidate)
{
    const coh_decisions *d = &candidate->decisions;
    coh_layout layout;
    coh_program programs[COH_PROGRAM_KIND_COUNT];
    coh_simulation unused;
    /* If memory is short, an instruction of another program that takes one large chunk may not
     * fit. */
    const int all = plan->counts_all || d->chunk_bytes > d->device_bytes / CHUNKS_ROOMY;
    COH_TRY(build_begun(plan, all, candidate, &layout, programs, &unused));
    release(&layout, programs);
    return COH_OK;
}

coh_status coh_candidate_build(const coh_plan *plan, const coh_decisions *decisions, int all,
                               coh_candidate *out_candidate, coh_layout *out_layout,
                               coh_program *out_programs, coh_simulation *out_simulation)
{
    *out_layout = (coh_layout){ 0 };
    COH_TRY(begin(plan, decisions, out_candidate));
    return build_begun(plan, all, out_candidate, out_layout, out_programs, out_simulation);
}

coh_status coh_candidate_make(const coh_plan *plan, const coh_decisions *decisions,
                              coh_candidate *out_candidate)
{
    COH_TRY(begin(plan, decisions, out_candidate));
    return make_begun(plan, out_candidate);
}

int coh_candidate_is_better(const coh_candidate *a, const coh_candidate *b)
{
    if (!a->valid || !b->valid)
        return a->valid && !b->valid;
    if (a->step_ns != b->step_ns)
        return a->step_ns < b->step_ns;
    return a->link_bytes < b->link_bytes;
}

/* ---- several at once ---- */

coh_status coh_candidates_open(coh_candidates *candidates, const coh_plan *plan,
                               uint32_t evaluations_most)
{
    *candidates = (coh_candidates){ .plan = plan,
                                    .evaluations_most = evaluations_most,
                                    .effort_most = plan->options.search == COH_SEARCH_COMPARE
                                                       ? COH_COMPARE_EFFORT_MOST
                                                       : COH_SEARCH_EFFORT_MOST };
    int32_t threads = plan->options.thread_count;
    if (threads < 2)
        return COH_OK;
    return coh_pool_create(threads < THREADS_MOST ? threads : THREADS_MOST, &candidates->pool);
}

void coh_candidates_close(coh_candidates *candidates)
{
    coh_pool_destroy(candidates->pool);
    coh_free(candidates->all);
    *candidates = (coh_candidates){ 0 };
}

int coh_decisions_same_but_map(const coh_decisions *a, const coh_decisions *b)
{
    return a->device_bytes == b->device_bytes && a->chunk_bytes == b->chunk_bytes &&
           a->in_memory == b->in_memory && a->cache == b->cache && a->row_passes == b->row_passes &&
           a->slices == b->slices && coh_pattern_choice_equal(&a->patterns, &b->patterns) &&
           a->tie_break == b->tie_break && a->patient == b->patient && a->horizon == b->horizon &&
           a->host_updates == b->host_updates && a->resident == b->resident &&
           a->host_window == b->host_window && a->lead == b->lead && a->late == b->late &&
           a->light == b->light && a->early == b->early &&
           memcmp(&a->recompute, &b->recompute, sizeof(a->recompute)) == 0;
}

static int same_decisions(const coh_decisions *a, const coh_decisions *b)
{
    return a->boundary == b->boundary && coh_decisions_same_but_map(a, b);
}

/* The sets tried at once; each thread fills its own elements. */
typedef struct batch {
    const coh_plan *plan;
    coh_candidate all[COH_AT_ONCE_MOST]; /* begun, then made */
    int count;
    /* those that are made next: places in `all`; the first `made` of them are */
    int list[COH_AT_ONCE_MOST], list_count, made;
} batch;

static coh_status make_piece(void *argument, int index)
{
    batch *b = argument;
    return make_begun(b->plan, &b->all[b->list[b->made + index]]);
}

/* Returns the effort of trying a begun candidate. */
static uint64_t effort_of(const coh_candidate *candidate)
{
    return candidate->is_refused ? REFUSED_EFFORT : candidate->effort;
}

/* Makes the listed candidates of a batch, as many at a time as memory allows. */
static coh_status make_listed(coh_candidates *candidates, batch *b)
{
    for (b->made = 0; b->made < b->list_count;) {
        uint64_t together = effort_of(&b->all[b->list[b->made]]);
        int next = 1;
        for (; b->made + next < b->list_count; next++) {
            together += effort_of(&b->all[b->list[b->made + next]]);
            if (together > COH_TOGETHER_EFFORT)
                break;
        }
        COH_TRY(coh_at_once(candidates->pool, next, make_piece, b));
        b->made += next;
    }
    b->list_count = 0;
    return COH_OK;
}

/* Returns the first of candidates that differs from a set in the kind of boundary map alone; NULL:
 * there is none. */
static const coh_candidate *find_twin(const coh_candidate *all, size_t count,
                                      const coh_decisions *decisions)
{
    for (size_t i = 0; i < count; i++)
        if (coh_decisions_same_but_map(&all[i].decisions, decisions))
            return &all[i];
    return NULL;
}

/* Makes a candidate like its twin if all kinds of boundary map are the same. */
static int copy_twin(const coh_candidate *twin, coh_candidate *out)
{
    const coh_decisions decisions = out->decisions;
    if (twin == NULL || !twin->has_only_map)
        return 0;
    *out = *twin;
    out->decisions = decisions;
    return 1;
}

/* Makes all candidates of a batch. Those with a twin in the batch wait for it. */
static coh_status make_all(coh_candidates *candidates, batch *b)
{
    int waiting[COH_AT_ONCE_MOST], waiting_count = 0;
    for (int i = 0; i < b->count; i++) {
        const coh_decisions *d = &b->all[i].decisions;
        if (copy_twin(find_twin(candidates->all, candidates->count, d), &b->all[i]))
            continue;
        if (find_twin(b->all, (size_t)i, d) != NULL)
            waiting[waiting_count++] = i;
        else
            b->list[b->list_count++] = i;
    }
    COH_TRY(make_listed(candidates, b));
    for (int k = 0; k < waiting_count; k++) {
        const int i = waiting[k];
        if (!copy_twin(find_twin(b->all, (size_t)i, &b->all[i].decisions), &b->all[i]))
            b->list[b->list_count++] = i;
    }
    return make_listed(candidates, b);
}

static void note_worn(coh_candidates *candidates, uint64_t bytes)
{
    if (bytes > 0 && (candidates->least_worn_bytes == 0 || bytes < candidates->least_worn_bytes))
        candidates->least_worn_bytes = bytes;
}

static coh_status run_batch(coh_candidates *candidates, batch *b)
{
    COH_TRY(
        COH_GROW(&candidates->all, &candidates->capacity, candidates->count + (size_t)b->count));
    COH_TRY(make_all(candidates, b));
    for (int i = 0; i < b->count; i++) {
        candidates->effort += effort_of(&b->all[i]);
        b->all[i].number = candidates->count;
        candidates->all[candidates->count++] = b->all[i];
        note_worn(candidates, b->all[i].worn_bytes);
        if (coh_candidate_is_better(&b->all[i], &candidates->best))
            candidates->best = b->all[i];
    }
    candidates->evaluations += (uint32_t)b->count;
    b->count = 0;
    return COH_OK;
}

int coh_candidates_was_tried(const coh_candidates *candidates, const coh_decisions *decisions)
{
    for (size_t i = 0; i < candidates->count; i++)
        if (same_decisions(&candidates->all[i].decisions, decisions))
            return 1;
    return 0;
}

static int is_in_batch(const batch *b, const coh_decisions *decisions)
{
    for (int i = 0; i < b->count; i++)
        if (same_decisions(&b->all[i].decisions, decisions))
            return 1;
    return 0;
}

/* Returns 1 if `effort` would end the search. A quick search ends early only once it has a plan.
 * Something is always tried: one batch, or in a probe one set of decisions. */
static int is_too_much(const coh_candidates *candidates, const batch *b, uint64_t effort)
{
    const coh_search search = candidates->plan->options.search;
    if (search == COH_SEARCH_PROBE)
        return effort > COH_QUICK_EFFORT_MOST && candidates->count + (size_t)b->count > 0;
    if (search == COH_SEARCH_QUICK && candidates->best.valid)
        return effort > COH_QUICK_EFFORT_MOST;
    return effort > candidates->effort_most && candidates->count > 0;
}

coh_status coh_candidates_try(coh_candidates *candidates, const coh_decisions *list, int count)
{
    batch b = { .plan = candidates->plan };
    uint64_t ahead = 0; /* effort of the current batch */
    for (int i = 0; i < count; i++) {
        if (candidates->evaluations + (uint32_t)b.count >= candidates->evaluations_most)
            break;
        if (coh_candidates_was_tried(candidates, &list[i]) || is_in_batch(&b, &list[i]))
            continue;
        COH_TRY(begin(candidates->plan, &list[i], &b.all[b.count]));
        ahead += effort_of(&b.all[b.count]);
        if (is_too_much(candidates, &b, candidates->effort + ahead))
            break;
        if (++b.count < COH_AT_ONCE_MOST)
            continue;
        COH_TRY(run_batch(candidates, &b));
        ahead = 0;
    }
    return run_batch(candidates, &b);
}
