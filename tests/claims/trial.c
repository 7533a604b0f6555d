#include "tests/claims/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "planner/plan_make.h"
#include "tests/length.h"
#include "tests/search_length.h"

enum { INIT_SEED = 42, DATA_SEED = 7, INPUT_IDS_MOST = 1 << 14 };

/* Inputs are copied by submit: one set is enough. */
static int32_t tokens[INPUT_IDS_MOST], targets[INPUT_IDS_MOST];

coh_dtype trial_dtype(const char *name)
{
    if (strcmp(name, "f32") == 0)
        return COH_DTYPE_F32;
    if (strcmp(name, "bf16") == 0)
        return COH_DTYPE_BF16;
    fprintf(stderr, "no dtype is called '%s': f32 or bf16\n", name);
    exit(2);
}

static coh_status open_model(trial_subject *subject)
{
    coh_model model = *subject->model;
    coh_model_dtype_set(&model, subject->dtype);
    return coh_model_train_graph(&model, subject->sequences, subject->tokens, &subject->graph);
}

static coh_status open_gpt2(trial_subject *subject)
{
    coh_status status = COH_OK;
    if (subject->preset != NULL)
        status = coh_gpt2_preset(subject->preset, subject->vocabulary, &subject->config);
    if (subject->short_layers > 0 && test_is_short()) {
        subject->config.layers = subject->short_layers;
        subject->config.heads /= 3; /* gpt2-nano's widths of 384, 1152 and 1536: a third */
        subject->config.channels /= 3;
    }
    subject->config.dtype = subject->dtype;
    if (status == COH_OK)
        status = coh_gpt2_train_graph(&subject->config, subject->sequences, subject->tokens,
                                      &subject->graph);
    return status;
}

void trial_subject_open(trial_subject *subject)
{
    const coh_status status = subject->model != NULL ? open_model(subject) : open_gpt2(subject);
    if (status != COH_OK)
        fail_msg("no graph: %s", coh_last_error());
}

void trial_subject_close(trial_subject *subject)
{
    coh_graph_destroy(subject->graph);
    subject->graph = NULL;
}

/* ---- planning ---- */

static coh_plan_options options_of(const trial_numbers *numbers, const trial_placement *placement)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    options.search = test_search();
    options.microbatch_count = numbers->microbatch_count;
    options.sweep_order = numbers->order;
    if (numbers->optimizer != NULL)
        snprintf(options.optimizer, sizeof(options.optimizer), "%s", numbers->optimizer);
    options.deferred_update = numbers->clip > 0;
    options.thread_count = placement->thread_count;
    options.chunk_bytes = placement->chunk_bytes;
    options.recompute = placement->recompute;
    options.disk_bytes = placement->disk ? UINT64_MAX : 0;
    return options;
}

static uint64_t in_memory_bytes(const trial *t, const coh_plan_options *options)
{
    uint64_t bytes = 0;
    coh_plan_options plain = *options;
    plain.recompute = COH_RECOMPUTE_AUTO;
    plain.chunk_bytes = 0;
    if (coh_plan_in_memory_bytes(t->subject->graph, &plain, &bytes) != COH_OK)
        fail_msg("%s: %s", t->placement->name, coh_last_error());
    return bytes;
}

/* Replaces the plan by one that speculates, which a search takes only if it is faster. */
static void speculate(trial *t, const coh_plan_options *options)
{
    coh_plan_options each = *options;
    coh_plan *plan = NULL;
    each.speculates = 1;
    each.sweep_order = t->plan->options.sweep_order;
    assert_int_equal(coh_plan_open(t->subject->graph, &each, &plan), COH_OK);
    plan->decisions = t->plan->decisions;
    plan->decisions.device_bytes = options->device_memory_bytes;
    if (coh_plan_finish(plan) != COH_OK)
        fail_msg("%s: %s", t->placement->name, coh_last_error());
    coh_plan_destroy(t->plan);
    t->plan = plan;
}

static void make_plan(trial *t, const coh_plan_options *options)
{
    coh_plan_destroy(t->plan);
    if (coh_plan_create(t->subject->graph, options, &t->plan) != COH_OK)
        fail_msg("%s: no plan for %llu bytes of device, %llu of host, disk %d, chunks of %llu, "
                 "recompute %d: %s",
                 t->placement->name, (unsigned long long)options->device_memory_bytes,
                 (unsigned long long)options->host_memory_bytes, t->placement->disk,
                 (unsigned long long)options->chunk_bytes, (int)options->recompute,
                 coh_last_error());
    if (t->placement->speculates && !t->plan->decisions.in_memory)
        speculate(t, options);
    t->summary = (coh_plan_summary){ .struct_bytes = sizeof(t->summary) };
    assert_int_equal(coh_plan_summarize(t->plan, &t->summary), COH_OK);
    t->device_bytes = options->device_memory_bytes;
}

void trial_plan(trial *t, const trial_subject *subject, const trial_numbers *numbers,
                const trial_placement *placement)
{
    *t = (trial){ .subject = subject, .numbers = numbers, .placement = placement };
    coh_plan_options options = options_of(numbers, placement);
    uint64_t whole = in_memory_bytes(t, &options);
    options.emulate_host = 1;
    options.host_memory_bytes = whole / 100 * (uint64_t)placement->host_percent;
    if (placement->device_bytes > 0)
        options.device_memory_bytes = placement->device_bytes;
    else if (placement->device_percent > 0)
        options.device_memory_bytes = whole / 100 * (uint64_t)placement->device_percent;
    make_plan(t, &options);
    if (placement->device_percent != TRIAL_PERCENT_SMALLEST)
        return;
    options.device_memory_bytes = t->summary.smallest_device_bytes;
    make_plan(t, &options);
    assert_true(t->summary.peak_bytes[0] <= options.device_memory_bytes);
}

static const coh_disk *make_disks(uint32_t count)
{
    static const double rates[] = { 2, 5, 1 };
    static char names[3][64];
    static coh_disk disks[3];
    for (uint32_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof(names[i]), "striped-%d-%u", (int)getpid(), (unsigned)i);
        assert_int_equal(mkdir(names[i], 0700), 0);
        disks[i] = (coh_disk){ names[i], UINT64_MAX, rates[i] };
    }
    return disks;
}

void trial_engine(trial *t, const trial_manner *manner)
{
    coh_engine_options options;
    coh_engine_options_init(&options);
    options.disk_folder = ".";
    options.disk_bytes = UINT64_MAX;
    options.thread_count = t->placement->thread_count;
    options.poison = manner->poison;
    options.delay_seed = manner->delay_seed;
    options.delay_most_us = manner->delay_most_us;
    options.store = manner->store;
    options.disks = make_disks(manner->disk_count);
    options.disk_count = manner->disk_count;
    t->manner = *manner;
    const coh_status status = coh_engine_create(t->plan, &options, &t->engine);
    for (uint32_t i = 0; i < manner->disk_count; i++) /* its files have no names */
        assert_int_equal(rmdir(options.disks[i].folder), 0);
    if (status != COH_OK)
        fail_msg("%s: no engine: %s", t->placement->name, coh_last_error());
}

void trial_init(trial *t)
{
    if (coh_engine_init(t->engine, INIT_SEED) != COH_OK)
        fail_msg("%s: no values: %s", t->placement->name, coh_last_error());
}

void trial_open(trial *t, const trial_subject *subject, const trial_numbers *numbers,
                const trial_placement *placement, const trial_manner *manner)
{
    trial_plan(t, subject, numbers, placement);
    trial_engine(t, manner);
    trial_init(t);
}

void trial_close(trial *t)
{
    coh_engine_destroy(t->engine);
    coh_plan_destroy(t->plan);
    t->engine = NULL;
    t->plan = NULL;
}

/* ---- steps ---- */

coh_step_input trial_input(const trial *t, uint64_t step)
{
    uint64_t ids = (uint64_t)(t->subject->sequences * t->subject->tokens) *
                   (uint64_t)t->numbers->microbatch_count;
    assert_true(ids <= INPUT_IDS_MOST);
    const trial_subject *subject = t->subject;
    const uint64_t vocabulary =
        (uint64_t)(subject->model != NULL ? subject->vocabulary : subject->config.vocabulary);
    for (uint64_t i = 0; i < ids; i++) {
        tokens[i] = (int32_t)coh_rng_below(DATA_SEED, step, 2 * i, vocabulary);
        targets[i] = (int32_t)coh_rng_below(DATA_SEED, step, 2 * i + 1, vocabulary);
    }
    const uint64_t every = t->numbers->clip_every;
    const int is_free = every > 0 && step % every != every - 1;
    return (coh_step_input){ .struct_bytes = sizeof(coh_step_input),
                             .step = step,
                             .seed = DATA_SEED,
                             .learning_rate = 1e-3f + 1e-4f * (float)step,
                             .clip = is_free ? 1e30f : t->numbers->clip,
                             .inputs = { tokens, targets } };
}

static void submit(trial *t, uint64_t step)
{
    const coh_step_input input = trial_input(t, step);
    if (coh_engine_submit(t->engine, &input) != COH_OK)
        fail_msg("%s: step %d: %s", t->placement->name, (int)step, coh_last_error());
}

void trial_steps(trial *t, uint64_t first, uint64_t count, trial_outcome *out)
{
    assert_true(first + count <= TRIAL_STEPS_MOST);
    uint64_t submitted = first;
    for (uint64_t step = first; step < first + count; step++) {
        uint64_t ahead = step + 1 + (uint64_t)(t->manner.overlapped != 0);
        while (submitted < ahead && submitted < first + count)
            submit(t, submitted++);
        out->last.struct_bytes = sizeof(out->last);
        if (coh_engine_wait(t->engine, &out->last) != COH_OK)
            fail_msg("%s: step %d: %s", t->placement->name, (int)step, coh_last_error());
        assert_int_equal(out->last.step, step);
        if (!out->last.finite)
            fail_msg("%s: step %d: loss %g, norm %g", t->placement->name, (int)step, out->last.loss,
                     out->last.grad_norm);
        assert_int_equal(out->last.applied_count, step + 1);
        out->twice_count += (uint64_t)out->last.ran_twice;
        out->loss[step] = out->last.loss;
        out->grad_norm[step] = out->last.grad_norm;
        for (int lane = 0; lane < COH_LANE_COUNT; lane++)
            out->moved_bytes[lane] += out->last.link_bytes[lane];
    }
    out->summary = t->summary;
    out->step_count = first + count;
}

uint64_t trial_hash(trial *t)
{
    uint64_t hash = 0;
    if (coh_engine_hash(t->engine, &hash) != COH_OK)
        fail_msg("%s: no hash: %s", t->placement->name, coh_last_error());
    return hash;
}

void trial_run_plan(trial *t, const trial_manner *manner, uint64_t count, trial_outcome *out)
{
    *out = (trial_outcome){ 0 };
    trial_engine(t, manner);
    trial_init(t);
    trial_steps(t, 0, count, out);
    out->hash = trial_hash(t);
    trial_check_peak(t->placement->name, out);
    coh_engine_destroy(t->engine);
    t->engine = NULL;
}

void trial_run(const trial_subject *subject, const trial_numbers *numbers,
               const trial_placement *placement, const trial_manner *manner, uint64_t count,
               trial_outcome *out)
{
    trial t;
    trial_plan(&t, subject, numbers, placement);
    trial_run_plan(&t, manner, count, out);
    trial_close(&t);
}

/* ---- comparing ---- */

void trial_check_equal(const char *name, const trial_outcome *found, const trial_outcome *expected)
{
    assert_int_equal(found->step_count, expected->step_count);
    for (uint64_t i = found->first_step; i < found->step_count; i++) {
        if (memcmp(&found->loss[i], &expected->loss[i], sizeof(double)) != 0)
            fail_msg("%s: step %d: loss %.17g, expected %.17g", name, (int)i, found->loss[i],
                     expected->loss[i]);
        if (memcmp(&found->grad_norm[i], &expected->grad_norm[i], sizeof(double)) != 0)
            fail_msg("%s: step %d: norm %.17g, expected %.17g", name, (int)i, found->grad_norm[i],
                     expected->grad_norm[i]);
    }
    if (found->hash != expected->hash)
        fail_msg("%s: hash %016" PRIx64 ", expected %016" PRIx64, name, found->hash,
                 expected->hash);
    if (found->summary.numeric_fingerprint != expected->summary.numeric_fingerprint)
        fail_msg("%s: another numeric plan", name);
}

void trial_check_moved(const trial_placement *placement, const trial_outcome *found,
                       const trial_outcome *in_memory)
{
    enum { H2D = 1, D2H = 2, READ = 3, WRITE = 4 };
    const uint64_t *moved = found->moved_bytes;
    for (int lane = 1; lane < COH_LANE_COUNT; lane++) {
        uint64_t body = found->summary.link_bytes[lane], all = body * found->step_count;
        if (moved[lane] + body < all || moved[lane] > all + body)
            fail_msg("%s: lane %d moved %" PRIu64 " bytes in %d steps, the plan said %" PRIu64
                     " each",
                     placement->name, lane, moved[lane], (int)found->step_count, body);
        assert_int_equal(in_memory->moved_bytes[lane], 0);
    }
    assert_int_equal(moved[READ] > 0 && moved[WRITE] > 0, placement->disk);
    assert_int_equal(moved[H2D] > 0 && moved[D2H] > 0, placement->host_percent > 0);
    if (found->summary.program_hash == in_memory->summary.program_hash)
        fail_msg("%s: the program of the run in memory", placement->name);
}

void trial_check_peak(const char *name, const trial_outcome *found)
{
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        if (found->last.peak_bytes[tier] != found->summary.peak_bytes[tier])
            fail_msg("%s: tier %d held %" PRIu64 " bytes, the plan said %" PRIu64, name, tier,
                     found->last.peak_bytes[tier], found->summary.peak_bytes[tier]);
}
