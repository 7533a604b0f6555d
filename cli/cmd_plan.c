/* cohobate plan: plans a run without running it, and prints the plan, or tables of variants. The
 * one idea: it opens the same job as train. Next: job.c, screen.c, variants.c. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "cli/budget.h"
#include "cli/commands.h"
#include "cli/hints.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/plan_report.h"
#include "cli/replay.h"
#include "cli/room.h"
#include "cli/screen.h"
#include "cli/variants.h"

static void print_operator(const coh_plan_operator *op)
{
    printf("%-22s %-18s %5d  %11s  %-7s %-7s %-7s  %11s  %11s  %s\n", op->name, op->kind, op->block,
           op->parameter_bytes ? cli_size(op->parameter_bytes).at : "-", op->parameters, op->states,
           op->updates, cli_size(op->activation_bytes).at, cli_size(op->saved_bytes).at,
           op->activations);
}

static coh_status print_operators(const coh_plan *plan)
{
    printf("\n%-22s %-18s %5s  %11s  %-7s %-7s %-7s  %11s  %11s  %s\n", "operator", "kind", "block",
           "parameters", "stored", "states", "updated", "activations", "saved", "kept how");
    for (int32_t i = 0; i < coh_plan_operator_count(plan); i++) {
        coh_plan_operator op = { .struct_bytes = sizeof(op) };
        CLI_TRY(coh_plan_operator_at(plan, i, &op));
        print_operator(&op);
    }
    return COH_OK;
}

static coh_status print_text(const cli_job *job, uint64_t in_memory_bytes)
{
    cli_hints hints;
    cli_line line;
    cli_line_clear(&line);
    cli_hints_find(job, &hints);
    CLI_TRY(cli_screen(job, in_memory_bytes, &hints, &line));
    printf("%s", line.text);
    return job->options->operators ? print_operators(job->plan) : COH_OK;
}

/* Refuses a folder of this machine in which nothing can be stored, as /proc and /sys: it is no
 * drive. A folder that is full, or that this user may not write, is one, and gets a note. */
static coh_status check_drives(const cli_options *options)
{
    coh_profile *profile = NULL;
    coh_status status = COH_OK;
    if (options->disk_count == 0)
        return COH_OK;
    if (options->profile && coh_profile_read(options->profile, &profile) != COH_OK)
        return COH_OK; /* refused when it is used */
    const int is_here = !cli_budget_is_what_if(options, profile);
    coh_profile_destroy(profile);
    for (int32_t i = 0; i < options->disk_count && is_here && status == COH_OK; i++) {
        struct statvfs facts;
        if (statvfs(options->disk[i].folder, &facts) == 0 && facts.f_blocks == 0)
            status = cli_input_check_disk(options->disk[i].folder);
    }
    return status;
}

/* Such a store is priced as a drive, and nothing of it lies outside memory. */
static void say_memory(const cli_options *options)
{
    for (int32_t i = 0; i < options->disk_count; i++)
        if (cli_room_is_in_memory(options->disk[i].folder))
            cli_note("note: --disk %s is a file system in memory: what is stored there is main "
                     "memory, in addition to the budgets",
                     options->disk[i].folder);
}

/* Prints a note, and keeps the first reason. */
__attribute__((format(printf, 2, 3))) static void say_refused(cli_job *job, const char *format, ...)
{
    char why[sizeof(job->refused_here)];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    cli_note("note: train would be refused here and now: %s", why);
    if (!job->refused_here[0])
        memcpy(job->refused_here, why, sizeof(why));
}

/* A budget is not limited by the memory that this machine has; prints a note if the plan takes
 * more. */
static void say_missing_memory(cli_job *job)
{
    if (!cli_budget_is_here(job->options, job->profile))
        return;
    if (cli_budget_check_memory(job->options, job->on_gpu, &job->summary) != COH_OK)
        say_refused(job, "%s", coh_last_error());
    if (cli_budget_on_gpu(job->options) &&
        cli_budget_check_gpu(job->options, &job->summary) == COH_ERR_FULL)
        say_refused(job, "%s", coh_last_error());
}

/* Returns the first folder that cannot be written, and its errno; NULL: all can be. */
static const char *find_unwritable(const cli_options *options, int *out_error)
{
    for (int32_t i = 0; i < options->disk_count; i++) {
        *out_error = cli_input_probe(options->disk[i].folder);
        if (*out_error != 0)
            return options->disk[i].folder;
    }
    return NULL;
}

/* The drive is not part of a plan; prints a note if this machine's has too little room or cannot be
 * written. */
static void say_unusable_drive(cli_job *job)
{
    const cli_options *options = job->options;
    int error;
    if (cli_budget_is_what_if(options, job->profile))
        return;
    const char *folder =
        job->summary.peak_bytes[COH_TIER_DISK] > 0 ? find_unwritable(options, &error) : NULL;
    if (folder) {
        say_refused(job, "--disk %s: no file can be made in it: %s", folder, strerror(error));
    } else if (cli_room_check_plan(job) == COH_ERR_FULL) {
        say_refused(job, "%s", coh_last_error());
    } else if (job->summary.peak_bytes[COH_TIER_DISK] > 0) {
        say_memory(options);
    }
}

static coh_status plan_out(cli_job *job)
{
    const cli_options *options = job->options;
    uint64_t in_memory_bytes;
    say_missing_memory(job);
    say_unusable_drive(job);
    CLI_TRY(cli_job_rehearse(job));
    if (options->output) {
        cli_line note;
        CLI_TRY(cli_replay_note(job, &note));
        CLI_TRY(coh_plan_write_noted(job->plan, note.text, options->output));
    }
    if (options->report)
        CLI_TRY(cli_plan_report(job));
    if (options->program)
        CLI_TRY(coh_plan_write_program(job->plan, options->program));
    CLI_TRY(coh_plan_in_memory_bytes(job->graph, &job->plan_options, &in_memory_bytes));
    return options->json ? cli_plan_json(job, in_memory_bytes) : print_text(job, in_memory_bytes);
}

/* Tables compare several plans, and write no plan file. */
static coh_status check_table(const cli_options *options)
{
    const char *flag = options->max ? "--max" : options->sweep ? "--sweep" : "--what-if";
    if (options->output || options->program || options->report || options->plan_file ||
        options->operators || options->memory_curve > 0 || options->rehearse > 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s compares plans: leave -o, --plan, --program, --report, --operators, "
                        "--memory-curve and --rehearse to the one that you take",
                        flag);
    if (options->max &&
        (options->operand || options->resume || options->what_if[0] || options->sweep))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--max %s chooses the model: leave MODEL, --resume, --what-if and --sweep "
                        "out",
                        options->max);
    return COH_OK;
}

coh_status cli_plan(const cli_options *options)
{
    cli_job job;
    CLI_TRY(check_drives(options));
    if (options->max || options->sweep || options->what_if[0]) {
        CLI_TRY(check_table(options));
        cli_choices_release();
        return options->max ? cli_plan_largest(options) : cli_plan_variants(options);
    }
    CLI_TRY(cli_output_check(options));
    if (options->memory_curve > 0 && !options->json)
        return cli_fail(COH_ERR_ARGUMENT, "--memory-curve is written as JSON: add --json");
    CLI_TRY(cli_job_open(options, &job));
    cli_choices_release();
    const coh_status status = plan_out(&job);
    cli_job_close(&job);
    return status;
}
