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
    uint64_t seed;
    char tokenizer[CLI_PATH_BYTES]; /* "bytes", a folder or a file */
    uint64_t tokenizer_identity;
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
    uint64_t data_first_step;     /* the step that read window 0: > 0 after --new-data */
} cli_recipe;

/* From flags, defaults filled in. Fails: COH_ERR_ARGUMENT for flags that contradict one another. */
coh_status cli_recipe_from_options(const cli_options *options, cli_recipe *out_recipe);

/* So many steps, and the schedule that the flags make of them. With --epochs this is due when the
 * data is open (epochs.h); cli_recipe_from_options does it otherwise. Fails: COH_ERR_ARGUMENT for
 * flags that contradict it. */
coh_status cli_recipe_set_steps(cli_recipe *recipe, const cli_options *options, uint64_t steps);

/* Which tokenizer a new run reads text with, as CLI_PATH_BYTES of absolute path: --tokenizer, else
 * that of the Hugging Face folder or the checkpoint it begins from, else "bytes". Fails:
 * COH_ERR_ARGUMENT when the folder has none and text is to be read. */
coh_status cli_recipe_choose_tokenizer(const cli_options *options, char *out_path);

/* A path as a note has it, into CLI_PATH_BYTES: absolute, or as it was given where it cannot be
 * found; "" stays. */
void cli_recipe_keep_path(const char *path, char *out_path);

/* From a checkpoint's note. Fails: COH_ERR_CORRUPT naming the key. */
coh_status cli_recipe_from_note(const char *note_json, cli_recipe *out_recipe);

/* The flags that may change a resumed run (--steps, --micro-batch, --sweep-order, --gradients,
 * --kernels); all others that are part of the recipe are refused. Says on standard error what
 * changes numbers. --atomics is settled with the job, which knows the device (cli_job_open). */
coh_status cli_recipe_override(cli_recipe *recipe, const cli_options *options);

/* The order that steps of several micro-batches sweep in; says so where it was another. */
void cli_recipe_set_order(cli_recipe *recipe, coh_sweep_order order);

/* --tokenizer, where it is given, as the recipe's: an absolute path, or "bytes". */
void cli_recipe_set_tokenizer(cli_recipe *recipe, const cli_options *options);

/* The tokenizer of the run that the recipe is of. Fails: COH_ERR_ARGUMENT (it is gone),
 * COH_ERR_CORRUPT (another stands there), or as coh_tokenizer_open does; nothing is open then. */
coh_status cli_recipe_open_tokenizer(const cli_recipe *recipe, const cli_options *options,
                                     coh_tokenizer **out_tokenizer);

/* The note. Allocates nothing. Fails: COH_ERR_ARGUMENT when paths are too long for it. */
coh_status cli_recipe_to_note(const cli_recipe *recipe, const coh_model *model, cli_line *out_note);

/* Do flags of this command say how text becomes documents? */
int cli_recipe_form_is_given(const cli_options *options);

/* Largest divisor of `batch` that is at most 8: fixed by the batch alone, not by a budget, because
 * the micro-batch is part of the numeric plan (where it cannot fit: job.h). */
int64_t cli_default_micro_batch(int64_t batch);

#endif
