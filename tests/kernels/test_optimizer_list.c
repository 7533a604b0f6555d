/* The list of optimizers: what a registration refuses, one broken field at a time, and who finds
 * what was registered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cohobate/optimizer.h"

static void update_nothing(const coh_update_call *call)
{
    (void)call;
}

static coh_optimizer good_optimizer(void)
{
    return (coh_optimizer){
        .struct_bytes = sizeof(coh_optimizer),
        .name = "good_1",
        .revision = 1,
        .stream_count = 2,
        .streams = { { "velocity", 4, 1, 1 }, { "code", 3, 1024, 0 } },
        .hyperparameter_count = 2,
        .hyperparameters = { { "momentum", 0.5f, 0, 1 }, { "slope", -2, -3, -1 } },
        .scalar_count = 2,
        .scalars = { 1, 0 },
        .update = update_nothing,
    };
}

/* Checks that the registration fails with a sentence that has this part, and adds nothing. */
static void is_refused(const coh_optimizer *optimizer, const char *part)
{
    const int32_t count = coh_optimizer_count();
    const coh_status status = coh_optimizer_register(optimizer);
    if (status != COH_ERR_ARGUMENT || strstr(coh_last_error(), part) == NULL)
        fail_msg("%s with \"%s\" instead of a refusal with \"%s\"", coh_status_name(status),
                 coh_last_error(), part);
    assert_int_equal(coh_optimizer_count(), count);
    for (int32_t i = 0; i < count; i++)
        assert_ptr_not_equal(coh_optimizer_at(i), optimizer);
}

/* Checks that a good optimizer with this one field set is refused. */
#define REFUSE(part, field, ...)                                                                   \
    do {                                                                                           \
        coh_optimizer broken = good_optimizer();                                                   \
        broken.field = __VA_ARGS__;                                                                \
        is_refused(&broken, part);                                                                 \
    } while (0)

static void a_struct_of_an_impossible_size_is_refused(void **state)
{
    (void)state;
    const char *size = "struct_bytes";
    REFUSE(size, struct_bytes, 0);
    REFUSE(size, struct_bytes, (uint32_t)sizeof(coh_optimizer) - 1);
    REFUSE(size, struct_bytes, UINT32_MAX);
    assert_int_equal(coh_optimizer_register(NULL), COH_ERR_ARGUMENT);
    assert_true(coh_last_error()[0] != '\0');
}

static void a_name_that_no_file_can_have_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = { NULL,
                                         "",
                                         "Good",
                                         "a b",
                                         "a-b",
                                         "a.b",
                                         "a/b",
                                         "a\n",
                                         "\xc3\xa4",
                                         "0123456789abcdef",
                                         "0123456789abcdefg" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        REFUSE("an optimizer is called '", name, names[i]);
        REFUSE(": stream 1 is called '", streams[1].name, names[i]);
        REFUSE(": hyperparameter 1 is called '", hyperparameters[1].name, names[i]);
    }
}

static void a_stream_that_cannot_be_stored_is_refused(void **state)
{
    (void)state;
    static const char *const taken[] = { "work", "grad", "low", "hashes" };
    const char *count = "streams", *elements = "a power of two from 1 to 1024",
               *bytes = "1 to 4096 bytes";
    REFUSE(count, stream_count, -1);
    REFUSE(count, stream_count, COH_OPTIMIZER_STREAMS + 1);
    REFUSE(count, stream_count, INT32_MAX);
    REFUSE("a name", stream_count, 3); /* the third has none */
    REFUSE("two of its streams", streams[1].name, "velocity");
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        REFUSE("another file or stream", streams[0].name, taken[i]);
    REFUSE(elements, streams[1].elements_per_block, 0);
    REFUSE(elements, streams[1].elements_per_block, 3);
    REFUSE(elements, streams[1].elements_per_block, 1023);
    REFUSE(elements, streams[1].elements_per_block, 2048);
    REFUSE(elements, streams[1].elements_per_block, 1u << 31);
    REFUSE(elements, streams[1].elements_per_block, UINT32_MAX);
    REFUSE(bytes, streams[1].bytes_per_block, 0);
    REFUSE(bytes, streams[1].bytes_per_block, 4097);
    REFUSE(bytes, streams[1].bytes_per_block, UINT32_MAX);
    REFUSE("multiple of 4 bytes", streams[1].is_f32, 1); /* of 3 bytes */
    REFUSE("multiple of 4 bytes", streams[0].bytes_per_block, 6);
}

static void a_number_whose_range_is_wrong_is_refused(void **state)
{
    (void)state;
    const char *range = "outside its range";
    REFUSE("hyperparameters", hyperparameter_count, -1);
    REFUSE("hyperparameters", hyperparameter_count, COH_OPTIMIZER_NUMBERS + 1);
    REFUSE("hyperparameters", hyperparameter_count, INT32_MIN);
    REFUSE("a name", hyperparameter_count, 3);
    REFUSE(range, hyperparameters[0].initial, -0.1f);
    REFUSE(range, hyperparameters[0].initial, 1.1f);
    REFUSE(range, hyperparameters[0].initial, NAN);
    REFUSE(range, hyperparameters[0].least, 0.6f);
    REFUSE(range, hyperparameters[0].least, NAN);
    REFUSE(range, hyperparameters[0].least, -INFINITY);
    REFUSE(range, hyperparameters[0].most, 0.4f);
    REFUSE(range, hyperparameters[0].most, NAN);
    REFUSE(range, hyperparameters[0].most, INFINITY);
    REFUSE(range, hyperparameters[1].most, -4);
}

static void a_scalar_of_no_number_is_refused(void **state)
{
    (void)state;
    REFUSE("scalars", scalar_count, -1);
    REFUSE("scalars", scalar_count, COH_OPTIMIZER_SCALARS + 1);
    REFUSE("scalars", scalar_count, INT32_MAX);
    REFUSE("names no hyperparameter", scalars[1], -1);
    REFUSE("names no hyperparameter", scalars[1], 2);
    REFUSE("names no hyperparameter", scalars[0], INT32_MAX);
    REFUSE("names no hyperparameter", hyperparameter_count, 0);
}

static void an_optimizer_without_an_update_or_of_the_library_is_refused(void **state)
{
    (void)state;
    REFUSE("no update", update, NULL);
    REFUSE("flops", flops, -1);
    REFUSE("flops", flops, NAN);
    REFUSE("flops", flops, INFINITY);
    REFUSE("leave it NULL", cuda_kernel, "adamw");
    REFUSE("another optimizer has this name", name, "adamw");
}

static void an_optimizer_of_every_limit_is_found_by_name_and_by_index(void **state)
{
    (void)state;
    static const coh_optimizer widest = {
        .struct_bytes = sizeof(widest),
        .name = "abcdefghij_0129",
        .revision = INT32_MAX,
        .stream_count = 8,
        .streams = { { "a", 1, 1, 0 },
                     { "b", 4096, 1024, 1 },
                     { "c", 4096, 1, 0 },
                     { "d", 1, 1024, 0 },
                     { "e", 4, 1, 1 },
                     { "f", 4, 128, 1 },
                     { "g", 5, 2, 0 },
                     { "0123456789abcde", 8, 512, 1 } },
        .hyperparameter_count = 8,
        .hyperparameters = { { "a", 0, 0, 0 },
                             { "b", 1, 1, 2 },
                             { "c", 2, 1, 2 },
                             { "d", 0, -3.4e38f, 3.4e38f },
                             { "e", 0, 0, 0 },
                             { "f", 0, 0, 0 },
                             { "g", 0, 0, 0 },
                             { "0123456789abcde", 0, 0, 0 } },
        .scalar_count = 4,
        .scalars = { 7, 7, 0, 1 },
        .update = update_nothing,
        .takes_bf16 = 1,
    };
    static const coh_optimizer smallest = { .struct_bytes = sizeof(smallest),
                                            .name = "_",
                                            .update = update_nothing };
    const int32_t count = coh_optimizer_count();
    for (int time = 0; time < 2; time++) { /* again: nothing happens */
        assert_int_equal(coh_optimizer_register(&widest), COH_OK);
        assert_int_equal(coh_optimizer_register(&smallest), COH_OK);
        assert_int_equal(coh_optimizer_count(), count + 2);
    }
    assert_ptr_equal(coh_optimizer_find("abcdefghij_0129"), &widest);
    assert_ptr_equal(coh_optimizer_find("_"), &smallest);
    assert_ptr_equal(coh_optimizer_at(count), &widest);
    assert_ptr_equal(coh_optimizer_at(count + 1), &smallest);
    const coh_optimizer copy = widest; /* the same fields, but another optimizer */
    is_refused(&copy, "another optimizer has this name");
    assert_ptr_equal(coh_optimizer_find("abcdefghij_0129"), &widest);
}

static void what_is_not_in_the_list_is_null(void **state)
{
    (void)state;
    assert_null(coh_optimizer_find(NULL));
    assert_null(coh_optimizer_find(""));
    assert_null(coh_optimizer_find("adam"));
    assert_null(coh_optimizer_find("adamw "));
    assert_null(coh_optimizer_find("ADAMW"));
    assert_null(coh_optimizer_at(-1));
    assert_null(coh_optimizer_at(INT32_MIN));
    assert_null(coh_optimizer_at(coh_optimizer_count()));
    assert_null(coh_optimizer_at(INT32_MAX));
}

/* The library's own come first, each findable and with nothing that a registration would refuse but
 * its kernel. adamw is the one that plans take by default. */
static void the_librarys_own_come_first(void **state)
{
    (void)state;
    assert_ptr_equal(coh_optimizer_at(0), coh_optimizer_find("adamw"));
    for (int32_t i = 0; i < coh_optimizer_count(); i++) {
        const coh_optimizer *own = coh_optimizer_at(i);
        assert_ptr_equal(coh_optimizer_find(own->name), own);
        coh_optimizer renamed = *own;
        renamed.update = NULL; /* the last of the checks, so that nothing is added */
        is_refused(&renamed, "no update");
    }
    const coh_optimizer *adamw = coh_optimizer_find("adamw");
    assert_int_equal(adamw->stream_count, 2);
    assert_string_equal(adamw->streams[0].name, "m");
    assert_string_equal(adamw->streams[1].name, "v");
    const coh_hyperparameter *numbers = adamw->hyperparameters;
    assert_int_equal(adamw->hyperparameter_count, 3);
    assert_true(numbers[0].initial == 0.9f && numbers[1].initial == 0.95f);
    assert_true(numbers[2].initial == 1e-8f && numbers[2].least > 0);
    assert_true(numbers[0].most < 1 && nextafterf(numbers[0].most, 2) == 1.0f);
}

/* ---- from several threads ---- */

enum { THREADS = 4, OWN = 8 };
static coh_optimizer made[THREADS * OWN];
static char names[THREADS * OWN][COH_OPTIMIZER_NAME_BYTES];

static void *register_own(void *argument)
{
    const int first = (int)(intptr_t)argument * OWN;
    for (int i = first; i < first + OWN; i++)
        if (coh_optimizer_register(&made[i]) != COH_OK ||
            coh_optimizer_find(names[i]) != &made[i] ||
            coh_optimizer_at(coh_optimizer_count() - 1) == NULL)
            return argument == NULL ? (void *)1 : argument;
    return NULL;
}

/* Fills the list, too: a registration past the last place is refused. */
static void threads_may_register_at_once_until_the_list_is_full(void **state)
{
    (void)state;
    enum { LIST = 64 };
    static coh_optimizer more[LIST];
    static char more_names[LIST][COH_OPTIMIZER_NAME_BYTES];
    pthread_t threads[THREADS];
    const int32_t count = coh_optimizer_count();
    for (int i = 0; i < THREADS * OWN; i++) {
        snprintf(names[i], sizeof(names[i]), "made_%d", i);
        made[i] = good_optimizer();
        made[i].name = names[i];
    }
    for (intptr_t t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, register_own, (void *)t), 0);
    for (int t = 0; t < THREADS; t++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[t], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(coh_optimizer_count(), count + THREADS * OWN);
    for (int i = 0; i < LIST; i++) {
        snprintf(more_names[i], sizeof(more_names[i]), "more_%d", i);
        more[i] = good_optimizer();
        more[i].name = more_names[i];
        if (coh_optimizer_count() == LIST)
            is_refused(&more[i], "64 optimizers are registered already");
        else
            assert_int_equal(coh_optimizer_register(&more[i]), COH_OK);
    }
    assert_int_equal(coh_optimizer_register(&made[0]), COH_OK); /* it is there */
    assert_ptr_equal(coh_optimizer_find("made_31"), &made[31]);
    assert_null(coh_optimizer_find("more_63"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_struct_of_an_impossible_size_is_refused),
        cmocka_unit_test(a_name_that_no_file_can_have_is_refused),
        cmocka_unit_test(a_stream_that_cannot_be_stored_is_refused),
        cmocka_unit_test(a_number_whose_range_is_wrong_is_refused),
        cmocka_unit_test(a_scalar_of_no_number_is_refused),
        cmocka_unit_test(an_optimizer_without_an_update_or_of_the_library_is_refused),
        cmocka_unit_test(an_optimizer_of_every_limit_is_found_by_name_and_by_index),
        cmocka_unit_test(what_is_not_in_the_list_is_null),
        cmocka_unit_test(the_librarys_own_come_first),
        cmocka_unit_test(threads_may_register_at_once_until_the_list_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
