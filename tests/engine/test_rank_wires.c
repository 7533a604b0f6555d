/* Ranks whose weights and gradients travel in fewer bytes. One exchange is compared with a loop
 * that rounds every contribution; whole runs have the bits of the run in memory in every place, on
 * all ranks, the counted bytes are the planned ones, and losses stay near those of exact exchanges.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/half.h"
#include "base/rng.h"
#include "engine/comm_wire.h"
#include "kernels/wire.h"
#include "tests/engine/ranks_bench.h"

/* ---- one exchange ---- */

enum { WINDOW_MOST = 40000, ROOM = 1 << 20 };

typedef struct exchange_case {
    coh_wire wire;
    coh_dtype dtype;
    int is_reduce;
    int32_t ranks;
    int64_t count, part; /* elements of the window; of a part, whole blocks */
} exchange_case;

typedef struct exchange_run {
    const exchange_case *of;
    coh_world *world;
    pthread_t thread;
    coh_status status;
    char *window, *room, *own;
    const void *slices[RANKS_MOST]; /* of a REDUCE, when it is done */
    int64_t own_count;
} exchange_run;

static float drawn(int32_t rank, int64_t i)
{
    return (float)coh_rng_normal(4, (uint64_t)rank, (uint64_t)i) *
           (i / COH_WIRE_BLOCK % 3 == 0 ? 1e-3f : 1.0f);
}

static void store(coh_dtype dtype, void *to, int64_t i, float value)
{
    if (dtype == COH_DTYPE_F32)
        ((float *)to)[i] = value;
    else
        ((uint16_t *)to)[i] = coh_bf16_of_f32(value);
}

static int64_t part_count(const exchange_case *of, int32_t rank)
{
    const int64_t left = of->count - rank * of->part;
    return left < 0 ? 0 : left < of->part ? left : of->part;
}

static coh_status run_exchange(exchange_run *run)
{
    const exchange_case *of = run->of;
    const coh_axis axis = { "data", of->ranks };
    const coh_levels levels = { .rank_count = { 1, 1, of->ranks, of->ranks } };
    const size_t bytes = coh_dtype_bytes(of->dtype);
    const int32_t rank = coh_world_rank(run->world);
    coh_mesh mesh;
    coh_link_plan plan = { 0 };
    coh_comm_line line = { 0 };
    COH_TRY(coh_mesh_init(&mesh, &axis, 1, &levels));
    const coh_comm_call comm = { .axes = 1,
                                 .dtype = of->dtype,
                                 .wire = of->wire,
                                 .root = -1,
                                 .part_bytes = (uint64_t)of->part * bytes };
    const coh_exchange exchange = { &mesh, 1, rank, (size_t)of->part * bytes,
                                    (size_t)of->count * bytes };
    const coh_wire_room room = coh_wire_room_of(&mesh, &comm, of->is_reduce);
    memset(run->room, 0x77, ROOM);
    coh_status status = COH_ALLOC(of->ranks, &line.slices);
    if (status == COH_OK && of->is_reduce) {
        coh_exchange_slices(&exchange, run->window, run->room, line.slices);
        memcpy(run->slices, line.slices, (size_t)of->ranks * sizeof(run->slices[0]));
        status = coh_comm_wire_reduce(&line, &plan, &exchange, &comm, run->window, run->room);
    } else if (status == COH_OK) {
        status =
            coh_comm_wire_gather(&line, &plan, &exchange, &comm, run->window, run->own, run->room);
    }
    if (status == COH_OK)
        status = coh_transport_bind(run->world->transport, &plan);
    coh_comm_wire_pack(&line, NULL);
    if (status == COH_OK)
        status = coh_transport_start(run->world->transport, line.line);
    if (status == COH_OK)
        status = coh_transport_wait(run->world->transport, line.line);
    if (status == COH_OK)
        coh_comm_wire_unpack(&line, NULL);
    if (status == COH_OK)
        status = coh_world_barrier(run->world);
    for (size_t i = (size_t)room.bytes; i < (size_t)room.bytes + 64; i++)
        if (run->room[i] != 0x77)
            status = coh_fail(COH_ERR_INTERNAL, "more than its room is written");
    coh_comm_line_fini(&line);
    coh_link_plan_fini(&plan);
    return status;
}

static void *exchange_thread(void *argument)
{
    exchange_run *run = argument;
    run->status = run_exchange(run);
    return NULL;
}

/* Returns the bytes of elements [begin, begin + count) of a rank's window after the wire. */
static void round_by_hand(const exchange_case *of, int32_t rank, int64_t begin, int64_t count,
                          void *out)
{
    static char room[ROOM];
    for (int64_t i = 0; i < count; i++)
        store(of->dtype, out, i, drawn(rank, begin + i));
    const coh_wire_call call = { of->wire, of->dtype, count, out, room };
    coh_kernel_wire_pack(NULL, &call);
    coh_kernel_wire_unpack(NULL, &call);
}

static void check_exchange(const exchange_case *of, const exchange_run *run, int32_t rank)
{
    static float expected[WINDOW_MOST];
    const size_t bytes = coh_dtype_bytes(of->dtype);
    for (int32_t other = 0; other < of->ranks; other++) {
        const int32_t of_part = of->is_reduce ? rank : other;
        const int64_t count = part_count(of, of_part), begin = of_part * of->part;
        const char *found =
            of->is_reduce ? run->slices[other] : run->window + (size_t)begin * bytes;
        if (count == 0)
            continue;
        round_by_hand(of, other, begin, count, expected);
        assert_memory_equal(found, expected, (size_t)count * bytes);
    }
}

static void expect_exchange(const exchange_case *of)
{
    static exchange_run runs[RANKS_MOST];
    coh_world *worlds[RANKS_MOST] = { NULL };
    const coh_world_options options = { .struct_bytes = sizeof(options), .rank_count = of->ranks };
    const size_t bytes = coh_dtype_bytes(of->dtype);
    must(coh_world_open_threads(&options, worlds), "world");
    for (int32_t r = 0; r < of->ranks; r++) {
        runs[r] = (exchange_run){ .of = of,
                                  .world = worlds[r],
                                  .window = calloc(WINDOW_MOST, sizeof(float)),
                                  .own = calloc(WINDOW_MOST, sizeof(float)),
                                  .room = malloc(ROOM) };
        for (int64_t i = 0; of->is_reduce && i < of->count; i++)
            store(of->dtype, runs[r].window, i, drawn(r, i));
        for (int64_t i = 0; !of->is_reduce && i < part_count(of, r); i++)
            store(of->dtype, runs[r].own, i, drawn(r, r * of->part + i));
    }
    for (int32_t r = 0; r < of->ranks; r++)
        assert_int_equal(coh_thread_start(&runs[r].thread, exchange_thread, &runs[r]), 0);
    for (int32_t r = 0; r < of->ranks; r++)
        assert_int_equal(pthread_join(runs[r].thread, NULL), 0);
    for (int32_t r = 0; r < of->ranks; r++) {
        must(runs[r].status, "exchange");
        check_exchange(of, &runs[r], r);
    }
    assert_true((size_t)of->count * bytes <= WINDOW_MOST * sizeof(float));
    for (int32_t r = 0; r < of->ranks; r++) {
        coh_world_close(worlds[r]);
        free(runs[r].window);
        free(runs[r].own);
        free(runs[r].room);
    }
}

/* Last parts that are short, end within a block, or are empty. */
static void an_exchange_rounds_each_contribution_once(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks;
        int64_t count, part;
    } shapes[] = { { 2, 2048, 1024 }, { 3, 5000, 2048 }, { 4, 900, 256 }, { 4, 300, 128 } };
    for (int wire = COH_WIRE_BF16; wire < COH_WIRE_COUNT; wire++)
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
            for (int is_bf16 = 0; is_bf16 <= (wire != COH_WIRE_BF16); is_bf16++) {
                const exchange_case gather = { (coh_wire)wire,
                                               is_bf16 ? COH_DTYPE_BF16 : COH_DTYPE_F32,
                                               0,
                                               shapes[i].ranks,
                                               shapes[i].count,
                                               shapes[i].part };
                exchange_case reduce = gather;
                reduce.is_reduce = 1;
                reduce.dtype = COH_DTYPE_F32;
                expect_exchange(&gather);
                if (!is_bf16)
                    expect_exchange(&reduce);
            }
}

/* ---- whole runs ---- */

static const setting wired[] = {
    { "2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, IN_MEMORY, 1, -1,
      .pattern = "zero3", .wires = { COH_WIRE_INT8, COH_WIRE_INT4 } },
    { "2x2", 2, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, IN_MEMORY, 0, -1,
      .pattern = "2/4/4", .wires = { COH_WIRE_INT8, COH_WIRE_INT8 } },
    { "3", 1, COH_DTYPE_F32, COH_SWEEP_LAYER, 0, 0, 3, 0, IN_MEMORY, 2, -1, .pattern = "zero2",
      .wires = { COH_WIRE_STORED, COH_WIRE_BF16 } },
    { "2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 0, 0, 2, 0, IN_MEMORY, 0, -1,
      .pattern = "zero3", .wires = { COH_WIRE_INT4, COH_WIRE_STORED } },
};
enum { WIRED = sizeof(wired) / sizeof(wired[0]) };

/* Runs, and checks that all ranks end alike with the bytes that are planned. */
static end run_wired(const setting *s)
{
    end ends[RANKS_MOST];
    coh_graph *graph = make_graph(s);
    coh_plan *plan = plan_of(graph, s);
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    must(coh_plan_summarize(plan, &summary), "summary");
    run_setting(s, ends);
    for (int i = 0; i < s->ranks; i++) {
        must(ends[i].status, ends[i].sentence);
        assert_true(ends[i].hash == ends[0].hash);
        for (int lane = COH_LANE_COMM0; lane <= COH_LANE_COMM1; lane++)
            assert_true(ends[i].link_bytes[lane] == STEPS * summary.link_bytes[lane]);
    }
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    return ends[0];
}

static uint64_t exchanged_bytes(const end *of)
{
    return of->link_bytes[COH_LANE_COMM0] + of->link_bytes[COH_LANE_COMM1];
}

static void no_placement_changes_a_bit_and_losses_stay_near(void **state)
{
    (void)state;
    for (int i = 0; i < WIRED; i++) {
        setting s = wired[i];
        if (test_is_brief() && i % 2 == (test_seeks_races() ? 0 : 1))
            continue;
        const end memory = run_wired(&s);
        for (int where = DISK; where <= HOST && !test_seeks_races(); where++) {
            s.where = (place)where;
            s.delay_seed = (uint64_t)(3 + where);
            s.chunk_bytes = where == DISK ? 3 << 16 : 7 << 16; /* blocks and owners of parts */
            const end other = run_wired(&s);
            assert_true(other.hash == memory.hash);
            for (int step = 0; step < STEPS; step++)
                assert_memory_equal(&other.results[step].loss, &memory.results[step].loss,
                                    sizeof(other.results[step].loss));
        }
        if (test_is_brief() && !test_seeks_races()) /* test_rank_parts.c has exact exchanges */
            continue;
        s = wired[i];
        s.wires = (coh_wires){ 0 };
        const end exact = run_wired(&s);
        assert_true(exact.hash != memory.hash);
        assert_true(exchanged_bytes(&memory) < exchanged_bytes(&exact));
        const double most = wired[i].wires.weights == COH_WIRE_INT4 ? 0.1 : 0.02;
        for (int step = 0; step < STEPS; step++)
            if (!(fabs((double)(memory.results[step].loss - exact.results[step].loss)) <=
                  most * fabs((double)exact.results[step].loss)))
                fail_msg("setting %d, step %d: loss %g, with exact exchanges %g", i, step,
                         (double)memory.results[step].loss, (double)exact.results[step].loss);
    }
}

/* A copy has what travelled to it, and packing that again gives the same bytes. */
static void a_copy_of_the_weights_changes_no_bit(void **state)
{
    (void)state;
    setting s = wired[0];
    const end without = run_wired(&s);
    s.pattern = "zeropp";
    const end with = run_wired(&s);
    assert_true(with.hash == without.hash);
    assert_true(with.link_bytes[COH_LANE_COMM1] < without.link_bytes[COH_LANE_COMM1]);
    assert_true(with.link_bytes[COH_LANE_COMM0] == without.link_bytes[COH_LANE_COMM0]);
}

/* A save has not been rounded by weights that travelled: without an update it is what it
 * began with. */
static void what_is_saved_is_not_rounded(void **state)
{
    (void)state;
    setting s = wired[0];
    end ends[RANKS_MOST];
    s.wires = (coh_wires){ COH_WIRE_INT4, COH_WIRE_STORED };
    s.saves = "wired-0";
    (void)temporary_remove("wired-0");
    run_setting(&s, ends);
    must(ends[0].status, ends[0].sentence);
    setting alone = s;
    alone.ranks = 1;
    alone.node_ranks = 0;
    alone.wires = (coh_wires){ 0 };
    alone.loads = "wired-0";
    alone.saves = NULL;
    alone.keeps = 1;
    end loaded[RANKS_MOST];
    run_setting(&alone, loaded);
    must(loaded[0].status, loaded[0].sentence);
    assert_true(loaded[0].hash == ends[0].hash);
    (void)temporary_remove("wired-0");
}

/* ---- what is refused ---- */

static void wires_that_say_nothing_are_refused(void **state)
{
    (void)state;
    setting s = wired[0];
    coh_graph *graph = make_graph(&s);
    coh_plan *plan = NULL;
    static const struct {
        const char *pattern, *says;
    } rows[] = { { "", "only what ranks divide" }, { "auto", "name the rank pattern" } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        coh_pin pin;
        coh_plan_options options = options_of(&s, &pin);
        snprintf(options.rank_pattern, sizeof(options.rank_pattern), "%s", rows[i].pattern);
        assert_int_equal(coh_plan_create(graph, &options, &plan), COH_ERR_ARGUMENT);
        assert_non_null(strstr(coh_last_error(), rows[i].says));
    }
    coh_pin pin;
    coh_plan_options options = options_of(&s, &pin);
    options.wires.weights = COH_WIRE_COUNT;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "wires.weights"));
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exchange_rounds_each_contribution_once),
        cmocka_unit_test(no_placement_changes_a_bit_and_losses_stay_near),
        cmocka_unit_test(a_copy_of_the_weights_changes_no_bit),
        cmocka_unit_test(what_is_saved_is_not_rounded),
        cmocka_unit_test(wires_that_say_nothing_are_refused),
    };
    return cmocka_run_group_tests(tests, draw_inputs, NULL);
}
