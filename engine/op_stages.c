/* The stages of a check: each makes the same calls with one thing changed, and compares the bits of
 * all results with those of the plain calls. The first stage that finds something is the last.
 * Next: cohobate/op_check.h for the list of stages, op_trial.h for the calls. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/op_check.h"
#include "engine/op_gradient.h"
#include "kernels/random.h"
#include "planner/row_unit.h"

enum { RACES = 3 }; /* runs with several threads */

typedef struct bench {
    const coh_op_stages *of;
    const coh_graph_op_entry *op;
    coh_op_shared *shared;
    coh_pool *pool;
    coh_op_device device;
    coh_trial first, second, other; /* other: with other values */
    coh_trial wide;                 /* with f32 gradients of `widens`; without memory if 0 */
    uint32_t widens;                /* bf16 parameters of can_widen_grad */
    size_t bytes;
    char *plain, *results; /* of the plain calls, and of the last ones */
    int has_backward;
    coh_status status; /* of the device, and its text: ends the check */
    char error[COH_ERROR_TEXT_BYTES];
} bench;

static const coh_port_mask no_ports;

/* ---- runs ---- */

static void look(bench *b, coh_trial *trial, const coh_trial_way *way)
{
    coh_trial_place place;
    if (coh_trial_outside(trial, &place))
        coh_op_report_add(b->shared, COH_OP_FAULT_WRITES_OUTSIDE, &place,
                          coh_op_write_cause(COH_OP_FAULT_WRITES_OUTSIDE, place.role));
    else if (!way->in_place && coh_trial_spoilt(trial, way, &place))
        coh_op_report_add(b->shared, COH_OP_FAULT_WRITES_INPUT, &place,
                          coh_op_write_cause(COH_OP_FAULT_WRITES_INPUT, place.role));
}

static void fail(bench *b, coh_status status)
{
    b->status = status;
    coh_error_save(b->error);
}

/* Takes the failure of a phase: it is a finding, or the device's. */
static void take_failure(bench *b, const coh_trial_way *way, coh_phase phase, coh_status status)
{
    const coh_trial_place place = { .phase = phase, .port = -1, .element = INT64_MIN };
    if (b->of->device != NULL && !b->device.kind_failed)
        fail(b, coh_fail_prefix(status, "the GPU failed in a call of %s",
                                phase == COH_PHASE_FORWARD ? "forward" : "backward"));
    else
        coh_op_report_add(b->shared,
                          way->is_recorded ? COH_OP_FAULT_RECORDING : COH_OP_FAULT_FAILED, &place,
                          coh_last_error());
}

/* Runs one phase and looks at what it may not write. Returns 0 if it failed. */
static int run_phase(bench *b, coh_trial *trial, const coh_trial_way *way, coh_phase phase)
{
    if (b->status != COH_OK)
        return 0;
    b->shared->crash_phase = phase;
    const coh_status status =
        phase == COH_PHASE_FORWARD ? coh_trial_forward(trial, way) : coh_trial_backward(trial, way);
    if (status == COH_OK)
        look(b, trial, way);
    else
        take_failure(b, way, phase, status);
    return status == COH_OK;
}

/* Runs both phases, or forward alone as in evaluation, and copies their results. Returns 0 if one
 * failed. */
static int run_both(bench *b, coh_trial *trial, const coh_trial_way *way)
{
    if (!run_phase(b, trial, way, COH_PHASE_FORWARD) ||
        (b->has_backward && !way->is_evaluation && !run_phase(b, trial, way, COH_PHASE_BACKWARD)))
        return 0;
    coh_trial_results(trial, b->results);
    return 1;
}

/* Compares the last results with the plain ones; a difference is a finding. Returns 1 if there is
 * one. */
static int differs(bench *b, coh_port_mask skips, coh_op_fault fault, const char *cause)
{
    coh_trial_place place;
    if (!coh_trial_differ(&b->first, b->plain, b->results, skips, &place))
        return 0;
    coh_op_report_add(b->shared, fault, &place, cause);
    return 1;
}

static void expect_plain(bench *b, coh_trial *trial, const coh_trial_way *way, coh_op_fault fault,
                         const char *cause)
{
    if (b->shared->count == 0 && run_both(b, trial, way))
        differs(b, no_ports, fault, cause);
}

/* ---- calls, and the same again ---- */

/* Are words used that coh_random_words does not write? Results with other words are compared, if
 * the operator's number alone changes nothing. Overwrites the plain results. */
static void check_words(bench *b, coh_trial_way way, const char *cause)
{
    coh_trial_place place;
    way.words = COH_RANDOM_ZEROS;
    if (!run_both(b, &b->first, &way) || b->shared->count > 0)
        return;
    memcpy(b->plain, b->results, b->bytes);
    way.words = COH_RANDOM_ZEROS_TOO;
    if (!run_both(b, &b->first, &way) || b->shared->count > 0 ||
        coh_trial_differ(&b->first, b->plain, b->results, no_ports, &place))
        return;
    way.words = COH_RANDOM_ONES;
    if (run_both(b, &b->first, &way) && b->shared->count == 0)
        differs(b, no_ports, COH_OP_FAULT_RANDOM_WORDS, cause);
}

static void check_calls(bench *b)
{
    const coh_trial_way way = COH_TRIAL_PLAIN;
    if (!b->op->kind.draws)
        check_words(b, way, NULL);
    if (b->shared->count == 0 && run_both(b, &b->first, &way))
        memcpy(b->plain, b->results, b->bytes);
    expect_plain(b, &b->first, &way, COH_OP_FAULT_VARIES, NULL);
    expect_plain(b, &b->first, &way, COH_OP_FAULT_VARIES, NULL);
}

/* ---- contents ---- */

static int holds_only(const coh_trial_buffer *buffer, const char *at, int byte)
{
    const size_t bytes = buffer->shape.rank > 0 ? coh_dtype_bytes(buffer->shape.dtype) : 1;
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)at[i] != byte)
            return 0;
    return 1;
}

/* The bytes of a place in the last results. */
static const char *bytes_of(const bench *b, const coh_trial_place *place)
{
    const char *at = b->results;
    for (int role = 0; role < COH_TRIAL_ROLES; role++)
        for (int port = 0; port < COH_PORT_MAX; port++) {
            const coh_trial_buffer *buffer = &b->first.buffer[role][port];
            if (!coh_trial_is_result((coh_trial_role)role) || buffer->bytes == 0)
                continue;
            if (role == (int)place->role && port == place->port)
                return at + place->element * (int64_t)coh_dtype_bytes(buffer->shape.dtype);
            at += buffer->bytes;
        }
    return NULL;
}

static const char without_cell[] =
    "outside training random_cell is NULL: forward must then compute all outputs without random "
    "words";

static const char *cause_of_fill(const coh_trial_way *way, coh_trial_role role)
{
    const int is_gradient = role == COH_TRIAL_INPUT_GRAD || role == COH_TRIAL_PARAMETER_GRAD;
    return way->is_evaluation         ? without_cell
           : is_gradient              ? "it adds to a gradient whose bit in input_grad_adds or "
                                        "parameter_grad_adds is 0: write the first term"
           : role == COH_TRIAL_OUTPUT ? "a sum that does not begin with zero"
           : role == COH_TRIAL_SAVED  ? "backward reads bytes of saved that forward did not write"
                                      : NULL;
}

/* A buffer of this role begins with other contents: are they written before they are read? */
static void check_fill(bench *b, coh_trial_way way, coh_trial_role role, int byte)
{
    coh_trial_place place;
    way.fill_role = (int32_t)role;
    way.fill_byte = byte;
    if (b->shared->count > 0 || !run_both(b, &b->first, &way) ||
        !coh_trial_differ(&b->first, b->plain, b->results, no_ports, &place))
        return;
    if (place.role == role &&
        holds_only(&b->first.buffer[role][place.port], bytes_of(b, &place), byte)) {
        coh_op_report_add(b->shared, COH_OP_FAULT_NOT_WRITTEN, &place,
                          way.is_evaluation ? without_cell : NULL);
        return;
    }
    if (!coh_trial_is_result(role)) { /* name what is read, not what comes of it */
        place.role = role;
        place.port = role == COH_TRIAL_WORKSPACE ? (int32_t)place.phase : 0;
        place.element = INT64_MIN;
    }
    coh_op_report_add(b->shared, COH_OP_FAULT_READS_UNWRITTEN, &place, cause_of_fill(&way, role));
}

static uint32_t reads_of(const bench *b, coh_trial_role role)
{
    const coh_port_mask reads = b->op->kind.backward_reads;
    return role == COH_TRIAL_INPUT    ? reads.inputs
           : role == COH_TRIAL_OUTPUT ? reads.outputs
                                      : reads.parameters;
}

static void report_hidden(bench *b, coh_trial_role role, int port, const char *cause)
{
    coh_trial_place place;
    if (!coh_trial_differ(&b->first, b->plain, b->results, no_ports, &place))
        return;
    place.role = role;
    place.port = port;
    place.element = INT64_MIN;
    coh_op_report_add(b->shared, COH_OP_FAULT_READS_UNDECLARED, &place, cause);
}

static void check_hidden(bench *b)
{
    static const coh_trial_role roles[] = { COH_TRIAL_INPUT, COH_TRIAL_OUTPUT,
                                            COH_TRIAL_PARAMETER };
    coh_trial_way way = COH_TRIAL_PLAIN;
    coh_trial_role role = COH_TRIAL_INPUT;
    int hidden = -1;
    for (size_t i = 0; b->has_backward && i < sizeof(roles) / sizeof(roles[0]); i++)
        for (int port = 0; port < COH_PORT_MAX; port++) {
            if (b->first.buffer[roles[i]][port].data == NULL ||
                (reads_of(b, roles[i]) >> port & 1u))
                continue;
            way.hidden = COH_TRIAL_HIDDEN_NAN;
            way.hidden_role = (int32_t)roles[i];
            way.hidden_port = port;
            role = hidden < 0 ? roles[i] : role;
            hidden = hidden < 0 ? port : hidden;
            if (run_both(b, &b->first, &way))
                report_hidden(b, roles[i], port, NULL);
        }
    way.hidden = COH_TRIAL_HIDDEN_ABSENT;
    b->shared->crash_fault = COH_OP_FAULT_READS_UNDECLARED;
    if (hidden >= 0 && b->shared->count == 0 && run_both(b, &b->first, &way))
        report_hidden(b, role, hidden,
                      "backward looks at the shape or the pointer of a port that it is not given");
    b->shared->crash_fault = COH_OP_FAULT_CRASHED;
}

/* Reads beyond a buffer: first with all guards as NaN, then one by one to name it. */
static void check_guards(bench *b)
{
    coh_trial_way way = COH_TRIAL_PLAIN;
    coh_trial_place place;
    way.guard_role = COH_TRIAL_EVERY;
    if (b->shared->count > 0 || !run_both(b, &b->first, &way) ||
        !coh_trial_differ(&b->first, b->plain, b->results, no_ports, &place))
        return;
    for (int role = 0; role < COH_TRIAL_ROLES; role++)
        for (int port = 0; port < COH_PORT_MAX; port++) {
            if (b->first.buffer[role][port].data == NULL)
                continue;
            way.guard_role = role;
            way.guard_port = port;
            if (!run_both(b, &b->first, &way) ||
                !coh_trial_differ(&b->first, b->plain, b->results, no_ports, &place))
                continue;
            place.role = (coh_trial_role)role;
            place.port = port;
            place.element = INT64_MIN;
            coh_op_report_add(b->shared, COH_OP_FAULT_READS_OUTSIDE, &place, NULL);
        }
}

static void check_finite(bench *b, const char *cause)
{
    const char *at = b->plain;
    for (int role = 0; role < COH_TRIAL_ROLES; role++)
        for (int port = 0; port < COH_PORT_MAX && coh_trial_is_result((coh_trial_role)role);
             port++) {
            const coh_trial_buffer *buffer = &b->first.buffer[role][port];
            for (int64_t i = 0; buffer->bytes > 0 && i < coh_trial_count(buffer); i++) {
                const double value = coh_trial_number(buffer, at, i);
                if (isfinite(value))
                    continue;
                const coh_trial_place place = {
                    .phase = role == COH_TRIAL_OUTPUT ? COH_PHASE_FORWARD : COH_PHASE_BACKWARD,
                    .role = (coh_trial_role)role,
                    .port = port,
                    .element = i,
                    .got = value,
                };
                coh_op_report_add(b->shared, COH_OP_FAULT_NOT_FINITE, &place, cause);
                return;
            }
            at += buffer->bytes;
        }
}

static void check_contents(bench *b)
{
    static const coh_trial_role results[] = { COH_TRIAL_OUTPUT, COH_TRIAL_INPUT_GRAD,
                                              COH_TRIAL_PARAMETER_GRAD };
    static const coh_trial_role scratch[] = { COH_TRIAL_WORKSPACE, COH_TRIAL_SAVED };
    const coh_trial_way way = COH_TRIAL_PLAIN;
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        check_fill(b, way, results[i], COH_TRIAL_SMALL_BYTE);
        check_fill(b, way, results[i], COH_TRIAL_NAN_BYTE);
    }
    for (size_t i = 0; i < sizeof(scratch) / sizeof(scratch[0]); i++)
        check_fill(b, way, scratch[i], COH_TRIAL_NAN_BYTE);
    if (b->shared->count == 0)
        check_hidden(b);
    check_guards(b);
    if (b->shared->count == 0)
        check_finite(b, NULL);
}

/* ---- evaluation ---- */

/* Gives a random_cell to a kind that does not draw. No step does, so the kind must not differ. */
static void check_draws(bench *b)
{
    coh_trial_way way = COH_TRIAL_PLAIN;
    way.has_cell = 1;
    expect_plain(b, &b->first, &way, COH_OP_FAULT_DRAWS, NULL);
}

/* Runs forward of a kind that draws as outside training: without a random_cell. Leaves the plain
 * results as they were. */
static void check_evaluation(bench *b)
{
    const coh_trial_way plain = COH_TRIAL_PLAIN;
    coh_trial_way way = COH_TRIAL_PLAIN;
    if (!b->op->kind.draws) {
        check_draws(b);
        return;
    }
    way.is_evaluation = 1;
    b->shared->crash_cause = without_cell;
    check_words(b, way,
                "outside training coh_random_words writes nothing: look at random_cell "
                "first, and compute without random words where it is NULL");
    if (b->shared->count == 0 && run_both(b, &b->first, &way))
        memcpy(b->plain, b->results, b->bytes);
    expect_plain(b, &b->first, &way, COH_OP_FAULT_VARIES, without_cell);
    check_fill(b, way, COH_TRIAL_OUTPUT, COH_TRIAL_SMALL_BYTE);
    check_fill(b, way, COH_TRIAL_OUTPUT, COH_TRIAL_NAN_BYTE);
    check_fill(b, way, COH_TRIAL_WORKSPACE, COH_TRIAL_NAN_BYTE);
    check_fill(b, way, COH_TRIAL_SAVED, COH_TRIAL_NAN_BYTE);
    if (b->shared->count == 0)
        check_finite(b, without_cell);
    b->shared->crash_cause = NULL;
    if (b->shared->count == 0 && run_both(b, &b->first, &plain))
        memcpy(b->plain, b->results, b->bytes);
}

/* ---- places ---- */

/* Other values between forward and backward, then a move to other addresses between them. */
static void check_state(bench *b)
{
    const coh_trial_way way = COH_TRIAL_PLAIN;
    if (b->shared->count > 0 || !run_both(b, &b->other, &way))
        return;
    coh_trial_place place;
    if (b->of->fresh != NULL &&
        coh_trial_differ(&b->other, b->of->fresh, b->results, no_ports, &place))
        coh_op_report_add(b->shared, COH_OP_FAULT_KEEPS_STATE, &place,
                          "a static variable that the first call sets");
    expect_plain(b, &b->first, &way, COH_OP_FAULT_KEEPS_STATE, NULL);
    if (b->shared->count > 0 || !b->has_backward)
        return;
    if (!run_phase(b, &b->first, &way, COH_PHASE_FORWARD) || !run_both(b, &b->other, &way) ||
        !run_phase(b, &b->first, &way, COH_PHASE_BACKWARD))
        return;
    coh_trial_results(&b->first, b->results);
    if (differs(b, no_ports, COH_OP_FAULT_KEEPS_STATE,
                "backward finds in a static variable what another forward left there: use saved") ||
        !run_phase(b, &b->first, &way, COH_PHASE_FORWARD))
        return;
    const coh_status moved = coh_trial_move(&b->first, &b->second);
    if (moved != COH_OK)
        fail(b, moved);
    if (!run_phase(b, &b->second, &way, COH_PHASE_BACKWARD))
        return;
    coh_trial_results(&b->second, b->results);
    differs(b, no_ports, COH_OP_FAULT_KEEPS_STATE,
            "a pointer is kept from forward to backward, and the data has moved since");
}

static void check_places(bench *b)
{
    coh_trial_way way = COH_TRIAL_PLAIN;
    expect_plain(b, &b->second, &way, COH_OP_FAULT_ADDRESSES, NULL);
    check_state(b);
    way.queue = b->pool;
    for (int i = 0; i < RACES && b->pool != NULL; i++)
        expect_plain(b, &b->first, &way, COH_OP_FAULT_THREADS, NULL);
    way = COH_TRIAL_PLAIN;
    way.microbatch = 5;
    if (!b->op->kind.draws)
        expect_plain(b, &b->first, &way, COH_OP_FAULT_MICROBATCH, NULL);
}

/* ---- promises ---- */

static double root_mean_square(const coh_trial_buffer *buffer, const char *at)
{
    double sum = 0;
    for (int64_t i = 0; i < coh_trial_count(buffer); i++)
        sum += pow(coh_trial_number(buffer, at, i), 2);
    return sqrt(sum / (double)coh_trial_count(buffer));
}

/* Compares a gradient of `trial` with its start (values, times `keeps`) plus `factor` times the
 * plain one, to the rounding of a sum. On a GPU another algorithm may have computed it (cuDNN's
 * attention does not add, so the library's own kernels do): in bf16 such gradients of few tokens
 * differed by 2^-6 of their size. Returns 1 if an element is off. */
static int is_off(const bench *b, const coh_trial *trial, const coh_trial_place *of, double keeps,
                  double factor, coh_trial_place *out_place)
{
    const coh_trial_buffer *buffer = &trial->buffer[of->role][of->port];
    const coh_trial_buffer *plainly = &b->first.buffer[of->role][of->port];
    const char *plain = b->plain + (bytes_of(b, of) - b->results);
    const double in_bf16 = b->of->device != NULL ? 0x1p-5 : 0x1p-7;
    const double store = plainly->shape.dtype == COH_DTYPE_BF16 ? in_bf16 : 0x1p-14;
    const double size = root_mean_square(plainly, plain);
    for (int64_t i = 0; i < coh_trial_count(buffer); i++) {
        const double start = keeps * coh_trial_number(buffer, buffer->values, i);
        const double gradient = factor * coh_trial_number(plainly, plain, i);
        const double value = coh_trial_number(buffer, buffer->data, i);
        if (fabs(value - (start + gradient)) <=
            store * (fabs(start) + fabs(gradient) + fabs(factor) * size))
            continue;
        *out_place = *of;
        out_place->element = i;
        out_place->expected = start + gradient;
        out_place->got = value;
        return 1;
    }
    return 0;
}

/* Gradients of `trial` are `keeps` times their start plus `factor` times those of the plain
 * call. */
static void expect_multiples(bench *b, const coh_trial *trial, coh_port_mask ports, double keeps,
                             double factor, coh_op_fault fault, const char *cause)
{
    for (int turn = 0; turn < 2; turn++)
        for (int port = 0; port < COH_PORT_MAX; port++) {
            const uint32_t mask = turn == 0 ? ports.inputs : ports.parameters;
            const coh_trial_place of = { .phase = COH_PHASE_BACKWARD,
                                         .role = turn == 0 ? COH_TRIAL_INPUT_GRAD
                                                           : COH_TRIAL_PARAMETER_GRAD,
                                         .port = port };
            coh_trial_place place;
            if ((mask >> port & 1u) == 0 || trial->buffer[of.role][port].data == NULL)
                continue;
            if (is_off(b, trial, &of, keeps, factor, &place))
                coh_op_report_add(b->shared, fault, &place, cause);
        }
}

static void check_adds(bench *b)
{
    coh_trial_way way = COH_TRIAL_PLAIN;
    way.adds = b->op->kind.can_add_grad;
    if (way.adds.inputs == 0 && way.adds.parameters == 0)
        return;
    if (run_both(b, &b->first, &way))
        expect_multiples(b, &b->first, way.adds, 1.0, 1.0, COH_OP_FAULT_ADDS, NULL);
}

/* The gradients of bf16 parameters in f32: written, then added to. */
static void check_widens(bench *b)
{
    const coh_port_mask all = { .parameters = b->widens };
    for (int adds = 0; adds < 2; adds++) {
        coh_trial_way way = COH_TRIAL_PLAIN;
        way.adds.parameters = adds ? b->widens & b->op->kind.can_add_grad.parameters : 0;
        if (b->shared->count > 0 || (adds ? way.adds.parameters : b->widens) == 0 ||
            !run_phase(b, &b->wide, &way, COH_PHASE_FORWARD) ||
            !run_phase(b, &b->wide, &way, COH_PHASE_BACKWARD))
            return;
        expect_multiples(b, &b->wide, adds ? way.adds : all, adds, 1.0, COH_OP_FAULT_WIDENS, NULL);
    }
}

/* Compares the results of a call that left out these gradients with the plain ones. On a GPU
 * another algorithm may have computed the other gradients: cuDNN's attention computes all or
 * none. */
static void expect_others(bench *b, coh_port_mask skips, const char *cause)
{
    const coh_port_mask others = { .inputs = ~skips.inputs, .parameters = ~skips.parameters };
    const coh_port_mask all = { .inputs = UINT32_MAX, .parameters = UINT32_MAX };
    if (!differs(b, b->of->device == NULL ? skips : all, COH_OP_FAULT_SKIPS, cause) &&
        b->of->device != NULL)
        expect_multiples(b, &b->first, others, 0.0, 1.0, COH_OP_FAULT_SKIPS, cause);
}

static void check_skip(bench *b, coh_port_mask skips)
{
    coh_trial_way way = COH_TRIAL_PLAIN;
    way.skips = skips;
    if (b->shared->count == 0 && run_both(b, &b->first, &way))
        expect_others(b, skips, NULL);
}

static void check_skips(bench *b)
{
    const coh_port_mask may = b->op->kind.can_skip_grad;
    b->shared->crash_fault = COH_OP_FAULT_SKIPS;
    for (int port = 0; port < COH_PORT_MAX; port++) {
        if ((may.inputs >> port & 1u) && b->first.buffer[COH_TRIAL_INPUT_GRAD][port].data != NULL)
            check_skip(b, (coh_port_mask){ .inputs = 1u << port });
        if ((may.parameters >> port & 1u) &&
            b->first.buffer[COH_TRIAL_PARAMETER_GRAD][port].data != NULL)
            check_skip(b, (coh_port_mask){ .parameters = 1u << port });
    }
    const uint32_t all = (1u << b->op->kind.parameter_count) - 1u;
    coh_trial_way way = COH_TRIAL_PLAIN;
    way.is_frozen = 1;
    way.hidden = COH_TRIAL_HIDDEN_ABSENT;
    if (all != 0 && (may.parameters & all) == all && b->shared->count == 0 &&
        run_both(b, &b->first, &way))
        expect_others(b, (coh_port_mask){ .parameters = all },
                      "with frozen parameters backward needs a port that "
                      "reads_for_parameters names");
    b->shared->crash_fault = COH_OP_FAULT_CRASHED;
}

/* Each output in turn is one that nothing uses: its gradient is NULL, which must give what zeros
 * give. Leaves the plain results as they were. */
static void check_unused_outputs(bench *b)
{
    const coh_port_mask all = { .inputs = UINT32_MAX, .parameters = UINT32_MAX };
    int count = 0;
    for (int port = 0; port < COH_PORT_MAX; port++)
        count += b->first.buffer[COH_TRIAL_OUTPUT_GRAD][port].data != NULL;
    for (int port = 0; count > 1 && port < COH_PORT_MAX; port++) {
        coh_trial_way zeros = COH_TRIAL_PLAIN, absent = COH_TRIAL_PLAIN;
        if (b->first.buffer[COH_TRIAL_OUTPUT_GRAD][port].data == NULL || b->shared->count > 0)
            continue;
        zeros.zero_output_grads = absent.absent_output_grads = 1u << port;
        if (!run_both(b, &b->first, &zeros))
            return;
        memcpy(b->plain, b->results, b->bytes);
        b->shared->crash_fault = COH_OP_FAULT_UNUSED_OUTPUT;
        if (run_both(b, &b->first, &absent))
            expect_multiples(b, &b->first, all, 0.0, 1.0, COH_OP_FAULT_UNUSED_OUTPUT, NULL);
        b->shared->crash_fault = COH_OP_FAULT_CRASHED;
    }
    const coh_trial_way way = COH_TRIAL_PLAIN;
    if (count > 1 && b->shared->count == 0 && run_both(b, &b->first, &way))
        memcpy(b->plain, b->results, b->bytes);
}

static int pairs_fit(const bench *b)
{
    const coh_op_kind *kind = &b->op->kind;
    for (int32_t i = 0; i < kind->in_place_count[COH_PHASE_FORWARD]; i++)
        if (b->first.buffer[COH_TRIAL_INPUT][kind->forward_in_place[i].from].bytes !=
            b->first.buffer[COH_TRIAL_OUTPUT][kind->forward_in_place[i].to].bytes)
            return 0;
    for (int32_t i = 0; b->has_backward && i < kind->in_place_count[COH_PHASE_BACKWARD]; i++)
        if (b->first.buffer[COH_TRIAL_OUTPUT_GRAD][kind->backward_in_place[i].from].bytes !=
            b->first.buffer[COH_TRIAL_INPUT_GRAD][kind->backward_in_place[i].to].bytes)
            return 0;
    return 1;
}

static void check_in_place(bench *b)
{
    const coh_op_kind *kind = &b->op->kind;
    coh_trial_way way = COH_TRIAL_PLAIN;
    const int32_t *counts = kind->in_place_count;
    const int32_t most = counts[COH_PHASE_FORWARD] > counts[COH_PHASE_BACKWARD]
                             ? counts[COH_PHASE_FORWARD]
                             : counts[COH_PHASE_BACKWARD];
    if (!pairs_fit(b))
        coh_op_report_add(b->shared, COH_OP_FAULT_IN_PLACE, NULL,
                          "the two ports of a pair have different sizes");
    for (way.in_place = 1; way.in_place <= most; way.in_place++)
        expect_plain(b, &b->first, &way, COH_OP_FAULT_IN_PLACE, NULL);
}

static void check_loss_scale(bench *b)
{
    const coh_port_mask all = { .inputs = UINT32_MAX, .parameters = UINT32_MAX };
    coh_trial_way way = COH_TRIAL_PLAIN;
    way.loss_scale = 0.25f;
    if (b->shared->count == 0 && run_both(b, &b->first, &way)) {
        expect_multiples(b, &b->first, all, 0.0, 0.25, COH_OP_FAULT_LOSS_SCALE,
                         b->of->device == NULL
                             ? NULL
                             : "multiply every gradient of a loss by call->loss_share and "
                               "*call->loss_factor_cell, read on the GPU: loss_scale is a value of "
                               "one step");
        differs(b, all, COH_OP_FAULT_LOSS_SCALE, "forward's loss is not scaled, backward is");
    }
}

static void check_promises(bench *b)
{
    const coh_op_kind *kind = &b->op->kind;
    if (b->has_backward) {
        check_adds(b);
        check_widens(b);
        check_skips(b);
        check_unused_outputs(b);
    }
    check_in_place(b);
    coh_trial_way way = COH_TRIAL_PLAIN;
    way.in_ranges = 1;
    if (kind->row_split_parameters != 0 &&
        coh_row_block(kind, &b->op->facts.parameter[__builtin_ctz(kind->row_split_parameters)],
                      b->first.on) > 0)
        expect_plain(b, &b->first, &way, COH_OP_FAULT_ROWS, NULL);
    if (kind->is_loss && b->has_backward)
        check_loss_scale(b);
    way = COH_TRIAL_PLAIN;
    way.has_cache = 1;
    if (b->op->facts.cache_bytes > 0)
        expect_plain(b, &b->first, &way, COH_OP_FAULT_CACHE, NULL);
}

/* ---- a recording ---- */

/* On a GPU, calls of a step are recorded into a CUDA graph and replayed. Work on another stream is
 * not part of it, so the replay leaves the outputs unwritten. */
static void check_recording(bench *b)
{
    coh_trial_way way = COH_TRIAL_PLAIN;
    way.is_recorded = 1;
    if (b->of->device != NULL && b->device.bed.facts.records)
        expect_plain(b, &b->first, &way, COH_OP_FAULT_RECORDING, NULL);
}

/* ---- gradients ---- */

/* f32 is needed everywhere: the rounding of bf16 is as large as the differences. */
static int has_bf16(const bench *b)
{
    for (int role = 0; role <= COH_TRIAL_OUTPUT; role++)
        for (int port = 0; port < COH_PORT_MAX; port++) {
            const coh_trial_buffer *buffer = &b->first.buffer[role][port];
            if (buffer->data != NULL && buffer->shape.dtype != COH_DTYPE_F32 &&
                buffer->shape.dtype != COH_DTYPE_I32 && buffer->shape.dtype != COH_DTYPE_NF4)
                return 1;
        }
    return 0;
}

static coh_status check_gradients(bench *b)
{
    static const coh_trial_role roles[][2] = { { COH_TRIAL_INPUT, COH_TRIAL_INPUT_GRAD },
                                               { COH_TRIAL_PARAMETER, COH_TRIAL_PARAMETER_GRAD } };
    const uint32_t left_out[] = { b->of->other_gradients.inputs,
                                  b->of->other_gradients.parameters };
    coh_trial_way way = COH_TRIAL_PLAIN;
    way.queue = b->pool;
    for (int turn = 0; turn < 2; turn++)
        for (int port = 0; port < COH_PORT_MAX; port++) {
            coh_op_slope slope;
            if (b->first.buffer[roles[turn][1]][port].data == NULL || (left_out[turn] >> port & 1u))
                continue;
            COH_TRY(
                coh_op_gradient_check(&b->first, &way, roles[turn][0], port, b->of->seed, &slope));
            b->shared->gradient_count += slope.is_compared;
            if (slope.is_wrong)
                coh_op_report_add(b->shared, COH_OP_FAULT_GRADIENT, &slope.place, slope.cause);
        }
    return COH_OK;
}

/* ---- all of them ---- */

/* Opens the GPU, with a place for the memory of every trial. */
static coh_status open_device(bench *b)
{
    coh_trial *const trials[] = { &b->first, &b->second, &b->other, &b->wide };
    const size_t count = sizeof(trials) / sizeof(trials[0]) - (b->widens == 0);
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += trials[i]->image.bytes;
    COH_TRY(coh_op_device_open(b->of->device, bytes, &b->device));
    for (size_t i = 0; i < count; i++)
        COH_TRY(coh_trial_attach(trials[i], &b->device));
    return COH_OK;
}

static uint32_t find_widens(const coh_graph_op_entry *op)
{
    uint32_t widens = 0;
    for (int32_t i = 0; i < op->kind.parameter_count; i++)
        if (op->facts.parameter[i].shape.dtype == COH_DTYPE_BF16)
            widens |= op->kind.can_widen_grad & 1u << i;
    return widens;
}

static coh_status create_trials(bench *b, coh_device_kind on)
{
    const coh_graph *graph = b->of->graph;
    const uint64_t seed = b->of->seed;
    b->widens = b->has_backward ? find_widens(b->op) : 0;
    COH_TRY(coh_trial_create(graph, on, (coh_trial_form){ .seed = seed }, &b->first));
    COH_TRY(coh_trial_create(graph, on, (coh_trial_form){ .seed = seed, .shift = 3 }, &b->second));
    COH_TRY(coh_trial_create(graph, on, (coh_trial_form){ .seed = seed + 1 }, &b->other));
    return b->widens == 0
               ? COH_OK
               : coh_trial_create(graph, on, (coh_trial_form){ .seed = seed, .widens = b->widens },
                                  &b->wide);
}

static coh_status begin(bench *b, const coh_op_stages *stages)
{
    *b = (bench){ .of = stages,
                  .op = &stages->graph->ops[stages->graph->op_count - 1],
                  .shared = stages->shared };
    const coh_device_kind on = stages->device != NULL ? COH_DEVICE_CUDA : COH_DEVICE_HOST;
    b->has_backward = b->op->kind.devices[on].backward != NULL;
    COH_TRY(create_trials(b, on));
    if (on == COH_DEVICE_HOST)
        COH_TRY(coh_pool_create(stages->thread_count, &b->pool));
    else
        COH_TRY(open_device(b));
    b->bytes = coh_trial_result_bytes(&b->first);
    COH_TRY(coh_alloc(b->bytes, 1, (void **)&b->plain));
    return coh_alloc(b->bytes, 1, (void **)&b->results);
}

static void end(bench *b)
{
    coh_trial_destroy(&b->first);
    coh_trial_destroy(&b->second);
    coh_trial_destroy(&b->other);
    coh_trial_destroy(&b->wide);
    coh_pool_destroy(b->pool);
    coh_op_device_close(&b->device);
    coh_free(b->plain);
    coh_free(b->results);
}

coh_status coh_op_stages_run(const coh_op_stages *stages)
{
    static void (*const all[])(bench * b) = { check_calls,  check_contents, check_evaluation,
                                              check_places, check_promises, check_recording };
    bench b;
    coh_status status = begin(&b, stages);
    for (size_t i = 0; status == COH_OK && i < sizeof(all) / sizeof(all[0]); i++)
        if (b.shared->count == 0 && b.status == COH_OK)
            all[i](&b);
    if (b.status != COH_OK) {
        coh_error_restore(b.error);
        status = b.status;
    }
    if (status == COH_OK && b.shared->count == 0 && b.has_backward && !has_bf16(&b))
        status = check_gradients(&b);
    end(&b);
    return status;
}

coh_status coh_op_fresh_run(const coh_op_stages *stages, char *out_results, size_t *out_bytes)
{
    coh_trial other;
    const coh_trial_way way = COH_TRIAL_PLAIN;
    COH_TRY(coh_trial_create(stages->graph, COH_DEVICE_HOST,
                             (coh_trial_form){ .seed = stages->seed + 1 }, &other));
    *out_bytes = coh_trial_result_bytes(&other);
    coh_status status = out_results == NULL ? COH_OK : coh_trial_forward(&other, &way);
    if (status == COH_OK && out_results != NULL &&
        other.op->kind.devices[COH_DEVICE_HOST].backward != NULL)
        status = coh_trial_backward(&other, &way);
    if (status == COH_OK && out_results != NULL)
        coh_trial_results(&other, out_results);
    coh_trial_destroy(&other);
    return status;
}
