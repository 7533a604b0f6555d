/* The name that a mistyped word means: against the definition of the distance, by recursion, over
 * random words, and the words that people mistype. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cohobate/terms.h"

static int32_t least_of(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* The definition of optimal string alignment. */
static int32_t defined(const char *a, const char *b)
{
    if (*a == '\0' || *b == '\0')
        return (int32_t)(strlen(a) + strlen(b));
    int32_t edits = least_of(defined(a + 1, b + 1) + (*a != *b),
                             1 + least_of(defined(a + 1, b), defined(a, b + 1)));
    if (a[1] != '\0' && b[1] != '\0' && a[0] == b[1] && a[1] == b[0])
        edits = least_of(edits, 1 + defined(a + 2, b + 2));
    return edits;
}

static void make_word(uint64_t round, uint64_t which, char word[7])
{
    const uint64_t length = coh_rng_below(3, which, round * 8, 7);
    for (uint64_t i = 0; i < length; i++)
        word[i] = (char)('a' + coh_rng_below(3, which, round * 8 + 1 + i, 3));
    word[length] = '\0';
}

static void random_words_have_the_distance_of_its_definition(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 3000; round++) {
        char word[7], name[7];
        make_word(round, 0, word);
        make_word(round, 1, name);
        const size_t length = strlen(word), width = strlen(name);
        const size_t shorter = length < width ? length : width;
        int32_t edits = defined(word, name);
        const int is_beginning = shorter >= 3 && strncmp(word, name, shorter) == 0;
        const int is_end =
            shorter >= 4 && strcmp(word + length - shorter, name + width - shorter) == 0;
        if (is_beginning || is_end)
            edits = least_of(edits, 1);
        if (edits > (length < 4 ? 1 : 2) || (length && width && strpbrk(word, name) == NULL))
            edits = -1;
        assert_int_equal(coh_name_edits(word, name), edits);
    }
}

static void mistyped_words_are_near_and_others_are_not(void **state)
{
    (void)state;
    assert_int_equal(coh_name_edits("opt-13", "opt-13b"), 1);
    assert_int_equal(coh_name_edits("GPT2-XL", "gpt2-xl"), 0);
    assert_int_equal(coh_name_edits("a100-40", "a100-40g"), 1);
    assert_int_equal(coh_name_edits("a100", "a100-40g"), 1);
    assert_int_equal(coh_name_edits("h100-80g", "h100"), 1);
    assert_int_equal(coh_name_edits("4090", "rtx-4090"), 1);
    assert_int_equal(coh_name_edits("090", "rtx-4090"), -1);
    assert_int_equal(coh_name_edits("RTX_4090", "rtx-4090"), 0);
    assert_int_equal(coh_name_edits("llama3-8b", "llama-3.1-8b"), 1);
    assert_int_equal(coh_name_edits("llama-8b", "llama-3.1-8b"), 1);
    assert_int_equal(coh_name_edits("opt", "opt-125m"), 1);
    assert_int_equal(coh_name_edits("vaildation-every", "validation-every"), 1);
    assert_int_equal(coh_name_edits("learning-rate", "lr"), -1);
    assert_int_equal(coh_name_edits("bert", "gpt2"), -1);
    assert_int_equal(coh_name_edits(NULL, "gpt2"), -1);
    assert_int_equal(coh_name_edits("gpt2", NULL), -1);
}

static void words_of_other_letters_or_other_digits_are_not_near(void **state)
{
    (void)state;
    assert_int_equal(coh_name_edits("v100", "h100"), -1);
    assert_int_equal(coh_name_edits("b200", "h200"), -1);
    assert_int_equal(coh_name_edits("gpt3", "gpt2"), -1);
    assert_int_equal(coh_name_edits("h10", "h100"), 1);
    assert_int_equal(coh_name_edits("g100", "gh100"), 1);
}

/* The name that `word` means among `names`, which end with NULL. */
static const char *meant(const char *word, const char *const *names)
{
    coh_nearest nearest = { .word = word };
    for (; *names; names++)
        coh_nearest_offer(&nearest, *names);
    return nearest.name ? nearest.name : "";
}

/* Names as users write them. */
static void the_words_of_users_mean_the_names_that_they_know(void **state)
{
    (void)state;
    static const char *const models[] = {
        "gpt2",         "gpt2-medium",  "gpt2-xl",  "opt-1.3b",  "opt-13b", "llama-2-7b",
        "llama-3.1-8b", "llama-3.2-1b", "qwen3-8b", "qwen3-14b", NULL
    };
    static const char *const profiles[] = { "a100-40g", "a100-80g", "h100", "h200",
                                            "rtx-3090", "rtx-4090", NULL };
    static const char *const said[][2] = {
        { "llama3-8b", "llama-3.1-8b" },
        { "llama-3-8b", "llama-3.1-8b" },
        { "llama-8b", "llama-3.1-8b" },
        { "LLAMA_3.1_8B", "llama-3.1-8b" },
        { "Llama-3.1-8B-Instruct", "llama-3.1-8b" },
        { "llama2-7b", "llama-2-7b" },
        { "opt-13", "opt-13b" },
        { "opt-1.3", "opt-1.3b" },
        { "opt1.3b", "opt-1.3b" },
        { "gpt2_XL", "gpt2-xl" },
        { "gpt2-xxl", "gpt2-xl" },
        { "qwen3_14b", "qwen3-14b" },
        { "opt", "opt-13b" },
        { "bert", "" },
        { "8b", "" },
    };
    static const char *const parts[][2] = { { "a100", "a100-40g" },     { "A100_80G", "a100-80g" },
                                            { "4090", "rtx-4090" },     { "RTX4090", "rtx-4090" },
                                            { "rtx 3090", "rtx-3090" }, { "h100-80g", "h100" },
                                            { "rtx", "rtx-3090" },      { "tpu", "" } };
    static const char *const families[] = { "llama",   "llama-2", "llama-3.1",
                                            "qwen2.5", "qwen3",   NULL };
    assert_string_equal(meant("llama-3", families), "llama-3.1");
    assert_string_equal(meant("Qwen-3", families), "qwen3");
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
        assert_string_equal(meant(said[i][0], models), said[i][1]);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        assert_string_equal(meant(parts[i][0], profiles), parts[i][1]);
}

static const char *const presets[] = { "gpt2-pico",
                                       "gpt2-nano",
                                       "gpt2",
                                       "gpt2-medium",
                                       "gpt2-large",
                                       "gpt2-xl",
                                       "opt-125m",
                                       "opt-350m",
                                       "opt-1.3b",
                                       "opt-2.7b",
                                       "opt-6.7b",
                                       "opt-13b",
                                       "opt-30b",
                                       "opt-66b",
                                       "llama-2-7b",
                                       "llama-2-13b",
                                       "llama-2-70b",
                                       "llama-3.1-8b",
                                       "llama-3.1-70b",
                                       "llama-3.2-1b",
                                       "llama-3.2-3b",
                                       "qwen2.5-0.5b",
                                       "qwen2.5-1.5b",
                                       "qwen2.5-3b",
                                       "qwen2.5-7b",
                                       "qwen2.5-14b",
                                       "qwen2.5-32b",
                                       "qwen3-0.6b",
                                       "qwen3-1.7b",
                                       "qwen3-4b",
                                       "qwen3-8b",
                                       "qwen3-14b",
                                       "qwen3-32b",
                                       "mistral-7b",
                                       "mistral-small-24b",
                                       "phi-3-medium",
                                       "gemma-2-9b",
                                       "gemma-2-27b",
                                       "gemma-3-4b",
                                       "gemma-3-27b",
                                       NULL };

/* All presets: a cut divides no number, and of names as near that of the nearest size is meant. */
static void a_size_that_is_no_model_means_the_nearest_size_of_its_family(void **state)
{
    (void)state;
    static const char *const said[][2] = {
        { "llama-3b", "llama-3.2-3b" },
        { "qwen2.5-1b", "qwen2.5-1.5b" },
        { "opt-1b", "opt-1.3b" },
        { "opt-3b", "opt-2.7b" },
        { "opt-6b", "opt-6.7b" },
        { "llama-3.1-7b", "llama-3.1-8b" },
        { "gemma-3-2b", "gemma-3-4b" },
        { "opt-300m", "opt-350m" },
        { "mistral-24b", "mistral-small-24b" },
        { "mistral-small-2b", "mistral-7b" },
        { "opt-125b", "opt-125m" }, /* a letter, although 66b is nearer in size */
        { "opt-13m", "opt-13b" },
        { "OPT-125B", "opt-125m" },
        { "qwen3-8m", "qwen3-8b" },
        { "llama-3.1-405b", "" },
        { "opt-13", "opt-13b" },
        { "opt-1.3", "opt-1.3b" },
        { "opt13b", "opt-13b" },
        { "opt1.3b", "opt-1.3b" },
        { "opt_1_3b", "opt-1.3b" },
        { "llama3-8b", "llama-3.1-8b" },
        { "Llama-3.1-8B-Instruct", "llama-3.1-8b" },
        { "llama38b", "llama-3.1-8b" },
        { "gpt-3", "" },
        { "qwen3_14b", "qwen3-14b" },
        { "Qwen2.5-7B-Instruct", "qwen2.5-7b" },
    };
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
        assert_string_equal(meant(said[i][0], presets), said[i][1]);
}

static void the_nearest_name_is_the_first_of_the_least_edits(void **state)
{
    (void)state;
    coh_nearest nearest = { .word = "a100-40" };
    coh_nearest_offer(&nearest, "bert");
    assert_null(nearest.name);
    coh_nearest_offer(&nearest, "a100");
    assert_string_equal(nearest.name, "a100");
    coh_nearest_offer(&nearest, "a100-40g");
    coh_nearest_offer(&nearest, "a100-41");
    coh_nearest_offer(&nearest, NULL);
    assert_string_equal(nearest.name, "a100-40g");
    assert_int_equal(nearest.edits, 1);
}

/* In any order of the offers the second is the one that would be nearest without the first. */
static void a_word_with_a_mistyped_unit_means_either_of_two(void **state)
{
    (void)state;
    static const char *const sizes[] = { "opt-30b", "opt-125m", "opt-66b", "qwen3-8b", "opt-125m" };
    static const struct {
        const char *word, *text;
    } cases[] = {
        { "opt-125b", "opt-125m or opt-66b" },
        { "OPT-125B", "opt-125m or opt-66b" },
        { "opt-30m", "opt-30b or opt-125m" }, /* less than 5 times as large */
        { "qwen3-8m", "qwen3-8b" },           /* no other is near */
        { "opt-60b", "opt-66b" },
        { "gpt2", "" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (int first = 0; first < 5; first++)
            for (int stride = 1; stride < 5; stride++) {
                char text[64], cut[5], wanted[5];
                coh_nearest nearest = { .word = cases[i].word };
                for (int at = 0; at < 5; at++)
                    coh_nearest_offer(&nearest, sizes[(first + stride * at) % 5]);
                assert_string_equal(coh_nearest_meant(&nearest, text, sizeof(text)), cases[i].text);
                snprintf(wanted, sizeof(wanted), "%.4s", cases[i].text);
                assert_string_equal(coh_nearest_meant(&nearest, cut, sizeof(cut)), wanted);
            }
    char text[8] = "x";
    const coh_nearest none = { 0 };
    assert_string_equal(coh_nearest_meant(&none, text, sizeof(text)), "");
    assert_string_equal(coh_nearest_meant(NULL, text, sizeof(text)), "");
    assert_string_equal(coh_nearest_meant(&none, NULL, 8), "");
    assert_string_equal(coh_nearest_meant(&none, text, 0), "");
}

static void a_text_of_any_length_is_compared(void **state)
{
    (void)state;
    char longest[66];
    memset(longest, 'x', 65);
    longest[65] = '\0';
    assert_int_equal(coh_name_edits(longest, longest), -1); /* longer than any name */
    longest[64] = '\0';
    assert_int_equal(coh_name_edits(longest, longest), 0);
    assert_int_equal(coh_name_edits("", ""), 0);
    assert_int_equal(coh_name_edits("", "ab"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_words_have_the_distance_of_its_definition),
        cmocka_unit_test(mistyped_words_are_near_and_others_are_not),
        cmocka_unit_test(the_words_of_users_mean_the_names_that_they_know),
        cmocka_unit_test(words_of_other_letters_or_other_digits_are_not_near),
        cmocka_unit_test(a_size_that_is_no_model_means_the_nearest_size_of_its_family),
        cmocka_unit_test(the_nearest_name_is_the_first_of_the_least_edits),
        cmocka_unit_test(a_word_with_a_mistyped_unit_means_either_of_two),
        cmocka_unit_test(a_text_of_any_length_is_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
