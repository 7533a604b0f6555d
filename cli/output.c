/* Checks output files before they are written. The one idea: a file is replaced only if its first
 * bytes show that such a command wrote it. Next: input.c for the kinds of paths. */
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/input.h"

enum { HEAD_BYTES = 128 };

/* The first bytes of a file of ours. */
typedef struct form {
    const char *start, *within; /* the first bytes; NULL, or a text soon after them */
    const char *name;
} form;

static const form token_file = { "COHTOKEN", NULL, "token file" };
static const form plan_file = { "{", "\"cohobate plan\"", "plan" };
static const form program_file = { "program ", NULL, "program listing" };
static const form kernel_table = { "{", "\"cohobate kernels\"", "kernel table" };
static const form profile_file = { "{", "\"cohobate profile\"", "profile" };
static const form logits_file = { "\x93NUMPY", NULL, ".npy file" };
static const form report_file = { "", "cohobate report", "report" };
static const form trace_file = { "{\"displayTimeUnit\"", "\"traceEvents\"", "trace by cohobate" };
static const form log_file = { "{\"step\"", NULL, "log of JSON lines" };

static coh_status read_head(const char *flag, const char *path, char *head)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = descriptor < 0 ? -1 : read(descriptor, head, HEAD_BYTES - 1);
    int error = errno;
    if (descriptor >= 0)
        close(descriptor);
    if (got < 0)
        return cli_fail(COH_ERR_IO, "%s %s is there and cannot be read: %s: give another name",
                        flag, path, strerror(error));
    head[got] = '\0';
    return COH_OK;
}

/* The file of NAME|FILE[,ENTRY=VALUE...]. */
static const char *before_entries(const char *value, char path[CLI_PATH_BYTES])
{
    if (value)
        snprintf(path, CLI_PATH_BYTES, "%.*s", (int)strcspn(value, ","), value);
    return value ? path : NULL;
}

static coh_status check_is_no_input(const cli_options *options, const char *flag, const char *path,
                                    const struct stat *facts)
{
    char profile[CLI_PATH_BYTES], topology[CLI_PATH_BYTES];
    const char *inputs[] = {
        options->operand,
        options->data,
        options->validation,
        options->tokenizer,
        options->kernels,
        options->plan_file,
        options->pins,
        options->calibration,
        options->prompt_file,
        options->prompts,
        options->messages,
        before_entries(options->profile, profile),
        before_entries(options->topology, topology),
    };
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++)
        if (cli_input_is_file(inputs[i], facts))
            return cli_fail(COH_ERR_ARGUMENT,
                            "%s %s is the same file as the input %s: give another name", flag, path,
                            inputs[i]);
    return COH_OK;
}

static coh_status check_one(const cli_options *options, const char *flag, const char *path,
                            const form *ours)
{
    struct stat facts;
    char head[HEAD_BYTES];
    if (!path || stat(path, &facts) != 0)
        return COH_OK; /* writing it reports other errors */
    CLI_TRY(check_is_no_input(options, flag, path, &facts));
    if (ours == &log_file && !S_ISREG(facts.st_mode))
        return COH_OK; /* a pipe or a terminal; opening refuses a folder */
    if (S_ISREG(facts.st_mode)) {
        if (facts.st_size == 0)
            return COH_OK;
        CLI_TRY(read_head(flag, path, head));
        if (strncmp(head, ours->start, strlen(ours->start)) == 0 &&
            (!ours->within || strstr(head, ours->within)))
            return COH_OK;
    }
    return cli_fail(COH_ERR_ARGUMENT,
                    "%s %s is there already and is no %s: give another name, or remove it", flag,
                    path, ours->name);
}

/* Do two paths, existing or not, name the same file? */
static int is_same_file(const char *one, const char *other)
{
    struct stat a, b;
    char folders[2][CLI_PATH_BYTES];
    const char *paths[2] = { one, other }, *names[2];
    if (stat(one, &a) == 0 && stat(other, &b) == 0)
        return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    for (int i = 0; i < 2; i++) {
        const char *slash = strrchr(paths[i], '/');
        names[i] = slash ? slash + 1 : paths[i];
        snprintf(folders[i], sizeof(folders[i]), "%.*s", slash ? (int)(slash + 1 - paths[i]) : 1,
                 slash ? paths[i] : ".");
    }
    return strcmp(names[0], names[1]) == 0 && stat(folders[0], &a) == 0 &&
           stat(folders[1], &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static coh_status check_differ(const char *flag, const char *path, const char *other_flag,
                               const char *other)
{
    if (!path || !other || !is_same_file(path, other))
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT, "%s and %s both name %s: give each its own file", flag,
                    other_flag, path);
}

coh_status cli_output_check(const cli_options *options)
{
    CLI_TRY(check_differ("-o", options->output, "--program", options->program));
    CLI_TRY(check_differ("-o", options->output, "--held-out-file", options->held_out_file));
    CLI_TRY(check_differ("-o", options->output, "--tune", options->tune));
    CLI_TRY(check_one(options, "-o", options->output,
                      options->command == CLI_TOKENIZE  ? &token_file
                      : options->command == CLI_MIX     ? &token_file
                      : options->command == CLI_TUNE    ? &kernel_table
                      : options->command == CLI_PROFILE ? &profile_file
                      : options->command == CLI_REPORT  ? &report_file
                      : options->command == CLI_TRACE   ? &trace_file
                                                        : &plan_file));
    CLI_TRY(check_one(options, "--held-out-file", options->held_out_file, &token_file));
    CLI_TRY(check_one(options, "--program", options->program, &program_file));
    CLI_TRY(check_differ("-o", options->output, "--report", options->report));
    CLI_TRY(check_one(options, "--report", options->report, &report_file));
    CLI_TRY(check_one(options, "--tune", options->tune, &kernel_table));
    CLI_TRY(check_one(options, "--logits", options->logits, &logits_file));
    return check_one(options, "--log", options->log, &log_file);
}
