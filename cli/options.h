/* options.h - one table of flags for all commands.
 *
 * A flag is a row: name, kind of value, destination, range, an example for error messages, the
 * commands that have it. Parsing, checking and --help read the same rows, so they cannot
 * disagree. */
#ifndef COH_CLI_OPTIONS_H
#define COH_CLI_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "cli/say.h"
#include "cohobate/plan.h"

typedef enum cli_command {
    CLI_TRAIN,
    CLI_PLAN,
    CLI_GENERATE,
    CLI_EVAL,
    CLI_TOKENIZE,
    CLI_INSPECT,
    CLI_EXPORT,
    CLI_CHECK,
    CLI_TUNE,
    CLI_PROFILE,
    CLI_DOCTOR,
    CLI_SIMULATE,
    CLI_EXPLAIN,
    CLI_COMMAND_COUNT
} cli_command;

/* Names all flags. The table has the same order. */
typedef enum cli_flag {
    CLI_FLAG_DATA,
    CLI_FLAG_TOKENIZER,
    CLI_FLAG_VALIDATION,
    CLI_FLAG_VALIDATION_EVERY,
    CLI_FLAG_VALIDATION_WINDOWS,
    CLI_FLAG_VALIDATION_SPLIT,
    CLI_FLAG_FIELD,
    CLI_FLAG_CHAT,
    CLI_FLAG_CHAT_PROMPT, /* --chat of generate */
    CLI_FLAG_CHAT_FORM,
    CLI_FLAG_DOCUMENTS,
    CLI_FLAG_ID_BYTES,
    CLI_FLAG_VOCABULARY,
    CLI_FLAG_DTYPE,
    CLI_FLAG_GRADIENTS,
    CLI_FLAG_ATOMICS,
    CLI_FLAG_EXPORT_DTYPE, /* --dtype of an export: also f16 */
    CLI_FLAG_DEVICE,
    CLI_FLAG_DEVICE_MEMORY,
    CLI_FLAG_MEASURE_MEMORY, /* --device-memory of a profile */
    CLI_FLAG_DISK,
    CLI_FLAG_DISK_WRITE_LIMIT,
    CLI_FLAG_EMULATE_HOST,
    CLI_FLAG_HOST_MEMORY,
    CLI_FLAG_LINK_RATE,
    CLI_FLAG_THREADS,
    CLI_FLAG_CHUNK,
    CLI_FLAG_RECOMPUTE,
    CLI_FLAG_SEARCH,
    CLI_FLAG_PIN,
    CLI_FLAG_PINS,
    CLI_FLAG_PLAN,
    CLI_FLAG_PROFILE,
    CLI_FLAG_CALIBRATION,
    CLI_FLAG_KERNELS,
    CLI_FLAG_STEPS,
    CLI_FLAG_EPOCHS,
    CLI_FLAG_SCHEDULE_STEPS,
    CLI_FLAG_WARMUP,
    CLI_FLAG_BATCH,
    CLI_FLAG_MICRO_BATCH,
    CLI_FLAG_SWEEP_ORDER,
    CLI_FLAG_SEQUENCE,
    CLI_FLAG_STRIDE,
    CLI_FLAG_LR,
    CLI_FLAG_LR_FOR,
    CLI_FLAG_MIN_LR,
    CLI_FLAG_OPTIMIZER,
    CLI_FLAG_OPTIMIZER_FOR,
    CLI_FLAG_HYPERPARAMETER,
    CLI_FLAG_RESET_OPTIMIZER,
    CLI_FLAG_BETA1,
    CLI_FLAG_BETA2,
    CLI_FLAG_WEIGHT_DECAY,
    CLI_FLAG_WEIGHT_DECAY_FOR,
    CLI_FLAG_CLIP,
    CLI_FLAG_DROPOUT,
    CLI_FLAG_SEED,
    CLI_FLAG_SAVE,
    CLI_FLAG_SAVE_EVERY,
    CLI_FLAG_KEEP,
    CLI_FLAG_KEEP_BEST,
    CLI_FLAG_STOP_AFTER_WORSE,
    CLI_FLAG_RESUME,
    CLI_FLAG_NEW_DATA,
    CLI_FLAG_FREEZE,
    CLI_FLAG_LORA,
    CLI_FLAG_LORA_TARGETS,
    CLI_FLAG_LOG,
    CLI_FLAG_LOGITS,
    CLI_FLAG_PROMPT,
    CLI_FLAG_PROMPT_FILE,
    CLI_FLAG_PROMPTS,
    CLI_FLAG_MESSAGES,
    CLI_FLAG_SYSTEM,
    CLI_FLAG_TOKENS,
    CLI_FLAG_STOP,
    CLI_FLAG_TEMPERATURE,
    CLI_FLAG_TOP_K,
    CLI_FLAG_TOP_P,
    CLI_FLAG_MIN_P,
    CLI_FLAG_REPETITION_PENALTY,
    CLI_FLAG_OUTPUT,
    CLI_FLAG_SHARD_SIZE,
    CLI_FLAG_MERGE_LORA,
    CLI_FLAG_PROGRAM,
    CLI_FLAG_OPERATORS,
    CLI_FLAG_WHAT_IF,
    CLI_FLAG_SWEEP,
    CLI_FLAG_MAX,
    CLI_FLAG_MEMORY_CURVE,
    CLI_FLAG_HELD_OUT,
    CLI_FLAG_HELD_OUT_FILE,
    CLI_FLAG_HASH,
    CLI_FLAG_FOLDER,
    CLI_FLAG_QUICK,
    CLI_FLAG_AGAIN,
    CLI_FLAG_TUNE,
    CLI_FLAG_JSON,
    CLI_FLAG_TEST_POISON,
    CLI_FLAG_TEST_DELAY_SEED,
    CLI_FLAG_TEST_STORE,
    CLI_FLAG_COUNT
} cli_flag;

enum { CLI_PINS_MOST = 64 }; /* on the command line */
/* How often a repeatable flag may be given. */
enum { CLI_WHAT_IFS = 16 };

/* "PATTERN=X", in the order given. */
enum { CLI_FORS_MOST = 16 };
typedef struct cli_for {
    char pattern[COH_PATTERN_BYTES];
    double value;
} cli_for;
typedef struct cli_for_list {
    int64_t count;
    cli_for at[CLI_FORS_MOST];
} cli_for_list;

/* "PATTERN=NAME", in the order given. */
typedef struct cli_optimizer_list {
    int64_t count;
    coh_optimizer_choice at[CLI_FORS_MOST];
} cli_optimizer_list;

/* A number of steps, or a share of them. */
typedef struct cli_share {
    int64_t count;
    double percent;
    int is_share; /* 1: `percent` is used */
} cli_share;

typedef struct cli_options {
    cli_command command;
    const char *operand;                   /* MODEL, CHECKPOINT, PATH or IN; NULL if none */
    const char *second_operand;            /* OPERATOR */
    uint8_t given[CLI_FLAG_COUNT];         /* 1: the flag was given */
    const char *what_if[CLI_WHAT_IFS + 1]; /* all values; ended by NULL */
    const char *prompt[CLI_WHAT_IFS + 1];  /* likewise */
    const char *stop[CLI_WHAT_IFS + 1];    /* likewise */
    const char *prompt_file, *prompts, *messages, *system;

    const char *data, *tokenizer, *validation, *plan_file, *kernels, *tune, *save, *resume, *log;
    const char *field, *output, *program, *held_out_file, *folder, *test_store, *device;
    const char *freeze, *lora, *lora_targets, *profile, *pins, *calibration;
    const char *sweep, *max, *logits;
    coh_pin pin[CLI_PINS_MOST];
    int32_t pin_count;
    char disk_folder[CLI_PATH_BYTES]; /* "": no disk */
    uint64_t disk_bytes;              /* UINT64_MAX: as much as needed */

    uint64_t device_memory_bytes, emulate_host_bytes, chunk_bytes, host_memory_bytes, shard_bytes;
    uint64_t link_bytes_per_s; /* 0: memory speed */
    uint64_t disk_write_limit; /* bytes a day */
    int64_t threads, recompute, search, dtype, gradients, atomics, export_dtype;
    int64_t steps, epochs, schedule_steps, batch, micro_batch, sequence, vocabulary;
    int64_t sweep_order, save_every, keep, validation_every, seed, tokens, top_k, held_out;
    int64_t test_delay_seed, chat, chat_form, documents, id_bytes, memory_curve;
    cli_share warmup;
    cli_for_list lr_for, weight_decay_for, hyperparameters;
    cli_optimizer_list optimizer_for;
    const char *optimizer;
    int64_t reset_optimizer;
    int64_t validation_windows, stride, keep_best, stop_after_worse;
    double validation_split;
    double lr, min_lr, beta1, beta2, weight_decay, clip, dropout, temperature;
    double top_p, min_p, repetition_penalty;
    int64_t again, new_data, operators, hash, json, merge_lora, quick, test_poison;
} cli_options;

static inline int cli_given(const cli_options *options, cli_flag flag)
{
    return options->given[flag];
}

/* --micro-batch auto? */
static inline int cli_micro_batch_is_auto(const cli_options *options)
{
    return options->given[CLI_FLAG_MICRO_BATCH] && options->micro_batch == 0;
}

/* The command with that name, or CLI_COMMAND_COUNT. */
cli_command cli_command_find(const char *name);
const char *cli_command_name(cli_command command);
/* May MODEL of this command be a preset's name? */
int cli_command_takes_preset(cli_command command);

/* Fills `out_options` from the arguments after the command's name (arguments[0] is that name).
 * *out_help is 1 if --help was given; nothing else is then checked. Fails: COH_ERR_ARGUMENT with
 * the flag and the remedy. Pointers into `arguments` are kept. */
coh_status cli_options_parse(cli_command command, int argument_count, char **arguments,
                             cli_options *out_options, int *out_help);

/* Prints --help of one command, or of the program for CLI_COMMAND_COUNT, to standard output. */
void cli_help(cli_command command);

/* ---- table of flags ---- */

typedef enum cli_value {
    CLI_VALUE_NONE, /* no value; sets 1 */
    CLI_VALUE_TEXT,
    CLI_VALUE_LIST, /* a text; may be given several times */
    CLI_VALUE_INTEGER,
    CLI_VALUE_COUNT, /* a whole number, or "auto": stored as 0 */
    CLI_VALUE_PIN,   /* appended */
    CLI_VALUE_REAL,
    CLI_VALUE_FOR,           /* PATTERN=X, appended; "none" empties the list */
    CLI_VALUE_OPTIMIZER_FOR, /* PATTERN=NAME, as FOR */
    CLI_VALUE_SHARE,         /* a whole number, or a percentage */
    CLI_VALUE_SIZE,
    CLI_VALUE_ROOM,   /* a size, or "none": stored as 0 */
    CLI_VALUE_RATE,   /* a size, "/s" allowed */
    CLI_VALUE_DAILY,  /* a size, "/day" allowed */
    CLI_VALUE_DISK,   /* DIR[:SIZE] */
    CLI_VALUE_CHOICE, /* one of choices, "a|b|c"; the index is stored */
} cli_value;

typedef struct cli_flag_row {
    const char *name, *takes;
    cli_value value;
    size_t offset;       /* into cli_options */
    double least, most;  /* of INTEGER, REAL, X of FOR, count of SHARE; both allowed */
    const char *example; /* a value that works */
    uint32_t commands;   /* bit per cli_command */
    int hidden;          /* for tests: not in the help */
    char short_name;     /* 0: none */
    const char *help;
} cli_flag_row;

extern const cli_flag_row cli_flag_table[CLI_FLAG_COUNT];

#endif
