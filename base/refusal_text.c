/* Writes the sentence of a refusal. The idea: one function per reason says what is short, one table
 * has the text of each change, and options have the caller's words (terms.h). Next: refusal.c. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/bytes.h"
#include "base/plural.h"
#include "base/refusal.h"
#include "cohobate/machine.h"

enum { TIERS = 3, DEVICE = 0, HOST = 1, DISK = 2 };

typedef struct writer {
    char *text;
    size_t bytes, used;
} writer;

__attribute__((format(printf, 2, 3))) static void add(writer *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(w->text + w->used, w->bytes - w->used, format, arguments);
    va_end(arguments);
    if (length > 0)
        w->used += (size_t)length < w->bytes - w->used ? (size_t)length : w->bytes - w->used - 1;
}

static const char *term(coh_term which)
{
    return coh_term_text(which);
}

static const char *tier_label(int32_t tier, const char *otherwise)
{
    static const char *const labels[TIERS] = { "device memory", "host memory", "disk" };
    return tier >= 0 && tier < TIERS ? labels[tier] : otherwise;
}

/* The subject of a sentence. */
static const char *label(const coh_refusal *r)
{
    return tier_label(r->tier, "memory");
}

/* The option of a tier's budget. */
static const char *budget(const coh_refusal *r, int32_t tier)
{
    if (tier == HOST)
        return term(r->is_gpu ? COH_TERM_HOST_MEMORY : COH_TERM_EMULATED_HOST);
    return term(tier == DISK ? COH_TERM_DISK_LIMIT : COH_TERM_DEVICE_MEMORY);
}

typedef struct size_text {
    char at[32];
} size_text;

static size_text size_of(uint64_t bytes)
{
    size_text text;
    (void)coh_size_format(bytes, text.at, sizeof(text.at));
    return text;
}

/* Sizes that a person types: not less than `bytes`, and not more. */
static size_text enough_of(uint64_t bytes)
{
    size_text text;
    (void)coh_size_round_up(bytes, text.at, sizeof(text.at));
    return text;
}

static size_text most_of(uint64_t bytes)
{
    size_text text;
    (void)coh_size_round_down(bytes, text.at, sizeof(text.at));
    return text;
}

/* "1 byte", "2 bytes" */
static size_text count_of(uint64_t bytes)
{
    size_text text;
    snprintf(text.at, sizeof(text.at), "%" PRIu64 " byte%s", bytes, COH_PLURAL_S(bytes));
    return text;
}

static const char *at_least(int32_t is_least)
{
    return is_least ? "at least " : "";
}

/* ---- what is short ---- */

/* " with this chunk size and these pins" */
static void add_by_hand(writer *w, const coh_refusal *r)
{
    const struct {
        uint32_t bit;
        const char *word, *option;
    } all[] = { { COH_BY_HAND_CHUNK, "this ", term(COH_TERM_CHUNK) },
                { COH_BY_HAND_RECOMPUTE, "this ", term(COH_TERM_RECOMPUTE) },
                { COH_BY_HAND_PINS, "these ", "pins" } };
    const char *before = " with ";
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (r->by_hand & all[i].bit) {
            add(w, "%s%s%s", before, all[i].word, all[i].option);
            before = " and ";
        }
}

static void say_step(writer *w, const coh_refusal *r)
{
    add(w, "device memory: %s (%s) are %s short: one step of this plan needs at least %s at once",
        size_of(r->given_bytes).at, count_of(r->given_bytes).at, count_of(r->short_bytes).at,
        size_of(r->needed_bytes).at);
    if (r->operator_name[0])
        add(w, ", most for %s", r->operator_name);
    add(w,
        " (%s:", r->is_proven ? "proven" : "of ranges of rows as short as the search takes them");
    add_by_hand(w, r);
    add(w, " no schedule of these operators and this micro-batch needs less)");
}

static void say_in_memory(writer *w, const coh_refusal *r)
{
    add(w, "device memory: %s (%s) are %s%s short: this step needs %s%s without a far tier",
        size_of(r->given_bytes).at, count_of(r->given_bytes).at, at_least(r->is_least),
        count_of(r->short_bytes).at, at_least(r->is_least), size_of(r->needed_bytes).at);
}

static void say_room(writer *w, const coh_refusal *r, const char *what)
{
    add(w, "%s: %s %s, %s allows %" PRIu64 ": %s short", label(r), what,
        count_of(r->needed_bytes).at, budget(r, r->tier), r->given_bytes,
        count_of(r->short_bytes).at);
}

static void say_states(writer *w, const coh_refusal *r)
{
    say_room(w, r, "parameters and optimizer states take");
}

static void say_far_tier(writer *w, const coh_refusal *r)
{
    say_room(w, r, r->tier == DISK ? "the working store needs" : "the host tier needs");
}

static void say_fixed(writer *w, const coh_refusal *r)
{
    say_room(w, r, "cells, inputs and outputs take");
}

static void say_pins(writer *w, const coh_refusal *r)
{
    say_room(w, r, "pins hold");
}

static void say_all_tiers(writer *w, const coh_refusal *r)
{
    add(w,
        "all tiers together hold %s (%s), %s short: a step keeps at least %s at once (parameters, "
        "states and activations%s)",
        size_of(r->given_bytes).at, count_of(r->given_bytes).at, count_of(r->short_bytes).at,
        size_of(r->needed_bytes).at,
        r->by_hand & COH_BY_HAND_RECOMPUTE ? "" : " with all blocks recomputed");
}

static void say_window(writer *w, const coh_refusal *r)
{
    add(w, "%s: its %s cannot hold what one instruction needs at once", label(r),
        count_of(r->given_bytes).at);
    if (r->operator_name[0])
        add(w, " for %s", r->operator_name);
}

static void say_pin(writer *w, const coh_refusal *r)
{
    add(w,
        "pin '%s': with it a step needs %s of device memory at once, there are %" PRIu64
        ": %s short",
        r->pin, count_of(r->needed_bytes).at, r->given_bytes, count_of(r->short_bytes).at);
}

static void say_placement(writer *w, const coh_refusal *r)
{
    say_room(w, r, "this placement needs");
}

static void say_search(writer *w, const coh_refusal *r)
{
    if (r->needed_bytes > 0)
        add(w,
            "disk writes: wear_bytes lets a step write %s, the least that one was found to write "
            "is %s",
            count_of(r->given_bytes).at, count_of(r->needed_bytes).at);
    else
        add(w, "no plan was found within these limits, though none was proven impossible");
}

static void say_length(writer *w, const coh_refusal *r)
{
    add(w, "a step");
    if (r->microbatch_count > 0)
        add(w, " of %d micro-batch%s", (int)r->microbatch_count,
            r->microbatch_count == 1 ? "" : "es");
    if (r->count == 0) {
        add(w, " has no plan that is short enough within these limits");
        return;
    }
    add(w, " has %s%" PRIu64 " %s", at_least(r->is_least), r->count,
        coh_refusal_unit_name(r->unit));
    if (r->chunk_bytes > 0)
        add(w, " (in chunks of at most %s)", count_of(r->chunk_bytes).at);
    add(w, ", and %" PRIu64 " are the most that are planned", r->count_most);
}

static void say_size(writer *w, const coh_refusal *r)
{
    (void)r;
    add(w, "a size overflows 64 bits: the model or batch is too large");
}

static void say_cgroup(writer *w, const coh_refusal *r)
{
    add(w,
        "%s: up to %s of main memory are used, and the cgroup of %s%s has a limit of %" PRIu64
        ": %s short",
        label(r), count_of(r->needed_bytes).at, r->profile[0] ? "profile " : "this process",
        r->profile, r->given_bytes, count_of(r->short_bytes).at);
}

static void say_memlock(writer *w, const coh_refusal *r)
{
    add(w, "%s: the plan pins %s of it, and profile %s locks at most %s (memlock): %s short",
        label(r), count_of(r->needed_bytes).at, r->profile, count_of(r->given_bytes).at,
        count_of(r->short_bytes).at);
}

static void say_machine(writer *w, const coh_refusal *r)
{
    const int is_of_gpu = r->is_gpu && r->tier == DEVICE;
    add(w, "%s: the plan takes %s of %s memory%s, and %s may be taken now", label(r),
        size_of(r->needed_bytes).at, is_of_gpu ? "the GPU's" : "this machine's",
        r->is_gpu && !is_of_gpu ? " with its staging buffers" : "", size_of(r->given_bytes).at);
    if (r->items[0])
        add(w, " (%s)", r->items);
    add(w, ": %s short", count_of(r->short_bytes).at);
}

static void say_plan_file(writer *w, const coh_refusal *r)
{
    add(w, "%s: %s needs %s of it, ", label(r), r->path, count_of(r->needed_bytes).at);
    if (r->profile[0])
        add(w, "the profile %s has %" PRIu64, r->profile, r->given_bytes);
    else
        add(w, "there are %" PRIu64, r->given_bytes);
    add(w, ": %s short", count_of(r->short_bytes).at);
}

static size_text daily_of(uint64_t bytes)
{
    size_text text;
    (void)coh_daily_round_up(bytes, text.at, sizeof(text.at));
    return text;
}

static void say_writes(writer *w, const coh_refusal *r)
{
    add(w, "%s writes %s to the drive, %s allows %s",
        r->is_proven ? "this plan" : "the fastest plan", daily_of(r->needed_bytes).at,
        term(COH_TERM_WRITE_LIMIT), daily_of(r->given_bytes).at);
}

static void say_free_space(writer *w, const coh_refusal *r)
{
    add(w, "the file system of %s has %s free, and %s is needed there", r->path,
        size_of(r->given_bytes).at, size_of(r->needed_bytes).at);
    if (r->items[0])
        add(w, " (%s)", r->items);
}

/* ---- what helps ---- */

static void add_micro_batch(writer *w, const coh_change *c)
{
    if (c->microbatch > 0)
        add(w, ", where micro-batch %" PRId64 " fits", c->microbatch);
}

static void add_to(writer *w, const char *verb, const char *option, const coh_change *c)
{
    const int is_raised = c->kind == COH_CHANGE_RAISE;
    add(w, "%s %s", verb, option);
    if (c->bytes > 0)
        add(w, " to %s%s", at_least(c->is_least),
            is_raised ? enough_of(c->bytes).at : most_of(c->bytes).at);
    if (c->bytes > 0 && is_raised)
        add_micro_batch(w, c);
}

/* "give --disk DIR:155.8MiB", as it is typed; of a lower bound "DIR:SIZE of at least 155.8MiB". */
static void add_larger_disk(writer *w, const coh_refusal *r, const coh_change *c)
{
    const char *raised = term(COH_TERM_DISK_RAISED);
    if (c->bytes == 0 || raised[0] == '\0')
        add_to(w, "raise", budget(r, c->tier), c);
    else
        add(w, "give %s%s%s", raised, c->is_least ? "SIZE of at least " : "",
            enough_of(c->bytes).at);
}

static void add_disk(writer *w, const coh_change *c)
{
    if (c->bytes == 0) {
        add(w, "give %s", term(COH_TERM_A_DISK));
        return;
    }
    add(w, "a change that is enough: %s%s%s", term(COH_TERM_A_DISK), term(COH_TERM_DISK_SIZE),
        enough_of(c->bytes).at);
    add_micro_batch(w, c);
}

static void add_dropped(writer *w, const coh_refusal *r, const coh_change *c)
{
    if (c->kind == COH_CHANGE_DROP_CHUNK)
        add(w, "leave out %s", term(COH_TERM_CHUNK));
    else if (c->kind == COH_CHANGE_DROP_RECOMPUTE)
        add(w, "give %s auto", term(COH_TERM_RECOMPUTE));
    else
        add(w, "leave out %s",
            c->kind == COH_CHANGE_DROP_PINS ? "pins"
            : r->reason == COH_REFUSAL_PIN  ? "the pin"
                                            : "a pin");
    if (c->bytes > 0)
        add(w, " (then at least %s)", enough_of(c->bytes).at);
}

static void add_frozen_nf4(writer *w, const coh_change *c)
{
    add(w, "give %s, which rounds frozen weights to 4 bits", term(COH_TERM_FROZEN_NF4));
    if (c->bytes > 0)
        add(w, ": a plan then takes %s of %s", enough_of(c->bytes).at,
            tier_label(c->tier, "all tiers together"));
}

/* Changes whose texts are words and an option. */
static int add_plain(writer *w, coh_change_kind kind)
{
    static const struct {
        coh_change_kind kind;
        const char *verb;
        coh_term term;
    } all[] = { { COH_CHANGE_RAISE_CHUNK, "raise", COH_TERM_CHUNK },
                { COH_CHANGE_LOWER_CHUNK, "lower", COH_TERM_CHUNK },
                { COH_CHANGE_RAISE_MICROBATCH, "raise", COH_TERM_MICRO_BATCH },
                { COH_CHANGE_LOWER_MICROBATCH, "lower", COH_TERM_MICRO_BATCH },
                { COH_CHANGE_RAISE_BATCH, "give a larger", COH_TERM_BATCH },
                { COH_CHANGE_LOWER_BATCH, "lower", COH_TERM_BATCH } };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i].kind == kind) {
            add(w, "%s %s", all[i].verb, term(all[i].term));
            return 1;
        }
    return 0;
}

static void add_limit(writer *w, const coh_refusal *r, const coh_change *c)
{
    switch (c->kind) {
    case COH_CHANGE_RAISE_CGROUP:
        add(w, "raise its memory.high or memory.max%s", r->profile[0] ? " and measure again" : "");
        return;
    case COH_CHANGE_RAISE_MEMLOCK:
        add(w, "ulimit -l unlimited (LimitMEMLOCK=infinity in a service's unit) and measure again");
        return;
    case COH_CHANGE_RAISE_WRITES:
        add(w, "raise %s", term(COH_TERM_WRITE_LIMIT));
        if (c->bytes > 0)
            add(w, " to %s, the least that a plan was found for", daily_of(c->bytes).at);
        return;
    case COH_CHANGE_RAISE_WEAR:
        add(w, "raise wear_bytes");
        if (c->bytes > 0)
            add(w, " to %" PRIu64, c->bytes);
        return;
    case COH_CHANGE_PLAN_AGAIN:
        add(w, "plan again for what there is");
        return;
    case COH_CHANGE_MEASURE_DRIVE:
        add(w, "use a disk: %s %s knows no drive, %s adds it", term(COH_TERM_PROFILE), r->profile,
            term(COH_TERM_MEASURE_DRIVE));
        return;
    case COH_CHANGE_FREE_SPACE:
        add(w, "free %s or name a folder elsewhere", size_of(c->bytes).at);
        return;
    case COH_CHANGE_FEWER_OPERATORS:
        add(w, "give the model fewer and larger operators");
        return;
    default:
        return;
    }
}

static void add_change(writer *w, const coh_refusal *r, const coh_change *c)
{
    const int is_of_profile = r->reason == COH_REFUSAL_PLAN_FILE && r->profile[0];
    if (c->kind == COH_CHANGE_RAISE && is_of_profile)
        add_to(w, "raise its entry", label(r), c);
    else if (c->kind == COH_CHANGE_RAISE && c->tier == DISK)
        add_larger_disk(w, r, c);
    else if (c->kind == COH_CHANGE_RAISE)
        add_to(w, "raise", budget(r, c->tier), c);
    else if (c->kind == COH_CHANGE_LOWER && c->tier < 0)
        add(w, "lower %s and %s together to %s", budget(r, DEVICE), budget(r, HOST),
            most_of(c->bytes).at);
    else if (c->kind == COH_CHANGE_LOWER && c->tier == HOST && r->is_gpu && c->bytes == 0)
        add(w, "set %s to none", budget(r, HOST));
    else if (c->kind == COH_CHANGE_LOWER)
        add_to(w, "lower", budget(r, c->tier), c);
    else if (c->kind == COH_CHANGE_ADD_DISK)
        add_disk(w, c);
    else if (c->kind == COH_CHANGE_LOWER_MICROBATCH && c->microbatch > 0)
        add(w, "give %s %" PRId64 ": other rounding", term(COH_TERM_MICRO_BATCH), c->microbatch);
    else if (c->kind >= COH_CHANGE_DROP_CHUNK && c->kind <= COH_CHANGE_DROP_PIN)
        add_dropped(w, r, c);
    else if (c->kind == COH_CHANGE_FROZEN_NF4)
        add_frozen_nf4(w, c);
    else if (!add_plain(w, c->kind))
        add_limit(w, r, c);
}

/* COH_CHANGE_PROFILE is a remark after the other changes. */
static void add_changes(writer *w, const coh_refusal *r, const char *before)
{
    int is_of_profile = 0;
    for (int32_t i = 0; i < r->change_count && i < COH_REFUSAL_CHANGES; i++) {
        if (r->changes[i].kind == COH_CHANGE_PROFILE) {
            is_of_profile = 1;
            continue;
        }
        add(w, "%s", before);
        before = ", or ";
        add_change(w, r, &r->changes[i]);
    }
    if (is_of_profile)
        add(w, " (of %s %s, whose entries device-memory, host-memory and disk can be replaced)",
            term(COH_TERM_PROFILE), r->profile);
}

/* ---- the sentence ---- */

/* Names the micro-batches that were tried, and the disk that was assumed. */
static void say_tried(writer *w, const coh_refusal *r)
{
    if (r->is_with_disk)
        add(w, "also with %s, which is needed: ", term(COH_TERM_A_DISK));
    if (r->largest_microbatch > r->microbatch)
        add(w, "no micro-batch from %" PRId64 " down to 1 fits; with %" PRId64 ": ",
            r->largest_microbatch, r->microbatch);
}

const char *coh_refusal_sentence(const coh_refusal *refusal, char *text, size_t text_bytes)
{
    static void (*const say[COH_REFUSAL_REASONS])(writer *, const coh_refusal *) = {
        [COH_REFUSAL_STEP] = say_step,
        [COH_REFUSAL_IN_MEMORY] = say_in_memory,
        [COH_REFUSAL_STATES] = say_states,
        [COH_REFUSAL_FAR_TIER] = say_far_tier,
        [COH_REFUSAL_ALL_TIERS] = say_all_tiers,
        [COH_REFUSAL_WINDOW] = say_window,
        [COH_REFUSAL_FIXED] = say_fixed,
        [COH_REFUSAL_PINS] = say_pins,
        [COH_REFUSAL_PIN] = say_pin,
        [COH_REFUSAL_PLACEMENT] = say_placement,
        [COH_REFUSAL_SEARCH] = say_search,
        [COH_REFUSAL_LENGTH] = say_length,
        [COH_REFUSAL_SIZE] = say_size,
        [COH_REFUSAL_CGROUP] = say_cgroup,
        [COH_REFUSAL_MEMLOCK] = say_memlock,
        [COH_REFUSAL_MACHINE] = say_machine,
        [COH_REFUSAL_PLAN_FILE] = say_plan_file,
        [COH_REFUSAL_WRITES] = say_writes,
        [COH_REFUSAL_FREE_SPACE] = say_free_space,
    };
    if (text == NULL || text_bytes == 0)
        return "";
    writer w = { .text = text, .bytes = text_bytes };
    text[0] = '\0';
    coh_refusal known;
    if (refusal == NULL || !coh_refusal_copy(refusal, &known) ||
        (unsigned)known.reason >= COH_REFUSAL_REASONS || say[known.reason] == NULL)
        return text;
    say_tried(&w, &known);
    say[known.reason](&w, &known);
    add_changes(&w, &known, "; ");
    return text;
}

const char *coh_refusal_remedy(const coh_refusal *refusal, char *text, size_t text_bytes)
{
    if (text == NULL || text_bytes == 0)
        return "";
    writer w = { .text = text, .bytes = text_bytes };
    text[0] = '\0';
    coh_refusal known;
    if (refusal != NULL && coh_refusal_copy(refusal, &known))
        add_changes(&w, &known, "");
    return text;
}
