/* mlp.c - an MLP on a table of numbers: trained in 256 KiB of memory, the rest on disk, and saved.
 *
 *     make && ./mlp table.txt CHECKPOINT        each line of the table: three inputs, one target */
#include <cohobate/cohobate.h>
#include <stdio.h>

enum { ROWS = 512, COLUMNS = 3, BATCH = 64, STEPS = 400, BUDGET = 256 << 10 };
#define THEN(call) (status = status == COH_OK ? (call) : status)

static float x[ROWS][COLUMNS], y[ROWS];

static coh_status build(coh_graph *graph, coh_status status)
{
    static const coh_linear_attributes wide = { .outputs = 96, .has_bias = 1, .init_std = 0.2f };
    static const coh_linear_attributes last = { .outputs = 1, .has_bias = 1, .init_std = 0.1f };
    static const coh_chain_link links[] = { COH_LINK(coh_kind_linear_relu, wide),
                                            COH_LINK(coh_kind_linear_relu, wide),
                                            COH_LINK(coh_kind_linear_relu, wide),
                                            COH_LINK(coh_kind_linear, last) };
    const coh_shape inputs = { COH_DTYPE_F32, 2, { BATCH, COLUMNS } };
    const coh_shape targets = { COH_DTYPE_F32, 2, { BATCH, 1 } };
    coh_tensor input, compared[2], loss;
    THEN(coh_graph_input(graph, "x", &inputs, &input));
    THEN(coh_graph_input(graph, "target", &targets, &compared[1]));
    THEN(coh_graph_chain(graph, input, links, 4, &compared[0]));
    const coh_op_args args = { .name = "loss", .inputs = compared, .block = -1 };
    THEN(coh_graph_op(graph, &coh_kind_mean_squared_error, &args, &loss, NULL));
    return THEN(coh_graph_loss(graph, loss));
}

int main(int count, char **arguments)
{
    coh_graph *graph = NULL;
    coh_plan *plan = NULL;
    coh_engine *engine = NULL;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    FILE *table = count == 3 ? fopen(arguments[1], "r") : NULL;
    if (!table)
        return fprintf(stderr, "usage: mlp TABLE CHECKPOINT; TABLE must be readable\n"), 2;
    for (int i = 0; i < ROWS; i++)
        if (fscanf(table, "%f%f%f%f", &x[i][0], &x[i][1], &x[i][2], &y[i]) != 4)
            return fprintf(stderr, "mlp: %s: line %d has no 4 numbers\n", arguments[1], i + 1), 2;
    coh_status status = coh_graph_create(&graph);
    THEN(build(graph, status));
    THEN(coh_engine_create_within(graph, BUDGET, ".", &plan, &engine));
    THEN(coh_engine_init(engine, 1));
    coh_step_input at = { .struct_bytes = sizeof(at), .learning_rate = 3e-3f, .clip = 1.0f };
    for (; at.step < STEPS && status == COH_OK; at.step++) {
        at.inputs[0] = x[at.step * BATCH % ROWS];
        at.inputs[1] = &y[at.step * BATCH % ROWS];
        THEN(coh_engine_step(engine, &at, &result));
    }
    const coh_checkpoint_note note = { sizeof(note), STEPS, "{}" };
    THEN(coh_engine_save(engine, arguments[2], &note));
    printf("loss %g, %s\n", result.loss, status == COH_OK ? "saved" : coh_last_error());
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    return coh_status_exit_code(status);
}
