/* cohobate - the program: finds the command, prints the message of a failure, turns a status into
 * an exit code. Next: options.c parses, commands.h lists the commands. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/artefact.h"
#include "cli/budget.h"
#include "cli/commands.h"
#include "cli/disks.h"
#include "cli/extension.h"
#include "cli/input.h"
#include "cli/launch.h"
#include "cli/refusal.h"
#include "cli/stop.h"
#include "cli/topology.h"

static coh_status (*const commands[CLI_COMMAND_COUNT])(const cli_options *options) = {
    [CLI_TRAIN] = cli_train,
    [CLI_PLAN] = cli_plan,
    [CLI_GENERATE] = cli_generate,
    [CLI_EVAL] = cli_eval,
    [CLI_TOKENIZE] = cli_tokenize,
    [CLI_INSPECT] = cli_inspect,
    [CLI_EXPORT] = cli_export,
    [CLI_CHECK] = cli_check,
    [CLI_CHECK_KIND] = cli_check_kind,
    [CLI_TUNE] = cli_tune,
    [CLI_PROFILE] = cli_profile,
    [CLI_DOCTOR] = cli_doctor,
    [CLI_SIMULATE] = cli_simulate,
    [CLI_TRACE] = cli_trace,
    [CLI_EXPLAIN] = cli_explain,
    [CLI_REPORT] = cli_report_runs,
    [CLI_DIFF] = cli_diff_runs,
    [CLI_WATCH] = cli_watch,
    [CLI_MIX] = cli_mix, /* of token files */
};

/* The flags by which messages of the library call its options. */
static const char *terms[COH_TERM_COUNT] = {
    [COH_TERM_DEVICE_MEMORY] = "--device-memory",
    [COH_TERM_HOST_MEMORY] = "--host-memory",
    [COH_TERM_EMULATED_HOST] = "--emulate-host",
    [COH_TERM_DISK] = "--disk",
    [COH_TERM_DISK_LIMIT] = "--disk",
    [COH_TERM_A_DISK] = "--disk DIR",
    [COH_TERM_DISK_SIZE] = ":",
    [COH_TERM_WRITE_LIMIT] = "--disk-write-limit",
    [COH_TERM_DEVICE] = "--device",
    [COH_TERM_THREADS] = "--threads",
    [COH_TERM_CHUNK] = "--chunk",
    [COH_TERM_RECOMPUTE] = "--recompute",
    [COH_TERM_SWEEP_ORDER] = "--sweep-order",
    [COH_TERM_BATCH] = "--batch",
    [COH_TERM_MICRO_BATCH] = "--micro-batch",
    [COH_TERM_SEQUENCE] = "--sequence",
    [COH_TERM_DTYPE] = "--dtype",
    [COH_TERM_GRADIENTS] = "--gradients",
    [COH_TERM_ATOMICS] = "--atomics",
    [COH_TERM_DROPOUT] = "--dropout",
    [COH_TERM_PROFILE] = "--profile",
    [COH_TERM_MEASURE] = "cohobate profile -o FILE",
    [COH_TERM_MEASURE_DRIVE] = "cohobate profile --disk DIR -o FILE",
    [COH_TERM_QUICK] = "--quick",
    [COH_TERM_ID_BYTES] = "--id-bytes",
    [COH_TERM_FIELD] = "--field",
    [COH_TERM_CHAT] = "--chat",
    [COH_TERM_CHAT_FORM] = "--chat-form",
    [COH_TERM_KINDS] = "--kinds",
    [COH_TERM_REPLICAS] = "--replicas",
    [COH_TERM_WIRE] = "--wire",
    [COH_TERM_CLIP_MODE] = "--clip-mode",
    [COH_TERM_REDUCE] = "--reduce",
    [COH_TERM_DISK_RAISED] = "--disk DIR:",
    [COH_TERM_CHAT_TEXT] = "--field",
    [COH_TERM_ADAPTER] = "--adapter",
    [COH_TERM_SKIP_BAD] = "--skip-bad",
    [COH_TERM_FROZEN_NF4] = "--frozen-dtype nf4",
    [COH_TERM_LORA_DROPOUT] = "--lora-dropout",
    [COH_TERM_WEIGHTS] = "--reset-optimizer",
};

enum { EXIT_USAGE = 2, EXIT_IO = 5 };

/* Adds the files that a command has made: "; a, b and c are complete all the same". */
static void add_written(const cli_options *options, cli_line *line)
{
    const char *paths[] = { options->output, options->held_out_file, options->report,
                            options->program };
    const char *given[sizeof(paths) / sizeof(paths[0])];
    int count = 0;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (paths[i])
            given[count++] = paths[i];
    for (int i = 0; i < count; i++)
        cli_line_add(line, "%s%s", i == 0 ? "; " : i == count - 1 ? " and " : ", ", given[i]);
    if (count > 0)
        cli_line_add(line, " %s complete all the same", count == 1 ? "is" : "are");
}

/* Flushes the output and returns the exit code. `options` name what a command has made before
 * (NULL: nothing). */
static int finish(const char *command, const cli_options *options, int exit_code)
{
    cli_line line;
    if (cli_flush() == COH_OK || exit_code != 0)
        return exit_code;
    cli_line_clear(&line);
    cli_line_add(&line, "cohobate%s%s: %s", command[0] ? " " : "", command, coh_last_error());
    if (options)
        add_written(options, &line);
    cli_note("%s", line.text);
    return EXIT_IO;
}

static int no_such_command(const char *name)
{
    const char *nearest = cli_command_nearest(name);
    if (nearest)
        cli_note("cohobate: '%s' is not a command: is %s meant? See cohobate --help", name,
                 nearest);
    else
        cli_note("cohobate: '%s' is not a command: see cohobate --help", name);
    return EXIT_USAGE;
}

static int no_command(int argument_count, char **arguments)
{
    const char *name = argument_count > 1 ? arguments[1] : "";
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        const char *of = argument_count > 2 ? arguments[2] : "";
        const int is_help = !strcmp(of, "--help") || !strcmp(of, "-h");
        if (of[0] && !is_help && cli_command_find(of) == CLI_COMMAND_COUNT)
            return no_such_command(of);
        cli_help(cli_command_find(of));
        return 0;
    }
    if (!strcmp(name, "--version")) {
        cli_print("cohobate %s", coh_version());
        return 0;
    }
    if (name[0])
        return no_such_command(name);
    cli_note("cohobate: no command given: see cohobate --help");
    return EXIT_USAGE;
}

/* Raises the stack limit: commands and libraries keep paths, lines and tables on the stack. The
 * system checks the limit as the stack grows, so raising it now has effect. */
static coh_status grow_stack(void)
{
    enum { LEAST_BYTES = 1 << 20 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= LEAST_BYTES)
        return COH_OK;
    const rlim_t had = limit.rlim_cur;
    limit.rlim_cur = LEAST_BYTES;
    if (limit.rlim_max >= LEAST_BYTES && setrlimit(RLIMIT_STACK, &limit) == 0)
        return COH_OK;
    return cli_fail(COH_ERR_FULL,
                    "a stack of %llu KiB (ulimit -s) is too small: raise it to %d KiB",
                    (unsigned long long)had >> 10, LEAST_BYTES >> 10);
}

/* Without this check a mistyped value would act as if the variable were unset. */
static coh_status check_environment(void)
{
    static const char *const sets[] = { "plain",      "avx2",      "avx512",
                                        "avx512bf16", "avx512amx", "bf16-pretended" };
    const char *given = getenv("COH_ISA");
    for (size_t i = 0; given != NULL && i < sizeof(sets) / sizeof(sets[0]); i++)
        if (strcmp(given, sets[i]) == 0)
            return COH_OK;
    if (given == NULL || !given[0])
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "COH_ISA=%s in the environment is no instruction set: unset it, or give plain, "
                    "avx2, avx512, avx512bf16, avx512amx or bf16-pretended",
                    given);
}

/* Opens what a caller has closed of standard input, output and error (`2>&-`). Else the next file
 * that is opened would have its number, and messages would be written into a checkpoint or a lock.
 * Output cannot be written to what is opened for reading, so its loss is still a failure. */
static void open_standard(void)
{
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++)
        if (fcntl(descriptor, F_GETFD) < 0 && errno == EBADF)
            (void)open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY);
}

/* hwloc would load X11, OpenCL, libxml2 and the libraries of GPUs at its first use, and ask none of
 * them: half of the time that a command takes to start. */
static void spare_plugins(void)
{
    (void)setenv("HWLOC_PLUGINS_BLACKLIST",
                 "hwloc_gl.so,hwloc_opencl.so,hwloc_xml_libxml.so,hwloc_cuda.so,hwloc_nvml.so,"
                 "hwloc_rsmi.so,hwloc_levelzero.so",
                 0);
}

/* Returns 1 if the command has --json and it is among the arguments, perhaps cut short. Parsing may
 * have ended before it. */
static int asks_for_json(cli_command command, int argument_count, char **arguments)
{
    const uint32_t takers =
        cli_flag_table[CLI_FLAG_JSON].commands | cli_flag_table[CLI_FLAG_JSON_PROMPTS].commands;
    for (int i = 2; i < argument_count && takers >> command & 1; i++) {
        const size_t length = strlen(arguments[i]);
        if (length > 2 && strncmp(arguments[i], "--json", length) == 0)
            return 1;
    }
    return 0;
}

/* Sets the words that depend on the command and its flags. */
static void adapt_terms(const cli_options *options)
{
    if (options->disk_count > 1) { /* the limit is a sum */
        terms[COH_TERM_DISK_LIMIT] = "the sum of the --disk limits (whole 2 MiB of each)";
        terms[COH_TERM_DISK_RAISED] = "";
    }
    if (options->command == CLI_GENERATE)
        terms[COH_TERM_CHAT_TEXT] = "--prompt";
}

int main(int argument_count, char **arguments)
{
    open_standard();
    spare_plugins();
    cli_stop_survive_limits();
    cli_command command = argument_count > 1 ? cli_command_find(arguments[1]) : CLI_COMMAND_COUNT;
    if (command == CLI_COMMAND_COUNT)
        return finish("", NULL, no_command(argument_count, arguments));

    (void)coh_terms_set(terms, COH_TERM_COUNT); /* this count is never refused */
    const int takes_ranks = command == CLI_TRAIN || command == CLI_PROFILE || command == CLI_DOCTOR;
    if (takes_ranks)
        cli_launch_quiet();
    static cli_options options; /* large, and the stack may be too small for it */
    static coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    int help = 0;
    coh_status status =
        cli_options_parse(command, argument_count - 1, arguments + 1, &options, &help);
    options.json |= status != COH_OK && asks_for_json(command, argument_count, arguments);
    if (status == COH_OK && help) {
        cli_help(command);
        return finish(cli_command_name(command), NULL, 0);
    }
    if (command == CLI_TRAIN || command == CLI_PLAN)
        cli_choices_hold();
    if (takes_ranks)
        status = cli_launch_open(status, &options);
    else if (status == COH_OK)
        status = cli_launch_check_undivided(&options);
    if (status == COH_OK && cli_budget_on_gpu(&options) && cli_budget_rank_count(&options) > 1)
        (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* NCCL's streams need channels */
    if (status == COH_OK)
        status = check_environment();
    if (status == COH_OK)
        status = grow_stack();
    adapt_terms(&options);
    if (status == COH_OK)
        status = cli_input_check(&options);
    if (status == COH_OK && options.tokenizer && cli_artefact_is_of_bytes(options.tokenizer))
        options.tokenizer = "bytes"; /* an export of a run on bytes */
    if (status == COH_OK)
        status = cli_disks_check(&options);
    if (status == COH_OK)
        status = cli_topology_take(&options);
    if (status == COH_OK)
        status = cli_extensions_load(&options);
    if (status == COH_OK)
        status = commands[command](&options);
    const int is_refused = status != COH_OK && coh_last_refusal(&refusal);
    status = cli_launch_end(options.launch, cli_budget_blame_limit(&options, status));
    const int exit_code =
        status == COH_ERR_STOPPED ? cli_stop_exit_code() : coh_status_exit_code(status);
    if (status != COH_OK && options.json && !cli_has_printed())
        cli_failure_json(status, exit_code, options.operand, is_refused ? &refusal : NULL);
    if (status != COH_OK)
        cli_note("cohobate %s: %s", cli_command_name(command), coh_last_error());
    return finish(cli_command_name(command), &options, cli_launch_close(options.launch, exit_code));
}
