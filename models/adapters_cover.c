/* Finds few globs for many linears, as those of PEFT's layers_to_transform. The one idea: linears
 * with the same layers are named together, as globs of layer numbers times globs of places, and
 * numbers share a glob digit by digit. The result is checked against every linear. Read adapters.h
 * first. */
#include "models/adapters.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/name_pattern.h"

enum { DIGITS = 10, GLOB_BYTES = 40, PLACES_MOST = 32, LAYERS_MOST = 1000 };

/* A linear of the layers. */
typedef struct place {
    char name[64];
    uint8_t chosen[LAYERS_MOST]; /* by layer */
    int is_named;                /* by a glob of the present group */
} place;

typedef struct cover {
    const coh_model *model;
    int (*is_chosen)(const void *context, int64_t index);
    const void *context;
    place *places;
    int place_count;
    int layer_count;
    char *targets;
    size_t used;
} cover;

/* Appends a glob of two parts. Returns 0 if there is no room. */
static int add_glob(cover *c, const char *layers, const char *end)
{
    const size_t room = COH_PATTERN_BYTES - c->used;
    const int wrote =
        snprintf(c->targets + c->used, room, "%s%s%s", c->used ? "," : "", layers, end);
    if (wrote < 0 || (size_t)wrote >= room)
        return 0;
    c->used += (size_t)wrote;
    return 1;
}

/* ---- numbers of layers ---- */

/* Writes a glob of the digits in a set: "7", "[2-5]" or "[13]". */
static void write_digits(unsigned digits, char *out)
{
    char *at = out;
    if ((digits & (digits - 1)) == 0) {
        for (int d = 0; d < DIGITS; d++)
            if (digits >> d & 1)
                *at++ = (char)('0' + d);
        *at = '\0';
        return;
    }
    *at++ = '[';
    for (int d = 0, end; d < DIGITS; d = end + 1) {
        for (end = d; digits >> end & 1; end++)
            ;
        if (end > d)
            *at++ = (char)('0' + d);
        if (end > d + 2)
            *at++ = '-';
        if (end > d + 1)
            *at++ = (char)('0' + end - 1);
    }
    *at++ = ']';
    *at = '\0';
}

/* Last digits of the layers that begin with `head`: those that are chosen, and the others. */
static void split_digits(const cover *c, const place *of, int head, unsigned *out_chosen,
                         unsigned *out_others)
{
    *out_chosen = *out_others = 0;
    for (int d = 0; d < DIGITS && head * DIGITS + d < c->layer_count; d++)
        *(of->chosen[head * DIGITS + d] ? out_chosen : out_others) |= 1u << d;
}

/* Adds the globs of one place's layers, times the glob `end` of places. Tens share a glob if their
 * last digits may be the same; layers that the model lacks may have any. */
static int add_layers(cover *c, const place *of, const char *end)
{
    uint8_t is_done[LAYERS_MOST / DIGITS + 1] = { 0 };
    unsigned chosen, others, more, not_more;
    for (int head = 0; head * DIGITS < c->layer_count; head++) {
        char layers[GLOB_BYTES], last[16], tens[16];
        unsigned heads = 1u << head % DIGITS;
        split_digits(c, of, head, &chosen, &others);
        if (is_done[head] || chosen == 0)
            continue;
        for (int next = head + 1; head > 0 && next / DIGITS == head / DIGITS; next++) {
            split_digits(c, of, next, &more, &not_more);
            if (is_done[next] || more == 0 || ((chosen | more) & (others | not_more)) != 0)
                continue;
            chosen |= more, others |= not_more;
            heads |= 1u << next % DIGITS;
            is_done[next] = 1;
        }
        write_digits(heads, tens);
        if (head > 0 && others == 0 && (chosen & (chosen - 1)) != 0) /* "?." also matches "h." */
            snprintf(last, sizeof(last), "?");
        else
            write_digits(chosen, last);
        if (head < DIGITS)
            snprintf(layers, sizeof(layers), "%s%s.", head == 0 ? "" : tens, last);
        else
            snprintf(layers, sizeof(layers), "%d%s%s.", head / DIGITS, tens, last);
        if (!add_glob(c, layers, end))
            return 0;
    }
    return 1;
}

/* ---- places ---- */

static int has_same_layers(const cover *c, const place *a, const place *b)
{
    return memcmp(a->chosen, b->chosen, (size_t)c->layer_count) == 0;
}

/* Marks the places that a glob matches; returns 0, and marks none, if one of them has other layers
 * than the group. */
static int take_glob(cover *c, const place *group, const char *glob)
{
    for (int i = 0; i < c->place_count; i++)
        if (!has_same_layers(c, group, &c->places[i]) && fnmatch(glob, c->places[i].name, 0) == 0)
            return 0;
    for (int i = 0; i < c->place_count; i++)
        if (fnmatch(glob, c->places[i].name, 0) == 0)
            c->places[i].is_named = 1;
    return 1;
}

static const char *leaf_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* The first letters of the group's places that differ from `first` in that letter alone, such as
 * "qkv" of q_proj. */
static void list_initials(const cover *c, const place *group, const place *first, char *out)
{
    const char *leaf = leaf_of(first->name);
    const size_t folder = (size_t)(leaf - first->name);
    for (int i = 0; i < c->place_count; i++) {
        const char *name = c->places[i].name;
        if (has_same_layers(c, group, &c->places[i]) && strncmp(name, first->name, folder) == 0 &&
            name[folder] != '\0' && strcmp(name + folder + 1, leaf + 1) == 0)
            *out++ = name[folder];
    }
    *out = '\0';
}

/* Writes a short glob that matches `first`, and if possible other places of the group. */
static void choose_glob(cover *c, const place *group, const place *first, char *out, size_t bytes)
{
    char initials[PLACES_MOST + 1];
    const char *leaf = leaf_of(first->name);
    const int folder = (int)(leaf - first->name);
    snprintf(out, bytes, "*");
    if (take_glob(c, group, out))
        return;
    snprintf(out, bytes, "%.*s*", folder, first->name);
    if (folder > 0 && take_glob(c, group, out))
        return;
    list_initials(c, group, first, initials);
    snprintf(out, bytes, initials[1] ? "*[%s]%s" : "*%s%s", initials, leaf + 1);
    if (take_glob(c, group, out))
        return;
    snprintf(out, bytes, "%s", first->name);
    (void)take_glob(c, group, out);
}

/* Adds the globs of all places that have the layers of `group`. */
static int add_group(cover *c, const place *group)
{
    char glob[sizeof(group->name) + PLACES_MOST + 8];
    for (int i = 0; i < c->place_count; i++) {
        const place *first = &c->places[i];
        if (first->is_named || !has_same_layers(c, group, first))
            continue;
        choose_glob(c, group, first, glob, sizeof(glob));
        if (!add_layers(c, group, glob))
            return 0;
    }
    return 1;
}

/* ---- the walk ---- */

static place *find_place(cover *c, const char *name)
{
    for (int i = 0; i < c->place_count; i++)
        if (strcmp(c->places[i].name, name) == 0)
            return &c->places[i];
    if (c->place_count == PLACES_MOST)
        return NULL;
    place *found = &c->places[c->place_count++];
    snprintf(found->name, sizeof(found->name), "%s", name);
    return found;
}

/* Reads all linears. Those outside of layers are named whole. Returns 0 if there are too many. */
static int read_linears(cover *c)
{
    coh_operator op;
    for (int64_t index = 0, at = 0; coh_operator_next(c->model, &index, &op); at = index) {
        const int is_chosen = op.linear && c->is_chosen(c->context, at);
        if (!op.linear || (op.layer < 0 && !is_chosen))
            continue;
        if (op.layer < 0) {
            if (!add_glob(c, op.name, ""))
                return 0;
            continue;
        }
        place *of = op.layer < LAYERS_MOST ? find_place(c, op.place) : NULL;
        if (!of)
            return 0;
        of->chosen[op.layer] = (uint8_t)is_chosen;
        if (op.layer >= c->layer_count)
            c->layer_count = (int)op.layer + 1;
    }
    return 1;
}

/* Does the result match exactly what is chosen? */
static int is_exact(const cover *c)
{
    coh_operator op;
    for (int64_t index = 0, at = 0; coh_operator_next(c->model, &index, &op); at = index)
        if (op.linear &&
            coh_pattern_matches(c->targets, op.name) != (c->is_chosen(c->context, at) != 0))
            return 0;
    return 1;
}

static int find_cover(cover *c)
{
    if (!read_linears(c))
        return 0;
    for (int i = 0; i < c->place_count; i++)
        if (!c->places[i].is_named && !add_group(c, &c->places[i]))
            return 0;
    return is_exact(c);
}

coh_status coh_adapters_cover(const coh_model *model,
                              int (*is_chosen)(const void *context, int64_t index),
                              const void *context, char out_targets[COH_PATTERN_BYTES])
{
    cover c = { .model = model, .is_chosen = is_chosen, .context = context };
    c.targets = out_targets;
    COH_TRY(COH_ALLOC(PLACES_MOST, &c.places));
    out_targets[0] = '\0';
    const int is_found = find_cover(&c);
    coh_free(c.places);
    if (is_found)
        return COH_OK;
    return coh_fail(COH_ERR_CORRUPT,
                    "its linears need a pattern of more than %d letters: "
                    "merge the adapters into their model with PEFT (merge_and_unload)",
                    COH_PATTERN_BYTES - 1);
}
