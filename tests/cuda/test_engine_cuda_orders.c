/* An engine's instructions on a GPU's streams, in orders chosen by the stub driver's seeds. Two
 * bodies are enqueued completely before any of them runs, so streams drift apart as far as
 * events and words allow. Every order has the host's bits, and each wait of the program is
 * needed for that, unless other waits imply it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/step_state.h"
#include "memory/device_cuda_state.h"
#include "tests/cuda/engine_trial.h"
#include "tests/cuda/stub_driver.h"
#include "tests/length.h"

enum { BODIES_MOST = 2, STREAMS_MOST = 8, SEEDS_MOST = 500 };

/* As many bodies as the queues hold, to show effects on a later body's instructions, too. One
 * more body runs before them as usual, so that updates are pending from then on. */
static const struct setting {
    trial_placement placement;
    int body_count;
} settings[] = {
    { { "streamed", 45, 0, 0, 1, 1, .searches = 1 }, 2 },
    { { "streamed, updates in backward", 45, 0, 0, 0, 1, .searches = 1 }, 2 },
    { { "streamed, disk", 45, TRIAL_MANY, 0, 1, 1, .searches = 1 }, 1 },
};
enum { SETTING_COUNT = sizeof(settings) / sizeof(settings[0]) };

/* ---- runs ---- */

typedef struct bodies {
    coh_step_result results[BODIES_MOST];
    uint64_t hash;
} bodies;

typedef struct trial {
    const struct setting *setting;
    coh_graph *graph;
    coh_profile *profile;
    coh_plan *plan;
    coh_engine *engine; /* on the stub's GPU; NULL: the next run makes it */
    bodies expected;    /* computed on the host */
    uint64_t told[2];   /* waits for host lanes and for streams, enqueued in the last run */
} trial;

static int are_equal(const bodies *a, const bodies *b)
{
    for (int i = 0; i < BODIES_MOST; i++)
        if (a->results[i].loss != b->results[i].loss ||
            a->results[i].grad_norm != b->results[i].grad_norm ||
            a->results[i].applied_count != b->results[i].applied_count)
            return 0;
    return a->hash == b->hash;
}

static coh_engine *make_engine(const coh_plan *plan, const coh_engine_device *device)
{
    coh_engine_options options;
    coh_engine *engine;
    coh_engine_options_init(&options);
    options.disk_folder = ".";
    if (coh_engine_create_on(plan, &options, device, &engine) != COH_OK)
        fail_msg("no engine: %s", coh_last_error());
    return engine;
}

static void begin(coh_engine *engine)
{
    trial_ids ids;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    const coh_step_input input = trial_input(engine->plan, 0, &ids);
    assert_int_equal(coh_engine_init(engine, 42), COH_OK);
    assert_int_equal(coh_engine_step(engine, &input, &result), COH_OK);
    assert_int_equal(coh_step_quiet(engine->step), COH_OK);
}

static coh_status submit_all(const trial *t, coh_engine *engine)
{
    static trial_ids ids[BODIES_MOST];
    for (int i = 0; i < t->setting->body_count; i++) {
        const coh_step_input input = trial_input(t->plan, (uint64_t)i + 1, &ids[i]);
        COH_TRY(coh_engine_submit(engine, &input));
    }
    return COH_OK;
}

static coh_status wait_for_all(const trial *t, coh_engine *engine, bodies *out)
{
    for (int i = 0; i < t->setting->body_count; i++) {
        out->results[i] = (coh_step_result){ .struct_bytes = sizeof(coh_step_result) };
        COH_TRY(coh_engine_wait(engine, &out->results[i]));
    }
    return COH_OK;
}

static void run_on_host(trial *t)
{
    coh_plan *plan = trial_plan(t->graph, NULL, &t->setting->placement);
    coh_engine *engine = make_engine(plan, &trial_host);
    begin(engine);
    assert_int_equal(submit_all(t, engine), COH_OK);
    assert_int_equal(wait_for_all(t, engine, &t->expected), COH_OK);
    assert_int_equal(coh_engine_hash(engine, &t->expected.hash), COH_OK);
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
}

static void open_trial(trial *t, const struct setting *setting)
{
    *t = (trial){ .setting = setting, .graph = trial_graph(COH_DTYPE_F32, 1) };
    assert_int_equal(coh_profile_read("a100-40g", &t->profile), COH_OK);
    t->plan = trial_plan(t->graph, t->profile, &setting->placement);
    run_on_host(t);
}

static void drop_engine(trial *t)
{
    coh_stub_start(1);
    coh_engine_destroy(t->engine);
    coh_stub_stop();
    t->engine = NULL;
    assert_int_equal(coh_stub_live_count(), 0);
}

static void close_trial(trial *t)
{
    drop_engine(t);
    coh_plan_destroy(t->plan);
    coh_profile_destroy(t->profile);
    coh_graph_destroy(t->graph);
}

/* ---- one order ---- */

/* Streams have ranks, drawn by the seed and drawn again after every 1, 2, 4 ... commands: with some
 * seeds every choice is free, with others one stream lags as long as possible. */
static int choose(uint64_t seed, uint64_t command, const int *ready, size_t count)
{
    const uint64_t epoch = command >> seed % 10;
    uint64_t most = 0;
    int chosen = ready[0];
    for (size_t i = 0; i < count; i++) {
        const uint64_t rank = coh_rng_below(seed, (uint64_t)ready[i] + 1, epoch, 1u << 30);
        if (rank > most)
            chosen = ready[i];
        most = rank > most ? rank : most;
    }
    return chosen;
}

/* If one stream always lags, a host lane that others wait for gets some time before the stream
 * proceeds. */
static void run_by_seed(uint64_t seed)
{
    int patience = 0;
    for (uint64_t command = 0; coh_stub_pending_count() > 0;) {
        int ready[STREAMS_MOST];
        const size_t count = coh_stub_ready(ready, STREAMS_MOST);
        if (count == 0 || (coh_stub_awaits_word() && patience-- > 0)) {
            sched_yield();
            continue;
        }
        coh_stub_run(choose(seed, command++, ready, count));
        patience = seed % 10 == 9 ? 20 : 0;
    }
}

/* Waits until coh-retire knows that all enqueued commands are done: what it does not know yet
 * counts as in the queue, and a full queue waits for commands that only run_by_seed lets run. */
static void wait_until_passed(const coh_step *step)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        coh_queue *queue = step->queues[lane];
        while (queue != NULL && coh_counter_read(&queue->popped) <
                                    atomic_load_explicit(&queue->pushed, memory_order_acquire))
            sched_yield();
    }
}

/* A full queue would block this forever, so it times out. */
static void wait_until_issued(coh_step *step)
{
    const uint64_t newest = coh_counter_read(&step->counters[COH_COUNTER_SUBMITTED]);
    const uint64_t end_ns = coh_clock_ns() + (uint64_t)20 * 1000000000u;
    while (coh_counter_read(&step->counters[COH_COUNTER_ISSUED]) < newest) {
        if (coh_clock_ns() > end_ns)
            fail_msg("a queue is full before all is enqueued: the plan has too many lines");
        sched_yield();
    }
}

/* Called at the begin and at the end of the counted part. */
static void count_waits(trial *t, int is_end)
{
    const uint64_t counts[2] = { coh_stub_call_count(COH_STUB_cuStreamWaitValue64),
                                 coh_stub_call_count(COH_STUB_cuStreamWaitEvent) };
    for (int i = 0; i < 2; i++)
        t->told[i] = is_end ? counts[i] - t->told[i] : counts[i];
}

/* Enqueues all bodies before any of them runs. Skips wait number `skipped` of `call`; 0: none. */
static coh_status run_order(trial *t, uint64_t seed, coh_stub_call call, uint64_t skipped,
                            bodies *out)
{
    *out = (bodies){ 0 };
    if (t->engine == NULL)
        coh_stub_reset(TRIAL_GPU_BYTES);
    coh_stub_start(seed);
    if (t->engine == NULL)
        t->engine = make_engine(t->plan, &trial_gpu);
    begin(t->engine);
    wait_until_passed(t->engine->step);
    coh_stub_stop();
    count_waits(t, 0);
    coh_stub_skip_nth_wait(call, skipped);
    coh_status status = submit_all(t, t->engine);
    wait_until_issued(t->engine->step);
    coh_stub_skip_nth_wait(call, 0);
    count_waits(t, 1);
    run_by_seed(seed);
    if (status == COH_OK)
        status = wait_for_all(t, t->engine, out);
    coh_stub_start(seed);
    if (status == COH_OK)
        status = coh_engine_hash(t->engine, &out->hash);
    coh_stub_stop();
    return status;
}

static void check_order(trial *t, uint64_t seed)
{
    bodies found;
    if (run_order(t, seed, COH_STUB_cuStreamWaitEvent, 0, &found) != COH_OK)
        fail_msg("%s, seed %d: %s", t->setting->placement.name, (int)seed, coh_last_error());
    if (!are_equal(&found, &t->expected))
        fail_msg("%s: seed %d has other bits than the host", t->setting->placement.name, (int)seed);
}

static void every_order_has_the_bits_of_the_host(void **state)
{
    (void)state;
    const uint64_t count = test_is_brief() ? 6 : test_is_short() ? 12 : SEEDS_MOST;
    for (int i = 0; i < SETTING_COUNT; i++) {
        trial t;
        open_trial(&t, &settings[i]);
        for (uint64_t seed = 0; seed < count; seed++)
            check_order(&t, seed);
        close_trial(&t);
    }
}

/* ---- without one wait ---- */

/* A wait of a stream, in the order in which coh-step enqueues them. */
typedef struct told_wait {
    coh_stub_call call;
    uint64_t nth; /* counted among that call's */
    int body;     /* body of the waiting instruction */
    uint32_t instruction;
    coh_lane other;  /* lane it waits for */
    uint64_t number; /* up to this instruction */
    int is_implied;  /* other waits imply this one */
    int is_of_time;  /* they do, except for a host thread's time */
} told_wait;

enum { WAITS_MOST = 512 };

/* By lane, the number of instructions that have ended when another instruction begins or ends,
 * in any order of streams. */
typedef struct past {
    uint64_t over[COH_LANE_COUNT];
} past;

typedef struct walk {
    const coh_program *program;
    /* By the instruction's number in its lane, from 1, over all bodies. */
    past *begins[COH_LANE_COUNT], *ends[COH_LANE_COUNT];
    told_wait waits[WAITS_MOST];
    int wait_count;
    uint64_t told[2]; /* for host lanes, for streams */
    int left_out;     /* 1: the first wait; 0: none */
} walk;

static void join(past *to, const past *from)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (to->over[lane] < from->over[lane])
            to->over[lane] = from->over[lane];
}

static int is_behind(const past *a, const past *b)
{
    int is = 1;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        is &= a->over[lane] >= b->over[lane];
    return is;
}

static told_wait *list_wait(walk *w, int body, uint32_t instruction, coh_lane other,
                            uint64_t number)
{
    const int is_event = coh_lane_is_queue(other);
    assert_true(w->wait_count < WAITS_MOST);
    told_wait *wait = &w->waits[w->wait_count++];
    *wait =
        (told_wait){ .call = is_event ? COH_STUB_cuStreamWaitEvent : COH_STUB_cuStreamWaitValue64,
                     .nth = ++w->told[is_event],
                     .body = body,
                     .instruction = instruction,
                     .other = other,
                     .number = number };
    return wait;
}

static void walk_instruction(walk *w, int body, uint32_t index)
{
    const coh_program *program = w->program;
    const coh_instruction *instruction = &program->instructions[index];
    const uint64_t number =
        (uint64_t)body * program->lane_length[instruction->lane] + instruction->ordinal;
    past begin = w->ends[instruction->lane][number - 1];
    told_wait *left_out = NULL;
    for (uint32_t i = 0; i < instruction->wait_count; i++) {
        const coh_wait *wait = &program->waits[instruction->wait_begin + i];
        const coh_lane other = (coh_lane)wait->lane;
        if (other == (coh_lane)instruction->lane || (wait->carry && body == 0))
            continue;
        const uint64_t until =
            (uint64_t)(body - wait->carry) * program->lane_length[other] + wait->ordinal;
        if (coh_lane_is_queue((coh_lane)instruction->lane)) {
            told_wait *told = list_wait(w, body, index, other, until);
            if (w->wait_count == w->left_out) {
                left_out = told;
                continue;
            }
        }
        join(&begin, &w->ends[other][until]);
    }
    if (left_out != NULL) {
        left_out->is_implied = begin.over[left_out->other] >= left_out->number;
        left_out->is_of_time = !coh_lane_is_queue(left_out->other) &&
                               is_behind(&begin, &w->begins[left_out->other][left_out->number]);
    }
    w->begins[instruction->lane][number] = begin;
    begin.over[instruction->lane] = number;
    w->ends[instruction->lane][number] = begin;
}

/* Goes through the bodies' instructions as coh-step does, with all waits except one. */
static void walk_bodies(const trial *t, int left_out, walk *out)
{
    const coh_program *program = &t->plan->programs[COH_PROGRAM_BODY];
    const int body_count = t->setting->body_count;
    *out = (walk){ .program = program, .left_out = left_out };
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        const size_t count = (size_t)body_count * program->lane_length[lane] + 1;
        out->begins[lane] = test_calloc(count, sizeof(past));
        out->ends[lane] = test_calloc(count, sizeof(past));
    }
    for (int body = 0; body < body_count; body++)
        for (uint32_t i = 0; i < program->instruction_count; i++)
            walk_instruction(out, body, i);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        test_free(out->begins[lane]);
        test_free(out->ends[lane]);
    }
}

/* Returns the number of seeds until the result differs or a failure occurs; 0: never. */
static int seeds_until_caught(trial *t, const told_wait *wait, int most)
{
    for (int seed = 0; seed < most; seed++) {
        bodies found;
        const coh_status status = run_order(t, (uint64_t)seed, wait->call, wait->nth, &found);
        if (status != COH_OK)
            drop_engine(t);
        if (status != COH_OK || !are_equal(&found, &t->expected))
            return seed + 1;
    }
    return 0;
}

/* Returns 1 for a wait without effect: the cells that the host needs are set before a first body's
 * FEED, which writes other cells. */
static int is_beside_feed(const trial *t, const told_wait *wait)
{
    const coh_program *program = &t->plan->programs[COH_PROGRAM_BODY];
    const coh_instruction *instruction = &program->instructions[wait->instruction];
    return wait->body == 0 && instruction->opcode == COH_OP_STORE &&
           wait->other == COH_LANE_COMPUTE && wait->number == 1 &&
           program->instructions[0].opcode == COH_OP_FEED &&
           program->operands[instruction->operand_begin].object == t->plan->layout.cells;
}

/* Returns the instruction that a wait names. */
static const coh_instruction *awaited(const coh_program *program, const told_wait *wait)
{
    const uint64_t ordinal = (wait->number - 1) % program->lane_length[wait->other] + 1;
    uint32_t at = 0;
    while (program->instructions[at].lane != (uint8_t)wait->other ||
           program->instructions[at].ordinal != ordinal)
        at++;
    return &program->instructions[at];
}

/* Returns 1 for a wait that only a workspace needs: a kind may leave bytes of it unwritten. */
static int is_for_workspace(const trial *t, const told_wait *wait)
{
    const coh_program *program = &t->plan->programs[COH_PROGRAM_BODY];
    const coh_instruction *later = &program->instructions[wait->instruction];
    const coh_instruction *earlier = awaited(program, wait);
    int shared = 0, for_workspace = 0;
    for (uint32_t i = 0; i < later->operand_count; i++)
        for (uint32_t k = 0; k < earlier->operand_count; k++) {
            const coh_operand *x = &program->operands[later->operand_begin + i];
            const coh_operand *y = &program->operands[earlier->operand_begin + k];
            const int meets = x->tier == y->tier && x->offset < y->offset + y->bytes &&
                              y->offset < x->offset + x->bytes &&
                              ((x->access | y->access) & COH_ACCESS_WRITE) != 0;
            shared += meets;
            for_workspace += meets && x->role == COH_ROLE_WORKSPACE;
        }
    return shared > 0 && shared == for_workspace;
}

/* Returns why no order of streams reveals that a wait is missing; NULL: some order does. */
static const char *reason(const trial *t, const told_wait *wait)
{
    if (wait->is_implied)
        return "other waits say the same";
    if (wait->is_of_time)
        return "but for the host's own time other waits say the same";
    return is_beside_feed(t, wait) ? "other bytes of the same chunk are meant" : NULL;
}

static void print_wait(const trial *t, const told_wait *wait, const char *what)
{
    const coh_instruction *instruction =
        &t->plan->programs[COH_PROGRAM_BODY].instructions[wait->instruction];
    print_message("%s: %s: body %d, line %u, %s of lane %s, waits for line %d of lane %s\n",
                  t->setting->placement.name, what, wait->body, wait->instruction,
                  coh_opcode_name((coh_opcode)instruction->opcode),
                  coh_lane_name((coh_lane)instruction->lane), (int)wait->number,
                  coh_lane_name(wait->other));
}

/* Omits every `stride`-th wait in turn. */
static void leave_out_each_wait(trial *t, int stride)
{
    static walk without;
    int tried = 0, caught = 0, idle = 0, missed = 0, most_seeds = 0;
    walk_bodies(t, 0, &without);
    check_order(t, 0);
    assert_int_equal(without.told[0], t->told[0]);
    assert_int_equal(without.told[1], t->told[1]);
    const int count = without.wait_count;
    for (int i = 1 + stride / 2; i <= count; i += stride, tried++) {
        walk_bodies(t, i, &without);
        const told_wait *wait = &without.waits[i - 1];
        if (reason(t, wait) != NULL) {
            print_wait(t, wait, reason(t, wait));
            idle++;
            continue;
        }
        const int seeds = seeds_until_caught(t, wait, SEEDS_MOST);
        const int is_excused = seeds == 0 && is_for_workspace(t, wait);
        if (seeds == 0)
            print_wait(t, wait, is_excused ? "the workspace is not written" : "NOT CAUGHT");
        idle += is_excused;
        missed += seeds == 0 && !is_excused;
        caught += seeds > 0;
        most_seeds = seeds > most_seeds ? seeds : most_seeds;
    }
    print_message("%s: of %d waits %d were tried, %d of them caught, by seed %d at last; %d "
                  "cannot be\n",
                  t->setting->placement.name, count, tried, caught, most_seeds, idle);
    assert_int_equal(missed, 0);
    assert_true(tried > 0);
    if (!test_is_brief()) /* which tries two of a hundred */
        assert_true(caught > idle);
}

/* The timing of disk lanes is real: no seed shows which waits for them are needed. Without a wait
 * for the host lane, which is a thread, there is a race, as there should be: the thread sanitizer
 * is not to see it. */
static void each_wait_is_needed(void **state)
{
    (void)state;
    if (TEST_FINDS_RACES)
        return;
    for (int i = 0; i < SETTING_COUNT && settings[i].placement.disk_bytes == 0; i++) {
        trial t;
        open_trial(&t, &settings[i]);
        leave_out_each_wait(&t, test_is_brief() ? 41 : test_is_short() ? 11 : 1);
        check_order(&t, 1);
        close_trial(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_has_the_bits_of_the_host),
        cmocka_unit_test(each_wait_is_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
