/* Bytes that ranks receive over each level of links, and that they keep, against the formulas of
 * docs/ranks.md: the plan has these bytes, and a step counts as many. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/engine/ranks_bench.h"

enum { GRAIN = 16384, LINE = 64 };

/* Ranks 2x2x2 (or the first factors of it), pairs of 2, nodes of 4. */
typedef struct world_shape {
    uint64_t ranks;
    int axes;
    uint64_t node;
} world_shape;

static world_shape shape_of(const setting *s)
{
    world_shape shape = { (uint64_t)s->ranks, 0,
                          (uint64_t)(s->node_ranks > 0 ? s->node_ranks : s->ranks) };
    for (uint64_t ranks = 1; ranks < shape.ranks; ranks *= 2)
        shape.axes++;
    return shape;
}

/* The numbers of a pattern. */
typedef struct numbers {
    uint64_t work, grad, state, copy; /* copy: 0: none */
} numbers;

/* Returns the bytes of the largest part of `window` bytes after it is divided by 2 so often, in
 * multiples of `unit`. */
static uint64_t part_of(uint64_t window, int times, uint64_t unit)
{
    for (int i = 0; i < times; i++) {
        const uint64_t half = (window + 1) / 2;
        const uint64_t part = (half + unit - 1) / unit * unit;
        window = part < window ? part : window;
    }
    return window;
}

static int log2_of(uint64_t ranks)
{
    int times = 0;
    while (ranks > 1) {
        ranks /= 2;
        times++;
    }
    return times;
}

/* Returns the grains of a group's parameters. */
static uint64_t grains_of(const coh_layout *layout, const coh_group_layout *group)
{
    uint64_t grains = 0;
    for (uint32_t i = 0; i < group->parameter_count; i++)
        grains += (layout->parameters[group->parameter_begin + i].elements + GRAIN - 1) / GRAIN;
    return grains;
}

/* Returns 1 if the ranks divide a group: it has a grain for each part of the states. */
static int is_divided(const coh_layout *layout, const coh_group_layout *group, numbers parts)
{
    return grains_of(layout, group) >= parts.state && parts.state > 1;
}

/* Returns how often a call reads a chunk of work. */
static uint64_t uses_in(const coh_program *body, const coh_instruction *call, uint32_t chunk)
{
    const coh_operand *operands = &body->operands[call->operand_begin];
    uint64_t uses = 0;
    for (uint32_t o = 0; o < call->operand_count; o++)
        for (uint32_t t = 0; t < operands[o].touch_count; t++)
            uses += operands[o].role == COH_ROLE_PARAMETER &&
                    body->touches[operands[o].touch_begin + t].chunk == chunk;
    return uses;
}

/* Returns how often the calls of a body read a chunk of work: all of them, or forwards alone. */
static uint64_t uses_of(const coh_plan *plan, uint32_t chunk, int only_forward)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    uint64_t uses = 0;
    for (uint32_t i = 0; i < body->instruction_count; i++)
        if (!only_forward || body->instructions[i].opcode == COH_OP_FORWARD)
            uses += uses_in(body, &body->instructions[i], chunk);
    return uses;
}

/* Returns the bytes of `bytes` in memory on a wire: codes, and a scale for 128 elements. */
static uint64_t sent_bytes(coh_wire wire, uint64_t bytes, uint64_t element)
{
    const uint64_t count = bytes / element, scales = (count + 127) / 128 * 4;
    const uint64_t sent = wire == COH_WIRE_INT8   ? count + scales
                          : wire == COH_WIRE_INT4 ? (count + 127) / 128 * 64 + scales
                                                  : 2 * count;
    return wire == COH_WIRE_STORED ? bytes : (sent + LINE - 1) / LINE * LINE;
}

/* Returns the bytes that a rank receives of one chunk over an axis of two ranks. */
static uint64_t chunk_bytes(const coh_plan *plan, const coh_group_layout *group, numbers parts,
                            uint32_t chunk, int axis)
{
    const coh_layout *layout = &plan->layout;
    const int divides = is_divided(layout, group, parts);
    const uint64_t bytes = group->dtype == COH_DTYPE_BF16 ? 2 : 4;
    const uint64_t work = layout->chunks[chunk].bytes, grad = work / bytes * 4;
    const uint64_t slices = part_of(grad, axis + 1, divides ? (uint64_t)GRAIN * 4 : LINE);
    const uint64_t updated = part_of(work, axis + 1, GRAIN * bytes);
    const coh_wires *wires = &plan->options.wires;
    if (!divides)
        return 2 * slices; /* and the sums */
    const uint64_t sent = sent_bytes(wires->gradients, slices, 4);
    if (axis >= log2_of(parts.state))
        return sent + slices;
    return sent + (axis < log2_of(parts.work)
                       ? uses_of(plan, chunk, parts.copy > 0 && axis >= log2_of(parts.copy)) *
                             sent_bytes(wires->weights, updated, bytes)
                       : updated);
}

/* Returns the bytes that a rank receives in a step over the links within a node, or between
 * nodes. */
static uint64_t received_bytes(const setting *s, const coh_plan *plan, numbers parts, int between)
{
    const coh_layout *layout = &plan->layout;
    const world_shape shape = shape_of(s);
    uint64_t bytes = 0, partials = 0;
    for (uint32_t g = 0; g < layout->group_count; g++) {
        const coh_group_layout *group = &layout->groups[g];
        const coh_object *work = &layout->objects[group->work];
        const int divides = is_divided(layout, group, parts);
        for (uint32_t c = work->chunk_begin; c < work->chunk_begin + work->chunk_count; c++) {
            const uint64_t grain = (uint64_t)GRAIN * (group->dtype == COH_DTYPE_BF16 ? 2 : 4);
            const uint64_t own = part_of(layout->chunks[c].bytes, log2_of(parts.state), grain);
            partials += divides ? (own + grain - 1) / grain : 0;
            for (int axis = 0; axis < shape.axes; axis++)
                if (((uint64_t)2 << axis > shape.node) == between)
                    bytes += chunk_bytes(plan, group, parts, c, axis);
        }
    }
    if ((shape.ranks > shape.node) == between) /* losses and norm partials, of all ranks */
        bytes += (shape.ranks - 1) *
                 (layout->microbatch_count * LINE + (partials * 8 + LINE - 1) / LINE * LINE);
    return bytes;
}

/* Returns the bytes of weights, gradients and states that a rank keeps. */
static uint64_t kept_bytes(const coh_plan *plan, numbers parts)
{
    const coh_layout *layout = &plan->layout;
    uint64_t kept = 0;
    for (uint32_t g = 0; g < layout->group_count; g++) {
        const coh_group_layout *group = &layout->groups[g];
        const coh_object *work = &layout->objects[group->work];
        const int is_half = group->dtype == COH_DTYPE_BF16;
        const uint64_t grain = (uint64_t)GRAIN * (is_half ? 2 : 4);
        const int divides = is_divided(layout, group, parts);
        for (uint32_t c = work->chunk_begin; c < work->chunk_begin + work->chunk_count; c++) {
            const uint64_t whole = layout->chunks[c].bytes;
            const uint64_t of_work = part_of(whole, divides ? log2_of(parts.work) : 0, grain);
            const uint64_t of_grad = part_of(whole, divides ? log2_of(parts.grad) : 0, grain);
            const uint64_t of_state = part_of(whole, divides ? log2_of(parts.state) : 0, grain);
            /* AdamW: m and v in f32; of bf16 also the low halves of the f32 master */
            kept += of_work + of_grad * (is_half ? 2 : 1) + of_state * (is_half ? 5 : 2);
        }
    }
    return kept;
}

static const struct {
    setting s;
    numbers parts;
} cases[] = {
    { { "2x2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 8, 4, IN_MEMORY, 0, -1,
        .pattern = "replicate" },
      { 1, 1, 1 } },
    { { "2x2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 8, 4, IN_MEMORY, 0, -1,
        .pattern = "zero1" },
      { 1, 1, 8 } },
    { { "2x2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 0, 0, 8, 4, IN_MEMORY, 0, -1,
        .pattern = "zero2" },
      { 1, 8, 8 } },
    { { "2x2x2", 2, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 8, 4, IN_MEMORY, 0, -1,
        .pattern = "zero3", .wires = { COH_WIRE_INT8, COH_WIRE_INT4 } },
      { 8, 8, 8 } },
    { { "2x2x2", 2, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 8, 4, IN_MEMORY, 0, -1,
        .pattern = "zeropp", .wires = { COH_WIRE_INT8, COH_WIRE_INT4 } },
      { 8, 8, 8, 4 } },
    { { "2x2", 2, COH_DTYPE_BF16, COH_SWEEP_LAYER, 1, 0.5f, 4, 2, HOST, 0, -1,
        .pattern = "4/4/4/2" },
      { 4, 4, 4, 2 } },
    { { "2x2x2", 2, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 1, 0.5f, 8, 4, IN_MEMORY, 0, -1,
        .pattern = "2/4/8" },
      { 2, 4, 8 } },
    { { "2x2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 0, 0, 8, 4, DISK, 0, -1,
        .pattern = "2/2/4" },
      { 2, 2, 4 } },
    { { "2x2", 2, COH_DTYPE_F32, COH_SWEEP_LAYER, 1, 0.5f, 4, 2, HOST, 0, -1, .pattern = "zero3" },
      { 4, 4, 4 } },
    { { "2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, DISK, 0, -1,
        .pattern = "1/2/4" },
      { 1, 2, 4 } },
};

static void ranks_receive_and_keep_what_the_formulas_say(void **state)
{
    (void)state;
    int compared = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const setting *s = &cases[i].s;
        if (test_is_brief() && i % 8 != 0)
            continue;
        coh_graph *graph = make_graph(s);
        coh_plan *plan = plan_of(graph, s);
        coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
        end ends[RANKS_MOST];
        must(coh_plan_summarize(plan, &summary), "summary");
        for (int between = 0; between < 2; between++) {
            const uint64_t expected = received_bytes(s, plan, cases[i].parts, between);
            const uint64_t planned = summary.link_bytes[between ? COH_LANE_COMM1 : COH_LANE_COMM0];
            if (planned != expected)
                fail_msg("%s on %d ranks, level %d: %" PRIu64 " bytes planned, %" PRIu64
                         " by the formula",
                         s->pattern, s->ranks, between, planned, expected);
        }
        assert_true(summary.stream_bytes == kept_bytes(plan, cases[i].parts));
        run_setting(s, ends);
        for (int rank = 0; rank < s->ranks; rank++) {
            const coh_step_result *counted = &ends[rank].results[STEPS - 1];
            must(ends[rank].status, ends[rank].sentence);
            for (int lane = COH_LANE_COMM0; lane <= COH_LANE_COMM1; lane++)
                assert_true(ends[rank].link_bytes[lane] == STEPS * summary.link_bytes[lane]);
            for (int tier = 0; tier < COH_TIER_COUNT; tier++)
                assert_true(counted->peak_bytes[tier] == summary.peak_bytes[tier]);
        }
        coh_plan_destroy(plan);
        coh_graph_destroy(graph);
        compared++;
    }
    printf("%d settings: bytes over both levels, and those kept, equal to the byte; peaks as "
           "planned\n",
           compared);
}

static void one_rank_has_no_lines_between_ranks(void **state)
{
    (void)state;
    setting s = cases[0].s;
    s.ranks = 1;
    s.node_ranks = 0;
    coh_graph *graph = make_graph(&s);
    coh_plan *plan = plan_of(graph, &s);
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        assert_int_equal(plan->programs[kind].comm_count, 0);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_receive_and_keep_what_the_formulas_say),
        cmocka_unit_test(one_rank_has_no_lines_between_ranks),
    };
    return cmocka_run_group_tests(tests, draw_inputs, NULL);
}
