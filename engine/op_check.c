/* Checks one operator: builds a graph of it, which refuses wrong declarations, and runs the stages
 * in a child process, so that a kind that crashes becomes a finding. Findings come back in shared
 * memory. Next: op_stages.c. */
#include "engine/op_check.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/struct_bytes.h"
#include "engine/device_find.h"

enum { THREADS = 3 };

/* ---- texts ---- */

/* `words`: of the expected and of the found value. */
static const struct {
    const char *name, *words[2], *cause;
} faults[COH_OP_FAULT_COUNT] = {
    [COH_OP_FAULT_DECLARATION] = { "is declared wrongly", { "", "" }, "" },
    [COH_OP_FAULT_FAILED] = { "fails", { "", "" }, "" },
    [COH_OP_FAULT_CRASHED] = { "crashes",
                               { "", "" },
                               "a pointer that is NULL for this call, or an index far outside" },
    [COH_OP_FAULT_WRITES_OUTSIDE] = { "writes outside its buffers",
                                      { "it was", "it is" },
                                      "an index runs too far, or a shape of infer is too small" },
    [COH_OP_FAULT_WRITES_INPUT] = { "writes to a port that it may only read",
                                    { "it was", "it is" },
                                    "scratch is kept in an input: use workspace_bytes, or declare "
                                    "the pair in forward_in_place or backward_in_place, or the "
                                    "gradient in overwrites_output_grads" },
    [COH_OP_FAULT_VARIES] = { "gives other bits for an equal call",
                              { "first", "then" },
                              "a static variable, a random number from elsewhere, uninitialised "
                              "memory, "
                              "or the time" },
    [COH_OP_FAULT_NOT_WRITTEN] = { "leaves an element unwritten",
                                   { "with zeros before", "with other bytes before" },
                                   "a loop begins late or ends early" },
    [COH_OP_FAULT_READS_UNWRITTEN] = { "reads what nothing wrote",
                                       { "with zeros before", "with other bytes before" },
                                       "scratch has no contents before a call: write it first" },
    [COH_OP_FAULT_READS_OUTSIDE] = { "reads outside its buffers",
                                     { "the result is", "with NaN there" },
                                     "an index begins early or runs too far" },
    [COH_OP_FAULT_READS_UNDECLARED] = { "reads a port that backward_reads does not name",
                                        { "the result is", "without the port" },
                                        "set its bit in backward_reads" },
    [COH_OP_FAULT_NOT_FINITE] = { "gives NaN or infinity for normal numbers",
                                  { "", "it is" },
                                  "a division by zero, a logarithm or root of a negative number, "
                                  "or "
                                  "an exponential without its maximum subtracted" },
    [COH_OP_FAULT_ADDRESSES] = { "gives other bits at other addresses",
                                 { "first", "then" },
                                 "a pointer kept from call to call, or sums whose order depends on "
                                 "alignment" },
    [COH_OP_FAULT_KEEPS_STATE] = { "depends on another call before it",
                                   { "alone", "after another call" },
                                   "a static variable: what backward needs belongs in saved" },
    [COH_OP_FAULT_THREADS] = { "gives other bits with several threads",
                               { "one thread", "several" },
                               "pieces of coh_parallel that write one element, or sums in the "
                               "order "
                               "in which pieces end" },
    [COH_OP_FAULT_MICROBATCH] = { "depends on the micro-batch's number",
                                  { "number 0", "number 5" },
                                  "the number is used for more than random words (draws)" },
    [COH_OP_FAULT_ADDS] = { "does not add to a gradient that can_add_grad names",
                            { "start and gradient are", "it is" },
                            "the call's adds mask is not looked at: use += where its bit is 1, or "
                            "clear the bit of can_add_grad" },
    [COH_OP_FAULT_SKIPS] = { "needs a gradient that can_skip_grad says it can leave out",
                             { "with it", "without it" },
                             "look at the pointer before writing, or clear the bit of "
                             "can_skip_grad" },
    [COH_OP_FAULT_IN_PLACE] = { "gives other bits for a pair that shares memory",
                                { "apart", "in place" },
                                "an element is read again after it was overwritten" },
    [COH_OP_FAULT_ROWS] = { "gives other bits in ranges of rows",
                            { "whole", "in ranges" },
                            "outputs, saved and input gradients belong to the call with row_begin "
                            "0 "
                            "first, and later calls add; parameters begin at row_begin" },
    [COH_OP_FAULT_LOSS_SCALE] = { "does not scale gradients by loss_scale",
                                  { "in proportion", "it is" },
                                  "multiply every gradient of a loss by call->loss_scale" },
    [COH_OP_FAULT_CACHE] = { "gives other bits with its cache",
                             { "without", "with" },
                             "backward computes from the cache what it rounds otherwise without" },
    [COH_OP_FAULT_RECORDING] = { "cannot be recorded into a CUDA graph",
                                 { "launched", "replayed" },
                                 "work on another stream than that of the call" },
    [COH_OP_FAULT_WIDENS] = { "does not give a gradient in f32 that can_widen_grad names",
                              { "in the parameter's dtype", "in f32" },
                              "look at the dtype of parameter_grad's shape, not at the "
                              "parameter's, or clear the bit of can_widen_grad" },
    [COH_OP_FAULT_UNUSED_OUTPUT] = { "does not take a NULL output_grad as zeros",
                                     { "with zeros", "with NULL" },
                                     "nothing may use one of several outputs, which then has no "
                                     "gradient: look at the data of each output_grad before "
                                     "reading it" },
    [COH_OP_FAULT_RANDOM_WORDS] = { "uses random words although random_cell is NULL",
                                    { "with words of zeros", "with words of ones" },
                                    "coh_random_words writes nothing then: the kind does not set "
                                    "draws" },
    [COH_OP_FAULT_DRAWS] = { "looks at random_cell without draws",
                             { "with NULL, as in every step", "with a random_cell" },
                             "set .draws = 1: without it training has no dropout, either" },
    [COH_OP_FAULT_GRADIENT] = { "does not give the derivative of forward",
                                { "by differences", "it is" },
                                "a term of the derivative is forgotten or wrong" },
};

const char *coh_op_fault_name(coh_op_fault fault)
{
    return (unsigned)fault < COH_OP_FAULT_COUNT ? faults[fault].name : "unknown fault";
}

static void name_port(coh_trial_role role, int32_t port, char text[COH_OP_PORT_BYTES])
{
    static const char *const names[COH_TRIAL_ROLES] = {
        "input",       "parameter",        "state",     "output",    "output_grad",
        "input_grad",  "parameter_grad",   "saved",     "workspace", "cache",
        "random_cell", "loss_factor_cell", "attributes"
    };
    memset(text, 0, COH_OP_PORT_BYTES);
    if (port < 0)
        return;
    if (role >= COH_TRIAL_SAVED)
        snprintf(text, COH_OP_PORT_BYTES, "%s", names[role]);
    else
        snprintf(text, COH_OP_PORT_BYTES, "%s %d", names[role], port);
}

/* The sign of a NaN says nothing. */
static double without_sign(double value)
{
    return isnan(value) ? fabs(value) : value;
}

static void write_values(coh_op_fault fault, const coh_trial_place *at, char *text, size_t bytes)
{
    const char *const *words = faults[fault].words;
    const double expected = without_sign(at->expected), got = without_sign(at->got);
    if (words[0][0] != '\0')
        snprintf(text, bytes, ": %s %.9g, %s %.9g", words[0], expected, words[1], got);
    else if (words[1][0] != '\0')
        snprintf(text, bytes, ": %s %.9g", words[1], got);
}

void coh_op_sentence(coh_op_fault fault, const coh_trial_place *place, const char *cause,
                     char out_port[COH_OP_PORT_BYTES], char out_sentence[COH_OP_SENTENCE_BYTES])
{
    char element[48] = "", values[160] = "";
    const char *because = fault == COH_OP_FAULT_DECLARATION || fault == COH_OP_FAULT_FAILED
                              ? ": "
                              : ". Usual cause: ";
    name_port(place->role, place->port, out_port);
    if (place->element != INT64_MIN)
        snprintf(element, sizeof(element), ", element %" PRId64, place->element);
    if (place->port >= 0)
        write_values(fault, place, values, sizeof(values));
    snprintf(out_sentence, COH_OP_SENTENCE_BYTES, "%s %s%s%s%s%s%s%s",
             fault == COH_OP_FAULT_DECLARATION   ? "the kind"
             : place->phase == COH_PHASE_FORWARD ? "forward"
                                                 : "backward",
             faults[fault].name, out_port[0] != '\0' ? ": " : "", out_port, element, values,
             because, cause != NULL ? cause : faults[fault].cause);
}

const char *coh_op_write_cause(coh_op_fault fault, coh_trial_role role)
{
    if (fault == COH_OP_FAULT_WRITES_INPUT)
        return role == COH_TRIAL_ATTRIBUTES || role == COH_TRIAL_RANDOM_CELL ||
                       role == COH_TRIAL_LOSS_FACTOR_CELL
                   ? "it is the same for every call: what a call computes belongs in saved or in "
                     "the workspace"
                   : NULL;
    return role == COH_TRIAL_SAVED ? "saved_bytes of infer is too small, or an index runs too far"
           : role == COH_TRIAL_WORKSPACE
               ? "workspace_bytes of infer is too small, or an index runs too far"
               : NULL;
}

void coh_op_report_add(coh_op_shared *shared, coh_op_fault fault, const coh_trial_place *place,
                       const char *cause)
{
    static const coh_trial_place nowhere = { .port = -1, .element = INT64_MIN };
    const coh_trial_place *at = place != NULL ? place : &nowhere;
    if (shared->count == COH_OP_FINDINGS_MOST)
        return;
    coh_op_record *record = &shared->record[shared->count++];
    *record = (coh_op_record){ .fault = fault,
                               .phase = at->phase,
                               .element = at->element,
                               .expected = at->expected,
                               .got = at->got };
    coh_op_sentence(fault, at, cause, record->port, record->sentence);
}

/* ---- processes ---- */

static void run_stages(coh_op_stages *stages)
{
    stages->shared->status = coh_op_stages_run(stages);
    if (stages->shared->status != COH_OK)
        coh_error_save(stages->shared->error);
}

/* In the child: the program's handlers would go on as if it were the program, and a crash that is
 * expected leaves no core file. */
static void prepare_child(void)
{
    static const int deadly[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
    const struct rlimit no_core = { 0 };
    for (size_t i = 0; i < sizeof(deadly) / sizeof(deadly[0]); i++)
        signal(deadly[i], SIG_DFL);
    (void)setrlimit(RLIMIT_CORE, &no_core);
}

/* Runs a function in a child process, or here if the system gives none. Returns 0 if it did not
 * reach its end. */
static int in_child(void (*function)(coh_op_stages *stages), coh_op_stages *stages)
{
    stages->shared->is_finished = 0;
    const pid_t child = fork();
    if (child < 0) {
        function(stages);
        return 1;
    }
    if (child == 0) {
        prepare_child();
        function(stages);
        stages->shared->is_finished = 1;
        _exit(0);
    }
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ; /* a program that ignores SIGCHLD gets ECHILD, once the child has ended */
    return stages->shared->is_finished;
}

static void run_fresh(coh_op_stages *stages)
{
    size_t bytes;
    if (coh_op_fresh_run(stages, (char *)stages->fresh, &bytes) != COH_OK)
        stages->shared->crash_fault = COH_OP_FAULT_COUNT; /* the stages will say why */
}

/* Fills `fresh` with the results of a process that ran nothing before; leaves it NULL if there are
 * none. */
static void prepare_fresh(coh_op_stages *stages, char **out_memory, size_t *out_bytes)
{
    *out_memory = MAP_FAILED;
    if (coh_op_fresh_run(stages, NULL, out_bytes) != COH_OK)
        return;
    *out_bytes += 1;
    *out_memory = mmap(NULL, *out_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (*out_memory == MAP_FAILED)
        return;
    stages->fresh = *out_memory;
    if (!in_child(run_fresh, stages) || stages->shared->crash_fault == COH_OP_FAULT_COUNT)
        stages->fresh = NULL;
    stages->shared->crash_fault = COH_OP_FAULT_CRASHED;
}

static void run_all(coh_op_stages *stages, int in_process)
{
    size_t bytes;
    char *memory;
    stages->shared->crash_fault = COH_OP_FAULT_CRASHED;
    if (in_process) {
        run_stages(stages);
        return;
    }
    prepare_fresh(stages, &memory, &bytes);
    if (!in_child(run_stages, stages)) {
        const coh_trial_place place = { .phase = stages->shared->crash_phase,
                                        .port = -1,
                                        .element = INT64_MIN };
        coh_op_report_add(stages->shared, stages->shared->crash_fault, &place,
                          stages->shared->crash_cause);
    }
    if (memory != MAP_FAILED)
        munmap(memory, bytes);
}

/* ---- the graph of one operator ---- */

/* The number of inputs, or 0 if the kind is of another ABI, which the graph refuses. */
static int32_t input_count_of(const coh_op_kind *kind)
{
    const size_t needed = offsetof(coh_op_kind, output_count);
    if (kind->struct_bytes < needed || kind->abi_version != COH_KIND_ABI || kind->input_count < 0 ||
        kind->input_count > COH_PORT_MAX)
        return 0;
    return kind->input_count;
}

/* Builds it. *out_refused: the graph refuses the kind, and the error text says why. */
static coh_status build(const coh_op_kind *kind, const coh_op_check_options *options,
                        coh_graph *graph, int *out_refused)
{
    coh_tensor inputs[COH_PORT_MAX], outputs[COH_PORT_MAX];
    const int32_t count = input_count_of(kind);
    if (count > 0 && options->inputs == NULL)
        return coh_fail(COH_ERR_ARGUMENT,
                        "coh_op_check: the inputs of the options are NULL, and the kind has "
                        "%" PRId32 ": give the shape of each",
                        count);
    graph->freezes_nf4 = 1;
    for (int32_t i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof(name), "input %d", i);
        COH_TRY(coh_graph_input(graph, name, &options->inputs[i], &inputs[i]));
    }
    const coh_op_args args = { .name = "checked",
                               .attributes = options->attributes,
                               .attribute_bytes = options->attribute_bytes,
                               .inputs = inputs,
                               .block = -1 };
    const coh_status status = coh_graph_op(graph, kind, &args, outputs, NULL);
    *out_refused = status == COH_ERR_ARGUMENT || status == COH_ERR_SHAPE;
    return *out_refused ? COH_OK : status;
}

static void pass_on(const coh_op_shared *shared, const coh_op_check_options *options)
{
    for (int32_t i = 0; options->found != NULL && i < shared->count; i++) {
        const coh_op_record *record = &shared->record[i];
        const coh_op_finding finding = { .struct_bytes = sizeof(finding),
                                         .fault = record->fault,
                                         .phase = record->phase,
                                         .port = record->port,
                                         .element = record->element,
                                         .expected = record->expected,
                                         .got = record->got,
                                         .sentence = record->sentence };
        options->found(options->context, &finding);
    }
}

/* Checks that the kind has functions for the device. `kind` was accepted by a graph. */
static coh_status check_device(const coh_op_kind *kind, const coh_engine_device *device)
{
    if (device == NULL || kind->devices[COH_DEVICE_CUDA].forward != NULL)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "kind '%s' has no functions for a GPU: fill in devices[COH_DEVICE_CUDA], or "
                    "check it on the host",
                    kind->name);
}

static coh_status check(const coh_op_kind *kind, const coh_op_check_options *options,
                        const coh_engine_device *device, coh_graph *graph, coh_op_shared *shared)
{
    int refused = 0;
    coh_op_stages stages = { .graph = graph,
                             .device = device,
                             .seed = options->seed,
                             .thread_count =
                                 options->thread_count ? options->thread_count : THREADS,
                             .other_gradients = options->other_gradients,
                             .shared = shared };
    COH_TRY(build(kind, options, graph, &refused));
    if (refused)
        coh_op_report_add(shared, COH_OP_FAULT_DECLARATION, NULL, coh_last_error());
    else
        COH_TRY(check_device(kind, device));
    /* A context of CUDA, and the threads of a driver, do not survive a fork. */
    if (!refused)
        run_all(&stages, options->in_process || device != NULL);
    if (shared->status != COH_OK) {
        coh_error_restore(shared->error);
        return shared->status;
    }
    pass_on(shared, options);
    return COH_OK;
}

coh_status coh_op_check(const coh_op_kind *kind, const coh_op_check_options *options,
                        coh_op_report *out_report)
{
    coh_op_check_options known = { 0 };
    coh_engine_device device;
    COH_NEED_STRUCT(coh_op_check_options, options);
    coh_struct_read(options, &known, sizeof(known));
    COH_TRY(coh_device_find(known.device, &device));
    return coh_op_check_on(kind, options, device.kernels != NULL ? &device : NULL, out_report);
}

coh_status coh_op_check_on(const coh_op_kind *kind, const coh_op_check_options *options,
                           const coh_engine_device *device, coh_op_report *out_report)
{
    coh_op_check_options known = { 0 };
    coh_graph *graph = NULL;
    COH_NEED_STRUCT(coh_op_kind, kind);
    COH_NEED_STRUCT(coh_op_check_options, options);
    COH_NEED_STRUCT(coh_op_report, out_report);
    coh_struct_read(options, &known, sizeof(known));
    if (known.thread_count != 0)
        COH_TRY(coh_check_integer("thread_count", known.thread_count, 1, COH_THREADS_MOST));
    coh_op_shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return coh_fail(COH_ERR_MEMORY, "cannot map %zu bytes for a check", sizeof(*shared));
    coh_status status = coh_graph_create(&graph);
    if (status == COH_OK)
        status = check(kind, &known, device, graph, shared);
    const coh_op_report report = { .struct_bytes = sizeof(report),
                                   .finding_count = shared->count,
                                   .gradient_count = shared->gradient_count };
    if (status == COH_OK)
        COH_STRUCT_FILL(report, out_report);
    coh_graph_destroy(graph);
    munmap(shared, sizeof(*shared));
    return status;
}
