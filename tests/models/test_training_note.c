/* The note of a training run: what is written is read back, whatever could not be read is not
 * written, and a damaged one is refused with the key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cohobate/training_note.h"
#include "tests/comma_locale.h"

static coh_training_note note, other;
static char text[COH_TRAINING_NOTE_BYTES];
static coh_model model;

static int begin(void **state)
{
    (void)state;
    coh_training_note_init(&note);
    memset(&other, 0, sizeof(other));
    other.struct_bytes = sizeof(other);
    assert_int_equal(coh_model_preset("gpt2-nano", 257, &model), COH_OK);
    return 0;
}

static void a_note_is_read_as_it_was_written(void **state)
{
    (void)state;
    note.steps = 12345678901;
    note.schedule = (coh_schedule){ 1.0 / 3, 1e-9, 77, 12345678900 };
    note.batch = 12;
    note.micro_batch = 3;
    note.seed = INT64_MAX;
    note.beta2 = 0.999;
    note.clips_by_previous = 1;
    note.lr_for.count = COH_NOTE_PATTERNS;
    for (int i = 0; i < COH_NOTE_PATTERNS; i++) {
        snprintf(note.lr_for.at[i].pattern, COH_PATTERN_BYTES, "h.%d.*", i);
        note.lr_for.at[i].value = 0.1 * i;
    }
    snprintf(note.optimizer, sizeof(note.optimizer), "lion");
    note.optimizer_for.count = 1;
    snprintf(note.optimizer_for.at[0].pattern, COH_PATTERN_BYTES, "wte");
    snprintf(note.optimizer_for.at[0].optimizer, COH_OPTIMIZER_NAME_BYTES, "sgd");
    note.hyperparameters.count = 1;
    snprintf(note.hyperparameters.at[0].pattern, COH_PATTERN_BYTES, "sgd.momentum");
    note.hyperparameters.at[0].value = -0.5;
    snprintf(note.tokenizer, sizeof(note.tokenizer), "/a \"quoted\" \\ path/\xc3\xa9");
    note.tokenizer_identity = UINT64_MAX;
    note.data_hash = 0x0123456789abcdef;
    note.form.validation_split = 0.125;
    note.form.chat_form = 2;
    note.data_first_step = 5;
    note.save_every = 50;
    note.keep = 3;
    note.validation_every = 20;
    note.validation_windows = 64;
    note.stop_after_worse = 4;
    note.data_first_window = 60;
    note.replicas = (coh_fold_shape){ { 2, 2 } };
    note.trained_positions = 1024;
    note.lora_dropout = 0.05;
    note.base_trained = 1;
    note.frozen_rounded = 1;
    assert_int_equal(coh_training_note_write(&note, &model, text, sizeof(text)), COH_OK);
    assert_non_null(strstr(text, "\"data_hash\": \"0123456789abcdef\""));
    assert_non_null(strstr(text, "\"replicas\": \"2x2\""));
    assert_int_equal(coh_training_note_read(text, &other), COH_OK);
    assert_memory_equal(&note, &other, sizeof(note));
}

/* Programs that know version 1 alone would train with the rates of a cosine: they refuse it. */
static void a_schedule_that_is_no_cosine_has_a_version_of_its_own(void **state)
{
    (void)state;
    static const char *const named[] = { "cosine", "linear", "constant", "wsd" };
    for (int kind = 0; kind < COH_SCHEDULE_KIND_COUNT; kind++) {
        char wanted[64];
        note.schedule_kind = (uint64_t)kind;
        note.decay_steps = kind == COH_SCHEDULE_WSD ? 7 : 0;
        assert_int_equal(coh_training_note_write(&note, &model, text, sizeof(text)), COH_OK);
        snprintf(wanted, sizeof(wanted), "\"version\": %d,", kind == COH_SCHEDULE_COSINE ? 1 : 2);
        assert_non_null(strstr(text, wanted));
        snprintf(wanted, sizeof(wanted), "\"schedule\": \"%s\", \"decay_steps\": %d", named[kind],
                 kind == COH_SCHEDULE_WSD ? 7 : 0);
        assert_non_null(strstr(text, wanted));
        assert_int_equal(coh_training_note_read(text, &other), COH_OK);
        assert_memory_equal(&note, &other, sizeof(note));
    }
    *strstr(text, "wsd") = 'x';
    assert_int_equal(coh_training_note_read(text, &other), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "'schedule'"));
    *strstr(text, "\"version\": 2") = 'X';
    assert_int_equal(coh_training_note_read(text, &other), COH_ERR_CORRUPT);
}

static void a_note_without_a_schedule_is_a_cosine(void **state)
{
    (void)state;
    static const char members[] = ", \"schedule\": \"cosine\", \"decay_steps\": 0";
    assert_int_equal(coh_training_note_write(&note, &model, text, sizeof(text)), COH_OK);
    char *at = strstr(text, members);
    assert_non_null(at);
    memmove(at, at + sizeof(members) - 1, strlen(at + sizeof(members) - 1) + 1);
    assert_int_equal(coh_training_note_read(text, &other), COH_OK);
    assert_int_equal(other.schedule_kind, COH_SCHEDULE_COSINE);
    assert_int_equal(other.decay_steps, 0);
}

/* Sets a member that no reader would take, tries to write, and sets it back. */
#define REFUSED(member, wrong, word)                                                               \
    do {                                                                                           \
        const coh_training_note before = note;                                                     \
        note.member = wrong;                                                                       \
        assert_int_equal(coh_training_note_write(&note, &model, text, sizeof(text)),               \
                         COH_ERR_ARGUMENT);                                                        \
        assert_non_null(strstr(coh_last_error(), word));                                           \
        assert_null(strstr(coh_last_error(), "use another checkpoint"));                           \
        note = before;                                                                             \
    } while (0)

static void what_no_reader_takes_is_not_written(void **state)
{
    (void)state;
    REFUSED(steps, 0, "'steps' of the training note is out of range: give a whole number from 1");
    REFUSED(steps, UINT64_MAX, "'steps'");
    REFUSED(batch, 0, "'batch'");
    REFUSED(micro_batch, 3, "'batch' of the training note is 8, which is no multiple");
    REFUSED(micro_batch, -1, "'micro_batch'");
    REFUSED(schedule.highest, NAN, "'lr'");
    REFUSED(schedule.lowest, -1, "'min_lr'");
    REFUSED(clip, INFINITY, "'clip'");
    REFUSED(beta1, 1, "each must be below 1");
    REFUSED(dropout, 1, "each must be below 1");
    REFUSED(lora_dropout, 1, "each must be below 1");
    REFUSED(lora_dropout, -0.1, "'lora_dropout'");
    REFUSED(replicas, ((coh_fold_shape){ { 4 } }), "times the replicas (4)");
    REFUSED(replicas, ((coh_fold_shape){ { -1 } }), "'replicas'");
    REFUSED(lr_for.count, COH_NOTE_PATTERNS + 1, "'lr_for'");
    REFUSED(lr_for.count, -1, "'lr_for'");
    note.lr_for.count = 1;
    REFUSED(lr_for.at[0].value, -1, "'lr_for' of the training note holds -1: give a finite number");
    note.lr_for.count = 0;
    REFUSED(tokenizer[0], '\xff', "not UTF-8");
    REFUSED(schedule_kind, COH_SCHEDULE_KIND_COUNT, "'schedule' of the training note is 4");
    REFUSED(schedule_kind, COH_SCHEDULE_WSD, "'decay_steps' of the training note is 0");
    REFUSED(decay_steps, 1, "its schedule cosine");
    note.schedule_kind = COH_SCHEDULE_WSD;
    note.decay_steps = 7;
    REFUSED(decay_steps, note.schedule.schedule_steps - note.schedule.warmup_steps + 1,
            "are longer than the schedule of");
    REFUSED(decay_steps, INT64_MAX, "are longer than the schedule of");
    REFUSED(schedule.warmup_steps, note.schedule.schedule_steps - 6, "a decay of 7 are longer");
    note.schedule_kind = COH_SCHEDULE_COSINE;
    note.decay_steps = 0;
    memset(note.data, 'x', sizeof(note.data));
    assert_int_equal(coh_training_note_write(&note, &model, text, sizeof(text)), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "'data'"));
    note.data[0] = '\0';
    assert_int_equal(coh_training_note_write(&note, &model, text, 100), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "too long"));
    assert_int_equal(coh_training_note_write(&note, &model, text, sizeof(text)), COH_OK);
}

/* The largest seeds are texts in the note, which any JSON reader holds exactly. */
static void every_seed_is_read_as_it_was_written(void **state)
{
    (void)state;
    static const uint64_t seeds[] = { 0, 1, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX };
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        note.seed = seeds[i];
        assert_int_equal(coh_training_note_write(&note, &model, text, sizeof(text)), COH_OK);
        assert_int_equal(coh_training_note_read(text, &other), COH_OK);
        assert_true(other.seed == seeds[i]);
    }
    *strstr(text, "18446744073709551615") = '9'; /* beyond 64 bits */
    assert_int_equal(coh_training_note_read(text, &other), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "'seed'"));
}

/* Each key removed, and each cut of the text. */
static void a_note_does_not_depend_on_the_locale(void **state)
{
    (void)state;
    char plain[COH_TRAINING_NOTE_BYTES];
    note.schedule = (coh_schedule){ 1.0 / 3, 1e-9, 1, 100 };
    note.clip = 0.75;
    note.lr_for.count = 1;
    note.lr_for.at[0] = (coh_pattern_number){ "wte", 1.25e-4 };
    assert_int_equal(coh_training_note_write(&note, &model, plain, sizeof(plain)), COH_OK);
    if (!comma_locale_set())
        skip();
    const coh_status written = coh_training_note_write(&note, &model, text, sizeof(text));
    const coh_status read = coh_training_note_read(text, &other);
    setlocale(LC_ALL, "C");
    assert_int_equal(written, COH_OK);
    assert_int_equal(read, COH_OK);
    assert_string_equal(text, plain);
    assert_memory_equal(&note, &other, sizeof(note));
}

static void a_damaged_note_is_refused(void **state)
{
    (void)state;
    static const char *const keys[] = { "steps", "lr", "batch", "seed", "tokenizer", "data_hash" };
    static char damaged[COH_TRAINING_NOTE_BYTES];
    assert_int_equal(coh_training_note_write(&note, &model, text, sizeof(text)), COH_OK);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        char wanted[40];
        snprintf(wanted, sizeof(wanted), "\"%s\": ", keys[i]);
        snprintf(damaged, sizeof(damaged), "%s", text);
        *(strstr(damaged, wanted) + 1) = 'X';
        assert_int_equal(coh_training_note_read(damaged, &other), COH_ERR_CORRUPT);
        assert_non_null(strstr(coh_last_error(), keys[i]));
    }
    for (size_t bytes = 0; bytes < strlen(text); bytes += 7) {
        snprintf(damaged, sizeof(damaged), "%.*s", (int)bytes, text);
        assert_int_equal(coh_training_note_read(damaged, &other), COH_ERR_CORRUPT);
    }
    assert_int_equal(coh_training_note_read("{}", &other), COH_ERR_CORRUPT);
    assert_int_equal(coh_training_note_read(text, &other), COH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_note_is_read_as_it_was_written, begin),
        cmocka_unit_test_setup(a_schedule_that_is_no_cosine_has_a_version_of_its_own, begin),
        cmocka_unit_test_setup(a_note_without_a_schedule_is_a_cosine, begin),
        cmocka_unit_test_setup(what_no_reader_takes_is_not_written, begin),
        cmocka_unit_test_setup(every_seed_is_read_as_it_was_written, begin),
        cmocka_unit_test_setup(a_note_does_not_depend_on_the_locale, begin),
        cmocka_unit_test_setup(a_damaged_note_is_refused, begin),
    };
    return cmocka_run_group_tests_name("training_note", tests, NULL, NULL);
}
