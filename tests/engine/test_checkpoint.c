/* Saved data are read back in whatever order they were put; incomplete data are refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <inttypes.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "tests/engine/checkpoint_fixture.h"

static char folder[PATH_MAX];
static char path[PATH_MAX + 64];

static int set_up(void **state)
{
    (void)state;
    fixture_folder(folder);
    snprintf(path, sizeof(path), "%s/step-3", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_folder_remove(folder);
    return 0;
}

/* The hash as logical_hash.h describes it, over newly made values: tensor after tensor. */
static uint64_t hash_by_hand(uint64_t seed, uint64_t applied_count)
{
    uint64_t total = 0, grains[8];
    for (uint32_t t = 0; t < FIXTURE_TENSORS; t++) {
        const coh_logical_tensor *tensor = &fixture_tensors[t];
        int64_t shape[7] = { tensor->optimizer != NULL, tensor->shape.rank };
        for (int d = 0; d < tensor->shape.rank; d++)
            shape[2 + d] = tensor->shape.dim[d];
        total = XXH3_64bits_withSeed(tensor->name, strlen(tensor->name), total);
        total = XXH3_64bits_withSeed(shape, sizeof(shape), total);
        for (int part = 0; part < fixture_parts(t); part++) {
            int count = 0;
            fixture_fill(seed, part, t, 0, tensor->elements, fixture_buffer);
            for (uint64_t at = 0; at < tensor->elements; at += 16384)
                grains[count++] = XXH3_64bits(
                    fixture_buffer + at,
                    4 * (tensor->elements - at < 16384 ? tensor->elements - at : 16384));
            total = XXH3_64bits_withSeed(grains, 8 * (size_t)count, total);
        }
    }
    return XXH3_64bits_withSeed(&applied_count, 8, total);
}

static void assert_reads_back(coh_checkpoint *checkpoint, uint64_t seed)
{
    static float data[FIXTURE_ELEMENTS];
    for (uint32_t t = 0; t < FIXTURE_TENSORS; t++)
        for (int part = 0; part < fixture_parts(t); part++) {
            uint64_t elements = fixture_tensors[t].elements;
            fixture_fill(seed, part, t, 0, elements, fixture_buffer);
            assert_int_equal(coh_checkpoint_read(checkpoint, (int32_t)t, part, 0, elements, data),
                             COH_OK);
            assert_memory_equal(data, fixture_buffer, elements * sizeof(float));
        }
}

static void what_was_saved_is_what_is_read(void **state)
{
    (void)state;
    uint64_t hash, checked;
    coh_checkpoint *checkpoint;
    coh_checkpoint_facts facts = { .struct_bytes = sizeof(facts) };
    coh_checkpoint_tensor tensor;
    const char *note = "{\"model\": \"nano\", \"rate\": 0.1, \"list\": [1, {\"deep\": null}]}";
    assert_int_equal(fixture_save(path, 3, note, &hash), COH_OK);
    assert_true(hash == hash_by_hand(3, 3));

    assert_int_equal(coh_checkpoint_open(path, &checkpoint), COH_OK);
    assert_int_equal(coh_checkpoint_facts_get(checkpoint, &facts), COH_OK);
    assert_string_equal(facts.path, path);
    assert_int_equal(facts.step, 3);
    assert_int_equal(facts.applied_count, 3);
    assert_int_equal(facts.numeric_fingerprint, 77);
    assert_true(facts.hash == hash);
    assert_int_equal(facts.parameter_count, 1 + 1009 + 16384 + 16385 + 20200 + 65535);
    assert_int_equal(facts.stream_count, 2);
    assert_string_equal(facts.note_json,
                        "{\"model\":\"nano\",\"rate\":0.10000000000000001,\"list\":[1,{\"deep\":"
                        "null}]}");
    assert_int_equal(facts.tensor_count, FIXTURE_TENSORS);
    for (int32_t t = 0; t < FIXTURE_TENSORS; t++) {
        assert_int_equal(coh_checkpoint_tensor_at(checkpoint, t, &tensor), COH_OK);
        assert_string_equal(tensor.name, fixture_tensors[t].name);
        assert_memory_equal(&tensor.shape, &fixture_tensors[t].shape, sizeof(tensor.shape));
    }
    assert_reads_back(checkpoint, 3);
    assert_int_equal(coh_checkpoint_check(checkpoint, &checked), COH_OK);
    assert_true(checked == hash);
    coh_checkpoint_close(checkpoint);
}

static void another_note_changes_nothing_else(void **state)
{
    (void)state;
    uint64_t hash, checked;
    coh_checkpoint *checkpoint;
    coh_checkpoint_facts facts = { .struct_bytes = sizeof(facts) };
    char rest[PATH_MAX + 128];
    assert_int_equal(fixture_save(path, 3, "{\"loss\": null}", &hash), COH_OK);
    assert_int_equal(coh_checkpoint_note_set(path, "{\"loss\": 2.5, \"more\": [true]}"), COH_OK);
    assert_int_equal(coh_checkpoint_note_set(path, "[]"), COH_ERR_ARGUMENT);
    assert_int_equal(coh_checkpoint_note_set(folder, "{}"), COH_ERR_CORRUPT); /* a run's folder */
    assert_int_equal(coh_checkpoint_open(path, &checkpoint), COH_OK);
    assert_int_equal(coh_checkpoint_facts_get(checkpoint, &facts), COH_OK);
    assert_string_equal(facts.note_json, "{\"loss\":2.5,\"more\":[true]}");
    assert_true(facts.step == 3 && facts.numeric_fingerprint == 77 && facts.hash == hash);
    assert_reads_back(checkpoint, 3);
    assert_int_equal(coh_checkpoint_check(checkpoint, &checked), COH_OK);
    assert_true(checked == hash);
    coh_checkpoint_close(checkpoint);
    /* what a process that was killed in it left goes with the checkpoint */
    snprintf(rest, sizeof(rest), "%s/manifest.json.partial", path);
    FILE *file = fopen(rest, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(coh_checkpoint_remove(path), COH_OK);
    assert_int_equal(access(path, F_OK), -1);
}

static void any_range_of_elements_can_be_read(void **state)
{
    (void)state;
    static float data[FIXTURE_ELEMENTS];
    coh_checkpoint *checkpoint;
    assert_int_equal(fixture_save(path, 4, NULL, NULL), COH_OK);
    assert_int_equal(coh_checkpoint_open(path, &checkpoint), COH_OK);
    for (uint64_t i = 0; i < 200; i++) {
        uint32_t t = (uint32_t)coh_rng_below(11, 0, i, FIXTURE_TENSORS);
        int part = (int)coh_rng_below(11, 1, i, (uint64_t)fixture_parts(t));
        uint64_t elements = fixture_tensors[t].elements;
        uint64_t begin = coh_rng_below(11, 2, i, elements);
        uint64_t count = coh_rng_below(11, 3, i, elements - begin + 1);
        data[count] = 42.0f; /* nothing is written past the range */
        assert_int_equal(coh_checkpoint_read(checkpoint, (int32_t)t, part, begin, count, data),
                         COH_OK);
        for (uint64_t e = 0; e < count; e++)
            if (data[e] != fixture_value(4, part, t, begin + e))
                fail_msg("case %" PRIu64 ", element %" PRIu64, i, e);
        assert_true(data[count] == 42.0f);
    }
    assert_int_equal(coh_checkpoint_read(checkpoint, 0, 0, 1, 1, data), COH_ERR_ARGUMENT);
    assert_int_equal(coh_checkpoint_read(checkpoint, 0, 0, UINT64_MAX, 2, data), COH_ERR_ARGUMENT);
    assert_int_equal(coh_checkpoint_read(checkpoint, 4, 1, 0, 1, data), COH_ERR_ARGUMENT);
    assert_int_equal(coh_checkpoint_read(checkpoint, -1, 0, 0, 1, data), COH_ERR_ARGUMENT);
    assert_int_equal(coh_checkpoint_read(checkpoint, 0, 3, 0, 1, data), COH_ERR_ARGUMENT);
    coh_checkpoint_close(checkpoint);
}

typedef struct piece {
    uint32_t tensor;
    int part;
    uint64_t begin, count;
} piece;

/* Cuts every part of every tensor at random ends of grains, then shuffles the pieces. */
static size_t random_pieces(uint64_t seed, piece *pieces)
{
    size_t count = 0;
    uint64_t draw = 0;
    for (uint32_t t = 0; t < FIXTURE_TENSORS; t++)
        for (int part = 0; part < fixture_parts(t); part++)
            for (uint64_t at = 0; at < fixture_tensors[t].elements;) {
                uint64_t run = COH_GRAIN_ELEMENTS * (1 + coh_rng_below(seed, 0, draw++, 4));
                uint64_t left = fixture_tensors[t].elements - at;
                pieces[count++] = (piece){ t, part, at, left < run ? left : run };
                at += run;
            }
    for (size_t i = count - 1; i > 0; i--) {
        size_t j = (size_t)coh_rng_below(seed, 1, draw++, i + 1);
        piece swapped = pieces[i];
        pieces[i] = pieces[j];
        pieces[j] = swapped;
    }
    return count;
}

static void order_and_cuts_of_puts_do_not_show(void **state)
{
    (void)state;
    piece pieces[64];
    coh_checkpoint *checkpoint;
    coh_checkpoint_writer *writer;
    uint64_t expected = hash_by_hand(9, 5), hash;
    assert_int_equal(coh_checkpoint_writer_create(&fixture_table, NULL, &writer), COH_OK);
    for (uint64_t seed = 0; seed < 10; seed++) {
        size_t count = random_pieces(seed, pieces);
        assert_int_equal(coh_checkpoint_writer_begin(writer, path, NULL), COH_OK);
        for (size_t i = 0; i < count; i++) {
            fixture_fill(9, pieces[i].part, pieces[i].tensor, pieces[i].begin, pieces[i].count,
                         fixture_buffer);
            assert_int_equal(coh_checkpoint_writer_put(writer, pieces[i].part, pieces[i].tensor,
                                                       pieces[i].begin, pieces[i].count,
                                                       fixture_buffer),
                             COH_OK);
        }
        coh_checkpoint_seal seal = { .step = seed, .applied_count = 5 };
        assert_int_equal(coh_checkpoint_writer_finish(writer, &seal, &hash), COH_OK);
        if (hash != expected)
            fail_msg("seed %" PRIu64, seed);
        assert_int_equal(coh_checkpoint_open(path, &checkpoint), COH_OK);
        assert_reads_back(checkpoint, 9);
        coh_checkpoint_close(checkpoint);
        assert_int_equal(coh_checkpoint_remove(path), COH_OK);
        assert_false(fixture_exists(path));
    }
    coh_checkpoint_writer_destroy(writer);
}

static void one_different_bit_gives_another_hash(void **state)
{
    (void)state;
    coh_logical_hash *hash;
    uint64_t plain, counted, changed;
    coh_logical_tensor tensors[FIXTURE_TENSORS];
    memcpy(tensors, fixture_tensors, sizeof(tensors));
    uint64_t last[2];
    for (int round = 0; round < 2; round++) {
        if (round == 1)
            tensors[2].shape = (coh_shape){ COH_DTYPE_F32, 2, { 64, 256 } };
        const coh_logical_table table = { tensors, FIXTURE_TENSORS, fixture_streams, 2,
                                          COH_FROZEN_IN_WORK };
        assert_int_equal(coh_logical_hash_create(&table, NULL, &hash), COH_OK);
        for (int flip = 0; flip < 2; flip++) {
            coh_logical_hash_begin(hash);
            for (uint32_t t = 0; t < FIXTURE_TENSORS; t++)
                for (int part = 0; part < fixture_parts(t); part++) {
                    fixture_fill(1, part, t, 0, tensors[t].elements, fixture_buffer);
                    if (flip && t == 5 && part == FIXTURE_V)
                        fixture_buffer[65534] = -fixture_buffer[65534];
                    assert_int_equal(coh_logical_hash_put(hash, part, t, 0, tensors[t].elements,
                                                          fixture_buffer, NULL),
                                     COH_OK);
                }
            assert_int_equal(coh_logical_hash_finish(hash, 1, flip ? &changed : &plain), COH_OK);
        }
        assert_int_equal(coh_logical_hash_finish(hash, 2, &counted), COH_OK);
        assert_true(plain != changed && plain != counted && changed != counted);
        last[round] = plain;
        coh_logical_hash_destroy(hash);
    }
    assert_true(last[0] != last[1]); /* the same bytes in another shape are another model */
}

static void a_grain_missing_or_twice_is_our_bug_and_says_so(void **state)
{
    (void)state;
    coh_checkpoint_writer *writer;
    coh_checkpoint_seal seal = { 0 };
    memset(fixture_buffer, 0, sizeof(fixture_buffer));
    assert_int_equal(coh_checkpoint_writer_create(&fixture_table, NULL, &writer), COH_OK);
    assert_int_equal(coh_checkpoint_writer_begin(writer, path, NULL), COH_OK);
    assert_int_equal(coh_checkpoint_writer_put(writer, FIXTURE_M, 5, 16384, 16384, fixture_buffer),
                     COH_OK);
    assert_int_equal(coh_checkpoint_writer_put(writer, FIXTURE_M, 5, 16384, 16384, fixture_buffer),
                     COH_ERR_INTERNAL);
    /* not a grain's start; not a grain's end; states of a frozen tensor; past the end; no such
     * tensor */
    assert_int_equal(coh_checkpoint_writer_put(writer, COH_PART_WORK, 5, 1, 16383, fixture_buffer),
                     COH_ERR_INTERNAL);
    assert_int_equal(coh_checkpoint_writer_put(writer, COH_PART_WORK, 5, 0, 100, fixture_buffer),
                     COH_ERR_INTERNAL);
    assert_int_equal(coh_checkpoint_writer_put(writer, FIXTURE_V, 4, 0, 16384, fixture_buffer),
                     COH_ERR_INTERNAL);
    assert_int_equal(coh_checkpoint_writer_put(writer, COH_PART_WORK, 0, 0, 2, fixture_buffer),
                     COH_ERR_INTERNAL);
    assert_int_equal(coh_checkpoint_writer_put(writer, COH_PART_WORK, 6, 0, 1, fixture_buffer),
                     COH_ERR_INTERNAL);
    assert_int_equal(coh_checkpoint_writer_finish(writer, &seal, NULL), COH_ERR_INTERNAL);
    assert_non_null(strstr(coh_last_error(), "never came"));
    assert_int_equal(coh_checkpoint_writer_put(writer, COH_PART_WORK, 0, 0, 1, fixture_buffer),
                     COH_ERR_INTERNAL);
    coh_checkpoint_writer_destroy(writer);
    assert_int_equal(rmdir(folder), 0); /* the folder is empty */
}

static void a_broken_number_is_never_saved(void **state)
{
    (void)state;
    const float broken[] = { NAN, -NAN, INFINITY, -INFINITY };
    coh_checkpoint_writer *writer;
    assert_int_equal(coh_checkpoint_writer_create(&fixture_table, NULL, &writer), COH_OK);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(coh_checkpoint_writer_begin(writer, path, NULL), COH_OK);
        memset(fixture_buffer, 0x7f, sizeof(fixture_buffer)); /* large but finite */
        fixture_buffer[16384] = broken[i];
        assert_int_equal(coh_checkpoint_writer_put(writer, FIXTURE_V, 3, 0, 16385, fixture_buffer),
                         COH_ERR_NUMBER);
        assert_non_null(strstr(coh_last_error(), "v of tensor one_more.weight, element 16384"));
        coh_checkpoint_writer_abort(writer);
        assert_non_null(strstr(coh_last_error(), "element 16384"));
    }
    coh_checkpoint_writer_destroy(writer);
    assert_int_equal(rmdir(folder), 0);
}

/* Several threads scan the grains. The first non-finite number is found with any number of them;
 * without one, the result is the element count. Also with a short last grain. */
static void the_first_broken_number_is_found_by_any_number_of_threads(void **state)
{
    (void)state;
    static const uint64_t places[][2] = {
        { 0, 65534 }, { 16383, 16384 }, { 40000, 50000 }, { 65534, 65534 }, { 65535, 65535 }
    }; /* the last case has none */
    for (int threads = 0; threads < 4; threads++) {
        coh_pool *pool = NULL;
        coh_logical_hash *hash;
        if (threads > 0)
            assert_int_equal(coh_pool_create(threads, &pool), COH_OK);
        assert_int_equal(coh_logical_hash_create(&fixture_table, pool, &hash), COH_OK);
        for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
            uint64_t broken = UINT64_MAX;
            fixture_fill(1, COH_PART_WORK, 5, 0, 65535, fixture_buffer);
            fixture_buffer[places[i][0]] = NAN;
            fixture_buffer[places[i][1]] = INFINITY;
            coh_logical_hash_begin(hash);
            assert_int_equal(
                coh_logical_hash_put(hash, COH_PART_WORK, 5, 0, 65535, fixture_buffer, &broken),
                COH_OK);
            assert_int_equal(broken, places[i][0]);
        }
        coh_logical_hash_destroy(hash);
        coh_pool_destroy(pool);
    }
}

static void an_existing_path_is_refused(void **state)
{
    (void)state;
    coh_checkpoint_writer *writer;
    coh_checkpoint_seal seal = { 0 };
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(fixture_save(path, 1, NULL, NULL), COH_ERR_ARGUMENT);
    assert_int_equal(rmdir(path), 0);
    /* the target appears while the save is running: an empty folder, which rename would replace */
    assert_int_equal(coh_checkpoint_writer_create(&fixture_table, NULL, &writer), COH_OK);
    assert_int_equal(coh_checkpoint_writer_begin(writer, path, NULL), COH_OK);
    assert_int_equal(fixture_put_all(writer, 1), COH_OK);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(coh_checkpoint_writer_finish(writer, &seal, NULL), COH_ERR_ARGUMENT);
    coh_checkpoint_writer_destroy(writer);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void the_rest_of_a_broken_save_is_replaced_but_foreign_files_stay(void **state)
{
    (void)state;
    char partial[PATH_MAX + 96], name[PATH_MAX + 128];
    snprintf(partial, sizeof(partial), "%s.partial", path);
    snprintf(name, sizeof(name), "%s/work.bin", partial);
    assert_int_equal(mkdir(partial, 0777), 0);
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(fixture_save(path, 1, NULL, NULL), COH_OK);
    assert_false(fixture_exists(partial));
    assert_int_equal(coh_checkpoint_remove(path), COH_OK);

    snprintf(name, sizeof(name), "%s/mine.txt", partial);
    assert_int_equal(mkdir(partial, 0777), 0);
    file = fopen(name, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(fixture_save(path, 1, NULL, NULL), COH_ERR_IO);
    assert_true(fixture_exists(name));
}

/* The manifest is written last, and the first file is made after the folder. */
static void a_save_that_was_not_finished_is_named_as_one(void **state)
{
    (void)state;
    coh_checkpoint *checkpoint;
    char run[PATH_MAX + 96], partial[PATH_MAX + 96], name[PATH_MAX + 128];
    snprintf(partial, sizeof(partial), "%s/step-9.partial", folder);
    for (int i = 0; i < 4; i++) {
        if (i < 2)
            assert_int_equal(mkdir(partial, 0777), 0);
        else
            assert_int_equal(fixture_save(partial, 1, NULL, NULL), COH_OK);
        if (i == 2) {
            snprintf(name, sizeof(name), "%s/manifest.json", partial);
            assert_int_equal(unlink(name), 0);
        }
        snprintf(name, sizeof(name), "%s%s", partial, i == 1 ? "/" : "");
        const int is_whole = i == 3;
        assert_int_equal(coh_checkpoint_open(name, &checkpoint),
                         is_whole ? COH_OK : COH_ERR_CORRUPT);
        if (is_whole)
            coh_checkpoint_close(checkpoint);
        else
            assert_non_null(strstr(coh_last_error(), "is a save that was not finished"));
        assert_int_equal(coh_checkpoint_remove(partial), COH_OK);
    }
    /* a run's folder of such a name */
    snprintf(run, sizeof(run), "%s/a.partial", folder);
    assert_int_equal(mkdir(run, 0777), 0);
    snprintf(name, sizeof(name), "%s/step-1", run);
    assert_int_equal(fixture_save(name, 1, NULL, NULL), COH_OK);
    assert_int_equal(coh_checkpoint_open(run, &checkpoint), COH_OK);
    coh_checkpoint_close(checkpoint);
    assert_int_equal(coh_checkpoint_remove(name), COH_OK);
    assert_int_equal(rmdir(run), 0);
}

static void a_run_folder_opens_at_its_newest_whole_checkpoint(void **state)
{
    (void)state;
    char name[PATH_MAX + 64];
    coh_checkpoint *checkpoint;
    coh_checkpoint_facts facts = { .struct_bytes = sizeof(facts) };
    assert_int_equal(coh_checkpoint_open(folder, &checkpoint), COH_ERR_CORRUPT);
    assert_null(checkpoint);
    const char *steps[] = { "step-9", "step-10", "step-100.partial", "step-x", "step-", "other" };
    for (size_t i = 0; i < 6; i++) {
        snprintf(name, sizeof(name), "%s/%s", folder, steps[i]);
        assert_int_equal(fixture_save(name, i + 1, NULL, NULL), COH_OK);
    }
    assert_int_equal(coh_checkpoint_open(folder, &checkpoint), COH_OK);
    assert_int_equal(coh_checkpoint_facts_get(checkpoint, &facts), COH_OK);
    assert_non_null(strstr(facts.path, "/step-10"));
    assert_string_equal(facts.passed_over, "");
    coh_checkpoint_close(checkpoint);

    snprintf(name, sizeof(name), "%s/step-10/m.bin", folder);
    assert_int_equal(truncate(name, 5), 0);
    assert_int_equal(coh_checkpoint_open(folder, &checkpoint), COH_OK);
    assert_int_equal(coh_checkpoint_facts_get(checkpoint, &facts), COH_OK);
    assert_non_null(strstr(facts.path, "/step-9"));
    assert_non_null(strstr(facts.passed_over, "/step-10: m.bin has 5 bytes"));
    coh_checkpoint_close(checkpoint);

    snprintf(name, sizeof(name), "%s/step-9/manifest.json", folder);
    assert_int_equal(unlink(name), 0);
    assert_int_equal(coh_checkpoint_open(folder, &checkpoint), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "of 2 checkpoints in "));
    assert_non_null(strstr(coh_last_error(), "m.bin"));
    snprintf(name, sizeof(name), "%s/nowhere", folder);
    assert_int_equal(coh_checkpoint_open(name, &checkpoint), COH_ERR_IO);
}

/* The newer of two checkpoints is not damaged, so using the older one would silently repeat
 * steps. */
static void assert_not_passed_over(const char *newest, coh_status expected, const char *says)
{
    int32_t is_damaged = 1;
    coh_checkpoint *checkpoint;
    assert_int_equal(coh_checkpoint_open(folder, &checkpoint), expected);
    assert_null(checkpoint);
    assert_non_null(strstr(coh_last_error(), "/step-10"));
    assert_non_null(strstr(coh_last_error(), says));
    assert_int_equal(coh_checkpoint_damage(newest, &is_damaged), expected);
    assert_int_equal(is_damaged, 0);
}

static void what_is_newer_or_cannot_be_read_is_not_passed_over(void **state)
{
    (void)state;
    char newest[PATH_MAX + 64], name[PATH_MAX + 96];
    int32_t is_damaged = 1;
    snprintf(name, sizeof(name), "%s/step-9", folder);
    snprintf(newest, sizeof(newest), "%s/step-10", folder);
    assert_int_equal(fixture_save(name, 9, NULL, NULL), COH_OK);
    assert_int_equal(fixture_save(newest, 10, NULL, NULL), COH_OK);
    assert_int_equal(coh_checkpoint_damage(newest, &is_damaged), COH_OK);
    assert_int_equal(is_damaged, 0);

    snprintf(name, sizeof(name), "%s/v.bin", newest);
    assert_int_equal(rename(name, path), 0);
    assert_int_equal(symlink("v.bin", name), 0); /* ELOOP, also for root */
    assert_not_passed_over(newest, COH_ERR_IO, "v.bin");
    if (geteuid() != 0) {
        assert_int_equal(chmod(newest, 0), 0);
        assert_not_passed_over(newest, COH_ERR_IO, "Permission denied");
        assert_int_equal(chmod(newest, 0700), 0);
    }
    assert_int_equal(unlink(name), 0);
    assert_int_equal(coh_checkpoint_damage(newest, &is_damaged), COH_OK);
    assert_int_equal(is_damaged, 1);

    snprintf(name, sizeof(name), "%s/manifest.json", newest);
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs("{\"format\": \"cohobate checkpoint\", \"version\": 4}", file);
    fclose(file);
    assert_not_passed_over(newest, COH_ERR_CORRUPT, "use a newer release");
}

static void flip_byte(const char *file)
{
    char name[PATH_MAX + 96];
    snprintf(name, sizeof(name), "%s/%s", path, file);
    FILE *opened = fopen(name, "r+");
    assert_non_null(opened);
    assert_int_equal(fseek(opened, 100, SEEK_SET), 0);
    const int byte = fgetc(opened);
    assert_int_equal(fseek(opened, 100, SEEK_SET), 0);
    assert_int_not_equal(fputc(byte ^ 1, opened), EOF);
    fclose(opened);
}

/* As checkpoint.h says: opening proves the manifest and the table of hashes, check the data. */
static void an_altered_byte_is_found_by_opening_or_by_check(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        int32_t is_damage; /* 1: opening fails */
    } cases[] = { { "work.bin", 0 }, { "m.bin", 0 }, { "hashes.bin", 1 }, { "manifest.json", 1 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        coh_checkpoint *checkpoint;
        int32_t is_damaged = -1;
        assert_int_equal(fixture_save(path, 1, NULL, NULL), COH_OK);
        flip_byte(cases[i].file);
        assert_int_equal(coh_checkpoint_damage(path, &is_damaged), COH_OK);
        assert_int_equal(is_damaged, cases[i].is_damage);
        const coh_status opened = coh_checkpoint_open(path, &checkpoint);
        assert_int_equal(opened, is_damaged ? COH_ERR_CORRUPT : COH_OK);
        if (opened == COH_OK) {
            assert_int_equal(coh_checkpoint_check(checkpoint, NULL), COH_ERR_CORRUPT);
            assert_non_null(strstr(coh_last_error(), cases[i].file));
        }
        coh_checkpoint_close(checkpoint);
        assert_int_equal(coh_checkpoint_remove(path), COH_OK);
    }
}

static void tensors_without_states_need_no_state_files(void **state)
{
    (void)state;
    char name[PATH_MAX + 96];
    coh_checkpoint *checkpoint;
    coh_checkpoint_facts facts = { .struct_bytes = sizeof(facts) };
    coh_checkpoint_writer *writer;
    coh_checkpoint_seal seal = { .step = 1 };
    coh_logical_tensor tensor = fixture_tensors[4];
    const coh_logical_table table = { &tensor, 1, NULL, 0, COH_FROZEN_IN_WORK };
    assert_int_equal(coh_checkpoint_writer_create(&table, NULL, &writer), COH_OK);
    assert_int_equal(coh_checkpoint_writer_begin(writer, path, "{}"), COH_OK);
    fixture_fill(1, 0, 4, 0, tensor.elements, fixture_buffer);
    assert_int_equal(
        coh_checkpoint_writer_put(writer, COH_PART_WORK, 0, 0, tensor.elements, fixture_buffer),
        COH_OK);
    assert_int_equal(coh_checkpoint_writer_finish(writer, &seal, NULL), COH_OK);
    coh_checkpoint_writer_destroy(writer);
    snprintf(name, sizeof(name), "%s/m.bin", path);
    assert_false(fixture_exists(name));
    assert_int_equal(coh_checkpoint_open(path, &checkpoint), COH_OK);
    assert_int_equal(coh_checkpoint_facts_get(checkpoint, &facts), COH_OK);
    assert_int_equal(facts.stream_count, 0);
    assert_int_equal(coh_checkpoint_check(checkpoint, NULL), COH_OK);
    coh_checkpoint_close(checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_saved_is_what_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_note_changes_nothing_else, set_up, tear_down),
        cmocka_unit_test_setup_teardown(any_range_of_elements_can_be_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(order_and_cuts_of_puts_do_not_show, set_up, tear_down),
        cmocka_unit_test(one_different_bit_gives_another_hash),
        cmocka_unit_test_setup_teardown(a_grain_missing_or_twice_is_our_bug_and_says_so, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_broken_number_is_never_saved, set_up, tear_down),
        cmocka_unit_test(the_first_broken_number_is_found_by_any_number_of_threads),
        cmocka_unit_test_setup_teardown(an_existing_path_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            the_rest_of_a_broken_save_is_replaced_but_foreign_files_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_save_that_was_not_finished_is_named_as_one, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_run_folder_opens_at_its_newest_whole_checkpoint, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_is_newer_or_cannot_be_read_is_not_passed_over, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_altered_byte_is_found_by_opening_or_by_check, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(tensors_without_states_need_no_state_files, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
