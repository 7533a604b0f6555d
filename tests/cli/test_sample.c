/* Sampling against a plain sort and against the softmax it must follow. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/sample.h"

enum { VOCABULARY = 37, DRAWS = 200000 };

static void make_logits(uint64_t seed, float *logits)
{
    /* few distinct values: ties on purpose */
    for (int i = 0; i < VOCABULARY; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        logits[i] = (float)((seed >> 33) % 9) * 0.5f - 2.0f;
    }
}

/* Oracle: how many ids stand before `id` when sorted by falling logit, then rising id. */
static int rank_of(const float *logits, int id)
{
    int rank = 0;
    for (int other = 0; other < VOCABULARY; other++)
        rank += logits[other] > logits[id] || (logits[other] == logits[id] && other < id);
    return rank;
}

static void temperature_zero_takes_the_likeliest_with_the_lowest_id(void **state)
{
    (void)state;
    float logits[VOCABULARY];
    int32_t order[VOCABULARY];
    for (uint64_t seed = 1; seed <= 50; seed++) {
        const cli_sampler sampler = { .temperature = 0, .seed = seed };
        make_logits(seed, logits);
        assert_int_equal(rank_of(logits, cli_sample(&sampler, logits, VOCABULARY, seed, order)), 0);
    }
}

static void top_k_draws_from_exactly_the_k_likeliest(void **state)
{
    (void)state;
    float logits[VOCABULARY];
    int32_t order[VOCABULARY];
    for (int64_t top_k = 1; top_k <= VOCABULARY; top_k += 6) {
        int drawn[VOCABULARY] = { 0 };
        const cli_sampler sampler = { .temperature = 3.0, .top_k = top_k, .seed = (uint64_t)top_k };
        make_logits((uint64_t)top_k * 77, logits);
        for (uint64_t n = 0; n < 4000; n++)
            drawn[cli_sample(&sampler, logits, VOCABULARY, n, order)]++;
        for (int id = 0; id < VOCABULARY; id++)
            assert_int_equal(drawn[id] > 0, rank_of(logits, id) < top_k);
    }
}

static void draws_follow_the_softmax(void **state)
{
    (void)state;
    float logits[VOCABULARY];
    int32_t order[VOCABULARY];
    int drawn[VOCABULARY] = { 0 };
    const cli_sampler sampler = { .temperature = 0.7, .seed = 5 };
    double sum = 0;
    make_logits(3, logits);
    for (uint64_t n = 0; n < DRAWS; n++)
        drawn[cli_sample(&sampler, logits, VOCABULARY, n, order)]++;
    for (int id = 0; id < VOCABULARY; id++)
        sum += exp(logits[id] / 0.7);
    for (int id = 0; id < VOCABULARY; id++) {
        double p = exp(logits[id] / 0.7) / sum;
        /* six standard deviations of a binomial count: false once in 10^9 */
        double bound = 6 * sqrt(DRAWS * p * (1 - p)) + 1;
        assert_true(fabs(drawn[id] - DRAWS * p) <= bound);
    }
}

static void the_same_seed_and_count_give_the_same_token(void **state)
{
    (void)state;
    float logits[VOCABULARY];
    int32_t order[VOCABULARY];
    int differing = 0;
    make_logits(9, logits);
    for (uint64_t n = 0; n < 100; n++) {
        const cli_sampler one = { .temperature = 2, .seed = 1 },
                          two = { .temperature = 2, .seed = 2 };
        int32_t first = cli_sample(&one, logits, VOCABULARY, n, order);
        assert_int_equal(first, cli_sample(&one, logits, VOCABULARY, n, order));
        differing += first != cli_sample(&two, logits, VOCABULARY, n, order);
    }
    assert_true(differing > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_zero_takes_the_likeliest_with_the_lowest_id),
        cmocka_unit_test(top_k_draws_from_exactly_the_k_likeliest),
        cmocka_unit_test(draws_follow_the_softmax),
        cmocka_unit_test(the_same_seed_and_count_give_the_same_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
