#include "tests/faults/fault_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "cohobate/kinds.h"
#include "cohobate/models.h"
#include "engine/engine_state.h"
#include "tests/search_length.h"
#include "tests/temporary.h"

enum { SEQUENCES = 2, TOKENS = 8, MICROBATCHES = 2, VOCABULARY = 96, CHANNELS = 32 };

/* ---- graphs ---- */

static coh_status two_operator_graph(int is_frozen, coh_graph **out_graph)
{
    coh_graph *graph = NULL;
    coh_tensor input[2], x = { 0 }, loss;
    const coh_shape ids = { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { SEQUENCES, TOKENS } };
    const coh_embedding_attributes embedding = { .vocabulary = VOCABULARY,
                                                 .channels = CHANNELS,
                                                 .init_std = 0.02f };
    const coh_classifier_attributes classifier = { .vocabulary = VOCABULARY, .init_std = 0.02f };
    const coh_op_args embed = { .name = "table",
                                .attributes = &embedding,
                                .attribute_bytes = sizeof(embedding),
                                .inputs = &input[0],
                                .frozen_parameters = (uint32_t)is_frozen,
                                .block = -1 };
    coh_status status = coh_graph_create(&graph);
    if (status == COH_OK)
        status = coh_graph_input(graph, "tokens", &ids, &input[0]);
    if (status == COH_OK)
        status = coh_graph_input(graph, "targets", &ids, &input[1]);
    if (status == COH_OK)
        status = coh_graph_op(graph, &coh_kind_embedding, &embed, &x, NULL);
    const coh_tensor classified[2] = { x, input[1] };
    const coh_op_args classify = { .name = "classifier",
                                   .attributes = &classifier,
                                   .attribute_bytes = sizeof(classifier),
                                   .inputs = classified,
                                   .block = -1 };
    if (status == COH_OK)
        status = coh_graph_op(graph, &coh_kind_classifier, &classify, &loss, NULL);
    if (status == COH_OK)
        status = coh_graph_loss(graph, loss);
    if (status == COH_OK)
        *out_graph = graph;
    else
        coh_graph_destroy(graph);
    return status;
}

coh_status fault_graph(fault_model_size size, coh_graph **out_graph)
{
    coh_gpt2_config config = { .layers = 2,
                               .heads = 2,
                               .channels = CHANNELS,
                               .positions = TOKENS,
                               .vocabulary = VOCABULARY,
                               .layernorm_epsilon = 1e-5f,
                               .dtype = COH_DTYPE_BF16 };
    *out_graph = NULL;
    if (size == FAULT_TWO_OPERATORS || size == FAULT_FROZEN)
        return two_operator_graph(size == FAULT_FROZEN, out_graph);
    if (size == FAULT_NANO) {
        coh_status status = coh_gpt2_preset("gpt2-nano", 257, &config);
        if (status != COH_OK)
            return status;
    }
    return coh_gpt2_train_graph(&config, SEQUENCES, TOKENS, out_graph);
}

/* ---- plans and engines ---- */

void fault_plan_options(uint64_t device_bytes, coh_plan_options *out_options)
{
    coh_plan_options_init(out_options);
    out_options->search = test_search();
    out_options->microbatch_count = MICROBATCHES;
    if (device_bytes == 0)
        return;
    out_options->device_memory_bytes = device_bytes;
    out_options->disk_bytes = UINT64_MAX;
}

uint64_t fault_smallest_bytes(const coh_graph *graph)
{
    coh_plan_options options;
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    coh_plan *plan;
    fault_plan_options(UINT64_MAX, &options);
    if (coh_plan_create(graph, &options, &plan) != COH_OK)
        fail_msg("no plan: %s", coh_last_error());
    assert_int_equal(coh_plan_summarize(plan, &summary), COH_OK);
    coh_plan_destroy(plan);
    assert_true(summary.smallest_device_bytes > 0);
    return summary.smallest_device_bytes;
}

void fault_engine_options(const char *store, coh_engine_options *out_options)
{
    coh_engine_options_init(out_options);
    out_options->disk_folder = ".";
    out_options->store = store;
}

static float clip_norm = 1.0f;

void fault_set_clip(float norm)
{
    clip_norm = norm;
}

static const coh_store_ops *store_ops;

void fault_set_store(const coh_store_ops *store)
{
    store_ops = store;
}

coh_step_input fault_step_input(uint64_t step)
{
    static int32_t tokens[MICROBATCHES * SEQUENCES * TOKENS], targets[sizeof(tokens) / 4];
    for (size_t i = 0; i < sizeof(tokens) / 4; i++) {
        tokens[i] = (int32_t)coh_rng_below(7, step, i, VOCABULARY);
        targets[i] = (int32_t)coh_rng_below(8, step, i, VOCABULARY);
    }
    return (coh_step_input){ .struct_bytes = sizeof(coh_step_input),
                             .step = step,
                             .seed = FAULT_SEED,
                             .learning_rate = 1e-3f,
                             .clip = clip_norm,
                             .inputs = { tokens, targets } };
}

coh_status fault_train(coh_engine *engine, uint64_t from, uint64_t to, uint64_t *out_hash)
{
    coh_status status = COH_OK;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    for (uint64_t step = from; step < to && status == COH_OK; step++) {
        const coh_step_input input = fault_step_input(step);
        status = coh_engine_submit(engine, &input);
        if (status == COH_OK && step > from)
            status = coh_engine_wait(engine, &result);
    }
    if (status == COH_OK && to > from)
        status = coh_engine_wait(engine, &result);
    return status == COH_OK ? coh_engine_hash(engine, out_hash) : status;
}

coh_status fault_run(const coh_plan *plan, const coh_engine_options *options,
                     coh_engine **out_engine, uint64_t *out_hash)
{
    *out_hash = 0;
    const coh_engine_device device = { .ops = &coh_device_host, .store_ops = store_ops };
    coh_status status = coh_engine_create_on(plan, options, &device, out_engine);
    if (status == COH_OK)
        status = coh_engine_init(*out_engine, FAULT_SEED);
    return status == COH_OK ? fault_train(*out_engine, 0, FAULT_STEPS, out_hash) : status;
}

void fault_destroy(coh_engine *engine)
{
    if (engine == NULL)
        return;
    coh_step_destroy(engine->step);
    engine->step = NULL;
    assert_int_equal(coh_ledger_total_bytes(engine->ledger), 0);
    coh_engine_destroy(engine);
}

/* ---- what a test checks around them ---- */

static char watched[256];

static void bark(int number)
{
    (void)number;
    ssize_t written = write(STDERR_FILENO, watched, strlen(watched));
    (void)written;
    _exit(1);
}

void fault_watchdog(unsigned seconds, const char *what)
{
    alarm(0);
    snprintf(watched, sizeof(watched), "hangs: %s after %u seconds\n", what, seconds);
    const struct sigaction action = { .sa_handler = bark };
    sigaction(SIGALRM, &action, NULL);
    alarm(seconds);
}

void fault_check_sentence(const char *text)
{
    size_t length = strlen(text);
    if (length < 12 || isspace((unsigned char)text[0]) ||
        isspace((unsigned char)text[length - 1]) || strchr(text, '\n') != NULL)
        fail_msg("no sentence: '%s'", text);
}

void fault_make_folder(char *out_path, size_t path_bytes)
{
    temporary_in_memory();
    if (temporary_folder(out_path, path_bytes, "faults") != 0)
        fail_msg("no folder %s", out_path);
}
