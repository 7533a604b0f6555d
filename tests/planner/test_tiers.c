/* Without a drive, device and host tier hold each survivor once. The oracles: the bytes that are
 * live in the host tier at each instruction, counted from the extents of the programs; the size
 * that a refusal names, planned for; and the verifier, which proves every plan made here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/initial.h"
#include "planner/plan_make.h"
#include "planner/residency.h"
#include "tests/planner/draws.h"
#include "tests/planner/toy_graph.h"

enum { PAGE = 4096, LAYERS = 3 };

static const toy_options toys[] = {
    { .layers = LAYERS, .width = 64, .vocabulary = 600, .rows = 40, .is_tied = 1 },
    { .layers = LAYERS, .width = 80, .vocabulary = 300, .rows = 60, .overwrites = 1, .freezes = 1 },
    { .layers = LAYERS,
      .width = 64,
      .vocabulary = 900,
      .rows = 40,
      .is_tied = 1,
      .dtype = COH_DTYPE_BF16 },
};
enum { TOYS = sizeof(toys) / sizeof(toys[0]) };

typedef struct setting {
    int microbatches, deferred, boundary, percent, host_updates;
} setting;

/* Plans fixed decisions for a host tier of these bytes; returns the status. */
static coh_status plan_in(const setting *what, const coh_graph *graph, uint64_t host_bytes,
                          coh_plan **out_plan)
{
    coh_plan_options options = { .struct_bytes = sizeof(options),
                                 .device_memory_bytes = UINT64_MAX,
                                 .thread_count = 2,
                                 .microbatch_count = what->microbatches,
                                 .deferred_update = what->deferred,
                                 .emulate_host = 1,
                                 .host_memory_bytes = host_bytes,
                                 .kernel_path = "toy" };
    uint64_t memory = 0;
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &memory), COH_OK);
    options.device_memory_bytes = memory / 100 * (uint64_t)what->percent;
    assert_int_equal(coh_plan_open(graph, &options, out_plan), COH_OK);
    (*out_plan)->decisions =
        (coh_decisions){ .device_bytes = options.device_memory_bytes & ~(uint64_t)(PAGE - 1),
                         .chunk_bytes = 65536,
                         .row_passes = 4,
                         .patterns = coh_pattern_choose(1),
                         .patient = 1,
                         .boundary = what->boundary,
                         .horizon = 16,
                         .host_updates = what->host_updates };
    const coh_status status = coh_plan_finish(*out_plan);
    if (status != COH_OK) {
        coh_plan_destroy(*out_plan);
        *out_plan = NULL;
    }
    return status;
}

/* Returns the bytes that a refusal of this host tier asks for. */
static uint64_t refused_for(const setting *what, const coh_graph *graph, uint64_t host_bytes)
{
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    coh_plan *plan = NULL;
    assert_int_equal(plan_in(what, graph, host_bytes, &plan), COH_ERR_FULL);
    assert_true(coh_last_refusal(&refusal));
    assert_int_equal(refusal.tier, COH_TIER_HOST);
    assert_int_equal(refusal.needed_bytes, refusal.changes[0].bytes);
    assert_int_equal(refusal.short_bytes, refusal.needed_bytes - host_bytes);
    return refusal.needed_bytes;
}

static void each_setting(void (*check)(const setting *what, const coh_graph *graph))
{
    for (int toy = 0; toy < TOYS; toy++) {
        coh_graph *graph = NULL;
        assert_int_equal(toy_graph_make(&toys[toy], &graph), COH_OK);
        for (int i = 0; i < 20; i++) { /* the last four with content that leaves late */
            const setting what = { .microbatches = 1 + 2 * (i % 2),
                                   .deferred = i / 2 % 2,
                                   .boundary = i < 16 ? i % 4 : COH_BOUNDARY_LATE,
                                   .percent = i < 8 ? 60 : 80,
                                   .host_updates = i % 5 == 4 };
            check(&what, graph);
        }
        coh_graph_destroy(graph);
    }
}

static uint64_t survivor_bytes(const coh_layout *layout)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < layout->object_count; i++)
        if (layout->objects[i].survives && !layout->objects[i].pinned)
            bytes += layout->objects[i].bytes;
    return bytes;
}

/* ---- refusals ---- */

static int settings_beyond_host;

static void named_bytes_are_enough(const setting *what, const coh_graph *graph)
{
    coh_plan *plan = NULL;
    const uint64_t needed = refused_for(what, graph, PAGE);
    assert_int_equal(refused_for(what, graph, needed - PAGE), needed);
    assert_int_equal(plan_in(what, graph, needed, &plan), COH_OK);
    assert_true(plan->layout.arena_bytes[COH_TIER_HOST] <= needed);
    settings_beyond_host += survivor_bytes(&plan->layout) > needed;
    coh_plan_destroy(plan);
}

static void a_refused_host_tier_is_short_by_what_is_said(void **state)
{
    (void)state;
    settings_beyond_host = 0;
    each_setting(named_bytes_are_enough);
    assert_true(settings_beyond_host >= 50); /* of 60: survivors need both tiers */
}

/* ---- places ---- */

/* The most bytes that extents of the host tier cover at one instruction. An extent covers its bytes
 * from its first use, or the begin, to its last use, or the end. */
static uint64_t most_live(const coh_program *program)
{
    const uint32_t count = program->instruction_count;
    uint32_t *first = calloc(program->extent_count, sizeof(*first));
    uint32_t *last = calloc(program->extent_count, sizeof(*last));
    uint64_t most = 0;
    assert_true(first != NULL && last != NULL);
    for (uint32_t e = 0; e < program->extent_count; e++)
        first[e] = program->extents[e].at_begin ? 0 : UINT32_MAX;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t o = 0; o < program->instructions[i].operand_count; o++) {
            const coh_operand *operand =
                &program->operands[program->instructions[i].operand_begin + o];
            for (uint32_t t = 0; t < operand->touch_count; t++) {
                const uint32_t e = program->touches[operand->touch_begin + t].extent;
                first[e] = i < first[e] ? i : first[e];
                last[e] = i;
            }
        }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = 0;
        for (uint32_t e = 0; e < program->extent_count; e++) {
            const coh_extent *extent = &program->extents[e];
            if (extent->tier == COH_TIER_HOST && first[e] <= i && (last[e] >= i || extent->at_end))
                bytes += extent->bytes;
        }
        most = bytes > most ? bytes : most;
    }
    free(first);
    free(last);
    return most;
}

static uint64_t sum_of_peaks, sum_of_live;

static void shared_places_waste_little(const setting *what, const coh_graph *graph)
{
    coh_plan *plan = NULL;
    uint64_t live = 0;
    assert_int_equal(plan_in(what, graph, refused_for(what, graph, PAGE), &plan), COH_OK);
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
        const coh_program *program = &plan->programs[kind];
        const uint64_t bytes = program->instruction_count > 0 ? most_live(program) : 0;
        assert_true(bytes <= program->peak_bytes[COH_TIER_HOST]);
        live = bytes > live ? bytes : live;
    }
    sum_of_live += live;
    sum_of_peaks += plan->layout.arena_bytes[COH_TIER_HOST];
    coh_plan_destroy(plan);
}

static void the_least_host_tier_is_near_its_live_bytes(void **state)
{
    (void)state;
    sum_of_live = sum_of_peaks = 0;
    each_setting(shared_places_waste_little);
    print_message("host tiers of %.3f times their live bytes\n",
                  (double)sum_of_peaks / (double)sum_of_live);
    assert_true(sum_of_peaks <= sum_of_live + sum_of_live / 10);
}

/* A chunk that the device holds between programs has an extent in the host tier only if it moves,
 * and no entry of the boundary map there unless the body evicts a parameter that is not trained. */
static void chunks_that_never_move_are_not_in_the_host_tier(const setting *what,
                                                            const coh_graph *graph)
{
    coh_plan *plan = NULL;
    assert_int_equal(plan_in(what, graph, (uint64_t)1 << 40, &plan), COH_OK);
    const coh_layout *layout = &plan->layout;
    uint8_t *places = calloc(layout->chunk_count, 1), *body_moves = calloc(layout->chunk_count, 1);
    assert_true(places != NULL && body_moves != NULL);
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    for (uint32_t e = 0; e < body->extent_count; e++)
        if (body->extents[e].tier == COH_TIER_HOST && body->extents[e].use_count > 0)
            body_moves[body->extents[e].chunk] = 1;
    for (uint32_t i = 0; i < layout->resident_count; i++)
        places[layout->residents[i].chunk] |= (uint8_t)(1u << layout->residents[i].tier);
    for (uint32_t chunk = 0; chunk < layout->chunk_count; chunk++) {
        const coh_object *object = &layout->objects[layout->chunks[chunk].object];
        if (!object->survives || object->pinned)
            assert_int_equal(places[chunk], 0);
        else if (places[chunk] == 3)
            assert_true(coh_chunk_is_read_only(layout, chunk) && body_moves[chunk]);
        else
            assert_in_range(places[chunk], 1, 2);
    }
    free(places);
    free(body_moves);
    coh_plan_destroy(plan);
}

static void each_survivor_lies_in_one_tier(void **state)
{
    (void)state;
    each_setting(chunks_that_never_move_are_not_in_the_host_tier);
}

static uint64_t sum_of_returned, sum_of_stored;

/* INIT writes each chunk once and reads none. A chunk that it stores and fetches again was written
 * beside its place of the boundary map. Maps that are filled name places that no run ends at. */
static void few_initial_values_return(const setting *what, const coh_graph *graph)
{
    coh_plan *plan = NULL;
    if (what->boundary == COH_BOUNDARY_FULL || what->boundary == COH_BOUNDARY_WANTED)
        return;
    assert_int_equal(plan_in(what, graph, (uint64_t)1 << 40, &plan), COH_OK);
    sum_of_returned += plan->simulations[COH_PROGRAM_INIT].link_bytes[COH_LANE_H2D];
    sum_of_stored += plan->simulations[COH_PROGRAM_INIT].link_bytes[COH_LANE_D2H];
    coh_plan_destroy(plan);
}

static void init_writes_chunks_where_the_body_finds_them(void **state)
{
    (void)state;
    sum_of_returned = sum_of_stored = 0;
    each_setting(few_initial_values_return);
    print_message("INIT fetches %.3f of what it stores\n",
                  (double)sum_of_returned / (double)sum_of_stored);
    assert_true(sum_of_returned <= sum_of_stored / 20);
}

/* Returns the bytes of the body's chunks in the host tier of which another chunk uses some. */
static uint64_t shared_bytes(const coh_plan *plan)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    uint8_t *shares = calloc(plan->layout.chunk_count, 1);
    uint64_t bytes = 0;
    assert_non_null(shares);
    for (uint32_t i = 0; i < body->extent_count; i++)
        for (uint32_t k = 0; k < body->extent_count; k++) {
            const coh_extent *a = &body->extents[i], *b = &body->extents[k];
            shares[a->chunk] |= a->tier == COH_TIER_HOST && b->tier == COH_TIER_HOST &&
                                a->chunk != b->chunk && a->offset < b->offset + b->bytes &&
                                b->offset < a->offset + a->bytes;
        }
    for (uint32_t chunk = 0; chunk < plan->layout.chunk_count; chunk++)
        bytes += shares[chunk] ? plan->layout.chunks[chunk].bytes : 0;
    free(shares);
    return bytes;
}

/* A little less than the host tier in which every chunk has a place of its own: about as many bytes
 * share places as are missing, with as many others. A 64th or a 16th of the tier is left free. */
static void few_chunks_share_places_where_little_is_missing(void **state)
{
    (void)state;
    const toy_options toy = { .layers = 4, .width = 64, .vocabulary = 300, .rows = 1600 };
    const setting what = { .microbatches = 1, .boundary = COH_BOUNDARY_SETTLED, .percent = 40 };
    coh_graph *graph = NULL;
    coh_plan *plan = NULL;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    assert_int_equal(plan_in(&what, graph, (uint64_t)1 << 40, &plan), COH_OK);
    const uint64_t all = plan->layout.arena_bytes[COH_TIER_HOST];
    assert_int_equal(shared_bytes(plan), 0);
    coh_plan_destroy(plan);
    for (uint64_t percent = 98; percent >= 94; percent -= 2) {
        const uint64_t room = all / 100 * percent;
        assert_int_equal(plan_in(&what, graph, room, &plan), COH_OK);
        print_message("%d %%: %.3f of the tier is shared\n", (int)percent,
                      (double)shared_bytes(plan) / (double)room);
        assert_true(shared_bytes(plan) <= 2 * (all - room + room / 16));
        coh_plan_destroy(plan);
    }
    coh_graph_destroy(graph);
}

/* Else no start fits, and the last resort cuts everything into grains. */
static void a_chunk_takes_at_most_a_quarter_of_a_host_tier_before_a_drive(void **state)
{
    (void)state;
    coh_graph *graph = NULL;
    assert_int_equal(toy_graph_make(&toys[0], &graph), COH_OK);
    for (uint64_t host_bytes = 1 << 20; host_bytes <= 1 << 30; host_bytes *= 2) {
        coh_plan_options options = { .struct_bytes = sizeof(options),
                                     .device_memory_bytes = (uint64_t)8 << 30,
                                     .host_memory_bytes = host_bytes,
                                     .disk_bytes = (uint64_t)1 << 40,
                                     .emulate_host = 1,
                                     .thread_count = 1,
                                     .microbatch_count = 1,
                                     .kernel_path = "toy" };
        coh_plan *plan = NULL;
        uint64_t chunk_bytes = 0;
        assert_int_equal(coh_plan_open(graph, &options, &plan), COH_OK);
        plan->survivor_bytes = (uint64_t)1 << 39; /* many times the device */
        assert_int_equal(coh_initial_chunk(plan, &chunk_bytes), COH_OK);
        assert_true(chunk_bytes <= host_bytes / 4);
        coh_plan_destroy(plan);
    }
    coh_graph_destroy(graph);
}

/* ---- holes ---- */

/* Returns the pages of a tier's arena that no extent of any program covers. */
static uint64_t unused_pages(const coh_plan *plan, coh_tier tier)
{
    const uint64_t pages = plan->layout.arena_bytes[tier] / PAGE;
    uint64_t unused = 0;
    uint8_t *is_used = calloc(pages + 1, 1);
    assert_non_null(is_used);
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        for (uint32_t i = 0; i < plan->programs[kind].extent_count; i++) {
            const coh_extent *extent = &plan->programs[kind].extents[i];
            if (extent->tier == tier)
                memset(is_used + extent->offset / PAGE, 1, extent->bytes / PAGE);
        }
    for (uint64_t page = 0; page < pages; page++)
        unused += !is_used[page];
    free(is_used);
    return unused;
}

/* A plan with drawn decisions, on a device of a third to ten times what it would need in memory. A
 * host tier before a drive is as large, or much smaller. Every other one has a pin that sends
 * activations away. */
static coh_status plan_drawn(draws *d, const coh_graph *graph, coh_plan **out_plan)
{
    const int tiers = draw(d, 1, 3); /* 1: a host tier, 2: a drive, 3: both */
    coh_pin pin = { .target = "blocks.0", .place = COH_PIN_OFFLOAD };
    uint64_t memory = 0;
    coh_plan_options options = { .struct_bytes = sizeof(options),
                                 .device_memory_bytes = UINT64_MAX,
                                 .thread_count = 2,
                                 .microbatch_count = draw(d, 1, 3),
                                 .deferred_update = draw(d, 0, 1),
                                 .kernel_path = "toy" };
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &memory), COH_OK);
    options.pins = &pin;
    options.pin_count = draw(d, 0, 1);
    options.device_memory_bytes =
        memory / 100 * (uint64_t)(draw(d, 0, 1) ? draw(d, 30, 150) : 1000);
    options.emulate_host = tiers != 2;
    options.host_memory_bytes = tiers == 2 ? 0 : tiers == 1 ? 8 * memory : memory / draw(d, 1, 4);
    options.disk_bytes = tiers == 1 ? 0 : UINT64_MAX;
    assert_int_equal(coh_plan_open(graph, &options, out_plan), COH_OK);
    (*out_plan)->decisions =
        (coh_decisions){ .device_bytes = options.device_memory_bytes & ~(uint64_t)(PAGE - 1),
                         .chunk_bytes = 65536,
                         .row_passes = draw(d, 1, 4),
                         .patterns = coh_pattern_choose(1),
                         .tie_break = draw(d, 0, COH_TIE_COUNT - 1),
                         .patient = draw(d, 0, COH_PATIENT_COUNT - 1),
                         .boundary = draw(d, 0, COH_BOUNDARY_COUNT - 1),
                         .horizon = draw(d, 0, 1) ? draw(d, 0, 16) : 48,
                         .resident = draw(d, 0, 1),
                         .host_window = tiers == 3 ? draw(d, 0, 1) * draw(d, 16, 48) : 0,
                         .host_updates = draw(d, 0, 1) * draw(d, 0, LAYERS) };
    const coh_status status = coh_plan_finish(*out_plan);
    if (status != COH_OK)
        coh_plan_destroy(*out_plan);
    return status;
}

static void no_address_below_a_peak_is_unused(void **state)
{
    (void)state;
    enum { CASES = 240 };
    int made = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        draws d = { .stream = 1812, .seed = seed };
        coh_graph *graph = NULL;
        coh_plan *plan = NULL;
        assert_int_equal(toy_graph_make(&toys[seed % TOYS], &graph), COH_OK);
        const coh_status status = plan_drawn(&d, graph, &plan);
        if (status == COH_OK) {
            for (int tier = COH_TIER_DEVICE; tier <= COH_TIER_HOST; tier++)
                if (unused_pages(plan, (coh_tier)tier) > 0)
                    fail_msg("seed %llu: %llu of %llu pages of tier %d are never used",
                             (unsigned long long)seed,
                             (unsigned long long)unused_pages(plan, (coh_tier)tier),
                             (unsigned long long)plan->layout.arena_bytes[tier] / PAGE, tier);
            coh_plan_destroy(plan);
        } else {
            assert_int_equal(status, COH_ERR_FULL);
        }
        made += status == COH_OK;
        coh_graph_destroy(graph);
    }
    print_message("%d plans\n", made);
    assert_true(made >= CASES / 2);
}

/* ---- searches ---- */

/* Plans a step in memory; returns its time. 0 bytes: the search chooses the chunks. */
static uint64_t step_in_memory(const coh_graph *graph, const char *profile_name,
                               uint64_t chunk_bytes, uint64_t *out_chunk_bytes)
{
    coh_profile *profile = NULL;
    coh_plan_options options;
    coh_plan *plan = NULL;
    assert_int_equal(coh_profile_read(profile_name, &profile), COH_OK);
    coh_plan_options_init(&options);
    options.profile = profile;
    options.device_memory_bytes = (uint64_t)16 << 30;
    options.chunk_bytes = chunk_bytes;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
    assert_true(plan->decisions.in_memory);
    *out_chunk_bytes = plan->decisions.chunk_bytes;
    const uint64_t step_ns = plan->step_ns;
    coh_plan_destroy(plan);
    coh_profile_destroy(profile);
    return step_ns;
}

/* Norms and updates of a GPU are launches, each of which has a latency. */
static void chunks_in_memory_are_larger_on_a_gpu(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    const toy_options toy = {
        .layers = 8, .width = 2048, .vocabulary = 300, .rows = 64, .dtype = COH_DTYPE_BF16
    };
    coh_graph *graph = NULL;
    uint64_t chosen = 0, given = 0;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    const uint64_t step_ns = step_in_memory(graph, "h200", 0, &chosen);
    assert_true(chosen > 8 * MIB);
    assert_true(step_ns < step_in_memory(graph, "h200", 8 * MIB, &given));
    assert_int_equal(given, 8 * MIB);
    (void)step_in_memory(graph, "built-in-2", 0, &chosen);
    assert_int_equal(chosen, 8 * MIB);
    coh_graph_destroy(graph);
}

/* Plans without a far tier within these bytes; returns 1 if a refusal offers a disk. */
static int offers_disk(const coh_graph *graph, coh_plan_options *options)
{
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    coh_plan *plan = NULL;
    int offers = 0;
    options->disk_bytes = 0;
    assert_int_equal(coh_plan_create(graph, options, &plan), COH_ERR_FULL);
    assert_true(coh_last_refusal(&refusal));
    assert_int_equal(refusal.reason, COH_REFUSAL_IN_MEMORY);
    assert_int_equal(refusal.changes[0].kind, COH_CHANGE_RAISE);
    for (int32_t i = 0; i < refusal.change_count; i++)
        offers |= refusal.changes[i].kind == COH_CHANGE_ADD_DISK;
    return offers;
}

/* The oracle is the plan with a disk without a limit: it exists, or the budget is below what one
 * instruction needs. */
static void a_disk_is_offered_only_where_it_helps(void **state)
{
    (void)state;
    int offered = 0, not_offered = 0;
    for (int toy = 0; toy < TOYS; toy++) {
        coh_graph *graph = NULL;
        coh_plan_options options;
        coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
        coh_plan *plan = NULL;
        assert_int_equal(toy_graph_make(&toys[toy], &graph), COH_OK);
        coh_plan_options_init(&options);
        options.disk_bytes = UINT64_MAX;
        assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
        assert_int_equal(coh_plan_summarize(plan, &summary), COH_OK);
        coh_plan_destroy(plan);
        const uint64_t budgets[] = { PAGE, summary.smallest_device_bytes - 1,
                                     summary.smallest_device_bytes,
                                     summary.smallest_device_bytes + PAGE };
        for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
            options.device_memory_bytes = budgets[i];
            const int offers = offers_disk(graph, &options);
            coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
            options.disk_bytes = UINT64_MAX;
            const coh_status status = coh_plan_create(graph, &options, &plan);
            assert_true(status == COH_OK || coh_last_refusal(&refusal));
            assert_int_equal(offers, refusal.reason != COH_REFUSAL_STEP);
            offered += offers;
            not_offered += !offers;
            coh_plan_destroy(status == COH_OK ? plan : NULL);
        }
        coh_graph_destroy(graph);
    }
    assert_true(offered >= TOYS && not_offered >= TOYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_in_memory_are_larger_on_a_gpu),
        cmocka_unit_test(a_refused_host_tier_is_short_by_what_is_said),
        cmocka_unit_test(the_least_host_tier_is_near_its_live_bytes),
        cmocka_unit_test(each_survivor_lies_in_one_tier),
        cmocka_unit_test(init_writes_chunks_where_the_body_finds_them),
        cmocka_unit_test(few_chunks_share_places_where_little_is_missing),
        cmocka_unit_test(no_address_below_a_peak_is_unused),
        cmocka_unit_test(a_disk_is_offered_only_where_it_helps),
        cmocka_unit_test(a_chunk_takes_at_most_a_quarter_of_a_host_tier_before_a_drive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
