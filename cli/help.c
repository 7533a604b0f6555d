/* Prints --help of the program and of each command. The one idea: flags come from the rows of
 * flags.def; only the introductions are written here. Next: flags.def. */
#include "cli/help.h"

#include <stdio.h>
#include <string.h>

const char *const cli_help_summaries[CLI_COMMAND_COUNT] = {
    [CLI_TRAIN] = "train a model within a memory budget, streaming what does not fit",
    [CLI_PLAN] = "show where all data is stored and how long a step takes; runs nothing",
    [CLI_GENERATE] = "write text with a model",
    [CLI_EVAL] = "compute the loss of a model on a text",
    [CLI_TOKENIZE] = "turn text into a token file",
    [CLI_MIX] = "mix token files into one, each in its share",
    [CLI_INSPECT] =
        "print the contents of a folder, checkpoint, token file, plan, kernel table or profile",
    [CLI_EXPORT] = "write a checkpoint as a folder that transformers loads",
    [CLI_CHECK] =
        "verify a folder, checkpoint, token file, plan, kernel table or profile completely",
    [CLI_CHECK_KIND] = "find the mistakes of an operator kind in a shared library",
    [CLI_TUNE] = "find the fastest matrix product for each shape of a model",
    [CLI_PROFILE] = "measure the speed of this machine, for the prices of plans",
    [CLI_SIMULATE] =
        "predict the time of a plan with another profile, without changing its program",
    [CLI_EXPLAIN] = "explain why an operator's data is stored where it is in a plan",
    [CLI_REPORT] = "show where every second and byte of a run's steps went",
    [CLI_DIFF] = "show what became faster or slower from one run to another",
    [CLI_TRACE] = "write a run's recorded steps for Perfetto and Chrome's tracing",
    [CLI_WATCH] = "watch a run on the terminal while it trains",
    [CLI_DOCTOR] = "examine this machine: what it has, what that costs, what to do about it",
};

const char *const cli_help_usages[CLI_COMMAND_COUNT] = {
    [CLI_TRAIN] = ("cohobate train MODEL --data FILE|DIR [flags]\n"
                   "       cohobate train --resume DIR [flags]"),
    [CLI_PLAN] =
        ("cohobate plan MODEL [flags of train] [-o plan.json] [--json]\n"
         "       cohobate plan MODEL --what-if ENTRY=VALUE | --sweep ENTRY=FROM:TO [flags]\n"
         "       cohobate plan --max FAMILY [flags]"),
    [CLI_SIMULATE] = "cohobate simulate PLAN [--profile NAME|FILE] [--rehearse N] [--json]",
    [CLI_TRACE] = "cohobate trace RUN -o trace.json [--steps A:B]",
    [CLI_WATCH] = "cohobate watch RUN [--once] [--ascii]",
    [CLI_EXPLAIN] = "cohobate explain PLAN OPERATOR [--json]",
    [CLI_REPORT] = "cohobate report RUN [RUN ...] [-o FILE.html|.txt|.json | --text | --json]",
    [CLI_DIFF] = "cohobate diff RUN RUN",
    [CLI_GENERATE] = ("cohobate generate CHECKPOINT|FOLDER --prompt TEXT [flags]\n"
                      "       cohobate generate CHECKPOINT|FOLDER --chat --prompt TEXT [flags]\n"
                      "       cohobate generate CHECKPOINT|FOLDER --messages FILE [flags]"),
    [CLI_EVAL] = "cohobate eval CHECKPOINT|FOLDER --data FILE [flags]",
    [CLI_TOKENIZE] = "cohobate tokenize --tokenizer DIR|bytes IN -o OUT",
    [CLI_MIX] = "cohobate mix FILE[:TIMES] [FILE[:TIMES] ...] -o OUT",
    [CLI_INSPECT] = "cohobate inspect PATH [--hash] [--json]",
    [CLI_EXPORT] = "cohobate export CHECKPOINT|FOLDER -o FOLDER [flags] [--json]",
    [CLI_CHECK] = "cohobate check PATH [--json]",
    [CLI_CHECK_KIND] = "cohobate check-kind LIBRARY:SYMBOL [--input DTYPE:DIMENSIONS ...] [flags]",
    [CLI_TUNE] = "cohobate tune MODEL -o FILE [flags] [--json]",
    [CLI_PROFILE] = "cohobate profile [MODEL] [-o machine.json] [flags] [--json]",
    [CLI_DOCTOR] = "cohobate doctor [--folder DIR] [--json]",
};

const char *const cli_help_details[CLI_COMMAND_COUNT] = {
    [CLI_TRAIN] =
        "MODEL is a preset (see below), or the folder of a checkpoint, a run or a Hugging Face\n"
        "model (GPT-2, OPT, Llama, Mistral, Qwen2, Qwen3, Phi-3, Gemma 2 and 3). A new run starts\n"
        "from the weights of that folder; a Hugging Face folder also provides the tokenizer.\n"
        "With --resume, model, data and schedule come from the checkpoint, and the run\n"
        "continues bit for bit under any budget (with --atomics on it continues, but no two\n"
        "runs have the same bits). Flags given with --resume replace those of the checkpoint:\n"
        "--lr, --min-lr, --schedule, --schedule-steps, --decay-steps, --warmup, --batch,\n"
        "--micro-batch, --weight-decay, --beta1, --beta2, --clip, --data and others. Each change\n"
        "is printed and kept in the next checkpoint. Flags that cannot change are refused\n"
        "(exit 2).\n"
        "SIGINT, SIGTERM, SIGHUP (not under nohup), SIGUSR1, SIGUSR2 or SIGXCPU finishes the\n"
        "step, saves and exits 75; a second signal, except SIGHUP, stops at once. If nothing was\n"
        "kept (--save none, or no checkpoint yet), the exit code is 1. Before the first step a\n"
        "stop leaves no files behind.\n",
    [CLI_PLAN] =
        "Prints one screen: whether the plan fits, its speed and its limit, where data is\n"
        "stored and moves (docs/planning.md explains each line; --json prints the same).\n"
        "Exits with 3 if nothing fits, and names the smallest change that fits. The budget is\n"
        "--device-memory; --disk and --emulate-host add far tiers. --profile prices the plan\n"
        "for another machine, with its memory unless flags set it: a what-if.\n"
        "Shipped datasheets: a100-40g, a100-80g, h100, h200, mi250x, rtx-3090, rtx-4090,\n"
        "rtx-5090; cohobate inspect NAME shows the sources of their figures.\n"
        "--rehearse N also lets the executor run N steps (4 or more, since the first ones\n"
        "differ) without memory, and exits with 1 if they are not as planned.\n",
    [CLI_GENERATE] =
        "CHECKPOINT is a checkpoint or a run folder (its newest checkpoint), FOLDER a Hugging\n"
        "Face model. Keys and values are part of the plan and count towards the budget. Prompts\n"
        "are answered one after the other. Number i, from 0, draws with --seed + i; its text\n"
        "does not depend on other prompts.\n"
        "\n"
        "  logits -> repetition penalty -> temperature -> top-k -> top-p -> min-p -> draw\n"
        "\n"
        "as in transformers. l is a logit, S the set of ids of prompt and text so far:\n"
        "  penalty r  l / r if l >= 0, else l * r, for each id of S, once (also at temperature 0)\n"
        "  top-p p    the fewest most probable tokens whose probabilities, after top-k, reach p\n"
        "  min-p m    of these, all at least m times as probable as the most probable\n"
        "Where a flag is not given, the value of the model's generation_config.json is taken, if\n"
        "it has one; a note tells.\n",
    [CLI_EVAL] =
        "Prints the mean loss per token in nats, and the perplexity; with the bytes tokenizer\n"
        "also bits per byte. Every token except the first is scored once, in windows of\n"
        "--sequence tokens (default: as the weights were trained, at most 4096: all positions of\n"
        "a folder and of a run from one, else the run's sequence), --stride apart. DIR/best of\n"
        "a run is its best checkpoint (train --keep-best).\n",
    [CLI_TOKENIZE] =
        "IN is a text file, a folder (every text file under it, sorted by path), JSON lines or\n"
        "an array of JSON objects.\n"
        "With --documents aligned, fitted or separate, documents are arranged for sequences\n"
        "of --sequence tokens.\n",
    [CLI_MIX] =
        "FILE is a token file of cohobate tokenize; all of them are of one tokenizer. TIMES is "
        "how\n"
        "often a pass over OUT reads it: 3 three times, 0.25 a quarter of it, chosen by --seed\n"
        "(default 1). Each file's share of the tokens is printed.\n",
    [CLI_INSPECT] =
        "The hash of a checkpoint is one number for all parameters and optimizer states. It\n"
        "does not depend on the budget, chunk size, tiers or threads of the run.\n",
    [CLI_EXPORT] =
        "CHECKPOINT is a checkpoint, a run folder (its newest checkpoint) or a Hugging Face\n"
        "folder. FOLDER must not exist: it is written completely or not at all. Tensors keep\n"
        "the dtypes of the folder that the run began from, unless --dtype is given; untrained\n"
        "tensors are written bit for bit, or as train rounded them (--frozen-dtype nf4, --dtype\n"
        "bf16).\n"
        "The tokenizer's files are copied; --tokenizer PATH gives their current place, none\n"
        "omits them. For a run with --lora only the adapters and what --lora-also trained are\n"
        "written, in PEFT's format, and a tokenizer's files if --tokenizer is given; --merge-lora\n"
        "writes the whole model. --adapter takes such a folder over the model: for --merge-lora.\n",
    [CLI_CHECK] =
        "Reads every byte. Exits with 0 if all is well, else with 4, naming the place. For a\n"
        "run the newest checkpoint counts: if it is damaged, the newest intact one is named.\n",
    [CLI_CHECK_KIND] =
        "SYMBOL is a coh_op_kind of the library, which is loaded and runs alone, in guarded\n"
        "memory: its declarations, what it reads and writes, the same bits at other addresses\n"
        "and with other threads, and its gradients against differences of forward. Each line\n"
        "names port, element, both values and the usual cause. Exits with 0 if nothing is\n"
        "found, else with 1. docs/library.md explains the stages.\n",
    [CLI_TUNE] =
        "Writes a table for --kernels of train, plan, eval and generate. It applies to the\n"
        "model, --micro-batch, --sequence and --dtype it was measured with; other shapes keep\n"
        "the standard product. Another table changes a run's rounding, and a resume prints\n"
        "that. oneDNN, if it is fastest, allocates memory in each of its calls. Keep the\n"
        "machine idle while measuring.\n",
    [CLI_PROFILE] =
        "Measures products, memory, every operator of MODEL in several micro-batches (without\n"
        "MODEL: of small presets), copies, the drive of --disk, and how much they slow one\n"
        "another. Takes minutes, with --quick seconds. If -o is a file of this machine, its\n"
        "figures are kept and missing ones are added; with --again operators are measured once\n"
        "more, for machines with varying speed.\n"
        "Meanwhile the --disk folder holds a scratch file of up to 1 GiB, to which up to 4 GiB\n"
        "more are written. Keep the machine idle while measuring.\n"
        "On a GPU --tune FILE times several algorithms of cuBLASLt for each product, and adds\n"
        "the fastest to the kernel table FILE; operators are measured with them. A run uses the\n"
        "table with --kernels, which changes its bits; without it the library's own first\n"
        "choice is used.\n"
        "On a GPU --device-memory limits the GPU memory used for measuring: an operator that\n"
        "does not fit is left out and named. The profile records the GPU's memory, not the\n"
        "limit.\n",
    [CLI_SIMULATE] =
        "PLAN is a plan.json of cohobate plan -o, or that of a run's folder. The program is\n"
        "rebuilt, compared with the file's hash, verified, and priced by --profile (default:\n"
        "the profile it was made with). There is no search; cohobate plan --what-if plans\n"
        "again. Exits with 3 if the plan needs more memory than the profile has.\n",
    [CLI_EXPLAIN] =
        "Each alternative is the plan with one decision changed (the operator's parameters kept\n"
        "on the device or moved to a far tier; the activations of its block kept, recomputed or\n"
        "moved out). It is built, verified and simulated. All other decisions stay. cohobate plan\n"
        "MODEL --operators lists the names of operators.\n",
    [CLI_REPORT] =
        "RUN is a run's folder, during the run or after it. Without -o, --text and --json the\n"
        "report becomes report.html in the first folder: one file that loads nothing, for any\n"
        "browser. Curves of further runs are drawn over those of the first. docs/report.md\n"
        "explains each section.\n",
    [CLI_DIFF] = "Compares the second run with the first, lane by lane and operator by operator.\n",
    [CLI_TRACE] =
        "RUN is the folder of a run that recorded steps (train --record). Open the file at\n"
        "ui.perfetto.dev, or at chrome://tracing. Each lane is a track, measured and below it\n"
        "predicted; an arrow leads from a transfer to the compute instruction that waited for\n"
        "it; counters are the bytes of each tier by purpose.\n",
    [CLI_WATCH] =
        "RUN is a run's folder; nothing else is read, and nothing is written. q quits; the run\n"
        "continues. When the run ends, watch ends with the last screen and a sentence that names\n"
        "the reason. If the output is no terminal, watch prints a line at each save and\n"
        "validation, and about the steps at most one in ten seconds.\n",
    [CLI_DOCTOR] = "Changes nothing, except that --folder writes 64 MiB there and deletes them.\n",
};

const char *const cli_help_examples[CLI_COMMAND_COUNT] = {
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
    [CLI_MIX] = "  cohobate mix web.tokens chats.tokens:3 math.tokens:0.25 -o mixed.tokens\n"
                "  cohobate train ./qwen --data mixed.tokens\n",
    [CLI_INSPECT] = "  cohobate inspect ./run\n"
                    "  cohobate inspect ./run/step-100 --hash\n"
                    "  cohobate inspect ./run/plan.json\n"
                    "  cohobate inspect ./opt-125m\n",
    [CLI_EXPORT] = "  cohobate export ./run -o ./opt-125m-tuned\n"
                   "  cohobate export ./run/step-100 -o ./tuned --dtype bf16 --shard-size 2GB\n",
    [CLI_CHECK] = "  cohobate check ./run/step-100\n"
                  "  cohobate check corpus.tokens\n",
    [CLI_CHECK_KIND] =
        "  cohobate check-kind ./libmine.so:gate\n"
        "  cohobate check-kind ./libmine.so:norm --attributes small --input f32:4,6,8\n"
        "  cohobate check-kind ./libmine.so:loss --input f32:8,5 --input i32:8 --json\n"
        "  cohobate check-kind ./libmine.so:gate --device cuda:0\n",
    [CLI_TUNE] = "  cohobate tune gpt2 --vocabulary 50257 --batch 4 --sequence 64 -o kernels.json\n"
                 "  cohobate train gpt2-nano --data corpus.txt --kernels kernels.json\n",
    [CLI_PROFILE] = "  cohobate profile gpt2 --vocabulary 50257 --disk /var/tmp -o machine.json\n"
                    "  cohobate profile --quick\n"
                    "  cohobate profile gpt2-xl --device cuda:0 -o gpu.json --tune kernels.json\n",
    [CLI_SIMULATE] = "  cohobate simulate plan.json --profile machine.json\n"
                     "  cohobate simulate ./run/plan.json --profile built-in-8,disk-read=7GB/s\n",
    [CLI_EXPLAIN] = "  cohobate explain plan.json h.3.mlp.c_fc\n",
    [CLI_REPORT] = "  cohobate report ./run\n"
                   "  cohobate report ./run --text\n"
                   "  cohobate report ./run ./other -o compared.html\n",
    [CLI_DIFF] = "  cohobate diff ./before ./after\n",
    [CLI_TRACE] = "  cohobate trace ./run -o trace.json\n"
                  "  cohobate trace ./run -o trace.json --steps 98:100\n",
    [CLI_WATCH] = "  cohobate watch ./run\n"
                  "  cohobate watch ./run --once > status.txt\n",
    [CLI_DOCTOR] = "  cohobate doctor\n"
                   "  cohobate doctor --folder /mnt/nvme --json\n"
                   "  mpirun -n 4 cohobate doctor\n",
};

const char cli_help_sizes[] = "Sizes have a unit: 64MiB (2^20), 40GB (10^9).\n";

const char cli_help_short[] =
    "A flag may be cut short where no other flag of the command begins so: --vocab for\n"
    "--vocabulary. In scripts write it out: a later version may have more flags.\n";

const char cli_help_exit_codes[] =
    "Exit codes: 0 ok, 1 run failed, 2 usage, 3 does not fit, 4 bad data, 5 I/O or device\n"
    "fault, 75 stopped and resumable. 2: a path that does not exist. 4: a file in place of a\n"
    "folder, or the reverse. 5: a path that cannot be read or written.\n";

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
        printf("  %-10s %s\n", cli_command_name((cli_command)c), cli_help_summaries[c]);
    printf("\ncohobate COMMAND --help lists all flags of a command, with examples.\n%s%s%s",
           cli_help_short, cli_help_sizes, cli_help_exit_codes);
}

void cli_help(cli_command command)
{
    if (command == CLI_COMMAND_COUNT) {
        help_all();
        return;
    }
    printf("%s\n\nusage: %s\n\n%s\n", cli_help_summaries[command], cli_help_usages[command],
           cli_help_details[command]);
    if (cli_command_operand(command) == CLI_OPERAND_MODEL)
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
    printf("  %-26s %s\n\nexamples:\n%s", "-h, --help", "this text", cli_help_examples[command]);
}
