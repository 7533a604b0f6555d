/* The calibration file: canonical, strict, joined as a mean with forgetting. Oracles: sums done by
 * hand, and every byte of a file changed once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cohobate/calibration.h"
#include "planner/calibration.h"
#include "planner/profile_file.h"
#include "tests/temporary.h"

static coh_calibrations some(void)
{
    coh_calibrations c = { .profile_hash = UINT64_C(0xfedcba9876543210), .runs = 3 };
    c.opcodes[COH_OP_FORWARD] =
        (coh_calibration){ .factor = 1.0625, .runs = 3, .deviation = 0.01 / 3 };
    c.opcodes[COH_OP_READ] = (coh_calibration){ .factor = 1.0 / 3.0, .runs = 1 };
    return c;
}

static void what_is_written_is_read_and_written_as_the_same_bytes(void **state)
{
    (void)state;
    coh_text first = { 0 }, second = { 0 };
    const coh_calibrations c = some();
    coh_calibrations again;
    assert_int_equal(coh_calibrations_add_text(&c, &first), COH_OK);
    assert_int_equal(coh_calibrations_parse(first.data, first.bytes, &again), COH_OK);
    assert_true(again.profile_hash == c.profile_hash && again.runs == c.runs);
    for (int op = 0; op < COH_OP_COUNT; op++)
        assert_true(again.opcodes[op].factor == c.opcodes[op].factor &&
                    again.opcodes[op].runs == c.opcodes[op].runs &&
                    again.opcodes[op].deviation == c.opcodes[op].deviation);
    assert_int_equal(coh_calibrations_add_text(&again, &second), COH_OK);
    assert_string_equal(first.data, second.data);
    coh_text_fini(&first);
    coh_text_fini(&second);
}

/* The newline at the end is not changed: it carries no data. */
static void any_other_byte_is_refused(void **state)
{
    (void)state;
    coh_text text = { 0 };
    const coh_calibrations c = some();
    coh_calibrations read;
    assert_int_equal(coh_calibrations_add_text(&c, &text), COH_OK);
    for (size_t i = 0; i + 1 < text.bytes; i++) {
        const char was = text.data[i];
        text.data[i] = was == '7' ? '8' : '7';
        if (coh_calibrations_parse(text.data, text.bytes, &read) == COH_OK)
            fail_msg("byte %zu of %zu may be another:\n%s", i, text.bytes, text.data);
        assert_int_equal(read.runs, 0);
        text.data[i] = was;
    }
    for (size_t bytes = 0; bytes + 2 < text.bytes; bytes++) {
        const char was = text.data[bytes];
        text.data[bytes] = '\0';
        assert_int_equal(coh_calibrations_parse(text.data, bytes, &read), COH_ERR_CORRUPT);
        text.data[bytes] = was;
    }
    coh_text_fini(&text);
}

static void eight_runs_are_their_mean_and_later_ones_forget(void **state)
{
    (void)state;
    coh_calibration c = { 0 };
    double sum = 0;
    for (int run = 1; run <= 8; run++) {
        const double factor = 1 + 0.01 * run * run;
        sum += factor;
        coh_calibration_join(&c, factor);
        assert_true(fabs(c.factor - sum / run) < 1e-12);
    }
    for (int run = 0; run < 60; run++)
        coh_calibration_join(&c, 2);
    assert_true(fabs(c.factor - 2) < 1e-3);
    assert_int_equal(c.runs, 68);
    for (int run = 0; run < 100; run++)
        coh_calibration_join(&c, 1e9); /* a stopped machine is not drift */
    assert_true(c.factor <= COH_CALIBRATION_MOST);
}

/* Two passes over the factors give the same deviation. The mean of few runs is uncertain, too, so
 * the next run may differ from it by more. */
static void runs_that_differ_make_the_next_one_uncertain(void **state)
{
    enum { RUNS = 8 };
    static const double factors[RUNS] = { 1.1, 0.9, 1.3, 1.05, 0.8, 1.0, 1.2, 0.95 };
    (void)state;
    coh_calibration c = { 0 };
    for (int n = 1; n <= RUNS; n++) {
        double sum = 0, squares = 0;
        coh_calibration_join(&c, factors[n - 1]);
        for (int i = 0; i < n; i++)
            sum += factors[i];
        for (int i = 0; i < n; i++)
            squares += (factors[i] - sum / n) * (factors[i] - sum / n);
        assert_true(fabs(c.deviation - sqrt(squares / n)) < 1e-12);
        if (n == 1)
            assert_true(coh_calibration_uncertainty(&c) == 0);
        else
            assert_true(fabs(coh_calibration_uncertainty(&c) * c.factor -
                             sqrt(squares / (n - 1) * (1 + 1.0 / n))) < 1e-12);
    }
    for (int run = 0; run < 100; run++)
        coh_calibration_join(&c, 1.5);
    assert_true(coh_calibration_uncertainty(&c) < 1e-3); /* what runs showed long ago fades */
}

/* The profile is identified by its hash; forward's factor also applies to recomputation. */
static void a_calibration_is_of_one_profile(void **state)
{
    (void)state;
    char path[256];
    coh_profile mine, other;
    uint32_t runs = 7;
    coh_calibrations c = some();
    assert_int_equal(temporary_file(path, sizeof(path), "calibration"), 0);
    coh_profile_builtin(2, 0, 0, &mine);
    coh_profile_builtin(3, 0, 0, &other);
    assert_int_equal(coh_profile_hash(&mine, &c.profile_hash), COH_OK);
    assert_int_equal(coh_calibrations_write(&c, path), COH_OK);
    assert_int_equal(coh_profile_calibrate(&other, path, &runs), COH_OK);
    assert_int_equal(runs, 0);
    assert_int_equal(other.calibration[COH_OP_FORWARD].runs, 0);
    assert_int_equal(coh_profile_calibrate(&mine, path, &runs), COH_OK);
    assert_int_equal(runs, 3);
    assert_true(mine.calibration[COH_OP_FORWARD].factor == 1.0625);
    assert_true(mine.calibration[COH_OP_RECOMPUTE].factor == 1.0625);
    assert_int_equal(mine.calibration[COH_OP_BACKWARD].runs, 0);
    assert_int_equal(coh_profile_calibrate(&mine, path, &runs), COH_ERR_ARGUMENT); /* only once */
    unlink(path);
}

static void a_file_that_is_not_there_has_no_runs_a_damaged_one_is_named(void **state)
{
    (void)state;
    char path[256];
    coh_calibrations read;
    assert_int_equal(coh_calibrations_read("no-such-file", &read), COH_OK);
    assert_int_equal(read.runs, 0);
    assert_int_equal(temporary_file(path, sizeof(path), "calibration"), 0);
    assert_int_equal(coh_file_write_whole(path, "{", 1), COH_OK);
    assert_int_equal(coh_calibrations_read(path, &read), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), path));
    unlink(path);
}

/* Adds `RUNS_EACH` runs in a process of its own. */
enum { WRITERS = 4, RUNS_EACH = 25 };

static pid_t add_runs(const char *path)
{
    double factors[COH_OP_COUNT] = { 0 };
    const pid_t child = fork();
    if (child != 0)
        return child;
    factors[COH_OP_FORWARD] = 1.25;
    for (int i = 0; i < RUNS_EACH; i++)
        if (coh_calibrations_add_run(path, 7, factors) != COH_OK)
            _exit(1);
    _exit(0);
}

static void runs_that_end_together_are_all_in_the_file(void **state)
{
    (void)state;
    char folder[256], path[300];
    pid_t writers[WRITERS];
    coh_calibrations found;
    temporary_in_memory();
    assert_int_equal(temporary_folder(folder, sizeof(folder), "calibrations"), 0);
    snprintf(path, sizeof(path), "%s/calibration.json", folder);
    for (int i = 0; i < WRITERS; i++)
        writers[i] = add_runs(path);
    for (int i = 0; i < WRITERS; i++) {
        int how = -1;
        assert_int_equal(waitpid(writers[i], &how, 0), writers[i]);
        assert_int_equal(how, 0);
    }
    assert_int_equal(coh_calibrations_read(path, &found), COH_OK);
    assert_int_equal(found.runs, WRITERS * RUNS_EACH);
    assert_int_equal(found.opcodes[COH_OP_FORWARD].runs, WRITERS * RUNS_EACH);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* no lock and no temporary file is left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_and_written_as_the_same_bytes),
        cmocka_unit_test(any_other_byte_is_refused),
        cmocka_unit_test(eight_runs_are_their_mean_and_later_ones_forget),
        cmocka_unit_test(runs_that_differ_make_the_next_one_uncertain),
        cmocka_unit_test(a_calibration_is_of_one_profile),
        cmocka_unit_test(a_file_that_is_not_there_has_no_runs_a_damaged_one_is_named),
        cmocka_unit_test(runs_that_end_together_are_all_in_the_file),
    };
    return cmocka_run_group_tests_name("calibration", tests, NULL, NULL);
}
