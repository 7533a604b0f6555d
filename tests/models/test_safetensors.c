/* One safetensors file: which files are accepted, how they are read, and that they are written back
 * unchanged. Oracles: verdicts recorded from the reference reader (safetensors_cases.py), bytes
 * that the test put into the file, files that the reference wrote. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>

#include "base/half.h"
#include "base/rng.h"
#include "models/safetensors.h"
#include "tests/faults/alloc_faults.h"
#include "tests/text/folder.h"

/* ---- files ---- */

/* Writes a file of `header` and `data`, correct except for errors in the header. */
static void write_file(const char *name, const char *header, const void *data, size_t data_bytes)
{
    size_t header_bytes = strlen(header);
    uint8_t *bytes = malloc(8 + header_bytes + data_bytes + 1);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)header_bytes >> (8 * i));
    memcpy(bytes + 8, header, header_bytes + 1); /* data overwrite its NUL */
    if (data_bytes)
        memcpy(bytes + 8 + header_bytes, data, data_bytes);
    folder_write(name, bytes, 8 + header_bytes + data_bytes);
    free(bytes);
}

static coh_safetensors *open_file(const char *name)
{
    coh_safetensors *model = NULL;
    if (coh_safetensors_open(folder_file(name), &model) != COH_OK)
        fail_msg("%s: %s", name, coh_last_error());
    return model;
}

/* Checks for one message about `name`, fit for a terminal. */
static void assert_sentence(const char *name, const char *part)
{
    const char *sentence = coh_last_error();
    if (!strstr(sentence, name) || !strstr(sentence, part))
        fail_msg("\"%s\" does not say \"%s\" of \"%s\"", sentence, part, name);
    assert_true(strlen(sentence) < 1000);
    for (const char *at = sentence; *at; at++)
        assert_false((unsigned char)*at < 0x20 || *at == 0x7f);
}

static void assert_refused(const char *name, coh_status expected, const char *part)
{
    coh_safetensors *model = (coh_safetensors *)1;
    coh_status status = coh_safetensors_open(folder_file(name), &model);
    if (status != expected)
        fail_msg("%s: status %d, not %d: %s", name, status, expected, coh_last_error());
    assert_null(model);
    assert_sentence(name, part);
}

static int count_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* ---- verdicts ---- */

typedef struct recorded {
    char *name, *reference, *ours;
    uint8_t *bytes;
    size_t byte_count;
} recorded;

static int hex_digit(char letter)
{
    return letter <= '9' ? letter - '0' : letter - 'a' + 10;
}

/* Splits one line of safetensors_cases.txt in place. */
static recorded take_line(char *line)
{
    recorded one = { .name = strsep(&line, "\t") };
    one.reference = strsep(&line, "\t");
    one.ours = strsep(&line, "\t");
    assert_non_null(line);
    one.byte_count = strlen(line) / 2;
    one.bytes = (uint8_t *)line;
    for (size_t i = 0; i < one.byte_count; i++)
        one.bytes[i] = (uint8_t)(hex_digit(line[2 * i]) << 4 | hex_digit(line[2 * i + 1]));
    return one;
}

static void judge(const recorded *one)
{
    const char *file = "case.safetensors";
    folder_write(file, one->bytes, one->byte_count);
    if (strcmp(one->ours, "ok") != 0) {
        assert_refused(file, COH_ERR_CORRUPT, one->ours);
        return;
    }
    /* The reference accepts everything that we accept. */
    assert_string_equal(one->reference, "ok");
    size_t count;
    coh_safetensors *model = open_file(file);
    const coh_safetensors_tensor *tensors = coh_safetensors_tensors(model, &count);
    uint64_t data_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        uint8_t data[64];
        assert_true(tensors[i].bytes <= sizeof(data));
        assert_int_equal(coh_safetensors_read(model, &tensors[i], 0, tensors[i].bytes, data),
                         COH_OK);
        assert_memory_equal(data, one->bytes + tensors[i].offset, tensors[i].bytes);
        assert_ptr_equal(coh_safetensors_find(model, tensors[i].name), &tensors[i]);
        data_bytes += tensors[i].bytes;
    }
    uint64_t header_bytes;
    memcpy(&header_bytes, one->bytes, sizeof(header_bytes));
    assert_int_equal(8 + header_bytes + data_bytes, one->byte_count);
    coh_safetensors_close(model);
}

static void every_recorded_file_gets_its_verdict(void **state)
{
    (void)state;
    int malformed = 0, refused_alike = 0, descriptors = count_descriptors();
    char *text = folder_read(SAFETENSORS_CASES, NULL), *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line;) {
        recorded one = take_line(line);
        malformed += strcmp(one.ours, "ok") != 0;
        refused_alike += strcmp(one.reference, "refused") == 0;
        judge(&one);
    }
    free(text);
    assert_int_equal(count_descriptors(), descriptors);
    /* A truncated fixture would pass all cases. */
    assert_true(refused_alike >= 60);
    assert_true(malformed > refused_alike);
}

static const char two_tensors[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F32\",\"shape\":[1,2],"
    "\"data_offsets\":[0,8]},\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[8,14]}} ";

static void a_file_cut_off_anywhere_is_refused(void **state)
{
    (void)state;
    size_t bytes;
    write_file("whole.safetensors", two_tensors, "0123456789abcd", 14);
    char *whole = folder_read(folder_file("whole.safetensors"), &bytes);
    for (size_t i = 0; i < bytes; i++) {
        folder_write("cut.safetensors", whole, i);
        assert_refused("cut.safetensors", COH_ERR_CORRUPT, "");
    }
    folder_write("cut.safetensors", whole, bytes + 1); /* and with one byte more */
    assert_refused("cut.safetensors", COH_ERR_CORRUPT, "the file has 15");
    free(whole);
}

/* The effect of a mutation is unknown beforehand. All accesses must stay within bounds (the
 * sanitizers check), and an accepted file must be covered by its tensors. */
static void a_mutated_file_is_refused_or_covered(void **state)
{
    (void)state;
    enum { MUTANTS = 6000, SEED = 17 };
    static const char letters[] = "{}[]\",:0123456789\\u/ \n\tF";
    size_t bytes;
    int accepted = 0;
    write_file("whole.safetensors", two_tensors, "0123456789abcd", 14);
    char *whole = folder_read(folder_file("whole.safetensors"), &bytes);
    for (uint64_t i = 0; i < MUTANTS; i++) {
        char *mutant = malloc(bytes);
        assert_non_null(mutant);
        memcpy(mutant, whole, bytes);
        uint64_t changes = 1 + coh_rng_below(SEED, i, 0, 3);
        for (uint64_t k = 1; k <= changes; k++) {
            uint64_t at = coh_rng_below(SEED, i, 3 * k, bytes);
            uint64_t draw = coh_rng_u64(SEED, i, 3 * k + 1);
            mutant[at] =
                draw & 1 ? (char)(draw >> 8) : letters[(draw >> 8) % (sizeof(letters) - 1)];
        }
        folder_write("mutant.safetensors", mutant, bytes);
        coh_safetensors *model;
        if (coh_safetensors_open(folder_file("mutant.safetensors"), &model) == COH_OK) {
            size_t count;
            uint64_t end = 0;
            const coh_safetensors_tensor *tensors = coh_safetensors_tensors(model, &count);
            for (size_t t = 0; t < count; t++) {
                assert_true(t == 0 || tensors[t].offset == end);
                end = tensors[t].offset + tensors[t].bytes;
            }
            assert_true(count == 0 || end == bytes);
            accepted++;
        }
        coh_safetensors_close(model);
        free(mutant);
    }
    free(whole);
    /* Else one kind was not tested: changed data and names are valid. */
    assert_in_range(accepted, 100, MUTANTS - 100);
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    assert_refused("missing.safetensors", COH_ERR_IO, "No such file");
    assert_int_equal(mkfifo(folder_file("pipe.safetensors"), 0600), 0);
    assert_refused("pipe.safetensors", COH_ERR_CORRUPT, "not a regular file");
    assert_int_equal(mkdir(folder_file("folder.safetensors"), 0700), 0);
    assert_refused("folder.safetensors", COH_ERR_ARGUMENT, "holds neither");
    assert_int_equal(coh_safetensors_open("", &(coh_safetensors *){ NULL }), COH_ERR_ARGUMENT);
}

/* ---- large ---- */

static void a_header_of_ten_to_the_eighth_is_the_longest(void **state)
{
    (void)state;
    const size_t limit = 100000000;
    char *header = malloc(limit + 2);
    assert_non_null(header);
    memset(header, ' ', limit + 1);
    header[limit + 1] = '\0';
    memcpy(header, "{}", 2);
    write_file("long.safetensors", header, NULL, 0);
    assert_refused("long.safetensors", COH_ERR_CORRUPT, "the format allows 100000000");
    header[limit] = '\0';
    write_file("long.safetensors", header, NULL, 0);
    free(header);
    coh_safetensors_close(open_file("long.safetensors"));
}

/* The file has holes, so it needs no disk space; a file system without holes does not let the file
 * grow. */
static void data_beyond_32_bits_are_found(void **state)
{
    (void)state;
    static const char header[] =
        "{\"large\":{\"dtype\":\"F16\",\"shape\":[3,1431655767],\"data_offsets\":[0,8589934602]},"
        "\"small\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8589934602,8589934610]}} ";
    const uint64_t begin = 8 + strlen(header), large_bytes = 8589934602;
    write_file("far.safetensors", header, NULL, 0);
    int fd = open(folder_file("far.safetensors"), O_WRONLY);
    assert_true(fd >= 0);
    if (ftruncate(fd, (off_t)(begin + large_bytes + 8)) != 0) {
        close(fd);
        skip(); /* no files of 8 GiB on this machine */
    }
    assert_int_equal(pwrite(fd, "fedcba98", 8, (off_t)(begin + large_bytes)), 8);
    assert_int_equal(pwrite(fd, "0123", 4, (off_t)(begin + large_bytes - 4)), 4);
    close(fd);

    uint8_t data[9] = { 0 };
    coh_safetensors *model = open_file("far.safetensors");
    const coh_safetensors_tensor *small = coh_safetensors_find(model, "small");
    const coh_safetensors_tensor *large = coh_safetensors_find(model, "large");
    assert_int_equal(coh_safetensors_read(model, small, 1, 7, data), COH_OK);
    assert_string_equal((char *)data, "edcba98");
    assert_int_equal(coh_safetensors_read(model, large, large_bytes - 4, 4, data), COH_OK);
    assert_memory_equal(data, "0123", 4);
    float number;
    assert_int_equal(coh_safetensors_read_numbers(model, large, 3ull * 1431655767 - 1, 1,
                                                  COH_DTYPE_F32, &number),
                     COH_OK);
    assert_true(number == coh_f32_of_f16('3' << 8 | '2'));
    /* The end of the tensor, and values that would overflow into it. */
    assert_int_equal(coh_safetensors_read(model, large, large_bytes, 1, data), COH_ERR_ARGUMENT);
    assert_int_equal(coh_safetensors_read(model, large, UINT64_MAX, 2, data), COH_ERR_ARGUMENT);
    assert_int_equal(coh_safetensors_read(model, large, 2, UINT64_MAX, data), COH_ERR_ARGUMENT);
    assert_int_equal(
        coh_safetensors_read_numbers(model, large, (uint64_t)1 << 63, 1, COH_DTYPE_F16, data),
        COH_ERR_ARGUMENT);
    assert_int_equal(coh_safetensors_read_numbers(model, large, 1, UINT64_MAX, COH_DTYPE_F16, data),
                     COH_ERR_ARGUMENT);
    coh_safetensors_close(model);
}

/* ---- reading ---- */

static void every_range_of_bytes_is_read(void **state)
{
    (void)state;
    uint8_t out[16];
    write_file("two.safetensors", two_tensors, "0123456789abcd", 14);
    coh_safetensors *model = open_file("two.safetensors");
    const coh_safetensors_tensor *b = coh_safetensors_find(model, "b");
    for (uint64_t begin = 0; begin <= 8; begin++)
        for (uint64_t end = begin; end <= 8; end++) {
            memset(out, 'x', sizeof(out));
            assert_int_equal(coh_safetensors_read(model, b, begin, end - begin, out), COH_OK);
            assert_memory_equal(out, &"01234567"[begin], end - begin);
            assert_int_equal(out[end - begin], 'x'); /* and no more bytes */
        }
    assert_int_equal(coh_safetensors_read(model, b, 8, 1, out), COH_ERR_ARGUMENT);
    assert_int_equal(coh_safetensors_read(model, b, 9, 0, out), COH_ERR_ARGUMENT);
    assert_sentence("tensor b", "beyond");
    assert_null(coh_safetensors_find(model, "c"));
    assert_null(coh_safetensors_find(model, ""));
    size_t pairs;
    const coh_safetensors_pair *metadata = coh_safetensors_metadata(model, 0, &pairs);
    assert_int_equal(pairs, 1);
    assert_string_equal(metadata[0].key, "format");
    assert_string_equal(metadata[0].value, "pt");
    assert_int_equal(coh_safetensors_file_count(model), 1);
    assert_string_equal(coh_safetensors_file_name(model, 0), "two.safetensors");
    coh_safetensors_close(model);
}

static void a_file_that_shrinks_is_noticed(void **state)
{
    (void)state;
    uint8_t out[16];
    write_file("shrinks.safetensors", two_tensors, "0123456789abcd", 14);
    coh_safetensors *model = open_file("shrinks.safetensors");
    const coh_safetensors_tensor *a = coh_safetensors_find(model, "a");
    assert_int_equal(truncate(folder_file("shrinks.safetensors"), (off_t)a->offset + 3), 0);
    assert_int_equal(coh_safetensors_read(model, a, 0, 3, out), COH_OK);
    assert_int_equal(coh_safetensors_read(model, a, 0, 4, out), COH_ERR_IO);
    assert_sentence("shrinks.safetensors", "shorter");
    coh_safetensors_close(model);
}

/* More than twice the 4096 numbers that are converted at a time. */
enum { NUMBERS = 9001 };

static void numbers_are_converted_at_every_place(void **state)
{
    (void)state;
    static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_F16, COH_DTYPE_BF16 };
    static const uint64_t ranges[][2] = { { 0, NUMBERS }, { 0, 0 },    { NUMBERS, 0 },
                                          { 0, 4096 },    { 1, 4096 }, { 4095, 4097 },
                                          { 7, 1 },       { 8999, 2 }, { 100, 8192 } };
    static float values[NUMBERS], data[NUMBERS], out[NUMBERS], expected[NUMBERS];
    for (uint64_t i = 0; i < NUMBERS; i++)
        values[i] = (float)coh_rng_normal(3, 1, i);
    for (size_t from = 0; from < 3; from++) {
        char header[256];
        size_t bytes = NUMBERS * coh_dtype_bytes(dtypes[from]);
        snprintf(header, sizeof(header),
                 "{\"x\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%zu]}}",
                 coh_safetensors_dtype_name(dtypes[from]), NUMBERS, bytes);
        coh_half_convert(COH_DTYPE_F32, values, dtypes[from], data, NUMBERS);
        write_file("numbers.safetensors", header, data, bytes);
        coh_safetensors *model = open_file("numbers.safetensors");
        const coh_safetensors_tensor *x = coh_safetensors_find(model, "x");
        for (size_t to = 0; to < 3; to++)
            for (size_t r = 0; r < sizeof(ranges) / sizeof(ranges[0]); r++) {
                size_t width = coh_dtype_bytes(dtypes[to]);
                coh_half_convert(dtypes[from],
                                 (char *)data + ranges[r][0] * coh_dtype_bytes(dtypes[from]),
                                 dtypes[to], expected, ranges[r][1]);
                memset(out, 0xa5, sizeof(out));
                assert_int_equal(coh_safetensors_read_numbers(model, x, ranges[r][0], ranges[r][1],
                                                              dtypes[to], out),
                                 COH_OK);
                assert_memory_equal(out, expected, ranges[r][1] * width);
                for (size_t i = ranges[r][1] * width; i < sizeof(out); i++)
                    assert_int_equal(((uint8_t *)out)[i], 0xa5);
            }
        coh_safetensors_close(model);
    }
}

static void dtypes_without_numbers_are_refused_by_name(void **state)
{
    (void)state;
    uint8_t out[8];
    write_file("mask.safetensors",
               "{\"h.0.attn.bias\":{\"dtype\":\"BOOL\",\"shape\":[4],\"data_offsets\":[0,4]},"
               "\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
               "\0\1\0\1\0\0\200\77", 8);
    coh_safetensors *model = open_file("mask.safetensors");
    const coh_safetensors_tensor *mask = coh_safetensors_find(model, "h.0.attn.bias");
    assert_int_equal(coh_safetensors_read_numbers(model, mask, 0, 4, COH_DTYPE_F32, out),
                     COH_ERR_CORRUPT);
    assert_sentence("h.0.attn.bias", "dtype BOOL");
    coh_dtype dtype;
    assert_int_equal(coh_safetensors_dtype(mask, &dtype), COH_ERR_CORRUPT);
    /* Its bytes and its neighbour's numbers are readable. */
    assert_int_equal(coh_safetensors_read(model, mask, 1, 3, out), COH_OK);
    assert_memory_equal(out, "\1\0\1", 3);
    const coh_safetensors_tensor *w = coh_safetensors_find(model, "w");
    assert_int_equal(coh_safetensors_read_numbers(model, w, 0, 1, COH_DTYPE_BF16, out), COH_OK);
    assert_memory_equal(out, "\200\77", 2);
    assert_int_equal(coh_safetensors_read_numbers(model, w, 0, 1, COH_DTYPE_I32, out),
                     COH_ERR_ARGUMENT);
    coh_safetensors_close(model);
}

/* ---- out of memory ---- */

static void opening_survives_every_failed_allocation(void **state)
{
    (void)state;
    write_file("two.safetensors", two_tensors, "0123456789abcd", 14);
    const char *path = folder_file("two.safetensors");
    int descriptors = count_descriptors();
    for (uint64_t n = 1;; n++) {
        coh_safetensors *model;
        alloc_fail_nth(n);
        coh_status status = coh_safetensors_open(path, &model);
        int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        if (!was_hit) {
            assert_int_equal(status, COH_OK);
            coh_safetensors_close(model);
            assert_true(n > 5);
            break;
        }
        assert_int_equal(status, COH_ERR_MEMORY);
        assert_null(model);
        assert_true(coh_last_error()[0] != '\0');
    }
    assert_int_equal(count_descriptors(), descriptors);
}

int main(void)
{
    temporary_in_memory();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_recorded_file_gets_its_verdict),
        cmocka_unit_test(a_file_cut_off_anywhere_is_refused),
        cmocka_unit_test(a_mutated_file_is_refused_or_covered),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(a_header_of_ten_to_the_eighth_is_the_longest),
        cmocka_unit_test(data_beyond_32_bits_are_found),
        cmocka_unit_test(every_range_of_bytes_is_read),
        cmocka_unit_test(a_file_that_shrinks_is_noticed),
        cmocka_unit_test(numbers_are_converted_at_every_place),
        cmocka_unit_test(dtypes_without_numbers_are_refused_by_name),
        cmocka_unit_test(opening_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests_name("safetensors", tests, folder_create, folder_remove);
}
