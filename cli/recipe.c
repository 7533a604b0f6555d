/* Makes a recipe from flags. Next: recipe_resume.c changes a resumed run's recipe;
 * models/training_note.c writes and reads it as a checkpoint's note. */
#include "cli/recipe.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/artefact.h"
#include "cli/weights.h"
#include "cohobate/folder.h"

enum { MICRO_BATCH_MOST = 8, WARMUP_MOST = 100, WARMUP_SHARE = 10, DECAY_SHARE = 10 };

cli_shape cli_shape_text(const coh_fold_shape *shape)
{
    cli_shape text = { "" };
    (void)coh_fold_shape_write(shape, text.at);
    return text;
}

/* Sequences of each replica. */
static int64_t share_of(const cli_recipe *recipe)
{
    return recipe->batch / coh_fold_shape_replicas(&recipe->replicas);
}

int64_t cli_default_micro_batch(const cli_recipe *recipe)
{
    const int64_t share = share_of(recipe);
    for (int64_t divisor = share < MICRO_BATCH_MOST ? share : MICRO_BATCH_MOST; divisor > 1;
         divisor--)
        if (share % divisor == 0)
            return divisor;
    return 1;
}

coh_status cli_recipe_check_micro_batch(const cli_recipe *recipe)
{
    if (coh_fold_shape_replicas(&recipe->replicas) > 1 || recipe->batch % recipe->micro_batch == 0)
        return COH_OK; /* cli_job_share looks at those of replicas */
    return cli_fail(COH_ERR_ARGUMENT,
                    "--micro-batch %" PRId64 " does not divide --batch %" PRId64
                    ": give a divisor, or leave it out for %" PRId64,
                    recipe->micro_batch, recipe->batch, cli_default_micro_batch(recipe));
}

void cli_recipe_keep_path(const char *path, char *out_path)
{
    char *absolute = path[0] ? realpath(path, NULL) : NULL;
    snprintf(out_path, CLI_PATH_BYTES, "%s", absolute ? absolute : path);
    free(absolute);
}

/* For commands with presets, a preset's name always means the preset, whatever the working folder
 * holds. */
static int is_preset(const cli_options *options)
{
    return cli_command_operand(options->command) == CLI_OPERAND_MODEL &&
           cli_artefact_is_preset(options->operand);
}

/* Reads the recipe of the run of a checkpoint. Returns 0 if the path is not a checkpoint, or has no
 * note of a run: opening it as a model reports what is wrong with it. */
static int read_noted(const char *path, cli_recipe *out_noted)
{
    coh_checkpoint *checkpoint;
    coh_checkpoint_facts facts = { .struct_bytes = sizeof(facts) };
    struct stat kind;
    if (stat(path, &kind) != 0 || !S_ISDIR(kind.st_mode) ||
        coh_checkpoint_open(path, &checkpoint) != COH_OK)
        return 0;
    const int is_noted = coh_checkpoint_facts_get(checkpoint, &facts) == COH_OK &&
                         cli_recipe_from_checkpoint(&facts, out_noted) == COH_OK;
    coh_checkpoint_close(checkpoint);
    return is_noted;
}

/* Finds the tokenizer of the run of a checkpoint; "" if there is no such run. */
static void find_noted(const char *path, char *out_path)
{
    cli_recipe noted;
    const int is_noted = read_noted(path, &noted);
    snprintf(out_path, CLI_PATH_BYTES, "%s", is_noted ? noted.tokenizer : "");
}

/* The adapters of a run go on over the weights that it had. */
static void keep_frozen_dtype(cli_recipe *recipe, const cli_options *options,
                              const cli_recipe *noted)
{
    recipe->frozen_rounded = (uint64_t)cli_recipe_is_rounded(noted);
    if (!noted->frozen_nf4 || cli_given(options, CLI_FLAG_FROZEN_DTYPE))
        return;
    cli_note_choice("frozen weights in nf4: as those of %s; --frozen-dtype changes it",
                    options->operand);
    recipe->frozen_nf4 = 1;
}

/* Likewise with the dropout that they had, as a folder of adapters keeps it. */
static void keep_lora_dropout(cli_recipe *recipe, const cli_options *options,
                              const cli_recipe *noted)
{
    if (noted->lora_dropout == 0 || cli_given(options, CLI_FLAG_LORA_DROPOUT))
        return;
    cli_note_choice("dropout of adapters %g: as those of %s; --lora-dropout changes it",
                    noted->lora_dropout, options->operand);
    recipe->lora_dropout = noted->lora_dropout;
}

/* Licence and settings of the folder that the first run began with are of these weights, too. */
static void keep_base(cli_recipe *recipe, const cli_recipe *noted)
{
    snprintf(recipe->base, sizeof(recipe->base), "%s", noted->base);
    recipe->base_trained = noted->base_trained;
}

void cli_recipe_keep_noted(cli_recipe *recipe, const cli_options *options)
{
    cli_recipe noted;
    int is_text;
    if (!options->operand || is_preset(options) || cli_artefact_is_folder(options->operand) ||
        !read_noted(options->operand, &noted))
        return;
    const char *layout = noted.form.aligned == COH_DOCUMENTS_SEPARATE ? "separate"
                         : noted.form.aligned == COH_DOCUMENTS_FITTED ? "fitted"
                                                                      : "aligned";
    keep_base(recipe, &noted);
    keep_frozen_dtype(recipe, options, &noted);
    keep_lora_dropout(recipe, options, &noted);
    if (options->command == CLI_TRAIN && noted.form.aligned &&
        !cli_given(options, CLI_FLAG_DOCUMENTS) && options->data &&
        cli_data_is_text("data", options->data, &is_text) == COH_OK && is_text)
        cli_note_choice("note: the documents of %s were %s; those of this run are packed "
                        "(--documents %s)",
                        options->operand, layout, layout);
    if (cli_given(options, CLI_FLAG_SEQUENCE) || recipe->sequence == noted.sequence)
        return;
    cli_note_choice("sequence %" PRId64 ": as %s was trained; --sequence changes it",
                    noted.sequence, options->operand);
    recipe->sequence = noted.sequence;
}

/* Is it a word of --tokenizer that is not a path? */
static int is_word(const char *tokenizer)
{
    return strcmp(tokenizer, "bytes") == 0 || cli_recipe_has_no_tokenizer(tokenizer);
}

int cli_recipe_has_no_tokenizer(const char *tokenizer)
{
    return strcmp(tokenizer, "none") == 0;
}

coh_status cli_recipe_open_named(const char *tokenizer, coh_tokenizer **out_tokenizer)
{
    *out_tokenizer = NULL;
    if (cli_recipe_has_no_tokenizer(tokenizer))
        return COH_OK;
    return coh_tokenizer_open(tokenizer, out_tokenizer);
}

int cli_recipe_tokenizer_is_gone(const char *tokenizer)
{
    struct stat facts;
    return !is_word(tokenizer) && stat(tokenizer, &facts) != 0 &&
           (errno == ENOENT || errno == ENOTDIR);
}

/* `more`: a further remedy. */
static coh_status check_noted_is_there(const char *tokenizer, const char *more)
{
    if (!cli_recipe_tokenizer_is_gone(tokenizer))
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "the tokenizer of the run, %s, is not there any more: give it with --tokenizer"
                    " PATH%s",
                    tokenizer, more);
}

coh_status cli_recipe_open_tokenizer(const cli_recipe *recipe, const cli_options *options,
                                     coh_tokenizer **out_tokenizer)
{
    const int is_given = cli_given(options, CLI_FLAG_TOKENIZER);
    const int exports = options->command == CLI_EXPORT;
    CLI_TRY(check_noted_is_there(recipe->tokenizer,
                                 exports ? ", or leave it out with --tokenizer none" : ""));
    CLI_TRY(cli_recipe_open_named(recipe->tokenizer, out_tokenizer));
    if (!*out_tokenizer || recipe->tokenizer_identity == 0) /* trained without a tokenizer */
        return COH_OK;
    const uint64_t identity = coh_tokenizer_identity(*out_tokenizer);
    if (identity == recipe->tokenizer_identity)
        return COH_OK;
    coh_tokenizer_close(*out_tokenizer);
    *out_tokenizer = NULL;
    return cli_fail(COH_ERR_CORRUPT,
                    "the tokenizer %s is not the one the checkpoint was trained with (%016" PRIx64
                    ", not %016" PRIx64 "): %s%s",
                    recipe->tokenizer, identity, recipe->tokenizer_identity,
                    is_given ? "leave --tokenizer out" : "give that one with --tokenizer PATH",
                    exports ? ", or give --tokenizer none" : "");
}

void cli_recipe_set_tokenizer(cli_recipe *recipe, const cli_options *options)
{
    if (!cli_given(options, CLI_FLAG_TOKENIZER))
        return;
    if (is_word(options->tokenizer))
        snprintf(recipe->tokenizer, sizeof(recipe->tokenizer), "%s", options->tokenizer);
    else
        cli_recipe_keep_path(options->tokenizer, recipe->tokenizer);
}

/* Fails if the folder's tensors do not fit its model. Reads the headers of its files. */
static coh_status check_tensors(const cli_options *options, const coh_model *model)
{
    coh_folder *folder = NULL;
    const coh_status status = options->from_scratch ? COH_OK : coh_folder_open(model, &folder);
    coh_folder_close(folder);
    return status;
}

/* Chooses a Hugging Face folder's tokenizer. Its model is checked first: if it is refused, a
 * tokenizer does not help. */
static coh_status choose_of_folder(const cli_options *options, const char **out_chosen)
{
    const char *folder = options->operand;
    coh_model model;
    CLI_TRY(cli_weights_resolve(folder, 0, &model));
    if (cli_given(options, CLI_FLAG_TOKENIZER))
        return COH_OK;
    const int reads_no_text = options->command == CLI_PLAN || options->command == CLI_TUNE ||
                              options->command == CLI_PROFILE;
    if (cli_artefact_has_tokenizer(folder))
        *out_chosen = folder;
    else if (cli_artefact_is_of_bytes(folder))
        *out_chosen = "bytes";
    else if (!reads_no_text) {
        CLI_TRY(check_tensors(options, &model));
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s holds no tokenizer (tokenizer.json, tokenizer.model, or vocab.json "
                        "with merges.txt): give the one it was trained with as --tokenizer "
                        "bytes|PATH%s",
                        folder,
                        options->command == CLI_GENERATE
                            ? ""
                            : ", or --tokenizer none for --data that is ids already");
    }
    return COH_OK;
}

coh_status cli_recipe_choose_tokenizer(const cli_options *options, char *out_path)
{
    char noted[CLI_PATH_BYTES];
    const char *chosen = options->tokenizer;
    const char *folder = options->operand;
    const int is_folder = folder && cli_artefact_is_folder(folder);
    struct stat facts;
    if (folder && is_preset(options)) {
        if (stat(folder, &facts) == 0 && S_ISDIR(facts.st_mode)) /* may explain a refusal */
            cli_note_once("note: %s is the preset of that name, which begins with first values; "
                          "for the folder here give ./%s",
                          folder, folder);
    } else if (is_folder) {
        CLI_TRY(choose_of_folder(options, &chosen));
    } else if (folder && !cli_given(options, CLI_FLAG_TOKENIZER)) {
        find_noted(folder, noted);
        if (noted[0]) {
            CLI_TRY(check_noted_is_there(noted, ""));
            chosen = noted;
        }
    }
    snprintf(out_path, CLI_PATH_BYTES, "%s", chosen);
    if (!is_word(chosen))
        cli_recipe_keep_path(chosen, out_path);
    return COH_OK;
}

uint64_t cli_share_steps(const cli_share *share, uint64_t schedule_steps)
{
    if (!share->is_share)
        return (uint64_t)share->count;
    return (uint64_t)(share->percent * (double)schedule_steps / 100 + 0.5);
}

/* The length of a decay without --decay-steps: a tenth of the schedule, as in MiniCPM. */
static uint64_t usual_decay(const coh_schedule *schedule)
{
    const uint64_t most = schedule->schedule_steps - schedule->warmup_steps;
    const uint64_t tenth = (schedule->schedule_steps + DECAY_SHARE / 2) / DECAY_SHARE;
    const uint64_t wanted = tenth < most ? tenth : most;
    return wanted > 0 ? wanted : 1;
}

static coh_status set_decay(cli_recipe *recipe, const cli_options *options)
{
    const coh_schedule *schedule = &recipe->schedule;
    if (cli_given(options, CLI_FLAG_DECAY_STEPS)) {
        recipe->decay_steps = cli_share_steps(&options->decay, schedule->schedule_steps);
        if (recipe->decay_steps == 0)
            return cli_fail(COH_ERR_ARGUMENT,
                            "--decay-steps %g%% of a schedule of %" PRIu64
                            " steps is none: raise it, or give --schedule constant",
                            options->decay.percent, schedule->schedule_steps);
    } else if (recipe->decay_steps == 0) {
        recipe->decay_steps = usual_decay(schedule);
    }
    if (recipe->decay_steps <= schedule->schedule_steps - schedule->warmup_steps)
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "a warm-up of %" PRIu64 " steps and a decay of %" PRIu64
                    " are longer than the schedule of %" PRIu64
                    ": lower --decay-steps or --warmup, or raise --schedule-steps",
                    schedule->warmup_steps, recipe->decay_steps, schedule->schedule_steps);
}

coh_status cli_recipe_set_schedule_kind(cli_recipe *recipe, const cli_options *options)
{
    if (cli_given(options, CLI_FLAG_SCHEDULE)) /* its choices have the order of the kinds */
        recipe->schedule_kind = (uint64_t)options->schedule;
    if (recipe->schedule_kind == COH_SCHEDULE_CONSTANT && cli_given(options, CLI_FLAG_MIN_LR))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--min-lr has no effect with --schedule constant, whose rate does not fall:"
                        " leave it out, or give --schedule linear");
    if (recipe->schedule_kind == COH_SCHEDULE_WSD)
        return set_decay(recipe, options);
    if (cli_given(options, CLI_FLAG_DECAY_STEPS))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--decay-steps is for --schedule wsd, and the schedule is %s: leave it "
                        "out, or give --schedule wsd",
                        cli_recipe_schedule_name(recipe));
    recipe->decay_steps = 0;
    return COH_OK;
}

/* High rates destroy trained weights. Adapters are new weights (LoRA, Hu et al. 2021, section D:
 * 2e-4 for GPT-2). */
#define PRETRAINED_RATE 2e-5
#define ADAPTER_RATE    2e-4

void cli_recipe_set_rate(cli_recipe *recipe, const cli_options *options, int is_pretrained,
                         int has_adapters)
{
    recipe->schedule.highest = options->lr;
    if (!is_pretrained || cli_given(options, CLI_FLAG_LR))
        return;
    const int adapts =
        has_adapters || cli_given(options, CLI_FLAG_LORA) || cli_given(options, CLI_FLAG_ADAPTER);
    recipe->schedule.highest = adapts ? ADAPTER_RATE : PRETRAINED_RATE;
    if (options->command == CLI_TRAIN)
        cli_note_choice("lr %s: default for %s", cli_rate(recipe->schedule.highest).at,
                        adapts ? "adapters of pretrained weights" : "pretrained weights");
}

coh_status cli_recipe_set_steps(cli_recipe *recipe, const cli_options *options, uint64_t steps)
{
    coh_schedule *schedule = &recipe->schedule;
    recipe->steps = steps;
    schedule->lowest =
        cli_given(options, CLI_FLAG_MIN_LR) ? options->min_lr : schedule->highest / 10;
    schedule->schedule_steps = cli_given(options, CLI_FLAG_SCHEDULE_STEPS)
                                   ? (uint64_t)options->schedule_steps
                                   : recipe->steps;
    uint64_t warmup = schedule->schedule_steps / WARMUP_SHARE;
    schedule->warmup_steps = warmup < WARMUP_MOST ? warmup : WARMUP_MOST;
    if (cli_given(options, CLI_FLAG_WARMUP))
        schedule->warmup_steps = cli_share_steps(&options->warmup, schedule->schedule_steps);
    if (schedule->lowest > schedule->highest)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--min-lr %s is above the highest rate %s: lower it, or raise --lr",
                        cli_rate(schedule->lowest).at, cli_rate(schedule->highest).at);
    if (schedule->warmup_steps > schedule->schedule_steps)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--warmup %" PRIu64 " is longer than the schedule of %" PRIu64
                        " steps: lower it or raise --schedule-steps",
                        schedule->warmup_steps, schedule->schedule_steps);
    return cli_recipe_set_schedule_kind(recipe, options);
}

int cli_recipe_form_is_given(const cli_options *options)
{
    return cli_given(options, CLI_FLAG_FIELD) || cli_given(options, CLI_FLAG_CHAT) ||
           cli_given(options, CLI_FLAG_CHAT_FORM) || cli_given(options, CLI_FLAG_DOCUMENTS) ||
           cli_given(options, CLI_FLAG_VALIDATION_SPLIT) || cli_given(options, CLI_FLAG_SKIP_BAD);
}

void cli_recipe_set_order(cli_recipe *recipe, coh_sweep_order order)
{
    uint64_t by_layers = order == COH_SWEEP_LAYER;
    if (recipe->batch == recipe->micro_batch || by_layers == recipe->by_layers)
        return;
    cli_note_choice("sweep order %s -> %s: other rounding",
                    recipe->by_layers ? "layer" : "micro-batch", coh_sweep_order_name(order));
    recipe->by_layers = by_layers;
}

/* The flag's choices have the order of coh_dtype. */
static uint64_t asks_for_f32_gradients(const cli_options *options)
{
    return cli_given(options, CLI_FLAG_GRADIENTS) && options->gradients == COH_DTYPE_F32;
}

static coh_status refuse_optimizer(const char *name)
{
    coh_nearest nearest = { .word = name };
    for (int32_t i = 0; i < coh_optimizer_count(); i++)
        coh_nearest_offer(&nearest, coh_optimizer_at(i)->name);
    return cli_fail(COH_ERR_ARGUMENT,
                    "--optimizer is one of adamw, adamw8, adamw8sr, lion and sgd, or of an "
                    "extension (--kinds), not '%s'%s%s%s",
                    name, nearest.name ? ": is " : "", nearest.name ? nearest.name : "",
                    nearest.name ? " meant?" : "");
}

coh_status cli_recipe_set_optimizer(cli_recipe *recipe, const cli_options *options)
{
    if (!cli_given(options, CLI_FLAG_OPTIMIZER))
        return COH_OK;
    if (coh_optimizer_find(options->optimizer) == NULL)
        return refuse_optimizer(options->optimizer);
    snprintf(recipe->optimizer, sizeof(recipe->optimizer), "%s", options->optimizer);
    return COH_OK;
}

const char *cli_recipe_optimizer(const cli_recipe *recipe)
{
    return recipe->optimizer[0] != '\0' ? recipe->optimizer : COH_OPTIMIZER_DEFAULT;
}

cli_clip_mode cli_recipe_clip_mode(const cli_recipe *recipe)
{
    return recipe->clips_by_previous ? CLI_CLIP_PREVIOUS
           : recipe->speculates      ? CLI_CLIP_SPECULATE
                                     : CLI_CLIP_EXACT;
}

void cli_recipe_set_clip_mode(cli_recipe *recipe, cli_clip_mode mode)
{
    recipe->clips_by_previous = mode == CLI_CLIP_PREVIOUS;
    recipe->speculates = mode == CLI_CLIP_SPECULATE;
}

const char *cli_clip_mode_name(cli_clip_mode mode)
{
    static const char *const names[] = { "exact", "previous", "speculate" };
    return names[mode];
}

coh_status cli_recipe_check_clip(const cli_recipe *recipe)
{
    const cli_clip_mode mode = cli_recipe_clip_mode(recipe);
    if (mode != CLI_CLIP_EXACT && recipe->clip <= 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--clip-mode %s has no limit to clip to with --clip 0: "
                        "raise it, or give --clip-mode exact",
                        cli_clip_mode_name(mode));
    return COH_OK;
}

void cli_recipe_set_saves(cli_recipe *recipe, const cli_options *options)
{
    const struct {
        cli_flag flag;
        int64_t value;
        uint64_t *field;
    } all[] = {
        { CLI_FLAG_SAVE_EVERY, options->save_every, &recipe->save_every },
        { CLI_FLAG_KEEP, options->keep, &recipe->keep },
        { CLI_FLAG_VALIDATION_EVERY, options->validation_every, &recipe->validation_every },
        { CLI_FLAG_VALIDATION_WINDOWS, options->validation_windows, &recipe->validation_windows },
        { CLI_FLAG_STOP_AFTER_WORSE, options->stop_after_worse, &recipe->stop_after_worse },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (cli_given(options, all[i].flag))
            *all[i].field = (uint64_t)all[i].value;
    if (recipe->keep == 0)
        recipe->keep = (uint64_t)options->keep; /* an older note, or a new run's default */
}

coh_status cli_recipe_from_options(const cli_options *options, cli_recipe *out_recipe)
{
    cli_recipe *recipe = out_recipe;
    *recipe = (cli_recipe){ .struct_bytes = sizeof(*recipe),
                            .batch = options->batch,
                            .sequence = options->sequence,
                            .beta1 = cli_given(options, CLI_FLAG_BETA1) ? options->beta1 : -1,
                            .beta2 = cli_given(options, CLI_FLAG_BETA2) ? options->beta2 : -1,
                            .weight_decay = options->weight_decay,
                            .clip = options->clip,
                            .lr_for = options->lr_for,
                            .weight_decay_for = options->weight_decay_for,
                            .optimizer_for = options->optimizer_for,
                            .hyperparameters = options->hyperparameters,
                            .dropout = options->dropout,
                            .lora_dropout = options->lora_dropout,
                            .skip_bad = (uint64_t)options->skip_bad,
                            .seed = (uint64_t)options->seed };
    cli_recipe_set_clip_mode(recipe, (cli_clip_mode)options->clip_mode);
    cli_recipe_set_saves(recipe, options);
    if (options->replicas)
        CLI_TRY(coh_fold_shape_parse(options->replicas, &recipe->replicas));
    recipe->micro_batch =
        options->micro_batch > 0 ? options->micro_batch : cli_default_micro_batch(recipe);
    CLI_TRY(cli_recipe_check_micro_batch(recipe));
    CLI_TRY(cli_recipe_check_clip(recipe));
    CLI_TRY(cli_recipe_set_optimizer(recipe, options));
    recipe->by_layers =
        cli_given(options, CLI_FLAG_SWEEP_ORDER) && options->sweep_order == COH_SWEEP_LAYER;
    recipe->f32_gradients = asks_for_f32_gradients(options);
    recipe->atomics = (uint64_t)options->atomics;
    recipe->frozen_nf4 = (uint64_t)options->frozen_dtype;

    if (cli_given(options, CLI_FLAG_EPOCHS) && cli_given(options, CLI_FLAG_STEPS))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--epochs and --steps both say how long the run is: leave one out");
    CLI_TRY(cli_recipe_choose_tokenizer(options, recipe->tokenizer));
    if (options->kernels)
        cli_recipe_keep_path(options->kernels, recipe->kernels);
    recipe->validation_id_bytes = cli_data_id_bytes(options);
    return cli_data_form_from_options(options, &recipe->form);
}

/* ---- the note ---- */

coh_status cli_recipe_from_note(const char *note_json, cli_recipe *out_recipe)
{
    out_recipe->struct_bytes = sizeof(*out_recipe);
    return coh_training_note_read(note_json, out_recipe);
}

/* In the folder of a run. */
static const char kept_tokenizer[] = "tokenizer";

coh_status cli_recipe_from_checkpoint(const coh_checkpoint_facts *facts, cli_recipe *out_recipe)
{
    char kept[CLI_PATH_BYTES];
    CLI_TRY(cli_recipe_from_note(facts->note_json, out_recipe));
    if (cli_recipe_tokenizer_is_gone(out_recipe->tokenizer) &&
        snprintf(kept, sizeof(kept), "%s/../%s", facts->path, kept_tokenizer) < CLI_PATH_BYTES &&
        access(kept, R_OK) == 0)
        cli_recipe_keep_path(kept, out_recipe->tokenizer);
    return COH_OK;
}

coh_status cli_recipe_of_resumed(const coh_checkpoint_facts *facts, cli_recipe *out_recipe)
{
    char why[512];
    coh_model model;
    const coh_status status = cli_recipe_from_checkpoint(facts, out_recipe);
    if (status != COH_ERR_CORRUPT)
        return status;
    snprintf(why, sizeof(why), "%s", coh_last_error());
    if (coh_model_resolve(facts->path, 0, &model) != COH_OK)
        return cli_fail(status, "%s", why);
    return cli_fail(status,
                    "%s: a new run begins with its weights by cohobate train %s --data FILE", why,
                    facts->path);
}

static int is_folder(const char *path)
{
    struct stat facts;
    return path[0] && stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

const char *cli_recipe_origin(const char *base, const char *tokenizer)
{
    return is_folder(base) ? base : is_folder(tokenizer) ? tokenizer : NULL;
}

void cli_recipe_keep_tokenizer(const cli_recipe *recipe, const char *run_folder)
{
    char kept[CLI_PATH_BYTES];
    if (is_word(recipe->tokenizer) || cli_recipe_tokenizer_is_gone(recipe->tokenizer) ||
        snprintf(kept, sizeof(kept), "%s/%s", run_folder, kept_tokenizer) >= CLI_PATH_BYTES ||
        access(kept, F_OK) == 0)
        return;
    if (coh_folder_write_tokenizer(recipe->tokenizer, kept) != COH_OK)
        cli_note("warning: the run has no copy of its tokenizer, and needs that of %s: %s",
                 recipe->tokenizer, coh_last_error());
}

coh_status cli_recipe_to_note(const cli_recipe *recipe, const coh_model *model, cli_line *out_note)
{
    cli_line_clear(out_note);
    CLI_TRY(coh_training_note_write(recipe, model, out_note->text, sizeof(out_note->text)));
    out_note->used = strlen(out_note->text);
    return COH_OK;
}

void cli_recipe_set_trained(cli_recipe *recipe, const coh_checkpoint_facts *facts,
                            int64_t positions)
{
    cli_recipe noted;
    const int is_noted = facts && cli_recipe_from_note(facts->note_json, &noted) == COH_OK;
    recipe->trained_positions = is_noted ? cli_recipe_trained(&noted) : positions;
}

static int is_of_training(const char *note_json)
{
    json_t *note = json_loads(note_json, JSON_REJECT_DUPLICATES, NULL);
    const char *format = json_string_value(json_object_get(note, "format"));
    const int is_ours = format && strcmp(format, "cohobate-note") == 0;
    json_decref(note);
    return is_ours;
}

coh_status cli_recipe_of_checkpoint(const coh_checkpoint_facts *facts, const cli_options *options,
                                    cli_recipe *out_recipe)
{
    if (is_of_training(facts->note_json))
        return cli_recipe_from_checkpoint(facts, out_recipe);
    if (!cli_given(options, CLI_FLAG_TOKENIZER))
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s was not written by cohobate train, so it does not name its tokenizer: "
                        "give --tokenizer bytes|PATH",
                        options->operand);
    cli_options without = *options; /* a micro-batch of eval need not divide a batch */
    without.micro_batch = 0;
    return cli_recipe_from_options(&without, out_recipe);
}
