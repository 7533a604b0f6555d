/* Invalid or unsupported tokenizer files: each is refused with a message.
 * fixtures/record_refused.py wrote them, and records the libraries' verdicts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/text/refused.h"

/* TOKENIZERS: the folder of folders; REFUSED: the recorded cases. */

static const char *field(const json_t *one, const char *key)
{
    const char *value = json_string_value(json_object_get(one, key));
    if (!value)
        fail_msg("%s: a case has no \"%s\"", REFUSED, key);
    return value;
}

/* Appends bytes to the model; repeated fields replace earlier ones. */
static char *with_tail(const char *text, size_t bytes, const char *hex, size_t *out_bytes)
{
    size_t tail_bytes = strlen(hex) / 2;
    char *longer = malloc(bytes + tail_bytes + 1);
    assert_non_null(longer);
    memcpy(longer, text, bytes);
    for (size_t i = 0; i < tail_bytes; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        longer[bytes + i] = (char)byte;
    }
    *out_bytes = bytes + tail_bytes;
    return longer;
}

static void write_case(const json_t *one, const char *file)
{
    char path[PATH_MAX], *other;
    size_t bytes, other_bytes;
    snprintf(path, sizeof(path), "%s/%s/%s", TOKENIZERS, field(one, "fixture"), file);
    char *text = folder_read(path, &bytes);
    if (json_object_get(one, "tail"))
        other = with_tail(text, bytes, field(one, "tail"), &other_bytes);
    else
        other = changed(text, bytes, field(one, "find"), field(one, "replacement"), &other_bytes);
    folder_write(file, other, other_bytes);
    free(other);
    free(text);
}

/* All are refused: those that the library refuses, and those it accepts, for a reason given in the
 * file. */
static void every_recorded_file_is_refused_with_what_is_wrong(void **state)
{
    (void)state;
    json_error_t error;
    json_t *all = json_load_file(REFUSED, 0, &error), *one;
    size_t index, refused_count = 0;
    assert_non_null(all);
    json_array_foreach(all, index, one)
    {
        const char *file = field(one, "file");
        write_case(one, file);
        assert_refused(folder_path, field(one, "sentence"), index);
        assert_refused(folder_file(file), field(one, "sentence"), index);
        int is_refused = strcmp(field(one, "reference"), "refused") == 0;
        assert_true(is_refused || field(one, "why")[0] != '\0');
        refused_count += (size_t)is_refused;
        remove(folder_file(file));
    }
    assert_true(refused_count >= 20);
    json_decref(all);
}

static void a_model_of_another_kind_is_refused_with_what_to_use(void **state)
{
    (void)state;
    folder_write("tokenizer.model", "IQ== 0\nIg== 1\n", 14); /* Llama 3's own format */
    assert_refused(folder_path, "use its tokenizer.json", 100);
    folder_write("tokenizer.model", "", 0);
    assert_refused(folder_path, "no pieces", 101);
}

static void a_tokenizer_without_a_decoder_is_refused(void **state)
{
    (void)state;
    size_t bytes, changed_bytes;
    char *text = folder_read(TOKENIZERS "/gpt2/tokenizer.json", &bytes);
    char *decoder = strstr(text, "\"decoder\":{"), *end = strchr(decoder, '}');
    char part[300];
    snprintf(part, sizeof(part), "%.*s", (int)(end + 1 - decoder), decoder);
    char *other = changed(text, bytes, part, "\"decoder\":null", &changed_bytes);
    folder_write("tokenizer.json", other, changed_bytes);
    assert_refused(folder_path, "there is no decoder", 0);
    free(other);
    free(text);
}

static void a_cut_off_file_is_refused_wherever_it_ends(void **state)
{
    (void)state;
    static const char *const files[] = { "llama3/tokenizer.json", "spm-user/tokenizer.model" };
    for (size_t i = 0; i < 2; i++) {
        char path[PATH_MAX];
        size_t bytes;
        snprintf(path, sizeof(path), "%s/%s", TOKENIZERS, files[i]);
        char *text = folder_read(path, &bytes);
        for (size_t cut = 0; cut < bytes - 1; cut += 1 + cut / 50) {
            folder_write("cut", text, cut);
            assert_refused(folder_file("cut"), folder_file("cut"), cut);
        }
        free(text);
    }
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(every_recorded_file_is_refused_with_what_is_wrong),
        IN_FOLDER(a_model_of_another_kind_is_refused_with_what_to_use),
        IN_FOLDER(a_tokenizer_without_a_decoder_is_refused),
        IN_FOLDER(a_cut_off_file_is_refused_wherever_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
