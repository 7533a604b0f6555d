/* The rows of options.h, in the order of cli_flag. The one idea: parsing, checks and --help all
 * read this table. Next: options.c parses, help.c prints. */
#include "cli/options.h"

#include <stddef.h>

enum {
    TRAIN = 1 << CLI_TRAIN,
    PLAN = 1 << CLI_PLAN,
    GENERATE = 1 << CLI_GENERATE,
    EVAL = 1 << CLI_EVAL,
    TOKENIZE = 1 << CLI_TOKENIZE,
    INSPECT = 1 << CLI_INSPECT,
    EXPORT = 1 << CLI_EXPORT,
    CHECK = 1 << CLI_CHECK,
    TUNE = 1 << CLI_TUNE,
    PROFILE = 1 << CLI_PROFILE,
    DOCTOR = 1 << CLI_DOCTOR,
    REPLAY = 1 << CLI_SIMULATE | 1 << CLI_EXPLAIN, /* commands that analyse a plan file */
    RUNS = TRAIN | PLAN,                           /* commands with the flags of a training run */
    BUDGET = RUNS | GENERATE | EVAL,               /* commands with the flags of placement */
    DATA = RUNS | EVAL | TOKENIZE, /* commands with the flags that turn text into documents */
};

/* 2^53: up to here every integer is exact in JSON readers, too. */
#define MOST_INTEGER 9007199254740992.0

#define AT(field) offsetof(cli_options, field)

const cli_flag_row cli_flag_table[CLI_FLAG_COUNT] = {
    [CLI_FLAG_DATA] = { "data", "FILE|DIR", CLI_VALUE_TEXT, AT(data), 0, 0, "--data corpus.txt",
                        RUNS | EVAL, 0, 0,
                        "text, a folder of text, JSON lines (*.jsonl), a token file (cohobate "
                        "tokenize) or ids of llm.c or nanoGPT (*.bin)" },
    [CLI_FLAG_TOKENIZER] = { "tokenizer", "bytes|none|PATH", CLI_VALUE_TEXT, AT(tokenizer), 0, 0,
                             "--tokenizer bytes",
                             RUNS | GENERATE | EVAL | TOKENIZE | TUNE | PROFILE | EXPORT, 0, 0,
                             "bytes, a model's folder, or a tokenizer.json or .model (default: "
                             "that of the folder or checkpoint, else bytes); none: --data is "
                             "already ids, or an export copies no tokenizer" },
    [CLI_FLAG_VALIDATION] = { "validation", "FILE|DIR|none", CLI_VALUE_TEXT, AT(validation), 0, 0,
                              "--validation held-out.txt", RUNS, 0, 0,
                              "held-out text: its loss over all windows is computed at each save "
                              "and at the end (--resume: default as before)" },
    [CLI_FLAG_VALIDATION_EVERY] = { "validation-every", "N", CLI_VALUE_INTEGER,
                                    AT(validation_every), 0, 1e9, "--validation-every 100", RUNS, 0,
                                    0,
                                    "also validate every N steps (0: only at saves and at the "
                                    "end)" },
    [CLI_FLAG_VALIDATION_WINDOWS] = { "validation-windows", "N", CLI_VALUE_INTEGER,
                                      AT(validation_windows), 1, 1e12, "--validation-windows 64",
                                      RUNS, 0, 0,
                                      "windows of a validation between saves, spread evenly over "
                                      "the text (default: all; at saves always all)" },
    [CLI_FLAG_VALIDATION_SPLIT] = { "validation-split", "X", CLI_VALUE_REAL, AT(validation_split),
                                    1e-9, 0.999999999, "--validation-split 0.05", RUNS | TOKENIZE,
                                    0, 0,
                                    "share of the documents held out for validation, chosen by a "
                                    "hash of their bytes and --seed" },
    [CLI_FLAG_FIELD] = { "field", "NAME", CLI_VALUE_TEXT, AT(field), 0, 0, "--field content", DATA,
                         0, 0,
                         "the data is JSON lines, and this field of each object is a document "
                         "(default text)" },
    [CLI_FLAG_CHAT] = { "chat", NULL, CLI_VALUE_NONE, AT(chat), 0, 0, "--chat", DATA, 0, 0,
                        "the data is JSON lines of conversations ({\"messages\": [...]}); only the "
                        "assistant's messages are learned" },
    [CLI_FLAG_CHAT_PROMPT] = { "chat", NULL, CLI_VALUE_NONE, AT(chat), 0, 0, "--chat", GENERATE, 0,
                               0,
                               "each prompt is a user's message: it passes through the tokenizer's "
                               "chat template, and only the answer is printed" },
    [CLI_FLAG_CHAT_FORM] = { "chat-form", "auto|chatml|llama3|llama2|plain", CLI_VALUE_CHOICE,
                             AT(chat_form), 0, 0, "--chat-form chatml", DATA | GENERATE, 0, 0,
                             "form of conversations (default auto: that of the tokenizer's chat "
                             "template; any other template is refused)" },
    [CLI_FLAG_DOCUMENTS] = { "documents", "packed|aligned", CLI_VALUE_CHOICE, AT(documents), 0, 0,
                             "--documents aligned", DATA, 0, 0,
                             "packed: documents one after the other (default); aligned: each "
                             "sequence holds tokens of one document only" },
    [CLI_FLAG_ID_BYTES] = { "id-bytes", "2|4", CLI_VALUE_CHOICE, AT(id_bytes), 0, 0, "--id-bytes 4",
                            RUNS | EVAL | INSPECT | CHECK, 0, 0,
                            "bytes of an id in a *.bin without a header (default: 2, or 4 if the "
                            "vocabulary is above 65536)" },
    [CLI_FLAG_VOCABULARY] = { "vocabulary", "N", CLI_VALUE_INTEGER, AT(vocabulary), 1, 1e8,
                              "--vocabulary 50257", RUNS | TUNE | PROFILE, 0, 0,
                              "rows of a preset's embedding (default: the tokenizer's; for OPT and "
                              "Llama at least the published number)" },
    [CLI_FLAG_DTYPE] = { "dtype", "f32|bf16", CLI_VALUE_CHOICE, AT(dtype), 0, 0, "--dtype f32",
                         BUDGET | TUNE | PROFILE, 0, 0,
                         "dtype of weights and activations (default: bf16 if the CPU multiplies it "
                         "in hardware; for a checkpoint as trained)" },
    [CLI_FLAG_GRADIENTS] = { "gradients", "f32|bf16", CLI_VALUE_CHOICE, AT(gradients), 0, 0,
                             "--gradients f32", RUNS | PROFILE, 0, 0,
                             "with --dtype bf16: dtype in which gradients of weights are summed "
                             "over micro-batches (default bf16; f32: 2 bytes more per parameter)" },
    [CLI_FLAG_ATOMICS] = { "atomics", "off|on", CLI_VALUE_CHOICE, AT(atomics), 0, 0, "--atomics on",
                           RUNS | PROFILE, 0, 0,
                           "on: attention's backward in bf16 on a GPU adds with atomics if cuDNN "
                           "supports it: one pass instead of parts, no squares of weights in "
                           "memory, but each run of the same seed has other bits (default off)" },
    [CLI_FLAG_EXPORT_DTYPE] = { "dtype", "f32|bf16|f16", CLI_VALUE_CHOICE, AT(export_dtype), 0, 0,
                                "--dtype bf16", EXPORT, 0, 0,
                                "dtype of the tensors (default: as in the folder the run began "
                                "from; for adapters alone f32)" },
    [CLI_FLAG_DEVICE] = { "device", "host|cuda:N", CLI_VALUE_TEXT, AT(device), 0, 0,
                          "--device cuda:0", BUDGET | PROFILE, 0, 0,
                          "device that computes: the host (default), or a GPU" },
    [CLI_FLAG_DEVICE_MEMORY] = { "device-memory", "SIZE", CLI_VALUE_SIZE, AT(device_memory_bytes),
                                 0, 0, "--device-memory 64MiB", BUDGET | REPLAY, 0, 0,
                                 "memory of the device: RAM, or with --device or a GPU's profile "
                                 "the GPU's (default: free memory, less a reserve)" },
    [CLI_FLAG_MEASURE_MEMORY] = { "device-memory", "SIZE", CLI_VALUE_SIZE, AT(device_memory_bytes),
                                  0, 0, "--device-memory 40GB", PROFILE, 0, 0,
                                  "limit of GPU memory used for measuring (default: free memory, "
                                  "less a reserve); the profile records all memory of the GPU" },
    [CLI_FLAG_DISK] = { "disk", "DIR[:SIZE]", CLI_VALUE_DISK, AT(disk_folder), 0, 0,
                        "--disk /var/tmp:40GB", BUDGET | PROFILE, 0, 0,
                        "far tier: a scratch file in DIR of at most SIZE" },
    [CLI_FLAG_DISK_WRITE_LIMIT] = { "disk-write-limit", "SIZE/day", CLI_VALUE_DAILY,
                                    AT(disk_write_limit), 0, 0, "--disk-write-limit 2TB/day", RUNS,
                                    0, 0,
                                    "limit of bytes written to the drive per day (required for a "
                                    "run that writes over 1 TB per day)" },
    [CLI_FLAG_EMULATE_HOST] = { "emulate-host", "SIZE", CLI_VALUE_SIZE, AT(emulate_host_bytes), 0,
                                0, "--emulate-host 1GiB", BUDGET, 0, 0,
                                "an emulated far tier in RAM: a test-bed, not a speed-up" },
    [CLI_FLAG_HOST_MEMORY] = { "host-memory", "SIZE|none", CLI_VALUE_ROOM, AT(host_memory_bytes), 0,
                               0, "--host-memory 64GiB", BUDGET | REPLAY, 0, 0,
                               "pinned memory next to a GPU (none: the GPU alone computes and "
                               "updates); refused on the host device" },
    [CLI_FLAG_LINK_RATE] = { "link-rate", "RATE", CLI_VALUE_RATE, AT(link_bytes_per_s), 0, 0,
                             "--link-rate 16GB/s", BUDGET, 0, 0,
                             "throttle of the emulated far tier" },
    [CLI_FLAG_THREADS] = { "threads", "N", CLI_VALUE_INTEGER, AT(threads), 1, 1024, "--threads 2",
                           BUDGET | TUNE | PROFILE | TOKENIZE | REPLAY, 0, 0,
                           "threads that compute, and files read at a time (default: the cores "
                           "available to this process)" },
    [CLI_FLAG_CHUNK] = { "chunk", "SIZE", CLI_VALUE_SIZE, AT(chunk_bytes), 0, 0, "--chunk 1MiB",
                         BUDGET, 0, 0, "largest unit of transfer (default: the planner's choice)" },
    [CLI_FLAG_RECOMPUTE] = { "recompute", "none|all|auto", CLI_VALUE_CHOICE, AT(recompute), 0, 0,
                             "--recompute auto", RUNS, 0, 0,
                             "run blocks' forward again instead of storing activations (default "
                             "auto)" },
    [CLI_FLAG_SEARCH] = { "search", "usual|quick", CLI_VALUE_CHOICE, AT(search), 0, 0,
                          "--search quick", BUDGET, 0, 0,
                          "effort of the search for a placement (default usual); quick takes a "
                          "fifth of the time or less, and its steps are often a tenth slower; "
                          "results have the same bits" },
    [CLI_FLAG_PIN] = { "pin", "TARGET=PLACE", CLI_VALUE_PIN, 0, 0, 0, "--pin 'blocks.0-3=device'",
                       RUNS, 0, 0,
                       "fixes a decision; may be repeated: TARGET is blocks.3, blocks.0-3 or a "
                       "pattern of operators' names; PLACE is device, host or disk (weights), "
                       "keep, recompute or offload (activations)" },
    [CLI_FLAG_PINS] = { "pins", "FILE", CLI_VALUE_TEXT, AT(pins), 0, 0, "--pins pins.json", RUNS, 0,
                        0, "further pins: a JSON file (docs/planning.md)" },
    [CLI_FLAG_PLAN] = { "plan", "FILE", CLI_VALUE_TEXT, AT(plan_file), 0, 0, "--plan plan.json",
                        RUNS, 0, 0, "replay a plan written by cohobate plan -o" },
    [CLI_FLAG_PROFILE] = { "profile", "NAME|FILE[,ENTRY=VALUE...]", CLI_VALUE_TEXT, AT(profile), 0,
                           0, "--profile a100-40g,pcie=2x", BUDGET | REPLAY, 0, 0,
                           "prices of the plan: a shipped datasheet (of a GPU: plan, or with "
                           "--device) or a measured file, with entries replaced" },
    [CLI_FLAG_CALIBRATION] = { "calibration", "FILE|none", CLI_VALUE_TEXT, AT(calibration), 0, 0,
                               "--calibration none", RUNS | REPLAY, 0, 0,
                               "measurements of earlier runs for the plan's prices; train adds to "
                               "it (default: a file per machine and profile in the user's cache)" },
    [CLI_FLAG_KERNELS] = { "kernels", "FILE", CLI_VALUE_TEXT, AT(kernels), 0, 0,
                           "--kernels kernels.json", BUDGET | PROFILE, 0, 0,
                           "table of matrix products by shape, from cohobate tune, or for a GPU "
                           "from profile --tune" },
    [CLI_FLAG_STEPS] = { "steps", "N", CLI_VALUE_INTEGER, AT(steps), 1, 1e12, "--steps 100", RUNS,
                         0, 0, "optimizer steps of the whole run (default 100)" },
    [CLI_FLAG_EPOCHS] = { "epochs", "N", CLI_VALUE_INTEGER, AT(epochs), 1, 1e6, "--epochs 3", RUNS,
                          0, 0,
                          "passes through the data, instead of --steps (plan: only for a token "
                          "file)" },
    [CLI_FLAG_SCHEDULE_STEPS] = { "schedule-steps", "N", CLI_VALUE_INTEGER, AT(schedule_steps), 1,
                                  1e12, "--schedule-steps 1000", RUNS, 0, 0,
                                  "steps until the rate reaches --min-lr (default --steps)" },
    [CLI_FLAG_WARMUP] = { "warmup", "N|X%", CLI_VALUE_SHARE, AT(warmup), 0, 1e12, "--warmup 10",
                          RUNS, 0, 0,
                          "steps of linear warm-up, or a share of the schedule, rounded to the "
                          "nearest step (default a tenth of the schedule, <= 100)" },
    [CLI_FLAG_BATCH] = { "batch", "N", CLI_VALUE_INTEGER, AT(batch), 1, 1 << 20, "--batch 8",
                         RUNS | TUNE | PROFILE, 0, 0, "sequences per optimizer step (default 8)" },
    [CLI_FLAG_MICRO_BATCH] = { "micro-batch", "N|auto", CLI_VALUE_COUNT, AT(micro_batch), 1,
                               1 << 20, "--micro-batch 4", RUNS | EVAL | TUNE | PROFILE, 0, 0,
                               "sequences at a time (default: largest divisor of --batch <= 8; "
                               "eval: as in the run; for a folder 2048 tokens, 1 to 8 sequences); "
                               "auto: fewer if that does not fit, or more if that is faster; "
                               "rounding then differs, with a note" },
    [CLI_FLAG_SWEEP_ORDER] = { "sweep-order", "micro-batch|layer|auto", CLI_VALUE_CHOICE,
                               AT(sweep_order), 0, 0, "--sweep-order layer", RUNS, 0, 0,
                               "order of a step with several micro-batches: each one through all "
                               "layers (default), or each layer for all of them, so that weights "
                               "stream twice per step; auto: the faster" },
    [CLI_FLAG_SEQUENCE] = { "sequence", "N", CLI_VALUE_INTEGER, AT(sequence), 1, 1 << 24,
                            "--sequence 256", RUNS | EVAL | TOKENIZE | TUNE | PROFILE, 0, 0,
                            "tokens per sequence (default 256; eval: as trained, for a folder the "
                            "model's positions, at most 4096)" },
    [CLI_FLAG_STRIDE] = { "stride", "N", CLI_VALUE_INTEGER, AT(stride), 1, 1 << 24, "--stride 512",
                          EVAL, 0, 0,
                          "tokens from one window to the next; each window scores its last N "
                          "(default: the window, without overlap)" },
    [CLI_FLAG_LR] = { "lr", "X", CLI_VALUE_REAL, AT(lr), 0, 1e9, "--lr 6e-4", RUNS, 0, 0,
                      "highest learning rate (default 6e-4; pretrained 2e-5, with --lora 2e-4)" },
    [CLI_FLAG_LR_FOR] = { "lr-for", "PATTERN=X", CLI_VALUE_FOR, AT(lr_for), 0, 1e9,
                          "--lr-for 'wte,wpe=1e-4'", RUNS, 0, 0,
                          "highest learning rate of matching parameters, instead of --lr; may be "
                          "repeated, the last match counts (docs/numerics.md); none: with "
                          "--resume, back to --lr" },
    [CLI_FLAG_MIN_LR] = { "min-lr", "X", CLI_VALUE_REAL, AT(min_lr), 0, 1e9, "--min-lr 6e-5", RUNS,
                          0, 0,
                          "lowest learning rate, at the end of the cosine (default --lr / 10)" },
    [CLI_FLAG_OPTIMIZER] = { "optimizer", "NAME", CLI_VALUE_TEXT, AT(optimizer), 0, 0,
                             "--optimizer lion", RUNS, 0, 0,
                             "adamw (default), adamw8 (8-bit moments), lion or sgd; with --resume "
                             "a change needs --reset-optimizer (docs/numerics.md)" },
    [CLI_FLAG_OPTIMIZER_FOR] = { "optimizer-for", "PATTERN=NAME", CLI_VALUE_OPTIMIZER_FOR,
                                 AT(optimizer_for), 0, 0, "--optimizer-for 'wte,wpe=adamw8'", RUNS,
                                 0, 0,
                                 "optimizer of matching parameters, instead of --optimizer; may be "
                                 "repeated; no parameter may get two; none: with --resume, back to "
                                 "--optimizer" },
    [CLI_FLAG_HYPERPARAMETER] = { "hyperparameter", "NAME=X", CLI_VALUE_FOR, AT(hyperparameters),
                                  -1e30, 1e30, "--hyperparameter momentum=0.95", RUNS, 0, 0,
                                  "a number of the optimizers that have it, or OPTIMIZER.NAME=X; "
                                  "may be repeated" },
    [CLI_FLAG_RESET_OPTIMIZER] = { "reset-optimizer", NULL, CLI_VALUE_NONE, AT(reset_optimizer), 0,
                                   0, "--reset-optimizer", RUNS, 0, 0,
                                   "with --resume: start the optimizer's states anew" },
    [CLI_FLAG_BETA1] = { "beta1", "X", CLI_VALUE_REAL, AT(beta1), 0, 0.999999, "--beta1 0.9", RUNS,
                         0, 0, "decay of the mean (default: adamw 0.9, lion 0.9)" },
    [CLI_FLAG_BETA2] = { "beta2", "X", CLI_VALUE_REAL, AT(beta2), 0, 0.99999999, "--beta2 0.95",
                         RUNS, 0, 0, "decay of the square (default: adamw 0.95, lion 0.99)" },
    [CLI_FLAG_WEIGHT_DECAY] = { "weight-decay", "X", CLI_VALUE_REAL, AT(weight_decay), 0, 100,
                                "--weight-decay 0.1", RUNS, 0, 0,
                                "decoupled decay of matrices and embeddings (default 0.1)" },
    [CLI_FLAG_WEIGHT_DECAY_FOR] = { "weight-decay-for", "PATTERN=X", CLI_VALUE_FOR,
                                    AT(weight_decay_for), 0, 100,
                                    "--weight-decay-for 'wte,*.bias=0'", RUNS, 0, 0,
                                    "decay of matching parameters, also of biases and norms, "
                                    "instead of --weight-decay; otherwise as --lr-for" },
    [CLI_FLAG_CLIP] = { "clip", "X", CLI_VALUE_REAL, AT(clip), 0, 1e30, "--clip 1.0", RUNS, 0, 0,
                        "global gradient norm, 0: off (default 1.0)" },
    [CLI_FLAG_DROPOUT] = { "dropout", "X", CLI_VALUE_REAL, AT(dropout), 0, 0.999999,
                           "--dropout 0.1", RUNS | PROFILE, 0, 0,
                           "share of values that dropout sets to zero, wherever the model's family "
                           "has dropout; never in validation (default 0)" },
    [CLI_FLAG_SEED] = { "seed", "N", CLI_VALUE_INTEGER, AT(seed), 0, MOST_INTEGER, "--seed 1",
                        RUNS | GENERATE | TOKENIZE, 0, 0,
                        "seed of initialisation, data order, sampling, validation split (default "
                        "1)" },
    [CLI_FLAG_SAVE] = { "save", "DIR|none", CLI_VALUE_TEXT, AT(save), 0, 0, "--save ./run", RUNS, 0,
                        0, "run folder (default ./run-<model>-<date>); none: keep nothing" },
    [CLI_FLAG_SAVE_EVERY] = { "save-every", "N", CLI_VALUE_INTEGER, AT(save_every), 0, 1e12,
                              "--save-every 100", RUNS, 0, 0,
                              "checkpoint every N steps (default 0: at the end)" },
    [CLI_FLAG_KEEP] = { "keep", "N", CLI_VALUE_INTEGER, AT(keep), 1, 1000, "--keep 2", RUNS, 0, 0,
                        "checkpoints to keep (default 2)" },
    [CLI_FLAG_KEEP_BEST] = { "keep-best", NULL, CLI_VALUE_NONE, AT(keep_best), 0, 0, "--keep-best",
                             RUNS, 0, 0,
                             "also keep the checkpoint with the lowest validation loss, as "
                             "DIR/best" },
    [CLI_FLAG_STOP_AFTER_WORSE] = { "stop-after-worse", "N", CLI_VALUE_INTEGER,
                                    AT(stop_after_worse), 1, 1e9, "--stop-after-worse 3", RUNS, 0,
                                    0,
                                    "save and end the run after N consecutive validations without "
                                    "a lower loss" },
    [CLI_FLAG_RESUME] = { "resume", "DIR", CLI_VALUE_TEXT, AT(resume), 0, 0, "--resume ./run", RUNS,
                          0, 0,
                          "continue from a checkpoint, or from the newest of a run folder; given "
                          "flags replace its values" },
    [CLI_FLAG_NEW_DATA] = { "new-data", NULL, CLI_VALUE_NONE, AT(new_data), 0, 0, "--new-data",
                            RUNS, 0, 0,
                            "with --resume and --data: no longer needed, --data may be other "
                            "data" },
    [CLI_FLAG_FREEZE] = { "freeze", "PATTERN", CLI_VALUE_TEXT, AT(freeze), 0, 0,
                          "--freeze 'wte,wpe,h.0.*'", RUNS, 0, 0,
                          "operators that are not trained: names or globs, separated by commas" },
    [CLI_FLAG_LORA] = { "lora", "RANK[:ALPHA]", CLI_VALUE_TEXT, AT(lora), 0, 0, "--lora 8:16", RUNS,
                        0, 0, "train only adapters of that rank (default alpha 8)" },
    [CLI_FLAG_LORA_TARGETS] = { "lora-targets", "PATTERN", CLI_VALUE_TEXT, AT(lora_targets), 0, 0,
                                "--lora-targets q_proj,v_proj", RUNS, 0, 0,
                                "linears that get an adapter (default c_attn, or q_proj,v_proj)" },
    [CLI_FLAG_LOG] = { "log", "FILE", CLI_VALUE_TEXT, AT(log), 0, 0, "--log run.jsonl", RUNS, 0, 0,
                       "append one JSON object per step" },
    [CLI_FLAG_LOGITS] = { "logits", "FILE", CLI_VALUE_TEXT, AT(logits), 0, 0, "--logits logits.npy",
                          EVAL, 0, 0,
                          "write the logits of every scored token: a .npy file of f32 [tokens, "
                          "vocabulary]" },
    [CLI_FLAG_PROMPT] = { "prompt", "TEXT", CLI_VALUE_LIST, AT(prompt), 0, 0, "--prompt 'Once'",
                          GENERATE, 0, 0,
                          "start of the text (may be repeated: one text per prompt, in order)" },
    [CLI_FLAG_PROMPT_FILE] = { "prompt-file", "FILE|-", CLI_VALUE_TEXT, AT(prompt_file), 0, 0,
                               "--prompt-file story.txt", GENERATE, 0, 0,
                               "a prompt from a file or, with -, from standard input; one final "
                               "line end is dropped" },
    [CLI_FLAG_PROMPTS] = { "prompts", "FILE|-", CLI_VALUE_TEXT, AT(prompts), 0, 0,
                           "--prompts questions.txt", GENERATE, 0, 0,
                           "one prompt from each line that is not empty" },
    [CLI_FLAG_MESSAGES] = { "messages", "FILE|-", CLI_VALUE_TEXT, AT(messages), 0, 0,
                            "--messages chat.json", GENERATE, 0, 0,
                            "conversations to answer: JSON or JSON lines, each [{\"role\": ..., "
                            "\"content\": ...}, ...] or {\"messages\": [...]}" },
    [CLI_FLAG_SYSTEM] = { "system", "TEXT", CLI_VALUE_TEXT, AT(system), 0, 0,
                          "--system 'Be brief.'", GENERATE, 0, 0,
                          "with --chat or --messages: the system prompt" },
    [CLI_FLAG_TOKENS] = { "tokens", "N", CLI_VALUE_INTEGER, AT(tokens), 1, 1 << 24, "--tokens 200",
                          GENERATE, 0, 0, "maximum number of tokens to write (default 200)" },
    [CLI_FLAG_STOP] = { "stop", "TEXT", CLI_VALUE_LIST, AT(stop), 0, 0, "--stop '###'", GENERATE, 0,
                        0, "end before this text, regardless of token borders (may be repeated)" },
    [CLI_FLAG_TEMPERATURE] = { "temperature", "X", CLI_VALUE_REAL, AT(temperature), 0, 1000,
                               "--temperature 0.8", GENERATE, 0, 0,
                               "0: always the most probable token (default 1.0)" },
    [CLI_FLAG_TOP_K] = { "top-k", "N", CLI_VALUE_INTEGER, AT(top_k), 0, 1e8, "--top-k 40", GENERATE,
                         0, 0, "choose among the N most probable tokens (0: all, the default)" },
    [CLI_FLAG_TOP_P] = { "top-p", "X", CLI_VALUE_REAL, AT(top_p), 0, 1, "--top-p 0.9", GENERATE, 0,
                         0,
                         "then among the fewest most probable tokens whose probabilities reach X "
                         "(1: all, the default)" },
    [CLI_FLAG_MIN_P] = { "min-p", "X", CLI_VALUE_REAL, AT(min_p), 0, 1, "--min-p 0.05", GENERATE, 0,
                         0,
                         "then among those at least X times as probable as the most probable (0: "
                         "all, the default)" },
    [CLI_FLAG_REPETITION_PENALTY] = { "repetition-penalty", "X", CLI_VALUE_REAL,
                                      AT(repetition_penalty), 1e-3, 1e3, "--repetition-penalty 1.1",
                                      GENERATE, 0, 0,
                                      "applied first: the logit of a token in the prompt or text "
                                      "is divided by X if above 0, else multiplied (1: none, the "
                                      "default)" },
    [CLI_FLAG_OUTPUT] = { "output", "PATH", CLI_VALUE_TEXT, AT(output), 0, 0, "-o out",
                          PLAN | TOKENIZE | TUNE | PROFILE | EXPORT, 0, 'o', "path of the result" },
    [CLI_FLAG_SHARD_SIZE] = { "shard-size", "SIZE", CLI_VALUE_SIZE, AT(shard_bytes), 0, 0,
                              "--shard-size 5GB", EXPORT, 0, 0,
                              "maximum bytes of tensors in one file (default 5GB)" },
    [CLI_FLAG_MERGE_LORA] = { "merge-lora", NULL, CLI_VALUE_NONE, AT(merge_lora), 0, 0,
                              "--merge-lora", EXPORT, 0, 0,
                              "write the whole model with its adapters merged (default: only the "
                              "adapters)" },
    [CLI_FLAG_PROGRAM] = { "program", "FILE", CLI_VALUE_TEXT, AT(program), 0, 0,
                           "--program program.txt", PLAN, 0, 0,
                           "write the program of a step, one line per instruction" },
    [CLI_FLAG_OPERATORS] = { "operators", NULL, CLI_VALUE_NONE, AT(operators), 0, 0, "--operators",
                             PLAN, 0, 0,
                             "also print one line per operator: where its data is stored" },
    [CLI_FLAG_WHAT_IF] = { "what-if", "ENTRY=VALUE[,...]", CLI_VALUE_LIST, AT(what_if), 0, 0,
                           "--what-if pcie=2x,host-memory=256GB", PLAN, 0, 0,
                           "a table: the plan as it is, and with other entries of the profile (may "
                           "be repeated: one row each)" },
    [CLI_FLAG_SWEEP] = { "sweep", "ENTRY=FROM:TO[:STEP]", CLI_VALUE_TEXT, AT(sweep), 0, 0,
                         "--sweep device-memory=8GB:40GB", PLAN, 0, 0,
                         "a table over the values of an entry: 9 points, a given number, or a "
                         "given step" },
    [CLI_FLAG_MAX] = { "max", "FAMILY", CLI_VALUE_TEXT, AT(max), 0, 0, "--max opt", PLAN, 0, 0,
                       "instead of MODEL: the largest preset of a family that can be trained "
                       "here" },
    [CLI_FLAG_MEMORY_CURVE] = { "memory-curve", "N", CLI_VALUE_INTEGER, AT(memory_curve), 1, 1e5,
                                "--memory-curve 100", PLAN, 0, 0,
                                "with --json: bytes in each tier over N parts of a step" },
    [CLI_FLAG_HELD_OUT] = { "held-out", "N", CLI_VALUE_INTEGER, AT(held_out), 2, 1e6,
                            "--held-out 10", TOKENIZE, 0, 0,
                            "every N-th document (for a folder: file) goes to --held-out-file" },
    [CLI_FLAG_HELD_OUT_FILE] = { "held-out-file", "OUT", CLI_VALUE_TEXT, AT(held_out_file), 0, 0,
                                 "--held-out-file held-out.tokens", TOKENIZE, 0, 0,
                                 "token file for documents held out by --held-out or "
                                 "--validation-split" },
    [CLI_FLAG_HASH] = { "hash", NULL, CLI_VALUE_NONE, AT(hash), 0, 0, "--hash", INSPECT, 0, 0,
                        "print only the hash: for a checkpoint of parameters and states, read in "
                        "full" },
    [CLI_FLAG_FOLDER] = { "folder", "DIR", CLI_VALUE_TEXT, AT(folder), 0, 0, "--folder /var/tmp",
                          DOCTOR, 0, 0, "the disk folder to examine (default .)" },
    [CLI_FLAG_QUICK] = { "quick", NULL, CLI_VALUE_NONE, AT(quick), 0, 0, "--quick", PROFILE, 0, 0,
                         "seconds instead of minutes: fewer sizes, samples and bytes" },
    [CLI_FLAG_AGAIN] = { "again", NULL, CLI_VALUE_NONE, AT(again), 0, 0, "--again", PROFILE, 0, 0,
                         "measure the operators of -o once more: figures combine all "
                         "measurements" },
    [CLI_FLAG_TUNE] = { "tune", "FILE", CLI_VALUE_TEXT, AT(tune), 0, 0, "--tune kernels.json",
                        PROFILE, 0, 0,
                        "also time cuBLASLt's algorithms for each product, and add the fastest to "
                        "this kernel table (for a GPU and --kernels)" },
    [CLI_FLAG_JSON] = { "json", NULL, CLI_VALUE_NONE, AT(json), 0, 0, "--json",
                        TRAIN | PLAN | GENERATE | EVAL | TOKENIZE | INSPECT | EXPORT | CHECK |
                            TUNE | PROFILE | DOCTOR | REPLAY,
                        0, 0,
                        "print the result as one JSON object on standard output (generate: one "
                        "line per prompt)" },
    [CLI_FLAG_TEST_POISON] = { "test-poison", NULL, CLI_VALUE_NONE, AT(test_poison), 0, 0,
                               "--test-poison", TRAIN | GENERATE | EVAL, 1, 0,
                               "fill every released extent with NaN" },
    [CLI_FLAG_TEST_DELAY_SEED] = { "test-delay-seed", "N", CLI_VALUE_INTEGER, AT(test_delay_seed),
                                   1, MOST_INTEGER, "--test-delay-seed 1", TRAIN | GENERATE | EVAL,
                                   1, 0, "random waits before instructions" },
    [CLI_FLAG_TEST_STORE] = { "test-store", "uring|posix|mem", CLI_VALUE_TEXT, AT(test_store), 0, 0,
                              "--test-store posix", TRAIN | GENERATE | EVAL, 1, 0, "which store" },
};
