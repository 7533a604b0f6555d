/* Measures operators of graphs. Each is placed in a window with everything that its forward and
 * backward touch, and called there as the executor calls it. Windows follow one another in memory:
 *
 *    | window 0 | window 1 | window 2 | ... never used ...|
 *      forward    forward    forward       read, so that the windows leave the caches
 *      backward   backward   backward
 *
 * Data that the previous instruction has just written (the inputs of a forward, the gradients of
 * outputs of a backward) is read before the call, since it is warm in a step. On a GPU nothing
 * is read between the calls, and many calls are timed at once: there are as many windows as fit.
 * Next: measure.h. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cohobate/machine.h"
#include "engine/measure.h"
#include "planner/fingerprint.h"

/* The largest chunk that is measured; operators do not depend on it. */
#define CHUNK_BYTES ((uint64_t)4 << 20)
/* Most windows of one operator on a GPU. */
#define GPU_WINDOWS_MOST 512
/* Rounds over all operators, some seconds apart. Disturbances of a machine come in spells, so a
 * figure taken in one spell is not representative. */
#define TURNS 3

/* One operator of one graph, with its cache or without. */
typedef struct point {
    const coh_measure_lowered *lowered;
    const coh_graph_op_entry *op;
    const coh_lowered_instruction *instruction[COH_PHASE_COUNT]; /* NULL: none */
    coh_operator_times what; /* of the operator; times_of completes it for a phase */
    coh_window window;
    coh_figure seconds[COH_PHASE_COUNT]; /* joined over all rounds; no samples: not measured */
} point;

typedef struct coh_operator_list {
    coh_measure_lowered *lowered; /* points point at them */
    uint32_t lowered_count;
    point *points;
    uint32_t point_count;
    size_t point_capacity;
} coh_operator_list;

/* ---- the times of a profile ---- */

static double work_of(const coh_profile *profile, coh_dtype dtype, double flops, double bytes)
{
    return coh_profile_work(profile, dtype == COH_DTYPE_BF16, flops, bytes);
}

static int is_same(const coh_operator_times *a, const coh_operator_times *b)
{
    return a->signature == b->signature && a->phase == b->phase && a->lane == b->lane &&
           a->dtype == b->dtype && strcmp(a->kind, b->kind) == 0;
}

static coh_operator_times *find_times(const coh_measure *m, const coh_operator_times *what)
{
    for (uint32_t i = 0; i < m->profile->operator_count; i++)
        if (is_same(&m->profile->operators[i], what))
            return &m->profile->operators[i];
    return NULL;
}

/* Returns the sample of the same work, or NULL. */
static coh_operator_sample *find_sample(const coh_measure *m, const coh_operator_times *what,
                                        double flops, double bytes)
{
    coh_operator_times *times = find_times(m, what);
    const double work = work_of(m->profile, what->dtype, flops, bytes);
    for (uint32_t i = 0; times != NULL && i < times->sample_count; i++)
        if (work_of(m->profile, what->dtype, times->samples[i].flops, times->samples[i].bytes) ==
            work)
            return &times->samples[i];
    return NULL;
}

int coh_measure_knows(const coh_measure *m, const coh_operator_times *what, double flops,
                      double bytes)
{
    return find_sample(m, what, flops, bytes) != NULL;
}

coh_status coh_measure_add(coh_measure *m, const coh_operator_times *what,
                           const coh_operator_sample *sample)
{
    coh_profile *profile = m->profile;
    coh_operator_times *times = find_times(m, what);
    const double work = work_of(profile, what->dtype, sample->flops, sample->bytes);
    if (times == NULL) {
        COH_TRY(COH_GROW(&profile->operators, &m->operator_capacity, profile->operator_count + 1));
        times = &profile->operators[profile->operator_count++];
        *times = *what;
        times->samples = NULL;
        times->sample_count = 0;
    }
    size_t capacity = times->sample_count;
    COH_TRY(COH_GROW(&times->samples, &capacity, times->sample_count + 1));
    uint32_t at = times->sample_count++;
    for (; at > 0; at--) {
        const coh_operator_sample *before = &times->samples[at - 1];
        if (work_of(profile, what->dtype, before->flops, before->bytes) <= work)
            break;
        times->samples[at] = *before;
    }
    times->samples[at] = *sample;
    return COH_OK;
}

coh_status coh_measure_join(coh_measure *m, const coh_operator_times *what,
                            const coh_operator_sample *sample)
{
    coh_operator_sample *known = find_sample(m, what, sample->flops, sample->bytes);
    if (known == NULL)
        return coh_measure_add(m, what, sample);
    known->seconds = coh_figure_joined(&known->seconds, &sample->seconds);
    return COH_OK;
}

/* ---- choosing operators ---- */

/* Prints "[.,.,768] [3072,768] [3072]". A dimension that depends on the micro-batch is a dot. */
static void describe_shape(const coh_graph *graph, const coh_graph_op_entry *op,
                           char text[sizeof(((coh_operator_times *)0)->shape)])
{
    const size_t most = sizeof(((coh_operator_times *)0)->shape);
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < op->kind.input_count + op->kind.parameter_count && used < most; i++) {
        const int is_input = i < op->kind.input_count;
        const int32_t parameter = is_input ? -1 : op->parameter[i - op->kind.input_count];
        if (!is_input && parameter < 0)
            continue;
        const coh_shape *shape = is_input ? &graph->tensors[op->input[i]].shape
                                          : &graph->parameters[parameter].facts.shape;
        const int32_t free_dims = !is_input ? 0 : shape->rank > 2 ? 2 : 1;
        for (int32_t d = 0; d < shape->rank && used < most; d++) {
            const char *before = d > 0 ? "," : used > 0 ? " [" : "[";
            int length = d < free_dims ? snprintf(text + used, most - used, "%s.", before)
                                       : snprintf(text + used, most - used, "%s%lld", before,
                                                  (long long)shape->dim[d]);
            used += (size_t)length;
        }
        if (used < most)
            used += (size_t)snprintf(text + used, most - used, "]");
    }
}

/* Finds the instructions of operator `index` in the last micro-batch. */
static void find_instructions(point *p, int32_t index)
{
    const coh_lowered *body = &p->lowered->body;
    for (size_t i = 0; i < body->instruction_count; i++) {
        const coh_lowered_instruction *candidate = &body->instructions[i];
        if (candidate->call < 0 || body->calls[candidate->call].operator_index != index ||
            body->calls[candidate->call].microbatch != p->lowered->microbatch_count - 1 ||
            (candidate->opcode != COH_OP_FORWARD && candidate->opcode != COH_OP_BACKWARD))
            continue;
        int phase = candidate->opcode == COH_OP_BACKWARD ? COH_PHASE_BACKWARD : COH_PHASE_FORWARD;
        if (p->instruction[phase] == NULL)
            p->instruction[phase] = candidate;
    }
}

/* Returns the profile key of a phase's times. */
static coh_operator_times times_of(const point *p, int phase)
{
    const coh_lowered *body = &p->lowered->body;
    coh_operator_times what = p->what;
    what.phase = (uint8_t)phase;
    if (phase == COH_PHASE_BACKWARD && p->instruction[phase] != NULL)
        what.signature = coh_backward_signature(
            what.signature,
            coh_grad_form(&body->calls[p->instruction[phase]->call], body->bindings));
    return what;
}

/* Is the phase measured already, or covered by another point? */
static int is_covered(const coh_measure *m, const point *p, int phase)
{
    const coh_lowered_instruction *instruction = p->instruction[phase];
    const coh_operator_times what = times_of(p, phase);
    if (instruction == NULL ||
        coh_measure_knows(m, &what, instruction->flops, (double)instruction->bytes))
        return 1;
    for (uint32_t i = 0; i < m->operators->point_count; i++) {
        const point *other = &m->operators->points[i];
        const coh_operator_times others = times_of(other, phase);
        if (other->instruction[phase] != NULL && is_same(&others, &what) &&
            other->instruction[phase]->flops == instruction->flops &&
            other->instruction[phase]->bytes == instruction->bytes)
            return 1;
    }
    return 0;
}

static coh_status find_points(coh_measure *m, const coh_measure_lowered *lowered, int with_cache)
{
    coh_operator_list *list = m->operators;
    const coh_graph *graph = lowered->graph;
    for (size_t i = 0; i < graph->op_count; i++) {
        const coh_graph_op_entry *op = &graph->ops[i];
        point p = { .lowered = lowered, .op = op };
        if (!with_cache && op->facts.cache_bytes == 0)
            continue;
        p.what = (coh_operator_times){ .dtype = coh_operator_dtype(graph, i),
                                       .lane = COH_LANE_COMPUTE,
                                       .signature = coh_operator_signature(graph, i) };
        snprintf(p.what.kind, sizeof(p.what.kind), "%s", op->kind.name);
        find_instructions(&p, (int32_t)i);
        if (is_covered(m, &p, COH_PHASE_FORWARD) && is_covered(m, &p, COH_PHASE_BACKWARD))
            continue;
        describe_shape(graph, op, p.what.shape);
        for (int phase = 0; phase < COH_PHASE_COUNT; phase++)
            if (p.instruction[phase] != NULL)
                COH_TRY(coh_window_add(&p.window, lowered, p.instruction[phase]));
        COH_TRY(COH_GROW(&list->points, &list->point_capacity, list->point_count + 1));
        list->points[list->point_count++] = p;
    }
    return COH_OK;
}

/* A body with the cache and one without, and the same of two micro-batches, in which gradients
 * already exist. */
enum { BODIES_MOST = 4 };

static coh_status find_in_graph(coh_measure *m, const coh_graph *graph)
{
    const int body_count = m->options->accumulates && graph->loss >= 0 ? BODIES_MOST : 2;
    for (int body = 0; body < body_count; body++) {
        const int with_cache = body % 2 == 0;
        coh_measure_lowered *lowered = &m->operators->lowered[m->operators->lowered_count];
        COH_TRY(coh_measure_lowered_init(m, graph, CHUNK_BYTES, NULL, with_cache, 1 + body / 2,
                                         lowered));
        m->operators->lowered_count++;
        COH_TRY(find_points(m, lowered, with_cache));
    }
    return COH_OK;
}

static uint32_t round_count(const coh_measure *m)
{
    return m->options->quick ? 1 : TURNS;
}

coh_status coh_operators_find(coh_measure *m, uint32_t *out_count)
{
    const size_t graph_count = m->options->graph_count;
    *out_count = 0;
    COH_TRY(COH_ALLOC(1, &m->operators));
    COH_TRY(COH_ALLOC(graph_count * BODIES_MOST, &m->operators->lowered));
    for (size_t i = 0; i < graph_count; i++)
        COH_TRY(find_in_graph(m, m->options->graphs[i]));
    *out_count = m->operators->point_count * round_count(m);
    return COH_OK;
}

void coh_operators_free(coh_measure *m)
{
    coh_operator_list *list = m->operators;
    if (list == NULL)
        return;
    for (uint32_t i = 0; i < list->lowered_count; i++)
        coh_measure_lowered_fini(&list->lowered[i]);
    coh_free(list->lowered);
    coh_free(list->points);
    coh_free(list);
}

/* ---- one call ---- */

typedef struct bench {
    coh_measure *m;
    coh_bed *bed;
    point *p;
    coh_cold cold;
    uint32_t window_count;
    /* The current call, its phase and its window. */
    int phase;
    uint64_t window;
    coh_call call;
} bench;

/* Returns the address of a binding in the window that begins at `base`. */
static char *place_of(const bench *b, const coh_lowered_instruction *instruction,
                      const coh_binding *binding, char *base)
{
    const coh_lowered *body = &b->p->lowered->body;
    int32_t object = body->operands[instruction->operand_begin + binding->operand].object;
    return base + coh_window_place(&b->p->window, object, binding->object_offset);
}

static void make_call(bench *b, int phase, uint64_t window)
{
    const coh_lowered *body = &b->p->lowered->body;
    const coh_lowered_instruction *instruction = b->p->instruction[phase];
    const coh_instruction_call *instruction_call = &body->calls[instruction->call];
    const coh_graph_op_entry *op = b->p->op;
    char *base = b->cold.base + window % b->window_count * b->p->window.bytes;
    b->phase = phase;
    b->window = window;
    b->call = (coh_call){ .attributes = op->attributes,
                          .random_cell = op->kind.draws ? &b->bed->cells->random : NULL,
                          .loss_scale = 1,
                          .loss_share = 1,
                          .loss_factor_cell = &b->bed->cells->loss_factor,
                          .row_begin = instruction_call->row_begin,
                          .row_end = instruction_call->row_end,
                          .row_count = instruction_call->row_count,
                          .input_grad_adds = instruction_call->input_grad_adds,
                          .parameter_grad_adds = instruction_call->parameter_grad_adds,
                          .queue = b->bed->queue };
    for (uint32_t i = 0; i < instruction_call->binding_count; i++) {
        const coh_binding *binding = &body->bindings[instruction_call->binding_begin + i];
        const coh_bound_port port =
            coh_bound_port_of(binding, place_of(b, instruction, binding, base));
        coh_call_set_port(&b->call, &port);
    }
}

static coh_kind_function kernels_of(const bench *b, coh_phase phase)
{
    return coh_kind_function_of(&b->p->op->kind,
                                b->bed->is_host ? COH_DEVICE_HOST : COH_DEVICE_CUDA, phase);
}

/* A coh_bed_work: runs the call of this window; builds it unless it is the current one. */
static coh_status run_call(void *context, uint64_t window)
{
    bench *b = context;
    if (b->window != window)
        make_call(b, b->phase, window);
    return kernels_of(b, b->phase)(&b->call);
}

/* ---- data in a window ---- */

/* The integers of a forward's input: value i is i * factor % period. */
typedef struct integers {
    int64_t factor, period;
} integers;

/* Rows of the operator's own parameter, in a scattered order; zeros if it has none. Positions of
 * documents: those of one document a row, which is the most work. */
static integers integers_of(const bench *b, int port)
{
    const coh_call *call = &b->call;
    const coh_shape *shape = &call->input[port].shape;
    if (b->p->op->facts.counting_inputs >> port & 1u)
        return (integers){ 1, shape->dim[shape->rank - 1] };
    return (integers){ 7919,
                       call->parameter[0].data != NULL ? call->parameter[0].shape.dim[0] : 1 };
}

static void make_integers(int32_t *values, int64_t count, integers of)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = (int32_t)(i * of.factor % of.period);
}

static coh_status put_integers(const bench *b, int port)
{
    const coh_view *view = &b->call.input[port];
    const integers rows = integers_of(b, port);
    const int64_t count = coh_shape_elements(&view->shape);
    const coh_bed *bed = b->bed;
    int32_t *values;
    if (bed->is_host) {
        make_integers(view->data, count, rows);
        return COH_OK;
    }
    COH_TRY(COH_ALLOC((size_t)count, &values));
    make_integers(values, count, rows);
    coh_status status =
        bed->what->ops->put(bed->device, view->data, values, (size_t)count * sizeof(*values));
    coh_free(values);
    return status;
}

static coh_status fill_integers(const bench *b)
{
    const coh_call *call = &b->call;
    for (int port = 0; port < COH_PORT_MAX; port++)
        if (call->input[port].data != NULL && call->input[port].shape.dtype == COH_DTYPE_I32)
            COH_TRY(put_integers(b, port));
    return COH_OK;
}

static void read_recent(bench *b)
{
    const coh_view *views = b->phase == COH_PHASE_FORWARD ? b->call.input : b->call.output_grad;
    for (int port = 0; port < COH_PORT_MAX; port++)
        if (views[port].data != NULL)
            coh_cold_read(&b->cold, views[port].data,
                          (uint64_t)coh_shape_elements(&views[port].shape) *
                              coh_dtype_bytes(views[port].shape.dtype));
}

/* A coh_bed_work: prepares the data of the phase's call before the clock starts; a GPU's windows
 * were all filled at the begin. */
static coh_status prepare(void *context, uint64_t window)
{
    bench *b = context;
    make_call(b, b->phase, window);
    if (b->bed->is_host && b->phase == COH_PHASE_FORWARD)
        COH_TRY(fill_integers(b));
    read_recent(b);
    return COH_OK;
}

static coh_status fill_windows(bench *b)
{
    COH_TRY(coh_cold_fill(&b->cold, 0));
    if (b->bed->is_host || b->p->instruction[COH_PHASE_FORWARD] == NULL)
        return COH_OK;
    for (uint32_t window = 0; window < b->window_count; window++) {
        make_call(b, COH_PHASE_FORWARD, window);
        COH_TRY(fill_integers(b));
    }
    return COH_OK;
}

/* ---- one operator ---- */

static coh_status measure_phase(bench *b, int phase)
{
    coh_figure turn;
    b->phase = phase;
    COH_TRY(coh_measure_work(b->m, b->bed, prepare, run_call, b, &turn));
    b->p->seconds[phase] = coh_figure_joined(&b->p->seconds[phase], &turn);
    return COH_OK;
}

/* Runs a forward in every window, because backward reads its results from the same window. */
static coh_status run_forwards(bench *b)
{
    double seconds;
    for (uint32_t window = 0; window < b->window_count; window++) {
        COH_TRY(prepare(b, window));
        COH_TRY(coh_bed_time(b->bed, run_call, b, window, 1, &seconds));
    }
    return COH_OK;
}

/* Does the kind have kernels for this device? A user-defined kind may exist only for the host. */
static int has_kernels(const bench *b)
{
    for (int phase = 0; phase < COH_PHASE_COUNT; phase++)
        if (b->p->instruction[phase] != NULL && kernels_of(b, phase) == NULL)
            return 0;
    return 1;
}

/* Checks that the operator has kernels and its window fits. Reports what is missing. */
static int can_measure(bench *b)
{
    char bytes[32];
    b->window_count =
        coh_cold_windows(&b->cold, &b->p->window,
                         b->bed->is_host ? b->m->effort.samples_most + 1 : GPU_WINDOWS_MOST);
    if (!has_kernels(b))
        coh_measure_say(b->m, "%s %s was not measured: this kind has no kernels for a GPU",
                        b->p->what.kind, b->p->what.shape);
    else if (b->window_count == 0)
        coh_measure_say(b->m, "%s %s was not measured: one call touches %s", b->p->what.kind,
                        b->p->what.shape,
                        coh_size_format(b->p->window.bytes, bytes, sizeof(bytes)));
    else
        return 1;
    return 0;
}

static coh_status measure_phases(bench *b)
{
    COH_TRY(fill_windows(b));
    if (b->p->instruction[COH_PHASE_FORWARD] != NULL) {
        COH_TRY(measure_phase(b, COH_PHASE_FORWARD));
        COH_TRY(run_forwards(b));
    }
    if (b->p->instruction[COH_PHASE_BACKWARD] == NULL)
        return COH_OK;
    const uint64_t used = b->window_count * b->p->window.bytes;
    coh_cold_read(&b->cold, b->cold.base + used, b->cold.bytes - used);
    return measure_phase(b, COH_PHASE_BACKWARD);
}

/* Measures one operator in one round. */
static coh_status measure_point(bench *b, point *p)
{
    b->p = p;
    coh_measure_begin(b->m, "%s %s", p->what.kind, p->what.shape);
    if (!can_measure(b))
        return COH_OK;
    const coh_status status = measure_phases(b);
    if (status != COH_OK)
        return coh_fail_prefix(status, "operator %s %s", p->what.kind, p->what.shape);
    return COH_OK;
}

static int is_left_out(const point *p)
{
    return p->seconds[COH_PHASE_FORWARD].samples == 0 &&
           p->seconds[COH_PHASE_BACKWARD].samples == 0;
}

/* Measures all operators in the first round; those that failed to fit are left out of the later
 * rounds. */
static coh_status measure_points(bench *b)
{
    const coh_operator_list *list = b->m->operators;
    for (uint32_t turn = 0; turn < round_count(b->m); turn++)
        for (uint32_t i = 0; i < list->point_count; i++)
            if (turn == 0 || !is_left_out(&list->points[i]))
                COH_TRY(measure_point(b, &list->points[i]));
    return COH_OK;
}

static coh_status add_point(coh_measure *m, const point *p)
{
    for (int phase = 0; phase < COH_PHASE_COUNT; phase++) {
        const coh_lowered_instruction *instruction = p->instruction[phase];
        const coh_operator_times what = times_of(p, phase);
        if (p->seconds[phase].samples == 0 ||
            coh_measure_knows(m, &what, instruction->flops, (double)instruction->bytes))
            continue;
        const coh_operator_sample sample = { .flops = instruction->flops,
                                             .bytes = (double)instruction->bytes,
                                             .seconds = p->seconds[phase] };
        COH_TRY(coh_measure_add(m, &what, &sample));
    }
    return COH_OK;
}

uint64_t coh_operators_bytes(const coh_measure *m)
{
    const coh_operator_list *list = m->operators;
    uint64_t step = 0, window = 0;
    for (uint32_t i = 0; i < list->lowered_count; i++) {
        uint64_t bytes = 0;
        for (uint32_t o = 0; o < list->lowered[i].layout.object_count; o++)
            bytes += list->lowered[i].layout.objects[o].bytes;
        step = bytes > step ? bytes : step;
    }
    for (uint32_t i = 0; i < list->point_count; i++)
        window = list->points[i].window.bytes > window ? list->points[i].window.bytes : window;
    if (step > m->effort.cold_bytes)
        step = m->effort.cold_bytes;
    return step + window;
}

coh_status coh_measure_operators(coh_measure *m)
{
    const coh_operator_list *list = m->operators;
    bench b = { .m = m, .bed = m->bed };
    if (list->point_count == 0)
        return COH_OK;
    COH_TRY(coh_cold_open_most(b.bed, coh_operators_bytes(m), &b.cold));
    coh_status status = measure_points(&b);
    for (uint32_t i = 0; status == COH_OK && i < list->point_count; i++)
        status = add_point(m, &list->points[i]);
    coh_cold_close(&b.cold);
    return status;
}
