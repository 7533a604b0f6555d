/* The results of tokenizers and sentencepiece for each text, recorded by
 * fixtures/tokenizers/make.py: `test_cases NAME` compares those of one folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "cohobate/text.h"
#include "tests/faults/alloc_faults.h"
#include "tests/length.h"
#include "tests/text/blocks.h"
#include "tests/text/folder.h"
#include "tests/text/nasty.h"
#include "text/tokenizer.h"

/* TOKENIZERS: the folder of folders. */

static const char *name;
static coh_tokenizer *tokenizer;

static int open_named(void **state)
{
    (void)state;
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", TOKENIZERS, name);
    if (coh_tokenizer_open(path, &tokenizer) == COH_OK)
        return 0;
    fprintf(stderr, "%s\n", coh_last_error());
    return -1;
}

static int close_named(void **state)
{
    (void)state;
    coh_tokenizer_close(tokenizer);
    return 0;
}

/* ---- recorded cases ---- */

static size_t read_hex(const char *hex, char **out_bytes)
{
    size_t count = strlen(hex) / 2;
    *out_bytes = malloc(count + 1);
    assert_non_null(*out_bytes);
    for (size_t i = 0; i < count; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        (*out_bytes)[i] = (char)byte;
    }
    return count;
}

static size_t read_ids(const char *text, int32_t **out_ids)
{
    size_t count = 0;
    *out_ids = malloc((strlen(text) / 2 + 2) * sizeof(int32_t));
    assert_non_null(*out_ids);
    for (char *end; *text; text = end) {
        (*out_ids)[count++] = (int32_t)strtol(text, &end, 10);
        assert_true(end > text);
    }
    return count;
}

static void assert_decodes(const int32_t *ids, size_t count, const char *expected,
                           size_t expected_bytes, int line)
{
    char *text;
    size_t text_bytes;
    assert_int_equal(coh_tokenizer_decode(tokenizer, ids, count, &text, &text_bytes), COH_OK);
    if (text_bytes != expected_bytes || memcmp(text, expected, text_bytes) != 0)
        fail_msg("%s/cases line %d: decoded to \"%s\"", name, line, text);
    coh_text_free(text);
}

static void compare_text(const char *hex, const char *ids_text, const char *decoded_hex, int line)
{
    char *text, *decoded;
    int32_t *expected, *ids;
    size_t text_bytes = read_hex(hex, &text), expected_count = read_ids(ids_text, &expected), count;
    assert_int_equal(coh_tokenizer_encode(tokenizer, text, text_bytes, &ids, &count), COH_OK);
    for (size_t i = 0; i < count || i < expected_count; i++) {
        if (i >= count || i >= expected_count || ids[i] != expected[i])
            fail_msg("%s/cases line %d, token %zu of %zu: %d, not %d", name, line, i,
                     expected_count, i < count ? (int)ids[i] : -1,
                     i < expected_count ? (int)expected[i] : -1);
    }
    if (strcmp(decoded_hex, "=") == 0) {
        assert_decodes(ids, count, text, text_bytes, line);
    } else if (strcmp(decoded_hex, "?") != 0) {
        size_t bytes = read_hex(decoded_hex, &decoded);
        assert_decodes(ids, count, decoded, bytes, line);
        free(decoded);
    }
    coh_text_free(ids);
    free(expected);
    free(text);
}

static void compare_ids(const char *ids_text, const char *decoded_hex, int line)
{
    int32_t *ids;
    char *decoded;
    size_t count = read_ids(ids_text, &ids), bytes = read_hex(decoded_hex, &decoded);
    assert_decodes(ids, count, decoded, bytes, line);
    free(decoded);
    free(ids);
}

/* The ids around "x" plus its own ids must equal the library's. */
static void compare_around(const char *ids_text)
{
    int32_t *expected, *ids;
    const int32_t *before, *after;
    size_t expected_count = read_ids(ids_text, &expected), count, before_count, after_count;
    coh_tokenizer_around(tokenizer, &before, &before_count, &after, &after_count);
    assert_int_equal(coh_tokenizer_encode(tokenizer, "x", 1, &ids, &count), COH_OK);
    assert_int_equal(before_count + count + after_count, expected_count);
    assert_memory_equal(expected + before_count, ids, count * sizeof(*ids));
    if (before_count)
        assert_memory_equal(expected, before, before_count * sizeof(*before));
    if (after_count)
        assert_memory_equal(expected + before_count + count, after, after_count * sizeof(*after));
    coh_text_free(ids);
    free(expected);
}

static void ids_and_texts_are_those_of_the_library(void **state)
{
    (void)state;
    char path[PATH_MAX], *line = NULL;
    snprintf(path, sizeof(path), "%s/%s/cases", TOKENIZERS, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t capacity = 0;
    int line_number = 0;
    while (getline(&line, &capacity, file) > 0) {
        line_number++;
        line[strcspn(line, "\n")] = '\0';
        char *fields[4] = { line };
        int field_count = 1;
        for (char *tab = line; field_count < 4 && (tab = strchr(tab, '\t')); field_count++) {
            *tab++ = '\0';
            fields[field_count] = tab;
        }
        if (field_count == 4 && strcmp(fields[0], "text") == 0)
            compare_text(fields[1], fields[2], fields[3], line_number);
        else if (field_count == 3 && strcmp(fields[0], "ids") == 0)
            compare_ids(fields[1], fields[2], line_number);
        else if (field_count == 2 && strcmp(fields[0], "around") == 0)
            compare_around(fields[1]);
        else
            fail_msg("%s line %d is no case", path, line_number);
    }
    assert_true(line_number >= 150);
    free(line);
    fclose(file);
}

/* ---- properties without a library ---- */

/* Makes texts with added tokens, marks and invalid bytes; a pure function of the seed. */
static size_t marked_random(uint64_t seed, char *bytes, size_t byte_count)
{
    static const char *const parts[] = {
        "<|im_end|>",
        "<|endoftext|>",
        "<s>",
        " ",
        "  ",
        "\n",
        "[LEFT]",
        "[RIGHT]",
        "[BOTH]",
        "[WORD]",
        "[NORM]",
        "[LONG]",
        "[LONGER]",
        "[LONGEST]",
        "cafe\xcc\x81-token",
        "e\xcc\x81",
        "\xcc\xa3",
        "\xe2\x96\x81",
        "\xe2\x96",
        "\xff",
        "a",
        "the",
        "\xe1\x84\x80",
        "\xe1\x85\xa1",
        "12",
        "\xd9\xa3",
        ".",
        "<",
        "[LONGE",
        "\xc3",
        "\xe2\x80\x83",
        "'s",
        "-",
        "q",
        "tt",
    };
    size_t end = 0;
    for (uint64_t i = 0;; i++) {
        const char *part = parts[coh_rng_below(seed, 5, i, sizeof(parts) / sizeof(parts[0]))];
        for (; *part && end < byte_count; part++)
            bytes[end++] = *part;
        if (end == byte_count)
            return end;
    }
}

static void assert_same_in_blocks(const char *text, size_t text_bytes, uint64_t seed)
{
    int32_t *whole;
    size_t count;
    assert_int_equal(coh_tokenizer_encode(tokenizer, text, text_bytes, &whole, &count), COH_OK);
    for (size_t block_bytes = 1; block_bytes < 48; block_bytes += 1 + block_bytes / 8) {
        coh_id_list list = { 0 };
        encode_in_blocks(tokenizer, text, text_bytes, block_bytes, &list);
        if (list.count != count || (count && memcmp(list.ids, whole, count * sizeof(int32_t)) != 0))
            fail_msg("%s, seed %d, blocks of %zu bytes", name, (int)seed, block_bytes);
        coh_free(list.ids);
    }
    coh_text_free(whole);
}

static void ids_do_not_depend_on_how_a_text_is_cut_into_blocks(void **state)
{
    (void)state;
    char text[300];
    for (size_t i = 0; i < NASTY_COUNT; i++)
        assert_same_in_blocks(nasty_texts[i].bytes, nasty_texts[i].byte_count, i);
    for (uint64_t seed = 0; seed < test_cases(60); seed++) {
        assert_same_in_blocks(text, nasty_random(seed, text, sizeof(text)), seed);
        assert_same_in_blocks(text, marked_random(seed, text, sizeof(text)), seed);
    }
}

static void a_second_tokenizer_for_another_thread_gives_the_same(void **state)
{
    (void)state;
    char text[1000];
    coh_tokenizer *forks[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(coh_tokenizer_fork(tokenizer, &forks[i]), COH_OK);
    assert_int_equal(coh_tokenizer_identity(forks[0]), coh_tokenizer_identity(tokenizer));
    for (uint64_t seed = 0; seed < test_cases(60); seed++) {
        int32_t *ids[2];
        size_t counts[2], text_bytes = marked_random(seed, text, sizeof(text));
        coh_tokenizer *both[2] = { tokenizer, forks[seed & 1] };
        for (int i = 0; i < 2; i++)
            assert_int_equal(coh_tokenizer_encode(both[i], text, text_bytes, &ids[i], &counts[i]),
                             COH_OK);
        assert_int_equal(counts[1], counts[0]);
        assert_memory_equal(ids[1], ids[0], counts[0] * sizeof(int32_t));
        coh_text_free(ids[0]);
        coh_text_free(ids[1]);
    }
    for (int i = 0; i < 2; i++)
        coh_tokenizer_close(forks[i]);
}

/* Returns 1 for tokenizers whose rules leave a text unchanged, except its first character. */
static int keeps_bytes(void)
{
    static const char *const all[] = { "gpt2",          "opt",      "llama3",
                                       "smollm",        "llama2",   "llama2-json",
                                       "llama2-modern", "spm-tied", "spm-user" };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(all[i], name) == 0)
            return 1;
    }
    return 0;
}

static void any_bytes_come_back(void **state)
{
    (void)state;
    char bytes[2000], *decoded;
    int32_t *ids;
    size_t count, decoded_bytes;
    for (uint64_t seed = 0; seed < test_cases(100); seed++) {
        size_t byte_count = 600;
        if (seed & 1)
            byte_count = nasty_random(seed, bytes, sizeof(bytes));
        for (size_t i = 0; !(seed & 1) && i < byte_count; i++)
            bytes[i] = (char)coh_rng_u64(seed, 0, i);
        bytes[0] = 'x';
        assert_int_equal(coh_tokenizer_encode(tokenizer, bytes, byte_count, &ids, &count), COH_OK);
        assert_int_equal(coh_tokenizer_decode(tokenizer, ids, count, &decoded, &decoded_bytes),
                         COH_OK);
        assert_int_equal(decoded_bytes, byte_count);
        assert_memory_equal(decoded, bytes, byte_count);
        coh_text_free(decoded);
        coh_text_free(ids);
    }
}

/* Returns 1 if every byte has an id and invalid bytes split a text. */
static int cuts_at_bytes(void)
{
    static const char *const all[] = { "gpt2", "opt", "llama3", "smollm" };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(all[i], name) == 0)
            return 1;
    }
    return 0;
}

/* It gets the id of the byte, between the ids of the text before and the text after it. */
static void a_byte_that_is_no_character_is_one_id_between_two_texts(void **state)
{
    (void)state;
    static const char *const before[] = { "the", "it'", "a  ", "", "\xe4\xbd\xa0" };
    static const char *const after[] = { "s", " the", "\n\n", "", "\xcc\x81 12" };
    for (size_t i = 0; i < 5; i++) {
        for (size_t k = 0; k < 5; k++) {
            char text[40];
            int32_t *left, *right, *ids;
            size_t left_count, right_count, count;
            int text_bytes = sprintf(text, "%s\xff%s", before[i], after[k]);
            coh_tokenizer_encode(tokenizer, before[i], strlen(before[i]), &left, &left_count);
            coh_tokenizer_encode(tokenizer, after[k], strlen(after[k]), &right, &right_count);
            assert_int_equal(
                coh_tokenizer_encode(tokenizer, text, (size_t)text_bytes, &ids, &count), COH_OK);
            assert_int_equal(count, left_count + 1 + right_count);
            assert_memory_equal(ids, left, left_count * sizeof(*ids));
            assert_memory_equal(ids + left_count + 1, right, right_count * sizeof(*ids));
            const char *piece;
            size_t piece_bytes;
            assert_int_equal(coh_tokenizer_piece(tokenizer, ids[left_count], &piece, &piece_bytes),
                             COH_OK);
            assert_int_equal(piece_bytes, 1);
            assert_int_equal((uint8_t)piece[0], 0xff);
            coh_text_free(ids);
            coh_text_free(right);
            coh_text_free(left);
        }
    }
}

static void a_word_of_a_million_bytes_is_encoded(void **state)
{
    (void)state;
    static const char *const units[] = { "a",    " ",        "\n", "\xcc\x81", "\xe2\x96\x81",
                                         "\xff", "e\xcc\x81" };
    size_t byte_count = test_is_brief() ? 100000 : 1000000;
    char *text = malloc(byte_count);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t unit = strlen(units[i]), count;
        int32_t *ids;
        for (size_t at = 0; at + unit <= byte_count; at += unit)
            memcpy(text + at, units[i], unit);
        assert_int_equal(
            coh_tokenizer_encode(tokenizer, text, byte_count / unit * unit, &ids, &count), COH_OK);
        assert_true(count > 0 && count <= 3 * byte_count); /* a mark may precede all */
        coh_text_free(ids);
    }
    free(text);
}

/* ---- failures ---- */

static coh_status open_encode_decode(const char *path)
{
    coh_tokenizer *opened = NULL, *fork = NULL;
    int32_t *ids = NULL;
    char *text = NULL;
    size_t count, bytes;
    const char given[] = "the e\xcc\x81 <|endoftext|> [WORD] 12 \xff \xf0\x9f\x98\x80 "
                         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    coh_status status = coh_tokenizer_open(path, &opened);
    if (status == COH_OK)
        status = coh_tokenizer_fork(opened, &fork);
    if (status == COH_OK)
        status = coh_tokenizer_encode(fork, given, sizeof(given), &ids, &count);
    if (status == COH_OK)
        status = coh_tokenizer_decode(opened, ids, count, &text, &bytes);
    coh_text_free(text);
    coh_text_free(ids);
    coh_tokenizer_close(fork);
    coh_tokenizer_close(opened);
    return status;
}

static void every_failing_allocation_is_said_and_leaves_nothing_behind(void **state)
{
    (void)state;
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", TOKENIZERS, name);
    int failed_count = 0;
    for (uint64_t n = 1;; n++) {
        alloc_fail_nth(n);
        coh_status status = open_encode_decode(path);
        int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        if (!was_hit) {
            assert_int_equal(status, COH_OK);
            break;
        }
        /* Compiling the pattern to machine code may fail: it is then interpreted. */
        if (status == COH_OK)
            continue;
        failed_count++;
        assert_int_equal(status, COH_ERR_MEMORY);
        assert_true(coh_last_error()[0] != '\0');
    }
    assert_true(failed_count >= 20);
}

int main(int argument_count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_and_texts_are_those_of_the_library),
        cmocka_unit_test(ids_do_not_depend_on_how_a_text_is_cut_into_blocks),
        cmocka_unit_test(a_second_tokenizer_for_another_thread_gives_the_same),
        cmocka_unit_test(a_word_of_a_million_bytes_is_encoded),
        cmocka_unit_test(every_failing_allocation_is_said_and_leaves_nothing_behind),
    };
    const struct CMUnitTest of_bytes[] = { cmocka_unit_test(any_bytes_come_back) };
    const struct CMUnitTest between[] = {
        cmocka_unit_test(a_byte_that_is_no_character_is_one_id_between_two_texts),
    };
    if (argument_count != 2)
        return 2;
    name = arguments[1];
    int failed = cmocka_run_group_tests_name(name, tests, open_named, close_named);
    if (keeps_bytes())
        failed += cmocka_run_group_tests_name(name, of_bytes, open_named, close_named);
    if (cuts_at_bytes())
        failed += cmocka_run_group_tests_name(name, between, open_named, close_named);
    return failed != 0;
}
