/* options.h - one table of flags for all commands.
 *
 * A flag is a row of flags.def: name, kind of value, destination, range, an example for error
 * messages, the commands that have it. Parsing, checking and --help read the same rows, so they
 * cannot disagree. */
#ifndef COH_CLI_OPTIONS_H
#define COH_CLI_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "cli/say.h"
#include "cohobate/plan.h"
#include "cohobate/training_note.h"

typedef enum cli_command {
    CLI_TRAIN,
    CLI_PLAN,
    CLI_GENERATE,
    CLI_EVAL,
    CLI_TOKENIZE,
    CLI_MIX,
    CLI_INSPECT,
    CLI_EXPORT,
    CLI_CHECK,
    CLI_CHECK_KIND,
    CLI_TUNE,
    CLI_PROFILE,
    CLI_DOCTOR,
    CLI_SIMULATE,
    CLI_EXPLAIN,
    CLI_REPORT,
    CLI_DIFF,
    CLI_TRACE,
    CLI_WATCH,
    CLI_COMMAND_COUNT
} cli_command;

/* Names all flags, in the order of their rows. */
#define CLI_FLAG(id, ...) CLI_FLAG_##id,
typedef enum cli_flag {
#include "cli/flags.def"
    CLI_FLAG_COUNT
} cli_flag;
#undef CLI_FLAG

enum { CLI_PINS_MOST = 64 }; /* on the command line */
enum { CLI_RUNS_MOST = 8 };  /* operands of report */
enum { CLI_MIX_MOST = 64 };  /* operands of mix */
/* How often a repeatable flag may be given. */
enum { CLI_WHAT_IFS = 16 };

/* "PATTERN=X" and "PATTERN=NAME", in the order given. */
enum { CLI_FORS_MOST = COH_NOTE_PATTERNS };
typedef coh_pattern_number cli_for;
typedef coh_pattern_numbers cli_for_list;
typedef coh_pattern_optimizers cli_optimizer_list;

/* A number of steps, or a share of them. */
typedef struct cli_share {
    int64_t count;
    double percent;
    int is_share; /* 1: `percent` is used */
} cli_share;

/* A folder of the working store. */
typedef struct cli_disk {
    char folder[CLI_PATH_BYTES];
    uint64_t bytes; /* limit of its part; UINT64_MAX: none */
} cli_disk;

struct cli_launch; /* launch.h */

typedef struct cli_options {
    cli_command command;
    struct cli_launch *launch;  /* of mpirun or srun; NULL: this process was started alone */
    const char *operand;        /* MODEL, CHECKPOINT, PATH or IN; NULL if none */
    const char *second_operand; /* OPERATOR, or another RUN */
    char **operands;            /* all of them */
    int operand_count;
    char **arguments; /* the command's name and what follows it */
    int argument_count;
    uint8_t given[CLI_FLAG_COUNT];         /* 1: the flag was given */
    const char *written[CLI_FLAG_COUNT];   /* its value as it was written, the last; NULL: none */
    const char *what_if[CLI_WHAT_IFS + 1]; /* all values; ended by NULL */
    const char *prompt[CLI_WHAT_IFS + 1];  /* likewise */
    const char *stop[CLI_WHAT_IFS + 1];    /* likewise */
    const char *input[CLI_WHAT_IFS + 1];   /* likewise */
    const char *kinds[CLI_WHAT_IFS + 1];   /* likewise */
    const char *prompt_file, *prompts, *messages, *system;

    const char *data, *tokenizer, *validation, *plan_file, *pattern, *kernels, *tune, *save,
        *resume, *log;
    const char *field, *output, *program, *held_out_file, *test_store, *device;
    const char *freeze, *lora, *lora_targets, *lora_also, *adapter;
    const char *profile, *topology, *pins, *calibration;
    const char *attributes, *sweep, *max, *logits, *step_range, *report, *tensorboard;
    const char *pin[CLI_PINS_MOST]; /* their rank patterns may be of --kinds */
    int32_t pin_count;
    cli_disk disk[COH_DISKS_MOST];
    int32_t disk_count;  /* 0: no disk */
    int32_t drive_count; /* file systems of several folders; cli_disks_check counts them */
    uint64_t disk_bytes; /* of all together; UINT64_MAX: as much as needed */

    uint64_t device_memory_bytes, emulate_host_bytes, chunk_bytes, host_memory_bytes, shard_bytes;
    uint64_t link_bytes_per_s; /* 0: memory speed */
    uint64_t disk_write_limit; /* bytes a day */
    int64_t threads, ranks, node_ranks, pair_ranks, rank_timeout, recompute, search, state, dtype,
        reduce, gradients, atomics, frozen_dtype, export_dtype;
    int64_t steps, schedule, schedule_steps, batch, micro_batch, sequence, vocabulary;
    int64_t sweep_order, clip_mode, save_every, keep, validation_every, seed, tokens, top_k,
        held_out, prefill_chunk;
    int64_t record; /* 0: none */
    int64_t test_delay_seed, chat, chat_form, documents, id_bytes, memory_curve, rehearse;
    cli_share warmup, decay;
    cli_for_list lr_for, weight_decay_for, hyperparameters;
    cli_optimizer_list optimizer_for;
    const char *optimizer, *replicas, *wire;
    int64_t reset_optimizer, from_scratch;
    int64_t validation_windows, stride, keep_best, stop_after_worse, skip_bad;
    double validation_split, epochs;
    double lr, min_lr, beta1, beta2, weight_decay, clip, dropout, lora_dropout, temperature;
    double top_p, min_p, repetition_penalty;
    int64_t once, again, new_data, operators, hash, json, text, ascii, merge_lora, quick,
        test_poison;
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

/* Kinds of operands. */
typedef enum cli_operand {
    CLI_OPERAND_NONE,
    CLI_OPERAND_MODEL,      /* a preset, or a model's folder */
    CLI_OPERAND_CHECKPOINT, /* a model's folder */
    CLI_OPERAND_IN,         /* text */
    CLI_OPERAND_PATH,       /* any artefact */
    CLI_OPERAND_PLAN,
    CLI_OPERAND_RUN,   /* a run's folder */
    CLI_OPERAND_KIND,  /* a kind in a shared library */
    CLI_OPERAND_TOKENS /* a token file, and how often it is read in a pass */
} cli_operand;

/* The command with that name, or CLI_COMMAND_COUNT. */
cli_command cli_command_find(const char *name);
const char *cli_command_name(cli_command command);
/* Returns the command whose name is nearest to the word; NULL if none is near. */
const char *cli_command_nearest(const char *word);
cli_operand cli_command_operand(cli_command command);

/* Fills `out_options` from the arguments after the command's name (arguments[0] is that name).
 * *out_help is 1 if --help was given; nothing else is then checked. Fails: COH_ERR_ARGUMENT with
 * the flag and the remedy. Pointers into `arguments` are kept. */
coh_status cli_options_parse(cli_command command, int argument_count, char **arguments,
                             cli_options *out_options, int *out_help);

/* Adds the given flags of a run that its checkpoints do not keep, as " --flag value", so that a
 * resumed run has them, too. `is_here`: paths are of the working directory, and folders of --disk
 * become absolute; else all are as they were typed. */
void cli_options_add_again(const cli_options *options, int is_here, cli_line *line);

/* Prints --help of one command, or of the program for CLI_COMMAND_COUNT, to standard output. */
void cli_help(cli_command command);

/* ---- table of flags ---- */

typedef enum cli_value {
    CLI_VALUE_NONE, /* no value; sets 1 */
    CLI_VALUE_TEXT,
    CLI_VALUE_LIST, /* a text; may be given several times */
    CLI_VALUE_INTEGER,
    CLI_VALUE_COUNT, /* a whole number, or the word after | in `takes`: stored as 0 */
    CLI_VALUE_PIN,   /* appended */
    CLI_VALUE_REAL,
    CLI_VALUE_FOR,           /* PATTERN=X, appended; "none" empties the list */
    CLI_VALUE_OPTIMIZER_FOR, /* PATTERN=NAME, as FOR */
    CLI_VALUE_SHARE,         /* a whole number, or a percentage */
    CLI_VALUE_SIZE,
    CLI_VALUE_ROOM,   /* a size, or "none": stored as 0 */
    CLI_VALUE_RATE,   /* a size, "/s" allowed */
    CLI_VALUE_DAILY,  /* a size, "/day" allowed */
    CLI_VALUE_DISK,   /* DIR or DIR:SIZE, appended */
    CLI_VALUE_CHOICE, /* one of choices, "a|b|c"; the index is stored */
} cli_value;

typedef struct cli_flag_row {
    const char *name, *takes;
    cli_value value;
    size_t offset;       /* into cli_options */
    double least, most;  /* of INTEGER, REAL, X of FOR, count of SHARE, SIZE; both allowed */
    const char *example; /* a value that works */
    uint32_t commands;   /* bit per cli_command */
    int hidden;          /* for tests: not in the help */
    int again;           /* 1: of a run, and no checkpoint keeps it (cli_options_add_again) */
    char short_name;     /* 0: none */
    const char *help;
} cli_flag_row;

extern const cli_flag_row cli_flag_table[CLI_FLAG_COUNT];

#endif
