/* A folder tokenized by several threads gives the same bytes as with one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cohobate/text.h"
#include "tests/faults/alloc_faults.h"
#include "tests/length.h"
#include "tests/text/folder.h"
#include "tests/text/nasty.h"
#include "tests/text/same_file.h"

/* TOKENIZERS: the folder of folders. */

#define FILE_COUNT 40

/* Returns a path that stays valid after later calls of folder_file. */
static const char *keep_path(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s", folder_file(name));
    return path;
}

static void make_folder(const char *name)
{
    assert_int_equal(mkdir(folder_file(name), 0777), 0);
}

/* Writes empty texts, some of a few kB, and one of more than a block; and two files that are not
 * texts. */
static void write_texts(void)
{
    static char text[1200000]; /* more than a block */
    make_folder("texts");
    for (uint64_t i = 0; i < FILE_COUNT; i++) {
        char name[40];
        size_t room = i == 9 ? sizeof(text) : coh_rng_below(1, 1, i, 3000);
        size_t bytes = i % 11 == 5 ? 0 : nasty_random(i, text, room);
        if (i % 17 == 3 && bytes > 100)
            text[50] = '\0';
        snprintf(name, sizeof(name), "texts/%02d.txt", (int)i);
        folder_write(name, text, bytes);
    }
}

static void write_conversations(int bad_file)
{
    make_folder("chats");
    for (int i = 0; i < FILE_COUNT; i++) {
        char name[40], text[4000];
        size_t bytes = 0;
        for (uint64_t line = 0; line < coh_rng_below(2, 0, (uint64_t)i, 12); line++)
            bytes +=
                (size_t)sprintf(text + bytes,
                                "{\"messages\": [{\"role\": \"user\", \"content\": \"say %d\"}, "
                                "{\"role\": \"assistant\", \"content\": \"%d the tokens %d\"}], "
                                "\"text\": \"line %d of %d\"}\n",
                                i, i, (int)line, (int)line, i);
        if (i >= bad_file) /* this file and all later ones, with distinct numbers */
            bytes += (size_t)sprintf(text + bytes, "{\"other\": %d}\n", i);
        snprintf(name, sizeof(name), "chats/%02d.jsonl", i);
        folder_write(name, text, bytes);
    }
}

static coh_status make_tokens(coh_token_build_options options, const char *tokenizer_path,
                              int threads, coh_token_build_facts *facts)
{
    char out[40], held_out[40];
    coh_tokenizer *tokenizer;
    assert_int_equal(coh_tokenizer_open(tokenizer_path, &tokenizer), COH_OK);
    snprintf(out, sizeof(out), "out-%d", threads);
    snprintf(held_out, sizeof(held_out), "held-out-%d", threads);
    options.struct_bytes = sizeof(options);
    options.out_path = folder_file(out);
    options.held_out_path = folder_file(held_out);
    options.thread_count = threads;
    coh_status status = coh_token_file_make(tokenizer, &options, facts);
    coh_tokenizer_close(tokenizer);
    return status;
}

static void assert_same_by_threads(coh_token_build_options options, const char *tokenizer_path)
{
    coh_token_build_facts one = { .struct_bytes = sizeof(one) },
                          many = { .struct_bytes = sizeof(many) };
    options.held_out = 4;
    if (make_tokens(options, tokenizer_path, 1, &one) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_true(one.token_count > 100 && one.held_out_token_count > 10);
    for (int threads = test_seeks_races() ? 5 : 2; threads < 6; threads += 3) {
        assert_int_equal(make_tokens(options, tokenizer_path, threads, &many), COH_OK);
        assert_memory_equal(&many, &one, sizeof(one));
        assert_same_file("out", threads);
        assert_same_file("held-out", threads);
    }
}

static void texts_become_the_same_bytes_by_any_number_of_threads(void **state)
{
    (void)state;
    static const char *const tokenizers[] = { "bytes", TOKENIZERS "/opt", TOKENIZERS "/words" };
    write_texts();
    coh_token_build_options options = { .in_path = keep_path("texts") };
    for (size_t i = 0; i < sizeof(tokenizers) / sizeof(tokenizers[0]); i++) {
        /* In short runs the thread sanitizer sees one of the two. */
        for (int windows = 0; windows < 2; windows++) {
            if (test_seeks_races() && windows != (int)i % 2)
                continue;
            options.window = windows ? 37 : 0;
            assert_same_by_threads(options, tokenizers[i]);
        }
    }
}

/* A store of files by their hash, with links from a folder of names, is such a folder. */
static void a_link_to_a_file_is_read_as_the_file(void **state)
{
    (void)state;
    coh_token_build_facts facts[2] = { { .struct_bytes = sizeof(facts[0]) },
                                       { .struct_bytes = sizeof(facts[0]) } };
    coh_token_build_options options = { .in_path = keep_path("texts") };
    char target[PATH_MAX], folder[PATH_MAX];
    make_folder("texts");
    make_folder("blobs");
    folder_write("texts/a.txt", "of the ", 7);
    folder_write("blobs/b", "many words", 10);
    snprintf(target, sizeof(target), "%s", folder_file("blobs/b"));
    snprintf(folder, sizeof(folder), "%s", folder_file("blobs"));
    assert_int_equal(symlink(target, folder_file("texts/b.txt")), 0);
    assert_int_equal(symlink(folder, folder_file("texts/round")), 0); /* not followed */
    options.held_out = 0;
    if (make_tokens(options, "bytes", 1, &facts[0]) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(facts[0].document_count, 2);
    assert_int_equal(facts[0].token_count, 7 + 1 + 10 + 1);
    assert_int_equal(symlink("nowhere", folder_file("texts/c.txt")), 0);
    assert_int_equal(make_tokens(options, "bytes", 1, &facts[1]), COH_ERR_IO);
    assert_non_null(strstr(coh_last_error(), "cannot follow the link"));
    assert_int_equal(unlink(folder_file("texts/c.txt")), 0);
    assert_int_equal(unlink(folder_file("texts/b.txt")), 0);
    assert_int_equal(unlink(folder_file("texts/round")), 0);
}

/* Writes a file that is no text, whose name is `count` times `letter`, then `end`. */
static void write_binary(const char *folder, const char *letter, size_t count, const char *end)
{
    char name[250];
    int bytes = snprintf(name, sizeof(name), "%s/", folder);
    while (count-- > 0)
        bytes += snprintf(name + bytes, sizeof(name) - (size_t)bytes, "%s", letter);
    snprintf(name + bytes, sizeof(name) - (size_t)bytes, "%s", end);
    folder_write(name, "\0", 1);
}

static void the_first_file_that_is_no_text_is_first_by_its_whole_path(void **state)
{
    (void)state;
    coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
    const coh_token_build_options options = { .in_path = keep_path("texts") };
    write_texts();
    make_folder("texts/0");
    write_binary("texts", "a", 200, ""); /* the end of its path is before that of the next */
    write_binary("texts/0", "z", 200, "");
    for (int threads = 1; threads < 6; threads += 2) {
        assert_int_equal(make_tokens(options, "bytes", threads, &facts), COH_OK);
        assert_non_null(strstr(facts.first_binary, "zzz"));
    }
}

/* A path that does not fit is cut at a character, wherever its characters begin. */
static void the_end_of_a_long_path_begins_with_a_character(void **state)
{
    (void)state;
    static const char *const letters[] = { "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x99\x82" };
    coh_token_build_options options = { 0 };
    for (size_t i = 0; i < 12; i++) {
        const char *letter = letters[i / 4], *end = &"aaa"[i % 4];
        const size_t bytes = strlen(letter);
        char folder[20], name[40];
        coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
        snprintf(folder, sizeof(folder), "t%zu", i);
        snprintf(name, sizeof(name), "%s/text", folder);
        make_folder(folder);
        write_binary(folder, letter, 240 / bytes, end);
        folder_write(name, "text", 4);
        options.in_path = keep_path(folder);
        assert_int_equal(make_tokens(options, "bytes", 1, &facts), COH_OK);
        assert_memory_equal(facts.first_binary, "...", 3);
        const size_t shown = strlen(facts.first_binary), most = sizeof(facts.first_binary) - 1;
        assert_true(shown <= most && shown > most - bytes);
        const size_t letters_end = shown - strlen(end);
        assert_string_equal(facts.first_binary + letters_end, end);
        assert_int_equal((letters_end - 3) % bytes, 0);
        for (size_t at = 3; at < letters_end; at += bytes)
            assert_memory_equal(facts.first_binary + at, letter, bytes);
    }
}

static void files_that_hold_no_lines_are_counted_and_not_looked_at(void **state)
{
    (void)state;
    coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
    coh_token_build_options options = { .in_path = keep_path("chats"), .form = COH_DATA_JSONL };
    write_conversations(FILE_COUNT);
    assert_int_equal(make_tokens(options, "bytes", 1, &facts), COH_OK);
    assert_int_equal(facts.file_count, FILE_COUNT);
    assert_int_equal(facts.other_count, 0);
    folder_write("chats/notes.txt", "other", 5);
    folder_write("chats/pixels.bin", "\0", 1);
    make_folder("chats/folder.txt");
    assert_int_equal(symlink("notes.txt", folder_file("chats/again.txt")), 0);
    assert_int_equal(symlink("nowhere", folder_file("chats/zz.txt")), 0);
    if (make_tokens(options, "bytes", 1, &facts) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(facts.file_count, FILE_COUNT);
    assert_int_equal(facts.other_count, 3);
    assert_int_equal(facts.binary_count, 0);
    /* Arrays of objects are read, other JSON is about the data. */
    folder_write("chats/b.json", "\xef\xbb\xbf\n[ {\"text\": \"b\"}, {\"text\": \"c\"}]", 35);
    folder_write("chats/c.json", "{\"text\": \"c\"}", 13);
    folder_write("chats/d.json", "[1]", 3);
    const uint64_t before = facts.document_count;
    assert_int_equal(make_tokens(options, "bytes", 1, &facts), COH_OK);
    assert_int_equal(facts.document_count, before + 2);
    assert_int_equal(facts.file_count, FILE_COUNT + 1);
    assert_int_equal(facts.other_count, 5);
    assert_int_equal(symlink("nowhere", folder_file("chats/zz.jsonl")), 0);
    assert_int_equal(make_tokens(options, "bytes", 1, &facts), COH_ERR_IO);
    assert_int_equal(unlink(folder_file("chats/again.txt")), 0);
    assert_int_equal(unlink(folder_file("chats/zz.txt")), 0);
    assert_int_equal(unlink(folder_file("chats/zz.jsonl")), 0);
}

/* Their first bytes would say what they are: left out, they might be missed. */
static void a_file_that_only_its_bytes_tell_must_be_there(void **state)
{
    (void)state;
    static const char *const missed[] = { "4.json", "b.jl", "B.JSON" };
    static const char *const about[] = { "config.json", "Config.JSON", "trainer_state.json" };
    coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
    coh_token_build_options options = { .in_path = keep_path("linked"), .form = COH_DATA_JSONL };
    make_folder("linked");
    folder_write("linked/1.json", "{\"text\": \"c\"}", 13);
    for (int has_lines = 0; has_lines < 2; has_lines++) {
        char link[40];
        if (has_lines)
            folder_write("linked/a.jsonl", "{\"text\": \"c\"}", 13);
        for (int i = 0; i < 3; i++) {
            snprintf(link, sizeof(link), "linked/%s", missed[i]);
            assert_int_equal(symlink("nowhere", folder_file(link)), 0);
            assert_int_equal(make_tokens(options, "bytes", 1, &facts), COH_ERR_IO);
            assert_non_null(strstr(coh_last_error(), "cannot follow the link "));
            assert_non_null(strstr(coh_last_error(), missed[i]));
            assert_int_equal(unlink(folder_file(link)), 0);
            snprintf(link, sizeof(link), "linked/%s", about[i]);
            assert_int_equal(symlink("nowhere", folder_file(link)), 0);
            if (make_tokens(options, "bytes", 1, &facts) != COH_OK)
                fail_msg("%s", coh_last_error());
            assert_int_equal(unlink(folder_file(link)), 0);
            folder_write(link, "{\"text\": \"about\"}", 17);
            assert_int_equal(make_tokens(options, "bytes", 1, &facts), COH_OK);
            assert_int_equal(facts.document_count, 1);
            assert_int_equal(unlink(folder_file(link)), 0);
        }
    }
}

static void lines_and_conversations_do_too(void **state)
{
    (void)state;
    write_conversations(FILE_COUNT);
    coh_token_build_options options = { .in_path = keep_path("chats"), .form = COH_DATA_JSONL };
    assert_same_by_threads(options, TOKENIZERS "/qwen2");
    options.form = COH_DATA_CHAT;
    assert_same_by_threads(options, TOKENIZERS "/qwen2");
    options.window = 16;
    assert_same_by_threads(options, TOKENIZERS "/qwen2");
}

static void the_first_bad_file_is_named_whoever_meets_one_first(void **state)
{
    (void)state;
    write_conversations(9);
    coh_token_build_options options = { .in_path = keep_path("chats"), .form = COH_DATA_JSONL };
    for (int threads = 1; threads < 6; threads++) {
        assert_int_equal(make_tokens(options, "bytes", threads, NULL), COH_ERR_CORRUPT);
        if (!strstr(coh_last_error(), "/09.jsonl:"))
            fail_msg("%d threads: %s", threads, coh_last_error());
    }
    assert_int_equal(folder_count(), 1 + FILE_COUNT); /* nothing is left */
}

static void every_failing_allocation_is_said_and_leaves_nothing_behind(void **state)
{
    (void)state;
    write_conversations(FILE_COUNT);
    coh_token_build_options options = { .in_path = keep_path("chats"), .form = COH_DATA_CHAT };
    char keep_out[PATH_MAX];
    snprintf(keep_out, sizeof(keep_out), "%s", folder_file("out"));
    for (uint64_t n = 1;; n++) {
        coh_tokenizer *tokenizer;
        assert_int_equal(coh_tokenizer_open(TOKENIZERS "/qwen2", &tokenizer), COH_OK);
        options.struct_bytes = sizeof(options);
        options.out_path = keep_out;
        options.thread_count = 3;
        alloc_fail_nth(n);
        coh_status status = coh_token_file_make(tokenizer, &options, NULL);
        int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        coh_tokenizer_close(tokenizer);
        if (!was_hit) {
            assert_int_equal(status, COH_OK);
            break;
        }
        if (status != COH_OK) {
            assert_int_equal(status, COH_ERR_MEMORY);
            assert_int_equal(folder_count(), 1 + FILE_COUNT);
        }
        remove(folder_file("out"));
        n += n / (test_is_brief() ? 2 : 8); /* later allocations are alike */
    }
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(texts_become_the_same_bytes_by_any_number_of_threads),
        IN_FOLDER(a_link_to_a_file_is_read_as_the_file),
        IN_FOLDER(the_first_file_that_is_no_text_is_first_by_its_whole_path),
        IN_FOLDER(the_end_of_a_long_path_begins_with_a_character),
        IN_FOLDER(files_that_hold_no_lines_are_counted_and_not_looked_at),
        IN_FOLDER(a_file_that_only_its_bytes_tell_must_be_there),
        IN_FOLDER(lines_and_conversations_do_too),
        IN_FOLDER(the_first_bad_file_is_named_whoever_meets_one_first),
        IN_FOLDER(every_failing_allocation_is_said_and_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
