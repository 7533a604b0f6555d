/* Applies flags to the recipe of a resumed run. The checkpoint's note has the whole recipe; a given
 * flag replaces one value, prints one line about it, and is stored in the next note (recipe.h).
 * Next: job.c, the caller. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/recipe.h"
#include "report/run.h"

/* ---- flags that cannot change ---- */

static coh_status check_fixed(const cli_options *options)
{
    static const cli_flag fixed[] = { CLI_FLAG_SEQUENCE,    CLI_FLAG_SEED,    CLI_FLAG_VOCABULARY,
                                      CLI_FLAG_FREEZE,      CLI_FLAG_LORA,    CLI_FLAG_LORA_TARGETS,
                                      CLI_FLAG_LORA_ALSO,   CLI_FLAG_ADAPTER, CLI_FLAG_DROPOUT,
                                      CLI_FLAG_LORA_DROPOUT };
    if (cli_given(options, CLI_FLAG_EPOCHS) && cli_given(options, CLI_FLAG_STEPS))
        return cli_fail(COH_ERR_ARGUMENT, "--epochs and --steps both say where the run ends: leave "
                                          "one out");
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
        if (cli_given(options, fixed[i]))
            return cli_fail(COH_ERR_ARGUMENT,
                            "--%s comes from the checkpoint with --resume: leave it out",
                            cli_flag_table[fixed[i]].name);
    return COH_OK;
}

/* ---- numbers ---- */

static void set_real(const char *name, double value, double *field)
{
    if (*field != value)
        cli_note_choice("%s %s -> %s", name, cli_rate(*field).at, cli_rate(value).at);
    *field = value;
}

static void set_count(const char *name, uint64_t value, uint64_t *field)
{
    if (*field != value)
        cli_note_choice("%s %" PRIu64 " -> %" PRIu64, name, *field, value);
    *field = value;
}

/* A new highest rate without a lowest one keeps their ratio, and so the schedule's shape. */
static coh_status set_rates(cli_recipe *recipe, const cli_options *options)
{
    coh_schedule *schedule = &recipe->schedule;
    const double before = schedule->highest;
    double lowest = schedule->lowest;
    if (cli_given(options, CLI_FLAG_LR)) {
        set_real("lr", options->lr, &schedule->highest);
        if (before > 0 && before != options->lr)
            lowest = options->lr * (lowest / before);
    }
    if (cli_given(options, CLI_FLAG_MIN_LR))
        lowest = options->min_lr;
    set_real("min-lr", lowest, &schedule->lowest);
    if (schedule->lowest <= schedule->highest)
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "the lowest rate %s is above the highest %s: lower --min-lr, or raise --lr",
                    cli_rate(schedule->lowest).at, cli_rate(schedule->highest).at);
}

/* Prints each change of the schedule's kind. */
static coh_status set_schedule_kind(cli_recipe *recipe, const cli_options *options)
{
    const char *kind = cli_recipe_schedule_name(recipe);
    uint64_t decay = recipe->decay_steps;
    CLI_TRY(cli_recipe_set_schedule_kind(recipe, options));
    if (strcmp(kind, cli_recipe_schedule_name(recipe)) != 0)
        cli_note_choice("schedule %s -> %s", kind, cli_recipe_schedule_name(recipe));
    if (recipe->schedule_kind == COH_SCHEDULE_WSD)
        set_count("decay-steps", recipe->decay_steps, &decay);
    return COH_OK;
}

static coh_status set_schedule(cli_recipe *recipe, const cli_options *options)
{
    coh_schedule *schedule = &recipe->schedule;
    if (cli_given(options, CLI_FLAG_SCHEDULE_STEPS))
        set_count("schedule-steps", (uint64_t)options->schedule_steps, &schedule->schedule_steps);
    if (cli_given(options, CLI_FLAG_WARMUP))
        set_count("warmup", cli_share_steps(&options->warmup, schedule->schedule_steps),
                  &schedule->warmup_steps);
    if (schedule->warmup_steps <= schedule->schedule_steps)
        return set_schedule_kind(recipe, options);
    return cli_fail(COH_ERR_ARGUMENT,
                    "a warm-up of %" PRIu64 " steps is longer than the schedule of %" PRIu64
                    ": lower --warmup, or raise --schedule-steps",
                    schedule->warmup_steps, schedule->schedule_steps);
}

static void add_fors(const cli_for_list *list, cli_line *line)
{
    for (int64_t i = 0; i < list->count; i++)
        cli_line_add(line, " %s=%s", list->at[i].pattern, cli_rate(list->at[i].value).at);
    if (list->count == 0)
        cli_line_add(line, " none");
}

/* Given patterns replace all patterns of the run. */
static void set_fors(const char *name, const cli_for_list *given, cli_for_list *field)
{
    cli_line line;
    int is_same = given->count == field->count;
    for (int64_t i = 0; is_same && i < given->count; i++)
        is_same = strcmp(given->at[i].pattern, field->at[i].pattern) == 0 &&
                  given->at[i].value == field->at[i].value;
    cli_line_clear(&line);
    cli_line_add(&line, "%s", name);
    add_fors(field, &line);
    cli_line_add(&line, " ->");
    add_fors(given, &line);
    if (!is_same)
        cli_note_choice("%s", line.text);
    *field = *given;
}

static int same_optimizers(const cli_optimizer_list *a, const cli_optimizer_list *b)
{
    int same = a->count == b->count;
    for (int64_t i = 0; same && i < a->count; i++)
        same = strcmp(a->at[i].pattern, b->at[i].pattern) == 0 &&
               strcmp(a->at[i].optimizer, b->at[i].optimizer) == 0;
    return same;
}

static const char *optimizer_name(const char *name)
{
    return name[0] != '\0' ? name : COH_OPTIMIZER_DEFAULT;
}

/* Sets a number of the optimizers; below 0 it is the optimizer's own. */
static void set_beta(const char *name, double value, const char *optimizer, double *field)
{
    const coh_optimizer *own = coh_optimizer_find(optimizer_name(optimizer));
    for (int32_t i = 0; own != NULL && *field < 0 && i < own->hyperparameter_count; i++)
        if (strcmp(own->hyperparameters[i].name, name) == 0)
            *field = (double)own->hyperparameters[i].initial;
    if ((float)*field == (float)value) /* floats in the table */
        *field = value;
    set_real(name, value, field);
}

/* Sets the optimizers. Other ones than the checkpoint's need new states. */
static coh_status choose_optimizers(cli_recipe *recipe, const cli_options *options)
{
    const cli_optimizer_list before = recipe->optimizer_for;
    char name[COH_OPTIMIZER_NAME_BYTES];
    memcpy(name, recipe->optimizer, sizeof(name));
    CLI_TRY(cli_recipe_set_optimizer(recipe, options));
    if (cli_given(options, CLI_FLAG_OPTIMIZER_FOR))
        recipe->optimizer_for = options->optimizer_for;
    if (cli_given(options, CLI_FLAG_HYPERPARAMETER))
        set_fors("hyperparameter", &options->hyperparameters, &recipe->hyperparameters);
    const int is_same = strcmp(optimizer_name(name), optimizer_name(recipe->optimizer)) == 0 &&
                        same_optimizers(&before, &recipe->optimizer_for);
    if (!is_same && !options->reset_optimizer)
        return cli_fail(COH_ERR_ARGUMENT,
                        "the checkpoint holds the states of other optimizers (%s%s): add "
                        "--reset-optimizer to start new ones, or leave %s out",
                        optimizer_name(name), before.count > 0 ? " and more" : "",
                        cli_given(options, CLI_FLAG_STATE) ? "--state"
                                                           : "--optimizer and --optimizer-for");
    if (!is_same) {
        cli_note_choice("optimizer %s%s -> %s%s", optimizer_name(name),
                        before.count > 0 ? " and others" : "", optimizer_name(recipe->optimizer),
                        recipe->optimizer_for.count > 0 ? " and others" : "");
        recipe->beta1 = recipe->beta2 = -1; /* the numbers of other optimizers */
        if (!cli_given(options, CLI_FLAG_HYPERPARAMETER))
            recipe->hyperparameters.count = 0;
    }
    if (options->reset_optimizer)
        cli_note_choice("the optimizer's states start again, at 0");
    return COH_OK;
}

static void set_clip_mode(cli_recipe *recipe, cli_clip_mode mode)
{
    const cli_clip_mode before = cli_recipe_clip_mode(recipe);
    if (before != mode)
        cli_note_choice("clip-mode %s -> %s", cli_clip_mode_name(before), cli_clip_mode_name(mode));
    cli_recipe_set_clip_mode(recipe, mode);
}

static coh_status set_optimizer(cli_recipe *recipe, const cli_options *options)
{
    CLI_TRY(choose_optimizers(recipe, options));
    if (cli_given(options, CLI_FLAG_BETA1))
        set_beta("beta1", options->beta1, recipe->optimizer, &recipe->beta1);
    if (cli_given(options, CLI_FLAG_BETA2))
        set_beta("beta2", options->beta2, recipe->optimizer, &recipe->beta2);
    if (cli_given(options, CLI_FLAG_WEIGHT_DECAY))
        set_real("weight-decay", options->weight_decay, &recipe->weight_decay);
    if (cli_given(options, CLI_FLAG_CLIP))
        set_real("clip", options->clip, &recipe->clip);
    if (cli_given(options, CLI_FLAG_CLIP_MODE))
        set_clip_mode(recipe, (cli_clip_mode)options->clip_mode);
    CLI_TRY(cli_recipe_check_clip(recipe));
    if (cli_given(options, CLI_FLAG_LR_FOR))
        set_fors("lr-for", &options->lr_for, &recipe->lr_for);
    if (cli_given(options, CLI_FLAG_WEIGHT_DECAY_FOR))
        set_fors("weight-decay-for", &options->weight_decay_for, &recipe->weight_decay_for);
    return COH_OK;
}

/* ---- batches ---- */

static void set_micro_batch(cli_recipe *recipe, int64_t micro_batch)
{
    if (recipe->micro_batch != micro_batch)
        cli_note_choice("micro-batch %" PRId64 " -> %" PRId64
                        ": other rounding, the run will not continue bit for bit",
                        recipe->micro_batch, micro_batch);
    recipe->micro_batch = micro_batch;
}

static coh_status set_replicas(cli_recipe *recipe, const cli_options *options)
{
    const cli_shape before = cli_shape_text(&recipe->replicas);
    if (!options->replicas)
        return COH_OK;
    CLI_TRY(coh_fold_shape_parse(options->replicas, &recipe->replicas));
    const cli_shape after = cli_shape_text(&recipe->replicas);
    if (strcmp(before.at, after.at) != 0)
        cli_note_choice("replicas %s -> %s: other rounding, the run will not continue bit for bit",
                        before.at, after.at);
    return COH_OK;
}

/* The next step continues in the data where the last one stopped, in batches of the new size. */
static coh_status set_batches(cli_recipe *recipe, const cli_options *options, uint64_t step)
{
    if (cli_given(options, CLI_FLAG_BATCH) && options->batch != recipe->batch) {
        cli_note_choice("batch %" PRId64 " -> %" PRId64, recipe->batch, options->batch);
        recipe->data_first_window = cli_recipe_window(recipe, step);
        recipe->data_first_step = step;
        recipe->batch = options->batch;
    }
    if (options->micro_batch > 0)
        set_micro_batch(recipe, options->micro_batch);
    else if (recipe->batch / coh_fold_shape_replicas(&recipe->replicas) % recipe->micro_batch != 0)
        set_micro_batch(recipe, cli_default_micro_batch(recipe));
    return cli_recipe_check_micro_batch(recipe);
}

/* ---- data ---- */

static coh_status set_form(cli_recipe *recipe, const cli_options *options)
{
    if (cli_recipe_form_is_given(options)) {
        if (!options->data)
            return cli_fail(
                COH_ERR_ARGUMENT,
                "--field, --chat, --chat-form, --documents, --validation-split and --skip-bad "
                "come from the checkpoint with --resume: leave them out, or give the --data that "
                "they are for");
        CLI_TRY(cli_data_form_override(options, &recipe->form));
        if (options->skip_bad)
            recipe->skip_bad = 1;
        if (cli_given(options, CLI_FLAG_VALIDATION_SPLIT) && recipe->form.validation_split > 0)
            recipe->validation[0] = '\0'; /* from now on the held-out documents */
    }
    if (cli_given(options, CLI_FLAG_ID_BYTES) && !options->data && !options->validation)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--id-bytes comes from the checkpoint with --resume: leave"
                        " it out, or give the --data that it is for");
    if (options->new_data || (options->data && cli_given(options, CLI_FLAG_ID_BYTES)))
        recipe->form.id_bytes = cli_data_id_bytes(options);
    if (options->validation)
        recipe->validation_id_bytes = cli_data_id_bytes(options);
    return COH_OK;
}

/* The flag's choices have the order of coh_dtype. */
static void set_gradients(cli_recipe *recipe, const cli_options *options)
{
    const uint64_t in_f32 = options->gradients == COH_DTYPE_F32;
    if (!cli_given(options, CLI_FLAG_GRADIENTS))
        return;
    if (recipe->f32_gradients != in_f32)
        cli_note_choice("gradients %s -> %s: other rounding, the run will not continue bit for bit",
                        recipe->f32_gradients ? "f32" : "bf16", in_f32 ? "f32" : "bf16");
    recipe->f32_gradients = in_f32;
}

/* ---- the budget ---- */

/* Adds the flag `row` of an earlier command, as it was given. */
static void add_given(const report_run *run, const cli_flag_row *row, cli_line *line)
{
    const char *word;
    const size_t length = strlen(row->name);
    for (size_t i = 1; (word = report_run_argument(run, i)) != NULL; i++) {
        if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, row->name, length) != 0)
            continue;
        const char *value = word[2 + length] == '='    ? word + 2 + length + 1
                            : word[2 + length] == '\0' ? report_run_argument(run, i + 1)
                                                       : NULL;
        if (!value)
            continue;
        cli_line_add(line, " --%s ", row->name);
        cli_line_add_word(line, value);
    }
}

/* The name of the folder above a checkpoint in messages: "run" of "run/step-2", and `above` itself
 * if the spelling tells another one, as that of ".", "run/step-2/" and a link does. */
static void name_above(const char *checkpoint, const char *above, char *out_name, size_t bytes)
{
    struct stat named, wanted;
    const char *slash = strrchr(checkpoint, '/');
    snprintf(out_name, bytes, "%.*s", slash ? (int)(slash - checkpoint) : 1,
             slash ? checkpoint : ".");
    if (stat(out_name, &named) != 0 || stat(above, &wanted) != 0 || named.st_dev != wanted.st_dev ||
        named.st_ino != wanted.st_ino)
        snprintf(out_name, bytes, "%s", above);
}

/* Reads the run.json of the run that a checkpoint belongs to. Returns 0 if there is none, or if it
 * cannot be read, with a note: the checkpoint has all that the run needs. */
static int read_command(const char *checkpoint, report_run *out_run)
{
    char above[CLI_PATH_BYTES + 8], folder[CLI_PATH_BYTES + 8];
    snprintf(above, sizeof(above), "%s/..", checkpoint);
    const coh_status status = report_run_read_facts(above, out_run);
    name_above(checkpoint, above, folder, sizeof(folder));
    if (status != COH_OK && status != COH_ERR_ARGUMENT) /* else it does not exist */
        cli_note_choice(
            "note: %s/run.json cannot be read: the run continues from %s, which has all "
            "it needs; the budget that it had is not known",
            folder, checkpoint);
    return status == COH_OK;
}

void cli_recipe_say_budget(const char *checkpoint, const cli_options *options)
{
    static const cli_flag budgets[] = { CLI_FLAG_DEVICE_MEMORY, CLI_FLAG_HOST_MEMORY,
                                        CLI_FLAG_DISK };
    cli_line had;
    cli_line_clear(&had);
    report_run run;
    if (!read_command(checkpoint, &run))
        return;
    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++)
        if (!cli_given(options, budgets[i]))
            add_given(&run, &cli_flag_table[budgets[i]], &had);
    report_run_close(&run);
    if (had.used > 0)
        cli_note_choice("note: the last command of the run had%s, which this one lacks: no "
                        "checkpoint keeps a budget, so give it again to have it",
                        had.text);
}

coh_status cli_recipe_override(cli_recipe *recipe, const cli_options *options, uint64_t step)
{
    CLI_TRY(check_fixed(options));
    if (recipe->data_first_step > step)
        return cli_fail(COH_ERR_CORRUPT,
                        "the checkpoint's note has data from step %" PRIu64
                        " on, and it is of step %" PRIu64 ": use another checkpoint",
                        recipe->data_first_step, step);
    CLI_TRY(set_form(recipe, options));
    if (cli_given(options, CLI_FLAG_STEPS))
        recipe->steps = (uint64_t)options->steps;
    CLI_TRY(set_rates(recipe, options));
    CLI_TRY(set_schedule(recipe, options));
    CLI_TRY(set_optimizer(recipe, options));
    /* The folder may have moved; its identity is compared when it is opened. */
    if (cli_given(options, CLI_FLAG_TOKENIZER) && strcmp(options->tokenizer, "none") == 0 &&
        strcmp(recipe->tokenizer, "none") != 0)
        cli_note_choice(
            "tokenizer %s -> none: the run and its checkpoints read and write ids from now on",
            recipe->tokenizer);
    cli_recipe_set_tokenizer(recipe, options);
    if (options->kernels)
        cli_recipe_keep_path(options->kernels, recipe->kernels);
    CLI_TRY(set_replicas(recipe, options));
    CLI_TRY(set_batches(recipe, options, step));
    if (cli_given(options, CLI_FLAG_SWEEP_ORDER) && options->sweep_order != COH_SWEEP_AUTO)
        cli_recipe_set_order(recipe, (coh_sweep_order)options->sweep_order);
    set_gradients(recipe, options);
    cli_recipe_set_saves(recipe, options);
    return COH_OK;
}
