/* recipe.h - everything that determines the numbers of a run, except for model and plan: geometry,
 * schedule, optimizer, seed, data. A new run takes it from flags, a resumed run from a checkpoint's
 * note.
 *
 *     flags ──> recipe ──> note in every checkpoint ──> recipe ──> the same run, going on
 *
 * It is the public note (cohobate/training_note.h). */
#ifndef COH_CLI_RECIPE_H
#define COH_CLI_RECIPE_H

#include "cli/data.h"
#include "cli/options.h"

typedef coh_training_note cli_recipe;

/* Are gradients clipped by the norm of their step? */
static inline int cli_recipe_defers(const cli_recipe *recipe)
{
    return recipe->clip > 0 && !recipe->clips_by_previous;
}

/* Have frozen weights been rounded to nf4? Older notes say so only of weights that are stored in
 * it. */
static inline int cli_recipe_is_rounded(const cli_recipe *recipe)
{
    return recipe->frozen_rounded != 0 || recipe->frozen_nf4 != 0;
}

/* The first window of the data that step `step` reads. */
static inline uint64_t cli_recipe_window(const cli_recipe *recipe, uint64_t step)
{
    return recipe->data_first_window + (step - recipe->data_first_step) * (uint64_t)recipe->batch;
}

/* Makes a recipe from flags and defaults, without the length of the run and its schedule. Fails:
 * COH_ERR_ARGUMENT for flags that contradict one another. */
coh_status cli_recipe_from_options(const cli_options *options, cli_recipe *out_recipe);

/* Sets --optimizer, if it is given. Fails: COH_ERR_ARGUMENT if nobody registered it. */
coh_status cli_recipe_set_optimizer(cli_recipe *recipe, const cli_options *options);

/* Sets the highest rate: that of --lr, else 6e-4, or if `is_pretrained` 2e-5 and with adapters
 * 2e-4. train prints the defaults of pretrained weights. Call it before cli_recipe_set_steps. */
void cli_recipe_set_rate(cli_recipe *recipe, const cli_options *options, int is_pretrained,
                         int has_adapters);

/* Sets up to which position a run is trained that begins with trained weights: those of checkpoint
 * `facts`, or if it is NULL, of a folder whose model has that many positions. */
void cli_recipe_set_trained(cli_recipe *recipe, const coh_checkpoint_facts *facts,
                            int64_t positions);

/* The tokens of a sequence up to which the positions of a run are trained. */
static inline int64_t cli_recipe_trained(const cli_recipe *recipe)
{
    return recipe->trained_positions > recipe->sequence ? recipe->trained_positions
                                                        : recipe->sequence;
}

/* Sets the length of the run to `steps`, and the schedule that the flags give for it. With --epochs
 * the length is known when the data is open (train.h). Fails: COH_ERR_ARGUMENT for flags that
 * contradict it. */
coh_status cli_recipe_set_steps(cli_recipe *recipe, const cli_options *options, uint64_t steps);

/* The steps of --warmup or --decay-steps in a schedule of `schedule_steps`: a share is rounded to
 * the nearest step. */
uint64_t cli_share_steps(const cli_share *share, uint64_t schedule_steps);

/* Sets --schedule and --decay-steps for a recipe with its schedule_steps and warmup_steps: the
 * recipe's kind without a flag, and a tenth of the schedule for a decay that nothing gives. Fails:
 * COH_ERR_ARGUMENT if they contradict the schedule, or --min-lr or --decay-steps has no effect. */
coh_status cli_recipe_set_schedule_kind(cli_recipe *recipe, const cli_options *options);

/* The learning rate of a step. */
static inline double cli_recipe_rate(const cli_recipe *recipe, uint64_t step)
{
    return coh_schedule_kind_rate(&recipe->schedule, (coh_schedule_kind)recipe->schedule_kind,
                                  recipe->decay_steps, step);
}

/* The name of its schedule. */
static inline const char *cli_recipe_schedule_name(const cli_recipe *recipe)
{
    return coh_schedule_kind_name((coh_schedule_kind)recipe->schedule_kind);
}

/* Chooses the tokenizer of a new run, as an absolute path of CLI_PATH_BYTES: --tokenizer, else that
 * of the Hugging Face folder or the checkpoint with the initial weights, else "bytes". Fails: as
 * coh_model_resolve for a folder whose model is refused, COH_ERR_ARGUMENT if the folder has no
 * tokenizer and text must be read. */
coh_status cli_recipe_choose_tokenizer(const cli_options *options, char *out_path);

/* Gives a new run that begins with a checkpoint of a run the base of that run, and unless flags
 * replace them its sequence, the dtype of its frozen weights and the dropout of its adapters, which
 * are printed. */
void cli_recipe_keep_noted(cli_recipe *recipe, const cli_options *options);

/* Converts a path for a note, of CLI_PATH_BYTES: absolute, or unchanged if it does not exist; ""
 * stays "". */
void cli_recipe_keep_path(const char *path, char *out_path);

/* Reads the recipe from a checkpoint's note. Fails: COH_ERR_CORRUPT naming the key. */
coh_status cli_recipe_from_note(const char *note_json, cli_recipe *out_recipe);

/* The same; a tokenizer that is gone is replaced by the copy in the run's folder, if it is there.
 * Opening it compares it with the note. */
coh_status cli_recipe_from_checkpoint(const coh_checkpoint_facts *facts, cli_recipe *out_recipe);
/* As cli_recipe_from_checkpoint, for --resume: if the note tells the model and no run, the error
 * names the command that begins a new run with the weights. */
coh_status cli_recipe_of_resumed(const coh_checkpoint_facts *facts, cli_recipe *out_recipe);

/* The folder whose licence, card and generation_config.json belong to weights that began from
 * `base`: that folder, or if it no longer exists or is "", the tokenizer's, which may be its new
 * place; NULL: neither is a folder. */
const char *cli_recipe_origin(const char *base, const char *tokenizer);

/* Copies the run's tokenizer into the folder of the run, unless one is there: the run can be moved
 * with it, and ends texts as before (ends.h). Prints a warning if it cannot. */
void cli_recipe_keep_tokenizer(const cli_recipe *recipe, const char *run_folder);

/* Reads the recipe of a checkpoint that is used without being resumed: from its note, or from flags
 * if another program wrote it by the library; `steps` is 0 then. Fails: as above, COH_ERR_ARGUMENT
 * if nothing names a tokenizer. */
coh_status cli_recipe_of_checkpoint(const coh_checkpoint_facts *facts, const cli_options *options,
                                    cli_recipe *out_recipe);

/* Applies flags to a run resumed at step `step` (recipe_resume.c). Prints each change that alters
 * numbers on standard error. cli_job_open handles --atomics, since it knows the device; run_data.c
 * handles --data. Fails: COH_ERR_ARGUMENT for flags that cannot be changed, or contradict the
 * run. */
coh_status cli_recipe_override(cli_recipe *recipe, const cli_options *options, uint64_t step);

/* Prints a note if the last command of the run with this checkpoint had flags of its budget that
 * `options` lack: with other memory the same steps may be slower, or not fit. Its run.json has the
 * command; without that file nothing is printed. */
void cli_recipe_say_budget(const char *checkpoint, const cli_options *options);

/* Sets when the run saves and validates, from the flags that are given. */
void cli_recipe_set_saves(cli_recipe *recipe, const cli_options *options);

/* Sets the sweep order of steps with several micro-batches; prints a note if it changes. */
void cli_recipe_set_order(cli_recipe *recipe, coh_sweep_order order);

/* Sets the recipe's tokenizer from --tokenizer, if given: an absolute path, "bytes" or "none". */
void cli_recipe_set_tokenizer(cli_recipe *recipe, const cli_options *options);

/* Is `tokenizer` "none", for data that is already ids? */
int cli_recipe_has_no_tokenizer(const char *tokenizer);
/* The optimizer of parameters for which --optimizer-for names none. */
const char *cli_recipe_optimizer(const cli_recipe *recipe);

/* Is `tokenizer`, of a note, a path that no longer exists? */
int cli_recipe_tokenizer_is_gone(const char *tokenizer);

/* Opens the tokenizer of a recipe's path. *out_tokenizer is NULL for "none". Fails: as
 * coh_tokenizer_open. */
coh_status cli_recipe_open_named(const char *tokenizer, coh_tokenizer **out_tokenizer);

/* Opens the tokenizer of the recipe's run; NULL for "none". Fails: COH_ERR_ARGUMENT (it no longer
 * exists), COH_ERR_CORRUPT (it has changed), or as coh_tokenizer_open does; nothing is then
 * open. */
coh_status cli_recipe_open_tokenizer(const cli_recipe *recipe, const cli_options *options,
                                     coh_tokenizer **out_tokenizer);

/* Writes the note. Allocates nothing. Fails: COH_ERR_ARGUMENT if paths are too long for it. */
coh_status cli_recipe_to_note(const cli_recipe *recipe, const coh_model *model, cli_line *out_note);

/* Are flags given that determine how text becomes documents? */
int cli_recipe_form_is_given(const cli_options *options);

/* Fails: COH_ERR_ARGUMENT if the micro-batch does not divide the batch. A batch of several replicas
 * is checked when its ranks are known (shares.h). */
coh_status cli_recipe_check_micro_batch(const cli_recipe *recipe);

/* The choices of --clip-mode, in the order of its row in flags.def. */
typedef enum cli_clip_mode { CLI_CLIP_EXACT, CLI_CLIP_PREVIOUS, CLI_CLIP_SPECULATE } cli_clip_mode;
cli_clip_mode cli_recipe_clip_mode(const cli_recipe *recipe);
void cli_recipe_set_clip_mode(cli_recipe *recipe, cli_clip_mode mode);
const char *cli_clip_mode_name(cli_clip_mode mode);

/* Fails: COH_ERR_ARGUMENT if a mode other than exact has no limit to clip to. */
coh_status cli_recipe_check_clip(const cli_recipe *recipe);

/* The text of a fold shape that was parsed. */
typedef struct cli_shape {
    char at[COH_FOLD_TEXT_BYTES];
} cli_shape;
cli_shape cli_shape_text(const coh_fold_shape *shape);

/* The largest divisor of a replica's share of the batch that is at most 8. It depends only on batch
 * and replicas, not on a budget, since the micro-batch is part of the numeric plan (if it does not
 * fit: job.h). */
int64_t cli_default_micro_batch(const cli_recipe *recipe);

/* ---- groups of parameters, for the engine: parameter_groups.c ---- */

enum { CLI_GROUPS_MOST = 2 * CLI_FORS_MOST };

/* Fills `out_groups`; returns their number. Their patterns point into the recipe. */
uint32_t cli_parameter_groups(const cli_recipe *recipe,
                              coh_parameter_group out_groups[CLI_GROUPS_MOST]);

/* Checks that every pattern matches a trained parameter, and that there is a rate to be multiplied.
 * Fails: COH_ERR_ARGUMENT with flag and pattern. */
coh_status cli_parameter_groups_check(const cli_recipe *recipe, const coh_graph *graph);

/* The hyperparameters that differ from the optimizers' own, and their texts. */
typedef struct cli_hyperparameters {
    coh_hyperparameter_value values[2 + CLI_FORS_MOST];
    uint32_t count;
    char names[CLI_FORS_MOST][COH_PATTERN_BYTES];
} cli_hyperparameters;

/* Values point to texts in *out_numbers. */
void cli_hyperparameters_of(const cli_recipe *recipe, cli_hyperparameters *out_numbers);

/* Checks names and ranges against the optimizers of the recipe. Fails: COH_ERR_ARGUMENT. */
coh_status cli_hyperparameters_check(const cli_recipe *recipe);

/* Adds a line per group and optimizer; without numbers of parameters if `graph` is NULL. */
void cli_parameter_groups_describe(const cli_recipe *recipe, const coh_graph *graph,
                                   cli_line *line);

#endif
