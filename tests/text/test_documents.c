/* JSON lines to token files, and the windows of aligned files. The expected small files are built
 * by hand here; tests/cli/test_data.py builds them again in Python. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cohobate/text.h"
#include "tests/faults/alloc_faults.h"
#include "tests/text/byte_tokenizer.h"
#include "tests/text/folder.h"
#include "text/documents.h"
#include "text/lines.h"
#include "text/token_file.h"

static void write_text(const char *name, const char *text)
{
    folder_write(name, text, strlen(text));
}

static coh_token_build_options options_for(const char *in, coh_data_form form)
{
    coh_token_build_options options;
    coh_token_build_options_init(&options);
    options.in_path = folder_file(in);
    options.out_path = folder_file("out");
    options.form = form;
    return options;
}

static coh_token_file *open_or_fail(const char *name)
{
    coh_token_file *file;
    if (coh_token_file_open(folder_file(name), &file) != COH_OK ||
        coh_token_file_check(file) != COH_OK)
        fail_msg("%s: %s", name, coh_last_error());
    return file;
}

static coh_token_file_facts facts_of(const coh_token_file *file)
{
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    assert_int_equal(coh_token_file_facts_get(file, &facts), COH_OK);
    return facts;
}

/* Compares the file's ids: bytes as they are, '$' for the end of a text. */
static void assert_text(const char *name, const char *expected)
{
    coh_token_file *file = open_or_fail(name);
    int32_t ids[512];
    size_t count = facts_of(file).token_count;
    assert_int_equal(count, strlen(expected));
    assert_int_equal(coh_token_file_read(file, 0, count, ids), COH_OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(ids[i] == 256 ? '$' : ids[i], (uint8_t)expected[i]);
    coh_token_file_close(file);
}

/* ---- JSON lines ---- */

static void each_line_is_a_document_and_its_end(void **state)
{
    (void)state;
    write_text("in", "\xef\xbb\xbf{\"text\": \"one\"}\n"
                     "\n  \t\r\n"
                     "{\"id\": 12345678901234567890, \"text\": \"t\\u0077o\\n\", \"x\": null}\r\n"
                     "{\"text\": \"\"}\n"
                     "{\"text\": \"last\"}"); /* without a line end */
    coh_token_build_options options = options_for("in", COH_DATA_JSONL);
    coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
    assert_int_equal(coh_token_file_make(byte_tokenizer, &options, &facts), COH_OK);
    assert_text("out", "one$two\n$$last$");
    assert_int_equal(facts.document_count, 4);
    assert_int_equal(facts.token_count, 15);
    assert_string_equal(facts.chat_form, "");
    coh_token_file *file = open_or_fail("out");
    assert_int_equal(facts_of(file).has_mask, 0);
    coh_token_file_close(file);
    options.field = "other";
    write_text("in", "{\"text\": 1, \"other\": \"x\"}\n");
    assert_int_equal(coh_token_file_make(byte_tokenizer, &options, NULL), COH_OK);
    assert_text("out", "x$");
}

/* Documents of 5, 3, 8 and 1 ids with their ends. A window of 4 tokens holds 5: the last is a
 * target only. */
static void documents_that_no_window_holds_whole_are_counted(void **state)
{
    (void)state;
    static const struct {
        int64_t window, sequence;
        uint64_t cut_count;
    } cases[] = { { 0, 0, 0 }, { 0, 4, 1 }, { 0, 3, 2 }, { 0, 7, 0 }, { 4, 0, 1 }, { 3, 100, 2 } };
    write_text("in", "{\"text\": \"four\"}\n{\"text\": \"in\"}\n{\"text\": \"longest\"}\n"
                     "{\"text\": \"\"}\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        coh_token_build_options options = options_for("in", COH_DATA_JSONL);
        coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
        options.window = cases[i].window;
        options.sequence = cases[i].sequence;
        assert_int_equal(coh_token_file_make(byte_tokenizer, &options, &facts), COH_OK);
        assert_int_equal(facts.cut_document_count, cases[i].cut_count);
        assert_int_equal(facts.longest_document, 8);
    }
    coh_token_build_options options = options_for("in", COH_DATA_JSONL);
    options.sequence = -1;
    assert_int_equal(coh_token_file_make(byte_tokenizer, &options, NULL), COH_ERR_ARGUMENT);
}

/* Its first object would be no JSON at byte 1, which says nothing. */
static void lines_in_utf_16_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t count;
        int is_utf16;
    } cases[] = { { "\xff\xfe{\0\"\0", 6, 1 }, { "\xfe\xff\0{\0\"", 6, 1 }, { "{\0\"\0", 4, 1 },
                  { "\0[\0{", 4, 1 },          { "x\0x\0", 4, 0 },          { "\xff", 1, 0 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const coh_token_build_options options = options_for("in", COH_DATA_JSONL);
        folder_write("in", cases[i].bytes, cases[i].count);
        assert_int_equal(coh_token_file_make(byte_tokenizer, &options, NULL), COH_ERR_CORRUPT);
        assert_int_equal(strstr(coh_last_error(), "in is in UTF-16, ") != NULL, cases[i].is_utf16);
    }
}

static void what_python_s_json_takes_beyond_json_is_read(void **state)
{
    (void)state;
    write_text("in", "{\"a\": NaN, \"b\": [Infinity, -Infinity, 1e400, -1E+999, \"NaN\"], "
                     "\"text\": \"a\\ud83db\\uDE00c\\ud83d\\ude00d\\\\ud83d\\\"\\ud83d\"}\n"
                     "{\"text\": \"\\ud83d\\ud83d\\ude00\"}\n"
                     "{\"text\": \"NaN 1e400\"}\n");
    coh_token_build_options options = options_for("in", COH_DATA_JSONL);
    coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
    if (coh_token_file_make(byte_tokenizer, &options, &facts) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_text("out", "a\xef\xbf\xbd"
                       "b\xef\xbf\xbd"
                       "c\xf0\x9f\x98\x80"
                       "d\\ud83d\"\xef\xbf\xbd$\xef\xbf\xbd\xf0\x9f\x98\x80$NaN 1e400$");
    assert_int_equal(facts.replaced_count, 4);
    static const char *const refused[] = { "{\"a\": NaNa}",    "{\"a\": infinity}",
                                           "{\"a\": 1e400.5}", "{\"a\": \"\\u\"}",
                                           "{\"a\": \"\\",     "{\"a\": \"\\ud83",
                                           "{\"a\": -}",       "{\"a\": \"\\ud83d" };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        write_text("in", refused[i]);
        options = options_for("in", COH_DATA_JSONL);
        if (coh_token_file_make(byte_tokenizer, &options, &facts) != COH_ERR_CORRUPT ||
            !strstr(coh_last_error(), "in:1: no JSON"))
            fail_msg("%s was taken", refused[i]);
    }
}

static void files_of_lines_in_a_folder_are_told(void **state)
{
    (void)state;
    coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
    assert_int_equal(mkdir(folder_file("files"), 0700), 0);
    write_text("files/a.jsonl", "{\"text\": \"\\ud83d\"}\n");
    write_text("files/b.ndjson", "{\"text\": \"\\ud83d\"}\n");
    write_text("files/c.txt", "c");
    coh_token_build_options options = options_for("files", COH_DATA_TEXT);
    options.thread_count = 2;
    assert_int_equal(coh_token_file_make(byte_tokenizer, &options, &facts), COH_OK);
    assert_int_equal(facts.lines_as_text_count, 2);
    options.form = COH_DATA_JSONL;
    assert_int_equal(coh_token_file_make(byte_tokenizer, &options, &facts), COH_OK);
    assert_int_equal(facts.lines_as_text_count, 0);
    assert_int_equal(facts.replaced_count, 2);
    assert_text("out", "\xef\xbf\xbd$\xef\xbf\xbd$");
}

static void a_folder_is_its_jsonl_files_in_byte_order(void **state)
{
    (void)state;
    assert_int_equal(mkdir(folder_file("tree"), 0777), 0);
    assert_int_equal(mkdir(folder_file("tree/b"), 0777), 0);
    write_text("tree/c.jsonl", "{\"text\": \"c\"}\n");
    write_text("tree/b/x.jsonl", "{\"text\": \"b1\"}\n{\"text\": \"b2\"}\n");
    write_text("tree/a.txt", "not JSON");
    write_text("tree/.hidden.jsonl", "not JSON");
    coh_token_build_options options = options_for("tree", COH_DATA_JSONL);
    assert_int_equal(coh_token_file_make(byte_tokenizer, &options, NULL), COH_OK);
    assert_text("out", "b1$b2$c$");
}

static void lines_longer_than_a_block_are_read_whole(void **state)
{
    (void)state;
    enum { LONG = 3 << 20 };
    char *text = malloc(LONG + 64);
    assert_non_null(text);
    size_t count = (size_t)sprintf(text, "{\"text\": \"");
    memset(text + count, 'a', LONG);
    count += LONG;
    count += (size_t)sprintf(text + count, "\"}\n{\"text\": \"b\"}\n");
    folder_write("in", text, count);
    free(text);
    coh_token_build_options options = options_for("in", COH_DATA_JSONL);
    coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
    assert_int_equal(coh_token_file_make(byte_tokenizer, &options, &facts), COH_OK);
    assert_int_equal(facts.token_count, LONG + 3);
    assert_int_equal(facts.document_count, 2);
}

static void a_line_beyond_all_bounds_is_refused(void **state)
{
    (void)state;
    coh_lines lines;
    json_t *object;
    write_text("in", "{}\n{\"a\": \"0123456789012345678901234567890123456789\"}\n");
    assert_int_equal(coh_lines_open(folder_file("in"), &lines), COH_OK);
    lines.most_bytes = 40;
    assert_int_equal(coh_lines_next(&lines, &object), COH_OK);
    json_decref(object);
    assert_int_equal(coh_lines_next(&lines, &object), COH_ERR_CORRUPT);
    assert_null(object);
    assert_non_null(strstr(coh_last_error(), ":2: the line has more than"));
    coh_lines_close(&lines);
}

typedef struct bad_line {
    const char *line, *says;
} bad_line;

/* Tests each bad line as line 3 of a file whose other lines are good. */
static void assert_refused(coh_data_form form, const char *good, const bad_line *bad)
{
    char text[1024], place[PATH_MAX + 8];
    snprintf(text, sizeof(text), "%s\n\n%s\n%s\n", good, bad->line, good);
    write_text("in", text);
    coh_token_build_options options = options_for("in", form);
    int entry_count = folder_count();
    coh_status status = coh_token_file_make(byte_tokenizer, &options, NULL);
    if (status != COH_ERR_CORRUPT)
        fail_msg("%s: %s", bad->line, coh_status_name(status));
    snprintf(place, sizeof(place), "%s:3: ", options.in_path);
    if (strncmp(coh_last_error(), place, strlen(place)) != 0 ||
        !strstr(coh_last_error(), bad->says) || strchr(coh_last_error(), '\n'))
        fail_msg("%s: %s", bad->line, coh_last_error());
    assert_int_equal(folder_count(), entry_count); /* no partial file */
}

static void malformed_lines_are_refused_by_file_and_line(void **state)
{
    (void)state;
    static const bad_line all[] = {
        { "{", "no JSON" },
        { "{\"text\": \"x\"", "no JSON" },
        { "{\"text\": \"x\"} {}", "no JSON" },
        { "{\"text\": \"x\", \"text\": \"y\"}", "no JSON" }, /* twice */
        { "{\"text\": \"\xff\"}", "no JSON" },               /* no UTF-8 */
        { "{text: 1}", "no JSON" },
        { "plain text", "no JSON" },
        { "[\"x\"]", "not a JSON object" },
        { "\"x\"", "no JSON" }, /* jansson asks for an object or array */
        { "{}", "no field \"text\"" },
        { "{\"Text\": \"x\"}", "no field \"text\"" },
        { "{\"text\": null}", "is null" },
        { "{\"text\": 1}", "is a number" },
        { "{\"text\": [\"x\"]}", "is an array" },
        { "{\"text\": {}}", "is an object" },
        { "{\"text\": true}", "is a flag" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        assert_refused(COH_DATA_JSONL, "{\"text\": \"good\"}", &all[i]);
}

#define MESSAGE(role, content) "{\"role\": \"" role "\", \"content\": \"" content "\"}"
#define CHAT(messages)         "{\"messages\": [" messages "]}"
#define ASKED                  MESSAGE("user", "q")
#define GOOD_CHAT              CHAT(ASKED "," MESSAGE("assistant", "a"))

static void malformed_conversations_are_refused_by_file_and_line(void **state)
{
    (void)state;
    static const bad_line all[] = {
        { "{}", "\"messages\" is missing" },
        { "{\"messages\": []}", "\"messages\" is empty" },
        { "{\"messages\": {}}", "\"messages\" is an object" },
        { "{\"messages\": \"x\"}", "\"messages\" is a text" },
        { CHAT("1"), "message 1 is a number" },
        { CHAT(ASKED ", null"), "message 2 is null" },
        { CHAT("{\"content\": \"x\"}"), "for a role" },
        { CHAT("{\"role\": 1, \"content\": \"x\"}"), "for a role" },
        { CHAT(MESSAGE("tool", "x")), "\"tool\" for a role" },
        { CHAT(MESSAGE("User", "x")), "\"User\" for a role" },
        { CHAT("{\"role\": \"user\"}"), "has nothing for its content" },
        { CHAT("{\"role\": \"user\", \"content\": null}"), "has null for its content" },
        { CHAT("{\"role\": \"user\", \"content\": {\"type\": \"text\", \"text\": \"x\"}}"),
          "has an object for its content" },
        { CHAT("{\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\": []}"),
          "a member \"tool_calls\"" },
        { CHAT(ASKED), "no message is the assistant's" },
        { CHAT(MESSAGE("system", "s") "," ASKED), "no message is the assistant's" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        assert_refused(COH_DATA_CHAT, GOOD_CHAT, &all[i]);
}

static void what_holds_no_line_is_refused(void **state)
{
    (void)state;
    write_text("empty", "\n\n");
    assert_int_equal(mkdir(folder_file("tree"), 0777), 0);
    write_text("tree/a.txt", "x");
    const char *const all[] = { "empty", "tree" };
    for (size_t i = 0; i < 2; i++) {
        coh_token_build_options options = options_for(all[i], COH_DATA_JSONL);
        int entry_count = folder_count();
        assert_int_equal(coh_token_file_make(byte_tokenizer, &options, NULL), COH_ERR_CORRUPT);
        assert_int_equal(folder_count(), entry_count);
    }
}

/* ---- counted targets ---- */

static void of_a_conversation_only_the_assistants_part_is_a_target(void **state)
{
    (void)state;
    static const char text[] = "user: q\nassistant: a$user: q\nassistant: a";
    write_text("in", GOOD_CHAT "\n" GOOD_CHAT "\n");
    coh_token_build_options options = options_for("in", COH_DATA_CHAT);
    coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
    assert_int_equal(coh_token_file_make(byte_tokenizer, &options, &facts), COH_OK);
    assert_true(strncmp(facts.chat_form, "plain", 5) == 0);
    coh_token_file *file = open_or_fail("out");
    assert_int_equal(facts_of(file).has_mask, 1);
    assert_int_equal(facts_of(file).window, 0);
    int32_t tokens[41], targets[41];
    assert_int_equal(coh_token_file_window_count(file, 41), 1);
    assert_int_equal(coh_token_file_window(file, 1, 0, 41, tokens, targets), COH_OK);
    for (int i = 0; i < 41; i++) {
        int32_t next = i == 40 ? 256 : text[i + 1] == '$' ? 256 : text[i + 1];
        assert_int_equal(tokens[i], text[i] == '$' ? 256 : text[i]);
        int counts = (i + 1 >= 18 && i + 1 <= 20) || i + 1 >= 39;
        assert_int_equal(targets[i], counts ? next : -1);
    }
    coh_token_file_close(file);
}

/* ---- aligned ---- */

/* Computes the windows of a document alone, by their definition. */
static size_t windows_of(const char *document, size_t window, int32_t (*tokens)[8],
                         int32_t (*targets)[8])
{
    size_t ids = strlen(document) + 1, count = 0;
    for (size_t begin = 0; begin + 1 < ids; begin += window, count++)
        for (size_t i = 0; i < window; i++) {
            size_t at = begin + i, next = at + 1;
            tokens[count][i] = at < ids - 1 ? document[at] : 256;
            targets[count][i] = next >= ids ? -1 : next == ids - 1 ? 256 : document[next];
        }
    return count;
}

static void an_aligned_document_has_windows_of_its_own(void **state)
{
    (void)state;
    static const char *const documents[] = { "abc", "", "abcdefg", "abcdefgh", "abcdefghi", "z" };
    for (size_t window = 1; window <= 8; window++) {
        static int32_t tokens[64][8], targets[64][8];
        char text[512] = "";
        size_t count = 0, used = 0;
        for (size_t d = 0; d < sizeof(documents) / sizeof(documents[0]); d++) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "{\"text\": \"%s\"}\n",
                                     documents[d]);
            count += windows_of(documents[d], window, tokens + count, targets + count);
        }
        write_text("in", text);
        coh_token_build_options options = options_for("in", COH_DATA_JSONL);
        options.window = (int64_t)window;
        assert_int_equal(coh_token_file_make(byte_tokenizer, &options, NULL), COH_OK);
        coh_token_file *file = open_or_fail("out");
        assert_int_equal(facts_of(file).window, window);
        assert_int_equal(coh_token_file_window_count(file, (int64_t)window), count);
        assert_int_equal(coh_token_file_window_count(file, (int64_t)window + 1), 0);
        int seen[64] = { 0 };
        for (size_t n = 0; n < count; n++) {
            int32_t got[8], got_targets[8];
            assert_int_equal(coh_token_file_window(file, 3, n, (int64_t)window, got, got_targets),
                             COH_OK);
            size_t w = 0;
            while (w < count && (seen[w] || memcmp(got, tokens[w], window * 4) != 0 ||
                                 memcmp(got_targets, targets[w], window * 4) != 0))
                w++;
            if (w == count)
                fail_msg("window length %zu: number %zu is none of the expected", window, n);
            seen[w] = 1;
        }
        int32_t other[9];
        assert_int_equal(coh_token_file_window(file, 3, 0, (int64_t)window + 1, other, other),
                         COH_ERR_ARGUMENT);
        assert_non_null(strstr(coh_last_error(), "has documents in windows of"));
        coh_token_file_close(file);
    }
}

static void windows_in_which_nothing_counts_are_left_out(void **state)
{
    (void)state;
    /* 18 ids before the answer: of windows of 4, the first four have no counted target. */
    write_text("in", GOOD_CHAT "\n");
    coh_token_build_options options = options_for("in", COH_DATA_CHAT);
    options.window = 4;
    coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
    assert_int_equal(coh_token_file_make(byte_tokenizer, &options, &facts), COH_OK);
    assert_int_equal(facts.empty_window_count, 4);
    coh_token_file *file = open_or_fail("out");
    int32_t tokens[4], targets[4];
    assert_int_equal(coh_token_file_window_count(file, 4), 1);
    assert_int_equal(coh_token_file_window(file, 0, 0, 4, tokens, targets), COH_OK);
    const int32_t expected[] = { 't', ':', ' ', 'a' }, expected_targets[] = { -1, ' ', 'a', 256 };
    assert_memory_equal(tokens, expected, sizeof(expected));
    assert_memory_equal(targets, expected_targets, sizeof(expected_targets));
    coh_token_file_close(file);
}

static void alignment_and_mask_are_part_of_the_identity(void **state)
{
    (void)state;
    uint64_t hashes[4];
    const int32_t ids[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
    const uint32_t windows[] = { 0, 2, 3, 3 };
    for (int i = 0; i < 4; i++) {
        uint8_t counts[12];
        memset(counts, 1, sizeof(counts));
        counts[5] = i != 3;
        coh_token_writer *writer;
        assert_int_equal(coh_token_writer_create(folder_file("ids"), 300, 7, &writer), COH_OK);
        coh_token_writer_mark(writer, windows[i]);
        assert_int_equal(coh_token_writer_add(writer, ids, counts, 12), COH_OK);
        assert_int_equal(coh_token_writer_finish(writer), COH_OK);
        assert_int_equal(coh_token_writer_publish(writer), COH_OK);
        coh_token_writer_destroy(writer);
        coh_token_file *file = open_or_fail("ids");
        hashes[i] = facts_of(file).hash;
        coh_token_file_close(file);
        for (int k = 0; k < i; k++)
            assert_true(hashes[k] != hashes[i]);
    }
}

/* ---- a share for validation ---- */

enum { SHARE_COUNT = 2000 };

/* Finds which of the numbered documents "xxxx" are in which file; each occurs at least once. */
static void find_parts(uint8_t *part_of)
{
    memset(part_of, 0xff, SHARE_COUNT);
    for (uint8_t part = 0; part < 2; part++) {
        coh_token_file *file = open_or_fail(part ? "held" : "out");
        size_t count = facts_of(file).token_count;
        assert_int_equal(count % 5, 0);
        for (size_t at = 0; at < count; at += 5) {
            int32_t ids[5];
            int number = 0;
            assert_int_equal(coh_token_file_read(file, at, 5, ids), COH_OK);
            if (ids[0] == 'x')
                continue;
            for (size_t k = 0; k < 4; k++)
                number = 10 * number + (int)(ids[k] - '0');
            assert_true(part_of[number] == 0xff || part_of[number] == part); /* copies together */
            part_of[number] = part;
        }
        coh_token_file_close(file);
    }
    assert_null(memchr(part_of, 0xff, SHARE_COUNT));
}

static void make_share(const char *in, coh_data_form form, int threads)
{
    coh_token_build_options options = options_for(in, form);
    coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
    options.validation_split = 0.1;
    options.seed = 5;
    options.thread_count = threads;
    options.held_out_path = folder_file("held");
    assert_int_equal(coh_token_file_make(byte_tokenizer, &options, &facts), COH_OK);
    /* binomial: 200 expected, standard deviation 13.4; six of these, plus 100 documents of other
     * numbers */
    assert_in_range(facts.held_out_document_count, 200 - 81, 2 * (200 + 81));
}

static void a_share_is_put_aside_by_bytes_and_seed_alone(void **state)
{
    (void)state;
    static char text[2 * SHARE_COUNT * 32];
    static uint8_t held[2][SHARE_COUNT];
    for (int other = 0; other < 2; other++) { /* alone; then with others */
        size_t used = 0;
        for (int i = 0; i < SHARE_COUNT; i++) {
            if (other)
                used += (size_t)sprintf(text + used, "{\"text\": \"%s%0*d\"}\n", i % 2 ? "x" : "",
                                        i % 2 ? 3 : 4, i % 2 ? i % 1000 : i);
            used += (size_t)sprintf(text + used, "{\"text\": \"%04d\"}\n", i);
        }
        folder_write("in", text, used);
        make_share("in", COH_DATA_JSONL, 1);
        find_parts(held[other]);
    }
    assert_memory_equal(held[0], held[1], SHARE_COUNT);
}

static void a_folder_s_share_is_the_same_for_any_threads_and_names(void **state)
{
    (void)state;
    static uint8_t held[3][SHARE_COUNT];
    char name[32], document[8];
    assert_int_equal(mkdir(folder_file("files"), 0700), 0);
    for (int i = 0; i < SHARE_COUNT; i++) {
        snprintf(name, sizeof(name), "files/%04d", i);
        snprintf(document, sizeof(document), "%04d", i);
        write_text(name, document);
    }
    make_share("files", COH_DATA_TEXT, 1);
    find_parts(held[0]);
    make_share("files", COH_DATA_TEXT, 4);
    find_parts(held[1]);
    write_text("files/+first", "x000"); /* a document put first moves none of the others */
    make_share("files", COH_DATA_TEXT, 4);
    find_parts(held[2]);
    assert_memory_equal(held[0], held[1], SHARE_COUNT);
    assert_memory_equal(held[0], held[2], SHARE_COUNT);
}

static void shares_that_leave_a_part_empty_are_refused(void **state)
{
    (void)state;
    write_text("in", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    write_text("one", "{\"text\": \"a\"}\n");
    static const struct refused {
        const char *in;
        coh_data_form form;
        double share;
        int held_out;
        const char *path, *says;
    } all[] = {
        { "in", COH_DATA_JSONL, 1e-9, 0, "held",
          "in holds 2 documents, of which a validation split of 1e-09 puts 0 aside (one "
          "document is a share of 0.5): both parts need one, so take another share or seed, or add "
          "some" },
        { "one", COH_DATA_JSONL, 0.5, 0, "held", "one holds 1 document, and the two parts" },
        { "in", COH_DATA_JSONL, 1, 0, "held", "no share" },
        { "in", COH_DATA_JSONL, -0.5, 0, "held", "no share" },
        { "in", COH_DATA_JSONL, 0.5, 2, "held", "not both" },
        { "in", COH_DATA_JSONL, 0.5, 0, NULL, "their own token file" },
        { "in", COH_DATA_JSONL, 0.5, 0, "out", "their own token file" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_token_build_options options = options_for(all[i].in, all[i].form);
        options.validation_split = all[i].share;
        options.held_out = all[i].held_out;
        options.held_out_path = all[i].path ? folder_file(all[i].path) : NULL;
        int entry_count = folder_count();
        if (coh_token_file_make(byte_tokenizer, &options, NULL) != COH_ERR_ARGUMENT ||
            !strstr(coh_last_error(), all[i].says))
            fail_msg("case %zu: %s", i, coh_last_error());
        assert_int_equal(folder_count(), entry_count);
    }
}

static void a_text_is_cut_at_the_last_line_end_before_the_share(void **state)
{
    (void)state;
    static const struct cut {
        const char *text;
        int held_out;
        double share;
        const char *out, *held; /* NULL: refused */
    } all[] = {
        { "ab\ncd\nef\n", 3, 0, "ab\ncd\n", "ef\n" },    /* at exactly a third */
        { "ab\ncd\nef\n", 4, 0, "ab\ncd\n", "ef\n" },    /* 3 of 9 bytes, rounded up */
        { "ab\ncd\nef\n", 2, 0, "ab\n", "cd\nef\n" },    /* 5 of 9 bytes */
        { "ab\ncd\nef\n", 0, 0.34, "ab\n", "cd\nef\n" }, /* 4 bytes, and back to a line end */
        { "ab\ncd\nef\n", 0, 0.2, "ab\ncd\n", "ef\n" },  /* 2 bytes, likewise */
        { "ab\r\n\ncdef", 0, 0.2, "ab\r\n\n", "cdef" },  /* twice the share */
        { "\nabcdefgh", 0, 0.9, NULL, NULL },
        { "ab\ncd", 0, 0.9, NULL, NULL },
        { "abcdefgh\n", 2, 0, NULL, NULL },
        { "", 2, 0, NULL, NULL },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        write_text("in", all[i].text);
        coh_token_build_options options = options_for("in", COH_DATA_TEXT);
        coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
        options.held_out = all[i].held_out;
        options.validation_split = all[i].share;
        options.held_out_path = folder_file("held");
        const coh_status status = coh_token_file_make(byte_tokenizer, &options, &facts);
        if (status != (all[i].out ? COH_OK : COH_ERR_CORRUPT))
            fail_msg("case %zu: %s", i, coh_last_error());
        if (!all[i].out) {
            assert_non_null(strstr(coh_last_error(), "has no line end in its first "));
            continue;
        }
        assert_text("out", all[i].out);
        assert_text("held", all[i].held);
        assert_int_equal(facts.cut_byte, strlen(all[i].out));
        assert_int_equal(facts.text_bytes, strlen(all[i].text));
    }
}

static void a_cut_that_holds_out_more_than_twice_the_share_is_refused(void **state)
{
    (void)state;
    static const char says[] = " behind byte 5, the last line end before the share: 13 of 18 bytes "
                               "put aside where 6 were asked for: give shorter lines";
    write_text("in", "abcd\nabcdefghijkl\n");
    coh_token_build_options options = options_for("in", COH_DATA_TEXT);
    options.held_out_path = folder_file("held");
    options.held_out = 3;
    const int entry_count = folder_count();
    assert_int_equal(coh_token_file_make(byte_tokenizer, &options, NULL), COH_ERR_CORRUPT);
    if (!strstr(coh_last_error(), says))
        fail_msg("%s", coh_last_error());
    assert_int_equal(folder_count(), entry_count);
    options.held_out = 0;
    options.validation_split = 0.36; /* 7 bytes, and 13 are put aside */
    assert_int_equal(coh_token_file_make(byte_tokenizer, &options, NULL), COH_OK);
    assert_text("out", "abcd\n");
}

static void a_file_that_is_no_token_file_is_not_replaced(void **state)
{
    (void)state;
    static const char text[] = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
    static const struct kept {
        const char *out, *held, *says;
    } all[] = {
        { "in", NULL, "the input" },
        { "notes", NULL, "no token file" },
        { "out", "in", "the input" },
        { "out", "notes", "no token file" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        char found[sizeof(text)] = "";
        write_text("in", text);
        write_text("notes", text);
        coh_token_build_options options = options_for("in", COH_DATA_JSONL);
        options.out_path = folder_file(all[i].out);
        options.held_out = all[i].held ? 2 : 0;
        options.held_out_path = all[i].held ? folder_file(all[i].held) : NULL;
        if (coh_token_file_make(byte_tokenizer, &options, NULL) != COH_ERR_ARGUMENT ||
            !strstr(coh_last_error(), all[i].says))
            fail_msg("case %zu: %s", i, coh_last_error());
        for (int name = 0; name < 2; name++) {
            FILE *file = fopen(folder_file(name ? "notes" : "in"), "r");
            assert_non_null(file);
            assert_int_equal(fread(found, 1, sizeof(found), file), sizeof(text) - 1);
            assert_string_equal(found, text);
            fclose(file);
        }
    }
    write_text("empty", "");
    coh_token_build_options options = options_for("in", COH_DATA_JSONL);
    options.out_path = folder_file("empty");
    for (int time = 0; time < 2; time++) /* of an empty file, then of a token file */
        assert_int_equal(coh_token_file_make(byte_tokenizer, &options, NULL), COH_OK);
}

static void a_failed_build_leaves_nothing_behind(void **state)
{
    (void)state;
    write_text("in", GOOD_CHAT "\n" GOOD_CHAT "\n" GOOD_CHAT "\n" GOOD_CHAT "\n");
    coh_token_build_options options = options_for("in", COH_DATA_CHAT);
    options.fitted = 1;
    assert_int_equal(coh_token_file_make(byte_tokenizer, &options, NULL), COH_ERR_ARGUMENT);
    assert_string_equal(coh_last_error(),
                        "documents are fitted into windows: give the tokens of one");
    options.fitted = 0;
    options.separate = 1;
    assert_int_equal(coh_token_file_make(byte_tokenizer, &options, NULL), COH_ERR_ARGUMENT);
    assert_string_equal(coh_last_error(),
                        "only documents that are fitted into windows are marked to be separate");
    options.fitted = 1;
    options.window = 6;
    options.held_out = 2;
    options.held_out_path = folder_file("held");
    int entry_count = folder_count();
    for (uint64_t n = 1;; n++) {
        alloc_fail_nth(n);
        coh_status status = coh_token_file_make(byte_tokenizer, &options, NULL);
        int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        if (!was_hit) {
            assert_int_equal(status, COH_OK);
            assert_true(n > 12);
            break;
        }
        assert_int_equal(status, COH_ERR_MEMORY);
        assert_int_equal(folder_count(), entry_count);
    }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(each_line_is_a_document_and_its_end),
        IN_FOLDER(documents_that_no_window_holds_whole_are_counted),
        IN_FOLDER(lines_in_utf_16_are_refused_by_name),
        IN_FOLDER(what_python_s_json_takes_beyond_json_is_read),
        IN_FOLDER(files_of_lines_in_a_folder_are_told),
        IN_FOLDER(a_folder_is_its_jsonl_files_in_byte_order),
        IN_FOLDER(lines_longer_than_a_block_are_read_whole),
        IN_FOLDER(a_line_beyond_all_bounds_is_refused),
        IN_FOLDER(malformed_lines_are_refused_by_file_and_line),
        IN_FOLDER(malformed_conversations_are_refused_by_file_and_line),
        IN_FOLDER(what_holds_no_line_is_refused),
        IN_FOLDER(of_a_conversation_only_the_assistants_part_is_a_target),
        IN_FOLDER(an_aligned_document_has_windows_of_its_own),
        IN_FOLDER(windows_in_which_nothing_counts_are_left_out),
        IN_FOLDER(alignment_and_mask_are_part_of_the_identity),
        IN_FOLDER(a_share_is_put_aside_by_bytes_and_seed_alone),
        IN_FOLDER(a_folder_s_share_is_the_same_for_any_threads_and_names),
        IN_FOLDER(shares_that_leave_a_part_empty_are_refused),
        IN_FOLDER(a_text_is_cut_at_the_last_line_end_before_the_share),
        IN_FOLDER(a_cut_that_holds_out_more_than_twice_the_share_is_refused),
        IN_FOLDER(a_file_that_is_no_token_file_is_not_replaced),
        IN_FOLDER(a_failed_build_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, open_bytes, close_bytes);
}
