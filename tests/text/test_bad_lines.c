/* Lines of JSON that are no documents: named together in one refusal, or left out and counted. The
 * expected numbers are of lines that are written here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cohobate/text.h"
#include "tests/faults/alloc_faults.h"
#include "tests/text/byte_tokenizer.h"
#include "tests/text/folder.h"
#include "text/bad_lines.h"

#define GOOD  "{\"text\": \"a\"}\n"
#define CHAT  "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, "
#define REPLY "{\"role\": \"assistant\", \"content\": \"a\"}]}\n"

static coh_token_build_options options_for(coh_data_form form, int skip_bad)
{
    coh_token_build_options options;
    coh_token_build_options_init(&options);
    options.in_path = folder_file("in");
    options.out_path = folder_file("out");
    options.form = form;
    options.skip_bad = skip_bad;
    return options;
}

static coh_status make(const char *text, const coh_token_build_options *options,
                       coh_token_build_facts *out_facts)
{
    folder_write("in", text, strlen(text));
    *out_facts = (coh_token_build_facts){ .struct_bytes = sizeof(*out_facts) };
    return coh_token_file_make(byte_tokenizer, options, out_facts);
}

/* ---- refused ---- */

static void assert_refused(const char *text, coh_data_form form, const char *first,
                           const char *others)
{
    char begin[PATH_MAX + 32];
    const coh_token_build_options options = options_for(form, 0);
    coh_token_build_facts facts;
    const coh_status status = make(text, &options, &facts);
    snprintf(begin, sizeof(begin), "%s%s", folder_file("in"), first);
    if (status != COH_ERR_CORRUPT || strncmp(coh_last_error(), begin, strlen(begin)) != 0 ||
        !strstr(coh_last_error(), others) || strchr(coh_last_error(), '\n'))
        fail_msg("%s: %s: %s", text, coh_status_name(status), coh_last_error());
    assert_int_equal(folder_count(), 1);
}

static void a_refusal_names_the_other_bad_lines_of_the_file(void **state)
{
    (void)state;
    assert_refused(GOOD "{\n" GOOD, COH_DATA_JSONL, ":2: no JSON",
                   " (skip_bad leaves bad lines out)");
    assert_refused(GOOD "[1]\n\n{}\n" GOOD "{\"text\": 1}\n" GOOD, COH_DATA_JSONL,
                   ":2: not a JSON object",
                   "; 3 lines of the file are bad, also 4, 6 (skip_bad leaves them out)");
    assert_refused("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n" GOOD "{}\n{}\n{", COH_DATA_JSONL,
                   ":1: the object has no field",
                   "; 12 lines of the file are bad, also 2, 3, 4, 5, 6, 7, 8, 9, 11, ... (skip");
    assert_refused(CHAT REPLY CHAT "1]}\n" CHAT REPLY "{\"messages\": 1}\n", COH_DATA_CHAT,
                   ":2: message 2 is a number", "; 2 lines of the file are bad, also 4 (skip");
    /* the elements of an array, up to where its structure is lost */
    assert_refused("[{\"text\": \"a\"},\n{},\n{\"text\": \"a\" 1},\n{}]", COH_DATA_JSONL,
                   ":2: the object has no field", "; 3 lines of the file are bad, also 3, 4 (skip");
    assert_refused("[{\"text\": \"a\"},\n{},\n{}\n{}]", COH_DATA_JSONL, ":2: the object has no",
                   "; 2 lines of the file are bad, also 3 (skip");
}

/* The form is wrong, not the lines: leaving them out would leave nothing, and a file of many is not
 * read to its end. */
static void without_a_good_line_none_is_offered_to_be_left_out(void **state)
{
    (void)state;
    enum { MANY = 1000 };
    static char text[MANY * 3 + sizeof(GOOD)];
    assert_refused("{}\n", COH_DATA_JSONL, ":1: the object has no field", "remove the object");
    assert_null(strstr(coh_last_error(), "skip_bad"));
    assert_refused("{}\n{}\n{\n", COH_DATA_JSONL, ":1: the object has no field",
                   "; 3 lines of the file are bad, also 2, 3, and none is good");
    for (int i = 0; i < MANY; i++)
        strcat(text, "{}\n");
    for (int is_good = 0; is_good < 2; is_good++) {
        if (is_good) /* behind the last line that is looked at */
            strcat(text, GOOD);
        assert_refused(text, COH_DATA_JSONL, ":1: the object has no field",
                       "; at least 1000 lines of the file are bad, also 2, 3, 4, 5, 6, 7, 8, 9, "
                       "10, ..., and none so far is good");
    }
}

/* ---- left out ---- */

static void assert_skipped(const char *text, coh_data_form form, uint64_t kept, uint64_t skipped,
                           const char *reasons, const char *first)
{
    char begin[PATH_MAX + 32];
    const coh_token_build_options options = options_for(form, 1);
    coh_token_build_facts facts;
    if (make(text, &options, &facts) != COH_OK)
        fail_msg("%s: %s", text, coh_last_error());
    snprintf(begin, sizeof(begin), "%s%s", folder_file("in"), first);
    assert_int_equal(facts.document_count, kept);
    assert_int_equal(facts.skipped_count, skipped);
    assert_string_equal(facts.skipped_reasons, reasons);
    assert_memory_equal(facts.first_skipped, begin, strlen(begin));
}

static void bad_lines_are_left_out_and_counted_by_reason(void **state)
{
    (void)state;
    assert_skipped(GOOD "{\n[1]\n" GOOD "{}\n{\"text\": 1}\n{\"text\": null}", COH_DATA_JSONL, 2, 5,
                   "1 not JSON, 1 not an object, 1 without the field \"text\", "
                   "2 whose field \"text\" is no text",
                   ":2: no JSON at byte");
    assert_skipped(CHAT "1]}\n" CHAT REPLY "{}\nx\n", COH_DATA_CHAT, 1, 3,
                   "1 not JSON, 1 without a conversation, 1 without a list of messages",
                   ":1: message 2 is a number");
    assert_skipped("[{\"text\": \"a\"},\n{},\n{\"text\": \"a\" 1},\n{\"text\": \"b\"}]",
                   COH_DATA_JSONL, 2, 2, "1 not JSON, 1 without the field \"text\"",
                   ":2: the object has no field");
}

#define MESSAGES(text) "{\"messages\": [" text "]}\n"
#define USER           "{\"role\": \"user\", \"content\": \"q\"}"

/* The numbers add up to those of the lines, whatever is wrong with them. */
static void each_reason_is_told_in_words_of_its_own(void **state)
{
    (void)state;
    static const char *const lines[][2] = {
        { "{\n", "not JSON" },
        { "[1]\n", "not an object" },
        { "{}\n", "without a conversation" },
        { "{\"messages\": [1], \"conversations\": [1]}\n", "with two conversations" },
        { MESSAGES(""), "without a list of messages" },
        { MESSAGES("{\"role\": \"judge\", \"content\": \"q\"}"), "with an unknown role" },
        { MESSAGES("{\"role\": \"user\", \"content\": null}"), "with a content that is no text" },
        { MESSAGES("{\"role\": \"user\"}"), "with a content that is no text" },
        { MESSAGES("{\"role\": \"user\", \"content\": \"q\", \"name\": 1}"),
          "with a member that is not written" },
        { "{\"instruction\": \"\", \"output\": \"a\"}\n", "with an empty content" },
        { MESSAGES(USER), "without an answer that is learned" },
    };
    char text[4096] = CHAT REPLY, reason[128];
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        snprintf(text, sizeof(text), "%s%s", CHAT REPLY, i == 0 ? "{\n[1\n" : lines[i][0]);
        snprintf(reason, sizeof(reason), "%d %s", i == 0 ? 2 : 1, lines[i][1]);
        assert_skipped(text, COH_DATA_CHAT, 1, i == 0 ? 2 : 1, reason, ":2: ");
    }
}

/* The field that a pair lacks is named. A list that is too long ends where a reason does. */
static void a_reason_names_its_field(void **state)
{
    (void)state;
    coh_token_build_options options = options_for(COH_DATA_JSONL, 1);
    coh_token_build_facts facts;
    options.field = "question,answer";
    const char *text = "{\"question\": \"a\", \"answer\": \"b\"}\n{\"answer\": \"b\"}\n"
                       "{\"question\": \"a\"}\n{\"question\": \"a\", \"answer\": 1}\n{}\n"
                       "{\"question\": null, \"answer\": \"b\"}\n";
    assert_int_equal(make(text, &options, &facts), COH_OK);
    assert_string_equal(facts.skipped_reasons,
                        "2 without the field \"question\", 1 without the field \"answer\", "
                        "1 whose field \"question\" is no text, "
                        "1 whose field \"answer\" is no text");
    options.field = "a name of a field that is longer than forty characters";
    assert_int_equal(
        make("{\"a name of a field that is longer than forty characters\": \"\"}\n{}\n", &options,
             &facts),
        COH_OK);
    assert_string_equal(facts.skipped_reasons,
                        "1 without the field \"a name of a field that is longer than fo\"");
    coh_bad_lines bad = { .counts = {
                              [COH_BAD_JSON] = 1, [COH_BAD_OBJECT] = 1, [COH_BAD_ROLE] = 1 } };
    char told[36];
    coh_bad_lines_describe(&bad, NULL, told, sizeof(told));
    assert_string_equal(told, "1 not JSON, 1 not an object, ...");
}

/* A token above the model's vocabulary, and one that every document ends with. */
static void a_token_outside_the_vocabulary_is_a_bad_line_unless_all_have_it(void **state)
{
    (void)state;
    coh_token_build_options options = options_for(COH_DATA_JSONL, 1);
    coh_token_build_facts facts;
    options.vocabulary = 256; /* without the end of a text */
    assert_int_equal(make(GOOD, &options, &facts), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "the tokenizer ends each document with"));
    options.field = "p,c";
    options.vocabulary = 98; /* "a" and "b" */
    assert_int_equal(
        make("{\"p\": \"c\", \"c\": \"a\"}\n{\"p\": \"z\", \"c\": \"a\"}\n", &options, &facts),
        COH_ERR_CORRUPT);
    assert_non_null(
        strstr(coh_last_error(), "in holds no line that is a document: all 2 are bad; "));
    assert_non_null(strstr(coh_last_error(), "in:1: token 1 is \"c\" (id 99)"));
}

static void what_no_line_is_at_fault_for_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "[" GOOD "," GOOD, "[" GOOD GOOD "]", "[1]", "\xff\xfe{\0", "", "{}\n{}\n"
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const coh_token_build_options options = options_for(COH_DATA_JSONL, 1);
        coh_token_build_facts facts;
        assert_int_equal(make(texts[i], &options, &facts), COH_ERR_CORRUPT);
        assert_int_equal(folder_count(), 1);
    }
}

/* ---- threads ---- */

enum { FILES = 12 };

static void write_files(void)
{
    assert_int_equal(mkdir(folder_file("files"), 0777), 0);
    for (int i = 0; i < FILES; i++) {
        char name[40], text[4096] = "";
        for (int line = 0; line < 40; line++)
            strcat(text, i > 2 && line % (i + 2) == 1 ? (line % 2 ? "{}\n" : "x\n") : GOOD);
        snprintf(name, sizeof(name), "files/%02d.jsonl", i);
        folder_write(name, text, strlen(text));
    }
}

static void any_number_of_threads_finds_the_same_bad_lines(void **state)
{
    (void)state;
    coh_token_build_facts facts[2];
    char said[2][1024];
    write_files();
    for (int skip_bad = 0; skip_bad < 2; skip_bad++) {
        for (int i = 0; i < 2; i++) {
            coh_token_build_options options = options_for(COH_DATA_JSONL, skip_bad);
            options.in_path = folder_file("files");
            options.thread_count = i ? 4 : 1;
            facts[i] = (coh_token_build_facts){ .struct_bytes = sizeof(facts[i]) };
            const coh_status status = coh_token_file_make(byte_tokenizer, &options, &facts[i]);
            assert_int_equal(status, skip_bad ? COH_OK : COH_ERR_CORRUPT);
            snprintf(said[i], sizeof(said[i]), "%s", coh_last_error());
        }
        if (skip_bad) {
            assert_memory_equal(&facts[1], &facts[0], sizeof(facts[0]));
        } else {
            assert_string_equal(said[1], said[0]);
            assert_non_null(strstr(said[0], "files/03.jsonl:2: "));
        }
    }
    assert_non_null(strstr(facts[0].first_skipped, "files/03.jsonl:2: "));
    assert_true(facts[0].skipped_count > FILES);
}

static void a_failed_allocation_is_not_taken_for_a_bad_line(void **state)
{
    (void)state;
    for (int skip_bad = 0; skip_bad < 2; skip_bad++)
        for (uint64_t n = 1;; n++) {
            const coh_token_build_options options = options_for(COH_DATA_CHAT, skip_bad);
            coh_token_build_facts facts;
            alloc_fail_nth(n);
            const coh_status status =
                make(CHAT REPLY CHAT "1]}\n{\nx\n" CHAT REPLY "{}\n", &options, &facts);
            const int was_hit = alloc_fault_was_hit();
            alloc_fail_nth(0);
            if (!was_hit) {
                assert_int_equal(status, skip_bad ? COH_OK : COH_ERR_CORRUPT);
                assert_true(n > 12);
                break;
            }
            assert_int_equal(status, COH_ERR_MEMORY);
            assert_int_equal(folder_count(), 1);
        }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_refusal_names_the_other_bad_lines_of_the_file),
        IN_FOLDER(without_a_good_line_none_is_offered_to_be_left_out),
        IN_FOLDER(bad_lines_are_left_out_and_counted_by_reason),
        IN_FOLDER(each_reason_is_told_in_words_of_its_own),
        IN_FOLDER(a_reason_names_its_field),
        IN_FOLDER(a_token_outside_the_vocabulary_is_a_bad_line_unless_all_have_it),
        IN_FOLDER(what_no_line_is_at_fault_for_is_refused),
        IN_FOLDER(any_number_of_threads_finds_the_same_bad_lines),
        IN_FOLDER(a_failed_allocation_is_not_taken_for_a_bad_line),
    };
    return cmocka_run_group_tests(tests, open_bytes, close_bytes);
}
