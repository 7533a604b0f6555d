/* Groups blocks, and operators outside of blocks, with equal placement into one line each, in the
 * graph's order. Next: screen.c prints the lines. */
#include <stdio.h>
#include <string.h>

#include "cli/screen.h"

enum { DEVICE = 1, HOST = 2, DISK = 4, KEEP = 8, RECOMPUTE = 16, AGAIN = 32, MOVE = 64 };

/* In the order of the bits. */
static const char *const names[] = {
    "device", "host", "disk", "keep", "recompute", "again", "move"
};

/* A block or an operator outside of blocks. */
typedef struct unit {
    coh_plan_operator first, last;
    int32_t operator_count; /* 0: the unit is empty */
    uint64_t parameter_bytes;
    unsigned parameters, states, activations; /* bit sets of the names above */
    const char *pattern;
} unit;

static unsigned places_of(const char *text)
{
    return (strstr(text, "device") ? DEVICE : 0) | (strstr(text, "host") ? HOST : 0) |
           (strstr(text, "disk") ? DISK : 0);
}

static unsigned ways_of(const char *text)
{
    return strcmp(text, "recompute") == 0 ? RECOMPUTE
           : strcmp(text, "again") == 0   ? AGAIN
           : strcmp(text, "move") == 0    ? MOVE
                                          : KEEP;
}

static void write_set(unsigned set, char *text, size_t bytes)
{
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
    snprintf(group->pattern, sizeof(group->pattern), "%.31s", u->pattern);
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

/* Merges two lists, in their fixed order. */
static void join_sets(char *text, size_t bytes, const char *other)
{
    unsigned set = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strstr(text, names[i]) || strstr(other, names[i]))
            set |= 1u << i;
    write_set(set, text, bytes);
}

static void join(cli_group *group, const cli_group *other)
{
    if (strcmp(group->pattern, other->pattern) != 0)
        snprintf(group->pattern, sizeof(group->pattern), "mixed");
    join_sets(group->parameters, sizeof(group->parameters), other->parameters);
    join_sets(group->states, sizeof(group->states), other->states);
    join_sets(group->activations, sizeof(group->activations), other->activations);
}

/* Equal placement? `loosely`: ignores where parameters and states are stored between steps. */
static int stand_alike(const cli_group *a, const cli_group *b, int loosely)
{
    if ((a->first_block < 0) != (b->first_block < 0) || strcmp(a->pattern, b->pattern) != 0 ||
        strcmp(a->activations, b->activations) != 0)
        return 0;
    return loosely ||
           (strcmp(a->parameters, b->parameters) == 0 && strcmp(a->states, b->states) == 0);
}

/* Adds the unit to the last group, or begins a new group. *count exceeds `most` if there are too
 * many: the last group then holds the rest. */
static void put(const unit *u, int loosely, int32_t most, cli_group *groups, int32_t *count)
{
    cli_group own;
    open_group(u, &own);
    int32_t at = *count < most ? *count : most;
    if (at == 0 || !stand_alike(&groups[at - 1], &own, loosely)) {
        ++*count;
        if (at < most)
            groups[at++] = own;
    }
    join(&groups[at - 1], &own);
    add_unit(u, &groups[at - 1]);
}

static coh_status list_groups(const coh_plan *plan, int loosely, int32_t most, cli_group *groups,
                              int32_t *count)
{
    unit u = { 0 };
    *count = 0;
    for (int32_t i = 0; i < coh_plan_operator_count(plan); i++) {
        coh_plan_operator op = { .struct_bytes = sizeof(op) };
        CLI_TRY(coh_plan_operator_at(plan, i, &op));
        if (u.operator_count && (op.block < 0 || op.block != u.first.block)) {
            put(&u, loosely, most, groups, count);
            u = (unit){ 0 };
        }
        add_operator(&u, &op);
    }
    if (u.operator_count)
        put(&u, loosely, most, groups, count);
    return COH_OK;
}

coh_status cli_groups(const coh_plan *plan, int32_t most, cli_group out_groups[CLI_GROUPS],
                      int32_t *out_count)
{
    CLI_TRY(list_groups(plan, 0, most, out_groups, out_count));
    if (*out_count > most)
        CLI_TRY(list_groups(plan, 1, most, out_groups, out_count));
    if (*out_count > most)
        *out_count = most;
    return COH_OK;
}
