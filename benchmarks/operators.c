/* Measures what a call of a user's kind costs beyond the kind's own function: trains a chain of
 * LAYERS layers that compute for a microsecond, forward and backward, through the public headers
 * alone, and subtracts the time inside the functions from the step. Everything else of a step (its
 * first and last operator, norm, clip, update) counts as cost. Also counts allocations of the
 * measured steps.
 *
 *     bench_operators      prints for people, then one JSON object */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cohobate/cohobate.h"

enum { LAYERS = 500, CALLS = 2 * LAYERS, COLUMNS = 8, WARM = 20, STEPS = 400 };
enum { SPIN_NS = 1000 };

static _Atomic uint64_t allocations, own_ns;

/* ---- counting ---- */

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    *out = __libc_memalign(alignment, bytes);
    return *out == NULL ? ENOMEM : 0;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- the layer ---- */

/* Copies `from` and computes on until a microsecond has passed. */
static coh_status spin(const float *from, float *to)
{
    const uint64_t begin = now_ns();
    uint64_t passed;
    for (int i = 0; i < COLUMNS; i++)
        to[i] = from[i];
    while ((passed = now_ns() - begin) < SPIN_NS)
        continue;
    atomic_fetch_add_explicit(&own_ns, passed, memory_order_relaxed);
    return COH_OK;
}

static coh_status spin_forward(const coh_call *call)
{
    return spin(call->input[0].data, call->output[0].data);
}

static coh_status spin_backward(const coh_call *call)
{
    return spin(call->output_grad[0].data, call->input_grad[0].data);
}

COH_LAYER(spin_kind, "bench.spin", 1, 0, spin_forward, spin_backward, .takes_bf16 = 0);

/* ---- the run ---- */

static void must(coh_status status)
{
    if (status == COH_OK)
        return;
    fprintf(stderr, "%s\n", coh_last_error());
    exit(1);
}

static coh_graph *build(void)
{
    static const coh_linear_attributes first = { COLUMNS, 1, 0.2f };
    static coh_chain_link links[1 + LAYERS] = { COH_LINK(coh_kind_linear, first) };
    const coh_shape shape = { COH_DTYPE_F32, 2, { 1, COLUMNS } };
    coh_graph *graph;
    coh_tensor input, compared[2], loss;
    for (int i = 1; i <= LAYERS; i++)
        links[i] = (coh_chain_link)COH_LINK_OF(spin_kind);
    must(coh_graph_create(&graph));
    must(coh_graph_input(graph, "x", &shape, &input));
    must(coh_graph_input(graph, "target", &shape, &compared[1]));
    must(coh_graph_chain(graph, input, links, 1 + LAYERS, &compared[0]));
    const coh_op_args args = { .name = "loss", .inputs = compared, .block = -1 };
    must(coh_graph_op(graph, &coh_kind_mean_squared_error, &args, &loss, NULL));
    must(coh_graph_loss(graph, loss));
    return graph;
}

static int by_size(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Returns the median cost of a call in microseconds; adds the allocations of the measured steps. */
static double measure(const coh_plan *plan, uint64_t record_steps, uint64_t *out_allocations)
{
    static const float x[COLUMNS] = { 1 }, y[COLUMNS] = { 0 };
    static double cost_us[STEPS];
    coh_engine_options options;
    coh_engine *engine;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    coh_engine_options_init(&options);
    options.record_steps = record_steps;
    must(coh_engine_create(plan, &options, &engine));
    must(coh_engine_init(engine, 1));
    for (uint64_t step = 0; step < WARM + STEPS; step++) {
        const coh_step_input input = { sizeof(input), step, 1, 1e-3f, 1.0f, { x, y }, 1.0f };
        const uint64_t begin = now_ns(), allocated = atomic_load(&allocations);
        atomic_store(&own_ns, 0);
        must(coh_engine_step(engine, &input, &result));
        if (step < WARM)
            continue;
        cost_us[step - WARM] = (double)(now_ns() - begin - atomic_load(&own_ns)) * 1e-3 / CALLS;
        *out_allocations += atomic_load(&allocations) - allocated;
    }
    coh_engine_destroy(engine);
    qsort(cost_us, STEPS, sizeof(cost_us[0]), by_size);
    return cost_us[STEPS / 2];
}

int main(void)
{
    coh_plan_options options;
    coh_plan *plan;
    uint64_t counted = 0;
    coh_graph *graph = build();
    coh_plan_options_init(&options);
    must(coh_plan_create(graph, &options, &plan));
    const double plain = measure(plan, 0, &counted), recorded = measure(plan, 3, &counted);
    fprintf(stderr, "%d operators of %g us: %.2f us a call without them, %.2f us recorded\n", CALLS,
            SPIN_NS * 1e-3, plain, recorded);
    printf("{\"calls\": %d, \"cost_us\": %.4f, \"cost_recorded_us\": %.4f, \"allocations\": %llu, "
           "\"steps\": %d}\n",
           CALLS, plain, recorded, (unsigned long long)counted, 2 * STEPS);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    return 0;
}
