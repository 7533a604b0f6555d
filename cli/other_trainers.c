/* Names the flag that another trainer's flag means: of Hugging Face's Trainer, TRL and PEFT, and of
 * programs that took their names over. The one idea: a table, since their names are not near ours.
 * Next: unknown_flag in options.c. */
#include "cli/other_trainers.h"

#include <string.h>
#include <strings.h>

typedef struct row {
    const char *name; /* with "-" for "_" */
    cli_flag flag;    /* that the command must have */
    const char *give;
    const char *off; /* what to do where the value is false; NULL: it is no such flag */
} row;

#define SEQUENCE  "give --sequence N, in tokens"
#define MICRO     "give --micro-batch N, and --batch N for all sequences of a step"
#define RECOMPUTE "give --recompute all; auto, the default, does it where memory is short"
#define SEPARATE  "give --documents separate"
#define ALIGNED   "give --documents aligned: a sequence holds tokens of one document"
#define RANK      "give --lora RANK:ALPHA"
#define MODEL     "give the folder or preset as the first word, without a flag"
#define OFF       "leave it out: it is off without a flag"

static const row rows[] = {
    { "load-in-4bit", CLI_FLAG_FROZEN_DTYPE, "give --frozen-dtype nf4, with --lora or --freeze",
      OFF },
    { "packing", CLI_FLAG_DOCUMENTS, SEPARATE, ALIGNED },
    { "sample-packing", CLI_FLAG_DOCUMENTS, SEPARATE, ALIGNED },
    { "learning-rate", CLI_FLAG_LR, "give --lr X" },
    { "modules-to-save", CLI_FLAG_LORA_ALSO, "give --lora-also PATTERN" },
    { "lora-r", CLI_FLAG_LORA, RANK },
    { "lora-rank", CLI_FLAG_LORA, RANK },
    { "lora-alpha", CLI_FLAG_LORA, RANK },
    { "lora-target-modules", CLI_FLAG_LORA_TARGETS, "give --lora-targets PATTERN" },
    { "target-modules", CLI_FLAG_LORA_TARGETS, "give --lora-targets PATTERN" },
    { "num-train-epochs", CLI_FLAG_EPOCHS, "give --epochs X" },
    { "num-epochs", CLI_FLAG_EPOCHS, "give --epochs X" },
    { "max-steps", CLI_FLAG_STEPS, "give --steps N" },
    { "per-device-train-batch-size", CLI_FLAG_MICRO_BATCH, MICRO },
    { "micro-batch-size", CLI_FLAG_MICRO_BATCH, MICRO },
    { "gradient-accumulation-steps", CLI_FLAG_BATCH,
      "give --batch N, all sequences of a step, and --micro-batch N, those computed at once" },
    { "max-seq-length", CLI_FLAG_SEQUENCE, SEQUENCE },
    { "max-seq-len", CLI_FLAG_SEQUENCE, SEQUENCE },
    { "max-length", CLI_FLAG_SEQUENCE, SEQUENCE },
    { "sequence-len", CLI_FLAG_SEQUENCE, SEQUENCE },
    { "block-size", CLI_FLAG_SEQUENCE, SEQUENCE },
    { "gradient-checkpointing", CLI_FLAG_RECOMPUTE, RECOMPUTE, "give --recompute none" },
    { "bf16", CLI_FLAG_DTYPE, "give --dtype bf16", "give --dtype f32" },
    { "fp16", CLI_FLAG_DTYPE, "give --dtype bf16, of the same size: f16 is not computed in", OFF },
    { "warmup-steps", CLI_FLAG_WARMUP, "give --warmup N" },
    { "warmup-ratio", CLI_FLAG_WARMUP, "give --warmup X%: 3% for a ratio of 0.03" },
    { "lr-scheduler-type", CLI_FLAG_SCHEDULE, "give --schedule cosine, linear, constant or wsd" },
    { "max-grad-norm", CLI_FLAG_CLIP, "give --clip X" },
    { "output-dir", CLI_FLAG_SAVE, "give --save DIR" },
    { "save-steps", CLI_FLAG_SAVE_EVERY, "give --save-every N" },
    { "eval-steps", CLI_FLAG_VALIDATION_EVERY, "give --validation-every N" },
    { "max-new-tokens", CLI_FLAG_TOKENS, "give --tokens N" },
    { "save-total-limit", CLI_FLAG_KEEP, "give --keep N" },
    { "num-warmup-steps", CLI_FLAG_WARMUP, "give --warmup N" },
    { "report-to", CLI_FLAG_TENSORBOARD, "give --tensorboard DIR" },
    { "logging-dir", CLI_FLAG_TENSORBOARD, "give --tensorboard DIR" },
    { "early-stopping-patience", CLI_FLAG_STOP_AFTER_WORSE, "give --stop-after-worse N" },
    { "load-best-model-at-end", CLI_FLAG_KEEP_BEST, "give --keep-best: DIR/best is that checkpoint",
      OFF },
    { "eval-strategy", CLI_FLAG_VALIDATION_EVERY, "give --validation-every N" },
    { "evaluation-strategy", CLI_FLAG_VALIDATION_EVERY, "give --validation-every N" },
    { "train-file", CLI_FLAG_DATA, "give --data FILE" },
    { "validation-file", CLI_FLAG_VALIDATION, "give --validation FILE" },
    { "model-name-or-path", CLI_FLAG_DTYPE, MODEL },
    { "model", CLI_FLAG_DTYPE, MODEL },
    { "per-device-eval-batch-size", CLI_FLAG_VALIDATION,
      "leave it out: validation takes --micro-batch sequences at once" },
    { "dataset", CLI_FLAG_DATA, "give --data FILE|DIR" },
    { "dataset-name", CLI_FLAG_DATA, "give --data FILE|DIR" },
    { "adam-beta1", CLI_FLAG_BETA1, "give --beta1 X" },
    { "adam-beta2", CLI_FLAG_BETA2, "give --beta2 X" },
    { "adam-epsilon", CLI_FLAG_HYPERPARAMETER, "give --hyperparameter epsilon=X" },
    { "logging-steps", CLI_FLAG_LOG, "leave it out: steps.jsonl of the run folder has each step" },
    { "resume-from-checkpoint", CLI_FLAG_RESUME, "give --resume DIR" },
    { "use-peft", CLI_FLAG_LORA, "give --lora RANK", OFF },
    { "load-in-8bit", CLI_FLAG_FROZEN_DTYPE,
      "give --frozen-dtype nf4, with --lora or --freeze: there are no weights of 8 bits", OFF },
    { "dataloader-num-workers", CLI_FLAG_THREADS, "give --threads N" },
    { "deepspeed", CLI_FLAG_DEVICE_MEMORY,
      "leave it out: --device-memory, --host-memory and --disk say what a run may use" },
    { "fsdp", CLI_FLAG_PATTERN,
      "give --ranks N; --pattern zero3 divides weights, gradients and states over them" },
    { "completion-only-loss", CLI_FLAG_FIELD, "give --field PROMPT,NAME, or --chat" },
    { "assistant-only-loss", CLI_FLAG_CHAT, "give --chat, which learns answers only" },
};

/* Are the first `length` bytes of the word the name, if "_" is "-"? */
static int is_name(const char *word, size_t length, const char *name)
{
    if (strlen(name) != length)
        return 0;
    for (size_t i = 0; i < length; i++)
        if ((word[i] == '_' ? '-' : word[i]) != name[i])
            return 0;
    return 1;
}

static int is_false(const char *value)
{
    static const char *const words[] = { "false", "0", "no", "off" };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(value, words[i]) == 0)
            return 1;
    return 0;
}

const char *cli_other_trainers_find(cli_command command, const char *word)
{
    if (strncmp(word, "--", 2) != 0)
        return NULL;
    const size_t length = strcspn(word + 2, "=");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (is_name(word + 2, length, rows[i].name) &&
            (cli_flag_table[rows[i].flag].commands >> command & 1))
            return rows[i].off && word[2 + length] == '=' && is_false(word + 3 + length)
                       ? rows[i].off
                       : rows[i].give;
    return NULL;
}
