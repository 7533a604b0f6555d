/* Prices instructions by a profile. The idea: look up the curves of every operator once, then
 * interpolate samples by work, with the roofline as fallback, and report the figure each price
 * came from. The rules are in price.h; profiles in profile.h. */
#include "planner/price.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/calibration.h"
#include "planner/fingerprint.h"
#include "planner/opcodes.h"
#include "planner/optimizers.h"
#include "planner/plan.h"

/* ---- the curves of a profile ---- */

/* Compares by kind, phase, lane and dtype: curves for the same kind of instruction compare
 * equal. */
static int compare_kinds(const coh_operator_times *a, const coh_operator_times *b)
{
    int order = strcmp(a->kind, b->kind);
    if (order == 0)
        order = (a->phase > b->phase) - (a->phase < b->phase);
    if (order == 0)
        order = (a->lane > b->lane) - (a->lane < b->lane);
    if (order == 0)
        order = (a->dtype > b->dtype) - (a->dtype < b->dtype);
    return order;
}

static int compare_curves(const void *left, const void *right)
{
    const coh_operator_times *a = ((const coh_price_curve *)left)->times;
    const coh_operator_times *b = ((const coh_price_curve *)right)->times;
    int order = compare_kinds(a, b);
    if (order == 0)
        order = (a->signature > b->signature) - (a->signature < b->signature);
    return order ? order : (a > b) - (a < b);
}

static coh_status make_curves(coh_pricer *p)
{
    const coh_profile *profile = p->profile;
    size_t sample_count = 0;
    for (uint32_t i = 0; i < profile->operator_count; i++)
        sample_count += profile->operators[i].sample_count;
    COH_TRY(COH_ALLOC(profile->operator_count, &p->curves));
    COH_TRY(COH_ALLOC(sample_count, &p->work));
    double *work = p->work;
    for (uint32_t i = 0; i < profile->operator_count; i++) {
        const coh_operator_times *times = &profile->operators[i];
        p->curves[i] = (coh_price_curve){ .times = times, .work = work };
        for (uint32_t s = 0; s < times->sample_count; s++)
            *work++ = coh_profile_work(profile, times->dtype == COH_DTYPE_BF16,
                                       times->samples[s].flops, times->samples[s].bytes);
    }
    p->curve_count = profile->operator_count;
    qsort(p->curves, p->curve_count, sizeof(*p->curves), compare_curves);
    return COH_OK;
}

/* Finds the first curve that is not before `wanted`, regardless of signature. */
static uint32_t first_curve(const coh_pricer *p, const coh_operator_times *wanted)
{
    uint32_t low = 0, high = p->curve_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (compare_kinds(p->curves[middle].times, wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Finds the curve with that signature, else all curves of its kind. */
static coh_curve_range find_curves(const coh_pricer *p, const coh_operator_times *wanted)
{
    const uint32_t begin = first_curve(p, wanted);
    coh_curve_range range = { .begin = begin, .end = begin };
    for (; range.end < p->curve_count; range.end++) {
        const coh_operator_times *times = p->curves[range.end].times;
        if (compare_kinds(times, wanted) != 0)
            break;
        if (wanted->signature != 0 && times->signature == wanted->signature)
            return (coh_curve_range){ .begin = range.end, .end = range.end + 1 };
    }
    return range;
}

static void name_set(coh_operator_times *times, const char *name)
{
    size_t bytes = strnlen(name, sizeof(times->kind) - 1);
    memcpy(times->kind, name, bytes);
    times->kind[bytes] = '\0';
}

/* Entries per operator: forward, and backward in each form. */
enum { PLACES = 1 + COH_GRAD_FORMS };

/* Finds the curve of the nearest available form. */
static coh_curve_range find_backward(const coh_pricer *p, coh_operator_times wanted, unsigned form)
{
    const unsigned nearest[] = { form, form ^ COH_GRADS_ADD, form ^ COH_GRADS_WIDE,
                                 form ^ (COH_GRADS_ADD | COH_GRADS_WIDE) };
    const uint64_t signature = wanted.signature;
    coh_curve_range range = { 0 };
    for (size_t i = 0; i < sizeof(nearest) / sizeof(nearest[0]); i++) {
        wanted.signature = coh_backward_signature(signature, nearest[i]);
        range = find_curves(p, &wanted);
        if (range.end > range.begin && p->curves[range.begin].times->signature == wanted.signature)
            return (coh_curve_range){ range.begin, range.begin + 1 };
    }
    return range; /* all curves of the kind */
}

/* Finds the curves of an operator in both phases. */
static void find_operator(const coh_pricer *p, coh_operator_times wanted, coh_curve_range *found)
{
    wanted.phase = COH_PHASE_FORWARD;
    found[0] = find_curves(p, &wanted);
    wanted.phase = COH_PHASE_BACKWARD;
    for (unsigned form = 0; form < COH_GRAD_FORMS; form++)
        found[1 + form] = find_backward(p, wanted, form);
}

/* Were these curves measured of this very operator, a backward in any form? */
static int are_own(const coh_pricer *p, const coh_curve_range *found, uint64_t signature)
{
    for (unsigned form = 0; found->end > found->begin && form < COH_GRAD_FORMS; form++)
        if (p->curves[found->begin].times->signature == coh_backward_signature(signature, form))
            return 1;
    return 0;
}

/* An operator that opens weights has the curves of one with plain weights in a phase in which it
 * was not measured itself. */
static void find_opening_operator(const coh_pricer *p, coh_operator_times wanted, uint64_t plain,
                                  coh_opening *opening, coh_curve_range *found)
{
    coh_curve_range usual[PLACES];
    const int own_forward = are_own(p, &found[0], wanted.signature);
    const int own_backward = are_own(p, &found[1], wanted.signature);
    wanted.signature = plain;
    find_operator(p, wanted, usual);
    if (own_forward)
        opening->part[COH_PHASE_FORWARD] = 0;
    else
        found[0] = usual[0];
    if (own_backward)
        opening->part[COH_PHASE_BACKWARD] = 0;
    else
        memcpy(&found[1], &usual[1], COH_GRAD_FORMS * sizeof(*found));
}

static void find_operators(coh_pricer *p, const coh_graph *graph)
{
    for (size_t i = 0; i < p->op_count; i++) {
        coh_operator_times wanted = { .lane = COH_LANE_COMPUTE,
                                      .dtype = coh_operator_dtype(graph, i),
                                      .signature = coh_operator_signature(graph, i) };
        coh_curve_range *found = &p->operators[i * PLACES];
        name_set(&wanted, graph->ops[i].kind.name);
        find_operator(p, wanted, found);
        if (p->openings != NULL && p->openings[i].element_bytes > 0)
            find_opening_operator(p, wanted, coh_operator_plain_signature(graph, i),
                                  &p->openings[i], found);
    }
}

/* ---- weights in NF4 ---- */

static coh_opening opening_of(const coh_graph *graph, size_t op)
{
    const coh_op_facts *facts = &graph->ops[op].facts;
    coh_opening opening = { 0 };
    double elements = 0;
    for (int32_t i = 0; i < graph->ops[op].kind.parameter_count; i++)
        if (facts->parameter[i].shape.dtype == COH_DTYPE_NF4)
            elements += (double)coh_shape_elements(&facts->parameter[i].shape);
    if (elements == 0)
        return opening;
    opening.element_bytes = (double)COH_NF4_BLOCK_BYTES / COH_NF4_BLOCK +
                            (double)coh_dtype_bytes(coh_operator_dtype(graph, op));
    for (int phase = 0; phase < COH_PHASE_COUNT; phase++) {
        const double bytes = elements * opening.element_bytes;
        if (facts->bytes[phase] >= bytes) /* else the kind does not count them */
            opening.part[phase] = bytes / facts->bytes[phase];
    }
    return opening;
}

static coh_status find_openings(coh_pricer *p, const coh_graph *graph)
{
    for (size_t i = 0; i < p->op_count; i++) {
        const coh_opening opening = opening_of(graph, i);
        if (opening.element_bytes == 0)
            continue;
        if (p->openings == NULL)
            COH_TRY(COH_ALLOC(p->op_count, &p->openings));
        p->openings[i] = opening;
    }
    return COH_OK;
}

/* Returns the bytes of an instruction with which it opens weights. */
static double opening_bytes(const coh_pricer *p, const coh_program *program,
                            const coh_instruction *instruction)
{
    const int32_t op =
        instruction->call < 0 ? -1 : program->calls[instruction->call].operator_index;
    if (p->openings == NULL || op < 0)
        return 0;
    const int phase =
        instruction->opcode == COH_OP_BACKWARD ? COH_PHASE_BACKWARD : COH_PHASE_FORWARD;
    return p->openings[op].part[phase] * (double)instruction->bytes;
}

static coh_curve_range find_named(const coh_pricer *p, const char *name, int is_bf16, int is_host)
{
    coh_operator_times wanted = {
        .lane = is_host ? COH_LANE_HOST : COH_LANE_COMPUTE,
        .dtype = is_bf16 ? COH_DTYPE_BF16 : COH_DTYPE_F32,
    };
    name_set(&wanted, name);
    return find_curves(p, &wanted);
}

static coh_status find_updates(coh_pricer *p)
{
    const int32_t count = coh_optimizer_count();
    COH_TRY(COH_ALLOC((size_t)count, &p->updates));
    for (; p->update_count < count; p->update_count++) {
        coh_update_curves *found = &p->updates[p->update_count];
        char name[sizeof(((coh_operator_times *)0)->kind)];
        found->optimizer = coh_optimizer_at(p->update_count);
        coh_price_update_name(found->optimizer, name, sizeof(name));
        for (int i = 0; i < 4; i++)
            found->ranges[i / 2][i % 2] = find_named(p, name, i / 2, i % 2);
    }
    return COH_OK;
}

static void find_opcodes(coh_pricer *p)
{
    for (int opcode = 0; opcode < COH_OP_COUNT; opcode++)
        for (int is_bf16 = 0; is_bf16 < 2; is_bf16++)
            for (int is_host = 0; is_host < 2; is_host++)
                p->opcodes[opcode][is_bf16][is_host] =
                    find_named(p, coh_price_name((coh_opcode)opcode), is_bf16, is_host);
}

coh_status coh_pricer_init(coh_pricer *out_pricer, const coh_profile *profile,
                           const coh_graph *graph)
{
    *out_pricer = (coh_pricer){ .profile = profile, .op_count = graph ? graph->op_count : 0 };
    COH_TRY(find_openings(out_pricer, graph));
    if (profile->operator_count == 0)
        return COH_OK;
    COH_TRY(make_curves(out_pricer));
    COH_TRY(COH_ALLOC(out_pricer->op_count * PLACES, &out_pricer->operators));
    if (graph)
        find_operators(out_pricer, graph);
    find_opcodes(out_pricer);
    return find_updates(out_pricer);
}

int coh_pricer_is_measured(const coh_pricer *pricer, size_t op)
{
    const coh_curve_range *found =
        pricer->operators != NULL ? &pricer->operators[op * PLACES] : NULL;
    return found != NULL && found->end > found->begin;
}

void coh_pricer_fini(coh_pricer *pricer)
{
    coh_free(pricer->curves);
    coh_free(pricer->work);
    coh_free(pricer->operators);
    coh_free(pricer->openings);
    coh_free(pricer->updates);
    *pricer = (coh_pricer){ 0 };
}

const char *coh_price_name(coh_opcode opcode)
{
    return coh_opcode_rows[opcode].word;
}

void coh_price_update_name(const coh_optimizer *optimizer, char *out, size_t bytes)
{
    const int is_default = strcmp(optimizer->name, COH_OPTIMIZER_DEFAULT) == 0;
    snprintf(out, bytes, "%s%s%s", coh_price_name(COH_OP_UPDATE), is_default ? "" : " ",
             is_default ? "" : optimizer->name);
}

/* ---- one price ---- */

/* Interpolates by `part` from a to b. */
static coh_price between(const coh_price *a, const coh_figure *b, double part)
{
    return (coh_price){ .p10 = a->p10 + (b->p10 * 1e9 - a->p10) * part,
                        .p50 = a->p50 + (b->p50 * 1e9 - a->p50) * part,
                        .p90 = a->p90 + (b->p90 * 1e9 - a->p90) * part };
}

static coh_price price_of(const coh_figure *seconds)
{
    return (coh_price){ .p10 = seconds->p10 * 1e9,
                        .p50 = seconds->p50 * 1e9,
                        .p90 = seconds->p90 * 1e9 };
}

static coh_price scaled(coh_price price, double factor)
{
    price.p10 *= factor;
    price.p50 *= factor;
    price.p90 *= factor;
    return price;
}

/* Adds the cost of an instruction besides its kernel: samples and rates are of kernels alone. */
static coh_price with_instruction(coh_price price, const coh_figure *instruction_ns)
{
    price.p10 += instruction_ns->p10;
    price.p50 += instruction_ns->p50;
    price.p90 += instruction_ns->p90;
    return price;
}

/* Interpolates from zero work at zero time through the samples. */
static coh_price curve_price(const coh_price_curve *curve, double work)
{
    const coh_operator_sample *samples = curve->times->samples;
    uint32_t low = 0, high = curve->times->sample_count; /* the first sample of at least `work` */
    uint32_t last = high - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (curve->work[middle] < work)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > last) {
        double most = curve->work[last];
        return scaled(price_of(&samples[last].seconds), most > 0 ? work / most : 1);
    }
    double from = low == 0 ? 0 : curve->work[low - 1];
    double span = curve->work[low] - from;
    coh_price start = { 0 };
    if (low > 0)
        start = price_of(&samples[low - 1].seconds);
    return between(&start, &samples[low].seconds, span > 0 ? (work - from) / span : 1);
}

static coh_price curves_price(const coh_pricer *p, coh_curve_range range, double work)
{
    coh_price sum = { .source = range.begin };
    for (uint32_t i = range.begin; i < range.end; i++) {
        coh_price one = curve_price(&p->curves[i], work);
        sum.p10 += one.p10;
        sum.p50 += one.p50;
        sum.p90 += one.p90;
    }
    return with_instruction(scaled(sum, 1.0 / (range.end - range.begin)),
                            &p->profile->instruction_ns);
}

/* Nanoseconds for an amount at a rate: the lowest rate gives the longest time. */
static coh_price at_rate(double amount, const coh_figure *rate)
{
    if (!(rate->p50 > 0))
        return (coh_price){ 0 };
    return (coh_price){ .p10 = amount / rate->p90 * 1e9,
                        .p50 = amount / rate->p50 * 1e9,
                        .p90 = amount / rate->p10 * 1e9 };
}

static const coh_figure *link_rate(const coh_link_profile *link)
{
    return link->sustained_bytes_per_s.p50 > 0 ? &link->sustained_bytes_per_s : &link->bytes_per_s;
}

/* ---- the roofline ---- */

/* Sources of instructions without samples, numbered after those of links: one per figure. */
enum {
    SOURCE_ROOF = COH_LANE_COUNT,
    SOURCE_MEMORY = SOURCE_ROOF + COH_ROOF_COUNT,
    SOURCE_HOST_MEMORY,
    SOURCE_HOST_UPDATE,
    SOURCE_PAIR
};

typedef struct rate {
    coh_figure figure;
    uint32_t source; /* relative to the end of the curves */
} rate;

/* Checkpoints use one drive of the store; an unknown drive has the usual rates. */
static rate drive_rate(const coh_profile *profile, coh_lane lane)
{
    coh_figure figure = coh_profile_is_link(profile, lane) ? *link_rate(&profile->link[lane])
                                                           : coh_profile_usual_drive(lane);
    coh_figure_multiply(&figure, 1.0 / coh_profile_drive_count(profile));
    return (rate){ figure, lane };
}

/* The rate at which the instruction's bytes are processed. */
static rate memory_rate(const coh_profile *profile, const coh_instruction *instruction)
{
    const coh_price_rule rule = coh_opcode_row_of(instruction)->price;
    if (rule == COH_PRICE_DRIVE_WRITE)
        return drive_rate(profile, COH_LANE_WRITE);
    if (rule == COH_PRICE_DRIVE_READ)
        return drive_rate(profile, COH_LANE_READ);
    if (instruction->lane == COH_LANE_HOST && rule == COH_PRICE_HOST_UPDATE &&
        profile->host_update_bytes_per_s.p50 > 0)
        return (rate){ profile->host_update_bytes_per_s, SOURCE_HOST_UPDATE };
    if (instruction->lane == COH_LANE_HOST && profile->host_memory_bytes_per_s.p50 > 0)
        return (rate){ profile->host_memory_bytes_per_s, SOURCE_HOST_MEMORY };
    return (rate){ profile->memory_bytes_per_s, SOURCE_MEMORY };
}

/* Operations of an update that a processor computes while its memory moves a byte: 9.5 on the 16
 * cores beside an H200, 5.4 on 2 cores of an EPYC. */
#define HOST_FLOPS_PER_BYTE 8.0

/* The rate at which the instruction's operations are computed, and the figure it is from: an update
 * beside a GPU computes on the processor. */
static rate compute_rate(const coh_profile *profile, const coh_instruction *instruction,
                         uint32_t roof, const rate *through)
{
    rate computing = { profile->flops_per_s[roof], SOURCE_ROOF + roof };
    if (instruction->lane == COH_LANE_HOST && profile->device_kind != COH_DEVICE_HOST) {
        computing = *through;
        coh_figure_multiply(&computing.figure, HOST_FLOPS_PER_BYTE);
    }
    return computing;
}

/* Returns the bytes that the update of an element moves: the gradient is read, all else is read and
 * written. */
static double update_bytes(const coh_group_layout *group)
{
    double bytes = 0;
    for (int32_t i = 0; i < group->stream_count; i++) {
        const coh_group_stream *row = &group->streams[i];
        const double passes = row->object == COH_STREAM_GRAD ? 1 : 2;
        bytes += passes * row->bytes_per_block / row->elements_per_block;
    }
    return bytes;
}

double coh_price_update_part(const coh_graph *graph, const coh_plan_options *options)
{
    double moves = 0, takes = 0;
    for (size_t i = 0; i < graph->parameter_count && options->mode == COH_PLAN_TRAIN; i++) {
        const coh_shape *shape = &graph->parameters[i].facts.shape;
        const coh_optimizer *optimizer = coh_optimizer_of(graph, options, i);
        coh_group_layout group = { .dtype = shape->dtype, .f32_gradients = options->f32_gradients };
        if (graph->parameters[i].frozen || optimizer == NULL)
            continue;
        coh_group_streams_make(&group, optimizer, 0);
        const double elements = (double)coh_shape_elements(shape);
        const double bytes = update_bytes(&group),
                     as_bytes = optimizer->flops / HOST_FLOPS_PER_BYTE;
        moves += elements * bytes;
        takes += elements * (bytes > as_bytes ? bytes : as_bytes);
    }
    return takes > 0 ? moves / takes : 1;
}

/* The roofline price; its source is relative to the end of the curves. */
static coh_price roofline(const coh_profile *profile, const coh_instruction *instruction,
                          int is_bf16)
{
    const uint32_t roof = is_bf16 ? COH_ROOF_BF16 : COH_ROOF_F32;
    const rate through = memory_rate(profile, instruction);
    const rate computing = compute_rate(profile, instruction, roof, &through);
    coh_price price = at_rate(instruction->flops, &computing.figure);
    coh_price memory = at_rate((double)instruction->bytes, &through.figure);
    price.source = computing.source;
    memory.source = through.source;
    if (instruction->lane == COH_LANE_HOST && profile->device_kind == COH_DEVICE_HOST &&
        profile->threads > 1 && through.source == SOURCE_MEMORY)
        /* the rate is of all threads; the host lane is one thread */
        memory = scaled(memory, profile->threads);
    return with_instruction(memory.p50 > price.p50 ? memory : price, &profile->instruction_ns);
}

/* Returns the time in which a compute instruction opens weights, before their product. */
static coh_price opening_price(const coh_profile *profile, double bytes, double element_bytes)
{
    const double threads = profile->threads > 1 ? profile->threads : 1;
    const double ns = bytes / element_bytes * COH_OPEN_NS / threads;
    const coh_price memory = at_rate(bytes, &profile->memory_bytes_per_s);
    return profile->device_kind == COH_DEVICE_HOST && ns > memory.p50
               ? (coh_price){ .p10 = ns, .p50 = ns, .p90 = ns }
               : memory;
}

/* Returns the time in which a rank packs what it sends in an exchange and unpacks what arrives: its
 * parts pass through memory twice, on a thread of its own. */
static coh_price packing(const coh_profile *profile, const coh_layout *layout,
                         const coh_comm_call *comm)
{
    const int is_host = profile->device_kind == COH_DEVICE_HOST;
    const double passes = 2.0 * coh_mesh_group_size(&layout->mesh, comm->axes);
    coh_figure memory = profile->memory_bytes_per_s;
    if (comm->wire == COH_WIRE_STORED)
        return (coh_price){ 0 };
    if (is_host && profile->threads > 1)
        coh_figure_multiply(&memory, 1.0 / profile->threads);
    return at_rate(passes * (double)comm->part_bytes, &memory);
}

/* ---- one instruction ---- */

/* Returns 1 if the instruction works on bf16 tensors. */
static int is_bf16(const coh_layout *layout, const coh_program *program,
                   const coh_instruction *instruction)
{
    int found = 0;
    if (instruction->call < 0) {
        if (instruction->operand_count == 0)
            return 0;
        const coh_object *object =
            &layout->objects[program->operands[instruction->operand_begin].object];
        return (object->stream == COH_STREAM_WORK || object->stream == COH_STREAM_GRAD ||
                object->stream == COH_STREAM_STATE) &&
               (object->stream == COH_STREAM_GRAD
                    ? coh_group_grad_dtype(&layout->groups[object->owner])
                    : layout->groups[object->owner].dtype) == COH_DTYPE_BF16;
    }
    const coh_instruction_call *call = &program->calls[instruction->call];
    for (uint32_t i = 0; i < call->binding_count; i++)
        found |= program->bindings[call->binding_begin + i].shape.dtype == COH_DTYPE_BF16;
    return found;
}

/* Returns the curves of the update's own optimizer; an empty range: there are none. */
static coh_curve_range update_curves(const coh_pricer *p, const coh_layout *layout,
                                     const coh_program *program, const coh_instruction *instruction,
                                     int on_bf16)
{
    const coh_object *object =
        &layout->objects[program->operands[instruction->operand_begin].object];
    const coh_optimizer *optimizer = layout->optimizers[layout->groups[object->owner].optimizer];
    for (int32_t i = 0; i < p->update_count; i++)
        if (p->updates[i].optimizer == optimizer)
            return p->updates[i].ranges[on_bf16][instruction->lane == COH_LANE_HOST];
    return (coh_curve_range){ 0 };
}

static coh_curve_range instruction_curves(const coh_pricer *p, const coh_layout *layout,
                                          const coh_program *program,
                                          const coh_instruction *instruction, int on_bf16)
{
    const coh_instruction_call *call =
        instruction->call < 0 ? NULL : &program->calls[instruction->call];
    const int32_t op = call == NULL ? -1 : call->operator_index;
    if (p->curve_count == 0)
        return (coh_curve_range){ 0 };
    if (instruction->opcode == COH_OP_UPDATE && instruction->operand_count > 0) {
        const coh_curve_range own = update_curves(p, layout, program, instruction, on_bf16);
        if (own.end > own.begin)
            return own;
    }
    if (op < 0)
        return p->opcodes[instruction->opcode][on_bf16][instruction->lane == COH_LANE_HOST];
    const coh_curve_range *found = &p->operators[(size_t)op * PLACES];
    return instruction->opcode == COH_OP_BACKWARD
               ? found[1 + coh_grad_form(call, program->bindings)]
               : found[0];
}

const coh_link_profile *coh_price_link(const coh_profile *profile, const coh_program *program,
                                       const coh_instruction *instruction)
{
    const coh_link_profile *pair = &profile->link[COH_LINK_PAIR];
    if (instruction->comm > 0 && pair->bytes_per_s.p50 > 0 &&
        program->comms[instruction->comm - 1].level == COH_LEVEL_PAIR)
        return pair;
    const coh_lane lane = coh_profile_priced_lane(profile, (coh_lane)instruction->lane);
    return coh_profile_is_link(profile, lane) ? &profile->link[lane] : NULL;
}

/* Returns the calibration of an instruction; NULL: it has none. Factors apply to compute
 * instructions and links only: no others are measured in runs. */
static const coh_calibration *calibration_of(const coh_profile *profile,
                                             const coh_instruction *instruction)
{
    const coh_calibration *calibration = &profile->calibration[instruction->opcode];
    return calibration->runs > 0 && instruction->lane != COH_LANE_HOST ? calibration : NULL;
}

double coh_price_uncertainty(const coh_profile *profile, const coh_instruction *instruction)
{
    const coh_calibration *calibration = calibration_of(profile, instruction);
    return calibration != NULL ? coh_calibration_uncertainty(calibration) : 0;
}

static coh_price add_prices(coh_price price, coh_price more)
{
    price.p10 += more.p10;
    price.p50 += more.p50;
    price.p90 += more.p90;
    return price;
}

/* Returns the price of an instruction that computes, without a calibration. */
static coh_price work_price(const coh_pricer *pricer, const coh_layout *layout,
                            const coh_program *program, const coh_instruction *instruction)
{
    const coh_profile *profile = pricer->profile;
    const double opened = opening_bytes(pricer, program, instruction);
    const int on_bf16 = is_bf16(layout, program, instruction);
    const coh_curve_range range = instruction_curves(pricer, layout, program, instruction, on_bf16);
    coh_instruction rest = *instruction;
    coh_price price;
    rest.bytes -= (uint64_t)opened;
    if (range.end > range.begin) {
        price = curves_price(pricer, range,
                             coh_profile_work(profile, on_bf16, rest.flops, (double)rest.bytes));
    } else {
        price = roofline(profile, &rest, on_bf16);
        price.source += pricer->curve_count;
    }
    if (opened > 0) {
        const int32_t op = program->calls[instruction->call].operator_index;
        price =
            add_prices(price, opening_price(profile, opened, pricer->openings[op].element_bytes));
    }
    return price;
}

coh_price coh_price_instruction(const coh_pricer *pricer, const coh_layout *layout,
                                const coh_program *program, const coh_instruction *instruction)
{
    const coh_profile *profile = pricer->profile;
    const coh_calibration *calibration = calibration_of(profile, instruction);
    const coh_link_profile *link = coh_price_link(profile, program, instruction);
    coh_price price;
    if (link != NULL) {
        price = at_rate((double)instruction->bytes, link_rate(link));
        const uint32_t figure = (uint32_t)(link - profile->link);
        price.source =
            pricer->curve_count + (figure == COH_LINK_PAIR ? (uint32_t)SOURCE_PAIR : figure);
    } else {
        price = work_price(pricer, layout, program, instruction);
    }
    if (instruction->comm > 0)
        price = add_prices(price, packing(profile, layout, &program->comms[instruction->comm - 1]));
    return calibration != NULL ? scaled(price, calibration->factor) : price;
}
