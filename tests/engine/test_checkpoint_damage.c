/* A checkpoint that differs from what was saved is refused, and the message names the place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <inttypes.h>

#include "tests/engine/checkpoint_fixture.h"

static char folder[PATH_MAX];
static char path[PATH_MAX + 64];
static const char *const files[] = { "work.bin", "m.bin", "v.bin", "hashes.bin", "manifest.json" };

static int set_up(void **state)
{
    (void)state;
    fixture_folder(folder);
    snprintf(path, sizeof(path), "%s/step-3", folder);
    return fixture_save(path, 3, "{\"text\": \"held\"}", NULL) == COH_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_folder_remove(folder);
    return 0;
}

static const char *file_name(const char *file)
{
    static char name[PATH_MAX + 96];
    snprintf(name, sizeof(name), "%s/%s", path, file);
    return name;
}

static void flip(const char *file, uint64_t byte, int bit)
{
    unsigned char value;
    int fd = open(file_name(file), O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &value, 1, (off_t)byte), 1);
    value ^= (unsigned char)(1u << bit);
    assert_int_equal(pwrite(fd, &value, 1, (off_t)byte), 1);
    close(fd);
}

static uint64_t file_bytes(const char *file)
{
    struct stat facts;
    assert_int_equal(stat(file_name(file), &facts), 0);
    return (uint64_t)facts.st_size;
}

/* Opens and checks everything. */
static coh_status whole(void)
{
    coh_checkpoint *checkpoint;
    coh_status status = coh_checkpoint_open(path, &checkpoint);
    if (status == COH_OK)
        status = coh_checkpoint_check(checkpoint, NULL);
    coh_checkpoint_close(checkpoint);
    return status;
}

/* Finds the tensor and grain that contain one float of a part's file. */
static void place_of(int part, uint64_t element, uint32_t *out_tensor, uint64_t *out_grain)
{
    for (uint32_t t = 0;; t++) {
        uint64_t elements = part >= fixture_parts(t) ? 0 : fixture_tensors[t].elements;
        if (element < elements) {
            *out_tensor = t;
            *out_grain = element / 16384;
            return;
        }
        element -= elements;
    }
}

static void a_flipped_bit_of_data_is_named_by_file_tensor_and_grain(void **state)
{
    (void)state;
    char text[256];
    for (int part = 0; part < 3; part++) {
        uint64_t bytes = file_bytes(files[part]);
        for (uint64_t i = 0; i < 24; i++) {
            uint32_t tensor;
            uint64_t grain;
            /* first and last byte, then anywhere */
            uint64_t byte = i == 0   ? 0
                            : i == 1 ? bytes - 1
                                     : coh_rng_below(5, (uint64_t)part, i, bytes);
            flip(files[part], byte, (int)(i % 8));
            place_of(part, byte / 4, &tensor, &grain);
            assert_int_equal(whole(), COH_ERR_CORRUPT);
            snprintf(text, sizeof(text), "%s, tensor %s, grain %" PRIu64 " ", files[part],
                     fixture_tensors[tensor].name, grain);
            if (!strstr(coh_last_error(), text))
                fail_msg("byte %" PRIu64 ": '%s' not in '%s'", byte, text, coh_last_error());
            flip(files[part], byte, (int)(i % 8));
        }
    }
    assert_int_equal(whole(), COH_OK);
}

static void a_read_of_one_element_finds_damage_elsewhere_in_its_grain(void **state)
{
    (void)state;
    float value;
    coh_checkpoint *checkpoint;
    flip("work.bin", 4 * (1 + 1009 + 16000), 3);
    assert_int_equal(coh_checkpoint_open(path, &checkpoint), COH_OK);
    assert_int_equal(coh_checkpoint_read(checkpoint, 2, 0, 5, 1, &value), COH_ERR_CORRUPT);
    assert_int_equal(coh_checkpoint_read(checkpoint, 3, 0, 5, 1, &value), COH_OK);
    coh_checkpoint_close(checkpoint);
}

static void every_flipped_bit_of_hashes_and_manifest_is_found_at_open(void **state)
{
    (void)state;
    for (int file = 3; file < 5; file++)
        for (uint64_t byte = 0; byte < file_bytes(files[file]); byte++)
            for (int bit = (int)(byte % 2); bit < 8; bit += 2) {
                coh_checkpoint *checkpoint;
                flip(files[file], byte, bit);
                if (coh_checkpoint_open(path, &checkpoint) != COH_ERR_CORRUPT)
                    fail_msg("%s byte %" PRIu64 " bit %d", files[file], byte, bit);
                assert_non_null(strstr(coh_last_error(), files[file]));
                flip(files[file], byte, bit);
            }
    assert_int_equal(whole(), COH_OK);
}

static void a_file_of_another_length_is_refused(void **state)
{
    (void)state;
    for (int file = 0; file < 5; file++) {
        char saved[2 * PATH_MAX + 128];
        uint64_t bytes = file_bytes(files[file]);
        const uint64_t lengths[] = { 0, 1, bytes / 2, bytes - 1, bytes + 1, bytes + 4096 };
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
            coh_checkpoint *checkpoint;
            snprintf(saved, sizeof(saved), "cp '%s' '%s/copy'", file_name(files[file]), folder);
            assert_int_equal(system(saved), 0);
            assert_int_equal(truncate(file_name(files[file]), (off_t)lengths[i]), 0);
            assert_int_equal(coh_checkpoint_open(path, &checkpoint), COH_ERR_CORRUPT);
            assert_non_null(strstr(coh_last_error(), files[file]));
            snprintf(saved, sizeof(saved), "%s/copy", folder);
            assert_int_equal(rename(saved, file_name(files[file])), 0);
        }
    }
    assert_int_equal(whole(), COH_OK);
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    char away[PATH_MAX + 16];
    snprintf(away, sizeof(away), "%s/away", folder);
    for (int file = 0; file < 5; file++) {
        coh_checkpoint *checkpoint;
        assert_int_equal(rename(file_name(files[file]), away), 0);
        assert_int_equal(coh_checkpoint_open(path, &checkpoint), COH_ERR_CORRUPT);
        assert_non_null(strstr(coh_last_error(), files[file]));
        assert_non_null(strstr(coh_last_error(), "missing"));
        assert_int_equal(mkdir(file_name(files[file]), 0777), 0);
        assert_int_not_equal(coh_checkpoint_open(path, &checkpoint), COH_OK);
        assert_int_equal(rmdir(file_name(files[file])), 0);
        assert_int_equal(rename(away, file_name(files[file])), 0);
    }
    assert_int_equal(whole(), COH_OK);
}

static void a_sealed_manifest_with_a_wrong_word_is_refused(void **state)
{
    (void)state;
    static char text[16384], changed[16384];
    /* text in the manifest, its replacement, a word of the message */
    static const char *const edits[][3] = {
        { "\"step\": 3", "\"step\": 3, \"step\": 4", "duplicate" },
        { "\"text\": \"held\"", "\"text\": 1, \"text\": 2", "duplicate" },
        { "\"step\": 3", "\"step\": -3",
          "entry step: expected a whole number from 0 on, found -3" },
        { "\"step\": 3", "\"step\": 3.5", "entry step: expected a whole number" },
        { "\"step\": 3", "\"stop\": 3", "entry stop: it is not known" },
        { "\"step\": 3", "\"step\": 3, \"extra\": 0", "entry extra: it is not known" },
        { "\"version\": 2", "\"version\": 4", "newer release" },
        { "\"version\": 2", "\"version\": 3", "frozen" },
        { "\"version\": 2", "\"version\": \"2\"", "not of a checkpoint" },
        { "cohobate checkpoint", "another checkpoint", "not of a checkpoint" },
        { "\"grain_elements\": 16384", "\"grain_elements\": 8192", "grains of 8192" },
        { "[128, 128]", "[128, 129]", "the tensors need" },
        { "[128, 128]", "[128, 0]", "shape[1]: expected a whole number from 1 on, found 0" },
        { "[128, 128]", "[128, -128]", "shape[1]: expected" },
        { "[128, 128]", "[1099511627776, 1099511627776]",
          "shape[1]: it makes the tensor too large" },
        { "[128, 128]", "[2, 2, 2, 2, 2, 512]", "shape" },
        { "[128, 128]", "[]", "shape" },
        { "[128, 128]", "\"128\"", "shape" },
        { "[128, 128]", "[64, 256]", "hashes.bin" }, /* the same bytes, another model */
        { "\"scale\"", "\"long.weight\"", "twice" },
        { "\"scale\"", "7", "name: expected a text, found 7" },
        { "\"optimizer\": null", "\"optimizer\": 0",
          "optimizer: expected a text or null, found 0" },
        { "\"optimizer\": null, \"streams\": []",
          "\"optimizer\": \"adamw\", \"streams\": [\"m\", \"v\"]", "need" },
        { "\"m.bin\"", "\"n.bin\"", "entry files.m.bin: expected a whole number" },
        { "\"applied_count\": 3", "\"applied_count\": 4", "hashes.bin" },
        { "\"note\": {", "\"note\": [], \"node\": {", "entry node: it is not known" },
        { "\"hash\": \"", "\"hash\": \"0", "entry hash: expected 16 hexadecimal digits" },
    };
    FILE *file = fopen(file_name("manifest.json"), "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    size_t body = bytes - strlen(",\n  \"manifest_hash\": \"0123456789abcdef\"\n}\n");
    text[body] = '\0';
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        coh_checkpoint *checkpoint;
        const char *at = strstr(text, edits[i][0]);
        assert_non_null(at);
        int length = snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text,
                              edits[i][1], at + strlen(edits[i][0]));
        fixture_seal_manifest(path, changed, (size_t)length);
        if (coh_checkpoint_open(path, &checkpoint) != COH_ERR_CORRUPT)
            fail_msg("taken: %s", edits[i][1]);
        if (!strstr(coh_last_error(), edits[i][2]))
            fail_msg("'%s' not in '%s'", edits[i][2], coh_last_error());
    }
    fixture_seal_manifest(path, text, body);
    assert_int_equal(whole(), COH_OK);
}

static void foreign_bytes_are_no_manifest(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",     "{",        "{}",   "[]",
        "null", "\x00\x01", "GGUF", "{\"format\": \"cohobate plan\", \"version\": 1}"
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        coh_checkpoint *checkpoint;
        FILE *file = fopen(file_name("manifest.json"), "w");
        assert_non_null(file);
        fputs(texts[i], file);
        fclose(file);
        assert_int_equal(coh_checkpoint_open(path, &checkpoint), COH_ERR_CORRUPT);
        assert_null(checkpoint);
    }
    /* nesting that would exhaust the stack of a careless parser */
    FILE *file = fopen(file_name("manifest.json"), "w");
    assert_non_null(file);
    for (int i = 0; i < 1000000; i++)
        fputc('[', file);
    fclose(file);
    assert_int_equal(whole(), COH_ERR_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_flipped_bit_of_data_is_named_by_file_tensor_and_grain,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_read_of_one_element_finds_damage_elsewhere_in_its_grain,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_flipped_bit_of_hashes_and_manifest_is_found_at_open,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_of_another_length_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_missing_file_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_sealed_manifest_with_a_wrong_word_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(foreign_bytes_are_no_manifest, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
