/* cohobate explain: shows why an operator's data is stored where it is. Each alternative is a
 * separate program with one decision changed; it is built, verified and simulated. Next: replay.c
 * reads the plan, cohobate/plan.h has the trial. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/refusal.h"
#include "cli/replay.h"
#include "cli/screen.h"

/* Places, updates and treatments; patterns of ranks. */
enum { ALTERNATIVES = 10 + COH_RANK_PATTERNS_MOST };

typedef struct alternative {
    coh_plan_trial trial;
    int contradicts; /* contradicts a pin of the plan: not tried */
    /* The plan already does this between steps, or partly: the pin only makes it hold
     * throughout. */
    int is_so;
    char name[COH_PIN_TARGET_BYTES + COH_RANK_PATTERN_BYTES];
} alternative;

typedef struct explanation {
    coh_plan_operator op;
    int32_t index; /* in the order of the graph */
    int32_t block; /* in the order of the graph; -1: outside of blocks */
    alternative alternatives[ALTERNATIVES];
    int count, same_count; /* same: alternatives that equal the plan */
    char same[ALTERNATIVES][COH_PIN_TARGET_BYTES + COH_RANK_PATTERN_BYTES];
    char why[512];
} explanation;

/* ---- finding ---- */

/* Names the operator of a block with the most parameters, or the first of all. */
static coh_status ask_for_operator(const coh_plan *plan)
{
    coh_plan_operator op = { .struct_bytes = sizeof(op) };
    const char *name = NULL;
    uint64_t most_bytes = 0;
    for (int32_t i = 0; i < coh_plan_operator_count(plan); i++) {
        CLI_TRY(coh_plan_operator_at(plan, i, &op));
        if (name == NULL || (op.block >= 0 && op.parameter_bytes > most_bytes)) {
            most_bytes = op.block >= 0 ? op.parameter_bytes : 0;
            name = op.name;
        }
    }
    return cli_fail(COH_ERR_ARGUMENT,
                    "OPERATOR is missing: give a name such as %s; cohobate plan MODEL --operators "
                    "lists those of the plan's model",
                    name);
}

static coh_status find_operator(const cli_replay *replay, explanation *e)
{
    const coh_plan *plan = replay->job.plan;
    const char *wanted = replay->options.second_operand;
    if (wanted == NULL)
        return ask_for_operator(plan);
    int32_t before = -1, last_block = -1;
    coh_nearest nearest = { .word = wanted };
    for (int32_t i = 0; i < coh_plan_operator_count(plan); i++) {
        e->op.struct_bytes = sizeof(e->op);
        CLI_TRY(coh_plan_operator_at(plan, i, &e->op));
        if (e->op.block >= 0 && e->op.block != last_block)
            before++;
        last_block = e->op.block;
        e->block = e->op.block >= 0 ? before : -1;
        e->index = i;
        if (strcmp(e->op.name, wanted) == 0)
            return COH_OK;
        coh_nearest_offer(&nearest, e->op.name);
    }
    if (nearest.name)
        return cli_fail(COH_ERR_ARGUMENT,
                        "'%.100s' is no operator of %s: is %s meant? cohobate plan MODEL "
                        "--operators lists them",
                        wanted, replay->options.operand, nearest.name);
    return cli_fail(COH_ERR_ARGUMENT,
                    "'%.100s' is no operator of %s: cohobate plan MODEL --operators lists them",
                    wanted, replay->options.operand);
}

/* ---- trials ---- */

/* An alternative that writes more to the drive than the plan's --disk-write-limit does not count as
 * fitting. */
static void hold_to_write_limit(const cli_options *options, coh_plan_trial *trial)
{
    if (!cli_given(options, CLI_FLAG_DISK_WRITE_LIMIT) || !trial->fits || trial->step_ns == 0)
        return;
    const double day = (double)trial->link_bytes[COH_LANE_WRITE] * 86400e9 / (double)trial->step_ns;
    if (day <= (double)options->disk_write_limit)
        return;
    trial->fits = 0;
    trial->refusal = (coh_refusal){ .struct_bytes = sizeof(trial->refusal),
                                    .status = COH_ERR_FULL,
                                    .reason = COH_REFUSAL_WRITES,
                                    .tier = COH_TIER_DISK,
                                    .given_bytes = options->disk_write_limit,
                                    .needed_bytes = (uint64_t)day,
                                    .short_bytes = (uint64_t)day - options->disk_write_limit,
                                    .is_proven = 1,
                                    .change_count = 1,
                                    .changes = { { .kind = COH_CHANGE_RAISE_WRITES } } };
    (void)coh_refusal_sentence(&trial->refusal, trial->why, sizeof(trial->why));
}

/* Says why an alternative does not fit. Changes of budgets and chunks are of a search, and explain
 * takes none of them: it keeps all other decisions, and a search with the pin may change them. */
static void say_what_is_short(alternative *a)
{
    char cause[COH_REFUSAL_TEXT_BYTES * 2];
    const int is_pin = strchr(a->name, '=') != NULL;
    a->trial.refusal.change_count = 0;
    (void)coh_refusal_sentence(&a->trial.refusal, cause, sizeof(cause));
    if (cause[0] != '\0')
        snprintf(a->trial.why, sizeof(a->trial.why), "%.320s%s%.150s%s", cause,
                 is_pin ? "; to change them, plan with --pin '" : "", is_pin ? a->name : "",
                 is_pin ? "'" : "");
}

/* Records the trial as the last alternative, or as equal to the plan. */
static void take_trial(const cli_replay *replay, explanation *e)
{
    alternative *a = &e->alternatives[e->count];
    if (a->trial.fits && a->trial.program_hash == replay->job.summary.program_hash) {
        memcpy(e->same[e->same_count++], a->name, sizeof(a->name));
        return;
    }
    hold_to_write_limit(&replay->options, &a->trial);
    if (!a->trial.fits)
        say_what_is_short(a);
    e->count++;
}

/* Do all activations of the operator's block already have the pin's placement, at least partly? */
static int is_block_so(const cli_replay *replay, const explanation *e, const char *activations)
{
    const coh_plan *plan = replay->job.plan;
    for (int32_t i = 0; i < coh_plan_operator_count(plan); i++) {
        coh_plan_operator op = { .struct_bytes = sizeof(op) };
        if (coh_plan_operator_at(plan, i, &op) == COH_OK && op.block == e->op.block &&
            strcmp(op.activations, activations) != 0)
            return 0;
    }
    return 1;
}

static int is_so(const cli_replay *replay, const explanation *e, coh_pin_place place)
{
    if (place == COH_PIN_PATTERN)
        return 0; /* a pin to the pattern that it has changes nothing, and is found so */
    if (place == COH_PIN_OFFLOAD)
        return is_block_so(replay, e, "move");
    if (place >= COH_PIN_KEEP)
        return is_block_so(replay, e, coh_pin_place_name(place));
    return strcmp(e->op.parameters, coh_pin_place_name(place)) == 0;
}

static coh_status try_decision(const cli_replay *replay, const coh_pin *pin, explanation *e)
{
    alternative *a = &e->alternatives[e->count];
    *a = (alternative){ .is_so = is_so(replay, e, pin->place),
                        .trial.struct_bytes = sizeof(a->trial) };
    snprintf(a->name, sizeof(a->name), "%.127s=%s", pin->target, coh_pin_decision(pin));
    coh_status status = coh_plan_try(replay->job.plan, pin, &a->trial);
    if (status == COH_ERR_ARGUMENT) { /* it contradicts another requested pin */
        a->trial = (coh_plan_trial){ 0 };
        a->contradicts = 1;
        snprintf(a->trial.why, sizeof(a->trial.why), "%s", coh_last_error());
        status = COH_OK;
    }
    CLI_TRY(status);
    take_trial(replay, e);
    return COH_OK;
}

static coh_status try_pin(const cli_replay *replay, const char *target, coh_pin_place place,
                          explanation *e)
{
    coh_pin pin = { .place = place };
    snprintf(pin.target, sizeof(pin.target), "%.127s", target);
    return try_decision(replay, &pin, e);
}

/* Tries every pattern in which ranks can divide the operator's parameters. */
static coh_status try_patterns(const cli_replay *replay, explanation *e)
{
    for (int32_t i = 0; i < coh_rank_pattern_count(); i++) {
        coh_pin pin = { .place = COH_PIN_PATTERN };
        snprintf(pin.target, sizeof(pin.target), "%.127s", e->op.name);
        snprintf(pin.pattern, sizeof(pin.pattern), "%s", coh_rank_pattern_at(i)->name);
        CLI_TRY(try_decision(replay, &pin, e));
    }
    return COH_OK;
}

static coh_status try_updates(const cli_replay *replay, explanation *e)
{
    for (int on_host = 0; on_host < 2; on_host++) {
        alternative *a = &e->alternatives[e->count];
        *a = (alternative){ .trial.struct_bytes = sizeof(a->trial) };
        snprintf(a->name, sizeof(a->name), "%s",
                 on_host ? "update on the host lane" : "update on the device");
        CLI_TRY(coh_plan_try_update(replay->job.plan, e->index, on_host, &a->trial));
        take_trial(replay, e);
    }
    return COH_OK;
}

static coh_status try_all(const cli_replay *replay, explanation *e)
{
    const int has_host = replay->file.host_memory_bytes > 0, has_disk = replay->file.disk_bytes > 0;
    char block[32];
    if (e->op.parameter_bytes > 0 && (has_host || has_disk)) {
        CLI_TRY(try_pin(replay, e->op.name, COH_PIN_DEVICE, e));
        if (has_host)
            CLI_TRY(try_pin(replay, e->op.name, COH_PIN_HOST, e));
        if (has_disk)
            CLI_TRY(try_pin(replay, e->op.name, COH_PIN_DISK, e));
        if (replay->job.summary.peak_bytes[COH_TIER_HOST] > 0 && strcmp(e->op.states, "-") != 0)
            CLI_TRY(try_updates(replay, e));
    }
    if (coh_fold_shape_replicas(&replay->file.ranks) > 1 && strcmp(e->op.states, "-") != 0)
        CLI_TRY(try_patterns(replay, e));
    if (e->block < 0)
        return COH_OK;
    snprintf(block, sizeof(block), "blocks.%d", (int)e->block);
    CLI_TRY(try_pin(replay, block, COH_PIN_RECOMPUTE, e));
    CLI_TRY(try_pin(replay, block, COH_PIN_KEEP, e));
    if (has_host || has_disk)
        CLI_TRY(try_pin(replay, block, COH_PIN_OFFLOAD, e));
    return COH_OK;
}

/* ---- output ---- */

static double change_of(const cli_replay *replay, const alternative *a)
{
    return (double)a->trial.step_ns / (double)replay->job.summary.step_ns - 1;
}

static void say_better(const alternative *better, double change, explanation *e)
{
    const int is_pin = strchr(better->name, '=') != NULL;
    if (better->trial.replaces_pin) {
        snprintf(e->why, sizeof(e->why),
                 "%s alone would be %.2f %% faster: the plan's own pin for it asks otherwise",
                 better->name, -100 * change);
        return;
    }
    snprintf(e->why, sizeof(e->why),
             "%s alone would be %.2f %% faster: the search did not get there%s%s%s", better->name,
             -100 * change, is_pin ? "; plan with --pin '" : "", is_pin ? better->name : "",
             is_pin ? "'" : "");
}

/* Is it a real alternative? A pin to the current place is one only if it is faster. */
static int is_other(const cli_replay *replay, const alternative *a)
{
    return !a->is_so || (a->trial.fits && a->trial.step_ns < replay->job.summary.step_ns);
}

static void say_why(const cli_replay *replay, explanation *e)
{
    const alternative *best = NULL;
    int count = 0, contradicted_count = 0;
    for (int i = 0; i < e->count; i++) {
        const alternative *a = &e->alternatives[i];
        if (!is_other(replay, a))
            continue;
        count++;
        contradicted_count += a->contradicts;
        if (a->trial.fits && (!best || a->trial.step_ns < best->trial.step_ns))
            best = a;
    }
    if (count == 0)
        snprintf(e->why, sizeof(e->why), "there is no other place for it within these tiers");
    else if (!best && contradicted_count == count)
        snprintf(e->why, sizeof(e->why), "the plan's pins leave it no other place");
    else if (!best)
        snprintf(e->why, sizeof(e->why), "no alternative fits these budgets");
    else if (best->trial.step_ns > replay->job.summary.step_ns)
        snprintf(e->why, sizeof(e->why),
                 "as planned the step is fastest: of the alternatives that fit, %s costs least, "
                 "%.2f %% more",
                 best->name, 100 * change_of(replay, best));
    else if (best->trial.step_ns == replay->job.summary.step_ns)
        snprintf(e->why, sizeof(e->why), "as planned the step is fastest; with %s it is as fast",
                 best->name);
    else
        say_better(best, change_of(replay, best), e);
}

static uint64_t sum_lanes(const uint64_t *values)
{
    uint64_t sum = 0;
    for (int lane = COH_LANE_H2D; lane < COH_LANE_COUNT; lane++)
        sum += values[lane];
    return sum;
}

enum { NAME_COLUMNS = 32 };

/* Prints the first column of the table, whose names can be copied: a long one has its own line. */
static void print_name(const char *name)
{
    if (strlen(name) > NAME_COLUMNS)
        printf("%s\n%-*s", name, NAME_COLUMNS, "");
    else
        printf("%-*s", NAME_COLUMNS, name);
}

/* Adds a name that words follow: below the table's, unless the terminal is narrower. */
static void add_name(const char *name, cli_line *line)
{
    const int is_wide = cli_screen_columns() == CLI_SCREEN_COLUMNS;
    cli_line_add(line, "%-*s ", is_wide ? NAME_COLUMNS : 0, name);
}

/* Prints lines in the columns of a screen. Names and pins can be copied, so no word is cut. */
static void print_prose(const cli_line *line)
{
    cli_line wrapped;
    cli_line_clear(&wrapped);
    cli_prose_wrap(line->text, (size_t)cli_screen_columns(), 0, &wrapped);
    printf("%s", wrapped.text);
}

static void print_trial(const char *name, uint64_t step_ns, double change, uint64_t busy_ns,
                        const uint64_t *link_bytes, const uint64_t *exposed_ns, uint64_t peak)
{
    char percent[32] = "-";
    if (change != 0)
        snprintf(percent, sizeof(percent), "%+.2f %%", 100 * change);
    print_name(name);
    printf(" %9s %9s %9s %9s %12s %12s\n", cli_time((double)step_ns * 1e-9).at, percent,
           cli_time((double)busy_ns * 1e-9).at, cli_time((double)sum_lanes(exposed_ns) * 1e-9).at,
           cli_size(sum_lanes(link_bytes)).at, cli_size(peak).at);
}

/* What became of an alternative that cannot run. */
static const char *say_outcome(const alternative *a)
{
    return a->contradicts ? "contradicts the plan's pins"
                          : "does not fit while all other decisions stay";
}

static void print_alternative(const cli_replay *replay, const alternative *a)
{
    cli_line line;
    if (a->trial.fits) {
        print_trial(a->name, a->trial.step_ns, change_of(replay, a),
                    a->trial.busy_ns[COH_LANE_COMPUTE], a->trial.link_bytes, a->trial.exposed_ns,
                    a->trial.peak_bytes[COH_TIER_DEVICE]);
        return;
    }
    cli_line_clear(&line);
    add_name(a->name, &line);
    cli_line_add(&line, "%s: %s\n", say_outcome(a), a->trial.why);
    print_prose(&line);
}

/* Prints an alternative that already holds, apart from real alternatives. */
static void print_so(const cli_replay *replay, const alternative *a)
{
    cli_line line;
    cli_line_clear(&line);
    add_name(a->name, &line);
    cli_line_add(&line, "is so already; held to it throughout");
    if (a->trial.fits)
        cli_line_add(&line, ": %s a step, %+.2f %%\n", cli_time((double)a->trial.step_ns * 1e-9).at,
                     100 * change_of(replay, a));
    else
        cli_line_add(&line, ", it %s: %s\n", say_outcome(a), a->trial.why);
    print_prose(&line);
}

/* Prints whose times these are: today's profile with today's calibration. */
static void print_prices(const cli_job *job)
{
    cli_line prices;
    cli_line_clear(&prices);
    cli_screen_prices(job, &prices);
    print_prose(&prices);
}

/* Prints what the operator is, and where its data is stored. */
static void print_operator(const explanation *e)
{
    cli_line line;
    cli_line_clear(&line);
    cli_line_add(&line, "%s: %s", e->op.name, e->op.kind);
    if (e->block >= 0)
        cli_line_add(&line, ", block %d of the graph", (int)e->block);
    cli_line_add(&line, "\n  parameters   ");
    if (e->op.parameter_bytes > 0)
        cli_line_add(&line, "%s, stored on %s between steps, their states on %s; updated on %s\n",
                     cli_size(e->op.parameter_bytes).at, e->op.parameters, e->op.states,
                     e->op.updates);
    else
        cli_line_add(&line, "none\n");
    cli_line_add(&line, "  activations  %s: %s\n",
                 cli_size(e->op.activation_bytes + e->op.saved_bytes).at, e->op.activations);
    print_prose(&line);
}

static void print_text(const cli_replay *replay, const explanation *e)
{
    const coh_plan_summary *s = &replay->job.summary;
    cli_line line;
    print_operator(e);
    printf("\n%-*s %9s %9s %9s %9s %12s %12s\n", NAME_COLUMNS, "with one decision otherwise",
           "a step", "change", "compute", "waits", "moved", "device");
    print_trial("as planned", s->step_ns, 0, s->busy_ns[COH_LANE_COMPUTE], s->link_bytes,
                s->exposed_ns, s->peak_bytes[COH_TIER_DEVICE]);
    for (int i = 0; i < e->count; i++)
        if (!e->alternatives[i].is_so)
            print_alternative(replay, &e->alternatives[i]);
    for (int i = 0; i < e->count; i++)
        if (e->alternatives[i].is_so)
            print_so(replay, &e->alternatives[i]);
    cli_line_clear(&line);
    for (int i = 0; i < e->same_count; i++) {
        add_name(e->same[i], &line);
        cli_line_add(&line, "is what is planned\n");
    }
    cli_line_add(&line, "\n%s\n", e->why);
    print_prose(&line);
    print_prices(&replay->job);
}

static void add_trial_json(const cli_replay *replay, const alternative *a, cli_line *line)
{
    const coh_plan_trial *trial = &a->trial;
    cli_line_add_json(line, "{'pin': %s", a->name);
    if (trial->replaces_pin)
        cli_line_add_json(line, "'replaces_pin': true");
    if (a->is_so)
        cli_line_add_json(line, "'is_so': true");
    if (!trial->fits) {
        cli_line_add_json(line, a->contradicts ? "'contradicts': true" : "'fits': false");
        cli_line_add_json(line, "'why': %s", trial->why);
        cli_refusal_add_json("refusal", &trial->refusal, line);
        cli_line_add_json(line, "}");
        return;
    }
    cli_line_add_json(line,
                      "'fits': true, 'step_seconds': %.9f, 'change': %.9g, 'compute_seconds': %.9f"
                      ", 'waits_seconds': %.9f, 'moved_bytes': %" PRIu64,
                      (double)trial->step_ns * 1e-9, change_of(replay, a),
                      (double)trial->busy_ns[COH_LANE_COMPUTE] * 1e-9,
                      (double)sum_lanes(trial->exposed_ns) * 1e-9, sum_lanes(trial->link_bytes));
    cli_line_add_json_tiers(line, "peak_bytes", trial->peak_bytes);
    cli_line_add_json(line, "}");
}

static void print_json(const cli_replay *replay, const explanation *e)
{
    cli_line line;
    cli_line_clear(&line);
    cli_line_add_json(&line,
                      "{'operator': %s, 'kind': %s, 'block': %d, 'parameter_bytes': %" PRIu64
                      ", 'parameters': %s, 'states': %s, 'updates': %s, 'activations': %s"
                      ", 'step_seconds': %.9f, 'calibrated_runs': %" PRIu32 ", 'alternatives': [",
                      e->op.name, e->op.kind, (int)e->block, e->op.parameter_bytes,
                      e->op.parameters, e->op.states, e->op.updates, e->op.activations,
                      (double)replay->job.summary.step_ns * 1e-9, replay->job.calibration.runs);
    for (int i = 0; i < e->count; i++) {
        cli_line_flush(&line);
        add_trial_json(replay, &e->alternatives[i], &line);
    }
    cli_line_add_json(&line, "], 'as_planned': [");
    for (int i = 0; i < e->same_count; i++)
        cli_line_add_json(&line, "%s", e->same[i]);
    cli_line_add_json(&line, "], 'why': %s}", e->why);
    cli_print("%s", line.text);
}

/* Alternatives keep the plan's budget, so flags for more memory are refused: with more memory a
 * search would make other decisions. */
static coh_status check_room(const cli_replay *replay)
{
    const cli_options *options = &replay->options;
    if (!cli_given(options, CLI_FLAG_DEVICE_MEMORY) ||
        options->device_memory_bytes <= replay->job.made_device_bytes)
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "--device-memory %s is more than %s was planned for (%s), and explain searches "
                    "nothing: leave it out, or plan for it with cohobate plan -o and explain that",
                    cli_size(options->device_memory_bytes).at, options->operand,
                    cli_size(replay->job.made_device_bytes).at);
}

static coh_status explain(const cli_replay *replay, explanation *e)
{
    CLI_TRY(find_operator(replay, e));
    CLI_TRY(check_room(replay));
    cli_choices_release();
    CLI_TRY(try_all(replay, e));
    say_why(replay, e);
    if (replay->options.json)
        print_json(replay, e);
    else
        print_text(replay, e);
    return COH_OK;
}

coh_status cli_explain(const cli_options *options)
{
    cli_replay *replay = calloc(1, sizeof(*replay));
    explanation *e = calloc(1, sizeof(*e));
    coh_status status = replay && e ? COH_OK : COH_ERR_MEMORY;
    cli_choices_hold();
    if (status != COH_OK)
        (void)cli_fail(status, "no memory for a plan's alternatives");
    else
        status = cli_replay_open(options, replay);
    if (status == COH_OK) {
        status = explain(replay, e);
        cli_replay_close(replay);
    }
    free(e);
    free(replay);
    return status;
}
