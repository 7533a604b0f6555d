/* recipe.h - what decides the numbers of a run beside the model and the plan: geometry, schedule,
 * optimizer, seed, data. From flags at first; from a checkpoint's note when a run is resumed.
 *
 *     flags ──> recipe ──> note in every checkpoint ──> recipe ──> the same run, going on
 *
 * The note is one JSON object: {"format": "cohobate-note", "version": 1, "model": {...}, ...};
 * numbers of 64 bits that are names rather than amounts (hashes) are hexadecimal texts. */
#ifndef COH_CLI_RECIPE_H
#define COH_CLI_RECIPE_H

#include "cli/data.h"
#include "cli/options.h"
#include "cli/schedule.h"

typedef struct cli_recipe {
    uint64_t steps; /* of the whole run */
    cli_schedule schedule;
    int64_t batch, micro_batch, sequence;
    uint64_t by_layers;     /* 1: sweeps by layers; see coh_sweep_order */
    uint64_t f32_gradients; /* 1: of bf16 weights; see coh_plan_options */
    uint64_t atomics;       /* 1: attention's backward may add by them; see coh_model */
    double beta1, beta2, weight_decay, clip, dropout;
    cli_for_list lr_for, weight_decay_for; /* parameter_groups.h */
    uint64_t seed;
    char tokenizer[CLI_PATH_BYTES]; /* "bytes", a folder or a file; "none": the data are ids */
    uint64_t tokenizer_identity;    /* 0: trained with "none", so any may be given later */
    char base[CLI_PATH_BYTES]; /* the Hugging Face folder the run began from, absolute; "": none */
    char data[CLI_PATH_BYTES]; /* the token file, absolute; "" if it was not kept */
    uint64_t data_hash;
    /* The text or token file to validate with, absolute; "none"; "": what was put aside of the
     * data, if anything was. The hash is that of its ids, 0 if there are none. */
    char validation[CLI_PATH_BYTES];
    uint64_t validation_hash;
    int64_t validation_id_bytes;  /* of a *.bin without a header; 0: by the vocabulary */
    cli_data_form form;           /* how that file was made of text */
    char kernels[CLI_PATH_BYTES]; /* the kernel table, absolute; "": none */
    /* Step s reads `batch` windows from data_first_window + (s - data_first_step) * batch on. Both
     * are 0 until a resumed run takes other data or another batch. */
    uint64_t data_first_step, data_first_window;
} cli_recipe;

/* The first window of the data that step `step` reads. */
static inline uint64_t cli_recipe_window(const cli_recipe *recipe, uint64_t step)
{
    return recipe->data_first_window + (step - recipe->data_first_step) * (uint64_t)recipe->batch;
}

/* From flags, defaults filled in, except the length of the run and its schedule. Fails:
 * COH_ERR_ARGUMENT for flags that contradict one another. */
coh_status cli_recipe_from_options(const cli_options *options, cli_recipe *out_recipe);

/* Sets the highest rate: that of --lr, else 6e-4, or if `is_pretrained` 2e-5 and with --lora 2e-4.
 * train prints the defaults of pretrained weights. Call it before cli_recipe_set_steps. */
void cli_recipe_set_rate(cli_recipe *recipe, const cli_options *options, int is_pretrained);

/* Sets the length of the run to `steps`, and the schedule that the flags make of it. With --epochs
 * the length is known when the data is open (epochs.h). Fails: COH_ERR_ARGUMENT for flags that
 * contradict it. */
coh_status cli_recipe_set_steps(cli_recipe *recipe, const cli_options *options, uint64_t steps);

/* The steps that --warmup means in a schedule of `schedule_steps`: a share is rounded to the
 * nearest step. */
uint64_t cli_warmup_steps(const cli_share *warmup, uint64_t schedule_steps);

/* Which tokenizer a new run reads text with, as CLI_PATH_BYTES of absolute path: --tokenizer, else
 * that of the Hugging Face folder or the checkpoint it begins from, else "bytes". Fails: as
 * coh_model_resolve for a folder whose model is refused, COH_ERR_ARGUMENT when the folder has no
 * tokenizer and text is to be read. */
coh_status cli_recipe_choose_tokenizer(const cli_options *options, char *out_path);

/* A path as a note has it, into CLI_PATH_BYTES: absolute, or as it was given where it cannot be
 * found; "" stays. */
void cli_recipe_keep_path(const char *path, char *out_path);

/* From a checkpoint's note. Fails: COH_ERR_CORRUPT naming the key. */
coh_status cli_recipe_from_note(const char *note_json, cli_recipe *out_recipe);

/* What the flags change of a run that goes on at step `step`: recipe_resume.c. Each change that
 * alters numbers is a line on standard error. --atomics is settled with the job, which knows the
 * device (cli_job_open); --data where it is opened (run_data.c).
 * Fails: COH_ERR_ARGUMENT for flags that cannot change, or contradict the run. */
coh_status cli_recipe_override(cli_recipe *recipe, const cli_options *options, uint64_t step);

/* The order that steps of several micro-batches sweep in; says so where it was another. */
void cli_recipe_set_order(cli_recipe *recipe, coh_sweep_order order);

/* --tokenizer, where it is given, as the recipe's: an absolute path, "bytes" or "none". */
void cli_recipe_set_tokenizer(cli_recipe *recipe, const cli_options *options);

/* Is `tokenizer` "none", the choice for data that is ids already? */
int cli_recipe_has_no_tokenizer(const char *tokenizer);

/* Opens what a recipe calls its tokenizer. *out_tokenizer is NULL for "none". Fails: as
 * coh_tokenizer_open. */
coh_status cli_recipe_open_named(const char *tokenizer, coh_tokenizer **out_tokenizer);

/* The tokenizer of the run that the recipe is of; NULL for "none". Fails: COH_ERR_ARGUMENT (it is
 * gone), COH_ERR_CORRUPT (another stands there), or as coh_tokenizer_open does; nothing is open
 * then. */
coh_status cli_recipe_open_tokenizer(const cli_recipe *recipe, const cli_options *options,
                                     coh_tokenizer **out_tokenizer);

/* The note. Allocates nothing. Fails: COH_ERR_ARGUMENT when paths are too long for it. */
coh_status cli_recipe_to_note(const cli_recipe *recipe, const coh_model *model, cli_line *out_note);

/* Do flags of this command say how text becomes documents? */
int cli_recipe_form_is_given(const cli_options *options);

/* Fails: COH_ERR_ARGUMENT where the micro-batch does not divide the batch. */
coh_status cli_recipe_check_micro_batch(const cli_recipe *recipe);

/* Largest divisor of `batch` that is at most 8: fixed by the batch alone, not by a budget, because
 * the micro-batch is part of the numeric plan (where it cannot fit: job.h). */
int64_t cli_default_micro_batch(int64_t batch);

#endif
