/* Applies and keeps corrections of predicted times. The one idea: measured factors per class of
 * instructions, used only for the same machine, build and number of threads. Next:
 * cohobate/calibration.h for the file. */
#include "cli/calibration.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/budget.h"

/* Drift above DRIFT_MOST is reported if the class has more than PART_LEAST of its lane's time. */
#define DRIFT_MOST 0.05
#define PART_LEAST 0.1

/* --calibration, else COH_CALIBRATION, else NULL: the default path. */
static const char *wanted(const cli_options *options)
{
    const char *here = getenv("COH_CALIBRATION");
    if (options->calibration)
        return options->calibration;
    return here && here[0] ? here : NULL;
}

int cli_calibration_is_off(const cli_options *options)
{
    const char *name = wanted(options);
    return name && strcmp(name, "none") == 0;
}

/* Has this plan no calibration? A what-if (or a datasheet) has no runs, and test modes change
 * times. */
static int has_none(const cli_options *options, const coh_profile *profile)
{
    const int is_priced = options->command == CLI_TRAIN || options->command == CLI_PLAN ||
                          options->command == CLI_SIMULATE || options->command == CLI_EXPLAIN;
    return !is_priced || cli_calibration_is_off(options) ||
           cli_budget_is_what_if(options, profile) || options->test_poison ||
           options->test_delay_seed || options->test_store;
}

/* Measured factors also contain the effect of the number of threads on the profile's figures, so
 * they are used and kept only with the profile's number of threads. */
static int is_of_other_threads(const cli_options *options, const coh_profile *profile)
{
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    const int32_t threads = (int32_t)cli_budget_thread_count(options);
    if (coh_profile_summarize(profile, &facts) != COH_OK || facts.is_gpu ||
        facts.threads == threads)
        return 0;
    cli_note_choice("note: plans are not calibrated: profile %s is for %s, this run has %d",
                    facts.name, cli_count((uint64_t)facts.threads, "thread").at, (int)threads);
    return 1;
}

static coh_status find_path(const cli_options *options, const coh_profile *profile,
                            cli_calibration *calibration)
{
    const char *name = wanted(options);
    if (!name)
        return coh_calibration_path(profile, calibration->path);
    if (snprintf(calibration->path, sizeof(calibration->path), "%s", name) <
        (int)sizeof(calibration->path))
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT, "the path of the calibration is too long");
}

coh_status cli_calibration_open(const cli_options *options, coh_profile **profile,
                                cli_calibration *out_calibration)
{
    out_calibration->path[0] = '\0';
    out_calibration->runs = 0;
    if (has_none(options, *profile))
        return COH_OK;
    if (!*profile)
        CLI_TRY(coh_profile_builtin_create(cli_budget_thread_count(options), profile));
    if (is_of_other_threads(options, *profile))
        return COH_OK;
    if (find_path(options, *profile, out_calibration) != COH_OK) {
        cli_note_choice(
            "note: plans are not calibrated: %s (--calibration FILE keeps one elsewhere, "
            "--calibration none "
            "silences this)",
            coh_last_error());
        out_calibration->path[0] = '\0';
        return COH_OK;
    }
    coh_status status =
        coh_profile_calibrate(*profile, out_calibration->path, &out_calibration->runs);
    if (status == COH_ERR_MEMORY)
        return status;
    if (status != COH_OK && options->calibration)
        return cli_blame(status,
                         "--calibration takes what train wrote, or a file that is not there "
                         "yet");
    if (status != COH_OK)
        cli_note_choice("note: the calibration is ignored, and train writes a new one: %s",
                        coh_last_error());
    return COH_OK;
}

/* Adds "forward 1.09, read 0.80": ratios of measured to predicted time. */
static int add_drift(const coh_calibration_class *classes, uint32_t count, cli_line *line)
{
    int found = 0;
    for (uint32_t i = 0; i < count; i++)
        if (classes[i].part > PART_LEAST && fabs(classes[i].factor - 1) > DRIFT_MOST)
            cli_line_add(line, "%s%s %.2f", found++ ? ", " : "", classes[i].opcode,
                         classes[i].factor);
    return found;
}

void cli_calibration_keep(const cli_options *options, const cli_calibration *calibration,
                          coh_engine *engine,
                          coh_calibration_class out_classes[COH_CALIBRATION_CLASSES_MOST],
                          uint32_t *out_count)
{
    cli_line line;
    *out_count = 0;
    if (!calibration->path[0])
        return;
    const coh_status status =
        coh_engine_calibrate(engine, calibration->path, out_classes, out_count);
    if (status != COH_OK) {
        /* the planner multiplied the rates of one drive, and dropped what runs had found */
        if (status == COH_ERR_ARGUMENT && options->drive_count > 1)
            cli_note("note: this run calibrates no plans: the profile is of one drive, and the run "
                     "had %d; cohobate profile with the same --disk flags and -o FILE measures "
                     "them, --profile FILE uses it",
                     (int)options->drive_count);
        else
            cli_note("note: this run calibrates no plans: %s", coh_last_error());
        return;
    }
    cli_line_clear(&line);
    if (options->profile && add_drift(out_classes, *out_count, &line))
        cli_note(
            "note: instructions differ from --profile %s by more than 5 %% (measured over profile: "
            "%s); the next plan takes it into account, cohobate profile measures again",
            options->profile, line.text);
}

void cli_calibration_add_json(const coh_calibration_class *classes, uint32_t count, cli_line *line)
{
    cli_line_add_json(line, "'instructions': [");
    for (uint32_t i = 0; i < count; i++)
        cli_line_add_json(line, "{'opcode': %s, 'part': %.4f, 'factor': %.4f, 'error': %.4f}",
                          classes[i].opcode, classes[i].part, classes[i].factor, classes[i].error);
    cli_line_add_json(line, "]");
}
