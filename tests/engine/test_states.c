/* Forms of the states of bf16 weights, trained on a GPT-2 with a tied table: work and `low` are an
 * f32 master bit for bit; weights without a master stay in bf16 with the same bits wherever they
 * lie, for the library's optimizer and for a program's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cohobate/engine.h"
#include "cohobate/models.h"
#include "planner/plan.h"
#include "tests/engine/must.h"
#include "tests/reference/float_bits.h"
#include "tests/search_length.h"
#include "tests/text/folder.h"

enum { SEQUENCES = 2, TOKENS = 37, VOCABULARY = 300, MICROBATCHES = 2, STEPS = 12 };
enum { IDS = MICROBATCHES * SEQUENCES * TOKENS };

static const coh_gpt2_config config = { .layers = 2,
                                        .heads = 2,
                                        .channels = 64,
                                        .positions = 48,
                                        .vocabulary = VOCABULARY,
                                        .layernorm_epsilon = 1e-5f,
                                        .dtype = COH_DTYPE_BF16 };
static const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .json = "{}" };
static int32_t tokens[STEPS][IDS], targets[STEPS][IDS];
static coh_graph *graph;

/* ---- optimizers of this program ---- */

/* AdamW whose f32 master is a stream. The weights are the master rounded to the nearest
 * bf16, halves away from zero. Begins with weights that are bf16. */
static void update_with_master(const coh_update_call *given)
{
    coh_update_call call = *given;
    float *master = given->states[2], *m = given->states[0], *v = given->states[1];
    uint16_t *work = given->work;
    float *grad = malloc((size_t)given->count * sizeof(*grad));
    if (grad == NULL)
        abort();
    for (int64_t i = 0; i < given->count; i++) {
        if (m[i] == 0 && v[i] == 0 && master[i] == 0)
            master[i] = float_of((uint32_t)work[i] << 16);
        grad[i] = given->grad_dtype == COH_DTYPE_F32
                      ? ((const float *)given->grad)[i]
                      : float_of((uint32_t)((const uint16_t *)given->grad)[i] << 16);
    }
    call.work_dtype = call.grad_dtype = COH_DTYPE_F32;
    call.work = master;
    call.grad = grad;
    coh_optimizer_find("adamw")->update(&call);
    for (int64_t i = 0; i < given->count; i++)
        work[i] = (uint16_t)((bits_of(master[i]) + 0x8000u) >> 16);
    free(grad);
}

/* Gradient descent in f32. */
static void descend(const coh_update_call *call)
{
    float *work = call->work;
    for (int64_t i = 0; i < call->count; i++)
        work[i] -= call->rate * call->scale * ((const float *)call->grad)[i];
}

static const coh_optimizer descent = {
    .struct_bytes = sizeof(descent),
    .name = "descent",
    .revision = 1,
    .update = descend,
    .rounds_work = 1,
};
static coh_optimizer with_master; /* adamw's numbers, and one stream more */

static int begin(void **state)
{
    with_master = *coh_optimizer_find("adamw");
    with_master.name = "with_master";
    with_master.streams[with_master.stream_count++] = (coh_state_stream){ "master", 4, 1, 1 };
    with_master.update = update_with_master;
    with_master.rounds_work = 1;
    with_master.cuda_kernel = NULL;
    for (uint64_t i = 0; i < STEPS * IDS; i++) {
        tokens[i / IDS][i % IDS] = (int32_t)coh_rng_below(5, 1, i, VOCABULARY);
        targets[i / IDS][i % IDS] = (int32_t)coh_rng_below(5, 2, i, VOCABULARY);
    }
    return folder_create(state) == 0 && coh_optimizer_register(&with_master) == COH_OK &&
                   coh_optimizer_register(&descent) == COH_OK &&
                   coh_gpt2_train_graph(&config, SEQUENCES, TOKENS, &graph) == COH_OK
               ? 0
               : -1;
}

static int end(void **state)
{
    coh_graph_destroy(graph);
    return folder_remove(state);
}

/* ---- runs ---- */

enum { IN_MEMORY, WITH_DISK, WITH_HOST, TIERS };

typedef struct run {
    coh_plan *plan;
    coh_engine *engine;
} run;

/* Half the memory of a run in memory, with a far tier; small chunks there. */
static run open_run(const char *optimizer, int tier, int f32_gradients, int deferred)
{
    run r = { 0 };
    uint64_t whole = 0;
    coh_plan_options options;
    coh_engine_options engine;
    coh_plan_options_init(&options);
    options.search = test_search();
    options.microbatch_count = MICROBATCHES;
    options.f32_gradients = f32_gradients;
    options.deferred_update = deferred;
    memcpy(options.optimizer, optimizer, strlen(optimizer));
    must(coh_plan_in_memory_bytes(graph, &options, &whole), "in memory");
    if (tier != IN_MEMORY) {
        options.chunk_bytes = 1 << 16;
        options.device_memory_bytes = whole * 6 / 10;
        options.disk_bytes = tier == WITH_DISK ? UINT64_MAX : 0;
        options.emulate_host = 1;
        options.host_memory_bytes = tier == WITH_HOST ? 2 * whole : 0;
    }
    must(coh_plan_create(graph, &options, &r.plan), "plan");
    coh_engine_options_init(&engine);
    engine.poison = 1;
    engine.store = "mem";
    engine.disk_folder = ".";
    must(coh_engine_create(r.plan, &engine, &r.engine), "engine");
    return r;
}

static void close_run(run *r)
{
    coh_engine_destroy(r->engine);
    coh_plan_destroy(r->plan);
}

static uint64_t hash_of(run *r)
{
    uint64_t hash = 0;
    must(coh_engine_hash(r->engine, &hash), "hash");
    return hash;
}

/* Saves a run and loads it into another one. */
static void carry_over(run *from, run *to, int with_states)
{
    static int count;
    char name[32];
    coh_load_facts loaded = { .struct_bytes = sizeof(loaded) };
    snprintf(name, sizeof(name), "checkpoint-%d", count++);
    must(coh_engine_save(from->engine, folder_file(name), &note), "save");
    must(with_states ? coh_engine_load(to->engine, folder_file(name), &loaded)
                     : coh_engine_load_weights(to->engine, folder_file(name)),
         "load");
    assert_int_equal(loaded.numeric_changed, 0);
}

static double step(run *r, int index)
{
    coh_step_result result = { .struct_bytes = sizeof(result) };
    const coh_step_input input = { .struct_bytes = sizeof(input),
                                   .step = (uint64_t)index,
                                   .seed = 1,
                                   .learning_rate = 3e-3f,
                                   .clip = r->plan->options.deferred_update ? 1.0f : 0.0f,
                                   .inputs = { tokens[index], targets[index] } };
    must(coh_engine_step(r->engine, &input, &result), "step");
    assert_true(result.finite);
    return result.loss;
}

/* Returns parameter `index` of the layout, or its stream. */
static float *fetch(run *r, uint32_t index, const char *stream)
{
    const coh_parameter_layout *parameter = &r->plan->layout.parameters[index];
    const coh_parameter which = { parameter->parameter };
    float *values = calloc(parameter->elements, sizeof(*values));
    assert_non_null(values);
    must(stream == NULL ? coh_engine_fetch(r->engine, which, COH_FETCH_VALUE, values)
                        : coh_engine_fetch_state(r->engine, which, stream, values),
         "fetch");
    return values;
}

/* ---- the master ---- */

/* From the same bf16 weights, adamw on work and `low` computes the losses, masters and moments of
 * AdamW on an f32 master that is stored in addition to bf16 weights. */
static void work_and_low_are_an_f32_master(void **state)
{
    (void)state;
    for (int f32_gradients = 0; f32_gradients < 2; f32_gradients++) {
        run whole = open_run("with_master", IN_MEMORY, f32_gradients, 1);
        run split = open_run("adamw", WITH_DISK, f32_gradients, 1);
        must(coh_engine_init(whole.engine, 3), "init");
        carry_over(&whole, &split, 0);
        for (int i = 0; i < STEPS; i++)
            assert_true(step(&whole, i) == step(&split, i));
        for (uint32_t i = 0; i < whole.plan->layout.parameter_count; i++) {
            static const char *const of_whole[] = { "master", "m", "v" };
            static const char *const of_split[] = { NULL, "m", "v" };
            const uint64_t bytes = 4 * whole.plan->layout.parameters[i].elements;
            for (int k = 0; k < 3; k++) {
                float *expected = fetch(&whole, i, of_whole[k]);
                float *found = fetch(&split, i, of_split[k]);
                assert_memory_equal(found, expected, bytes);
                free(expected);
                free(found);
            }
        }
        close_run(&whole);
        close_run(&split);
    }
}

/* ---- no master ---- */

static const char *const roundings[] = { "adamw8sr", "descent" };

/* Weights are bf16 from the first values on. A run that is saved and loaded halfway ends with the
 * hash of the whole one in memory, in every tier and chunk size. */
static void rounded_weights_have_the_same_bits_everywhere(void **state)
{
    (void)state;
    for (int k = 0; k < 2 * 2; k++) {
        run whole = open_run(roundings[k % 2], IN_MEMORY, 0, k / 2);
        must(coh_engine_init(whole.engine, 3), "init");
        for (int i = 0; i < STEPS; i++)
            (void)step(&whole, i);
        const uint64_t expected = hash_of(&whole);
        for (uint32_t i = 0; i < whole.plan->layout.parameter_count; i++) {
            float *found = fetch(&whole, i, NULL);
            for (uint64_t e = 0; e < whole.plan->layout.parameters[i].elements; e++)
                assert_int_equal(bits_of(found[e]) & 0xffffu, 0);
            free(found);
        }
        close_run(&whole);
        for (int tier = 0; tier < TIERS; tier++) {
            if (test_is_brief() && tier != k % TIERS)
                continue;
            run first = open_run(roundings[k % 2], tier, 0, k / 2);
            must(coh_engine_init(first.engine, 3), "init");
            for (int i = 0; i < STEPS / 2; i++)
                (void)step(&first, i);
            run second = open_run(roundings[k % 2], (tier + 1) % TIERS, 0, k / 2);
            carry_over(&first, &second, 1);
            assert_int_equal(hash_of(&second), hash_of(&first));
            close_run(&first);
            for (int i = STEPS / 2; i < STEPS; i++)
                (void)step(&second, i);
            assert_int_equal(hash_of(&second), expected);
            close_run(&second);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_and_low_are_an_f32_master),
        cmocka_unit_test(rounded_weights_have_the_same_bits_everywhere),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
