#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cohobate/text.h"
#include "tests/faults/alloc_faults.h"
#include "tests/text/folder.h"
#include "text/permute.h"
#include "text/token_file.h"

/* A token file of ids 0..count-1 in order: an id is its own position. */
static coh_token_file *open_counting_file(uint64_t count, int64_t vocabulary)
{
    coh_token_writer *writer;
    assert_int_equal(coh_token_writer_create(folder_file("ids"), vocabulary, 1, &writer), COH_OK);
    for (int32_t id = 0; id < (int32_t)count; id++)
        assert_int_equal(coh_token_writer_add(writer, &id, NULL, 1), COH_OK);
    assert_int_equal(coh_token_writer_finish(writer), COH_OK);
    assert_int_equal(coh_token_writer_publish(writer), COH_OK);
    coh_token_writer_destroy(writer);
    coh_token_file *file;
    assert_int_equal(coh_token_file_open(folder_file("ids"), &file), COH_OK);
    return file;
}

static void a_permutation_reaches_every_index_once_at_any_count(void **state)
{
    (void)state;
    static unsigned char seen[5000];
    const uint64_t counts[] = { 1,  2,  3,  4,  5,   7,   8,    15,   16,
                                17, 63, 64, 65, 255, 257, 1000, 4096, 4097 };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (uint64_t pass = 0; pass < 5; pass++) {
            memset(seen, 0, sizeof(seen));
            for (uint64_t index = 0; index < counts[i]; index++) {
                uint64_t at = coh_permute(42, pass, counts[i], index);
                assert_true(at < counts[i]);
                assert_int_equal(seen[at]++, 0);
            }
        }
    }
    /* Large counts: results stay in range. */
    for (uint64_t index = 0; index < 1000; index++)
        assert_true(coh_permute(1, 2, UINT64_C(0x100000001), index) < UINT64_C(0x100000001));
}

/* Each index lies in each quarter about a quarter of the time: 1000 of 4000 draws, standard
 * deviation 27.4; six of these are 165. */
static void passes_and_seeds_spread_an_index_evenly(void **state)
{
    (void)state;
    for (uint64_t index = 0; index < 5; index++) {
        int by_pass[4] = { 0 }, by_seed[4] = { 0 };
        for (uint64_t n = 0; n < 4000; n++) {
            by_pass[coh_permute(7, n, 1000, index) / 250]++;
            by_seed[coh_permute(n, 0, 1000, index) / 250]++;
        }
        for (int quarter = 0; quarter < 4; quarter++) {
            assert_in_range(by_pass[quarter], 1000 - 165, 1000 + 165);
            assert_in_range(by_seed[quarter], 1000 - 165, 1000 + 165);
        }
    }
}

static void each_pass_visits_every_window_once_with_shifted_targets(void **state)
{
    (void)state;
    /* 2 and 4 bytes; with and without ids left over at the end; single tokens. */
    static const struct shape {
        uint64_t count;
        int64_t vocabulary, tokens;
    } all[] = { { 1000, 1000, 8 }, { 1001, 70000, 8 }, { 1009, 1009, 7 },
                { 300, 65537, 1 }, { 17, 17, 16 },     { 33, 65536, 16 } };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_token_file *file = open_counting_file(all[i].count, all[i].vocabulary);
        uint64_t window_count = coh_token_file_window_count(file, all[i].tokens);
        assert_int_equal(window_count, (all[i].count - 1) / (uint64_t)all[i].tokens);
        int32_t tokens[16], targets[16];
        for (uint64_t pass = 0; pass < 3; pass++) {
            unsigned char seen[1009] = { 0 };
            for (uint64_t n = 0; n < window_count; n++) {
                assert_int_equal(coh_token_file_window(file, 5, pass * window_count + n,
                                                       all[i].tokens, tokens, targets),
                                 COH_OK);
                assert_int_equal(tokens[0] % all[i].tokens, 0);
                assert_int_equal(seen[tokens[0]]++, 0);
                for (int64_t k = 0; k < all[i].tokens; k++) {
                    assert_int_equal(tokens[k], tokens[0] + k);
                    assert_int_equal(targets[k], tokens[0] + k + 1);
                }
            }
        }
        coh_token_file_close(file);
    }
}

static void passes_and_seeds_have_orders_of_their_own(void **state)
{
    (void)state;
    coh_token_file *file = open_counting_file(4001, 4001);
    int32_t first[4], targets[4];
    int same_pass = 0, same_seed = 0, unmoved = 0;
    for (uint64_t n = 0; n < 1000; n++) {
        int32_t at[3];
        const uint64_t seed[3] = { 1, 1, 2 }, number[3] = { n, 1000 + n, n };
        for (int i = 0; i < 3; i++) {
            assert_int_equal(coh_token_file_window(file, seed[i], number[i], 4, first, targets),
                             COH_OK);
            at[i] = first[0];
        }
        same_pass += at[0] == at[1];
        same_seed += at[0] == at[2];
        unmoved += (uint64_t)at[0] == 4 * n;
    }
    /* In random orders one window in 1000 agrees on average; Poisson: 10 or more with probability
     * 1e-7. */
    assert_in_range(same_pass, 0, 9);
    assert_in_range(same_seed, 0, 9);
    assert_in_range(unmoved, 0, 9);
    coh_token_file_close(file);
}

static void a_window_is_found_by_its_number_alone_and_allocates_nothing(void **state)
{
    (void)state;
    coh_token_file *file = open_counting_file(4001, 70000);
    int32_t straight[64][16], tokens[16], targets[16];
    for (uint64_t n = 0; n < 64; n++)
        assert_int_equal(coh_token_file_window(file, 9, 200 + n, 16, straight[n], targets), COH_OK);
    coh_token_file_close(file);

    assert_int_equal(coh_token_file_open(folder_file("ids"), &file), COH_OK);
    uint64_t before = alloc_count();
    for (uint64_t n = 64; n-- > 0;) {
        assert_int_equal(coh_token_file_window(file, 9, 200 + n, 16, tokens, targets), COH_OK);
        assert_memory_equal(tokens, straight[n], sizeof(tokens));
    }
    assert_true(alloc_count() == before);
    coh_token_file_close(file);
}

static void a_file_without_a_window_says_so(void **state)
{
    (void)state;
    int32_t tokens[16], targets[16];
    for (uint64_t count = 0; count <= 16; count += 8) {
        coh_token_file *file = open_counting_file(count, 100);
        assert_int_equal(coh_token_file_window_count(file, 16), 0);
        assert_int_equal(coh_token_file_window_count(file, 0), 0);
        assert_int_equal(coh_token_file_window_count(file, -3), 0);
        assert_int_equal(coh_token_file_window(file, 0, 0, 16, tokens, targets), COH_ERR_ARGUMENT);
        assert_non_null(strstr(coh_last_error(), "no window of 16 tokens"));
        coh_token_file_close(file);
    }
}

static void stretches_in_order_score_every_id_behind_the_first_once(void **state)
{
    (void)state;
    /* ids, tokens of a stretch, distance to the next; the last stretch is truncated, full or one
     * id */
    static const struct shape {
        uint64_t count;
        int64_t tokens, stride;
    } all[] = { { 100, 16, 16 }, { 97, 16, 16 }, { 98, 16, 16 }, { 100, 16, 5 }, { 9, 16, 16 } };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_token_file *file = open_counting_file(all[i].count, 70000);
        int32_t tokens[16], targets[16];
        unsigned char scored[100] = { 0 };
        for (uint64_t begin = 0; begin + 1 < all[i].count; begin += (uint64_t)all[i].stride) {
            assert_int_equal(coh_token_file_stretch(file, begin, all[i].tokens, tokens, targets),
                             COH_OK);
            for (int64_t k = 0; k < all[i].tokens; k++) {
                const uint64_t at = begin + (uint64_t)k;
                assert_int_equal(tokens[k], at < all[i].count ? (int64_t)at : 0);
                assert_int_equal(targets[k], at + 1 < all[i].count ? (int64_t)at + 1 : -1);
                if (targets[k] >= 0 && (begin == 0 || k >= all[i].tokens - all[i].stride))
                    scored[targets[k]]++;
            }
            if (begin + (uint64_t)all[i].tokens + 1 >= all[i].count)
                break;
        }
        assert_int_equal(scored[0], 0);
        for (uint64_t id = 1; id < all[i].count; id++)
            assert_int_equal(scored[id], 1);
        assert_int_equal(coh_token_file_stretch(file, all[i].count, 4, tokens, targets),
                         COH_ERR_ARGUMENT);
        assert_int_equal(coh_token_file_stretch(file, 0, 0, tokens, targets), COH_ERR_ARGUMENT);
        assert_int_equal(coh_token_file_stretch(NULL, 0, 4, tokens, targets), COH_ERR_ARGUMENT);
        assert_int_equal(coh_token_file_stretch(file, 0, 4, NULL, targets), COH_ERR_ARGUMENT);
        assert_int_equal(coh_token_file_stretch(file, 0, 4, tokens, NULL), COH_ERR_ARGUMENT);
        coh_token_file_close(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_permutation_reaches_every_index_once_at_any_count),
        cmocka_unit_test(passes_and_seeds_spread_an_index_evenly),
        cmocka_unit_test(each_pass_visits_every_window_once_with_shifted_targets),
        cmocka_unit_test(passes_and_seeds_have_orders_of_their_own),
        cmocka_unit_test(a_window_is_found_by_its_number_alone_and_allocates_nothing),
        cmocka_unit_test(a_file_without_a_window_says_so),
        cmocka_unit_test(stretches_in_order_score_every_id_behind_the_first_once),
    };
    return cmocka_run_group_tests(tests, folder_create, folder_remove);
}
