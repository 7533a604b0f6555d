/* Ranks that keep parts of the states, of the gradients and of the weights (zero1 to zero3),
 * against the twin that has all: losses, norms, hashes and checkpoints are the same in every place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file_ops.h"
#include "tests/engine/ranks_bench.h"

/* Returns the bytes of the states of all groups, and those of divided chunks. */
static uint64_t state_bytes(const coh_plan *plan, uint64_t *out_divided)
{
    const coh_layout *layout = &plan->layout;
    uint64_t bytes = 0;
    *out_divided = 0;
    for (uint32_t i = 0; i < layout->chunk_count; i++)
        if (layout->objects[layout->chunks[i].object].stream == COH_STREAM_STATE) {
            bytes += layout->chunks[i].bytes;
            *out_divided += layout->chunks[i].is_divided ? layout->chunks[i].bytes : 0;
        }
    return bytes;
}

static const setting parts[] = {
    { "2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 2, 0, IN_MEMORY, 1, -1,
      .pattern = "zero1" },
    { "2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, DISK, 0, -1,
      .pattern = "zero3" },
    { "3", 2, COH_DTYPE_F32, COH_SWEEP_LAYER, 0, 0, 3, 0, HOST, 2, -1, .pattern = "zero1" },
    { "2x2", 2, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 0, HOST, 0, -1,
      .pattern = "zero2" },
    { "2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 0, 0, 2, 1, IN_MEMORY, 3, -1,
      .pattern = "zero2" },
    { "4", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 0, 0, 4, 0, DISK, 0, -1, .pattern = "zero3" },
    { "3", 2, COH_DTYPE_F32, COH_SWEEP_LAYER, 1, 0.5f, 3, 0, IN_MEMORY, 0, -1, .pattern = "zero3" },
    { "2x2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 1, 0, 4, 2, HOST, 4, -1,
      .pattern = "zero2" },
    { "2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, DISK, 0, -1,
      .pattern = "zero1" },
    { "2x2", 2, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, IN_MEMORY, 5, -1,
      .pattern = "zero3", .lead = 2 },
    { "2x2", 2, COH_DTYPE_BF16, COH_SWEEP_LAYER, 1, 0.5f, 2, 0, IN_MEMORY, 6, -1,
      .pattern = "zero1", .lead = 4 },
    /* levels: what is divided over pairs, nodes and all */
    { "2x2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 8, 4, IN_MEMORY, 7, -1,
      .pattern = "2/4/8", .lead = 1 },
    { "2x2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 0, 0, 8, 4, DISK, 0, -1,
      .pattern = "2/2/4" },
    { "2x2", 2, COH_DTYPE_F32, COH_SWEEP_LAYER, 1, 0.5f, 4, 2, HOST, 8, -1, .pattern = "1/2/2" },
    { "2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, DISK, 9, -1,
      .pattern = "2/2/2" },
    { "2x2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 0, 0, 4, 2, HOST, 0, -1,
      .pattern = "1/2/4" },
    { "2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, IN_MEMORY, 10, -1,
      .pattern = "zero3", .pin = "blocks.1=1/2/4" },
    { "2x2", 2, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, DISK, 0, -1,
      .pattern = "replicate", .pin = "blocks.*=2/4/4" },
    /* a copy of the weights in the node */
    { "2x2", 2, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, IN_MEMORY, 11, -1,
      .pattern = "zeropp", .lead = 2 },
    { "2x2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 1, 0.5f, 8, 4, DISK, 12, -1,
      .pattern = "8/8/8/2" },
    { "2x2", 2, COH_DTYPE_F32, COH_SWEEP_LAYER, 0, 0, 4, 2, HOST, 0, -1, .pattern = "4/4/4/2" },
};
enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

static setting as_twin(setting s)
{
    s.ranks = 1;
    s.node_ranks = 0;
    s.where = IN_MEMORY;
    s.delay_seed = 0;
    return s;
}

static void ranks_with_parts_of_the_states_give_the_twins_bits_and_keep_no_more(void **state)
{
    (void)state;
    for (int i = 0; i < PARTS; i++) {
        /* all places; parts of everything, of all but the weights, by a pin; of these the thread
         * sanitizer sees memory, host memory and the drive */
        if (test_is_brief() && (i % 4 != 1 || (test_seeks_races() && (i == 5 || i == 17))))
            continue;
        const end twin = twin_of(parts[i]);
        const setting whole = as_twin(parts[i]);
        uint64_t divided, none;
        const uint64_t all = state_bytes(last_plan_of(&whole), &none);
        assert_int_equal(none, 0);
        expect_twin(&parts[i], &twin);
        const uint64_t part = state_bytes(last_plan_of(&parts[i]), &divided);
        assert_true(divided > 0);
        assert_true(part < all * 7 / 10); /* a part is at most a grain longer than 1/p of a chunk */
    }
}

/* Counts by distance the uses of work in forward and backward: how many calls are between a GATHER
 * of a chunk and the call that reads it. */
static void count_distances(const coh_plan *plan, uint32_t counts[8])
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    uint32_t *gathered_at = calloc(plan->layout.chunk_count, sizeof(*gathered_at));
    uint32_t calls = 0;
    memset(counts, 0, 8 * sizeof(counts[0]));
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        const coh_operand *operands = &body->operands[instruction->operand_begin];
        const int is_call = instruction->opcode == COH_OP_FORWARD ||
                            instruction->opcode == COH_OP_RECOMPUTE ||
                            instruction->opcode == COH_OP_BACKWARD;
        if (instruction->opcode == COH_OP_GATHER && operands[0].role == COH_ROLE_WORK)
            gathered_at[body->touches[operands[0].touch_begin].chunk] = calls;
        for (uint32_t o = 0; is_call && o < instruction->operand_count; o++) {
            const uint32_t chunk = body->touches[operands[o].touch_begin].chunk;
            if (operands[o].role == COH_ROLE_PARAMETER && plan->layout.chunks[chunk].is_divided)
                counts[calls - gathered_at[chunk] < 7 ? calls - gathered_at[chunk] : 7]++;
        }
        calls += (uint32_t)is_call;
    }
    free(gathered_at);
}

static void work_is_gathered_as_many_calls_early_as_the_lead_says(void **state)
{
    (void)state;
    if (test_seeks_races())
        return;
    setting s = parts[9]; /* zero3, one micro-batch after the other */
    s.lead = 0;
    coh_graph *graph = make_graph(&s);
    coh_plan *searched = plan_of(graph, &s);
    for (int lead = 0; lead <= 4; lead++) {
        uint32_t counts[8], all = 0, later = 0;
        coh_plan *plan = copy_with_lead(searched, lead);
        count_distances(plan, counts);
        for (int distance = 0; distance < 8; distance++) {
            all += counts[distance];
            later += distance > lead ? counts[distance] : 0;
        }
        assert_int_equal(later, 0);
        assert_true(counts[lead] > 0);
        assert_true(lead == 0 ||
                    counts[0] < all / 2); /* an earlier use of the same work holds up few */
        coh_plan_destroy(plan);
    }
    coh_plan_destroy(searched);
    coh_graph_destroy(graph);
}

/* A save of any layout is loaded by any other, and continues with the bits of an unbroken run. */
static void what_parts_save_any_number_of_ranks_loads(void **state)
{
    (void)state;
    static const char *const folders[] = { "parts-0", "parts-1" };
    const setting *const kinds[] = { &parts[1], &parts[3] };
    for (int i = 0; i < 2; i++) {
        if (test_is_brief() && i > 0)
            continue;
        setting first = *kinds[i], second = *kinds[i], twin = *kinds[i];
        end expected[RANKS_MOST];
        for (int f = 0; f < 2; f++)
            (void)temporary_remove(folders[f]);
        twin.ranks = 1;
        twin.node_ranks = 0;
        twin.where = IN_MEMORY;
        twin.saves = folders[0];
        run_setting(&twin, expected);
        must(expected[0].status, expected[0].sentence);
        first.saves = folders[1];
        expect_twin(&first, &expected[0]);

        twin.loads = folders[1]; /* of four ranks, on one */
        twin.saves = NULL;
        run_setting(&twin, expected);
        must(expected[0].status, expected[0].sentence);
        second.loads = folders[0]; /* of one rank, on two */
        second.ranks = 2;
        second.node_ranks = 0;
        expect_twin(&second, &expected[0]);
        for (int f = 0; f < 2; f++)
            (void)temporary_remove(folders[f]);
    }
}

static void a_save_that_rank_0_cannot_write_keeps_the_ranks_in_step(void **state)
{
    (void)state;
    if (test_seeks_races()) /* what_parts_save_any_number_of_ranks_loads has the same threads */
        return;
    setting s = parts[3];
    end ends[RANKS_MOST];
    s.saves = ".";
    s.cannot_save = 1;
    run_setting(&s, ends);
    for (int i = 0; i < s.ranks; i++) {
        must(ends[i].status, ends[i].sentence);
        assert_int_equal(ends[i].cannot_save != COH_OK, i == 0);
        assert_true(ends[i].hash == ends[0].hash);
    }
}

/* ---- a slow drive ---- */

static coh_file_calls slow_calls;
static int slow_create_count, slow_write_count; /* so many take five timeouts each */

static void take_time(int *count)
{
    if (*count <= 0)
        return;
    --*count;
    usleep(5 * 1000 * 1000 / TIMEOUTS_A_SECOND);
}

static int slow_create(void *state, const char *path)
{
    take_time(&slow_create_count);
    return coh_system_file_calls.create(state, path);
}

static int64_t slow_write(void *state, int fd, const void *data, uint64_t bytes, uint64_t offset)
{
    take_time(&slow_write_count);
    return coh_system_file_calls.write(state, fd, data, bytes, offset);
}

/* There is no step, in which a slow machine might exceed the timeout. */
static void a_save_that_takes_rank_0_longer_than_the_timeout_goes_on(void **state)
{
    (void)state;
    setting s = parts[5]; /* zero3 */
    end ends[RANKS_MOST];
    slow_calls = coh_system_file_calls;
    slow_calls.create = slow_create;
    slow_calls.write = slow_write;
    slow_create_count = slow_write_count = 1; /* before the others are needed, and while they are */
    s.saves = "parts-slow";
    s.keeps = s.has_timeout = 1;
    (void)temporary_remove(s.saves);
    coh_file_calls_use(&slow_calls);
    run_setting(&s, ends);
    coh_file_calls_use(&coh_system_file_calls);
    (void)temporary_remove(s.saves);
    for (int i = 0; i < s.ranks; i++)
        must(ends[i].status, ends[i].sentence);
    assert_int_equal(slow_create_count + slow_write_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_with_parts_of_the_states_give_the_twins_bits_and_keep_no_more),
        cmocka_unit_test(work_is_gathered_as_many_calls_early_as_the_lead_says),
        cmocka_unit_test(what_parts_save_any_number_of_ranks_loads),
        cmocka_unit_test(a_save_that_rank_0_cannot_write_keeps_the_ranks_in_step),
        cmocka_unit_test(a_save_that_takes_rank_0_longer_than_the_timeout_goes_on),
    };
    return cmocka_run_group_tests(tests, draw_inputs, NULL);
}
