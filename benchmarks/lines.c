/* What a line costs beside its work: a chain of LINES operators that do nothing, or spin for a
 * while, run as a program in memory. The ceiling is the same kernels called in a plain loop; the
 * difference, by line, is the executor's: waits, entering and leaving extents, counters, and the
 * issuing thread beside it. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "benchmarks/measure.h"
#include "cohobate/engine.h"

enum { LINES = 2000, ELEMENTS = 16 };

typedef struct chain {
    coh_graph *graph;
    coh_plan *plan;
    coh_engine *engine;
    coh_step_input input;
} chain;

static uint64_t spin_ns;

static coh_status link_infer(const void *attributes, const coh_shape *inputs,
                             coh_op_facts *out_facts)
{
    (void)attributes;
    out_facts->output[0] = inputs[0];
    out_facts->parameter[0] = (coh_parameter_facts){ .name = "weight", .shape = inputs[0] };
    return COH_OK;
}

static coh_status link_forward(const coh_call *call)
{
    (void)call;
    if (spin_ns > 0)
        for (uint64_t begin = coh_clock_ns(); coh_clock_ns() - begin < spin_ns;)
            continue;
    return COH_OK;
}

static const coh_op_kind link_kind = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "bench.link",
    .revision = 1,
    .input_count = 1,
    .output_count = 1,
    .parameter_count = 1,
    .infer = link_infer,
    .forward = link_forward,
};

static void must(coh_status status)
{
    if (status == COH_OK)
        return;
    fprintf(stderr, "%s\n", coh_last_error());
    exit(1);
}

static void chain_create(chain *c, float *values)
{
    const coh_shape shape = { .dtype = COH_DTYPE_F32, .rank = 1, .dim = { ELEMENTS } };
    coh_tensor tensor;
    must(coh_graph_create(&c->graph));
    must(coh_graph_input(c->graph, "x", &shape, &tensor));
    for (int i = 0; i < LINES; i++) {
        char name[16];
        coh_tensor output;
        snprintf(name, sizeof(name), "link%d", i);
        const coh_op_args args = { .name = name, .inputs = &tensor, .block = -1 };
        must(coh_graph_op(c->graph, &link_kind, &args, &output, NULL));
        tensor = output;
    }
    must(coh_graph_output(c->graph, tensor));
    coh_plan_options plan_options;
    coh_plan_options_init(&plan_options);
    plan_options.mode = COH_PLAN_INFER;
    must(coh_plan_create(c->graph, &plan_options, &c->plan));
    coh_engine_options options;
    coh_engine_options_init(&options);
    must(coh_engine_create(c->plan, &options, &c->engine));
    must(coh_engine_init(c->engine, 1));
    c->input = (coh_step_input){ .inputs = { values } };
}

static void as_lines(void *argument)
{
    chain *c = argument;
    must(coh_engine_evaluate(c->engine, &c->input, NULL));
}

static void in_a_loop(void *argument)
{
    (void)argument;
    const coh_call call = { 0 };
    for (int i = 0; i < LINES; i++)
        must(link_forward(&call));
}

int main(void)
{
    static const uint64_t spins_ns[] = { 0, 10000, 100000 };
    static float values[ELEMENTS];
    chain c = { 0 };
    chain_create(&c, values);
    for (int i = 0; i < 3; i++) {
        char what[64];
        measure_result result;
        spin_ns = spins_ns[i];
        measure_pairs(as_lines, in_a_loop, &c, &result);
        snprintf(what, sizeof(what), "kernels of %g us", (double)spin_ns * 1e-3);
        measure_print("lines", what, LINES * 1e-6, "M lines", &result);
        fprintf(stderr, "%-10s %-22s %8.2f us a line beside its kernel\n", "", "",
                (result.ours_s - result.ceiling_s) / LINES * 1e6);
    }
    coh_engine_destroy(c.engine);
    coh_plan_destroy(c.plan);
    coh_graph_destroy(c.graph);
    return 0;
}
