/* Resolves pins to operators, blocks and chunks, and checks them. The idea: pins are resolved once
 * per operator (later pins may not contradict earlier ones) and then translated to chunk rules for
 * residency.c. The interface is pins.h. */
#include "planner/pins.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/refusal.h"
#include "cohobate/terms.h"
#include "planner/rank_axes.h"
#include "planner/schedule.h"

#define BLOCKS "blocks."

static const char *const place_names[COH_PIN_PLACE_COUNT] = { "device", "host",      "disk",
                                                              "keep",   "recompute", "offload",
                                                              "pattern" };

static int is_of_activations(coh_pin_place place)
{
    return place == COH_PIN_KEEP || place == COH_PIN_RECOMPUTE || place == COH_PIN_OFFLOAD;
}

/* Returns 1 if two pins decide the same. */
static int agree(const coh_pin *a, const coh_pin *b)
{
    return a->place == b->place &&
           (a->place != COH_PIN_PATTERN || strcmp(a->pattern, b->pattern) == 0);
}

const char *coh_pin_place_name(coh_pin_place place)
{
    return place < COH_PIN_PLACE_COUNT ? place_names[place] : "unknown";
}

const char *coh_pin_decision(const coh_pin *pin)
{
    if (pin == NULL || pin->place != COH_PIN_PATTERN)
        return coh_pin_place_name(pin != NULL ? pin->place : COH_PIN_PLACE_COUNT);
    return memchr(pin->pattern, 0, sizeof(pin->pattern)) != NULL ? pin->pattern : "unknown";
}

/* ---- targets ---- */

/* Parses "blocks.3", "blocks.0-3" or "blocks.*"; returns 0 for other texts and for numbers that a
 * set cannot hold. */
static int read_blocks(const char *target, int32_t *out_first, int32_t *out_last)
{
    const char *at = target + strlen(BLOCKS);
    long number[2] = { 0 };
    if (strncmp(target, BLOCKS, strlen(BLOCKS)) != 0)
        return 0;
    if (strcmp(at, "*") == 0) {
        *out_first = 0;
        *out_last = COH_BLOCK_SET_MOST - 1;
        return 1;
    }
    for (int i = 0; i < 2; i++) {
        char *end = NULL;
        if (*at < '0' || *at > '9')
            return 0;
        number[i] = strtol(at, &end, 10);
        if (number[i] >= COH_BLOCK_SET_MOST)
            return 0;
        at = end;
        if (i == 0 && *at == '\0')
            number[++i] = number[0];
        else if (i == 0 && *at++ != '-')
            return 0;
    }
    *out_first = (int32_t)number[0];
    *out_last = (int32_t)number[1];
    return *at == '\0' && number[0] <= number[1];
}

/* Returns 1 for a rank pattern that a pin can give: a name that is known, or numbers. */
static int is_pattern(const char *text)
{
    const size_t length = strlen(text);
    return length < COH_RANK_PATTERN_BYTES &&
           (coh_rank_pattern_find(text) != NULL ||
            (strchr(text, '/') != NULL && strspn(text, "0123456789/") == length));
}

coh_status coh_pin_parse(const char *text, coh_pin *out_pin)
{
    COH_NEED(text);
    COH_NEED(out_pin);
    const char *equals = strrchr(text, '=');
    const size_t length = equals ? (size_t)(equals - text) : 0;
    int32_t first = 0, last = 0;
    *out_pin = (coh_pin){ .place = COH_PIN_PLACE_COUNT };
    for (int i = 0; equals && i < COH_PIN_PATTERN; i++)
        if (strcmp(equals + 1, place_names[i]) == 0)
            out_pin->place = (coh_pin_place)i;
    if (equals && is_pattern(equals + 1)) {
        out_pin->place = COH_PIN_PATTERN;
        snprintf(out_pin->pattern, sizeof(out_pin->pattern), "%s", equals + 1);
    }
    if (length == 0 || length >= COH_PIN_TARGET_BYTES || out_pin->place == COH_PIN_PLACE_COUNT)
        return coh_fail(COH_ERR_ARGUMENT,
                        "pin '%.160s' is not TARGET=PLACE, as 'blocks.0-3=device'; places are "
                        "device, host, disk (parameters), keep, recompute, offload (activations), "
                        "or a rank pattern, as zero3 or 2/4/8",
                        text);
    memcpy(out_pin->target, text, length);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return coh_fail(COH_ERR_ARGUMENT, "a pin's target holds a control character");
    if (strncmp(out_pin->target, BLOCKS, strlen(BLOCKS)) == 0 &&
        !read_blocks(out_pin->target, &first, &last))
        return coh_fail(COH_ERR_ARGUMENT,
                        "pin '%s': blocks are named as blocks.3, blocks.0-3 or blocks.*, below %d",
                        text, COH_BLOCK_SET_MOST);
    return COH_OK;
}

/* Returns 1 if a pin matches this operator. `block`: its number in graph order, -1: none. */
static int names(const coh_pin *pin, const coh_graph_op_entry *op, int32_t block)
{
    int32_t first = 0, last = 0;
    if (read_blocks(pin->target, &first, &last))
        return block >= first && block <= last;
    return fnmatch(pin->target, op->name, 0) == 0;
}

static int has_parameters(const coh_graph_op_entry *op)
{
    for (int32_t port = 0; port < op->kind.parameter_count; port++)
        if (op->parameter[port] >= 0)
            return 1;
    return 0;
}

static coh_status fail_pin(const coh_pin *pin, const char *why)
{
    return coh_fail(COH_ERR_ARGUMENT, "pin '%s=%s': %s", pin->target, coh_pin_decision(pin), why);
}

/* The pin needs a tier; `remedy` is the option that gives one. */
static coh_status refuse_tier(const coh_pin *pin, const char *why, coh_term remedy)
{
    return coh_fail(COH_ERR_ARGUMENT, "pin '%s=%s': %s: give %s", pin->target,
                    coh_pin_decision(pin), why, coh_term_text(remedy));
}

static coh_status contradict(const coh_pin *a, const coh_pin *b, const coh_graph_op_entry *op)
{
    return coh_fail(COH_ERR_ARGUMENT,
                    "pins '%s=%s' and '%s=%s' contradict one another: both name operator %s%s",
                    a->target, coh_pin_decision(a), b->target, coh_pin_decision(b), op->name,
                    is_of_activations(a->place) ? ", or an operator of its block"
                                                : ", or share its parameters");
}

static coh_status check_pattern(const coh_plan_options *options, const coh_pin *pin)
{
    coh_rank_axes axes;
    if (coh_fold_replicas(&options->ranks) == 1)
        return fail_pin(pin, "a rank pattern is for several ranks");
    if (memchr(pin->pattern, 0, sizeof(pin->pattern)) == NULL)
        return fail_pin(pin, "its pattern is too long");
    return coh_rank_axes_find(options, pin->pattern, &axes);
}

/* Checks that the tiers and mode that a pin requires exist. */
static coh_status check_tiers(const coh_plan_options *options, const coh_pin *pin)
{
    int has_host = options->host_memory_bytes > 0, has_disk = options->disk_bytes > 0;
    if ((unsigned)pin->place >= COH_PIN_PLACE_COUNT || pin->target[0] == '\0' ||
        memchr(pin->target, 0, sizeof(pin->target)) == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "a pin is not of coh_pin_parse");
    if (is_of_activations(pin->place) && options->mode != COH_PLAN_TRAIN)
        return fail_pin(pin, "activations are pinned in training only");
    if (pin->place == COH_PIN_PATTERN)
        return check_pattern(options, pin);
    if (pin->place == COH_PIN_HOST && !has_host)
        return refuse_tier(pin, "there is no host tier", COH_TERM_EMULATED_HOST);
    if (pin->place == COH_PIN_DISK && !has_disk)
        return refuse_tier(pin, "there is no disk", COH_TERM_A_DISK);
    if (coh_plan_speculates(options) &&
        (pin->place == COH_PIN_DEVICE || pin->place == COH_PIN_HOST))
        return fail_pin(pin,
                        "updates that speculate keep weights on the drive alone between steps: "
                        "leave the pin out, or do not speculate");
    if (pin->place == COH_PIN_OFFLOAD && !has_host && !has_disk)
        return refuse_tier(pin, "there is no tier to move to", COH_TERM_A_DISK);
    return COH_OK;
}

/* ---- by operator ---- */

/* Records pin `index` for an operator that it matches. */
static coh_status take_pin(coh_pin_map *map, const coh_graph *graph, size_t op, int32_t block,
                           int32_t index)
{
    const coh_pin *pin = &map->pins[index];
    const coh_graph_op_entry *entry = &graph->ops[op];
    int32_t *slot = is_of_activations(pin->place)   ? &map->of_outputs[op]
                    : pin->place == COH_PIN_PATTERN ? &map->of_patterns[op]
                                                    : &map->of_parameters[op];
    if (!is_of_activations(pin->place) && !has_parameters(entry))
        return COH_OK;
    if (pin->place == COH_PIN_RECOMPUTE && (block < 0 || block >= COH_BLOCK_SET_MOST))
        return coh_fail(COH_ERR_ARGUMENT,
                        "pin '%s=recompute': operator %s is in no block, and blocks are what is "
                        "recomputed",
                        pin->target, entry->name);
    if (*slot >= 0 && !agree(&map->pins[*slot], pin))
        return contradict(&map->pins[*slot], pin, entry);
    *slot = index;
    return COH_OK;
}

static coh_status resolve_pin(coh_pin_map *map, const coh_graph *graph, int32_t index)
{
    const coh_pin *pin = &map->pins[index];
    int some = 0;
    int32_t block = 0;
    for (size_t op = 0; op < graph->op_count; op++) {
        int32_t of = graph->ops[op].block;
        block += op > 0 && graph->ops[op - 1].block >= 0 && graph->ops[op - 1].block != of;
        if (!names(pin, &graph->ops[op], of >= 0 ? block : -1))
            continue;
        COH_TRY(take_pin(map, graph, op, of >= 0 ? block : -1, index));
        some |= is_of_activations(pin->place) || has_parameters(&graph->ops[op]);
    }
    if (some)
        return COH_OK;
    if (strncmp(pin->target, BLOCKS, strlen(BLOCKS)) == 0)
        return coh_fail(COH_ERR_ARGUMENT, "pin '%s=%s': the model has %d blocks, 0 and on",
                        pin->target, coh_pin_decision(pin), coh_graph_block_count(graph));
    return fail_pin(pin, is_of_activations(pin->place) ? "it names no operator of the model"
                                                       : "it names no operator with parameters");
}

/* Checks that all operators of a block agree: a block is recomputed as a whole. */
static coh_status check_blocks(const coh_pin_map *map, const coh_graph *graph)
{
    for (size_t op = 0; op < graph->op_count; op++) {
        const int32_t block = graph->ops[op].block, pin = map->of_outputs[op];
        for (size_t other = op + 1;
             block >= 0 && pin >= 0 && other < graph->op_count && graph->ops[other].block == block;
             other++) {
            const int32_t its = map->of_outputs[other];
            if (its >= 0 && (map->pins[its].place == COH_PIN_RECOMPUTE) !=
                                (map->pins[pin].place == COH_PIN_RECOMPUTE))
                return contradict(&map->pins[pin], &map->pins[its], &graph->ops[other]);
        }
    }
    return COH_OK;
}

/* Finds by graph parameter the pin of the operators that use it, of those by operator; -1: none.
 * Fails: COH_ERR_ARGUMENT if two of them do not agree. */
static coh_status pins_of_parameters(const coh_pin_map *map, const coh_graph *graph,
                                     const int32_t *by_operator, int32_t *out_of_parameter)
{
    for (size_t i = 0; i < graph->parameter_count; i++)
        out_of_parameter[i] = -1;
    for (size_t op = 0; op < graph->op_count; op++) {
        const coh_graph_op_entry *entry = &graph->ops[op];
        const int32_t pin = by_operator[op];
        for (int32_t port = 0; pin >= 0 && port < entry->kind.parameter_count; port++) {
            if (entry->parameter[port] < 0)
                continue;
            int32_t *its = &out_of_parameter[entry->parameter[port]];
            if (*its >= 0 && !agree(&map->pins[*its], &map->pins[pin]))
                return contradict(&map->pins[*its], &map->pins[pin], entry);
            *its = pin;
        }
    }
    return COH_OK;
}

/* Checks that operators that share a parameter agree on its pins. */
static coh_status check_shared(const coh_pin_map *map, const coh_graph *graph)
{
    int32_t *pins = NULL;
    coh_status status = COH_ALLOC(graph->parameter_count, &pins);
    if (status == COH_OK)
        status = pins_of_parameters(map, graph, map->of_parameters, pins);
    if (status == COH_OK)
        status = pins_of_parameters(map, graph, map->of_patterns, pins);
    coh_free(pins);
    return status;
}

static coh_status resolve(const coh_graph *graph, const coh_plan_options *options, coh_pin_map *map)
{
    map->pins = options->pins;
    COH_TRY(COH_ALLOC(graph->op_count, &map->of_parameters));
    COH_TRY(COH_ALLOC(graph->op_count, &map->of_outputs));
    COH_TRY(COH_ALLOC(graph->op_count, &map->of_patterns));
    for (size_t op = 0; op < graph->op_count; op++)
        map->of_parameters[op] = map->of_outputs[op] = map->of_patterns[op] = -1;
    for (int32_t i = 0; i < options->pin_count; i++)
        COH_TRY(resolve_pin(map, graph, i));
    COH_TRY(check_blocks(map, graph));
    return check_shared(map, graph);
}

int coh_pins_have_patterns(const coh_plan_options *options)
{
    for (int32_t i = 0; i < options->pin_count; i++)
        if (options->pins[i].place == COH_PIN_PATTERN)
            return 1;
    return 0;
}

coh_status coh_pins_patterns(const coh_graph *graph, const coh_plan_options *options,
                             int32_t *out_of_parameter)
{
    coh_pin_map map = { 0 };
    coh_status status = resolve(graph, options, &map);
    if (status == COH_OK)
        status = pins_of_parameters(&map, graph, map.of_patterns, out_of_parameter);
    coh_pin_map_fini(&map);
    return status;
}

coh_status coh_pins_check(const coh_graph *graph, const coh_plan_options *options)
{
    coh_pin_map map = { 0 };
    if (options->pin_count < 0 || options->pin_count > COH_PINS_MOST)
        return coh_fail(COH_ERR_ARGUMENT, "%d pins are not 0..%d", options->pin_count,
                        COH_PINS_MOST);
    for (int32_t i = 0; i < options->pin_count; i++)
        COH_TRY(check_tiers(options, &options->pins[i]));
    coh_status status = options->pin_count > 0 ? resolve(graph, options, &map) : COH_OK;
    coh_pin_map_fini(&map);
    return status;
}

int coh_pins_need_far(const coh_plan_options *options)
{
    for (int32_t i = 0; i < options->pin_count; i++)
        if (options->pins[i].place == COH_PIN_HOST || options->pins[i].place == COH_PIN_DISK ||
            options->pins[i].place == COH_PIN_OFFLOAD)
            return 1;
    return 0;
}

void coh_pin_map_blocks(const coh_pin_map *map, const coh_graph *graph, coh_block_set *blocks)
{
    for (size_t op = 0; op < graph->op_count; op++) {
        if (graph->ops[op].block < 0 || map->of_outputs[op] < 0)
            continue;
        const int32_t block = graph->ops[op].blocks_before;
        if (map->pins[map->of_outputs[op]].place == COH_PIN_RECOMPUTE)
            coh_block_set_add(blocks, block);
        else
            coh_block_set_remove(blocks, block);
    }
}

coh_status coh_pins_blocks(const coh_graph *graph, const coh_plan_options *options,
                           coh_block_set *blocks)
{
    coh_pin_map map = { 0 };
    coh_status status = options->pin_count > 0 ? resolve(graph, options, &map) : COH_OK;
    if (status == COH_OK && options->pin_count > 0)
        coh_pin_map_blocks(&map, graph, blocks);
    coh_pin_map_fini(&map);
    return status;
}

/* ---- blame ---- */

/* Computes the least device bytes with the first `count` pins, with and without recomputation. */
static coh_status bound_with(const coh_graph *graph, const coh_plan_options *options,
                             const coh_decisions *smallest, int32_t count, uint64_t *out_bytes)
{
    coh_plan_options some = *options;
    some.pin_count = count;
    *out_bytes = UINT64_MAX;
    for (int all = 0; all < 2; all++) {
        coh_decisions decisions = *smallest;
        uint64_t bytes = 0;
        decisions.recompute = coh_block_set_first(
            all && options->recompute != COH_RECOMPUTE_NONE ? coh_graph_block_count(graph) : 0);
        COH_TRY(coh_schedule_bound(graph, &some, &decisions, &bytes, NULL));
        *out_bytes = bytes < *out_bytes ? bytes : *out_bytes;
    }
    return COH_OK;
}

/* `before`: the bytes that a step needs without the pin. */
static coh_status refuse_pin(const coh_pin *pin, uint64_t budget, uint64_t with, uint64_t before)
{
    coh_refusal refusal = coh_refusal_bytes(COH_REFUSAL_PIN, COH_TIER_DEVICE, budget, with);
    refusal.is_least = refusal.is_proven = 1;
    snprintf(refusal.pin, sizeof(refusal.pin), "%s=%s", pin->target, coh_pin_decision(pin));
    coh_refusal_add(&refusal, COH_CHANGE_DROP_PIN, before);
    coh_refusal_raise(&refusal, COH_TIER_DEVICE, with);
    refusal.changes[1].is_least = 1;
    return coh_refuse(&refusal);
}

coh_status coh_pins_blame(const coh_graph *graph, const coh_plan_options *options,
                          const coh_decisions *smallest)
{
    const uint64_t budget = options->device_memory_bytes;
    uint64_t before = 0, with = 0;
    for (int32_t count = 0; count <= options->pin_count; count++) {
        COH_TRY(bound_with(graph, options, smallest, count, &with));
        if (with > budget && count == 0)
            return COH_OK;
        if (with > budget)
            return refuse_pin(&options->pins[count - 1], budget, with, before);
        before = with;
    }
    return COH_OK;
}

/* ---- by chunk ---- */

static void set_object(const coh_layout *layout, int32_t object, uint8_t *by_chunk, int value)
{
    if (object < 0)
        return;
    const coh_object *facts = &layout->objects[object];
    for (uint32_t i = 0; i < facts->chunk_count; i++)
        by_chunk[facts->chunk_begin + i] |= (uint8_t)value;
}

static void pin_weights(coh_pin_map *map, const coh_layout *layout, int32_t work,
                        coh_pin_place place)
{
    if (place == COH_PIN_DEVICE) {
        set_object(layout, work, map->on_device, 1);
        return;
    }
    set_object(layout, work, map->device_rules, COH_CHUNK_AWAY);
    if (place == COH_PIN_HOST)
        set_object(layout, work, map->on_host, 1);
    else
        set_object(layout, work, map->host_rules, COH_CHUNK_AWAY);
}

/* Pins the weights of a group, unless they must lie in the working store anyway (send_away). */
static void pin_group(coh_pin_map *map, const coh_layout *layout, int32_t group,
                      coh_pin_place place)
{
    if (!layout->keeps_old || !coh_group_is_trained(&layout->groups[group]))
        pin_weights(map, layout, coh_group_kept_work(&layout->groups[group]), place);
}

/* Keeps weights and states of a trained group in the working store between programs. */
static void send_away(coh_pin_map *map, const coh_layout *layout, int32_t group)
{
    const coh_group_layout *facts = &layout->groups[group];
    if (!coh_group_is_trained(facts))
        return;
    pin_weights(map, layout, facts->work, COH_PIN_DISK);
    if (facts->state >= 0)
        pin_weights(map, layout, facts->state, COH_PIN_DISK);
}

static void pin_outputs(coh_pin_map *map, const coh_graph *graph, const coh_layout *layout,
                        const coh_object_map *objects, size_t op)
{
    const coh_graph_op_entry *entry = &graph->ops[op];
    const coh_pin_place place = map->pins[map->of_outputs[op]].place;
    const int rule = place == COH_PIN_KEEP      ? COH_CHUNK_STAYS
                     : place == COH_PIN_OFFLOAD ? COH_CHUNK_LEAVES
                                                : 0;
    for (int32_t port = 0; port < entry->kind.output_count; port++)
        set_object(layout, objects->activation[entry->output[port]], map->device_rules, rule);
    set_object(layout, objects->saved[op], map->device_rules, rule);
    set_object(layout, objects->cache[op], map->device_rules, rule);
}

/* Returns the pinned place of an operator's weights; COH_PIN_PLACE_COUNT: any. */
static coh_pin_place place_of_weights(const coh_pin_map *map, const coh_graph *graph, size_t op,
                                      int32_t resident)
{
    if (map->of_parameters[op] >= 0)
        return map->pins[map->of_parameters[op]].place;
    int is_resident = graph->ops[op].block >= 0 && graph->ops[op].blocks_before < resident;
    return is_resident ? COH_PIN_DEVICE : COH_PIN_PLACE_COUNT;
}

coh_status coh_pin_map_make(const coh_graph *graph, const coh_plan_options *options,
                            int32_t resident, const coh_layout *layout,
                            const coh_object_map *objects, coh_pin_map *out_map)
{
    coh_status status = COH_OK;
    coh_pin_map *map = out_map;
    *map = (coh_pin_map){ 0 };
    COH_TRY_GOTO(status, resolve(graph, options, map), fail);
    COH_TRY_GOTO(status, COH_ALLOC(layout->chunk_count, &map->on_device), fail);
    COH_TRY_GOTO(status, COH_ALLOC(layout->chunk_count, &map->on_host), fail);
    COH_TRY_GOTO(status, COH_ALLOC(layout->chunk_count, &map->device_rules), fail);
    COH_TRY_GOTO(status, COH_ALLOC(layout->chunk_count, &map->host_rules), fail);
    for (size_t op = 0; op < graph->op_count; op++) {
        const coh_graph_op_entry *entry = &graph->ops[op];
        const coh_pin_place place = place_of_weights(map, graph, op, resident);
        for (int32_t port = 0; port < entry->kind.parameter_count; port++)
            if (place != COH_PIN_PLACE_COUNT && entry->parameter[port] >= 0)
                pin_group(map, layout, objects->group_of_parameter[entry->parameter[port]], place);
        if (map->of_outputs[op] >= 0)
            pin_outputs(map, graph, layout, objects, op);
    }
    for (int32_t group = 0; layout->keeps_old && group < (int32_t)layout->group_count; group++)
        send_away(map, layout, group);
    return COH_OK;
fail:
    coh_pin_map_fini(map);
    return status;
}

void coh_pin_map_fini(coh_pin_map *map)
{
    coh_free(map->on_device);
    coh_free(map->on_host);
    coh_free(map->device_rules);
    coh_free(map->host_rules);
    coh_free(map->of_parameters);
    coh_free(map->of_outputs);
    coh_free(map->of_patterns);
    *map = (coh_pin_map){ 0 };
}

/* ---- files ---- */

/* Pins in a file:
 *
 *     {"format": "cohobate pins", "version": 1,
 *      "pins": [{"target": "blocks.0-3", "parameters": "device", "activations": "recompute",
 *                "ranks": "zero3"}, ...]}
 *
 * An entry has a target and at least one of the others. Written by people: no seal. */

#define FILE_BYTES_MOST ((uint64_t)16 << 20)

typedef struct pin_entry {
    char target[COH_PIN_TARGET_BYTES];
    uint32_t parameters, activations;   /* indices below; 0: not given */
    char ranks[COH_RANK_PATTERN_BYTES]; /* "": not given */
} pin_entry;

typedef struct pin_list {
    pin_entry *entries;
    uint32_t count;
} pin_list;

static const char *const parameter_places[] = { "", "device", "host", "disk", NULL };
static const char *const activation_places[] = { "", "keep", "recompute", "offload", NULL };

static coh_status check_entry(const coh_json_place *at, void *object)
{
    const pin_entry *entry = object;
    return entry->parameters > 0 || entry->activations > 0 || entry->ranks[0] != '\0'
               ? COH_OK
               : coh_json_fail(at, "it has none of \"parameters\", \"activations\" and \"ranks\"");
}

static const coh_json_field entry_fields[] = {
    { "target", COH_JSON_TEXT, COH_JSON_AT(pin_entry, target) },
    { "parameters", COH_JSON_CHOICE, COH_JSON_AT(pin_entry, parameters), .rule = COH_JSON_MAY_LACK,
      .names = parameter_places },
    { "activations", COH_JSON_CHOICE, COH_JSON_AT(pin_entry, activations),
      .rule = COH_JSON_MAY_LACK, .names = activation_places },
    { "ranks", COH_JSON_TEXT, COH_JSON_AT(pin_entry, ranks), .rule = COH_JSON_UNLESS_ZERO },
    { 0 },
};

static const coh_json_field list_fields[] = {
    { "pins", COH_JSON_ARRAY, COH_JSON_AT_ARRAY(pin_list, entries, count), .most = COH_PINS_MOST,
      .fields = entry_fields, .check = check_entry },
    { 0 },
};

static const coh_json_file pins_file = {
    .what = "list of pins", .format = "cohobate pins", .version = 1, .fields = list_fields
};

/* Adds the pins of an entry: one to three. */
static coh_status add_pins(const pin_entry *entry, coh_pin *pins, int32_t *count)
{
    const char *const places[] = { parameter_places[entry->parameters],
                                   activation_places[entry->activations], entry->ranks };
    if (entry->ranks[0] != '\0' && !is_pattern(entry->ranks))
        return coh_fail(COH_ERR_CORRUPT, "\"ranks\" is \"%s\", which is no rank pattern",
                        entry->ranks);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char text[COH_PIN_TARGET_BYTES + COH_RANK_PATTERN_BYTES];
        if (places[i][0] == '\0')
            continue;
        if (*count >= COH_PINS_MOST)
            return coh_fail(COH_ERR_CORRUPT, "more than %d pins", COH_PINS_MOST);
        snprintf(text, sizeof(text), "%s=%s", entry->target, places[i]);
        COH_TRY(coh_pin_parse(text, &pins[(*count)++]));
    }
    return COH_OK;
}

static coh_status make_pins(const pin_list *list, coh_pin **out_pins, int32_t *out_count)
{
    COH_TRY(COH_ALLOC(3 * (size_t)list->count + 1, out_pins));
    for (uint32_t i = 0; i < list->count; i++)
        if (add_pins(&list->entries[i], *out_pins, out_count) != COH_OK)
            return coh_fail_prefix(COH_ERR_CORRUPT, "entry pins[%u]", i);
    return COH_OK;
}

coh_status coh_pins_parse(const char *text, size_t bytes, coh_pin **out_pins, int32_t *out_count)
{
    pin_list list = { 0 };
    *out_pins = NULL;
    *out_count = 0;
    coh_status status = coh_json_file_parse(&pins_file, text, bytes, &list);
    if (status == COH_OK)
        status = make_pins(&list, out_pins, out_count);
    coh_free(list.entries);
    if (status != COH_OK) {
        coh_free(*out_pins);
        *out_pins = NULL;
        *out_count = 0;
    }
    return status;
}

coh_status coh_pins_read(const char *path, coh_pin **out_pins, int32_t *out_count)
{
    COH_NEED_PATH(path);
    COH_NEED(out_pins);
    COH_NEED(out_count);
    char *text = NULL;
    size_t bytes = 0;
    *out_pins = NULL;
    *out_count = 0;
    COH_TRY(coh_file_read_whole(path, FILE_BYTES_MOST, &text, &bytes));
    coh_status status = coh_pins_parse(text, bytes, out_pins, out_count);
    coh_free(text);
    return status == COH_OK ? COH_OK : coh_fail_prefix(status, "%s", path);
}

void coh_pins_free(coh_pin *pins)
{
    coh_free(pins);
}
