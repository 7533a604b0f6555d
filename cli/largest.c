/* Finds the largest model of a family that can be trained within the budget. Next: variants.c plans
 * each model. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/progress.h"
#include "cli/variants.h"
#include "report/format.h"

enum { FAMILY_MOST = 32 };

typedef struct member {
    const char *name;
    uint64_t parameter_count;
} member;

/* Is `name` in the family: equal to it, or followed by a dash? */
static int is_of(const char *name, const char *family)
{
    const size_t length = strlen(family);
    return strncmp(name, family, length) == 0 && (name[length] == '\0' || name[length] == '-');
}

static int compare(const void *left, const void *right)
{
    const member *a = left, *b = right;
    return (a->parameter_count < b->parameter_count) - (a->parameter_count > b->parameter_count);
}

/* Finds the family whose name is nearest to `word`: a preset's name up to a dash. "": none is
 * near. */
static cli_text nearest_family(const char *word)
{
    const char *name;
    cli_text tried, found = { "" };
    coh_nearest nearest = { .word = word };
    for (int32_t i = 0; (name = coh_model_preset_name(i)) != NULL; i++)
        for (size_t end = 0; name[end] != '\0'; end++) {
            if (name[end + 1] != '-' && name[end + 1] != '\0')
                continue;
            snprintf(tried.at, sizeof(tried.at), "%.*s", (int)end + 1, name);
            coh_nearest_offer(&nearest, tried.at);
            if (nearest.name != tried.at)
                continue;
            found = tried;
            nearest.name = found.at;
        }
    return found;
}

/* Lists the family, the largest first. */
static coh_status list_family(const char *family, member *members, int *out_count)
{
    const char *name;
    int count = 0;
    for (int32_t i = 0; (name = coh_model_preset_name(i)) != NULL && count < FAMILY_MOST; i++) {
        coh_model model;
        if (!is_of(name, family))
            continue;
        CLI_TRY(coh_model_preset(name, 0, &model));
        members[count++] = (member){ name, coh_model_trained_count(&model) };
    }
    qsort(members, (size_t)count, sizeof(members[0]), compare);
    *out_count = count;
    if (count > 0)
        return COH_OK;
    const cli_text nearest = nearest_family(family);
    return cli_fail(
        COH_ERR_ARGUMENT,
        "--max %.40s: no preset begins so: %s%s%s one's name up to a dash, such as gpt2 "
        "or llama-3.1",
        family, nearest.at[0] ? "is " : "", nearest.at, nearest.at[0] ? " meant? Give" : "give");
}

/* Prints the budget for which the answer holds. */
static void print_budget(const cli_options *options, const cli_variant *found)
{
    const uint64_t *room = found->budget_bytes;
    printf("budget: device %s", cli_size(room[0]).at);
    if (room[1])
        printf(", %s %s", cli_given(options, CLI_FLAG_EMULATE_HOST) ? "emulated host" : "host",
               cli_size(room[1]).at);
    for (int32_t i = 0; i < options->disk_count; i++)
        printf(", disk %s", options->disk[i].folder);
    if (room[2] && room[2] != UINT64_MAX)
        printf("%s %s", options->disk_count > 0 ? " up to" : ", disk", cli_size(room[2]).at);
    printf("\n");
}

/* Writes `null` for no limit. */
static void add_budget_json(const cli_variant *found, cli_line *line)
{
    cli_line_add_json(line, "'budgets': {");
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        if (found->budget_bytes[tier] == UINT64_MAX)
            cli_line_add_json(line, "%s: null", coh_tier_name(tier));
        else
            cli_line_add_json(line, "%s: %" PRIu64, coh_tier_name(tier), found->budget_bytes[tier]);
    cli_line_add_json(line, "}");
}

static void print_text(const cli_options *options, const cli_variant *found,
                       const cli_variant *next)
{
    cli_line line, wrapped;
    cli_line_clear(&line);
    cli_line_clear(&wrapped);
    cli_line_add(&line,
                 "%s is the largest of %s that trains within these budgets: %s tokens/s, %s a step "
                 "of %" PRId64 " x %s, %" PRId64 " at once, limit %s\n",
                 found->label, options->max, cli_tokens_per_s(found->speed.tokens_per_s).at,
                 cli_time(found->speed.step_s).at, found->batch,
                 cli_count((uint64_t)found->sequence, "token").at, found->micro_batch,
                 report_limit(found->limit));
    if (next)
        cli_line_add(&line, "%s does not: %s\n", next->label, next->why);
    else
        cli_line_add(&line, "no preset of the family is larger\n");
    cli_screen_wrap(line.text, cli_screen_columns(), &wrapped);
    printf("%s", wrapped.text);
    print_budget(options, found);
    cli_line_clear(&line);
    cli_line_clear(&wrapped);
    cli_screen_drive(options, &found->summary, &found->speed, &line);
    cli_line_add(&line, "%s\n%s", found->prices, cli_variant_search(options));
    cli_screen_wrap(line.text, cli_screen_columns(), &wrapped);
    printf("%s", wrapped.text);
}

static void print_largest(const cli_options *options, const cli_variant *found,
                          const cli_variant *next)
{
    cli_line line;
    if (!options->json) {
        print_text(options, found, next);
        return;
    }
    cli_line_clear(&line);
    cli_line_add_json(&line, "{'family': %s", options->max);
    add_budget_json(found, &line);
    cli_line_add_json(&line, "'largest': ");
    cli_variant_add_json(found, &line);
    cli_line_add_json(&line, next ? "'next': " : "'next': null");
    if (next)
        cli_variant_add_json(next, &line);
    cli_line_add_json(&line, "}");
    cli_print("%s", line.text);
}

/* Not even `smallest` fits. */
static void print_none_json(const cli_options *options, const cli_variant *smallest)
{
    cli_line line;
    cli_line_clear(&line);
    cli_line_add_json(&line, "{'family': %s, 'largest': null, 'next': ", options->max);
    cli_variant_add_json(smallest, &line);
    cli_line_add_json(&line, "}");
    cli_print("%s", line.text);
}

/* Tries models from the largest down: a plan that does not fit usually fails at once, while a plan
 * that fits takes seconds. So only one fitting plan is made, and the failure before it gives the
 * reason. */
coh_status cli_plan_largest(const cli_options *options)
{
    member members[FAMILY_MOST];
    int count;
    CLI_TRY(list_family(options->max, members, &count));
    cli_variant *tried = calloc((size_t)count, sizeof(*tried));
    if (!tried)
        return cli_fail(COH_ERR_MEMORY, "no memory for a list of models");
    const int is_watched = isatty(STDERR_FILENO);
    const double begin_s = cli_seconds_now();
    coh_status status = COH_OK;
    int i = 0;
    for (; i < count && status == COH_OK; i++) {
        cli_options one = *options;
        one.operand = members[i].name;
        if (!cli_given(options, CLI_FLAG_MICRO_BATCH)) { /* does it train at any micro-batch */
            one.micro_batch = 0;
            one.given[CLI_FLAG_MICRO_BATCH] = 1;
        }
        if (is_watched)
            cli_note("planning %s, %d of %d", members[i].name, i + 1, count);
        status = cli_variant_plan(&one, "", &tried[i]);
        snprintf(tried[i].label, sizeof(tried[i].label), "%s", members[i].name);
        if (status == COH_OK && tried[i].fits)
            break;
        if (status == COH_OK && (is_watched || cli_seconds_now() - begin_s > CLI_PROGRESS_FIRST_S))
            cli_note("%s does not fit, %d of %d", members[i].name, i + 1, count);
    }
    if (status == COH_OK && i == count && options->json)
        print_none_json(options, &tried[count - 1]);
    if (status == COH_OK && i < count)
        print_largest(options, &tried[i], i > 0 ? &tried[i - 1] : NULL);
    else if (status == COH_OK)
        status = cli_fail(COH_ERR_FULL, "no model of %s fits, not even %s: %s", options->max,
                          tried[count - 1].label, tried[count - 1].why);
    free(tried);
    return status;
}
