/* What is left when one of several ranks fails in the middle of a resumed run, by a call of its
 * transport or a transfer of its working store: all ranks end with one sentence and one code, the
 * checkpoint that was being written is whole or not there, and a run that is resumed from the one
 * before ends with the hash of the unbroken run. */
#include "tests/engine/ranks_bench.h"

#include <dirent.h>

#include "tests/faults/store_faults.h"

/* A folder, and in it the checkpoints after the first step and at the end. */
static char parent[256], begun[300], ended[300];

static const setting plain = {
    "2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, DISK, 0, -1, .pattern = "zero3"
};

static int begin(void **state)
{
    if (temporary_folder(parent, sizeof(parent), "rank-faults") != 0)
        return -1;
    (void)snprintf(begun, sizeof(begun), "%s/begun", parent);
    (void)snprintf(ended, sizeof(ended), "%s/ended", parent);
    return draw_inputs(state);
}

static int end_all(void **state)
{
    (void)state;
    return temporary_remove(parent);
}

/* Returns how many files and folders are next to the first checkpoint. */
static int count_others(void)
{
    int count = 0;
    DIR *folder = opendir(parent);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.' && strcmp(entry->d_name, "begun") != 0;
    closedir(folder);
    return count;
}

/* Returns the hash of the unbroken run, after it has left a checkpoint of its first step. */
static uint64_t begin_run(void)
{
    setting first = plain;
    end ends[RANKS_MOST];
    (void)temporary_remove(begun);
    const end twin = twin_of(plain);
    first.steps = 1;
    first.saves = begun;
    run_setting(&first, ends);
    for (int i = 0; i < first.ranks; i++)
        must(ends[i].status, ends[i].sentence);
    return twin.hash;
}

/* Returns the hash of one rank that loads a checkpoint and trains the steps from `begins_at` on. */
static uint64_t hash_from(const char *folder, uint64_t begins_at)
{
    setting one = plain;
    one.loads = folder;
    one.begins_at = begins_at;
    one.keeps = begins_at == STEPS;
    return twin_of(one).hash;
}

/* Resumes the run with a fault, and checks what it leaves. Returns whether the fault was hit. */
static int expect_whole(const setting *s, int was_hit(void), const char *part, uint64_t unbroken)
{
    end ends[RANKS_MOST];
    (void)temporary_remove(ended);
    run_setting(s, ends);
    const int hit = was_hit();
    store_fault_plan_set(NULL);
    transport_fault_plan_set(NULL);
    for (int i = 0; i < s->ranks; i++) {
        if (!hit)
            must(ends[i].status, ends[i].sentence);
        else if (ends[i].status != COH_ERR_IO || strstr(ends[i].sentence, part) == NULL ||
                 strcmp(ends[i].sentence, ends[0].sentence) != 0)
            fail_msg("rank %d: %s '%s', rank 0 '%s', expected '%s'", i,
                     coh_status_name(ends[i].status), ends[i].sentence, ends[0].sentence, part);
    }
    const int is_saved = access(ended, F_OK) == 0;
    assert_true(is_saved || hit);
    assert_int_equal(count_others(), is_saved); /* nothing is torn */
    if (is_saved)
        assert_true(hash_from(ended, STEPS) == unbroken);
    return hit;
}

static setting resumed(void)
{
    setting s = plain;
    s.loads = begun;
    s.begins_at = 1;
    s.saves = ended;
    return s;
}

/* The calls of all ranks are counted together: the first ones, which create the engines, and a
 * sample. The last ones are made after the save. */
static void each_call_of_the_transport_that_fails_leaves_a_run_to_resume(void **state)
{
    (void)state;
    const uint64_t unbroken = begin_run();
    const int64_t stride = test_seeks_races() ? 1999
                           : test_is_brief()  ? 401
                           : test_is_short()  ? 151
                                              : 127;
    setting s = resumed();
    int fault_count = 0;
    s.world_is_faulty = 1;
    for (int64_t at = 3;; at += stride, fault_count++) {
        transport_fault_plan_set(&(transport_fault_plan){ .fail_at = at });
        if (!expect_whole(&s, transport_fault_was_hit, "injected: call", unbroken))
            break;
        if (fault_count % 4 == 0)
            assert_true(hash_from(begun, 1) == unbroken);
    }
    assert_true(hash_from(begun, 1) == unbroken);
    assert_true(fault_count > 1);
}

static void each_transfer_of_one_ranks_store_that_fails_ends_all_with_its_sentence(void **state)
{
    (void)state;
    const uint64_t unbroken = begin_run();
    const int64_t stride = test_seeks_races() ? 499
                           : test_is_brief()  ? 167
                           : test_is_short()  ? 67
                                              : 47;
    setting s = resumed();
    int fault_count = 0;
    s.store = &store_faulty_mem;
    for (s.store_rank = test_seeks_races() ? s.ranks - 1 : 0; s.store_rank < s.ranks;
         s.store_rank += s.ranks - 1) {
        char part[32];
        (void)snprintf(part, sizeof(part), "rank %d: ", s.store_rank);
        for (int64_t at = 0;; at += stride, fault_count++) {
            store_fault_plan_set(
                &(store_fault_plan){ .fail_at = at, .short_at = -1, .flip_at = -1, .late_at = -1 });
            if (!expect_whole(&s, store_fault_was_hit, part, unbroken))
                break;
            if (fault_count % 4 == 0)
                assert_true(hash_from(begun, 1) == unbroken);
        }
    }
    assert_true(hash_from(begun, 1) == unbroken);
    assert_true(fault_count > (test_seeks_races() ? 1 : 2)); /* of one rank, or of two */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_of_the_transport_that_fails_leaves_a_run_to_resume),
        cmocka_unit_test(each_transfer_of_one_ranks_store_that_fails_ends_all_with_its_sentence),
    };
    return cmocka_run_group_tests(tests, begin, end_all);
}
