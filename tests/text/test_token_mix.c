#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cohobate/text.h"
#include "tests/faults/alloc_faults.h"
#include "tests/text/folder.h"
#include "text/token_file.h"

/* The oracle: an id of a file is its position plus the file's base, so that an id of a mixture says
 * where it is from. */

enum { VOCABULARY = 60000, IDENTITY = 7 };

/* How a file's ids are arranged. */
typedef struct layout {
    int32_t base;
    uint32_t window; /* 0: packed */
    int is_masked;   /* of three ids one does not count */
    int is_separate; /* with a window: a document begins at each fifth id */
    uint64_t identity;
} layout;

static uint8_t marks_of(const layout *of, uint64_t at)
{
    const uint64_t in_window = of->window ? at % (of->window + 1) : at;
    const int counts = of->is_masked ? at % 3 != 1 : !of->window || in_window > 0;
    return (uint8_t)((counts ? COH_TOKEN_COUNTS : 0) |
                     (of->is_separate && in_window % 5 == 0 ? COH_TOKEN_BEGINS : 0));
}

static coh_token_file *make(const char *name, uint64_t count, layout of)
{
    coh_token_writer *writer;
    coh_token_file *file;
    const char *path = folder_file(name);
    assert_int_equal(
        coh_token_writer_create(path, VOCABULARY, of.identity ? of.identity : IDENTITY, &writer),
        COH_OK);
    if (of.window || of.is_masked)
        coh_token_writer_mark(writer, of.window);
    if (of.is_separate)
        coh_token_writer_mark_documents(writer);
    for (uint64_t at = 0; at < count; at++) {
        const int32_t id = of.base + (int32_t)at;
        const uint8_t marks = marks_of(&of, at);
        assert_int_equal(coh_token_writer_add(writer, &id, &marks, 1), COH_OK);
    }
    assert_int_equal(coh_token_writer_finish(writer), COH_OK);
    assert_int_equal(coh_token_writer_publish(writer), COH_OK);
    coh_token_writer_destroy(writer);
    assert_int_equal(coh_token_file_open(path, &file), COH_OK);
    return file;
}

static coh_token_mix_options options_of(uint64_t seed)
{
    coh_token_mix_options options;
    coh_token_mix_options_init(&options);
    options.out_path = folder_file("mixed");
    options.seed = seed;
    return options;
}

/* Mixes, checks the result's hash, and closes the files. */
static coh_token_file *mix(coh_token_file **files, const double *times, int32_t count,
                           uint64_t seed, uint64_t *out_counts)
{
    const coh_token_mix_options options = options_of(seed);
    coh_token_file *mixed;
    assert_int_equal(coh_token_file_mix(files, times, count, &options, out_counts), COH_OK);
    assert_int_equal(coh_token_file_open(options.out_path, &mixed), COH_OK);
    assert_int_equal(coh_token_file_check(mixed), COH_OK);
    for (int32_t i = 0; i < count; i++)
        coh_token_file_close(files[i]);
    return mixed;
}

static coh_token_file_facts facts_of(const coh_token_file *file)
{
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    assert_int_equal(coh_token_file_facts_get(file, &facts), COH_OK);
    return facts;
}

static int32_t id_at(coh_token_file *file, uint64_t at)
{
    int32_t id;
    assert_int_equal(coh_token_file_read(file, at, 1, &id), COH_OK);
    return id;
}

static void whole_copies_of_packed_files_follow_one_another(void **state)
{
    (void)state;
    coh_token_file *files[] = { make("a", 700, (layout){ 0 }),
                                make("b", 1200, (layout){ .base = 10000 }) };
    uint64_t counts[2];
    coh_token_file *mixed = mix(files, (double[]){ 2, 1 }, 2, 1, counts);
    const coh_token_file_facts facts = facts_of(mixed);
    assert_int_equal(facts.token_count, 2 * 700 + 1200);
    assert_int_equal(facts.has_mask, 0);
    assert_int_equal(facts.tokenizer_identity, IDENTITY);
    assert_int_equal(counts[0], 1400);
    assert_int_equal(counts[1], 1200);
    for (uint64_t at = 0; at < facts.token_count; at++)
        assert_int_equal(id_at(mixed, at), at < 1400 ? at % 700 : 10000 + at - 1400);
    coh_token_file_close(mixed);
}

/* Marks in taken[id] what the mixture has of a packed file, and returns how often an id does not
 * follow the one before it. */
static int take_apart(coh_token_file *mixed, uint8_t *taken, size_t size)
{
    int joints = 0;
    memset(taken, 0, size);
    for (uint64_t at = 0; at < facts_of(mixed).token_count; at++) {
        const int32_t id = id_at(mixed, at);
        assert_int_equal(taken[id]++, 0);
        joints += at > 0 && id != id_at(mixed, at - 1) + 1;
    }
    return joints;
}

static void a_part_of_a_packed_file_is_exact_seeded_and_in_a_larger_one(void **state)
{
    (void)state;
    enum { COUNT = 40000 };
    static uint8_t quarter[COUNT], half[COUNT], other[COUNT];
    const struct {
        double times;
        uint64_t seed;
        uint8_t *taken;
    } runs[] = { { 0.25, 1, quarter }, { 0.5001, 1, half }, { 0.25, 2, other } };
    for (size_t i = 0; i < 3; i++) {
        coh_token_file *file = make("a", COUNT, (layout){ 0 });
        coh_token_file *mixed = mix(&file, &runs[i].times, 1, runs[i].seed, NULL);
        assert_int_equal(facts_of(mixed).token_count, (uint64_t)(runs[i].times * COUNT + 0.5));
        assert_in_range(take_apart(mixed, runs[i].taken, COUNT), 1, 64); /* pieces of COUNT / 64 */
        coh_token_file_close(mixed);
    }
    for (int i = 0; i < COUNT; i++)
        assert_true(half[i] >= quarter[i]);
    assert_memory_not_equal(quarter, other, COUNT);
}

static void a_copy_and_a_part_have_the_marks_of_a_packed_file(void **state)
{
    (void)state;
    const layout of = { .is_masked = 1 };
    coh_token_file *file = make("a", 3000, of);
    uint64_t count, counted = 0;
    coh_token_file *mixed = mix(&file, (double[]){ 1.5 }, 1, 3, &count);
    int32_t tokens[4500], targets[4500];
    assert_int_equal(count, 4500);
    assert_int_equal(coh_token_file_stretch(mixed, 0, 4500, tokens, targets), COH_OK);
    for (int i = 0; i + 1 < 4500; i++)
        assert_int_equal(targets[i], marks_of(&of, (uint64_t)tokens[i + 1]) & COH_TOKEN_COUNTS
                                         ? tokens[i + 1]
                                         : -1);
    for (int i = 0; i < 4500; i++)
        counted += marks_of(&of, (uint64_t)tokens[i]) & COH_TOKEN_COUNTS ? 1 : 0;
    assert_int_equal(facts_of(mixed).target_count, counted);
    coh_token_file_close(mixed);
}

/* Checks window `at` of the mixture against the window of the file that its first id names. */
static void check_window(coh_token_file *mixed, uint64_t at, uint32_t window, const layout *windows,
                         const layout *packed, int is_separate)
{
    int32_t tokens[64], targets[64], positions[64];
    assert_int_equal(coh_token_file_stretch_positions(mixed, at * (window + 1), window, tokens,
                                                      targets, positions),
                     COH_OK);
    const layout *of = tokens[0] >= packed->base ? packed : windows;
    const uint64_t first = (uint64_t)(tokens[0] - of->base);
    int position = 0;
    assert_int_equal(first % (of == packed ? window : window + 1), 0);
    for (uint32_t i = 0; i < window; i++) {
        const uint8_t marks = marks_of(of, first + i), next = marks_of(of, first + i + 1);
        assert_int_equal(tokens[i], of->base + (int32_t)(first + i));
        assert_int_equal(targets[i], next & COH_TOKEN_COUNTS ? tokens[i] + 1 : -1);
        position = i == 0 || (is_separate && marks & COH_TOKEN_BEGINS) ? 0 : position + 1;
        assert_int_equal(positions[i], position);
    }
}

static void a_packed_file_next_to_windows_is_cut_as_a_run_cuts_it(void **state)
{
    (void)state;
    enum { WINDOW = 9, WINDOWS = 20, PACKED = 205, CUT = (PACKED - 1) / WINDOW };
    for (int is_separate = 0; is_separate < 2; is_separate++) {
        const layout windows = { .window = WINDOW, .is_separate = is_separate };
        const layout packed = { .base = 10000 };
        coh_token_file *files[] = { make("w", WINDOWS * (WINDOW + 1), windows),
                                    make("p", PACKED, packed) };
        uint64_t counts[2], count;
        coh_token_file *mixed = mix(files, (double[]){ 2.35, 1.5 }, 2, 4, counts);
        assert_int_equal(counts[0], (2 * WINDOWS + 7) * (WINDOW + 1));
        assert_int_equal(counts[1], (CUT + CUT / 2) * (WINDOW + 1));
        count = coh_token_file_window_count(mixed, WINDOW);
        assert_int_equal(count * (WINDOW + 1), counts[0] + counts[1]);
        assert_int_equal(facts_of(mixed).marks_documents, is_separate);
        assert_int_equal(facts_of(mixed).target_count, count * WINDOW);
        for (uint64_t at = 0; at < count; at++)
            check_window(mixed, at, WINDOW, &windows, &packed, is_separate);
        coh_token_file_close(mixed);
    }
}

static void refuses(coh_token_file *a, coh_token_file *b, double times, const char *out,
                    coh_status expected, const char *says)
{
    coh_token_file *files[] = { a, b };
    coh_token_mix_options options = options_of(1);
    if (out)
        options.out_path = out;
    assert_int_equal(coh_token_file_mix(files, (double[]){ 1, times }, b ? 2 : 1, &options, NULL),
                     expected);
    if (!strstr(coh_last_error(), says))
        fail_msg("\"%s\" does not say \"%s\"", coh_last_error(), says);
    coh_token_file_close(a);
    coh_token_file_close(b);
    assert_int_equal(access(folder_file("mixed"), F_OK), -1);
}

static coh_token_file *flipped(const char *name)
{
    coh_token_file_close(make(name, 100, (layout){ 0 }));
    coh_token_file *file;
    FILE *bytes = fopen(folder_file(name), "r+b");
    fseek(bytes, COH_TOKEN_HEADER_BYTES + 10, SEEK_SET);
    fputc(0x11, bytes);
    fclose(bytes);
    assert_int_equal(coh_token_file_open(folder_file(name), &file), COH_OK);
    return file;
}

static coh_token_file *raw(const char *name)
{
    coh_token_file *file;
    FILE *bytes = fopen(folder_file(name), "wb");
    for (int i = 0; i < 100; i++)
        fputc(i, bytes);
    fclose(bytes);
    assert_int_equal(coh_token_file_open_raw(folder_file(name), VOCABULARY, 2, &file), COH_OK);
    return file;
}

static void what_cannot_be_mixed_is_refused_and_leaves_nothing(void **state)
{
    (void)state;
    const layout plain = { 0 }, other = { .identity = 8 }, nine = { .window = 9 },
                 four = { .window = 4 };
    unlink(folder_file("mixed"));
    char same[4096];
    snprintf(same, sizeof(same), "%s", folder_file("a"));
    refuses(make("a", 100, plain), make("b", 100, other), 1, NULL, COH_ERR_CORRUPT,
            "another tokenizer");
    refuses(make("a", 100, nine), make("b", 100, four), 1, NULL, COH_ERR_CORRUPT,
            "windows of 4 tokens");
    refuses(make("a", 100, plain), make("b", 100, plain), 0, NULL, COH_ERR_ARGUMENT, "0 times");
    refuses(make("a", 100, plain), make("b", 100, plain), 1001, NULL, COH_ERR_ARGUMENT,
            "at most 1000");
    refuses(make("a", 100, plain), make("b", 100, plain), 1e-4, NULL, COH_ERR_CORRUPT, "none");
    refuses(make("a", 100, nine), make("b", 9, plain), 1, NULL, COH_ERR_CORRUPT, "none");
    refuses(make("a", 100, plain), make("b", 100, plain), 1, same, COH_ERR_ARGUMENT,
            "would replace");
    refuses(make("a", 100, plain), flipped("b"), 1, NULL, COH_ERR_CORRUPT, "");
    refuses(raw("c"), NULL, 1, NULL, COH_ERR_ARGUMENT, "which tokenizer");
}

static coh_status stops_at_third(void *context)
{
    int *calls = context;
    return ++*calls < 3 ? COH_OK : coh_fail(COH_ERR_STOPPED, "asked to");
}

static void a_cancelled_mixture_leaves_nothing(void **state)
{
    (void)state;
    int calls = 0;
    unlink(folder_file("mixed"));
    coh_token_file *file = make("a", 4000, (layout){ 0 });
    coh_token_mix_options options = options_of(1);
    options.go_on = stops_at_third;
    options.go_on_context = &calls;
    assert_int_equal(coh_token_file_mix(&file, (double[]){ 1 }, 1, &options, NULL),
                     COH_ERR_STOPPED);
    assert_int_equal(calls, 3);
    assert_int_equal(access(folder_file("mixed"), F_OK), -1);
    coh_token_file_close(file);
}

static void every_failed_allocation_is_an_error_that_leaves_nothing(void **state)
{
    (void)state;
    coh_token_file *file = make("a", 4000, (layout){ 0 });
    const coh_token_mix_options options = options_of(1);
    int failed = 0;
    unlink(options.out_path);
    for (uint64_t n = 1;; n++) {
        alloc_fail_nth(n);
        const coh_status status = coh_token_file_mix(&file, (double[]){ 1 }, 1, &options, NULL);
        alloc_fail_nth(0);
        if (status == COH_OK)
            break;
        failed++;
        assert_int_equal(status, COH_ERR_MEMORY);
        assert_int_equal(access(options.out_path, F_OK), -1);
    }
    assert_true(failed > 0);
    coh_token_file_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_copies_of_packed_files_follow_one_another),
        cmocka_unit_test(a_part_of_a_packed_file_is_exact_seeded_and_in_a_larger_one),
        cmocka_unit_test(a_copy_and_a_part_have_the_marks_of_a_packed_file),
        cmocka_unit_test(a_packed_file_next_to_windows_is_cut_as_a_run_cuts_it),
        cmocka_unit_test(what_cannot_be_mixed_is_refused_and_leaves_nothing),
        cmocka_unit_test(a_cancelled_mixture_leaves_nothing),
        cmocka_unit_test(every_failed_allocation_is_an_error_that_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, folder_create, folder_remove);
}
