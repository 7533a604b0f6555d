/* training_note.h - the note by which the run of a checkpoint continues: model, schedule, batch,
 * optimizer, seed, tokenizer, data.
 *
 *     coh_training_note_init ──> your numbers ──> coh_training_note_write ──> coh_engine_save
 *
 * cohobate train writes it. A checkpoint of a loop of your own that has one can be given to
 * `cohobate eval`, `generate`, `export`, `inspect`, and to `train --resume`, which then
 * continues as after its own checkpoint.
 *
 * The note is one JSON object: {"format": "cohobate-note", "version": 1, "model": {...}, ...};
 * hashes are 16 hexadecimal digits. Keys of your own may be added before the closing brace. The
 * version is 2 if the schedule is no cosine: readers that know version 1 alone refuse such a note,
 * instead of continuing with other rates.
 * Threads: any. */
#ifndef COHOBATE_TRAINING_NOTE_H
#define COHOBATE_TRAINING_NOTE_H

#include "cohobate/models.h"
#include "cohobate/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Room for a path, with its end. Patterns in a list of a note. Room that every note fits in. */
enum { COH_PATH_BYTES = 4096, COH_NOTE_PATTERNS = 16, COH_TRAINING_NOTE_BYTES = 12288 };

/* Learning rates of a run:
 *
 *   rate |      ___
 *        |    /     \__
 *        |  /          \__
 *        |/               \______  lowest
 *        +------------------------- step
 *         warm-up   decay    schedule_steps
 *
 * Linear warm-up to `highest`, then a decay whose form is a coh_schedule_kind, then flat. */
typedef struct coh_schedule {
    double highest, lowest; /* rates */
    /* Steps of the warm-up; steps until the rate is lowest, warm-up included. */
    uint64_t warmup_steps, schedule_steps;
} coh_schedule;

/* How the rate falls after the warm-up:
 *
 *   highest  cosine __      linear \        constant ____    wsd ______
 *                     \             \                                  \
 *   lowest             \__           \                                 \   */
typedef enum coh_schedule_kind {
    COH_SCHEDULE_COSINE,    /* half a cosine (Loshchilov and Hutter 2017) */
    COH_SCHEDULE_LINEAR,    /* a straight line (transformers' get_linear_schedule_with_warmup) */
    COH_SCHEDULE_CONSTANT,  /* not at all: `highest` for ever */
    COH_SCHEDULE_WSD,       /* warm-up, stable, decay: `highest`, then a line over the last
                              decay_steps (MiniCPM, Hu et al. 2024; transformers'
                              warmup_stable_decay) */
    COH_SCHEDULE_KIND_COUNT /* how many there are */
} coh_schedule_kind;

/* Returns "cosine", "linear", "constant" or "wsd"; NULL: there is no such kind. */
COH_API const char *coh_schedule_kind_name(coh_schedule_kind kind);

/* Returns the rate of step `step`, counted from 0, of a cosine. It does not depend on where a run
 * stops, so a resumed run has the rates of an uninterrupted one. Step warmup_steps - 1 has
 * `highest`; step schedule_steps - 1 and all later ones have `lowest` (if the schedule outlasts the
 * warm-up). NULL: 0. */
COH_API double coh_schedule_rate(const coh_schedule *schedule, uint64_t step);

/* The same for any kind. With W warmup_steps and S schedule_steps, a line falls over the last
 * D = S - W steps, and in COH_SCHEDULE_WSD over the last D = decay_steps, at most S - W. The rate
 * of a step s from W on is then
 *
 *   highest                                           s < S - D
 *   lowest + (highest - lowest) (S - 1 - s) / D       S - D <= s < S
 *   lowest                                            s >= S
 *
 * This is transformers' factor of its step s + 1: its first step of a warm-up has the rate 0, and
 * its last one is not yet lowest. Other kinds than COH_SCHEDULE_WSD ignore decay_steps. A kind that
 * does not exist: 0. */
COH_API double coh_schedule_kind_rate(const coh_schedule *schedule, coh_schedule_kind kind,
                                      uint64_t decay_steps, uint64_t step);

/* A number for the parameters that a pattern matches. */
typedef struct coh_pattern_number {
    char pattern[COH_PATTERN_BYTES];
    double value; /* a rate, a weight decay, a hyperparameter */
} coh_pattern_number;

/* The first `count` of `at`, in the order in which they apply. */
typedef struct coh_pattern_numbers {
    int64_t count;
    coh_pattern_number at[COH_NOTE_PATTERNS];
} coh_pattern_numbers;

/* Likewise: optimizers of the parameters that patterns match. */
typedef struct coh_pattern_optimizers {
    int64_t count;                              /* how many are used */
    coh_optimizer_choice at[COH_NOTE_PATTERNS]; /* a later one wins */
} coh_pattern_optimizers;

/* How documents lie in windows (text.h). */
typedef enum coh_documents_layout {
    COH_DOCUMENTS_PACKED,  /* one after the other, cut anywhere */
    COH_DOCUMENTS_ALIGNED, /* a window holds one */
    COH_DOCUMENTS_FITTED,  /* a window holds several whole ones */
    COH_DOCUMENTS_SEPARATE /* likewise, and a token attends over its own document only */
} coh_documents_layout;

/* How a text became documents and ids; all zero: plain text, or ids. */
typedef struct coh_text_form {
    char field[COH_PATH_BYTES]; /* of JSON lines; "": "text", if the input is JSON lines */
    int64_t chat;               /* 1: JSON lines hold conversations */
    int64_t chat_form;          /* coh_chat_form (text.h) */
    int64_t aligned;            /* a coh_documents_layout */
    double validation_split;    /* share of the documents that was held out; 0: none */
    int64_t id_bytes;           /* of a *.bin without a header; 0: by the vocabulary */
} coh_text_form;

/* Everything that determines the numbers of a run but model and plan. Paths are absolute. */
typedef struct coh_training_note {
    uint32_t struct_bytes; /* sizeof(coh_training_note); coh_training_note_init sets it */
    uint64_t steps;        /* of the whole run */
    coh_schedule schedule; /* its learning rates */
    /* Sequences of a step, sequences of a micro-batch (which divides it), tokens of a sequence. */
    int64_t batch, micro_batch, sequence;
    uint64_t by_layers;     /* 1: COH_SWEEP_LAYER */
    uint64_t f32_gradients; /* 1: f32 gradients of bf16 weights (coh_plan_options) */
    uint64_t atomics;       /* 1: attention's backward may use atomics (coh_model) */
    /* beta1, beta2: below 0: the optimizer's own. clip: limit of the gradient norm, 0: off. */
    double beta1, beta2, weight_decay, clip, dropout;
    uint64_t clips_by_previous; /* 1: by the norm of the step before, with updates in backward */
    /* Learning rates and weight decays of parameters that patterns match. */
    coh_pattern_numbers lr_for, weight_decay_for;
    char optimizer[COH_OPTIMIZER_NAME_BYTES]; /* "": adamw */
    coh_pattern_optimizers optimizer_for;     /* in place of `optimizer` */
    coh_pattern_numbers hyperparameters;      /* NAME or OPTIMIZER.NAME, and value */
    uint64_t seed; /* any; of initial weights, data order and random numbers of the steps */
    char tokenizer[COH_PATH_BYTES]; /* "bytes", a folder or a file; "none": the data are ids */
    /* coh_tokenizer_identity; 0: trained with "none", so any tokenizer may be given later */
    uint64_t tokenizer_identity;
    /* Folder of the initial weights: of this run's, or if it began with another run's, of the first
     * run's; "": none. */
    char base[COH_PATH_BYTES];
    char data[COH_PATH_BYTES]; /* the token file; "": not kept, so a resumed run needs another */
    uint64_t data_hash;        /* of coh_token_file_facts; 0: none */
    /* The text or token file for validation; "none"; "": the documents held out of the data, if
     * any. The hash is that of its ids. */
    char validation[COH_PATH_BYTES];
    /* Hash of its ids; the complement with separate documents, whose losses do not compare with
     * others. 0: nothing is held out. */
    uint64_t validation_hash;
    int64_t validation_id_bytes;  /* of a *.bin without a header; 0: by the vocabulary */
    coh_text_form form;           /* how the token file was made from text */
    char kernels[COH_PATH_BYTES]; /* the kernel table; "": none */
    /* Step s reads `batch` windows from data_first_window + (s - data_first_step) * batch on, in
     * the order of coh_token_file_window. Both are 0 unless a run changed its data or batch. */
    uint64_t data_first_step, data_first_window;
    coh_fold_shape replicas; /* as in coh_plan_options */
    uint64_t speculates;     /* 1: updates in backward, taken back if the norm is above `clip` */
    /* When the run saves and validates, in steps; they change no number. 0: a checkpoint at the end
     * only; 2 checkpoints are kept; no validation but at saves; of all windows; no early end. */
    uint64_t save_every, keep, validation_every, validation_windows, stop_after_worse;
    /* Of `schedule`: its coh_schedule_kind, and the steps of the decay: at least 1 with
     * COH_SCHEDULE_WSD, and at most schedule_steps - warmup_steps; else 0. */
    uint64_t schedule_kind, decay_steps;
    uint64_t frozen_nf4; /* 1: frozen weights of linears are stored in NF4 (coh_model) */
    /* Tokens of a sequence up to which the positions are trained, if the weights that the run began
     * with had been trained on longer ones than `sequence`; 0: `sequence`. It changes no number. */
    int64_t trained_positions;
    uint64_t skip_bad;   /* 1: lines of JSON that are no documents are left out */
    double lora_dropout; /* of the inputs of adapters (coh_model) */
    /* 1: a run before trained the weights that this one began with, so those of `base` are others.
     * 0: they are those of `base`, next to adapters. It changes no number. */
    uint64_t base_trained;
    /* 1: frozen weights of linears have been rounded to NF4, by this run or by one before, also if
     * they are stored otherwise now. It changes no number. */
    uint64_t frozen_rounded;
} coh_training_note;

/* As coh_training_note_init; `bytes` is the size that the caller was compiled with. */
COH_API void coh_training_note_init_sized(coh_training_note *out_note, size_t bytes);
/* Sets what cohobate train does without flags: 100 steps of 8 sequences of 256 tokens, AdamW at
 * 6e-4 after 10 steps of warm-up, clipped at 1, seed 1, text as bytes, no data. */
static inline void coh_training_note_init(coh_training_note *out_note)
{
    coh_training_note_init_sized(out_note, sizeof(*out_note));
}

/* Writes the note of a run of `model` into `text`, of `text_bytes` bytes: COH_TRAINING_NOTE_BYTES.
 * Fails: COH_ERR_ARGUMENT: a number is out of its range, a path is not UTF-8, no room; the text
 * names key and range. */
COH_API coh_status coh_training_note_write(const coh_training_note *note, const coh_model *model,
                                           char *text, size_t text_bytes);

/* Reads a checkpoint's note (coh_checkpoint_facts.note_json). Keys that older notes lack have the
 * value 0 or "". The model is read by coh_model_resolve.
 * Fails: COH_ERR_CORRUPT: it is no such note, or a key is missing or wrong. */
COH_API coh_status coh_training_note_read(const char *json, coh_training_note *out_note);

#ifdef __cplusplus
}
#endif
#endif
