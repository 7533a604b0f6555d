/* Token files of version 2, whose ids have a bit for counting as a target, and .bin files of other
 * programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "cohobate/text.h"
#include "tests/text/folder.h"
#include "text/token_file.h"

static coh_token_file_facts facts_of(const coh_token_file *file)
{
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    assert_int_equal(coh_token_file_facts_get(file, &facts), COH_OK);
    return facts;
}

/* ---- files of versions 2 and 3 ---- */

static void headers_with_marks_that_no_writer_writes_are_refused(void **state)
{
    (void)state;
    static const coh_token_header all[] = {
        { .id_bytes = 2, .count = 6, .vocabulary = 32769, .has_mask = 1 }, /* too narrow */
        { .id_bytes = 4, .count = 6, .vocabulary = 32768, .has_mask = 1 }, /* too wide */
        { .id_bytes = 2, .count = 7, .vocabulary = 10, .window = 2, .has_mask = 1 },
        { .id_bytes = 2, .count = 0, .vocabulary = 10, .window = 1 << 25, .has_mask = 1 },
        { .id_bytes = 2, .count = 6, .vocabulary = 10, .window = 2, .has_mask = 0 }, /* version 1 */
        /* version 3: too narrow, too wide, without windows */
        { .id_bytes = 2,
          .count = 6,
          .vocabulary = 16385,
          .window = 2,
          .has_mask = 1,
          .has_documents = 1 },
        { .id_bytes = 4,
          .count = 6,
          .vocabulary = 16384,
          .window = 2,
          .has_mask = 1,
          .has_documents = 1 },
        { .id_bytes = 2, .count = 6, .vocabulary = 10, .has_mask = 1, .has_documents = 1 },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        uint8_t made[COH_TOKEN_HEADER_BYTES + 32] = { 0 };
        coh_token_header_write(&all[i], made);
        folder_write("made", made, COH_TOKEN_HEADER_BYTES + all[i].count * all[i].id_bytes);
        coh_token_file *file;
        if (coh_token_file_open(folder_file("made"), &file) != COH_ERR_CORRUPT ||
            !strstr(coh_last_error(), "none was written with"))
            fail_msg("case %zu: %s", i, coh_last_error());
    }
}

static void marked_ids_come_back_at_both_widths(void **state)
{
    (void)state;
    enum { COUNT = 40000 };
    static int32_t ids[COUNT], found[COUNT];
    static uint8_t counts[COUNT];
    const int64_t vocabularies[] = { 2, 32768, 32769, INT32_MAX };
    for (size_t v = 0; v < 4; v++) {
        for (size_t i = 0; i < COUNT; i++) {
            ids[i] = (int32_t)coh_rng_below(v, 0, i, (uint64_t)vocabularies[v]);
            counts[i] = coh_rng_below(v, 1, i, 3) > 0;
        }
        ids[7] = (int32_t)(vocabularies[v] - 1);
        coh_token_writer *writer;
        assert_int_equal(coh_token_writer_create(folder_file("ids"), vocabularies[v], 7, &writer),
                         COH_OK);
        coh_token_writer_mark(writer, 0);
        assert_int_equal(coh_token_writer_add(writer, ids, counts, COUNT), COH_OK);
        assert_int_equal(coh_token_writer_finish(writer), COH_OK);
        assert_int_equal(coh_token_writer_publish(writer), COH_OK);
        coh_token_writer_destroy(writer);
        coh_token_file *file;
        assert_int_equal(coh_token_file_open(folder_file("ids"), &file), COH_OK);
        assert_int_equal(coh_token_file_check(file), COH_OK);
        assert_int_equal(coh_token_file_read(file, 0, COUNT, found), COH_OK);
        assert_memory_equal(found, ids, sizeof(ids));
        static int32_t tokens[COUNT - 1], targets[COUNT - 1];
        assert_int_equal(coh_token_file_window(file, 0, 0, COUNT - 1, tokens, targets), COH_OK);
        assert_memory_equal(tokens, ids, sizeof(tokens));
        for (size_t i = 0; i < COUNT - 1; i++)
            assert_int_equal(targets[i], counts[i + 1] ? ids[i + 1] : -1);
        coh_token_file_close(file);
    }
}

static void begins_of_documents_come_back_as_positions_at_both_widths(void **state)
{
    (void)state;
    enum { WINDOW = 39, WINDOWS = 50, COUNT = WINDOWS * (WINDOW + 1) };
    static int32_t ids[COUNT], found[COUNT];
    static uint8_t marks[COUNT];
    const int64_t vocabularies[] = { 2, 16384, 16385, INT32_C(1) << 30 };
    for (size_t v = 0; v < 4; v++) {
        for (size_t i = 0; i < COUNT; i++) {
            ids[i] = (int32_t)coh_rng_below(v, 0, i, (uint64_t)vocabularies[v]);
            marks[i] = (uint8_t)coh_rng_below(v, 1, i, 4);
        }
        coh_token_writer *writer;
        assert_int_equal(coh_token_writer_create(folder_file("ids"), vocabularies[v], 7, &writer),
                         COH_OK);
        coh_token_writer_mark(writer, WINDOW);
        coh_token_writer_mark_documents(writer);
        assert_int_equal(coh_token_writer_add(writer, ids, marks, COUNT), COH_OK);
        assert_int_equal(coh_token_writer_finish(writer), COH_OK);
        assert_int_equal(coh_token_writer_publish(writer), COH_OK);
        coh_token_writer_destroy(writer);
        coh_token_file *file;
        double nats;
        assert_int_equal(coh_token_file_open(folder_file("ids"), &file), COH_OK);
        assert_int_equal(coh_token_file_check(file), COH_OK);
        assert_int_equal(facts_of(file).marks_documents, 1);
        assert_int_equal(coh_token_file_read(file, 0, COUNT, found), COH_OK);
        assert_memory_equal(found, ids, sizeof(ids));
        for (uint64_t w = 0; w < WINDOWS; w++) {
            int32_t tokens[WINDOW], targets[WINDOW], positions[WINDOW];
            const size_t at = (size_t)w * (WINDOW + 1);
            assert_int_equal(
                coh_token_file_stretch_positions(file, at, WINDOW, tokens, targets, positions),
                COH_OK);
            assert_memory_equal(tokens, ids + at, sizeof(tokens));
            for (size_t i = 0; i < WINDOW; i++) {
                const int begins = i == 0 || (marks[at + i] & COH_TOKEN_BEGINS) != 0;
                const int counts = (marks[at + i + 1] & COH_TOKEN_COUNTS) != 0;
                assert_int_equal(targets[i], counts ? ids[at + i + 1] : -1);
                assert_int_equal(positions[i], begins ? 0 : positions[i - 1] + 1);
            }
        }
        if (v < 3)
            assert_int_equal(coh_token_file_unigram_entropy(file, &nats), COH_OK);
        coh_token_file_close(file);
    }
}

/* ---- .bin ---- */

static size_t write_raw(const char *name, const uint32_t *header, size_t header_count,
                        const int32_t *ids, size_t count, size_t width)
{
    static uint8_t made[1024 + 4096];
    memset(made, 0, sizeof(made));
    for (size_t i = 0; i < header_count; i++)
        for (size_t k = 0; k < 4; k++)
            made[4 * i + k] = (uint8_t)(header[i] >> (8 * k));
    size_t at = header_count ? 1024 : 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < width; k++)
            made[at++] = (uint8_t)((uint64_t)(uint32_t)ids[i] >> (8 * k));
    folder_write(name, made, at);
    return at;
}

/* Returns the largest address space that the process ever had, in KiB. */
static uint64_t peak_kib(void)
{
    char line[256];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (kib == 0 && fgets(line, sizeof(line), file))
        if (strncmp(line, "VmPeak:", 7) == 0)
            kib = strtoull(line + 7, NULL, 10);
    fclose(file);
    assert_true(kib > 0);
    return kib;
}

/* An id may be up to INT32_MAX - 1, without more memory; INT32_MAX and above are not ids. */
static void large_ids_cost_no_memory_and_too_large_ones_have_a_place(void **state)
{
    (void)state;
    const int32_t ids[] = { 5, INT32_MAX - 1, 1 << 22, 5, INT32_MAX - 1, 1 << 22 };
    const int32_t beyond[] = { 1, 2, INT32_MAX, 3 };
    coh_token_file *file;
    const uint64_t before = peak_kib();
    double nats;
    write_raw("x.bin", NULL, 0, ids, 6, 4);
    assert_int_equal(coh_token_file_open_raw(folder_file("x.bin"), 0, 4, &file), COH_OK);
    assert_int_equal(facts_of(file).vocabulary, INT32_MAX);
    assert_int_equal(coh_token_file_unigram_entropy(file, &nats), COH_OK);
    coh_token_file_close(file);
    assert_true(fabs(nats - log(3)) <= 1e-15);
    assert_true(peak_kib() - before < 1 << 20); /* a count for each id would take 16 GiB */
    write_raw("x.bin", NULL, 0, beyond, 4, 4);
    assert_int_equal(coh_token_file_open_raw(folder_file("x.bin"), 0, 4, &file), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "id 2147483647 at position 2 of "));
    assert_null(file);
}

static void files_of_llm_c_and_nanogpt_are_read_in_place(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    int32_t ids[COUNT], found[COUNT];
    static const struct form {
        uint32_t magic, version;
        size_t width;
        int64_t vocabulary;
    } all[] = { { 20240520, 1, 2, 50257 },
                { 20240801, 7, 4, 128256 },
                { 0, 0, 2, 65536 },
                { 0, 0, 4, 65537 },
                { 20240801, 7, 4, 1000 } };
    for (size_t f = 0; f < sizeof(all) / sizeof(all[0]); f++) {
        const uint32_t header[] = { all[f].magic, all[f].version, COUNT };
        for (size_t i = 0; i < COUNT; i++)
            ids[i] = (int32_t)coh_rng_below(f, 0, i, (uint64_t)all[f].vocabulary);
        write_raw("x.bin", header, all[f].magic ? 3 : 0, ids, COUNT, all[f].width);
        coh_token_file *file;
        if (coh_token_file_open_raw(folder_file("x.bin"), all[f].vocabulary, 0, &file) != COH_OK)
            fail_msg("case %zu: %s", f, coh_last_error());
        coh_token_file_facts facts = facts_of(file);
        assert_int_equal(facts.token_count, COUNT);
        assert_int_equal(facts.vocabulary, all[f].vocabulary);
        assert_int_equal(facts.is_raw, 1);
        assert_int_equal(facts.tokenizer_identity, 0);
        assert_int_equal(coh_token_file_check(file), COH_OK);
        assert_int_equal(coh_token_file_read(file, 0, COUNT, found), COH_OK);
        assert_memory_equal(found, ids, sizeof(ids));
        int32_t tokens[9], targets[9];
        assert_int_equal(coh_token_file_window_count(file, 9), 11);
        assert_int_equal(coh_token_file_window(file, 1, 2, 9, tokens, targets), COH_OK);
        assert_memory_equal(targets, tokens + 1, 8 * sizeof(int32_t));
        coh_token_file_close(file);

        ids[60] = (int32_t)all[f].vocabulary; /* too large by one */
        if (all[f].width == 2 && all[f].vocabulary > 65535)
            continue;
        write_raw("x.bin", header, all[f].magic ? 3 : 0, ids, COUNT, all[f].width);
        assert_int_equal(coh_token_file_open_raw(folder_file("x.bin"), all[f].vocabulary, 0, &file),
                         COH_ERR_CORRUPT);
        assert_non_null(strstr(coh_last_error(), "at position 60"));
        assert_null(file);
    }
}

static void malformed_bin_files_are_refused(void **state)
{
    (void)state;
    static const struct bad {
        uint32_t header[3];
        int has_header;
        size_t count, width;
        int64_t vocabulary;
        const char *says;
    } all[] = {
        { { 20240520, 2, 10 }, 1, 10, 2, 50257, "version 2 instead of 1" },
        { { 20240520, 7, 10 }, 1, 10, 4, 50257, "version 7 instead of 1" },
        { { 20240801, 1, 10 }, 1, 10, 4, 50257, "version 1 instead of 7" },
        { { 20240520, 1, 11 }, 1, 10, 2, 50257, "cut off or added to" },
        { { 20240520, 1, 9 }, 1, 10, 2, 50257, "cut off or added to" },
        { { 20240520, 1, UINT32_MAX }, 1, 10, 2, 50257, "cut off or added to" },
        { { 20240801, 7, 10 }, 1, 10, 2, 50257, "cut off or added to" },
        { { 0, 0, 0 }, 0, 3, 1, 50257, "no number of ids" },
        { { 0, 0, 0 }, 0, 5, 2, 70000, "no number of ids" },
    };
    const int32_t ids[16] = { 0 };
    coh_token_file *file;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        write_raw("x.bin", all[i].header, all[i].has_header ? 3 : 0, ids, all[i].count,
                  all[i].width);
        if (coh_token_file_open_raw(folder_file("x.bin"), all[i].vocabulary, 0, &file) !=
                COH_ERR_CORRUPT ||
            !strstr(coh_last_error(), all[i].says))
            fail_msg("case %zu: %s", i, coh_last_error());
        assert_null(file);
    }
    /* llm.c's header, truncated anywhere */
    const uint32_t header[] = { 20240520, 1, 10 };
    write_raw("x.bin", header, 3, ids, 10, 2);
    for (int cut = 12; cut < 1044; cut += 4) {
        assert_int_equal(truncate(folder_file("x.bin"), 1044 - cut + 8), 0);
        assert_int_equal(coh_token_file_open_raw(folder_file("x.bin"), 50257, 0, &file),
                         COH_ERR_CORRUPT);
    }
    assert_int_equal(coh_token_file_open_raw(folder_file("nothing"), 50257, 0, &file), COH_ERR_IO);
    assert_int_equal(coh_token_file_open_raw(folder_file("x.bin"), -1, 0, &file), COH_ERR_ARGUMENT);
    assert_int_equal(coh_token_file_open_raw(folder_file("x.bin"), 10, 3, &file), COH_ERR_ARGUMENT);
}

/* Its header would be read as ids. */
static void a_token_file_is_no_file_of_ids_alone(void **state)
{
    (void)state;
    static const coh_token_header header = { .id_bytes = 2, .count = 6, .vocabulary = 10 };
    uint8_t made[COH_TOKEN_HEADER_BYTES + 12] = { 0 };
    coh_token_file *file;
    coh_token_header_write(&header, made);
    folder_write("x.bin", made, sizeof(made));
    for (int32_t id_bytes = 0; id_bytes <= 4; id_bytes += 2) {
        assert_int_equal(coh_token_file_open_raw(folder_file("x.bin"), 0, id_bytes, &file),
                         COH_ERR_ARGUMENT);
        assert_non_null(strstr(coh_last_error(), "is a token file"));
    }
}

/* numpy's default of 4 or 8 bytes per id, and a text named *.bin. */
static void what_looks_like_no_ids_of_2_bytes_is_refused(void **state)
{
    (void)state;
    static char text[4098];
    int32_t ids[64];
    coh_token_file *file;
    for (int i = 0; i < 64; i++)
        ids[i] = (int32_t)coh_rng_below(3, 0, (uint64_t)i, 50257);
    write_raw("x.bin", NULL, 0, ids, 64, 4);
    assert_int_equal(coh_token_file_open_raw(folder_file("x.bin"), 50257, 0, &file),
                     COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "looks like ids of 4 bytes"));
    assert_int_equal(coh_token_file_open_raw(folder_file("x.bin"), 70000, 0, &file), COH_OK);
    coh_token_file_close(file);
    write_raw("x.bin", NULL, 0, ids, 64, 8);
    assert_int_equal(coh_token_file_open_raw(folder_file("x.bin"), 50257, 0, &file),
                     COH_ERR_CORRUPT);
    memset(ids, 0, sizeof(ids)); /* a repeated id is valid */
    write_raw("x.bin", NULL, 0, ids, 64, 2);
    assert_int_equal(coh_token_file_open_raw(folder_file("x.bin"), 50257, 0, &file), COH_OK);
    coh_token_file_close(file);

    for (size_t bytes = 32; bytes <= sizeof(text); bytes += 2) { /* splits characters, too */
        for (size_t i = 0; i < bytes; i++)
            text[i] = i % 3 == 0 ? ' ' : i % 3 == 1 ? '\xc3' : '\xa9';
        text[bytes - 1] = bytes % 3 == 2 ? 'x' : text[bytes - 1];
        folder_write("x.bin", text, bytes);
        if (coh_token_file_open_raw(folder_file("x.bin"), 65536, 0, &file) != COH_ERR_CORRUPT ||
            !strstr(coh_last_error(), "looks like text"))
            fail_msg("%zu bytes of text were taken", bytes);
        text[20] = 0;
        folder_write("x.bin", text, bytes);
        assert_int_equal(coh_token_file_open_raw(folder_file("x.bin"), 65536, 0, &file), COH_OK);
        coh_token_file_close(file);
    }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(headers_with_marks_that_no_writer_writes_are_refused),
        IN_FOLDER(marked_ids_come_back_at_both_widths),
        IN_FOLDER(begins_of_documents_come_back_as_positions_at_both_widths),
        IN_FOLDER(large_ids_cost_no_memory_and_too_large_ones_have_a_place),
        IN_FOLDER(files_of_llm_c_and_nanogpt_are_read_in_place),
        IN_FOLDER(malformed_bin_files_are_refused),
        IN_FOLDER(a_token_file_is_no_file_of_ids_alone),
        IN_FOLDER(what_looks_like_no_ids_of_2_bytes_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
