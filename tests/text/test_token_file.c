#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <math.h>

#include "cohobate/text.h"
#include "tests/faults/alloc_faults.h"
#include "tests/text/folder.h"
#include "tests/text/nasty.h"
#include "text/token_file.h"

static coh_tokenizer *open_or_fail(const char *what)
{
    coh_tokenizer *tokenizer;
    if (coh_tokenizer_open(what, &tokenizer) != COH_OK)
        fail_msg("%s: %s", what, coh_last_error());
    return tokenizer;
}

static void write_ids(const char *name, const int32_t *ids, size_t count, int64_t vocabulary)
{
    coh_token_writer *writer;
    assert_int_equal(coh_token_writer_create(folder_file(name), vocabulary, 77, &writer), COH_OK);
    assert_int_equal(coh_token_writer_add(writer, ids, NULL, count), COH_OK);
    assert_int_equal(coh_token_writer_finish(writer), COH_OK);
    assert_int_equal(access(folder_file(name), F_OK), -1); /* absent until it is complete */
    assert_int_equal(coh_token_writer_publish(writer), COH_OK);
    coh_token_writer_destroy(writer);
}

/* Returns all ids of a file; the caller frees them. */
static int32_t *read_ids(const char *name, size_t *out_count)
{
    coh_token_file *file;
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    if (coh_token_file_open(folder_file(name), &file) != COH_OK)
        fail_msg("%s: %s", name, coh_last_error());
    assert_int_equal(coh_token_file_facts_get(file, &facts), COH_OK);
    assert_int_equal(coh_token_file_check(file), COH_OK);
    int32_t *ids = calloc(facts.token_count + 1, sizeof(int32_t));
    assert_non_null(ids);
    assert_int_equal(coh_token_file_read(file, 0, facts.token_count, ids), COH_OK);
    coh_token_file_close(file);
    *out_count = facts.token_count;
    return ids;
}

static void assert_file_has(const char *name, const int32_t *ids, size_t count)
{
    size_t found_count;
    int32_t *found = read_ids(name, &found_count);
    assert_int_equal(found_count, count);
    assert_memory_equal(found, ids, count * sizeof(int32_t));
    free(found);
}

/* ---- the format ---- */

static void ids_come_back_whole_and_by_ranges_at_both_widths(void **state)
{
    (void)state;
    enum { COUNT = 40000 };
    static int32_t ids[COUNT], part[COUNT];
    const int64_t vocabularies[] = { 1, 257, 65536, 65537, INT32_MAX };
    for (size_t v = 0; v < sizeof(vocabularies) / sizeof(vocabularies[0]); v++) {
        for (size_t i = 0; i < COUNT; i++)
            ids[i] = (int32_t)coh_rng_below(v, 0, i, (uint64_t)vocabularies[v]);
        remove(folder_file("ids"));
        write_ids("ids", ids, COUNT, vocabularies[v]);
        assert_file_has("ids", ids, COUNT);
        struct stat facts;
        assert_int_equal(stat(folder_file("ids"), &facts), 0);
        assert_int_equal(facts.st_size, 64 + COUNT * (v < 3 ? 2 : 4));

        coh_token_file *file;
        coh_token_file_facts token_facts = { .struct_bytes = sizeof(token_facts) };
        assert_int_equal(coh_token_file_open(folder_file("ids"), &file), COH_OK);
        assert_int_equal(coh_token_file_facts_get(file, &token_facts), COH_OK);
        assert_int_equal(token_facts.token_count, COUNT);
        assert_int_equal(token_facts.vocabulary, vocabularies[v]);
        assert_int_equal(token_facts.tokenizer_identity, 77);
        for (uint64_t n = 0; n < 100; n++) {
            uint64_t begin = coh_rng_below(n, 1, 0, COUNT + 1);
            size_t count = coh_rng_below(n, 1, 1, COUNT - begin + 1);
            assert_int_equal(coh_token_file_read(file, begin, count, part), COH_OK);
            assert_memory_equal(part, ids + begin, count * sizeof(int32_t));
        }
        assert_int_equal(coh_token_file_read(file, 0, COUNT + 1, part), COH_ERR_ARGUMENT);
        assert_int_equal(coh_token_file_read(file, COUNT + 1, 0, part), COH_ERR_ARGUMENT);
        assert_int_equal(coh_token_file_read(file, UINT64_MAX, 2, part), COH_ERR_ARGUMENT);
        coh_token_file_close(file);
    }
    coh_token_file_close(NULL);
}

static void the_layout_is_the_documented_one(void **state)
{
    (void)state;
    const int32_t ids[] = { 0x0102, 0x0304 };
    write_ids("ids", ids, 2, 0x0400);
    size_t bytes;
    char *text = folder_read(folder_file("ids"), &bytes);
    assert_int_equal(bytes, 68);
    assert_memory_equal(text, "COHTOKEN\1\0\0\0\2\0\0\0\2\0\0\0\0\0\0\0\0\4\0\0\0\0\0\0", 32);
    assert_memory_equal(text + 64, "\2\1\4\3", 4);
    free(text);
}

static void a_file_cut_anywhere_or_added_to_is_refused(void **state)
{
    (void)state;
    const int32_t ids[] = { 1, 2, 3, 4, 5 };
    write_ids("ids", ids, 5, 10);
    size_t bytes;
    char *text = folder_read(folder_file("ids"), &bytes);
    coh_token_file *file;
    for (size_t cut = 0; cut < bytes; cut++) {
        folder_write("cut", text, cut);
        assert_int_equal(coh_token_file_open(folder_file("cut"), &file), COH_ERR_CORRUPT);
        assert_null(file);
        assert_non_null(strstr(coh_last_error(), "cut"));
    }
    folder_write("cut", text, bytes + 1); /* the NUL after it */
    assert_int_equal(coh_token_file_open(folder_file("cut"), &file), COH_ERR_CORRUPT);
    free(text);
}

static void a_flipped_bit_of_the_header_is_refused(void **state)
{
    (void)state;
    const int32_t ids[] = { 1, 2, 3, 4, 5 };
    write_ids("ids", ids, 5, 10);
    size_t bytes;
    char *text = folder_read(folder_file("ids"), &bytes);
    coh_token_file *file;
    for (size_t bit = 0; bit < 64 * 8; bit++) {
        text[bit / 8] ^= (char)(1 << bit % 8);
        folder_write("flipped", text, bytes);
        assert_int_equal(coh_token_file_open(folder_file("flipped"), &file), COH_ERR_CORRUPT);
        text[bit / 8] ^= (char)(1 << bit % 8);
    }
    free(text);
}

static void headers_that_no_writer_writes_are_refused(void **state)
{
    (void)state;
    const coh_token_header all[] = {
        { .id_bytes = 4, .count = 1, .vocabulary = 10 },    /* too wide */
        { .id_bytes = 2, .count = 1, .vocabulary = 65537 }, /* too narrow */
        { .id_bytes = 0, .count = 1, .vocabulary = 10 },
        { .id_bytes = 2, .count = 1, .vocabulary = 0 },
        { .id_bytes = 4, .count = 1, .vocabulary = UINT64_C(1) << 31 },
        { .id_bytes = 4, .count = 1, .vocabulary = UINT64_MAX },
        { .id_bytes = 2, .count = UINT64_C(1) << 63, .vocabulary = 10 }, /* 2^64 bytes are 0 */
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        uint8_t bytes[COH_TOKEN_HEADER_BYTES];
        coh_token_header_write(&all[i], bytes);
        folder_write("made", bytes, sizeof(bytes));
        coh_token_file *file;
        assert_int_equal(coh_token_file_open(folder_file("made"), &file), COH_ERR_CORRUPT);
    }
}

static void what_is_no_token_file_is_refused(void **state)
{
    (void)state;
    coh_token_file *file;
    char text[100];
    memset(text, 'x', sizeof(text));
    folder_write("text", text, sizeof(text));
    assert_int_equal(coh_token_file_open(folder_file("text"), &file), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "is not a token file"));
    assert_int_equal(coh_token_file_open(folder_file("nothing"), &file), COH_ERR_IO);
    assert_int_equal(coh_token_file_open(folder_path, &file), COH_ERR_IO);
    assert_int_equal(coh_token_file_open("", &file), COH_ERR_ARGUMENT);
}

static void a_flipped_id_fails_the_check(void **state)
{
    (void)state;
    enum { COUNT = 20000 }; /* more than one read of a scan */
    static int32_t ids[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        ids[i] = (int32_t)coh_rng_below(3, 0, i, 60000);
    for (int wide = 0; wide < 2; wide++) {
        int64_t vocabulary = wide ? 70000 : 65536;
        remove(folder_file("ids"));
        write_ids("ids", ids, COUNT, vocabulary);
        size_t bytes;
        char *text = folder_read(folder_file("ids"), &bytes);
        for (uint64_t n = 0; n < 60; n++) {
            size_t at = n == 0 ? 64 : n == 1 ? bytes - 1 : 64 + coh_rng_below(n, 0, 0, bytes - 64);
            text[at] ^= (char)(1 << n % 8);
            folder_write("flipped", text, bytes);
            text[at] ^= (char)(1 << n % 8);
            coh_token_file *file;
            assert_int_equal(coh_token_file_open(folder_file("flipped"), &file), COH_OK);
            assert_int_equal(coh_token_file_check(file), COH_ERR_CORRUPT);
            coh_token_file_close(file);
        }
        free(text);
    }
}

static void an_id_outside_the_vocabulary_is_not_handed_out(void **state)
{
    (void)state;
    const int32_t ids[] = { 1, 2, 9, 4 };
    write_ids("ids", ids, 4, 9);
    coh_token_file *file;
    int32_t read[4], targets[4];
    assert_int_equal(coh_token_file_open(folder_file("ids"), &file), COH_OK);
    assert_int_equal(coh_token_file_read(file, 0, 2, read), COH_OK);
    assert_int_equal(coh_token_file_read(file, 0, 4, read), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "id 9 at position 2"));
    assert_int_equal(coh_token_file_window(file, 0, 0, 3, read, targets), COH_ERR_CORRUPT);
    coh_token_file_close(file);
}

static void a_file_cut_while_it_is_open_is_noticed(void **state)
{
    (void)state;
    const int32_t ids[] = { 1, 2, 3, 4 };
    write_ids("ids", ids, 4, 9);
    coh_token_file *file;
    int32_t read[4];
    assert_int_equal(coh_token_file_open(folder_file("ids"), &file), COH_OK);
    assert_int_equal(truncate(folder_file("ids"), 67), 0);
    assert_int_equal(coh_token_file_read(file, 0, 1, read), COH_OK);
    assert_int_equal(coh_token_file_read(file, 0, 2, read), COH_ERR_CORRUPT);
    coh_token_file_close(file);
}

/* ---- entropy ---- */

static double entropy_of(const int32_t *ids, size_t count, int64_t vocabulary)
{
    remove(folder_file("ids"));
    write_ids("ids", ids, count, vocabulary);
    coh_token_file *file;
    double nats = -1;
    assert_int_equal(coh_token_file_open(folder_file("ids"), &file), COH_OK);
    assert_int_equal(coh_token_file_unigram_entropy(file, &nats), COH_OK);
    coh_token_file_close(file);
    return nats;
}

static void unigram_entropy_is_that_of_the_counts(void **state)
{
    (void)state;
    static int32_t ids[32768];
    assert_true(entropy_of(ids, 0, 10) == 0);
    assert_true(entropy_of(ids, 1000, 10) == 0); /* one id only */
    for (int32_t i = 0; i < 32768; i++)
        ids[i] = i % 1024;
    /* Bounds: a logarithm and sums of at most 1024 terms, each rounded. */
    assert_true(fabs(entropy_of(ids, 32768, 70000) - log(1024)) <= 1e-12);
    const int32_t mixed[] = { 0, 0, 0, 0, 1, 1, 2, 3 }; /* 1/2, 1/4, 1/8, 1/8: 1.75 bits */
    assert_true(fabs(entropy_of(mixed, 8, 4) - 1.75 * log(2)) <= 1e-15);
}

/* ---- building ---- */

/* `with_end`: appends the end-of-text id, as for a folder. */
static size_t append_ids(coh_tokenizer *tokenizer, const char *text, size_t text_bytes,
                         int with_end, int32_t **ids, size_t count)
{
    int32_t *more;
    size_t more_count;
    assert_int_equal(coh_tokenizer_encode(tokenizer, text, text_bytes, &more, &more_count), COH_OK);
    *ids = realloc(*ids, (count + more_count + 1) * sizeof(int32_t));
    assert_non_null(*ids);
    memcpy(*ids + count, more, more_count * sizeof(int32_t));
    coh_text_free(more);
    count += more_count;
    if (with_end)
        (*ids)[count++] = coh_tokenizer_end_of_text(tokenizer);
    return count;
}

static void a_long_file_has_the_ids_of_its_whole_text(void **state)
{
    (void)state;
    /* More than three blocks of 1 MiB; in the second case a single word fills more than two
     * blocks. */
    size_t text_bytes = 3500000;
    char *text = malloc(text_bytes);
    assert_non_null(text);
    for (int t = 0; t < 4; t++) {
        coh_tokenizer *tokenizer = open_or_fail(t % 2 ? SMALL_VOCABULARY : "bytes");
        size_t bytes = nasty_random((uint64_t)t, text, text_bytes);
        if (t > 1)
            memset(text + 500000, 'a', 2500000);
        folder_write("text", text, bytes);
        uint64_t token_count;
        assert_int_equal(coh_token_file_build(tokenizer, folder_file("text"), folder_file("ids"), 0,
                                              NULL, &token_count),
                         COH_OK);
        int32_t *ids = NULL;
        size_t count = append_ids(tokenizer, text, bytes, 0, &ids, 0);
        assert_int_equal(token_count, count);
        assert_file_has("ids", ids, count);
        free(ids);
        coh_tokenizer_close(tokenizer);
    }
    free(text);
}

static const char *const tree_files[] = { "a.txt", "a/b.txt", "a/z/deep.txt", "a0.txt",
                                          "b.txt", "c/one",   "d.txt",        "empty" };
#define TREE_COUNT (sizeof(tree_files) / sizeof(tree_files[0]))

/* tree_files in byte order of their paths: "." < "/" < "0". Files to be skipped lie between
 * them. */
static void write_tree(void)
{
    static const char *const folders[] = { "tree",   "tree/a",    "tree/a/z",
                                           "tree/c", "tree/.git", "tree/void" };
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
        assert_int_equal(mkdir(folder_file(folders[i]), 0777), 0);
    char name[256], text[256];
    for (size_t i = TREE_COUNT; i-- > 0;) {
        snprintf(name, sizeof(name), "tree/%s", tree_files[i]);
        snprintf(text, sizeof(text), "The text of %s, they're told.\n", tree_files[i]);
        folder_write(name, text, i == TREE_COUNT - 1 ? 0 : strlen(text));
    }
    folder_write("tree/.git/config", "hidden", 6);
    folder_write("tree/.hidden", "hidden", 6);
    folder_write("tree/b.bin", "binary\0", 7);
    assert_int_equal(symlink("..", folder_file("tree/loop")), 0);
}

static size_t expected_tree_ids(coh_tokenizer *tokenizer, int held_out, int is_held_out,
                                int32_t **out_ids)
{
    size_t count = 0;
    char text[256];
    *out_ids = NULL;
    for (size_t i = 0; i < TREE_COUNT; i++) {
        if (held_out && (i % (size_t)held_out == (size_t)held_out - 1) != is_held_out)
            continue;
        snprintf(text, sizeof(text), "The text of %s, they're told.\n", tree_files[i]);
        count =
            append_ids(tokenizer, text, i == TREE_COUNT - 1 ? 0 : strlen(text), 1, out_ids, count);
    }
    return count;
}

static void a_folder_is_its_text_files_in_byte_order_with_ends(void **state)
{
    (void)state;
    write_tree();
    coh_tokenizer *tokenizer = open_or_fail(SMALL_VOCABULARY);
    int32_t *ids;
    size_t count = expected_tree_ids(tokenizer, 0, 0, &ids);
    uint64_t token_count;
    /* Twice: the token file of the first time is in the folder and is not a text. */
    for (int time = 0; time < 2; time++) {
        assert_int_equal(coh_token_file_build(tokenizer, folder_file("tree"),
                                              folder_file("tree/ids"), 0, NULL, &token_count),
                         COH_OK);
        assert_int_equal(token_count, count);
        assert_file_has("tree/ids", ids, count);
    }
    free(ids);
    coh_tokenizer_close(tokenizer);
}

static void held_out_files_and_the_others_make_up_the_folder(void **state)
{
    (void)state;
    write_tree();
    coh_tokenizer *tokenizer = open_or_fail("bytes");
    for (int held_out = 2; held_out <= (int)TREE_COUNT; held_out++) {
        uint64_t token_count;
        assert_int_equal(coh_token_file_build(tokenizer, folder_file("tree"), folder_file("ids"),
                                              held_out, folder_file("held"), &token_count),
                         COH_OK);
        int32_t *ids;
        size_t count = expected_tree_ids(tokenizer, held_out, 0, &ids);
        assert_int_equal(token_count, count);
        assert_file_has("ids", ids, count);
        free(ids);
        count = expected_tree_ids(tokenizer, held_out, 1, &ids);
        assert_file_has("held", ids, count);
        free(ids);
    }
    coh_tokenizer_close(tokenizer);
}

static void what_cannot_be_built_is_refused_and_leaves_nothing(void **state)
{
    (void)state;
    write_tree();
    coh_tokenizer *tokenizer = open_or_fail("bytes");
    const char *tree = strdup(folder_file("tree")), *one = strdup(folder_file("tree/a.txt"));
    const char *ids = strdup(folder_file("ids")), *held = strdup(folder_file("held"));
    const char *nothing = strdup(folder_file("tree/void")), *deep = strdup(folder_file("no/ids"));
    const struct refused {
        const char *in_path, *out_path;
        int held_out;
        const char *held_out_path;
        coh_status status;
    } all[] = {
        { folder_file("nothing"), ids, 0, NULL, COH_ERR_IO },
        { one, deep, 0, NULL, COH_ERR_IO },       /* the folder does not exist */
        { one, ids, 2, held, COH_ERR_CORRUPT },   /* one line is not cut */
        { tree, ids, 1, held, COH_ERR_ARGUMENT }, /* no files left to train on */
        { tree, ids, -1, held, COH_ERR_ARGUMENT },
        { tree, ids, 2, NULL, COH_ERR_ARGUMENT },
        { tree, ids, 2, ids, COH_ERR_ARGUMENT },
        { tree, ids, TREE_COUNT + 1, held, COH_ERR_ARGUMENT }, /* nothing held out */
        { tree, ids, 2, deep, COH_ERR_IO },
        { nothing, ids, 0, NULL, COH_ERR_CORRUPT }, /* no text in it */
        { tree, tree, 0, NULL, COH_ERR_IO },        /* a folder is in the way */
    };
    int entry_count = folder_count();
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_status status = coh_token_file_build(tokenizer, all[i].in_path, all[i].out_path,
                                                 all[i].held_out, all[i].held_out_path, NULL);
        if (status != all[i].status)
            fail_msg("case %zu: %s, %s", i, coh_status_name(status), coh_last_error());
        assert_null(strstr(coh_last_error(), ".partial")); /* paths are named as they were given */
        assert_int_equal(folder_count(), entry_count);
    }
    const char *const owned[] = { tree, one, ids, held, nothing, deep };
    for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
        free((char *)owned[i]);
    coh_tokenizer_close(tokenizer);
}

static void a_failed_build_leaves_the_old_file_as_it_was(void **state)
{
    (void)state;
    write_tree();
    const int32_t old[] = { 3, 1, 2 };
    write_ids("ids", old, 3, 10);
    coh_tokenizer *tokenizer = open_or_fail(SMALL_VOCABULARY);
    int entry_count = folder_count(), failed_count = 0;
    for (uint64_t n = 1;; n++) {
        alloc_fail_nth(n);
        coh_status status =
            coh_token_file_build(tokenizer, folder_file("tree"), folder_file("ids"), 0, NULL, NULL);
        int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        assert_int_equal(folder_count(), entry_count);
        if (!was_hit) {
            assert_int_equal(status, COH_OK);
            break;
        }
        assert_int_equal(status, COH_ERR_MEMORY);
        assert_true(coh_last_error()[0] != '\0');
        assert_file_has("ids", old, 3);
        failed_count++;
    }
    assert_true(failed_count > 15);
    coh_tokenizer_close(tokenizer);
}

static void every_failing_allocation_of_reading_is_said(void **state)
{
    (void)state;
    const int32_t ids[] = { 3, 1, 2 };
    write_ids("ids", ids, 3, 10);
    const char *path = folder_file("ids");
    for (uint64_t n = 1;; n++) {
        coh_token_file *file = NULL;
        double nats;
        alloc_fail_nth(n);
        coh_status status = coh_token_file_open(path, &file);
        if (status == COH_OK)
            status = coh_token_file_check(file);
        if (status == COH_OK)
            status = coh_token_file_unigram_entropy(file, &nats);
        coh_token_file_close(file);
        int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        assert_int_equal(status, was_hit ? COH_ERR_MEMORY : COH_OK);
        if (!was_hit) {
            assert_int_equal(n, 4); /* the object, its path, the counts */
            break;
        }
    }
}

/* ---- several writers ---- */

static int is_there(const char *name)
{
    return access(folder_file(name), F_OK) == 0;
}

/* They have one process number, as two containers may have. */
static void two_writers_of_one_file_leave_the_whole_file_of_the_last(void **state)
{
    (void)state;
    const int32_t first[] = { 1, 2, 3, 4, 5, 6 }, second[] = { 7, 8 };
    coh_token_writer *writers[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(coh_token_writer_create(folder_file("ids"), 10, 77, &writers[i]), COH_OK);
    assert_int_equal(coh_token_writer_add(writers[0], first, NULL, 6), COH_OK);
    assert_int_equal(coh_token_writer_finish(writers[0]), COH_OK);
    assert_int_equal(coh_token_writer_add(writers[1], second, NULL, 2), COH_OK);
    write_ids("other", first, 6, 10);
    assert_int_equal(coh_token_writer_publish(writers[0]), COH_OK);
    assert_file_has("ids", first, 6);
    assert_int_equal(coh_token_writer_finish(writers[1]), COH_OK);
    assert_int_equal(coh_token_writer_publish(writers[1]), COH_OK);
    assert_file_has("ids", second, 2);
    for (int i = 0; i < 2; i++)
        coh_token_writer_destroy(writers[i]);
    assert_false(is_there("ids.partial") || is_there("ids.partial-1"));
}

static void what_a_killed_writer_left_goes_with_the_next(void **state)
{
    (void)state;
    const int32_t ids[] = { 1, 2, 3 };
    folder_write("ids.partial",
                 "a longer text than the header and the ids of the next writer have: "
                 "it must not stay behind them in the new file",
                 110);
    write_ids("ids", ids, 3, 10);
    assert_file_has("ids", ids, 3);
    assert_false(is_there("ids.partial"));
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(ids_come_back_whole_and_by_ranges_at_both_widths),
        IN_FOLDER(the_layout_is_the_documented_one),
        IN_FOLDER(a_file_cut_anywhere_or_added_to_is_refused),
        IN_FOLDER(a_flipped_bit_of_the_header_is_refused),
        IN_FOLDER(headers_that_no_writer_writes_are_refused),
        IN_FOLDER(what_is_no_token_file_is_refused),
        IN_FOLDER(a_flipped_id_fails_the_check),
        IN_FOLDER(an_id_outside_the_vocabulary_is_not_handed_out),
        IN_FOLDER(a_file_cut_while_it_is_open_is_noticed),
        IN_FOLDER(unigram_entropy_is_that_of_the_counts),
        IN_FOLDER(a_long_file_has_the_ids_of_its_whole_text),
        IN_FOLDER(a_folder_is_its_text_files_in_byte_order_with_ends),
        IN_FOLDER(held_out_files_and_the_others_make_up_the_folder),
        IN_FOLDER(what_cannot_be_built_is_refused_and_leaves_nothing),
        IN_FOLDER(a_failed_build_leaves_the_old_file_as_it_was),
        IN_FOLDER(every_failing_allocation_of_reading_is_said),
        IN_FOLDER(two_writers_of_one_file_leave_the_whole_file_of_the_last),
        IN_FOLDER(what_a_killed_writer_left_goes_with_the_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
