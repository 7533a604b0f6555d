/* Sampling compared with a plain sort, with the softmax distribution, and with transformers' logits
 * processors, recorded by record_samplers.py. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "cli/sample.h"

enum { VOCABULARY = 37, DRAWS = 200000 };

/* SAMPLERS: the file of recorded cases. */

static const cli_sampler all = { .temperature = 1, .top_p = 1, .penalty = 1, .seed = 1 };

static cli_sampler sampler_of(double temperature, int64_t top_k, uint64_t seed)
{
    cli_sampler sampler = all;
    sampler.temperature = temperature;
    sampler.top_k = top_k;
    sampler.seed = seed;
    return sampler;
}

static void make_logits(uint64_t seed, float *logits)
{
    /* few distinct values, to get ties */
    for (int i = 0; i < VOCABULARY; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        logits[i] = (float)((seed >> 33) % 9) * 0.5f - 2.0f;
    }
}

/* Oracle: returns how many ids precede `id` when sorted by descending logit, then ascending id. */
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
        const cli_sampler sampler = sampler_of(0, 0, seed);
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
        const cli_sampler sampler = sampler_of(3.0, top_k, (uint64_t)top_k);
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
    const cli_sampler sampler = sampler_of(0.7, 0, 5);
    double sum = 0;
    make_logits(3, logits);
    for (uint64_t n = 0; n < DRAWS; n++)
        drawn[cli_sample(&sampler, logits, VOCABULARY, n, order)]++;
    for (int id = 0; id < VOCABULARY; id++)
        sum += exp(logits[id] / 0.7);
    for (int id = 0; id < VOCABULARY; id++) {
        double p = exp(logits[id] / 0.7) / sum;
        /* six standard deviations of a binomial count: fails wrongly once in 10^9 */
        double bound = 6 * sqrt(DRAWS * p * (1 - p)) + 1;
        assert_true(fabs(drawn[id] - DRAWS * p) <= bound);
    }
}

/* ---- candidates ---- */

static double uniform(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) * 0x1p-53;
}

/* Oracle: computes from the definitions the probability of each id among the candidates, 0 for
 * others. */
static void naive(const cli_sampler *s, const float *logits, double *p)
{
    double sum = 0, best = 0, before, kept = 0;
    const int64_t k = s->top_k > 0 && s->top_k < VOCABULARY ? s->top_k : VOCABULARY;
    for (int id = 0; id < VOCABULARY; id++)
        p[id] = rank_of(logits, id) < k ? exp(logits[id] / s->temperature) : 0;
    for (int id = 0; id < VOCABULARY; id++)
        sum += p[id];
    for (int id = 0; id < VOCABULARY; id++)
        best = fmax(best, p[id] /= sum);
    double nucleus[VOCABULARY];
    for (int id = 0; id < VOCABULARY; id++) {
        before = 0;
        for (int other = 0; other < VOCABULARY; other++)
            before += rank_of(logits, other) < rank_of(logits, id) ? p[other] : 0;
        const int is_first = rank_of(logits, id) == 0;
        nucleus[id] = s->top_p >= 1 || is_first || before < s->top_p ? p[id] : 0;
    }
    for (int id = 0; id < VOCABULARY; id++)
        kept += p[id] = nucleus[id] >= s->min_p * best ? nucleus[id] : 0;
    for (int id = 0; id < VOCABULARY; id++)
        p[id] /= kept;
}

static void assert_candidates(const cli_sampler *sampler, const float *logits, int vocabulary,
                              const double *p, const char *where)
{
    int32_t order[64];
    int seen[64] = { 0 }, expected = 0;
    const int64_t count = cli_sample_candidates(sampler, logits, vocabulary, order);
    for (int id = 0; id < vocabulary; id++)
        expected += p[id] > 0;
    if (count != expected)
        fail_msg("%s: %d candidates, expected %d", where, (int)count, expected);
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += exp((logits[order[i]] - logits[order[0]]) / sampler->temperature);
    for (int64_t i = 0; i < count; i++) {
        const double own = exp((logits[order[i]] - logits[order[0]]) / sampler->temperature) / sum;
        if (seen[order[i]]++ || p[order[i]] == 0 || fabs(own / p[order[i]] - 1) > 1e-4)
            fail_msg("%s: id %d has %g, expected %g", where, order[i], own, p[order[i]]);
    }
}

static void candidates_are_those_of_the_definitions(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int n = 0; n < 3000; n++) {
        float logits[VOCABULARY];
        double p[VOCABULARY];
        char where[32];
        cli_sampler sampler = sampler_of(0.2 + 3 * uniform(&seed), 0, 1);
        make_logits((uint64_t)n, logits);
        if (n & 1)
            sampler.top_k = (int64_t)(40 * uniform(&seed));
        if (n & 2)
            sampler.top_p = uniform(&seed);
        if (n & 4)
            sampler.min_p = uniform(&seed);
        snprintf(where, sizeof(where), "case %d", n);
        naive(&sampler, logits, p);
        assert_candidates(&sampler, logits, VOCABULARY, p, where);
    }
}

static void the_ends_of_the_ranges_keep_all_or_the_likeliest(void **state)
{
    (void)state;
    float logits[VOCABULARY];
    int32_t order[VOCABULARY];
    make_logits(4, logits);
    int ties = 0;
    assert_int_equal(cli_sample_candidates(&all, logits, VOCABULARY, order), VOCABULARY);
    cli_sampler sampler = all;
    sampler.top_p = 0;
    assert_int_equal(cli_sample_candidates(&sampler, logits, VOCABULARY, order), 1);
    assert_int_equal(rank_of(logits, order[0]), 0);
    for (int id = 0; id < VOCABULARY; id++)
        ties += logits[id] == logits[order[0]];
    sampler = all;
    sampler.min_p = 1;
    assert_true(ties > 1);
    assert_int_equal(cli_sample_candidates(&sampler, logits, VOCABULARY, order), ties);
}

static void a_penalty_makes_what_was_seen_less_likely_once(void **state)
{
    (void)state;
    const float logits[] = { 2, -2, 0, 3, -1 };
    const int32_t seen[] = { 0, 1, 1, 0, 2, 0, -1, 5 };
    float out[5];
    cli_sample_penalize(1, logits, 5, seen, 8, out);
    assert_memory_equal(out, logits, sizeof(logits));
    cli_sample_penalize(4, logits, 5, seen, 8, out);
    assert_memory_equal(out, ((float[]){ 0.5f, -8, 0, 3, -1 }), sizeof(out));
    cli_sample_penalize(0.5, logits, 5, seen, 8, out);
    assert_memory_equal(out, ((float[]){ 4, -1, 0, 3, -1 }), sizeof(out));
}

static void check_recorded(const json_t *line, int number)
{
    float logits[64], penalized[64];
    int32_t seen[64];
    double p[64];
    char where[32];
    const json_t *all_logits = json_object_get(line, "logits"),
                 *all_seen = json_object_get(line, "seen"),
                 *expected = json_object_get(line, "probabilities");
    const size_t vocabulary = json_array_size(all_logits), count = json_array_size(all_seen);
    assert_true(vocabulary <= 64 && count <= 64 && json_array_size(expected) == vocabulary);
    const cli_sampler sampler = {
        .temperature = json_number_value(json_object_get(line, "temperature")),
        .top_k = json_integer_value(json_object_get(line, "top_k")),
        .top_p = json_number_value(json_object_get(line, "top_p")),
        .min_p = json_number_value(json_object_get(line, "min_p")),
        .penalty = json_number_value(json_object_get(line, "repetition_penalty")),
    };
    for (size_t i = 0; i < vocabulary; i++) {
        logits[i] = (float)json_number_value(json_array_get(all_logits, i));
        p[i] = json_number_value(json_array_get(expected, i));
    }
    for (size_t i = 0; i < count; i++)
        seen[i] = (int32_t)json_integer_value(json_array_get(all_seen, i));
    snprintf(where, sizeof(where), "line %d", number);
    cli_sample_penalize(sampler.penalty, logits, (int64_t)vocabulary, seen, count, penalized);
    assert_candidates(&sampler, penalized, (int)vocabulary, p, where);
}

static void candidates_are_those_of_transformers(void **state)
{
    (void)state;
    char text[4096];
    int number = 0;
    FILE *file = fopen(SAMPLERS, "r");
    assert_non_null(file);
    while (fgets(text, sizeof(text), file)) {
        json_t *line = json_loads(text, 0, NULL);
        assert_non_null(line);
        check_recorded(line, ++number);
        json_decref(line);
    }
    fclose(file);
    assert_true(number > 100);
}

static void draws_follow_the_candidates(void **state)
{
    (void)state;
    float logits[VOCABULARY];
    int32_t order[VOCABULARY];
    double p[VOCABULARY];
    int drawn[VOCABULARY] = { 0 };
    cli_sampler sampler = sampler_of(1.5, 30, 5);
    sampler.top_p = 0.83;
    sampler.min_p = 0.11;
    make_logits(3, logits);
    naive(&sampler, logits, p);
    for (uint64_t n = 0; n < DRAWS; n++)
        drawn[cli_sample(&sampler, logits, VOCABULARY, n, order)]++;
    for (int id = 0; id < VOCABULARY; id++)
        assert_true(fabs(drawn[id] - DRAWS * p[id]) <=
                    6 * sqrt(DRAWS * p[id] * (1 - p[id])) + (p[id] > 0));
}

static void the_same_seed_and_count_give_the_same_token(void **state)
{
    (void)state;
    float logits[VOCABULARY];
    int32_t order[VOCABULARY];
    int differing = 0;
    make_logits(9, logits);
    for (uint64_t n = 0; n < 100; n++) {
        const cli_sampler one = sampler_of(2, 0, 1), two = sampler_of(2, 0, 2);
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
        cmocka_unit_test(candidates_are_those_of_the_definitions),
        cmocka_unit_test(the_ends_of_the_ranges_keep_all_or_the_likeliest),
        cmocka_unit_test(a_penalty_makes_what_was_seen_less_likely_once),
        cmocka_unit_test(candidates_are_those_of_transformers),
        cmocka_unit_test(draws_follow_the_candidates),
        cmocka_unit_test(the_same_seed_and_count_give_the_same_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
