/* Compares tokens with reference_bpe.py one by one: `test_bpe` with the repository's small
 * vocabulary, `test_bpe gpt2` with GPT-2's own, if its files are present. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cohobate/text.h"
#include "tests/text/folder.h"
#include "tests/text/nasty.h"

/* SMALL_VOCABULARY, REFERENCE_BPE, PYTHON, SOURCE_ROOT: paths, from meson.build. */

static char vocabulary_path[PATH_MAX];
static char data_path[PATH_MAX / 2];

/* The test's copy of all texts that the reference gets. */
#define CASE_MAX 400
static struct test_case {
    char *bytes;
    size_t byte_count;
} cases[CASE_MAX];
static size_t case_count;

static void add_case(const char *bytes, size_t byte_count)
{
    assert_true(case_count < CASE_MAX);
    char *copy = malloc(byte_count + 1);
    assert_non_null(copy);
    memcpy(copy, bytes, byte_count);
    cases[case_count++] = (struct test_case){ copy, byte_count };
}

static void add_run(const char *unit, size_t times, const char *after)
{
    char text[8192];
    size_t end = 0;
    for (; times > 0; times--)
        end += (size_t)sprintf(text + end, "%s", unit);
    end += (size_t)sprintf(text + end, "%s", after);
    add_case(text, end);
}

static void add_cases(void)
{
    for (size_t i = 0; i < NASTY_COUNT; i++)
        add_case(nasty_texts[i].bytes, nasty_texts[i].byte_count);
    /* All texts together: earlier text must not affect later tokens, nor the reverse. */
    char text[8192];
    size_t end = 0;
    for (size_t i = 0; i < NASTY_COUNT; i++) {
        memcpy(text + end, nasty_texts[i].bytes, nasty_texts[i].byte_count);
        end += nasty_texts[i].byte_count;
    }
    add_case(text, end);
    /* Longer than a cached word, and than any token. */
    add_run("a", 700, "b");
    add_run("ha", 400, " banana");
    add_run(" ", 600, "x");
    add_run("\n", 300, "");
    add_run("=-", 200, "=");
    add_run("\xf0\x9f\x98\x80", 90, " .");
    add_run("the", 300, "");
    for (uint64_t seed = 0; seed < 200; seed++)
        add_case(text, nasty_random(seed, text, 40 + 3 * seed));
    for (uint64_t seed = 0; seed < 20; seed++) {
        for (size_t i = 0; i < 1000; i++)
            text[i] = (char)coh_rng_u64(seed, 7, i);
        add_case(text, 1000);
    }
    /* Prose, if available; each text a second time, when its words are cached. */
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/text/tinyshakespeare.txt", data_path);
    if (data_path[0] && access(path, R_OK) == 0) {
        char *prose = folder_read(path, NULL);
        add_case(prose, 200000);
        free(prose);
    }
    add_case(cases[1].bytes, cases[1].byte_count);
}

static FILE *start_reference(void)
{
    FILE *file = fopen(folder_file("cases"), "wb");
    assert_non_null(file);
    for (size_t i = 0; i < case_count; i++) {
        fprintf(file, "%zu\n", cases[i].byte_count);
        assert_int_equal(fwrite(cases[i].bytes, 1, cases[i].byte_count, file), cases[i].byte_count);
    }
    assert_int_equal(fclose(file), 0);
    char command[4 * PATH_MAX];
    snprintf(command, sizeof(command), "'%s' '%s' '%s' '%s'", PYTHON, REFERENCE_BPE,
             vocabulary_path, folder_file("cases"));
    FILE *reference = popen(command, "r");
    assert_non_null(reference);
    return reference;
}

static void every_id_is_that_of_the_reference(void **state)
{
    (void)state;
    add_cases();
    FILE *reference = start_reference();
    coh_tokenizer *tokenizer;
    assert_int_equal(coh_tokenizer_open(vocabulary_path, &tokenizer), COH_OK);
    char *line = NULL;
    size_t line_capacity = 0, compared_count = 0;
    for (size_t i = 0; i < case_count; i++) {
        int32_t *ids;
        size_t count;
        assert_int_equal(
            coh_tokenizer_encode(tokenizer, cases[i].bytes, cases[i].byte_count, &ids, &count),
            COH_OK);
        assert_true(getline(&line, &line_capacity, reference) > 0);
        char *at = line;
        for (size_t k = 0; k < count; k++) {
            char *end;
            long expected = strtol(at, &end, 10);
            if (end == at || expected != ids[k])
                fail_msg("case %zu, token %zu: %d, the reference has %.20s", i, k, (int)ids[k], at);
            at = end;
        }
        if (strspn(at, "\n") != strlen(at))
            fail_msg("case %zu: the reference has more than our %zu tokens", i, count);
        compared_count += count;
        coh_text_free(ids);
        free(cases[i].bytes);
    }
    free(line);
    assert_int_equal(pclose(reference), 0);
    print_message("%zu tokens of %zu texts compared\n", compared_count, case_count);
    assert_true(compared_count > 50000);
    coh_tokenizer_close(tokenizer);
}

/* Ids from GPT-2's own release, independent of the reference. */
static void hello_world_has_the_ids_of_gpt2(void **state)
{
    (void)state;
    coh_tokenizer *tokenizer;
    assert_int_equal(coh_tokenizer_open(vocabulary_path, &tokenizer), COH_OK);
    assert_int_equal(coh_tokenizer_vocabulary(tokenizer), 50257);
    assert_int_equal(coh_tokenizer_end_of_text(tokenizer), 50256);
    int32_t *ids;
    size_t count;
    assert_int_equal(coh_tokenizer_encode(tokenizer, "Hello world", 11, &ids, &count), COH_OK);
    assert_int_equal(count, 2);
    assert_int_equal(ids[0], 15496);
    assert_int_equal(ids[1], 995);
    coh_text_free(ids);
    coh_tokenizer_close(tokenizer);
}

int main(int argument_count, char **arguments)
{
    const struct CMUnitTest small[] = {
        cmocka_unit_test_setup_teardown(every_id_is_that_of_the_reference, folder_create,
                                        folder_remove),
    };
    const struct CMUnitTest gpt2[] = {
        cmocka_unit_test_setup_teardown(every_id_is_that_of_the_reference, folder_create,
                                        folder_remove),
        cmocka_unit_test(hello_world_has_the_ids_of_gpt2),
    };
    if (argument_count < 2) {
        snprintf(vocabulary_path, sizeof(vocabulary_path), "%s", SMALL_VOCABULARY);
        return cmocka_run_group_tests(small, NULL, NULL);
    }
    const char *named = getenv("COH_SHARED_DATA");
    snprintf(data_path, sizeof(data_path), "%s", named ? named : SOURCE_ROOT "/../shared/data");
    snprintf(vocabulary_path, sizeof(vocabulary_path), "%s/%s", data_path, arguments[1]);
    if (access(vocabulary_path, R_OK) != 0) {
        printf("skipped: no GPT-2 vocabulary at %s; COH_SHARED_DATA names the folder above it\n",
               vocabulary_path);
        return 77;
    }
    return cmocka_run_group_tests(gpt2, NULL, NULL);
}
