/* Plans a batch and chooses its micro-batch. The idea: a micro-batch changes rounding, so it is
 * chosen by uncalibrated predictions, which do not depend on earlier runs, and only if the caller
 * permits it. Interface: cohobate/plan_batch.h; one plan is made by plan.c. */
#include "cohobate/plan_batch.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/refusal.h"
#include "base/struct_bytes.h"
#include "planner/attempt.h"
#include "planner/plan_make.h"

/* Change the micro-batch only if the step takes at most this part of the time. */
#define SHORTER 0.97

/* A step of more instructions takes seconds to build. */
enum { LONG_INSTRUCTIONS = 100000 };

typedef struct search {
    const coh_batch *batch;
    coh_plan_options options; /* without a limit of writes per day */
    coh_batch_plan made;      /* the newest; its plan is NULL if it was refused or only checked */
    coh_plan_fit fit;         /* of the newest checked micro-batch that fits */
    coh_status source_status; /* with which make_graph ended the search; COH_OK: it did not */
} search;

static int64_t batch_of(const search *s)
{
    return s->batch->batch;
}

static uint64_t step_ns(const search *s)
{
    return s->made.plan->simulations[COH_PROGRAM_BODY].period_ns;
}

static void drop(search *s)
{
    coh_batch_plan_destroy(&s->made);
}

/* Fails: COH_ERR_SHAPE, COH_ERR_FULL: there is no graph of this micro-batch, and others may do.
 * COH_ERR_STOPPED: for any other reason of the caller's, which source_status keeps; nothing passes
 * over that. */
static coh_status make_graph(search *s, int64_t microbatch, coh_graph **out_graph)
{
    *out_graph = NULL;
    coh_error_clear();
    coh_status status = coh_check_status(
        s->batch->make_graph(s->batch->context, microbatch, out_graph), "make_graph");
    if (status == COH_OK && *out_graph == NULL)
        status = coh_fail(COH_ERR_ARGUMENT, "make_graph made no graph of micro-batch %lld",
                          (long long)microbatch);
    if (status == COH_OK || status == COH_ERR_SHAPE || status == COH_ERR_FULL)
        return status;
    s->source_status = status;
    return COH_ERR_STOPPED;
}

/* Takes a micro-batch, without a plan. The disk has `disk_bytes`; 0: those of the options. */
static coh_status take(search *s, int64_t microbatch, uint64_t disk_bytes,
                       coh_plan_options *out_options)
{
    *out_options = s->options;
    drop(s);
    s->made.microbatch = microbatch;
    out_options->microbatch_count = (int32_t)(batch_of(s) / microbatch);
    if (disk_bytes > 0)
        out_options->disk_bytes = disk_bytes;
    return make_graph(s, microbatch, &s->made.graph);
}

/* Compares a micro-batch by `effort` of the search, if the caller wants the usual one. */
static coh_status make(search *s, int64_t microbatch, coh_search effort)
{
    coh_plan_options options;
    COH_TRY(take(s, microbatch, 0, &options));
    if (coh_search_is_whole(options.search) && effort != COH_SEARCH_USUAL)
        options.search = effort;
    return coh_plan_create_priced(s->made.graph, &options, &s->made.plan);
}

/* Checks with little effort whether a micro-batch fits. */
static coh_status probe(search *s, int64_t microbatch, uint64_t disk_bytes)
{
    coh_plan_options options;
    COH_TRY(take(s, microbatch, disk_bytes, &options));
    options.search = COH_SEARCH_PROBE;
    return coh_plan_check_fit(s->made.graph, &options, &s->fit);
}

/* Returns a replica's share of the batch: the largest micro-batch. */
static int64_t share_of(const search *s)
{
    return batch_of(s) / coh_fold_replicas(&s->options.replicas);
}

/* Returns the next divisor of a replica's share above or below; 0 if there is none. */
static int64_t next_divisor(const search *s, int64_t from, int direction)
{
    const int64_t share = share_of(s);
    for (int64_t next = from + direction; next >= 1 && next <= share; next += direction)
        if (share % next == 0)
            return next;
    return 0;
}

/* ---- faster ---- */

/* Computes a lower bound of the step time with that micro-batch; of bounds below `best_ns` any one.
 * More room is never slower, so the spare disk counts. */
static coh_status least_step(search *s, int64_t microbatch, uint64_t best_ns, uint64_t *out_ns)
{
    coh_plan_options options = s->options;
    coh_graph *graph;
    COH_TRY(make_graph(s, microbatch, &graph));
    options.microbatch_count = (int32_t)(batch_of(s) / microbatch);
    if (options.disk_bytes == 0)
        options.disk_bytes = options.spare_disk_bytes;
    const coh_status status = coh_plan_least_below(graph, &options, best_ns, out_ns);
    coh_graph_destroy(graph);
    return status;
}

/* Plans that were compared. The one that is chosen is finished again, not searched again. */
typedef struct faster {
    coh_batch_plan wanted, best; /* the same plan until a faster one is found */
    int has_usual;               /* one was searched as usual: others get less effort */
} faster;

static uint64_t step_of(const coh_batch_plan *made)
{
    return coh_plan_period_ns(made->plan);
}

/* Replaces the best plan by the newest. */
static void take_best(search *s, faster *f)
{
    if (f->best.plan != f->wanted.plan)
        coh_batch_plan_destroy(&f->best);
    f->best = s->made;
    s->made = (coh_batch_plan){ 0 };
}

/* Another micro-batch is not taken if it does not fit, if its program is too long or if its graph
 * cannot be made. */
static int is_passed_over(coh_status status)
{
    return status == COH_ERR_FULL || status == COH_ERR_ARGUMENT || status == COH_ERR_SHAPE;
}

/* Plans another micro-batch, if its bound lets it be faster than the best plan, and replaces that
 * if it is; *out_fits is 0 if it is passed over. It is searched without the programs of the best
 * one in memory; `probes`: only if a probe fits, as of one far above those that fit. */
static coh_status compare(search *s, int64_t microbatch, coh_search effort, int probes, faster *f,
                          int *out_fits)
{
    const uint64_t best_ns = step_of(&f->best);
    uint64_t least_ns;
    *out_fits = 1;
    coh_status status = least_step(s, microbatch, best_ns, &least_ns);
    if (status == COH_OK && least_ns >= best_ns)
        return COH_OK; /* too little gain for a plan */
    if (status == COH_OK)
        coh_plan_drop_programs(f->best.plan);
    if (status == COH_OK && probes)
        status = probe(s, microbatch, 0);
    if (status == COH_OK) {
        status = make(s, microbatch, effort);
        f->has_usual |= effort == COH_SEARCH_USUAL;
    }
    *out_fits = !is_passed_over(status);
    if (!*out_fits)
        return COH_OK;
    COH_TRY(status);
    if (step_ns(s) < best_ns)
        take_best(s, f);
    return COH_OK;
}

/* Goes from the best plan in one direction as long as the predicted step gets shorter, and upwards
 * at last to a replica's share. Without replicas that alone needs neither sums of gradients nor a
 * second pass over the weights, so it may be the fastest though a smaller one is slower. */
static coh_status go(search *s, int direction, faster *f)
{
    int64_t next;
    int fits = 1;
    while ((next = next_divisor(s, f->best.microbatch, direction)) > 0) {
        const coh_search effort = f->has_usual ? COH_SEARCH_COMPARE : COH_SEARCH_USUAL;
        COH_TRY(compare(s, next, effort, 0, f, &fits));
        if (f->best.microbatch != next)
            break;
    }
    if (direction < 0 || next == 0 || next == share_of(s) || !fits)
        return COH_OK;
    return compare(s, share_of(s), COH_SEARCH_COMPARE, 1, f, &fits);
}

static coh_status find_faster(search *s, faster *f)
{
    COH_TRY(go(s, 1, f));
    if (f->best.plan == f->wanted.plan)
        COH_TRY(go(s, -1, f));
    return COH_OK;
}

/* Its programs may be dropped: coh_plan_complete makes them again. */
static void take_chosen(search *s, coh_batch_plan *chosen)
{
    drop(s);
    s->made = *chosen;
    *chosen = (coh_batch_plan){ 0 };
}

/* Tries larger micro-batches, or, if none of them is faster, smaller ones. Results do not change
 * for a gain below the prediction error. */
static coh_status plan_faster(search *s)
{
    faster f = { .wanted = s->made, .best = s->made };
    s->made = (coh_batch_plan){ 0 };
    coh_status status = find_faster(s, &f);
    const int is_changed = f.best.plan != f.wanted.plan;
    const int takes_best =
        is_changed && (double)step_of(&f.best) <= SHORTER * (double)step_of(&f.wanted);
    if (status == COH_OK)
        take_chosen(s, takes_best ? &f.best : &f.wanted);
    if (is_changed)
        coh_batch_plan_destroy(&f.best);
    coh_batch_plan_destroy(&f.wanted);
    return status;
}

/* ---- smaller ---- */

/* Returns the divisor of the batch about half-way, in logarithms, between two others; 0 if there is
 * none between them. */
static int64_t middle_divisor(const search *s, int64_t low, int64_t high)
{
    const int64_t next = next_divisor(s, high, -1);
    if (next <= low)
        return 0;
    const double middle = sqrt((double)(low > 0 ? low : 1) * (double)high);
    const int64_t divisor = next_divisor(s, (int64_t)middle + 1, -1);
    return divisor > low ? divisor : next;
}

/* Returns the micro-batch to try between two others: as a part of `high`, which was refused last,
 * it is what the room is of the need, since most of a step's memory grows with the micro-batch;
 * without such a refusal, or if it leaves nothing above `low`, the middle one. 0: there is none. */
static int64_t next_to_try(const search *s, int64_t low, int64_t high)
{
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    if (s->made.microbatch != high || !coh_last_refusal(&refusal) ||
        refusal.tier != COH_TIER_DEVICE || refusal.needed_bytes <= refusal.given_bytes)
        return middle_divisor(s, low, high);
    const double share = (double)refusal.given_bytes / (double)refusal.needed_bytes;
    const int64_t guess = next_divisor(s, (int64_t)(share * (double)high) + 1, -1);
    return guess > low && guess < high ? guess : middle_divisor(s, low, high);
}

/* Finds the largest divisor of the batch below `high` that fits, by halving and by what refusals
 * say. A search takes seconds, so few are made. Fails: COH_ERR_FULL: none fits; the refusal is that
 * of the smallest. COH_ERR_ARGUMENT: nor is the smallest one's program short enough. */
static coh_status find_smaller(search *s, int64_t high, uint64_t disk_bytes,
                               int64_t *out_microbatch)
{
    int64_t low = 0, middle;
    coh_status status = COH_ERR_FULL;
    *out_microbatch = 0;
    while ((middle = next_to_try(s, low, high)) > 0) {
        status = probe(s, middle, disk_bytes);
        if (status == COH_ERR_FULL)
            high = middle;
        else if (status == COH_OK)
            low = *out_microbatch = middle;
        else if (status == COH_ERR_ARGUMENT) /* a step has too many micro-batches */
            low = middle;
        else
            return status;
    }
    return *out_microbatch > 0 ? COH_OK : status;
}

/* Plans with the largest divisor of the batch below `from` that fits. Fails as find_smaller. */
static coh_status plan_smaller(search *s, int64_t from)
{
    int64_t fits;
    COH_TRY(find_smaller(s, from, 0, &fits));
    return make(s, fits, COH_SEARCH_USUAL);
}

/* ---- refusals ---- */

/* Removes the changes of a kind. */
static void drop_changes(coh_refusal *refusal, coh_change_kind kind)
{
    int32_t count = 0;
    for (int32_t i = 0; i < refusal->change_count; i++)
        if (refusal->changes[i].kind != kind)
            refusal->changes[count++] = refusal->changes[i];
    refusal->change_count = count;
}

/* Adds a change before or after the others, in place of those of its kind. */
static void put(coh_refusal *refusal, coh_change change, int is_first)
{
    coh_change others[COH_REFUSAL_CHANGES];
    drop_changes(refusal, change.kind);
    int32_t count = refusal->change_count;
    memcpy(others, refusal->changes, sizeof(others));
    if (count == COH_REFUSAL_CHANGES)
        count--;
    refusal->changes[is_first ? 0 : count] = change;
    for (int32_t i = 0; i < count; i++)
        refusal->changes[i + is_first] = others[i];
    refusal->change_count = count + 1;
}

static int knows_drive(const search *s)
{
    const coh_profile *profile = s->options.profile;
    return profile == NULL || coh_profile_has_drive(profile); /* the built-in one has */
}

/* Finds out whether a disk helps, and names one that does. */
static coh_status refuse_without_disk(search *s, coh_refusal *refusal)
{
    int64_t microbatch = s->batch->microbatch;
    coh_status status = probe(s, microbatch, UINT64_MAX);
    if (status == COH_ERR_FULL && s->batch->may_change)
        status = find_smaller(s, microbatch, UINT64_MAX, &microbatch);
    if (status == COH_ERR_ARGUMENT)
        return coh_refuse(refusal);
    if (status == COH_ERR_FULL && coh_last_refusal(refusal)) {
        refusal->is_with_disk = 1;
        refusal->microbatch = s->made.microbatch;
        refusal->largest_microbatch = s->batch->microbatch;
        return coh_refuse(refusal);
    }
    COH_TRY(status);
    put(refusal,
        (coh_change){
            .kind = COH_CHANGE_ADD_DISK, .microbatch = microbatch, .bytes = s->fit.disk_bytes },
        1);
    return coh_refuse(refusal);
}

/* The change that raises the disk's limit; NULL: there is none. */
static coh_change *disk_raise(coh_refusal *refusal)
{
    for (int32_t i = 0; i < refusal->change_count; i++)
        if (refusal->changes[i].kind == COH_CHANGE_RAISE &&
            refusal->changes[i].tier == COH_TIER_DISK)
            return &refusal->changes[i];
    return NULL;
}

/* Lowers a limit of the disk that is enough to one that refusals name, from `bytes` on, if that is
 * enough, too. */
static coh_status lower_disk_raise(search *s, int64_t microbatch, uint64_t bytes, coh_change *raise)
{
    enum { NAMED = 3 };
    for (int tried = 0; tried < NAMED && bytes < raise->bytes; tried++) {
        coh_refusal next = { .struct_bytes = sizeof(next) };
        const coh_status status = probe(s, microbatch, bytes);
        if (status == COH_OK)
            raise->bytes = bytes;
        if (status != COH_ERR_FULL || !coh_last_refusal(&next))
            return status == COH_ERR_ARGUMENT ? COH_OK : status;
        const coh_change *further = disk_raise(&next);
        bytes = further && further->bytes > bytes ? further->bytes : raise->bytes;
    }
    return COH_OK;
}

/* The limit that a refusal names for the disk may be only a lower bound: replaces it by one that
 * fits. If no disk helps, the refusal is the one with an unlimited disk. The lowest limit is not
 * looked for with a long program, which takes long to build. */
static coh_status check_disk_raise(search *s, coh_refusal *refusal)
{
    const int64_t microbatch = refusal->microbatch;
    coh_change *raise = disk_raise(refusal);
    coh_refusal unlimited = { .struct_bytes = sizeof(unlimited) };
    const uint64_t named = raise ? raise->bytes : 0;
    if (named == 0)
        return COH_OK;
    const coh_status status = probe(s, microbatch, UINT64_MAX);
    if (status == COH_ERR_FULL && coh_last_refusal(&unlimited)) {
        unlimited.is_with_disk = 1;
        unlimited.microbatch = microbatch;
        unlimited.largest_microbatch = refusal->largest_microbatch;
        *refusal = unlimited;
    }
    if (status != COH_OK)
        return status == COH_ERR_FULL || status == COH_ERR_ARGUMENT ? COH_OK : status;
    raise->bytes = s->fit.disk_bytes;
    raise->is_least = 0;
    return s->fit.instruction_count > LONG_INSTRUCTIONS
               ? COH_OK
               : lower_disk_raise(s, microbatch, named, raise);
}

/* No permitted micro-batch fits: finds the least costly change that would help, and names it. */
static coh_status refuse(search *s)
{
    const int64_t wanted = s->batch->microbatch;
    const coh_profile *profile = s->options.profile;
    const int is_gpu = profile != NULL && profile->device_kind != COH_DEVICE_HOST;
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    if (!coh_last_refusal(&refusal))
        return COH_ERR_FULL;
    refusal.microbatch = s->made.microbatch;
    refusal.largest_microbatch = wanted;
    s->options.search = COH_SEARCH_PROBE;
    COH_TRY(check_disk_raise(s, &refusal));
    /* Smaller ones have been tried, or are tried now. */
    drop_changes(&refusal, COH_CHANGE_LOWER_MICROBATCH);
    if (!s->batch->may_change) {
        int64_t fits;
        const coh_status status = find_smaller(s, wanted, 0, &fits);
        if (status == COH_OK)
            put(&refusal, (coh_change){ .kind = COH_CHANGE_LOWER_MICROBATCH, .microbatch = fits },
                1);
        if (status != COH_ERR_FULL && status != COH_ERR_ARGUMENT)
            return status == COH_OK ? coh_refuse(&refusal) : status;
    }
    const int is_alone = s->options.disk_bytes == 0 && s->options.host_memory_bytes == 0;
    if (!is_gpu && is_alone && knows_drive(s))
        return refuse_without_disk(s, &refusal);
    if (is_gpu || is_alone) {
        snprintf(refusal.profile, sizeof(refusal.profile), "%s", profile->name);
        put(&refusal,
            (coh_change){ .kind = is_gpu ? COH_CHANGE_PROFILE : COH_CHANGE_MEASURE_DRIVE }, 0);
    }
    return coh_refuse(&refusal);
}

/* ---- the batch ---- */

static coh_status check_batch(const coh_batch *batch)
{
    COH_TRY(coh_check_integer("may_change", batch->may_change, 0, 1));
    COH_TRY(coh_check_integer("batch", batch->batch, 1, INT32_MAX));
    COH_TRY(coh_check_integer("microbatch", batch->microbatch, 1, batch->batch));
    if (batch->make_graph == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "a batch without make_graph");
    if (batch->batch % batch->microbatch != 0)
        return coh_fail(COH_ERR_ARGUMENT, "micro-batch %lld does not divide the batch %lld",
                        (long long)batch->microbatch, (long long)batch->batch);
    return COH_OK;
}

/* As plan_smaller, but if programs of smaller micro-batches are too long, the refusal is that of
 * the wanted one. */
static coh_status plan_smaller_or_refuse(search *s, int64_t wanted)
{
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    const int is_refused = coh_last_refusal(&refusal);
    const coh_status status = plan_smaller(s, wanted);
    if (status != COH_ERR_ARGUMENT || !is_refused)
        return status;
    s->made.microbatch = wanted;
    return coh_refuse(&refusal);
}

static coh_status choose(search *s)
{
    const int64_t wanted = s->batch->microbatch;
    coh_status status = make(s, wanted, COH_SEARCH_USUAL);
    const uint64_t wanted_ns = status == COH_OK ? step_ns(s) : 0;
    if (status == COH_OK && s->batch->may_change)
        status = plan_faster(s);
    else if (status == COH_ERR_FULL && s->batch->may_change && wanted > 1)
        status = plan_smaller_or_refuse(s, wanted);
    if (status == COH_ERR_FULL)
        return refuse(s);
    if (status != COH_OK)
        return status;
    s->made.wanted_step_ns = wanted_ns;
    s->made.chosen_step_ns = step_ns(s);
    return COH_OK;
}

static coh_status bound_writes(search *s, uint64_t bytes_per_day)
{
    coh_plan_options options = s->options;
    options.microbatch_count = (int32_t)(batch_of(s) / s->made.microbatch);
    options.disk_write_bytes_per_day = bytes_per_day;
    return coh_plan_bound_writes(s->made.graph, &options, &s->made.plan);
}

/* Micro-batch and sweep order, which change results, are chosen without calibration; the final plan
 * is then made with it. Leaves the plan priced. */
static coh_status plan_batch(search *s, const coh_plan_options *options)
{
    const int is_calibrated = options->profile != NULL && options->profile->calibrated_runs > 0 &&
                              !options->uncalibrated &&
                              (s->batch->may_change || options->sweep_order == COH_SWEEP_AUTO);
    s->options.disk_write_bytes_per_day = 0;
    s->options.uncalibrated |= is_calibrated;
    COH_TRY(choose(s));
    COH_TRY(bound_writes(s, options->disk_write_bytes_per_day));
    if (!is_calibrated)
        return COH_OK;
    const coh_batch_plan chosen = s->made;
    s->options.uncalibrated = 0;
    s->options.sweep_order = s->made.plan->options.sweep_order;
    COH_TRY(make(s, chosen.microbatch, COH_SEARCH_USUAL));
    s->made.wanted_step_ns = chosen.wanted_step_ns;
    s->made.chosen_step_ns = chosen.chosen_step_ns;
    return bound_writes(s, options->disk_write_bytes_per_day);
}

/* Checks the options and makes the plan, to be completed. The caller drops it, also on failure. */
static coh_status make_priced(const coh_batch *batch, const coh_plan_options *options, search *s)
{
    COH_TRY(coh_plan_options_read(options, &s->options));
    COH_TRY(check_batch(batch));
    s->batch = batch;
    s->options.microbatch_count = coh_fold_replicas(&s->options.replicas);
    COH_TRY(coh_plan_check_options(&s->options));
    COH_TRY(coh_plan_check_budgets(&s->options)); /* no smaller micro-batch helps */
    const coh_plan_options wanted = s->options;
    const coh_status status = plan_batch(s, &wanted);
    return s->source_status != COH_OK ? s->source_status : status;
}

coh_status coh_batch_plan_create(const coh_batch *batch, const coh_plan_options *options,
                                 coh_batch_plan *out_plan)
{
    COH_NEED_STRUCT(coh_batch, batch);
    COH_NEED(options);
    COH_NEED_STRUCT(coh_batch_plan, out_plan);
    const coh_batch_plan none = { 0 };
    coh_batch known = { 0 };
    search s = { 0 };
    COH_STRUCT_FILL(none, out_plan);
    coh_struct_read(batch, &known, sizeof(known));
    coh_status status = make_priced(&known, options, &s);
    if (status == COH_OK)
        status = coh_plan_complete(s.made.plan);
    if (status != COH_OK) {
        drop(&s);
        return status;
    }
    coh_graph_close(s.made.graph);
    COH_STRUCT_FILL(s.made, out_plan);
    return COH_OK;
}

coh_status coh_batch_plan_estimate(const coh_batch *batch, const coh_plan_options *options,
                                   coh_plan_summary *out_summary)
{
    COH_NEED_STRUCT(coh_batch, batch);
    COH_NEED(options);
    COH_NEED_STRUCT(coh_plan_summary, out_summary);
    coh_batch known = { 0 };
    search s = { 0 };
    coh_struct_read(batch, &known, sizeof(known));
    coh_status status = make_priced(&known, options, &s);
    if (status == COH_OK)
        status = coh_plan_price(s.made.plan); /* its programs may be dropped */
    if (status == COH_OK)
        status = coh_plan_summarize(s.made.plan, out_summary);
    drop(&s);
    return status;
}

void coh_batch_plan_destroy(coh_batch_plan *plan)
{
    if (plan == NULL)
        return;
    coh_plan_destroy(plan->plan);
    coh_graph_destroy(plan->graph);
    plan->plan = NULL;
    plan->graph = NULL;
}
