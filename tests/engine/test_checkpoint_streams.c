/* A checkpoint holds whatever streams its optimizers have: raw blocks are written and read back
 * byte for byte, damage is named, and version 1 reads as AdamW. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <sys/wait.h>
#include <xxhash.h>

#include "tests/engine/checkpoint_fixture.h"
#include "tests/faults/file_faults.h"

enum { TENSORS = 4, STREAMS = 4, ADAMW = 0, BLOCKS = 1, SCALE = 1, CODE = 2 };
#define BLOCKS_ELEMENTS 17030 /* a grain, and blocks of which the last is short */

static const coh_state_stream streams[STREAMS] = {
    { "m", 4, 1, 1 }, { "v", 4, 1, 1 }, { "code", 1, 1, 0 }, { "scale", 4, 128, 1 }
};
/* clang-format off */
static const coh_logical_tensor tensors[TENSORS] = {
    { "adamw.weight", { COH_DTYPE_F32, 2, { 37, 613 } }, 22681, "adamw", 2, { 0, 1 } },
    { "blocks.weight", { COH_DTYPE_F32, 2, { 130, 131 } }, BLOCKS_ELEMENTS, "adam_8", 2, { 3, 2 } },
    { "frozen.weight", { COH_DTYPE_F32, 2, { 5, 7 } }, 35, NULL, 0, { 0 } },
    { "plain.weight", { COH_DTYPE_F32, 1, { 300 } }, 300, "sgd", 0, { 0 } },
};
/* clang-format on */
static const coh_logical_table mixed = { tensors, TENSORS, streams, STREAMS, COH_FROZEN_IN_WORK };
static const char *const files[] = { "work.bin",    "m.bin",      "v.bin",        "code.state",
                                     "scale.state", "hashes.bin", "manifest.json" };
enum { FILES = sizeof(files) / sizeof(files[0]) };

static char folder[PATH_MAX];
static char path[PATH_MAX + 64];
static _Alignas(64) char expected[4 * FIXTURE_ELEMENTS], found[4 * FIXTURE_ELEMENTS];

/* Returns the stream of a part, as the table says. */
static const coh_state_stream *form_of(uint32_t tensor, int part)
{
    static const coh_state_stream work = { "work", 4, 1, 1 };
    return part == 0 ? &work : &streams[tensors[tensor].streams[part - 1]];
}

/* Makes a part's expected bytes; returns their number. Codes have every value of a byte. */
static uint64_t fill(uint32_t tensor, int part, char *data)
{
    const coh_state_stream *form = form_of(tensor, part);
    const uint64_t bytes = coh_state_bytes(form, tensors[tensor].elements);
    if (form->is_f32)
        fixture_fill(8, part, tensor, 0, bytes / 4, (float *)(void *)data);
    for (uint64_t i = 0; !form->is_f32 && i < bytes; i++)
        data[i] = (char)(coh_rng_below(8, tensor, i, 256) - 128);
    return bytes;
}

static coh_status put_all(coh_checkpoint_writer *writer)
{
    for (uint32_t t = 0; t < TENSORS; t++)
        for (int part = 0; part <= tensors[t].stream_count; part++) {
            fill(t, part, expected);
            coh_status status =
                coh_checkpoint_writer_put(writer, part, t, 0, tensors[t].elements, expected);
            if (status != COH_OK)
                return status;
        }
    return COH_OK;
}

static coh_status save(const char *to, uint64_t *out_hash)
{
    const coh_checkpoint_seal seal = { .step = 8, .applied_count = 7, .numeric_fingerprint = 6 };
    coh_checkpoint_writer *writer;
    coh_status status = coh_checkpoint_writer_create(&mixed, NULL, &writer);
    if (status == COH_OK)
        status = coh_checkpoint_writer_begin(writer, to, NULL);
    if (status == COH_OK)
        status = put_all(writer);
    if (status == COH_OK)
        status = coh_checkpoint_writer_finish(writer, &seal, out_hash);
    coh_checkpoint_writer_destroy(writer);
    return status;
}

static int set_up(void **state)
{
    (void)state;
    fixture_folder(folder);
    snprintf(path, sizeof(path), "%s/step-8", folder);
    return save(path, NULL) == COH_OK ? 0 : -1;
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

static uint64_t file_bytes(const char *file)
{
    struct stat facts;
    assert_int_equal(stat(file_name(file), &facts), 0);
    return (uint64_t)facts.st_size;
}

static void touch(const char *file)
{
    FILE *made = fopen(file_name(file), "w");
    assert_non_null(made);
    fclose(made);
}

/* Opens and checks everything. */
static coh_status whole(uint64_t *out_hash)
{
    coh_checkpoint *checkpoint;
    coh_status status = coh_checkpoint_open(path, &checkpoint);
    if (status == COH_OK)
        status = coh_checkpoint_check(checkpoint, out_hash);
    coh_checkpoint_close(checkpoint);
    return status;
}

/* The hash as logical_hash.h describes it. */
static uint64_t hash_by_hand(uint64_t applied_count)
{
    uint64_t total = 0, grains[8];
    for (uint32_t t = 0; t < TENSORS; t++) {
        const coh_logical_tensor *tensor = &tensors[t];
        int64_t shape[7] = { tensor->optimizer != NULL, tensor->shape.rank };
        for (int d = 0; d < tensor->shape.rank; d++)
            shape[2 + d] = tensor->shape.dim[d];
        total = XXH3_64bits_withSeed(tensor->name, strlen(tensor->name), total);
        total = XXH3_64bits_withSeed(shape, sizeof(shape), total);
        for (int part = 0; part <= tensor->stream_count; part++) {
            const uint64_t bytes = fill(t, part, expected);
            const uint64_t grain_bytes = coh_state_bytes(form_of(t, part), 16384);
            size_t count = 0;
            for (uint64_t at = 0; at < bytes; at += grain_bytes)
                grains[count++] =
                    XXH3_64bits(expected + at, bytes - at < grain_bytes ? bytes - at : grain_bytes);
            total = XXH3_64bits_withSeed(grains, 8 * count, total);
        }
    }
    return XXH3_64bits_withSeed(&applied_count, 8, total);
}

/* ---- writing and reading ---- */

static void every_stream_reads_back_byte_for_byte(void **state)
{
    (void)state;
    coh_checkpoint *checkpoint;
    coh_checkpoint_facts facts = { .struct_bytes = sizeof(facts) };
    coh_checkpoint_tensor tensor;
    coh_state_stream stream;
    uint64_t hash;
    assert_int_equal(coh_checkpoint_open(path, &checkpoint), COH_OK);
    assert_int_equal(coh_checkpoint_facts_get(checkpoint, &facts), COH_OK);
    assert_int_equal(facts.stream_count, STREAMS);
    assert_true(facts.hash == hash_by_hand(7));
    for (int32_t s = 0; s <= STREAMS; s++) {
        const coh_state_stream *form = s == 0 ? form_of(0, 0) : &streams[s - 1];
        assert_int_equal(coh_checkpoint_stream_at(checkpoint, s, &stream), COH_OK);
        assert_string_equal(stream.name, form->name);
        assert_int_equal(stream.bytes_per_block, form->bytes_per_block);
        assert_int_equal(stream.elements_per_block, form->elements_per_block);
        assert_int_equal(stream.is_f32, form->is_f32);
    }
    assert_int_equal(coh_checkpoint_stream_at(checkpoint, -1, &stream), COH_ERR_ARGUMENT);
    assert_int_equal(coh_checkpoint_stream_at(checkpoint, STREAMS + 1, &stream), COH_ERR_ARGUMENT);
    for (uint32_t t = 0; t < TENSORS; t++) {
        assert_int_equal(coh_checkpoint_tensor_at(checkpoint, (int32_t)t, &tensor), COH_OK);
        assert_int_equal(tensor.optimizer != NULL, tensors[t].optimizer != NULL);
        if (tensor.optimizer)
            assert_string_equal(tensor.optimizer, tensors[t].optimizer);
        assert_int_equal(tensor.stream_count, tensors[t].stream_count);
        for (int part = 0; part <= tensor.stream_count; part++) {
            const int32_t number = part == 0 ? 0 : tensor.streams[part - 1];
            const uint64_t bytes = fill(t, part, expected);
            assert_int_equal(number, part == 0 ? 0 : tensors[t].streams[part - 1] + 1);
            found[bytes] = 42; /* nothing is written past the end */
            assert_int_equal(
                coh_checkpoint_read(checkpoint, (int32_t)t, number, 0, tensors[t].elements, found),
                COH_OK);
            assert_memory_equal(found, expected, bytes);
            assert_int_equal(found[bytes], 42);
        }
    }
    assert_int_equal(coh_checkpoint_check(checkpoint, &hash), COH_OK);
    assert_true(hash == facts.hash);
    coh_checkpoint_close(checkpoint);
}

static void files_have_the_bytes_of_the_blocks(void **state)
{
    (void)state;
    assert_int_equal(file_bytes("work.bin"), 4 * (22681 + 17030 + 35 + 300));
    assert_int_equal(file_bytes("m.bin"), 4 * 22681);
    assert_int_equal(file_bytes("v.bin"), 4 * 22681);
    assert_int_equal(file_bytes("code.state"), 17030);
    assert_int_equal(file_bytes("scale.state"), 4 * 134);
    assert_int_equal(file_bytes("hashes.bin"), 8 * (1 + STREAMS) * (2 + 2 + 1 + 1));
}

static void whole_blocks_can_be_read_and_cut_ones_not(void **state)
{
    (void)state;
    coh_checkpoint *checkpoint;
    const int32_t scale = 4, code = 3;
    assert_int_equal(coh_checkpoint_open(path, &checkpoint), COH_OK);
    fill(BLOCKS, SCALE, expected);
    for (uint64_t i = 0; i < 100; i++) {
        const uint64_t begin = coh_rng_below(1, 0, i, 134),
                       end = begin + coh_rng_below(1, 1, i, 135 - begin);
        const uint64_t last = 128 * end < BLOCKS_ELEMENTS ? 128 * end : BLOCKS_ELEMENTS;
        found[4 * (end - begin)] = 42;
        assert_int_equal(
            coh_checkpoint_read(checkpoint, BLOCKS, scale, 128 * begin, last - 128 * begin, found),
            COH_OK);
        assert_memory_equal(found, expected + 4 * begin, 4 * (end - begin));
        assert_int_equal(found[4 * (end - begin)], 42);
    }
    assert_int_equal(coh_checkpoint_read(checkpoint, BLOCKS, scale, 64, 64, found),
                     COH_ERR_ARGUMENT);
    assert_int_equal(coh_checkpoint_read(checkpoint, BLOCKS, scale, 128, 64, found),
                     COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "blocks of 128 elements"));
    assert_int_equal(coh_checkpoint_read(checkpoint, BLOCKS, code, 77, 3, found), COH_OK);
    fill(BLOCKS, CODE, expected);
    assert_memory_equal(found, expected + 77, 3);
    /* streams that a tensor lacks */
    assert_int_equal(coh_checkpoint_read(checkpoint, ADAMW, code, 0, 1, found), COH_ERR_ARGUMENT);
    assert_int_equal(coh_checkpoint_read(checkpoint, BLOCKS, 1, 0, 1, found), COH_ERR_ARGUMENT);
    assert_int_equal(coh_checkpoint_read(checkpoint, 2, 1, 0, 1, found), COH_ERR_ARGUMENT);
    assert_int_equal(coh_checkpoint_read(checkpoint, BLOCKS, 5, 0, 1, found), COH_ERR_ARGUMENT);
    coh_checkpoint_close(checkpoint);
}

/* The element is the first one of the broken block; codes may be any bytes. */
static void only_f32_blocks_are_looked_at_for_broken_numbers(void **state)
{
    (void)state;
    const float broken = NAN;
    for (int threads = 0; threads < 3; threads++) {
        coh_pool *pool = NULL;
        coh_checkpoint_writer *writer;
        if (threads > 0)
            assert_int_equal(coh_pool_create(threads, &pool), COH_OK);
        assert_int_equal(coh_checkpoint_writer_create(&mixed, pool, &writer), COH_OK);
        for (uint64_t block = 3; block < 134; block += 130) {
            char text[64];
            snprintf(text, sizeof(text),
                     "scale of tensor blocks.weight, element %" PRIu64 " is NaN", 128 * block);
            assert_int_equal(coh_checkpoint_remove(path), COH_OK);
            assert_int_equal(coh_checkpoint_writer_begin(writer, path, NULL), COH_OK);
            fill(BLOCKS, SCALE, expected);
            memcpy(expected + 4 * block, &broken, sizeof(broken));
            assert_int_equal(
                coh_checkpoint_writer_put(writer, SCALE, BLOCKS, 0, BLOCKS_ELEMENTS, expected),
                COH_ERR_NUMBER);
            assert_non_null(strstr(coh_last_error(), text));
            memset(expected, 0xff, BLOCKS_ELEMENTS);
            assert_int_equal(
                coh_checkpoint_writer_put(writer, CODE, BLOCKS, 0, BLOCKS_ELEMENTS, expected),
                COH_OK);
            coh_checkpoint_writer_abort(writer);
        }
        coh_checkpoint_writer_destroy(writer);
        coh_pool_destroy(pool);
    }
}

static const struct {
    coh_state_stream stream;
    coh_status expected; /* of the writer */
} forms[] = {
    { { "work", 4, 1, 1 }, COH_ERR_ARGUMENT },
    { { "hashes", 4, 1, 1 }, COH_ERR_ARGUMENT },
    { { "manifest", 4, 1, 1 }, COH_ERR_ARGUMENT },
    { { "M", 4, 1, 1 }, COH_ERR_ARGUMENT },
    { { "a/b", 4, 1, 1 }, COH_ERR_ARGUMENT },
    { { "", 4, 1, 1 }, COH_ERR_ARGUMENT },
    { { NULL, 4, 1, 1 }, COH_ERR_ARGUMENT },
    { { "sixteen_letters_", 4, 1, 1 }, COH_ERR_ARGUMENT },
    { { "fifteen_letters", 4, 1, 1 }, COH_OK },
    { { "v", 4, 1, 1 }, COH_ERR_ARGUMENT },
    { { "m", 0, 1, 0 }, COH_ERR_ARGUMENT },
    { { "m", 4097, 1, 0 }, COH_ERR_ARGUMENT },
    { { "m", 4096, 1024, 1 }, COH_OK },
    { { "m", 4, 0, 0 }, COH_ERR_ARGUMENT },
    { { "m", 4, 3, 0 }, COH_ERR_ARGUMENT },
    { { "m", 4, 2048, 0 }, COH_ERR_ARGUMENT },
    { { "m", 6, 1, 1 }, COH_ERR_ARGUMENT },
    { { "m", 6, 1, 0 }, COH_OK },
};
static const struct {
    const char *optimizer;
    int32_t count, streams[2];
    coh_status expected;
} uses[] = {
    { "adamw", 2, { 0, 1 }, COH_OK },
    { "adamw", 2, { 1, 1 }, COH_ERR_ARGUMENT },
    { "adamw", 1, { 2 }, COH_ERR_ARGUMENT },
    { "adamw", 1, { -1 }, COH_ERR_ARGUMENT },
    { "adamw", 1, { INT32_MAX }, COH_ERR_ARGUMENT },
    { "adamw", 9, { 0 }, COH_ERR_ARGUMENT },
    { "adamw", -1, { 0 }, COH_ERR_ARGUMENT },
    { NULL, 1, { 0 }, COH_ERR_ARGUMENT },
    { "AdamW", 1, { 0 }, COH_ERR_ARGUMENT },
};

static void a_table_that_no_manifest_could_hold_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const coh_state_stream two[2] = { { "v", 4, 1, 1 }, forms[i].stream };
        const coh_logical_table table = { &tensors[ADAMW], 1, two, 2, COH_FROZEN_IN_WORK };
        coh_checkpoint_writer *writer;
        if (coh_checkpoint_writer_create(&table, NULL, &writer) != forms[i].expected)
            fail_msg("stream %zu: %s", i, coh_last_error());
        coh_checkpoint_writer_destroy(writer);
    }
    for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++) {
        coh_logical_tensor tensor = tensors[ADAMW];
        const coh_logical_table table = { &tensor, 1, streams, 2, COH_FROZEN_IN_WORK };
        coh_logical_hash *hash;
        tensor.optimizer = uses[i].optimizer;
        tensor.stream_count = uses[i].count;
        memcpy(tensor.streams, uses[i].streams, sizeof(uses[i].streams));
        if (coh_logical_hash_create(&table, NULL, &hash) != uses[i].expected)
            fail_msg("use %zu: %s", i, coh_last_error());
        coh_logical_hash_destroy(hash);
    }
}

/* The reader would refuse it. */
static void a_stream_that_no_tensor_has_is_refused(void **state)
{
    (void)state;
    const coh_logical_tensor tensor = { "a", { COH_DTYPE_F32, 1, { 9 } }, 9, "lion", 1, { 1 } };
    const coh_logical_table table = { &tensor, 1, streams, 2, COH_FROZEN_IN_WORK };
    coh_checkpoint_writer *writer;
    assert_int_equal(coh_checkpoint_writer_create(&table, NULL, &writer), COH_ERR_ARGUMENT);
    assert_null(writer);
    assert_non_null(strstr(coh_last_error(), "no tensor has stream m"));
}

/* ---- damage ---- */

static void flip(const char *file, uint64_t byte)
{
    unsigned char value;
    int fd = open(file_name(file), O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &value, 1, (off_t)byte), 1);
    value ^= 16;
    assert_int_equal(pwrite(fd, &value, 1, (off_t)byte), 1);
    close(fd);
}

static void damage_of_any_file_is_found_and_named(void **state)
{
    (void)state;
    char away[PATH_MAX + 16];
    snprintf(away, sizeof(away), "%s/away", folder);
    for (int file = 0; file < FILES; file++) {
        const uint64_t bytes = file_bytes(files[file]);
        for (uint64_t i = 0; i < 10; i++) {
            const uint64_t byte = i == 0 ? 0 : i == 1 ? bytes - 1 : coh_rng_below(2, 0, i, bytes);
            flip(files[file], byte);
            assert_int_equal(whole(NULL), COH_ERR_CORRUPT);
            assert_non_null(strstr(coh_last_error(), files[file]));
            flip(files[file], byte);
        }
        assert_int_equal(rename(file_name(files[file]), away), 0);
        assert_int_equal(whole(NULL), COH_ERR_CORRUPT);
        assert_non_null(strstr(coh_last_error(), files[file]));
        touch(files[file]);
        assert_int_equal(whole(NULL), COH_ERR_CORRUPT);
        assert_non_null(strstr(coh_last_error(), files[file]));
        assert_int_equal(rename(away, file_name(files[file])), 0);
    }
    assert_int_equal(whole(NULL), COH_OK);
}

/* A hash where a tensor lacks the stream is damage, though the total does not depend on it. */
static void a_hash_without_data_is_damage(void **state)
{
    (void)state;
    flip("hashes.bin", 8 * (6 + 2)); /* row m, first grain of blocks.weight */
    assert_int_equal(whole(NULL), COH_ERR_CORRUPT);
    assert_non_null(
        strstr(coh_last_error(), "grain 0 of m, blocks.weight, has a hash but no data"));
}

/* text in the manifest, its replacement, a word of the message */
#define TWENTY "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,"
static const char *const edits[][3] = {
    { "\"streams\": [\n", "\"streams\": [], \"other\": [\n", "entry other: it is not known" },
    { "\"streams\": [\n", "\"stream\": [\n", "entry stream: it is not known" },
    { "\"streams\": [\n", "\"streams\": {}, \"streams\": [\n", "duplicate" },
    { "\"streams\": [\n", "\"streams\": [7,\n", "entry streams[0]: expected an object, found 7" },
    { "\"name\": \"m\",", "", "entry streams[0].name: expected a text, found nothing" },
    { "\"name\": \"m\",", "\"name\": 7,", "entry streams[0].name: expected a text, found 7" },
    { "\"name\": \"m\",", "\"name\": \"m\", \"more\": 1,",
      "entry streams[0].more: it is not known" },
    { "\"name\": \"m\",", "\"name\": \"m\", \"name\": \"m\",", "duplicate" },
    { "\"name\": \"m\",", "\"name\": \"v\",",
      "entry tensors[0].streams[0]: expected the name of a listed stream, found \"m\"" },
    { "\"name\": \"m\",", "\"name\": \"M\",", "a listed stream" },
    { "\"m\", \"bytes_per_block\": 4", "\"m\", \"bytes_per_block\": 8", "the tensors need" },
    { "\"m\", \"bytes_per_block\": 4", "\"m\", \"bytes_per_block\": 0", "blocks of 0 bytes" },
    { "\"m\", \"bytes_per_block\": 4", "\"m\", \"bytes_per_block\": -4",
      "bytes_per_block: expected a whole number 0..4294967295, found -4" },
    { "\"m\", \"bytes_per_block\": 4", "\"m\", \"bytes_per_block\": 4.0",
      "bytes_per_block: expected a whole number" },
    { "\"m\", \"bytes_per_block\": 4", "\"m\", \"bytes_per_block\": 4097", "not of 1 to 4096" },
    { "\"m\", \"bytes_per_block\": 4", "\"m\", \"bytes_per_block\": 4294967300",
      "bytes_per_block: expected a whole number" },
    { "\"m\", \"bytes_per_block\": 4", "\"m\", \"bytes_per_block\": 3", "not f32" },
    { "\"elements_per_block\": 128", "\"elements_per_block\": 127", "power of two" },
    { "\"elements_per_block\": 128", "\"elements_per_block\": 0", "power of two" },
    { "\"elements_per_block\": 128", "\"elements_per_block\": 2048", "power of two" },
    { "\"elements_per_block\": 128", "\"elements_per_block\": 4294967297",
      "elements_per_block: expected a whole number" },
    { "\"elements_per_block\": 128", "\"elements_per_block\": 64", "the tensors need" },
    { "\"elements_per_block\": 128, \"f32\": true", "\"elements_per_block\": 128, \"f32\": 1",
      "f32: expected true or false, found 1" },
    { "\"f32\": true}\n  ]",
      "\"f32\": true},\n {\"name\": \"x\", \"bytes_per_block\": 1, \"elements_per_block\": 1, "
      "\"f32\": false}\n  ]",
      "no tensor has stream x" },
    { "\"f32\": true}\n  ]",
      "\"f32\": true},\n {\"name\": \"m\", \"bytes_per_block\": 4, \"elements_per_block\": 1, "
      "\"f32\": true}\n  ]",
      "stream m is there twice" },
    { "\"f32\": true}\n  ]",
      "\"f32\": true},\n {\"name\": \"../m\", \"bytes_per_block\": 4, \"elements_per_block\": "
      "1, \"f32\": true}\n  ]",
      "its name is not" },
    { "\"f32\": true}\n  ]",
      "\"f32\": true},\n {\"name\": \"sixteen_letters_\", \"bytes_per_block\": 4, "
      "\"elements_per_block\": 1, \"f32\": true}\n  ]",
      "its name is not" },
    { "\"f32\": true}\n  ]",
      "\"f32\": true},\n {\"name\": \"hashes\", \"bytes_per_block\": 4, "
      "\"elements_per_block\": 1, \"f32\": true}\n  ]",
      "another file" },
    { "\"f32\": true}\n  ]", "\"f32\": true}," TWENTY TWENTY TWENTY "61\n  ]",
      "expected a list of 0 to 64 entries" },
    { "\"optimizer\": \"adamw\"", "\"optimizer\": \"AdamW\"", "the name of its optimizer" },
    { "\"optimizer\": \"adamw\"", "\"optimizer\": \"\"", "the name of its optimizer" },
    { "\"optimizer\": \"adamw\"", "\"optimizer\": \"sixteen_letters_\"",
      "the name of its optimizer" },
    { "\"optimizer\": \"adamw\"", "\"optimizer\": true",
      "optimizer: expected a text or null, found true" },
    { "\"optimizer\": \"adamw\"", "\"optimizer\": null", "with no optimizer" },
    { "\"optimizer\": \"adamw\"", "\"states\": true", ".states: it is not known" },
    { "\"optimizer\": \"adamw\"", "\"optimizer\": \"adamw\", \"states\": true",
      ".states: it is not known" },
    { "\"optimizer\": null", "\"optimizer\": \"sgd\"", "hashes.bin" },
    { "[\"m\", \"v\"]", "[\"m\", \"m\"]", "has stream m twice" },
    { "[\"m\", \"v\"]", "[\"m\"]", "no tensor has stream v" },
    { "[\"m\", \"v\"]", "[\"v\", \"m\"]", "hashes.bin" },
    { "[\"m\", \"v\"]", "[\"m\", 7]", "streams[1]: expected the name of a listed stream, found 7" },
    { "[\"m\", \"v\"]", "[\"m\", \"work\"]", "a listed stream" },
    { "[\"m\", \"v\"]", "\"m\"", "expected a list of 0 to 8 entries, found \"m\"" },
    { "[\"m\", \"v\"]", "[1, 2, 3, 4, 5, 6, 7, 8, 9]", "expected a list of 0 to 8 entries" },
    { "[\"m\", \"v\"]", "[\"m\", \"v\", \"code\"]", "the tensors need" },
    { "\"scale.state\"", "\"scales.state\"", "entry files.scale.state: expected a whole number" },
    { "\"version\": 2", "\"version\": 1", "entry streams: it is not known" },
};

static void a_sealed_manifest_with_wrong_streams_is_refused(void **state)
{
    (void)state;
    static char text[16384], changed[16384];
    FILE *file = fopen(file_name("manifest.json"), "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    size_t body = bytes - strlen(",\n  \"manifest_hash\": \"0123456789abcdef\"\n}\n");
    text[body] = '\0';
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        const char *at = strstr(text, edits[i][0]);
        assert_non_null(at);
        int length = snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text,
                              edits[i][1], at + strlen(edits[i][0]));
        fixture_seal_manifest(path, changed, (size_t)length);
        if (whole(NULL) != COH_ERR_CORRUPT)
            fail_msg("taken: %s", edits[i][1]);
        if (!strstr(coh_last_error(), edits[i][2]))
            fail_msg("'%s' not in '%s'", edits[i][2], coh_last_error());
    }
    fixture_seal_manifest(path, text, body);
    assert_int_equal(whole(NULL), COH_OK);
}

/* ---- removal ---- */

static void a_removal_takes_every_stream_and_nothing_else(void **state)
{
    (void)state;
    static const char *const foreign[] = {
        "notes.txt", "Code.state", "code.state.txt", ".state", "sixteen_letters_.state", "train.bin"
    };
    assert_int_equal(coh_checkpoint_remove(path), COH_OK);
    assert_false(fixture_exists(path));
    assert_int_equal(coh_checkpoint_remove(path), COH_OK);
    for (size_t i = 0; i <= sizeof(foreign) / sizeof(foreign[0]); i++) {
        const int is_folder = i == sizeof(foreign) / sizeof(foreign[0]);
        const char *name = is_folder ? "sub.state" : foreign[i];
        assert_int_equal(save(path, NULL), COH_OK);
        if (is_folder)
            assert_int_equal(mkdir(file_name(name), 0777), 0);
        else
            touch(name);
        assert_int_equal(coh_checkpoint_remove(path), COH_ERR_IO);
        assert_non_null(strstr(coh_last_error(), "not empty"));
        assert_true(fixture_exists(file_name(name)));
        for (int file = 0; file < FILES; file++)
            assert_false(fixture_exists(file_name(files[file])));
        assert_int_equal(remove(file_name(name)), 0);
        assert_int_equal(rmdir(path), 0);
    }
}

/* A folder that is no checkpoint keeps files that only look like a stream's. */
static void a_removal_leaves_another_programs_folder_alone(void **state)
{
    (void)state;
    assert_int_equal(coh_checkpoint_remove(path), COH_OK);
    assert_int_equal(mkdir(path, 0777), 0);
    touch("pytorch_model.bin");
    assert_int_equal(coh_checkpoint_remove(path), COH_ERR_IO);
    assert_true(fixture_exists(file_name("pytorch_model.bin")));
    /* in the folder of a save that did not finish, the same name is a stream's */
    snprintf(path, sizeof(path), "%s/step-9.partial", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    touch("scale.state");
    snprintf(path, sizeof(path), "%s/step-9", folder);
    assert_int_equal(save(path, NULL), COH_OK);
    assert_int_equal(whole(NULL), COH_OK);
}

/* Writes a file of the folder `path`. */
static void put_text(const char *name, const char *text)
{
    FILE *file = fopen(file_name(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Many programs name a file manifest.json. One of a checkpoint may be damaged, next to the files of
 * the checkpoint, or alone, after a power failure in its removal. */
static void a_removal_leaves_a_folder_with_another_manifest_as_it_is(void **state)
{
    (void)state;
    static const char *const foreign[] = { "{\"name\": \"an app\"}", "" };
    assert_int_equal(coh_checkpoint_remove(path), COH_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(mkdir(path, 0777), 0);
        put_text("manifest.json", foreign[i]);
        touch("m.bin");
        touch("work.bin");
        assert_int_equal(coh_checkpoint_remove(path), COH_ERR_ARGUMENT);
        assert_non_null(strstr(coh_last_error(), "is no checkpoint"));
        for (int file = 0; file < 3; file++) {
            const char *name = file == 0 ? "manifest.json" : file == 1 ? "m.bin" : "work.bin";
            assert_true(fixture_exists(file_name(name)));
            assert_int_equal(unlink(file_name(name)), 0);
        }
        assert_int_equal(rmdir(path), 0);
        assert_int_equal(save(path, NULL), COH_OK);
        put_text("manifest.json", foreign[i]);
        assert_int_equal(coh_checkpoint_remove(path), COH_OK);
        assert_false(fixture_exists(path));
    }
    assert_int_equal(save(path, NULL), COH_OK);
    for (int file = 0; file < FILES; file++)
        if (strcmp(files[file], "manifest.json") != 0)
            assert_int_equal(unlink(file_name(files[file])), 0);
    assert_int_equal(coh_checkpoint_remove(path), COH_OK);
    assert_false(fixture_exists(path));
    assert_int_equal(save(path, NULL), COH_OK);
    assert_int_equal(whole(NULL), COH_OK);
}

/* Removes in a child process that dies at file operation n. */
static int remove_and_die_at(int n)
{
    char text[16];
    int result;
    snprintf(text, sizeof(text), "%d", n);
    setenv("COH_TEST_EXIT_AT", text, 1);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(coh_checkpoint_remove(path) == COH_OK ? 0 : 1);
    unsetenv("COH_TEST_EXIT_AT");
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    return WEXITSTATUS(result);
}

static void a_removal_that_dies_leaves_nothing_whole_and_can_be_repeated(void **state)
{
    (void)state;
    int n;
    for (n = 1;; n++) {
        const int code = remove_and_die_at(n);
        if (code == 0)
            break;
        assert_int_equal(code, FILE_FAULTS_EXIT_CODE);
        assert_int_equal(whole(NULL) == COH_OK, n == 1);
        assert_int_equal(coh_checkpoint_remove(path), COH_OK);
        assert_false(fixture_exists(path));
        assert_int_equal(save(path, NULL), COH_OK);
    }
    assert_int_equal(n - 1, FILES + 1);
}

/* ---- version 1 ---- */

/* Writes the manifest of version 1 for the fixture's tensors, by hand. */
static void put_manifest_1(uint64_t hash, const char *last_tensor)
{
    static char text[4096];
    int length = snprintf(
        text, sizeof(text),
        "{\n  \"format\": \"cohobate checkpoint\",\n  \"version\": 1,\n  \"step\": 3,\n"
        "  \"applied_count\": 3,\n  \"numeric_fingerprint\": \"000000000000004d\",\n"
        "  \"hash\": \"%016" PRIx64 "\",\n  \"grain_elements\": 16384,\n"
        "  \"files\": {\"work.bin\": 478056, \"m.bin\": 397256, \"v.bin\": 397256, "
        "\"hashes.bin\": 264},\n  \"tensors\": [\n"
        "    {\"name\": \"scale\", \"shape\": [1], \"states\": true},\n"
        "    {\"name\": \"norm \\\"odd\\\"\\u0009\xc3\xa9.bias\", \"shape\": [1009], \"states\": "
        "true},\n"
        "    {\"name\": \"square.weight\", \"shape\": [128, 128], \"states\": true},\n"
        "    {\"name\": \"one_more.weight\", \"shape\": [5, 29, 113], \"states\": true},\n"
        "    {\"name\": \"frozen.weight\", \"shape\": [200, 101], \"states\": false},\n"
        "    {\"name\": \"long.weight\", \"shape\": [257, 255], %s}\n  ],\n  \"note\": {}",
        hash, last_tensor);
    assert_true(length > 0 && (size_t)length < sizeof(text));
    fixture_seal_manifest(path, text, (size_t)length);
}

static void version_1_reads_as_adamw(void **state)
{
    (void)state;
    coh_checkpoint *checkpoint;
    coh_checkpoint_facts facts = { .struct_bytes = sizeof(facts) };
    coh_checkpoint_tensor tensor;
    coh_state_stream stream;
    uint64_t hash, checked;
    assert_int_equal(coh_checkpoint_remove(path), COH_OK);
    assert_int_equal(fixture_save(path, 3, NULL, &hash), COH_OK);
    assert_true(hash == 0xe5525a7853ad0c15); /* as the release that wrote version 1 had it */
    put_manifest_1(hash, "\"states\": true");
    assert_int_equal(coh_checkpoint_open(path, &checkpoint), COH_OK);
    assert_int_equal(coh_checkpoint_facts_get(checkpoint, &facts), COH_OK);
    assert_int_equal(facts.step, 3);
    assert_int_equal(facts.stream_count, 2);
    for (int32_t s = 1; s <= 2; s++) {
        assert_int_equal(coh_checkpoint_stream_at(checkpoint, s, &stream), COH_OK);
        assert_string_equal(stream.name, s == 1 ? "m" : "v");
        assert_true(stream.bytes_per_block == 4 && stream.elements_per_block == 1 && stream.is_f32);
    }
    for (uint32_t t = 0; t < FIXTURE_TENSORS; t++) {
        assert_int_equal(coh_checkpoint_tensor_at(checkpoint, (int32_t)t, &tensor), COH_OK);
        assert_string_equal(tensor.name, fixture_tensors[t].name);
        assert_int_equal(tensor.stream_count, fixture_tensors[t].stream_count);
        assert_int_equal(tensor.optimizer != NULL, tensor.stream_count > 0);
        if (tensor.optimizer)
            assert_string_equal(tensor.optimizer, "adamw");
        for (int32_t part = 0; part < fixture_parts(t); part++) {
            const uint64_t elements = fixture_tensors[t].elements;
            assert_true(part == 0 || tensor.streams[part - 1] == part);
            fixture_fill(3, part, t, 0, elements, fixture_buffer);
            assert_int_equal(coh_checkpoint_read(checkpoint, (int32_t)t, part, 0, elements, found),
                             COH_OK);
            assert_memory_equal(found, fixture_buffer, 4 * elements);
        }
    }
    assert_int_equal(coh_checkpoint_check(checkpoint, &checked), COH_OK);
    assert_true(checked == hash);
    coh_checkpoint_close(checkpoint);
    put_manifest_1(hash, "\"states\": 1");
    assert_int_equal(whole(NULL), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "states: expected true or false"));
    put_manifest_1(hash, "\"optimizer\": \"adamw\", \"streams\": [\"m\", \"v\"]");
    assert_int_equal(whole(NULL), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), ".optimizer: it is not known"));
    assert_int_equal(coh_checkpoint_remove(path), COH_OK);
}

/* Recorded from the release that wrote version 1. */
static void the_files_of_adamw_have_the_recorded_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        uint64_t hash;
    } recorded[] = { { "work.bin", 0x9f4a539e06a265cd },
                     { "m.bin", 0x8b55cd4d152f4913 },
                     { "v.bin", 0xd890374ff5b7a5d7 },
                     { "hashes.bin", 0x9f0e08449dc61d63 } };
    assert_int_equal(coh_checkpoint_remove(path), COH_OK);
    assert_int_equal(fixture_save(path, 3, NULL, NULL), COH_OK);
    for (size_t i = 0; i < sizeof(recorded) / sizeof(recorded[0]); i++) {
        static char data[1 << 20];
        FILE *file = fopen(file_name(recorded[i].file), "r");
        assert_non_null(file);
        const size_t bytes = fread(data, 1, sizeof(data), file);
        fclose(file);
        if (XXH3_64bits(data, bytes) != recorded[i].hash)
            fail_msg("%s is %016" PRIx64, recorded[i].file, (uint64_t)XXH3_64bits(data, bytes));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_stream_reads_back_byte_for_byte, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_have_the_bytes_of_the_blocks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(whole_blocks_can_be_read_and_cut_ones_not, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(only_f32_blocks_are_looked_at_for_broken_numbers, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_stream_that_no_tensor_has_is_refused, set_up, tear_down),
        cmocka_unit_test(a_table_that_no_manifest_could_hold_is_refused),
        cmocka_unit_test_setup_teardown(damage_of_any_file_is_found_and_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_hash_without_data_is_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_sealed_manifest_with_wrong_streams_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_removal_takes_every_stream_and_nothing_else, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_removal_leaves_another_programs_folder_alone, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_removal_leaves_a_folder_with_another_manifest_as_it_is,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_removal_that_dies_leaves_nothing_whole_and_can_be_repeated, set_up, tear_down),
        cmocka_unit_test_setup_teardown(version_1_reads_as_adamw, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_files_of_adamw_have_the_recorded_bytes, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
