/* Structs of callers that were compiled with an older or a newer header: the rule of
 * base/struct_bytes.h, and that public functions keep to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/struct_bytes.h"
#include "cohobate/cohobate.h"

/* A struct as the library knows it, as it was before a member came, and with a member to come. */
typedef struct known {
    uint32_t struct_bytes, first;
    uint64_t second;
} known;
typedef struct older {
    uint32_t struct_bytes, first;
} older;
typedef struct newer {
    known same;
    uint64_t third;
} newer;

static void sizes_that_no_struct_has_are_refused(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { 0, 4, 7, 12, 15, 17, 20, UINT32_MAX, UINT32_MAX - 3 };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const known given = { .struct_bytes = sizes[i] };
        assert_int_equal(coh_struct_check("known", &given, sizeof(given), _Alignof(known)),
                         COH_ERR_ARGUMENT);
        assert_non_null(strstr(coh_last_error(), "sizeof(known)"));
    }
}

/* sizeof a pointer to the struct, in place of the struct. One of 16 bytes may once have had 8. */
static void the_size_of_a_pointer_is_refused_for_a_larger_struct(void **state)
{
    (void)state;
    const newer given = { .same.struct_bytes = sizeof(void *) };
    assert_int_equal(coh_struct_check("newer", &given, sizeof(given), _Alignof(newer)),
                     COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "a struct_bytes of 8: set it to sizeof(newer)"));
    assert_int_equal(coh_struct_check("known", &given, sizeof(known), _Alignof(known)), COH_OK);
}

static void an_older_struct_leaves_the_defaults_of_what_it_lacks(void **state)
{
    (void)state;
    const older given = { .struct_bytes = sizeof(given), .first = 5 };
    known read = { .second = 7 };
    assert_int_equal(coh_struct_check("known", &given, sizeof(read), _Alignof(known)), COH_OK);
    coh_struct_read(&given, &read, sizeof(read));
    assert_int_equal(read.struct_bytes, sizeof(read));
    assert_int_equal(read.first, 5);
    assert_int_equal(read.second, 7);
}

static void a_newer_struct_is_read_if_what_is_new_is_zero(void **state)
{
    (void)state;
    newer given = { .same = { .struct_bytes = sizeof(given), .first = 5, .second = 6 } };
    known read = { 0 };
    assert_int_equal(coh_struct_check("known", &given, sizeof(read), _Alignof(known)), COH_OK);
    coh_struct_read(&given, &read, sizeof(read));
    assert_int_equal(read.struct_bytes, sizeof(read));
    assert_int_equal(read.second, 6);
    given.third = (uint64_t)1 << 63;
    assert_int_equal(coh_struct_check("known", &given, sizeof(read), _Alignof(known)),
                     COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "newer library"));
}

static void a_struct_is_filled_as_far_as_the_caller_knows_it(void **state)
{
    (void)state;
    const known value = { .struct_bytes = 99, .first = 5, .second = 6 };
    older small[2] = { { .struct_bytes = sizeof(older) }, { 11, 12 } };
    newer large = { .same.struct_bytes = sizeof(large) };
    COH_STRUCT_FILL(value, &small[0]);
    assert_int_equal(small[0].struct_bytes, sizeof(older));
    assert_int_equal(small[0].first, 5);
    assert_true(small[1].struct_bytes == 11 && small[1].first == 12);
    COH_STRUCT_FILL(value, &large);
    assert_int_equal(large.same.struct_bytes, sizeof(large));
    assert_true(large.same.first == 5 && large.same.second == 6 && large.third == 0);
}

/* A public struct that the library fills, cut before and after a member. */
static void a_program_of_an_older_header_gets_the_members_that_it_has(void **state)
{
    (void)state;
    coh_device_summary whole = { .struct_bytes = sizeof(whole) }, cut = { 0 };
    assert_int_equal(coh_device_summarize("host", &whole), COH_OK);
    assert_true(whole.memory_bytes > 0);
    assert_true(whole.total_bytes >= whole.memory_bytes);
    cut.struct_bytes = offsetof(coh_device_summary, kernel_path);
    assert_int_equal(coh_device_summarize("host", &cut), COH_OK);
    assert_string_equal(cut.name, "host");
    assert_string_equal(cut.kernel_path, "");
    cut.struct_bytes = 0;
    assert_int_equal(coh_device_summarize("host", &cut), COH_ERR_ARGUMENT);
}

/* A program of an older header has a smaller struct, a newer one's later members become 0. */
static void defaults_are_set_as_far_as_the_struct_goes(void **state)
{
    (void)state;
    const size_t least = offsetof(coh_plan_options, thread_count);
    coh_plan_options whole;
    coh_engine_options engine;
    struct {
        coh_plan_options options;
        uint64_t later;
    } larger;
    unsigned char smaller[sizeof(coh_plan_options)], untouched[sizeof(smaller)];
    memset(smaller, 0xa5, sizeof(smaller));
    memset(untouched, 0xa5, sizeof(untouched));
    memset(&larger, 0xa5, sizeof(larger));
    memset(&engine, 0xa5, sizeof(engine));
    coh_plan_options_init(&whole);
    assert_int_equal(whole.struct_bytes, sizeof(whole));
    assert_int_equal(whole.thread_count, 1);
    coh_plan_options_init_sized((coh_plan_options *)(void *)smaller, least);
    assert_memory_equal(smaller + sizeof(uint32_t),
                        (const unsigned char *)&whole + sizeof(uint32_t), least - sizeof(uint32_t));
    assert_int_equal(((const coh_plan_options *)(const void *)smaller)->struct_bytes, least);
    assert_memory_equal(smaller + least, untouched, sizeof(smaller) - least);
    coh_plan_options_init_sized(&larger.options, sizeof(larger));
    assert_int_equal(larger.options.struct_bytes, sizeof(larger));
    assert_int_equal(larger.options.thread_count, 1);
    assert_int_equal(larger.later, 0);
    coh_engine_options_init_sized(&engine, offsetof(coh_engine_options, thread_count));
    assert_int_equal(engine.disk_bytes, UINT64_MAX);
    assert_int_not_equal(engine.thread_count, 1);
    coh_plan_options_init_sized(NULL, sizeof(whole));
    coh_plan_options_init_sized((coh_plan_options *)(void *)untouched, 2);
    assert_int_equal(untouched[0], 0xa5);
}

/* Options that an older program does not have are as coh_plan_options_init sets them. */
static void options_of_an_older_header_plan_as_before(void **state)
{
    (void)state;
    coh_gpt2_config config;
    coh_graph *graph;
    coh_plan_options options, with_later_members;
    uint64_t bytes, expected;
    assert_int_equal(coh_gpt2_preset("gpt2-nano", 257, &config), COH_OK);
    assert_int_equal(coh_gpt2_train_graph(&config, 1, 16, &graph), COH_OK);
    coh_plan_options_init(&options);
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &expected), COH_OK);
    with_later_members = options;
    /* a size is a multiple of the alignment */
    options.struct_bytes = offsetof(coh_plan_options, optimizer) / 8 * 8;
    memset(options.optimizer, 'x', sizeof(options.optimizer)); /* not read */
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &bytes), COH_OK);
    assert_int_equal(bytes, expected);
    options.struct_bytes = sizeof(options);
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &bytes), COH_ERR_ARGUMENT);

    struct {
        coh_plan_options options;
        uint64_t later;
    } newer_options = { .options = with_later_members, .later = 0 };
    newer_options.options.struct_bytes = sizeof(newer_options);
    assert_int_equal(coh_plan_in_memory_bytes(graph, &newer_options.options, &bytes), COH_OK);
    assert_int_equal(bytes, expected);
    newer_options.later = 1;
    assert_int_equal(coh_plan_in_memory_bytes(graph, &newer_options.options, &bytes),
                     COH_ERR_ARGUMENT);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_no_struct_has_are_refused),
        cmocka_unit_test(the_size_of_a_pointer_is_refused_for_a_larger_struct),
        cmocka_unit_test(an_older_struct_leaves_the_defaults_of_what_it_lacks),
        cmocka_unit_test(a_newer_struct_is_read_if_what_is_new_is_zero),
        cmocka_unit_test(a_struct_is_filled_as_far_as_the_caller_knows_it),
        cmocka_unit_test(a_program_of_an_older_header_gets_the_members_that_it_has),
        cmocka_unit_test(defaults_are_set_as_far_as_the_struct_goes),
        cmocka_unit_test(options_of_an_older_header_plan_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
