/* Which operands a plan writes in place of others: none that something still reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cohobate/kinds.h"
#include "planner/plan.h"

static coh_graph *graph;

static void must(coh_status status)
{
    if (status != COH_OK)
        fail_msg("%s", coh_last_error());
}

static coh_tensor add(const coh_op_kind *kind, const char *name, int block, coh_tensor first,
                      coh_tensor second, const void *attributes, size_t bytes)
{
    coh_tensor inputs[2] = { first, second }, output;
    const coh_op_args args = { .name = name,
                               .inputs = inputs,
                               .block = block,
                               .attributes = attributes,
                               .attribute_bytes = bytes };
    must(coh_graph_op(graph, kind, &args, &output, NULL));
    return output;
}

/* x is made before block 0, read by its first operator and, last, by the sum behind it, whose kind
 * may write in place of x. No backward reads it: scale and add read nothing there. */
static void make_graph(void)
{
    const coh_shape shape = { .dtype = COH_DTYPE_F32, .rank = 2, .dim = { 64, 32 } };
    const coh_linear_attributes linear = { .outputs = 32, .init_std = 0.02f };
    const coh_scale_attributes half = { .factor = 0.5f };
    coh_tensor input, target;
    must(coh_graph_create(&graph));
    must(coh_graph_input(graph, "input", &shape, &input));
    must(coh_graph_input(graph, "target", &shape, &target));
    const coh_tensor x = add(&coh_kind_linear, "begin", -1, input, input, &linear, sizeof(linear));
    const coh_tensor h = add(&coh_kind_scale, "half", 0, x, x, &half, sizeof(half));
    const coh_tensor y = add(&coh_kind_linear, "inner", 0, h, h, &linear, sizeof(linear));
    const coh_tensor sum = add(&coh_kind_add, "sum", -1, x, y, NULL, 0);
    must(
        coh_graph_loss(graph, add(&coh_kind_mean_squared_error, "loss", -1, sum, target, NULL, 0)));
}

/* Returns 1 if the forward of an operator is in place in a program. */
static int is_in_place(const coh_program *program, int32_t op)
{
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_instruction *instruction = &program->instructions[i];
        if (instruction->opcode != COH_OP_FORWARD || instruction->call < 0 ||
            program->calls[instruction->call].operator_index != op)
            continue;
        for (uint32_t o = 0; o < instruction->operand_count; o++)
            if (program->operands[instruction->operand_begin + o].takes > 0)
                return 1;
    }
    return 0;
}

static void what_a_recomputed_block_reads_is_not_taken(void **state)
{
    (void)state;
    enum { SUM = 3 };
    make_graph();
    for (int recomputes = 0; recomputes < 2; recomputes++) {
        coh_plan_options options;
        coh_plan *plan = NULL;
        coh_plan_options_init(&options);
        options.recompute = recomputes ? COH_RECOMPUTE_ALL : COH_RECOMPUTE_NONE;
        must(coh_plan_create(graph, &options, &plan));
        assert_false(is_in_place(&plan->programs[COH_PROGRAM_BODY], SUM));
        assert_true(is_in_place(&plan->programs[COH_PROGRAM_EVALUATE], SUM));
        coh_plan_destroy(plan);
    }
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_recomputed_block_reads_is_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
