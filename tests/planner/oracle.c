#include "tests/planner/oracle.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = 15 };

/* Everything the rest of the step depends on. */
typedef struct state {
    uint8_t position,
        running; /* next instruction; remaining time of the running instruction, 0: it waits */
    uint8_t there, changed;
    uint8_t in, in_left, out, out_left; /* item in transfer, or NONE; its remaining time */
    uint8_t slot[ORACLE_ITEMS_MOST];    /* of each item that is present */
    uint8_t in_slot;
    /* slots of old copies that the instruction still reads after the item was fetched again */
    uint8_t left_behind;
} state;

static uint64_t pack(const state *s)
{
    uint64_t key = (uint64_t)s->position | (uint64_t)s->running << 5 | (uint64_t)s->there << 8 |
                   (uint64_t)s->changed << 14 | (uint64_t)s->in << 20 | (uint64_t)s->in_left << 24 |
                   (uint64_t)s->out << 27 | (uint64_t)s->out_left << 31 |
                   (uint64_t)s->left_behind << 52 | (uint64_t)(s->in_slot & 7u) << 57;
    for (int item = 0; item < ORACLE_ITEMS_MOST; item++)
        if (s->there >> item & 1)
            key |= (uint64_t)s->slot[item] << (34 + 3 * item);
    return key;
}

/* ---- visited states ---- */

typedef struct node {
    state at;
    int next; /* next state of the same time, or -1 */
} node;

typedef struct frontier {
    const oracle_instance *instance;
    uint64_t *seen; /* open addressing; 0: free */
    size_t seen_capacity, seen_count;
    node *nodes;
    size_t node_count, node_capacity;
    int *first;    /* by time */
    int has_slots; /* all items have size one unit */
    int horizon;   /* longer times are discarded */
    state goal;
    int after[ORACLE_INSTRUCTIONS_MOST + 1]; /* time of all instructions from each one on */
} frontier;

static int insert_seen(frontier *f, uint64_t key)
{
    size_t mask = f->seen_capacity - 1;
    size_t i = (size_t)((key * 0x9E3779B97F4A7C15u) >> 20) & mask;
    for (; f->seen[i] != 0; i = (i + 1) & mask)
        if (f->seen[i] == key + 1)
            return 0;
    f->seen[i] = key + 1;
    f->seen_count++;
    return 1;
}

static int remember(frontier *f, uint64_t key)
{
    if (2 * f->seen_count >= f->seen_capacity) {
        uint64_t *old = f->seen;
        size_t count = f->seen_capacity;
        f->seen_capacity = count ? 2 * count : 4096;
        f->seen = calloc(f->seen_capacity, sizeof(*f->seen));
        f->seen_count = 0;
        for (size_t i = 0; i < count; i++)
            if (old[i] != 0)
                insert_seen(f, old[i] - 1);
        free(old);
    }
    return insert_seen(f, key);
}

/* Adds a state, unless the time of the remaining instructions alone takes it to the horizon. */
static void push(frontier *f, const state *s, int time)
{
    int instructions_left = f->after[s->position];
    if (s->running > 0)
        instructions_left -= f->instance->instruction[s->position].time - s->running;
    if (time + instructions_left >= f->horizon)
        return;
    if (f->node_count == f->node_capacity) {
        f->node_capacity = f->node_capacity ? 2 * f->node_capacity : 4096;
        f->nodes = realloc(f->nodes, f->node_capacity * sizeof(*f->nodes));
    }
    f->nodes[f->node_count] = (node){ .at = *s, .next = f->first[time] };
    f->first[time] = (int)f->node_count++;
}

/* ---- choices ---- */

static int bytes_of(const oracle_instance *i, unsigned items)
{
    int sum = 0;
    for (int item = 0; item < i->item_count; item++)
        sum += (items >> item) & 1 ? i->size[item] : 0;
    return sum;
}

static int is_free(const state *s)
{
    return s->in == NONE;
}

static int used(const oracle_instance *i, const state *s)
{
    return bytes_of(i, s->there) + (is_free(s) ? 0 : i->size[s->in]);
}

/* Advances to the next event: the end of an instruction or a transfer. Returns 0 if nothing is in
 * progress. */
static int advance(frontier *f, state s, int time)
{
    int step = 0;
    const int left[] = { s.running, s.in == NONE ? 0 : s.in_left, s.out == NONE ? 0 : s.out_left };
    for (int k = 0; k < 3; k++)
        if (left[k] > 0 && (step == 0 || left[k] < step))
            step = left[k];
    if (step == 0)
        return 0;
    if (s.in != NONE && (s.in_left = (uint8_t)(s.in_left - step)) == 0) {
        if ((s.there >> s.in & 1) && s.running > 0 &&
            (f->instance->instruction[s.position].reads >> s.in & 1))
            s.left_behind |= (uint8_t)(1u << s.slot[s.in]);
        s.there |= (uint8_t)(1u << s.in);
        s.slot[s.in] = s.in_slot;
        s.in = NONE;
        s.in_slot = 0;
    }
    if (s.out != NONE && (s.out_left = (uint8_t)(s.out_left - step)) == 0) {
        s.changed &= (uint8_t) ~(1u << s.out);
        s.out = NONE;
    }
    if (s.running > 0 && (s.running = (uint8_t)(s.running - step)) == 0) {
        s.position++;
        s.left_behind = 0;
    }
    push(f, &s, time + step);
    return 1;
}

/* Branches: with and without storing an item. */
static void choose_out(frontier *f, state s, int time)
{
    const oracle_instance *instance = f->instance;
    unsigned busy = s.running > 0 ? instance->instruction[s.position].changes : 0;
    advance(f, s, time);
    for (int item = 0; s.out == NONE && item < instance->item_count; item++)
        if ((s.changed & ~busy) >> item & 1) {
            state with = s;
            with.out = (uint8_t)item;
            with.out_left = (uint8_t)(instance->size[item] * instance->unit_time);
            advance(f, with, time);
        }
}

/* Returns 1 if every victim is needed to make room. */
static int is_minimal(const oracle_instance *instance, unsigned victims, int short_of)
{
    for (int item = 0; item < instance->item_count; item++)
        if ((victims >> item & 1) && bytes_of(instance, victims & ~(1u << item)) >= short_of)
            return 0;
    return bytes_of(instance, victims) >= short_of;
}

/* Fetches `item` into the room of `victims`. */
static void fetch(frontier *f, state s, int time, int item, unsigned victims, int slot)
{
    s.there &= (uint8_t)~victims;
    s.in = (uint8_t)item;
    s.in_left = (uint8_t)(f->instance->size[item] * f->instance->unit_time);
    s.in_slot = (uint8_t)slot;
    choose_out(f, s, time);
}

/* Items of one unit have slots: a free one or a victim's. A present item may be fetched to another
 * slot, too. */
static void fetch_to_slots(frontier *f, const state *s, int time, int item, unsigned may_leave)
{
    int tenant[8];
    memset(tenant, -1, sizeof(tenant));
    for (int other = 0; other < f->instance->item_count; other++)
        if (s->there >> other & 1)
            tenant[s->slot[other]] = other;
    for (int slot = 0; slot < f->instance->room; slot++)
        if ((s->left_behind >> slot & 1) || tenant[slot] == item)
            continue;
        else if (tenant[slot] < 0)
            fetch(f, *s, time, item, 0, slot);
        else if (may_leave >> tenant[slot] & 1)
            fetch(f, *s, time, item, 1u << tenant[slot], slot);
}

/* Other items need only enough free bytes, at any addresses. */
static void fetch_anywhere(frontier *f, const state *s, int time, int item, unsigned may_leave)
{
    int short_of = used(f->instance, s) + f->instance->size[item] - f->instance->room;
    for (unsigned victims = 0; victims <= may_leave; victims++)
        if ((victims & ~may_leave) == 0 && is_minimal(f->instance, victims, short_of))
            fetch(f, *s, time, item, victims, 0);
}

/* Branches: with and without fetching an item, with any victims. */
static void choose_in(frontier *f, const state *s, int time)
{
    unsigned held = s->running > 0 ? f->instance->instruction[s->position].reads : 0;
    if (s->out != NONE)
        held |= 1u << s->out;
    unsigned may_leave = s->there & ~s->changed & ~held;
    choose_out(f, *s, time);
    for (int item = 0; s->in == NONE && item < f->instance->item_count; item++) {
        if ((s->there >> item & 1) && (!f->has_slots || (s->changed >> item & 1)))
            continue;
        if (f->has_slots)
            fetch_to_slots(f, s, time, item, may_leave);
        else
            fetch_anywhere(f, s, time, item, may_leave);
    }
}

/* An instruction starts as soon as it can: waiting would free nothing else. */
static void expand(frontier *f, state s, int time)
{
    const oracle_instruction *instruction = &f->instance->instruction[s.position];
    int is_being_stored = s.out != NONE && (instruction->changes >> s.out & 1);
    if (s.running == 0 && (instruction->reads & ~s.there) == 0 && !is_being_stored) {
        s.running = (uint8_t)instruction->time;
        s.changed |= instruction->changes;
    }
    choose_in(f, &s, time);
}

/* ---- one initial state ---- */

/* Returns 1 if the state has at least what the step began with, so the next step can start from
 * it. */
static int closes(const state *s, const state *goal)
{
    for (int item = 0; item < ORACLE_ITEMS_MOST; item++)
        if ((goal->there >> item & 1) && s->slot[item] != goal->slot[item])
            return 0;
    if ((goal->there & ~s->there) != 0 || (s->changed & goal->there & ~goal->changed) != 0)
        return 0;
    if (s->out != NONE && (s->out != goal->out || s->out_left > goal->out_left))
        return 0;
    if (goal->out != NONE && s->out == NONE && (s->changed >> goal->out & 1))
        return 0;
    unsigned extra = s->there & ~goal->there;
    if (goal->in == NONE)
        return s->in == NONE && (s->changed & extra) == 0;
    if (s->in == NONE)
        return (extra >> goal->in & 1) && (s->changed & extra) == 0 &&
               s->slot[goal->in] == goal->in_slot;
    return s->in == goal->in && s->in_slot == goal->in_slot && s->in_left <= goal->in_left &&
           (s->changed & extra) == 0;
}

/* Returns the shortest time back to `goal`, or the horizon if it is not below that. */
static int shortest(frontier *f)
{
    f->node_count = 0;
    memset(f->first, -1, (size_t)f->horizon * sizeof(*f->first));
    if (f->seen_capacity > 0)
        memset(f->seen, 0, f->seen_capacity * sizeof(*f->seen));
    f->seen_count = 0;
    push(f, &f->goal, 0);
    for (int time = 0; time < f->horizon; time++)
        while (f->first[time] >= 0) {
            node n = f->nodes[f->first[time]];
            f->first[time] = n.next;
            int has_ended = n.at.position == f->instance->instruction_count;
            if (has_ended && closes(&n.at, &f->goal))
                return time;
            if (!has_ended && remember(f, pack(&n.at)))
                expand(f, n.at, time);
        }
    return f->horizon;
}

static int is_possible(const oracle_instance *instance, int has_slots, const state *s)
{
    unsigned can_change = 0;
    for (int instruction = 0; instruction < instance->instruction_count; instruction++)
        can_change |= instance->instruction[instruction].changes;
    return (s->changed & ~s->there) == 0 && (s->changed & ~can_change) == 0 &&
           used(instance, s) <= instance->room &&
           (s->in == NONE || !((has_slots ? s->changed : s->there) >> s->in & 1)) &&
           (s->out == NONE || (s->changed >> s->out & 1));
}

/* Slots are interchangeable at the begin of a step; it only matters that the end has the same
 * ones. */
static void number_slots(const frontier *f, state *s)
{
    uint8_t slot = 0;
    for (int item = 0; f->has_slots && item < ORACLE_ITEMS_MOST; item++)
        if (s->there >> item & 1)
            s->slot[item] = slot++;
    if (f->has_slots && s->in != NONE)
        s->in_slot = slot;
}

/* Tries every set of transfers in progress for one set of present items. */
static int try_beginnings(frontier *f, unsigned there, unsigned changed, int best)
{
    const oracle_instance *instance = f->instance;
    for (int in = -1; in < instance->item_count; in++)
        for (int in_left = 1; in_left <= (in < 0 ? 1 : instance->size[in] * instance->unit_time);
             in_left++)
            for (int out = -1; out < instance->item_count; out++)
                for (int out_left = 1;
                     out_left <= (out < 0 ? 1 : instance->size[out] * instance->unit_time);
                     out_left++) {
                    state s = { .there = (uint8_t)there,
                                .changed = (uint8_t)changed,
                                .in = (uint8_t)(in < 0 ? NONE : in),
                                .in_left = (uint8_t)(in < 0 ? 0 : in_left),
                                .out = (uint8_t)(out < 0 ? NONE : out),
                                .out_left = (uint8_t)(out < 0 ? 0 : out_left) };
                    if (!is_possible(instance, f->has_slots, &s) || best == f->after[0])
                        continue;
                    number_slots(f, &s);
                    f->goal = s;
                    f->horizon = best;
                    best = shortest(f);
                }
    return best;
}

int oracle_period(const oracle_instance *instance)
{
    frontier f = { .instance = instance, .has_slots = 1 };
    int most = 1;
    for (int item = 0; item < instance->item_count; item++)
        f.has_slots &= instance->size[item] == 1;
    for (int instruction = instance->instruction_count - 1; instruction >= 0; instruction--) {
        f.after[instruction] = f.after[instruction + 1] + instance->instruction[instruction].time;
        for (int item = 0; item < instance->item_count;
             item++) /* fetched or stored, item by item */
            if (instance->instruction[instruction].reads >> item & 1)
                most += 2 * instance->size[item] * instance->unit_time;
    }
    most += f.after[0];
    f.first = malloc((size_t)(most + 1) * sizeof(*f.first));
    int best = most;
    unsigned all = (1u << instance->item_count) - 1;
    for (unsigned absent = 0; absent <= all; absent++)
        for (unsigned changed = 0; changed <= all; changed++)
            best = try_beginnings(&f, all & ~absent, changed, best);
    free(f.first);
    free(f.seen);
    free(f.nodes);
    return best < most ? best : 0;
}
