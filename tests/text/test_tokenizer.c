#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "cohobate/text.h"
#include "tests/faults/alloc_faults.h"
#include "tests/text/blocks.h"
#include "tests/text/folder.h"
#include "tests/text/nasty.h"
#include "text/tokenizer.h"

/* SMALL_VOCABULARY: the folder made by fixtures/train.py. */

static coh_tokenizer *open_or_fail(const char *what)
{
    coh_tokenizer *tokenizer;
    if (coh_tokenizer_open(what, &tokenizer) != COH_OK)
        fail_msg("%s: %s", what, coh_last_error());
    return tokenizer;
}

static void assert_round_trip(coh_tokenizer *tokenizer, const char *text, size_t text_bytes)
{
    int32_t *ids;
    size_t id_count, decoded_bytes;
    char *decoded;
    static const char end[] = "<|endoftext|>";
    size_t end_count = 0, spelled = 0;
    assert_int_equal(coh_tokenizer_encode(tokenizer, text, text_bytes, &ids, &id_count), COH_OK);
    for (size_t i = 0; i < id_count; i++)
        end_count += ids[i] == coh_tokenizer_end_of_text(tokenizer);
    /* the byte tokenizer's end has no spelling */
    for (size_t i = 0; coh_tokenizer_token_id(tokenizer, end) >= 0 && i < text_bytes; i++)
        spelled += text_bytes - i >= strlen(end) && memcmp(text + i, end, strlen(end)) == 0;
    assert_int_equal(end_count, spelled);
    assert_int_equal(coh_tokenizer_decode(tokenizer, ids, id_count, &decoded, &decoded_bytes),
                     COH_OK);
    assert_int_equal(decoded_bytes, text_bytes);
    assert_memory_equal(decoded, text, text_bytes);
    assert_int_equal(decoded[decoded_bytes], '\0');
    coh_text_free(decoded);
    coh_text_free(ids);
}

static void the_byte_tokenizer_numbers_bytes_and_ends_texts_with_256(void **state)
{
    (void)state;
    coh_tokenizer *tokenizer = open_or_fail("bytes");
    assert_int_equal(coh_tokenizer_vocabulary(tokenizer), 257);
    assert_int_equal(coh_tokenizer_end_of_text(tokenizer), 256);
    uint8_t bytes[256];
    for (int i = 0; i < 256; i++)
        bytes[i] = (uint8_t)(255 - i);
    int32_t *ids;
    size_t count;
    assert_int_equal(coh_tokenizer_encode(tokenizer, (char *)bytes, 256, &ids, &count), COH_OK);
    assert_int_equal(count, 256);
    for (int i = 0; i < 256; i++)
        assert_int_equal(ids[i], 255 - i);
    coh_text_free(ids);

    const int32_t with_end[] = { 'a', 256, 'b' };
    char *text;
    size_t text_bytes;
    assert_int_equal(coh_tokenizer_decode(tokenizer, with_end, 3, &text, &text_bytes), COH_OK);
    assert_int_equal(text_bytes, 2);
    assert_string_equal(text, "ab");
    coh_text_free(text);
    coh_tokenizer_close(tokenizer);
}

static void any_bytes_come_back_and_hold_the_end_of_text_where_they_spell_it(void **state)
{
    (void)state;
    const char *const all[] = { "bytes", SMALL_VOCABULARY };
    for (size_t t = 0; t < 2; t++) {
        coh_tokenizer *tokenizer = open_or_fail(all[t]);
        assert_true(coh_tokenizer_end_of_text(tokenizer) >= 0);
        assert_round_trip(tokenizer, NULL, 0);
        for (size_t i = 0; i < NASTY_COUNT; i++)
            assert_round_trip(tokenizer, nasty_texts[i].bytes, nasty_texts[i].byte_count);
        char bytes[4000];
        for (uint64_t seed = 0; seed < 50; seed++) {
            for (size_t i = 0; i < 500; i++)
                bytes[i] = (char)coh_rng_u64(seed, 0, i);
            assert_round_trip(tokenizer, bytes, 500);
            assert_round_trip(tokenizer, bytes, nasty_random(seed, bytes, sizeof(bytes)));
        }
        coh_tokenizer_close(tokenizer);
    }
}

/* Searching the whole word for each merge would take 10^11 steps here. */
static void a_word_of_a_million_letters_is_encoded_and_comes_back(void **state)
{
    (void)state;
    coh_tokenizer *tokenizer = open_or_fail(SMALL_VOCABULARY);
    size_t count = 1000000;
    char *text = malloc(count);
    assert_non_null(text);
    memset(text, 'a', count);
    assert_round_trip(tokenizer, text, count);
    memset(text, ' ', count);
    assert_round_trip(tokenizer, text, count);
    memset(text, 0xff, count);
    assert_round_trip(tokenizer, text, count);
    free(text);
    coh_tokenizer_close(tokenizer);
}

static void ids_outside_the_vocabulary_are_not_decoded(void **state)
{
    (void)state;
    const char *const all[] = { "bytes", SMALL_VOCABULARY };
    for (size_t t = 0; t < 2; t++) {
        coh_tokenizer *tokenizer = open_or_fail(all[t]);
        const int32_t bad[] = { -1, (int32_t)coh_tokenizer_vocabulary(tokenizer), INT32_MIN,
                                INT32_MAX };
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
            int32_t ids[2] = { 0, bad[i] };
            char *text;
            size_t bytes;
            assert_int_equal(coh_tokenizer_decode(tokenizer, ids, 2, &text, &bytes),
                             COH_ERR_CORRUPT);
            assert_null(text);
            assert_non_null(strstr(coh_last_error(), "position 1"));
        }
        coh_tokenizer_close(tokenizer);
    }
}

static void ids_do_not_depend_on_how_a_text_is_cut_into_blocks(void **state)
{
    (void)state;
    const char *const all[] = { "bytes", SMALL_VOCABULARY };
    char text[700];
    for (size_t t = 0; t < 2; t++) {
        coh_tokenizer *tokenizer = open_or_fail(all[t]);
        for (uint64_t seed = 0; seed < NASTY_COUNT + 20; seed++) {
            const char *bytes = text;
            size_t byte_count;
            if (seed < NASTY_COUNT) {
                bytes = nasty_texts[seed].bytes;
                byte_count = nasty_texts[seed].byte_count;
            } else
                byte_count = nasty_random(seed, text, sizeof(text));
            int32_t *whole;
            size_t count;
            assert_int_equal(coh_tokenizer_encode(tokenizer, bytes, byte_count, &whole, &count),
                             COH_OK);
            for (size_t block_bytes = 1; block_bytes < 40; block_bytes++) {
                coh_id_list list = { 0 };
                encode_in_blocks(tokenizer, bytes, byte_count, block_bytes, &list);
                if (list.count != count ||
                    (count && memcmp(list.ids, whole, count * sizeof(int32_t)) != 0))
                    fail_msg("seed %d, blocks of %zu bytes", (int)seed, block_bytes);
                coh_free(list.ids);
            }
            coh_text_free(whole);
        }
        coh_tokenizer_close(tokenizer);
    }
}

/* ---- reading vocabularies ---- */

/* Writes the fixture's files to the test's folder, with the first `find` in `name` replaced. */
static void write_changed(const char *name, const char *find, const char *replacement)
{
    const char *const names[] = { "vocab.json", "merges.txt" };
    for (size_t i = 0; i < 2; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/%s", SMALL_VOCABULARY, names[i]);
        size_t bytes;
        char *text = folder_read(path, &bytes);
        char *at = name && strcmp(names[i], name) == 0 ? strstr(text, find) : NULL;
        if (!at) {
            assert_true(!name || strcmp(names[i], name) != 0);
            folder_write(names[i], text, bytes);
        } else {
            char *changed = malloc(bytes + strlen(replacement) + 1);
            assert_non_null(changed);
            int length = sprintf(changed, "%.*s%s%s", (int)(at - text), text, replacement,
                                 at + strlen(find));
            folder_write(names[i], changed, (size_t)length);
            free(changed);
        }
        free(text);
    }
}

static void broken_vocabularies_are_refused_with_what_is_wrong(void **state)
{
    (void)state;
    static const struct broken {
        const char *name, *find, *replacement, *sentence;
    } all[] = {
        { "vocab.json", "\"a\": ", "\"a\" ", "vocab.json: line" },      /* not JSON */
        { "vocab.json", "\"b\": 65", "\"a\": 65", "vocab.json: line" }, /* a name twice */
        { "vocab.json", "\"a\": 64", "\"a\": 65", "have one id, 65" },  /* an id twice */
        { "vocab.json", "\"a\": 64", "\"a\": -1", "not an integer in" },
        { "vocab.json", "\"a\": 64", "\"a\": 657", "not an integer in" }, /* a hole */
        { "vocab.json", "\"a\": 64", "\"a\": 64.0", "not an integer in" },
        { "vocab.json", "\"a\": 64", "\"a\": \"64\"", "not an integer in" },
        { "vocab.json", "\"a\": 64", "\"\": 64", "not made of" },
        { "vocab.json", "\"a\": 64", "\" a\": 64", "not made of" },
        { "vocab.json", "\"a\": 64", "\"\\u2014\": 64", "not made of" },
        { "vocab.json", "\"a\": 64", "\"\\u0144\": 64", "not made of" }, /* just after the last */
        { "vocab.json", "\"a\": 64", "\"ZZZ\": 64", "0x61" },            /* a byte without token */
        { "merges.txt", "#version: 0.2\na a\n", "#version: 0.2\n\n", "merges.txt line 2" },
        { "merges.txt", "\na a\n", "\naa\n", "merges.txt line 2" },
        { "merges.txt", "\na a\n", "\na a a\n", "merges.txt line 2" },
        { "merges.txt", "\na a\n", "\na \n", "merges.txt line 2" },
        { "merges.txt", "\na a\n", "\n a\n", "merges.txt line 2" },
        { "merges.txt", "\na a\n", "\na Z\n", "\"aZ\" is not in the vocabulary" },
        { "merges.txt", "\na a\n", "\nQQ a\n", "\"QQ\" is not in the vocabulary" },
        { "merges.txt", "\na a\n", "\na a\na a\n", "line 3: the pair" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        write_changed(all[i].name, all[i].find, all[i].replacement);
        coh_tokenizer *tokenizer;
        assert_int_equal(coh_tokenizer_open(folder_path, &tokenizer), COH_ERR_CORRUPT);
        assert_null(tokenizer);
        if (!strstr(coh_last_error(), all[i].sentence))
            fail_msg("case %zu: %s", i, coh_last_error());
    }
}

static void merges_that_make_the_end_of_text_are_refused(void **state)
{
    (void)state;
    write_changed("vocab.json", "\"<|endoftext|>\": 656",
                  "\"<|endoftext|>\": 656, \"<|\": 657, "
                  "\"endoftext|>\": 658");
    size_t bytes;
    char *merges = folder_read(folder_file("merges.txt"), &bytes);
    char *longer = malloc(bytes + 100);
    assert_non_null(longer);
    int length = sprintf(longer, "%s< |\n<| endoftext|>\n", merges);
    folder_write("merges.txt", longer, (size_t)length);
    coh_tokenizer *tokenizer;
    assert_int_equal(coh_tokenizer_open(folder_path, &tokenizer), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "never come from text"));
    free(longer);
    free(merges);
}

/* z q j x: j x merges first (line 1). Then q j (line 2) no longer exists; the pair in its place, q
 * jx, is line 4, so z q (line 3) precedes it. */
static void a_pair_that_is_gone_does_not_merge_what_took_its_place(void **state)
{
    (void)state;
    write_changed("vocab.json", "\"<|endoftext|>\": 656",
                  "\"<|endoftext|>\": 656, \"qj\": 657, \"qjx\": 658, \"zq\": 659, \"jx\": 660");
    const char merges[] = "j x\nq j\nz q\nq jx\n";
    folder_write("merges.txt", merges, sizeof(merges) - 1);
    coh_tokenizer *tokenizer = open_or_fail(folder_path);
    int32_t *ids;
    size_t count;
    assert_int_equal(coh_tokenizer_encode(tokenizer, "zqjx", 4, &ids, &count), COH_OK);
    assert_int_equal(count, 2);
    assert_int_equal(ids[0], 659);
    assert_int_equal(ids[1], 660);
    coh_text_free(ids);
    coh_tokenizer_close(tokenizer);
}

static void what_is_no_vocabulary_is_refused(void **state)
{
    (void)state;
    coh_tokenizer *tokenizer;
    assert_int_equal(coh_tokenizer_open(NULL, &tokenizer), COH_ERR_ARGUMENT);
    assert_int_equal(coh_tokenizer_open("", &tokenizer), COH_ERR_ARGUMENT);
    assert_int_equal(coh_tokenizer_open(folder_path, &tokenizer), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "vocab.json"));

    write_changed(NULL, "", "");
    remove(folder_file("merges.txt"));
    assert_int_equal(coh_tokenizer_open(folder_path, &tokenizer), COH_ERR_IO);
    assert_non_null(strstr(coh_last_error(), "merges.txt"));

    write_changed(NULL, "", "");
    folder_write("vocab.json", "[1, 2]", 6);
    assert_int_equal(coh_tokenizer_open(folder_path, &tokenizer), COH_ERR_CORRUPT);
    folder_write("vocab.json", "{}", 2);
    assert_int_equal(coh_tokenizer_open(folder_path, &tokenizer), COH_ERR_CORRUPT);
    folder_write("vocab.json", "", 0);
    assert_int_equal(coh_tokenizer_open(folder_path, &tokenizer), COH_ERR_CORRUPT);

    write_changed(NULL, "", "");
    folder_write("merges.txt", "a a\na\0 b\n", 9);
    assert_int_equal(coh_tokenizer_open(folder_path, &tokenizer), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "line 2"));
    folder_write("merges.txt", "", 0); /* no merges: each byte has its own id */
    assert_int_equal(coh_tokenizer_open(folder_path, &tokenizer), COH_OK);
    assert_round_trip(tokenizer, "the tokens", 10);
    coh_tokenizer_close(tokenizer);
    coh_tokenizer_close(NULL);
}

static uint64_t identity_of(const char *what)
{
    coh_tokenizer *tokenizer = open_or_fail(what);
    uint64_t identity = coh_tokenizer_identity(tokenizer);
    coh_tokenizer_close(tokenizer);
    return identity;
}

static void identity_follows_the_ids_and_not_the_layout_of_the_files(void **state)
{
    (void)state;
    uint64_t original = identity_of(SMALL_VOCABULARY);
    assert_true(original != identity_of("bytes"));
    write_changed("vocab.json", "{\n", "{  \"\\u0041\"  : 32,\n"); /* A again, first */
    coh_tokenizer *refused;
    assert_int_equal(coh_tokenizer_open(folder_path, &refused), COH_ERR_CORRUPT);

    write_changed("vocab.json", "\n\"A\": 32,", "\n\n  \"\\u0041\"  :  32,");
    assert_true(identity_of(folder_path) == original);
    write_changed("merges.txt", "\na a\n", "\r\na a\r\n"); /* CRLF */
    assert_true(identity_of(folder_path) == original);

    write_changed("merges.txt", "\na a\n", "\n"); /* one merge less */
    assert_true(identity_of(folder_path) != original);
    write_changed("vocab.json", "\"A\": 32,\n\"B\": 33", "\"A\": 33,\n\"B\": 32");
    assert_true(identity_of(folder_path) != original);
}

/* Token files and checkpoints contain the identity. Without special tokens that texts can spell, it
 * equals that of older versions, which read only vocab.json and merges.txt. */
static void identities_stay_what_token_files_already_have(void **state)
{
    (void)state;
    static const char none[] = "{\"unk_token\": null, \"bos_token\": null, \"eos_token\": null}";
    assert_int_equal(identity_of(SMALL_VOCABULARY), 0x821ac076916ec602u);
    write_changed(NULL, "", "");
    assert_int_equal(identity_of(folder_path), 0x821ac076916ec602u);
    folder_write("tokenizer_config.json", none, sizeof(none) - 1);
    assert_int_equal(identity_of(folder_path), 0x7869a352d35fa112u);
    remove(folder_file("tokenizer_config.json"));
    write_changed("merges.txt", "\na a\n", "\n");
    folder_write("tokenizer_config.json", "{\"add_bos_token\": false}", 24);
    uint64_t with_config = identity_of(folder_path);
    remove(folder_file("tokenizer_config.json"));
    assert_true(with_config == identity_of(folder_path));
}

static coh_status open_encode_decode(const char *what)
{
    coh_tokenizer *tokenizer = NULL;
    int32_t *ids = NULL;
    char *text = NULL;
    size_t count, bytes;
    const char given[] = "the tokens of a windowed text: \xff aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    coh_status status = coh_tokenizer_open(what, &tokenizer);
    if (status == COH_OK)
        status = coh_tokenizer_encode(tokenizer, given, sizeof(given), &ids, &count);
    if (status == COH_OK)
        status = coh_tokenizer_decode(tokenizer, ids, count, &text, &bytes);
    if (status == COH_OK) {
        assert_int_equal(bytes, sizeof(given));
        assert_memory_equal(text, given, bytes);
    }
    coh_text_free(text);
    coh_text_free(ids);
    coh_tokenizer_close(tokenizer);
    return status;
}

static void every_failing_allocation_is_said_and_leaves_nothing_behind(void **state)
{
    (void)state;
    const char *const all[] = { "bytes", SMALL_VOCABULARY };
    for (size_t t = 0; t < 2; t++) {
        int failed_count = 0;
        for (uint64_t n = 1;; n++) {
            alloc_fail_nth(n);
            coh_status status = open_encode_decode(all[t]);
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
        assert_true(failed_count >= (t ? 20 : 3));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_byte_tokenizer_numbers_bytes_and_ends_texts_with_256),
        cmocka_unit_test(any_bytes_come_back_and_hold_the_end_of_text_where_they_spell_it),
        cmocka_unit_test(a_word_of_a_million_letters_is_encoded_and_comes_back),
        cmocka_unit_test(ids_outside_the_vocabulary_are_not_decoded),
        cmocka_unit_test(ids_do_not_depend_on_how_a_text_is_cut_into_blocks),
        cmocka_unit_test_setup_teardown(broken_vocabularies_are_refused_with_what_is_wrong,
                                        folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(merges_that_make_the_end_of_text_are_refused, folder_create,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(a_pair_that_is_gone_does_not_merge_what_took_its_place,
                                        folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(what_is_no_vocabulary_is_refused, folder_create,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(identity_follows_the_ids_and_not_the_layout_of_the_files,
                                        folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(identities_stay_what_token_files_already_have,
                                        folder_create, folder_remove),
        cmocka_unit_test(every_failing_allocation_is_said_and_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
