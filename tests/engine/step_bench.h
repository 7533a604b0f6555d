/* step_bench.h - a made stream on an executor, with the ledger it must leave
 * empty. For test_step*.c. */
#ifndef COH_TESTS_ENGINE_STEP_BENCH_H
#define COH_TESTS_ENGINE_STEP_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/rng.h"
#include "engine/step_state.h"
#include "tests/engine/made_stream.h"

enum { STEPS = 5 };

/* A step on a made stream, with its ledger. */
typedef struct bench {
    made_stream *made;
    coh_engine_options options;
    const coh_store_ops *store_ops;
    coh_ledger *ledger;
    coh_step *step;
} bench;

static made_stream made;
static float input[STREAM_ELEMENTS];

static inline void bench_prepare(bench *b, made_far far)
{
    *b = (bench){ .made = &made, .store_ops = &coh_store_mem };
    made_stream_init(&made, far);
    coh_engine_options_init(&b->options);
    b->options.disk_folder = ".";
    assert_int_equal(coh_ledger_create(&b->ledger), COH_OK);
}

static inline coh_status bench_start(bench *b)
{
    const coh_step_config config = { .plan = &b->made->plan,
                                     .options = &b->options,
                                     .device_ops = &coh_device_host,
                                     .store_ops = b->store_ops,
                                     .ledger = b->ledger };
    return coh_step_create(&config, &b->step);
}

static inline void bench_finish(bench *b)
{
    coh_step_destroy(b->step);
    assert_int_equal(coh_ledger_total_bytes(b->ledger), 0);
    coh_ledger_destroy(b->ledger);
    made_stream_fini(b->made);
}

static inline void fill_input(uint64_t step)
{
    for (int i = 0; i < STREAM_ELEMENTS; i++)
        input[i] = (float)coh_rng_uniform(7, step, (uint64_t)i) - 0.5f;
}

static inline coh_status run_init(bench *b)
{
    COH_TRY(coh_step_submit(b->step, COH_PROGRAM_INIT, &(coh_step_feed){ 0 }, NULL));
    return coh_step_quiet(b->step);
}

static inline coh_status submit_body(bench *b, uint64_t step, uint64_t *out_ticket)
{
    fill_input(step);
    const coh_step_input step_input = { .struct_bytes = sizeof(step_input),
                                        .step = step,
                                        .inputs = { input } };
    const coh_step_feed feed = { .input = &step_input, .microbatch_count = 1 };
    return coh_step_submit(b->step, COH_PROGRAM_BODY, &feed, out_ticket);
}

static inline coh_status run_body(bench *b, uint64_t step)
{
    COH_TRY(submit_body(b, step, NULL));
    return coh_step_quiet(b->step);
}

/* Runs INIT and STEPS bodies, at most two in flight; writes the last output to `output`. */
static inline coh_status run_all(bench *b, float *output)
{
    COH_TRY(run_init(b));
    for (uint64_t step = 0; step < STEPS; step++)
        COH_TRY(submit_body(b, step, NULL));
    COH_TRY(coh_step_quiet(b->step));
    memcpy(output, coh_step_pinned(b->step, b->made->output_object),
           STREAM_ELEMENTS * sizeof(float));
    return COH_OK;
}

static inline void oracle_all(stream_oracle *oracle)
{
    memset(oracle, 0, sizeof(*oracle));
    for (uint64_t step = 0; step < STEPS; step++) {
        fill_input(step);
        stream_oracle_step(oracle, input);
    }
}

static stream_oracle oracle;
static float output[STREAM_ELEMENTS];

#endif
