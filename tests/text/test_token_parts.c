/* A long file of JSON lines that is read in parts gives the same lines, bytes and messages as if it
 * were read from end to end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cohobate/text.h"
#include "tests/faults/alloc_faults.h"
#include "tests/length.h"
#include "tests/text/byte_tokenizer.h"
#include "tests/text/folder.h"
#include "tests/text/same_file.h"
#include "text/lines.h"

/* ---- the lines of parts ---- */

enum { READ_MOST = 64 };

typedef struct read_line {
    uint64_t number;
    char text[8];
} read_line;

/* Reads the lines of [begin, end), with their numbers if they are wanted. */
static size_t read_part(const char *path, uint64_t begin, uint64_t end, int counts,
                        read_line *out_lines)
{
    coh_lines lines;
    size_t count = 0;
    json_t *object;
    assert_int_equal(coh_lines_open(path, &lines), COH_OK);
    coh_lines_part(&lines, begin, end);
    for (;;) {
        assert_int_equal(coh_lines_next(&lines, &object), COH_OK);
        if (!object)
            break;
        if (counts)
            assert_int_equal(coh_lines_count(&lines), COH_OK);
        read_line *line = &out_lines[count++];
        *line = (read_line){ .number = counts ? lines.number : 0 };
        snprintf(line->text, sizeof(line->text), "%s",
                 json_string_value(json_object_get(object, "t")));
        json_decref(object);
    }
    coh_lines_close(&lines);
    return count;
}

/* The oracle is the text: line n of it has "t": "n", or is blank. */
static void each_line_is_in_one_part_and_has_its_number(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"t\":\"1\"}\n{\"t\":\"2\"}\n{\"t\":\"3\"}\n",
        "{\"t\":\"1\"}\n\n\r\n{\"t\":\"4\"}\r\n   \n{\"t\":\"6\"}",
        "\n\n\n\n{\"t\":\"5\"}\n\n\n\n",
        "\xef\xbb\xbf{\"t\":\"1\"}\n{\"t\": \"2\", \"x\": \"a long line that is in several "
        "parts\"}\n"
        "{\"t\":\"3\"}",
        "{\"t\":\"1\"}",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const size_t bytes = strlen(texts[i]);
        folder_write("in", texts[i], bytes);
        for (uint64_t part = 1; part <= bytes + 1; part++)
            for (int counts = 0; counts < 2; counts++) {
                read_line all[READ_MOST];
                size_t count = 0;
                char expected[16];
                for (uint64_t begin = 0; begin < bytes; begin += part)
                    count += read_part(folder_file("in"), begin, begin + part, counts, all + count);
                size_t found = 0;
                for (const char *at = texts[i]; (at = strstr(at, "\"t\":")) != NULL; at++, found++)
                    assert_true(found < count);
                assert_int_equal(count, found);
                for (size_t n = 0; n < count; n++) {
                    snprintf(expected, sizeof(expected), "%d", (int)all[n].number);
                    if (counts)
                        assert_string_equal(all[n].text, expected);
                    else
                        assert_true(n == 0 || strcmp(all[n - 1].text, all[n].text) < 0);
                }
            }
    }
}

/* A byte order mark is one at the beginning of a file only. */
static void a_part_that_begins_with_a_mark_is_bad(void **state)
{
    (void)state;
    static const char bytes[] = "{\"t\":\"1\"}\n\xef\xbb\xbf{\"t\":\"2\"}\n";
    coh_lines lines;
    json_t *object;
    folder_write("in", bytes, sizeof(bytes) - 1);
    assert_int_equal(coh_lines_open(folder_file("in"), &lines), COH_OK);
    coh_lines_part(&lines, 5, UINT64_MAX);
    assert_int_equal(coh_lines_next(&lines, &object), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "in:2: no JSON"));
    coh_lines_close(&lines);
}

/* The number of a line counts those before it, which may be gone by then. */
static void a_file_that_became_shorter_is_said_with_what_to_do(void **state)
{
    (void)state;
    static const char bytes[] = "{\"t\":\"1\"}\n{\"t\":\"2\"}\n{\"t\":\"3\"}\n";
    coh_lines lines;
    json_t *object;
    folder_write("in", bytes, sizeof(bytes) - 1);
    assert_int_equal(coh_lines_open(folder_file("in"), &lines), COH_OK);
    coh_lines_part(&lines, 12, UINT64_MAX);
    assert_int_equal(coh_lines_next(&lines, &object), COH_OK);
    json_decref(object);
    assert_int_equal(truncate(folder_file("in"), 3), 0);
    assert_int_equal(coh_lines_count(&lines), COH_ERR_IO);
    assert_non_null(strstr(coh_last_error(), "in became shorter while it was read: give the "
                                             "command again"));
    coh_lines_close(&lines);
}

static void arrays_and_the_like_have_no_parts(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        int are_lines;
    } files[] = { { "a", "{}\n", 1 },        { "a", "", 1 },        { "a.json", "{}\n{}\n", 1 },
                  { "a.json", "{\n}\n", 0 }, { "a", "\n [{}]", 0 }, { "a", "\xff\xfe{", 0 } };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        folder_write(files[i].name, files[i].text, strlen(files[i].text));
        assert_int_equal(coh_lines_are_lines(folder_file(files[i].name)), files[i].are_lines);
    }
    assert_int_equal(coh_lines_are_lines(folder_file("none")), 0);
}

/* ---- files ---- */

enum { FILE_BYTES = 900 << 10, THREADS = 4 };
static const int threads[THREADS] = { 1, 2, 3, 8 };

typedef struct text {
    char bytes[FILE_BYTES + 400000];
    size_t count;
    uint64_t line_count;
} text;

static text made;

static void add_line(const char *line)
{
    const size_t bytes = strlen(line);
    memcpy(made.bytes + made.count, line, bytes);
    made.count += bytes;
    made.bytes[made.count++] = '\n';
    made.line_count++;
}

/* An object that is a text and a conversation, of about so many bytes. */
static void add_object(uint64_t number, size_t bytes)
{
    static char line[300000], filler[200000];
    memset(filler, 'a' + (int)(number % 26), bytes);
    filler[bytes] = '\0';
    snprintf(line, sizeof(line),
             "{\"text\": \"%d %.200000s\", \"prompt\": \"say %d\", \"completion\": \"%.99s\"}",
             (int)number, filler, (int)number, filler);
    add_line(line);
}

/* Lines of no, few and many bytes; two are longer than a part of 64 KiB. */
static void make_lines(void)
{
    made.count = made.line_count = 0;
    for (uint64_t i = 0; made.count < FILE_BYTES; i++) {
        if (i % 7 == 3)
            add_line(i % 2 ? "" : "  \r");
        add_object(i,
                   i == 40 || i == 90 ? 150000 : coh_rng_below(1, 2, i, i % 50 == 5 ? 9000 : 900));
    }
    made.count--; /* the last line has no end */
}

static coh_token_build_options options_for(coh_data_form form)
{
    static char path[PATH_MAX]; /* the results of folder_file are reused */
    coh_token_build_options options;
    coh_token_build_options_init(&options);
    options.form = form;
    snprintf(path, sizeof(path), "%s", folder_file("in.jsonl"));
    options.in_path = path;
    return options;
}

static coh_status make(coh_token_build_options options, int thread_count,
                       coh_token_build_facts *out_facts)
{
    char out[40], held_out[40];
    snprintf(out, sizeof(out), "out-%d", thread_count);
    snprintf(held_out, sizeof(held_out), "held-%d", thread_count);
    options.out_path = folder_file(out);
    options.held_out_path = folder_file(held_out);
    options.thread_count = thread_count;
    *out_facts = (coh_token_build_facts){ .struct_bytes = sizeof(*out_facts) };
    return coh_token_file_make(byte_tokenizer, &options, out_facts);
}

static void assert_same_by_threads(coh_token_build_options options)
{
    coh_token_build_facts one = { 0 }, many;
    for (int i = 0; i < THREADS; i++) {
        if (make(options, threads[i], i ? &many : &one) != COH_OK)
            fail_msg("%d threads: %s", threads[i], coh_last_error());
        if (i == 0)
            continue;
        assert_memory_equal(&many, &one, sizeof(one));
        assert_same_file("out", threads[i]);
        assert_same_file("held", threads[i]);
    }
    assert_true(one.document_count > 10 && one.held_out_document_count > 5);
}

static void lines_become_the_same_bytes_by_any_number_of_threads(void **state)
{
    (void)state;
    make_lines();
    folder_write("in.jsonl", made.bytes, made.count);
    for (int form = COH_DATA_JSONL; form <= COH_DATA_CHAT; form++) {
        coh_token_build_options options = options_for((coh_data_form)form);
        options.sequence = 256;
        options.held_out = 4;
        assert_same_by_threads(options);
        options.held_out = 0;
        options.validation_split = 0.3;
        options.window = 64;
        options.fitted = form == COH_DATA_CHAT;
        assert_same_by_threads(options);
    }
    coh_token_build_options pairs = options_for(COH_DATA_JSONL);
    pairs.field = "prompt,completion";
    pairs.validation_split = 0.5;
    assert_same_by_threads(pairs);
}

/* Parts of 64 KiB begin where lines do, and a byte before and behind. */
static void parts_that_begin_with_a_line_lose_none(void **state)
{
    (void)state;
    enum { LINE_BYTES = 64, LINES = 8192 };
    for (int shift = -1; shift <= 1; shift++) {
        made.count = made.line_count = 0;
        for (int i = 0; i < LINES; i++) {
            char line[LINE_BYTES + 2];
            const int bytes = LINE_BYTES - 1 + (i == 0 ? shift : 0);
            const int used = snprintf(line, sizeof(line), "{\"text\": \"%d\"}", i);
            memset(line + used, ' ', (size_t)(bytes - used));
            line[bytes] = '\0';
            add_line(line);
        }
        folder_write("in.jsonl", made.bytes, made.count);
        coh_token_build_options options = options_for(COH_DATA_JSONL);
        options.held_out = 2;
        assert_same_by_threads(options);
        coh_token_build_facts facts;
        assert_int_equal(make(options, 8, &facts), COH_OK);
        assert_int_equal(facts.document_count + facts.held_out_document_count, LINES);
    }
}

/* Long files of a folder are read in parts, too, next to short ones and arrays. */
static void files_of_a_folder_are_read_in_parts_in_their_order(void **state)
{
    (void)state;
    assert_int_equal(mkdir(folder_file("files"), 0777), 0);
    make_lines();
    folder_write("files/a.jsonl", "{\"text\": \"first\"}", 17);
    folder_write("files/b.jsonl", made.bytes, made.count);
    for (size_t i = 0; i < made.count; i++) /* elements of an array */
        if (i > 0 && made.bytes[i] == '\n' && made.bytes[i - 1] == '}')
            made.bytes[i] = ',';
    memmove(made.bytes + 1, made.bytes, made.count);
    made.bytes[0] = '[';
    made.bytes[made.count + 1] = ']';
    folder_write("files/c.json", made.bytes, made.count + 2);
    coh_token_build_options options = options_for(COH_DATA_JSONL);
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s", folder_file("files"));
    options.in_path = path;
    options.held_out = 3;
    assert_same_by_threads(options);
}

/* ---- bad lines ---- */

static void bad_lines_of_parts_are_counted_and_the_first_is_named(void **state)
{
    (void)state;
    uint64_t first = 0, bad = 0;
    char begin[PATH_MAX + 32];
    made.count = made.line_count = 0;
    for (uint64_t i = 0; made.count < FILE_BYTES; i++) {
        add_object(i, 300);
        if (made.count > FILE_BYTES / 3 && i % 5 == 0) {
            add_line(i % 2 ? "{}" : "x");
            first = first ? first : made.line_count;
            bad++;
        }
    }
    folder_write("in.jsonl", made.bytes, made.count);
    coh_token_build_options options = options_for(COH_DATA_JSONL);
    options.held_out = 2;
    options.skip_bad = 1;
    assert_same_by_threads(options);
    coh_token_build_facts facts;
    snprintf(begin, sizeof(begin), "%s:%d: ", folder_file("in.jsonl"), (int)first);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(make(options, threads[i], &facts), COH_OK);
        assert_int_equal(facts.skipped_count, bad);
        assert_memory_equal(facts.first_skipped, begin, strlen(begin));
    }
}

/* The message of one thread, which has the numbers of ten lines and the number of all. */
static void assert_refused_alike(const char *says)
{
    char said[COH_ERROR_TEXT_BYTES] = "";
    const int entries = folder_count();
    for (int i = 0; i < THREADS; i++) {
        coh_token_build_facts facts;
        assert_int_equal(make(options_for(COH_DATA_JSONL), threads[i], &facts), COH_ERR_CORRUPT);
        if (i == 0)
            snprintf(said, sizeof(said), "%s", coh_last_error());
        assert_string_equal(coh_last_error(), said);
        assert_non_null(strstr(said, says));
        assert_int_equal(folder_count(), entries);
    }
}

/* Returns the bytes that this process has read; 0: the system does not say it. */
static uint64_t bytes_read(void)
{
    unsigned long long bytes = 0;
    FILE *file = fopen("/proc/self/io", "r");
    if (file && fscanf(file, "rchar: %llu", &bytes) != 1)
        bytes = 0;
    if (file)
        fclose(file);
    return bytes;
}

/* The lines before a bad one are counted once, not by each thread: a look at the beginning of the
 * file (at most 1 MiB), its lines, and the count. */
static void a_place_is_counted_once_for_all_threads(void **state)
{
    (void)state;
    made.count = made.line_count = 0;
    for (uint64_t i = 0; made.count < FILE_BYTES; i++)
        add_line(made.count > FILE_BYTES / 2 && i % 8 == 0 ? "{}" : "{\"text\": \"a text of it\"}");
    folder_write("in.jsonl", made.bytes, made.count);
    for (int i = 1; i < THREADS; i++) {
        coh_token_build_options options = options_for(COH_DATA_JSONL);
        coh_token_build_facts facts;
        options.skip_bad = 1;
        const uint64_t before = bytes_read();
        assert_int_equal(make(options, threads[i], &facts), COH_OK);
        assert_non_null(strstr(facts.first_skipped, "in.jsonl:"));
        assert_true(bytes_read() - before < (uint64_t)made.count * 13 / 4);
    }
}

static void a_refusal_names_the_bad_lines_of_all_parts(void **state)
{
    (void)state;
    char says[64];
    made.count = made.line_count = 0;
    for (uint64_t i = 0; i < 900; i++)
        add_line("");
    uint64_t first = 0;
    for (uint64_t i = 0; made.count < FILE_BYTES; i++) {
        add_object(i, 900);
        if (i % 90 == 60) {
            add_line("{}");
            first = first ? first : made.line_count;
        }
    }
    folder_write("in.jsonl", made.bytes, made.count);
    snprintf(says, sizeof(says), "in.jsonl:%d: the object has no field", (int)first);
    assert_refused_alike(says);
    assert_refused_alike(" lines of the file are bad, also ");
    /* the first bad line is the first of a part of 64 KiB, and all behind it are bad */
    made.count = made.line_count = 0;
    for (int i = 0; i < 8192; i++) {
        char line[64];
        snprintf(line, sizeof(line), "%-63s", i < 2048 ? "{\"text\": \"a\"}" : "{}");
        add_line(line);
    }
    folder_write("in.jsonl", made.bytes, made.count);
    assert_refused_alike("in.jsonl:2049: the object has no field");
    assert_refused_alike("; 6144 lines of the file are bad, also 2050, ");
    /* no good line before the first bad one, which is behind the first parts */
    made.count = made.line_count = 0;
    while (made.count < FILE_BYTES / 2)
        add_line("                                                                ");
    first = made.line_count + 1;
    for (int i = 0; i < 2000; i++)
        add_line("{}");
    folder_write("in.jsonl", made.bytes, made.count);
    snprintf(says, sizeof(says), "in.jsonl:%d: the object has no field", (int)first);
    assert_refused_alike(says);
    assert_refused_alike("at least 1000 lines of the file are bad, ");
}

static coh_status count_calls(void *context)
{
    (void)__atomic_add_fetch((int *)context, 1, __ATOMIC_RELAXED);
    return COH_OK;
}

/* Each line that is looked at asks whether to go on: 1,000 of them, and the first of each part. */
static void a_wrong_form_is_found_without_reading_the_file_by_each_thread(void **state)
{
    (void)state;
    made.count = made.line_count = 0;
    while (made.count < FILE_BYTES)
        add_line("{\"content\": \"a\"}");
    folder_write("in.jsonl", made.bytes, made.count);
    for (int i = 0; i < THREADS; i++) {
        coh_token_build_options options = options_for(COH_DATA_JSONL);
        coh_token_build_facts facts;
        int calls = 0;
        options.go_on = count_calls;
        options.go_on_context = &calls;
        assert_int_equal(make(options, threads[i], &facts), COH_ERR_CORRUPT);
        assert_non_null(strstr(coh_last_error(), "at least 1000 lines of the file are bad, "));
        assert_true(calls < 1100);
    }
}

/* ---- stopping ---- */

static coh_status stop(void *context)
{
    int *left = context;
    return __atomic_sub_fetch(left, 1, __ATOMIC_RELAXED) > 0 ? COH_OK : COH_ERR_STOPPED;
}

static void a_stop_ends_all_threads_and_leaves_nothing(void **state)
{
    (void)state;
    make_lines();
    folder_write("in.jsonl", made.bytes, made.count);
    for (int i = 0; i < THREADS; i++)
        for (int after = 1; after < 600; after += 199) {
            coh_token_build_options options = options_for(COH_DATA_JSONL);
            coh_token_build_facts facts;
            int left = after;
            options.go_on = stop;
            options.go_on_context = &left;
            assert_int_equal(make(options, threads[i], &facts), COH_ERR_STOPPED);
            assert_int_equal(folder_count(), 1);
        }
}

/* ---- files that change ---- */

/* Another file takes the name of the one that is read, at the first line. */
static coh_status replace(void *context)
{
    int *calls = context;
    if (__atomic_add_fetch(calls, 1, __ATOMIC_RELAXED) == 1 &&
        rename(folder_file("new.jsonl"), folder_file("in.jsonl")) != 0)
        abort();
    return COH_OK;
}

static void a_file_that_is_replaced_while_it_is_read_is_no_mixture(void **state)
{
    (void)state;
    make_lines();
    for (int i = 0; i < 2; i++) {
        coh_token_build_options options = options_for(COH_DATA_JSONL);
        coh_token_build_facts facts;
        int calls = 0;
        folder_write("in.jsonl", made.bytes, made.count);
        folder_write("new.jsonl", made.bytes, made.count); /* of as many bytes */
        options.go_on = replace;
        options.go_on_context = &calls;
        if (threads[i] == 1) { /* it is opened once, and read to its end */
            assert_int_equal(make(options, 1, &facts), COH_OK);
            assert_int_equal(remove(folder_file("out-1")), 0);
            continue;
        }
        assert_int_equal(make(options, threads[i], &facts), COH_ERR_IO);
        assert_non_null(strstr(coh_last_error(), "in.jsonl was replaced or changed while it was "
                                                 "read: give the command again"));
        assert_int_equal(folder_count(), 1);
    }
}

static void every_failing_allocation_is_said_and_leaves_nothing_behind(void **state)
{
    (void)state;
    make_lines();
    folder_write("in.jsonl", made.bytes, made.count);
    for (uint64_t n = 1;; n += 1 + n / (test_is_brief() ? 2 : 4)) { /* later ones are alike */
        const coh_token_build_options options = options_for(COH_DATA_CHAT);
        coh_token_build_facts facts;
        alloc_fail_nth(n);
        const coh_status status = make(options, 3, &facts);
        const int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        if (!was_hit) {
            assert_int_equal(status, COH_OK);
            break;
        }
        if (status != COH_OK) {
            assert_int_equal(status, COH_ERR_MEMORY);
            assert_int_equal(folder_count(), 1);
        }
        remove(folder_file("out-3"));
    }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(each_line_is_in_one_part_and_has_its_number),
        IN_FOLDER(a_part_that_begins_with_a_mark_is_bad),
        IN_FOLDER(a_file_that_became_shorter_is_said_with_what_to_do),
        IN_FOLDER(arrays_and_the_like_have_no_parts),
        IN_FOLDER(lines_become_the_same_bytes_by_any_number_of_threads),
        IN_FOLDER(parts_that_begin_with_a_line_lose_none),
        IN_FOLDER(files_of_a_folder_are_read_in_parts_in_their_order),
        IN_FOLDER(bad_lines_of_parts_are_counted_and_the_first_is_named),
        IN_FOLDER(a_place_is_counted_once_for_all_threads),
        IN_FOLDER(a_refusal_names_the_bad_lines_of_all_parts),
        IN_FOLDER(a_wrong_form_is_found_without_reading_the_file_by_each_thread),
        IN_FOLDER(a_stop_ends_all_threads_and_leaves_nothing),
        IN_FOLDER(a_file_that_is_replaced_while_it_is_read_is_no_mixture),
        IN_FOLDER(every_failing_allocation_is_said_and_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, open_bytes, close_bytes);
}
