/* A line for all that stands alike: blocks, and operators outside of them, in the graph's order. */
#include <stdio.h>
#include <string.h>

#include "cli/screen.h"

enum { DEVICE = 1, HOST = 2, DISK = 4, KEEP = 8, RECOMPUTE = 16, MOVE = 32 };

/* A block or an operator outside of blocks. */
typedef struct unit {
    coh_plan_operator first, last;
    int32_t operator_count; /* 0: none yet */
    uint64_t parameter_bytes;
    unsigned parameters, states, activations; /* sets of the above */
    const char *pattern;
} unit;

static unsigned places_of(const char *text)
{
    return (strstr(text, "device") ? DEVICE : 0) | (strstr(text, "host") ? HOST : 0) |
           (strstr(text, "disk") ? DISK : 0);
}

static unsigned ways_of(const char *text)
{
    return strcmp(text, "recompute") == 0 ? RECOMPUTE : strcmp(text, "move") == 0 ? MOVE : KEEP;
}

static void write_set(unsigned set, char *text, size_t bytes)
{
    static const char *const names[] = { "device", "host", "disk", "keep", "recompute", "move" };
    size_t used = 0;
    snprintf(text, bytes, "-");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (set >> i & 1 && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? "+" : "", names[i]);
}

static void add_operator(unit *u, const coh_plan_operator *op)
{
    if (u->operator_count++ == 0)
        u->first = *op;
    u->last = *op;
    u->parameter_bytes += op->parameter_bytes;
    u->parameters |= places_of(op->parameters);
    u->states |= places_of(op->states);
    u->activations |= ways_of(op->activations);
    if (u->pattern && strcmp(u->pattern, op->pattern) != 0)
        u->pattern = "mixed";
    else
        u->pattern = op->pattern;
}

static void open_group(const unit *u, cli_group *group)
{
    *group = (cli_group){ .first_block = u->first.block, .last_block = u->first.block };
    if (u->first.block < 0)
        snprintf(group->first, sizeof(group->first), "%.95s", u->first.name);
    snprintf(group->pattern, sizeof(group->pattern), "%.15s", u->pattern);
    write_set(u->parameters, group->parameters, sizeof(group->parameters));
    write_set(u->states, group->states, sizeof(group->states));
    write_set(u->activations, group->activations, sizeof(group->activations));
}

static void add_unit(const unit *u, cli_group *group)
{
    group->count++;
    group->operator_count += u->operator_count;
    group->parameter_bytes += u->parameter_bytes;
    group->last_block = u->first.block;
    if (u->first.block < 0)
        snprintf(group->last, sizeof(group->last), "%.95s", u->last.name);
}

static void say_mixed(char *text, size_t bytes, const char *other)
{
    if (strcmp(text, other) != 0)
        snprintf(text, bytes, "mixed");
}

static int stand_alike(const cli_group *a, const cli_group *b)
{
    return (a->first_block < 0) == (b->first_block < 0) && strcmp(a->pattern, b->pattern) == 0 &&
           strcmp(a->parameters, b->parameters) == 0 && strcmp(a->states, b->states) == 0 &&
           strcmp(a->activations, b->activations) == 0;
}

/* Takes the unit into the last group, or begins another. */
static void put(const unit *u, cli_group *groups, int32_t *count)
{
    cli_group own;
    cli_group *last = *count ? &groups[*count - 1] : NULL;
    open_group(u, &own);
    if (!last || (!stand_alike(last, &own) && *count < CLI_GROUPS)) {
        groups[(*count)++] = own;
        last = &groups[*count - 1];
    }
    say_mixed(last->pattern, sizeof(last->pattern), own.pattern);
    say_mixed(last->parameters, sizeof(last->parameters), own.parameters);
    say_mixed(last->states, sizeof(last->states), own.states);
    say_mixed(last->activations, sizeof(last->activations), own.activations);
    add_unit(u, last);
}

coh_status cli_groups(const coh_plan *plan, cli_group out_groups[CLI_GROUPS], int32_t *out_count)
{
    unit u = { 0 };
    *out_count = 0;
    for (int32_t i = 0; i < coh_plan_operator_count(plan); i++) {
        coh_plan_operator op;
        CLI_TRY(coh_plan_operator_at(plan, i, &op));
        if (u.operator_count && (op.block < 0 || op.block != u.first.block)) {
            put(&u, out_groups, out_count);
            u = (unit){ 0 };
        }
        add_operator(&u, &op);
    }
    if (u.operator_count)
        put(&u, out_groups, out_count);
    return COH_OK;
}
