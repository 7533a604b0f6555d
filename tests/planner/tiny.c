#include "tests/planner/tiny.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "planner/layout.h"
#include "tests/planner/draws.h"

#define UNIT_BYTES ((uint64_t)65536)
#define TIME_NS    1000
#define PAGE_BYTES ((uint64_t)4096)

const char *tiny_family_name(tiny_family family)
{
    static const char *const names[TINY_FAMILY_COUNT] = { "palindrome", "two micro-batches",
                                                          "unequal",    "sweep",
                                                          "random",     "changed" };
    return names[family];
}

/* ---- instances ---- */

static void add_instruction(draws *d, oracle_instance *instance, int item)
{
    instance->instruction[instance->instruction_count++] =
        (oracle_instruction){ .time = draw(d, 1, 4), .reads = (uint8_t)(1u << item) };
}

static void add_palindrome(draws *d, oracle_instance *instance, int count)
{
    for (int item = 0; item < count; item++)
        add_instruction(d, instance, item);
    for (int item = count - 1; item >= 0; item--)
        add_instruction(d, instance, item);
}

/* Instructions of the way back each have an item that only they change. */
static void add_changed(draws *d, oracle_instance *instance)
{
    int weights = instance->item_count;
    int states = draw(d, 1, ORACLE_ITEMS_MOST - 1 - weights < 2 ? 1 : 2);
    for (int i = 0; i < states; i++) {
        oracle_instruction *instruction =
            &instance->instruction[instance->instruction_count - 1 - i];
        int item = instance->item_count++;
        instance->size[item] = 1;
        instruction->reads |= (uint8_t)(1u << item);
        instruction->changes = (uint8_t)(1u << item);
    }
}

static int largest_instruction(const oracle_instance *instance)
{
    int largest = 0;
    for (int instruction = 0; instruction < instance->instruction_count; instruction++) {
        int sum = 0;
        for (int item = 0; item < instance->item_count; item++)
            sum +=
                (instance->instruction[instruction].reads >> item & 1) ? instance->size[item] : 0;
        largest = sum > largest ? sum : largest;
    }
    return largest;
}

void tiny_draw(tiny_family family, uint64_t seed, oracle_instance *out)
{
    draws d = { .stream = 900 + (uint64_t)family, .seed = seed };
    int count = draw(&d, 2, family == TINY_CHANGED ? 3 : 5), total = 0;
    *out = (oracle_instance){ .item_count = count, .unit_time = draw(&d, 1, 4) };
    for (int item = 0; item < count; item++)
        out->size[item] = family == TINY_UNEQUAL ? draw(&d, 1, 3) : 1;
    if (family == TINY_UNEQUAL && out->unit_time > 2)
        out->unit_time = 2;
    switch (family) {
    case TINY_TWICE:
        add_palindrome(&d, out, count);
        add_palindrome(&d, out, count);
        break;
    case TINY_SWEEP:
        for (int item = 0; item < count; item++)
            add_instruction(&d, out, item);
        break;
    case TINY_RANDOM:
        for (int item = 0; item < count; item++)
            add_instruction(&d, out, item);
        for (int more = draw(&d, count, 2 * count); more > 0; more--)
            add_instruction(&d, out, draw(&d, 0, count - 1));
        break;
    case TINY_CHANGED:
        add_palindrome(&d, out, count);
        add_changed(&d, out);
        break;
    case TINY_PALINDROME:
    case TINY_UNEQUAL:
    case TINY_FAMILY_COUNT:
        add_palindrome(&d, out, count);
        break;
    }
    for (int item = 0; item < out->item_count; item++)
        total += out->size[item];
    int least = largest_instruction(out);
    out->room = least < total ? draw(&d, least, total - 1) : total;
}

/* ---- as graphs ---- */

typedef struct instruction_attributes {
    int64_t time, units, state_units;
} instruction_attributes;

static coh_status infer_instruction(const void *attributes, const coh_shape *inputs,
                                    coh_op_facts *out)
{
    const instruction_attributes *a = attributes;
    out->output[0] = inputs[0];
    out->flops[COH_PHASE_FORWARD] = (double)a->time;
    out->bytes[COH_PHASE_FORWARD] = 1;
    if (a->units > 0)
        out->parameter[0] = (coh_parameter_facts){
            .name = "weight",
            .shape = { .dtype = COH_DTYPE_F32, .rank = 1, .dim = { a->units * COH_GRAIN_ELEMENTS } }
        };
    if (a->state_units > 0)
        out->state[0] = (coh_shape){ .dtype = COH_DTYPE_F32,
                                     .rank = 1,
                                     .dim = { a->state_units * COH_GRAIN_ELEMENTS } };
    return COH_OK;
}

static coh_status run_nothing(const coh_call *call)
{
    (void)call;
    return COH_OK;
}

static const coh_op_kind instruction_kind = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "tiny.line",
    .revision = 1,
    .devices = { [COH_DEVICE_HOST] = { .forward = run_nothing, .backward = run_nothing } },
    .input_count = 1,
    .output_count = 1,
    .parameter_count = 1,
    .infer = infer_instruction,
};

static coh_status add_operator(const oracle_instance *instance, int instruction, coh_graph *graph,
                               coh_parameter *items, coh_tensor *x)
{
    char name[32];
    coh_op_kind kind = instruction_kind;
    instruction_attributes attributes = { .time = instance->instruction[instruction].time };
    unsigned changes = instance->instruction[instruction].changes;
    unsigned reads = instance->instruction[instruction].reads & ~changes;
    int item = 0;
    while (!(reads >> item & 1))
        item++;
    for (int k = 0; k < instance->item_count; k++)
        if (changes >> k & 1)
            attributes.state_units = instance->size[k];
    attributes.units = instance->size[item];
    kind.state_count = changes ? 1 : 0;
    snprintf(name, sizeof(name), "line%d", instruction);
    coh_op_args args = { .name = name,
                         .attributes = &attributes,
                         .attribute_bytes = sizeof(attributes),
                         .inputs = x,
                         .block = -1 };
    coh_parameter made = items[item];
    if (made.index >= 0)
        args.tied = &items[item];
    coh_tensor y;
    coh_status status = coh_graph_op(graph, &kind, &args, &y, &made);
    items[item] = made;
    *x = y;
    return status;
}

coh_status tiny_graph(const oracle_instance *instance, coh_graph **out_graph)
{
    coh_graph *graph = NULL;
    coh_tensor x = { 0 };
    coh_parameter items[ORACLE_ITEMS_MOST];
    const coh_shape shape = { .dtype = COH_DTYPE_F32, .rank = 1, .dim = { 1 } };
    for (int item = 0; item < ORACLE_ITEMS_MOST; item++)
        items[item] = COH_PARAMETER_NEW;
    coh_status status = coh_graph_create(&graph);
    if (status == COH_OK)
        status = coh_graph_input(graph, "x", &shape, &x);
    for (int instruction = 0; status == COH_OK && instruction < instance->instruction_count;
         instruction++)
        status = add_operator(instance, instruction, graph, items, &x);
    if (status == COH_OK)
        status = coh_graph_output(graph, x);
    if (status != COH_OK) {
        coh_graph_destroy(graph);
        graph = NULL;
    }
    *out_graph = graph;
    return status;
}

void tiny_profile(const oracle_instance *instance, coh_profile *out_profile)
{
    double unit_ns = (double)instance->unit_time * TIME_NS;
    coh_profile_init(out_profile);
    snprintf(out_profile->name, sizeof(out_profile->name), "tiny");
    for (int roof = 0; roof < COH_ROOF_COUNT; roof++)
        out_profile->flops_per_s[roof] = coh_figure_of(1e9 / TIME_NS);
    for (int lane = COH_LANE_H2D; lane <= COH_LANE_D2H; lane++)
        out_profile->link[lane] =
            (coh_link_profile){ .bytes_per_s = coh_figure_of((double)UNIT_BYTES / unit_ns * 1e9),
                                .depth = 1 };
}

coh_status tiny_options(const oracle_instance *instance, const coh_graph *graph,
                        const coh_profile *profile, coh_plan_options *out_options)
{
    coh_layout layout;
    coh_object_map map;
    coh_plan_options_init(out_options);
    out_options->mode = COH_PLAN_INFER;
    out_options->chunk_bytes = 4 * UNIT_BYTES;
    out_options->emulate_host = 1;
    out_options->host_memory_bytes = (uint64_t)1 << 30;
    out_options->profile = profile;
    const coh_decisions decisions = { .chunk_bytes = 4 * UNIT_BYTES };
    coh_status status = coh_layout_build(graph, out_options, &decisions, &layout, &map);
    if (status != COH_OK)
        return status;
    /* what an instruction reads and writes in addition to its items: two tensors of one page */
    out_options->device_memory_bytes =
        layout.pinned_bytes + 2 * PAGE_BYTES + (uint64_t)instance->room * UNIT_BYTES;
    coh_object_map_fini(&map);
    coh_layout_fini(&layout);
    return COH_OK;
}
