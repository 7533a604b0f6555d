/* Prints --help of the program and of each command. The one idea: flags come from the table of
 * flag_table.c; only the introductions are written here. Next: flag_table.c. */
#include <stdio.h>
#include <string.h>

#include "cli/options.h"

static const char *const summaries[CLI_COMMAND_COUNT] = {
    [CLI_TRAIN] = "train a model within a memory budget, streaming what does not fit",
    [CLI_PLAN] = "say where everything will stand and how long a step takes; runs nothing",
    [CLI_GENERATE] = "write text with a model",
    [CLI_EVAL] = "the loss of a model on a text",
    [CLI_TOKENIZE] = "turn text into a token file",
    [CLI_INSPECT] = "what a model's folder, checkpoint, token file, plan, kernel table or profile "
                    "holds",
    [CLI_EXPORT] = "write a checkpoint as a folder that transformers loads",
    [CLI_CHECK] = "is a folder, checkpoint, token file, plan, kernel table or profile whole and "
                  "valid?",
    [CLI_TUNE] = "measure which matrix product is fastest for each shape of a model",
    [CLI_PROFILE] = "measure how fast this machine is, for plans to be priced by",
    [CLI_SIMULATE] = "what a plan takes by another profile: its very program, priced again",
    [CLI_EXPLAIN] = "why an operator's things stand where they stand in a plan",
    [CLI_DOCTOR] = "what this machine has, what that costs, what to do about it",
};

static const char *const usages[CLI_COMMAND_COUNT] = {
    [CLI_TRAIN] = ("cohobate train MODEL --data FILE|DIR [flags]\n"
                   "       cohobate train --resume DIR [flags]"),
    [CLI_PLAN] =
        ("cohobate plan MODEL [flags of train] [-o plan.json] [--json]\n"
         "       cohobate plan MODEL --what-if ENTRY=VALUE | --sweep ENTRY=FROM:TO [flags]\n"
         "       cohobate plan --max FAMILY [flags]"),
    [CLI_SIMULATE] = "cohobate simulate PLAN [--profile NAME|FILE] [--json]",
    [CLI_EXPLAIN] = "cohobate explain PLAN OPERATOR [--json]",
    [CLI_GENERATE] = ("cohobate generate CHECKPOINT|FOLDER --prompt TEXT [flags]\n"
                      "       cohobate generate CHECKPOINT|FOLDER --chat --prompt TEXT [flags]\n"
                      "       cohobate generate CHECKPOINT|FOLDER --messages FILE [flags]"),
    [CLI_EVAL] = "cohobate eval CHECKPOINT|FOLDER --data FILE [flags]",
    [CLI_TOKENIZE] = "cohobate tokenize --tokenizer DIR|bytes IN -o OUT",
    [CLI_INSPECT] = "cohobate inspect PATH [--hash] [--json]",
    [CLI_EXPORT] = "cohobate export CHECKPOINT|FOLDER -o FOLDER [flags] [--json]",
    [CLI_CHECK] = "cohobate check PATH [--json]",
    [CLI_TUNE] = "cohobate tune MODEL -o FILE [flags] [--json]",
    [CLI_PROFILE] = "cohobate profile [MODEL] [-o machine.json] [flags] [--json]",
    [CLI_DOCTOR] = "cohobate doctor [--folder DIR] [--json]",
};

static const char *const details[CLI_COMMAND_COUNT] = {
    [CLI_TRAIN] =
        "MODEL is a preset (see below), or the folder of a\n"
        "checkpoint, a run or a Hugging Face model (GPT-2, OPT, Llama, Mistral, Qwen2): then a new "
        "run\n"
        "starts from its weights, and a Hugging Face folder brings its own tokenizer. With "
        "--resume,\n"
        "model, data and schedule come from the checkpoint and that run goes on bit for bit, under "
        "any\n"
        "budget (with --atomics on it goes on, and no two runs have the same bits). Flags that "
        "are\n"
        "given with --resume replace what the checkpoint has: --lr, --min-lr, --schedule-steps, "
        "--warmup,\n"
        "--batch, --micro-batch, --weight-decay, --beta1, --beta2, --clip, --data and others; each "
        "change\n"
        "is printed and kept in the next checkpoint. What cannot change is refused (2).\n"
        "SIGINT, SIGTERM, SIGHUP (not under nohup), SIGUSR1, SIGUSR2 or SIGXCPU finishes the "
        "step,\n"
        "saves and exits 75; a second one stops at once. Where\n"
        "nothing was kept (--save none, or no checkpoint yet) the exit code is 1. Before the first "
        "step\n"
        "a stop leaves nothing behind.\n",
    [CLI_PLAN] =
        "One screen: what fits, how fast it runs, what limits it, what stands and moves where\n"
        "(docs/planning.md explains each line; --json has the same).\n"
        "Exit 3 when it does not fit, with the smallest change that does. The budget is\n"
        "--device-memory; --disk and --emulate-host add far tiers. --profile prices the\n"
        "plan for another machine, with its memory where no flag says otherwise: a what-if.\n"
        "Shipped datasheets: a100-40g, a100-80g, h100, h200, mi250x, rtx-3090, rtx-4090,\n"
        "rtx-5090; cohobate inspect NAME says where their figures come from.\n",
    [CLI_GENERATE] =
        "CHECKPOINT is a checkpoint or a run folder (its newest), FOLDER a Hugging Face model. "
        "Keys and\n"
        "values are part of the plan and lie within the budget. Several prompts are answered one "
        "after the\n"
        "other; number i, from 0, draws with --seed + i, and its text does not depend on the "
        "others.\n\n"
        "  logits -> repetition penalty -> temperature -> top-k -> top-p -> min-p -> draw\n\n"
        "as in transformers. l is a logit, S the ids of prompt and text so far:\n"
        "  penalty r  l / r if l >= 0, else l * r, for each id of S, once (at temperature 0, too)\n"
        "  top-p p    the fewest likeliest whose probabilities, after top-k, reach p\n"
        "  min-p m    of those, all at least m times as probable as the likeliest\n",
    [CLI_EVAL] =
        "Mean loss per token in nats and perplexity; bits per byte with the bytes tokenizer. Every "
        "token\n"
        "but the first is scored once, in windows of --sequence tokens (default: a folder's "
        "positions, at\n"
        "most 4096; a checkpoint's trained sequence), --stride apart. DIR/best of a run is its "
        "best\n"
        "checkpoint (train --keep-best).\n",
    [CLI_TOKENIZE] =
        "IN is a text file, a folder (every text file under it, in order of their paths), or JSON\n"
        "lines. Documents of --documents aligned are made for sequences of --sequence tokens.\n",
    [CLI_INSPECT] =
        "The hash of a checkpoint is one number for all parameters and optimizer states:\n"
        "the same whatever the budget, chunk size, tiers or threads of the run.\n",
    [CLI_EXPORT] =
        "CHECKPOINT is a checkpoint, a run folder (its newest) or a Hugging Face folder. FOLDER "
        "must\n"
        "not be there: it is written whole or not at all. Numbers are written as the folder that "
        "the\n"
        "run began from had them, unless --dtype is given; what was not trained comes out bit for "
        "bit.\n"
        "The tokenizer's files go along; --tokenizer PATH says where they are now, none leaves "
        "them out.\n"
        "Of a run with --lora the adapters alone are written, as PEFT has them, and with them a\n"
        "tokenizer's files where --tokenizer says which; --merge-lora writes the whole model.\n",
    [CLI_CHECK] = "Reads every byte. Exit 0 when all is well, 4 when not, naming the place. Of a "
                  "run\n"
                  "the newest checkpoint counts: where it is damaged, the newest whole one is "
                  "named.\n",
    [CLI_TUNE] =
        "Writes a table for --kernels of train, plan, eval and generate. It holds for the model,\n"
        "--micro-batch, --sequence and --dtype it was measured with; other shapes keep the\n"
        "standard product. A run under another table rounds otherwise, which a resume says.\n"
        "oneDNN, where it wins, allocates memory in each of its calls. Let the machine do\n"
        "nothing else meanwhile.\n",
    [CLI_PROFILE] =
        "Measures products, memory, every operator of MODEL in several micro-batches (without one, "
        "of\n"
        "small presets), copies, the drive behind --disk, and how much they slow one another: "
        "minutes,\n"
        "with --quick seconds. A file of this machine at -o is kept and what is missing is added; "
        "with\n"
        "--again operators are measured once more, for figures of a machine that does not hold "
        "still.\n"
        "A scratch file of up to 1 GiB stands in the --disk folder meanwhile, and up to 4 GiB "
        "more\n"
        "are written to it. Let the machine do nothing else.\n"
        "On a GPU --tune FILE has each product multiplied by several algorithms of cuBLASLt, and "
        "adds\n"
        "the fastest to the kernel table FILE; operators are measured with them. A run takes the "
        "table\n"
        "by --kernels, which changes its bits; without it the library's own first choice "
        "multiplies.\n"
        "There --device-memory bounds what measuring takes of the GPU's memory: an operator that "
        "does\n"
        "not fit is left out and named, and the profile says what the GPU has, not the bound.\n",
    [CLI_SIMULATE] =
        "PLAN is a plan.json of cohobate plan -o, or that of a run's folder. The program is built "
        "anew,\n"
        "compared with the file's hash, verified and priced by --profile; without, by the profile "
        "it was\n"
        "made with. Nothing is searched: cohobate plan --what-if plans anew. Exit 3 when the plan "
        "needs\n"
        "more memory than that profile has.\n",
    [CLI_EXPLAIN] =
        "Each alternative is the plan with one decision made otherwise (the operator's parameters "
        "held on\n"
        "the device, or out in a far tier; its block kept, recomputed, or moved out), built, "
        "verified and\n"
        "simulated. All other decisions stay.\n",
    [CLI_DOCTOR] = "Nothing is changed.\n",
};

static const char *const examples[CLI_COMMAND_COUNT] = {
    [CLI_TRAIN] =
        "  cohobate train gpt2-nano --data corpus.txt --steps 200\n"
        "  cohobate train gpt2-nano --data corpus.txt --device-memory 64MiB --disk /var/tmp\n"
        "  cohobate train ./opt-125m --data corpus.txt --epochs 3 --lr 2e-5 --save ./run\n"
        "  cohobate train gpt2-nano --data docs.jsonl --field body --validation-split 0.05\n"
        "  cohobate train ./opt-125m --data corpus.txt --lora 8:16 --lr 2e-4 --save ./run\n"
        "  cohobate train --resume ./run-gpt2-nano-20250131-120000 --steps 400\n",
    [CLI_PLAN] = "  cohobate plan gpt2 --vocabulary 50257 --device-memory 500MiB --disk /var/tmp\n"
                 "  cohobate plan opt-30b --device-memory 40GB --disk /var/tmp --sequence 2048\n"
                 "  cohobate plan gpt2-nano --device-memory 64MiB --disk . -o plan.json\n"
                 "  cohobate plan gpt2-xl --profile rtx-4090,pcie=gen3,host-memory=32GB\n"
                 "  cohobate plan gpt2 --device-memory 500MiB --disk . --what-if disk-read=2x\n"
                 "  cohobate plan opt-6.7b --profile a100-40g --sweep device-memory=8GB:40GB:8GB\n"
                 "  cohobate plan --max opt --profile a100-40g\n",
    [CLI_GENERATE] =
        "  cohobate generate ./run --prompt 'int main(' --tokens 100 --temperature 0.8\n"
        "  cohobate generate ./run/step-100 --prompt Once --top-k 40 --seed 7\n"
        "  cohobate generate ./qwen --chat --system 'Be brief.' --prompt 'Why?' --top-p 0.9\n"
        "  cohobate generate ./run --prompts questions.txt --stop '###' --json\n"
        "  echo Once | cohobate generate ./run --prompt-file - --repetition-penalty 1.1\n",
    [CLI_EVAL] =
        "  cohobate eval ./run --data held-out.txt\n"
        "  cohobate eval ./run --data held-out.txt --device-memory 32MiB --disk /var/tmp\n"
        "  cohobate eval ./gpt2 --data held-out.txt --sequence 1023 --stride 512 --logits l.npy\n",
    [CLI_TOKENIZE] = "  cohobate tokenize corpus.txt -o corpus.tokens\n"
                     "  cohobate tokenize --tokenizer qwen/ chats.jsonl --chat -o chats.tokens\n"
                     "  cohobate tokenize --tokenizer gpt2 src/ -o src.tokens --held-out 10"
                     " --held-out-file held.tokens\n",
    [CLI_INSPECT] = "  cohobate inspect ./run\n"
                    "  cohobate inspect ./run/step-100 --hash\n"
                    "  cohobate inspect ./run/plan.json\n"
                    "  cohobate inspect ./opt-125m\n",
    [CLI_EXPORT] = "  cohobate export ./run -o ./opt-125m-tuned\n"
                   "  cohobate export ./run/step-100 -o ./tuned --dtype bf16 --shard-size 2GB\n",
    [CLI_CHECK] = "  cohobate check ./run/step-100\n"
                  "  cohobate check corpus.tokens\n",
    [CLI_TUNE] = "  cohobate tune gpt2 --vocabulary 50257 --batch 4 --sequence 64 -o kernels.json\n"
                 "  cohobate train gpt2-nano --data corpus.txt --kernels kernels.json\n",
    [CLI_PROFILE] = "  cohobate profile gpt2 --vocabulary 50257 --disk /var/tmp -o machine.json\n"
                    "  cohobate profile --quick\n"
                    "  cohobate profile gpt2-xl --device cuda:0 -o gpu.json --tune kernels.json\n",
    [CLI_SIMULATE] = "  cohobate simulate plan.json --profile machine.json\n"
                     "  cohobate simulate ./run/plan.json --profile built-in-8,disk-read=7GB/s\n",
    [CLI_EXPLAIN] = "  cohobate explain plan.json h.3.mlp.c_fc\n",
    [CLI_DOCTOR] = "  cohobate doctor\n"
                   "  cohobate doctor --folder /mnt/nvme --json\n",
};

static void print_presets(void)
{
    const char *name;
    int column = printf("presets:");
    for (int32_t i = 0; (name = coh_model_preset_name(i)) != NULL; i++) {
        if (column + 1 + (int)strlen(name) > 100)
            column = printf("\n        ") - 1;
        column += printf(" %s", name);
    }
    printf("\n\n");
}

static void help_all(void)
{
    printf("cohobate %s - trains models larger than the memory they are given\n\n"
           "usage: cohobate COMMAND ...\n\n",
           coh_version());
    for (int c = 0; c < CLI_COMMAND_COUNT; c++)
        printf("  %-10s %s\n", cli_command_name((cli_command)c), summaries[c]);
    printf("\ncohobate COMMAND --help tells all flags of a command, with examples.\n"
           "Sizes carry their unit: 64MiB (2^20), 40GB (10^9).\n"
           "Exit: 0 ok, 1 run failed, 2 usage, 3 does not fit, 4 bad data, 5 I/O or device fault,\n"
           "75 stopped and resumable. A path that does not exist is 2; a file where a folder is "
           "needed,\n"
           "or the reverse, is 4; a path that cannot be read or written is 5.\n");
}

void cli_help(cli_command command)
{
    if (command == CLI_COMMAND_COUNT) {
        help_all();
        return;
    }
    printf("%s\n\nusage: %s\n\n%s\n", summaries[command], usages[command], details[command]);
    if (cli_command_takes_preset(command))
        print_presets();
    printf("flags:\n");
    for (int f = 0; f < CLI_FLAG_COUNT; f++) {
        const cli_flag_row *row = &cli_flag_table[f];
        if (row->hidden || !(row->commands >> command & 1))
            continue;
        char left[64];
        snprintf(left, sizeof(left), "%s--%s%s%s",
                 row->short_name ? (char[]){ '-', row->short_name, ',', ' ', '\0' } : "", row->name,
                 row->takes ? " " : "", row->takes ? row->takes : "");
        printf("  %-26s %s\n", left, row->help);
    }
    printf("  %-26s %s\n\nexamples:\n%s", "-h, --help", "this text", examples[command]);
}
