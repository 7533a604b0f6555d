/* Keeps the last refusal of a thread and makes its sentence: cohobate/refusal.h. The idea: a
 * sentence is written from the struct, "<what is short>; <change>, or <change>", so no program has
 * to take it apart. refusal_text.c writes it. */
#include "base/refusal.h"

#include "base/struct_bytes.h"

static _Thread_local coh_refusal last; /* struct_bytes 0: the last failure was no refusal */

void coh_refusal_clear(void)
{
    last.struct_bytes = 0;
}

int32_t coh_last_refusal(coh_refusal *out_refusal)
{
    if (out_refusal == NULL || last.struct_bytes == 0 ||
        out_refusal->struct_bytes < offsetof(coh_refusal, tier))
        return 0; /* no failure for a wrong size: that would replace the last failure */
    coh_struct_write(&last, sizeof(last), out_refusal);
    return 1;
}

static void end_text(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    coh_text_make_printable(text);
}

int coh_refusal_copy(const coh_refusal *refusal, coh_refusal *out)
{
    *out = (coh_refusal){ 0 };
    if (refusal->struct_bytes < offsetof(coh_refusal, tier))
        return 0;
    coh_struct_read(refusal, out, sizeof(*out));
    end_text(out->operator_name, sizeof(out->operator_name));
    end_text(out->pin, sizeof(out->pin));
    end_text(out->profile, sizeof(out->profile));
    end_text(out->path, sizeof(out->path));
    end_text(out->items, sizeof(out->items));
    return 1;
}

static coh_status check_changes(const coh_refusal *refusal)
{
    COH_TRY(coh_check_integer("change_count", refusal->change_count, 0, COH_REFUSAL_CHANGES));
    for (int32_t i = 0; i < refusal->change_count; i++) {
        COH_TRY(coh_check_integer("the kind of a change", refusal->changes[i].kind, 0,
                                  COH_CHANGE_KINDS - 1));
        COH_TRY(coh_check_integer("the tier of a change", refusal->changes[i].tier, -1,
                                  COH_TIER_COUNT - 1));
    }
    return COH_OK;
}

/* Copies a caller's struct, which may be of an older header, and checks it. */
static coh_status take(const coh_refusal *refusal, coh_refusal *out)
{
    COH_NEED_STRUCT(coh_refusal, refusal);
    (void)coh_refusal_copy(refusal, out); /* its size was checked */
    if (out->status != COH_ERR_ARGUMENT && out->status != COH_ERR_FULL)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a refusal with status %d: only COH_ERR_FULL and "
                        "COH_ERR_ARGUMENT refuse",
                        (int)out->status);
    COH_TRY(coh_check_integer("the reason of a refusal", out->reason, COH_REFUSAL_NONE + 1,
                              COH_REFUSAL_REASONS - 1));
    COH_TRY(coh_check_integer("the tier of a refusal", out->tier, -1, COH_TIER_COUNT - 1));
    COH_TRY(coh_check_integer("the unit of a refusal", out->unit, 0, COH_UNITS - 1));
    return check_changes(out);
}

coh_status coh_refuse(const coh_refusal *refusal)
{
    char sentence[COH_ERROR_TEXT_BYTES];
    coh_refusal taken;
    COH_TRY(take(refusal, &taken));
    (void)coh_fail(taken.status, "%s", coh_refusal_sentence(&taken, sentence, sizeof(sentence)));
    last = taken;
    return taken.status;
}

/* ---- filling ---- */

coh_refusal coh_refusal_make(coh_refusal_reason reason)
{
    return (coh_refusal){
        .struct_bytes = sizeof(coh_refusal), .status = COH_ERR_FULL, .reason = reason, .tier = -1
    };
}

coh_refusal coh_refusal_bytes(coh_refusal_reason reason, int tier, uint64_t given_bytes,
                              uint64_t needed_bytes)
{
    coh_refusal refusal = coh_refusal_make(reason);
    refusal.tier = tier;
    refusal.given_bytes = given_bytes;
    refusal.needed_bytes = needed_bytes;
    refusal.short_bytes = needed_bytes - given_bytes;
    return refusal;
}

coh_refusal coh_refusal_length(coh_refusal_unit unit, uint64_t count, uint64_t count_most)
{
    coh_refusal refusal = coh_refusal_make(COH_REFUSAL_LENGTH);
    refusal.unit = unit;
    refusal.count = count;
    refusal.count_most = count_most;
    return refusal;
}

void coh_refusal_add(coh_refusal *refusal, coh_change_kind kind, uint64_t bytes)
{
    if (refusal->change_count < COH_REFUSAL_CHANGES)
        refusal->changes[refusal->change_count++] = (coh_change){ .kind = kind, .bytes = bytes };
}

static void add_budget(coh_refusal *refusal, coh_change_kind kind, int tier, uint64_t bytes)
{
    const int32_t before = refusal->change_count;
    coh_refusal_add(refusal, kind, bytes);
    if (refusal->change_count > before)
        refusal->changes[before].tier = tier;
}

void coh_refusal_raise(coh_refusal *refusal, int tier, uint64_t bytes)
{
    add_budget(refusal, COH_CHANGE_RAISE, tier, bytes);
}

void coh_refusal_lower(coh_refusal *refusal, int tier, uint64_t bytes)
{
    add_budget(refusal, COH_CHANGE_LOWER, tier, bytes);
}

coh_status coh_refuse_size(void)
{
    coh_refusal refusal = coh_refusal_make(COH_REFUSAL_SIZE);
    refusal.is_proven = 1;
    return coh_refuse(&refusal);
}

/* ---- names ---- */

const char *coh_refusal_reason_name(coh_refusal_reason reason)
{
    static const char *const names[COH_REFUSAL_REASONS] = {
        "none",   "step",    "in-memory", "states",    "far-tier", "all-tiers",  "window",
        "fixed",  "pins",    "pin",       "placement", "search",   "length",     "size",
        "cgroup", "memlock", "machine",   "plan-file", "writes",   "free-space",
    };
    return (unsigned)reason < COH_REFUSAL_REASONS ? names[reason] : "unknown reason";
}

const char *coh_change_kind_name(coh_change_kind kind)
{
    static const char *const names[COH_CHANGE_KINDS] = {
        "raise",
        "lower",
        "add-disk",
        "raise-chunk",
        "lower-chunk",
        "drop-chunk",
        "drop-recompute",
        "drop-pins",
        "drop-pin",
        "raise-micro-batch",
        "lower-micro-batch",
        "raise-batch",
        "lower-batch",
        "raise-cgroup",
        "raise-memlock",
        "raise-writes",
        "plan-again",
        "profile",
        "measure-drive",
        "free-space",
        "fewer-operators",
        "raise-wear",
        "frozen-nf4",
    };
    return (unsigned)kind < COH_CHANGE_KINDS ? names[kind] : "unknown change";
}

const char *coh_refusal_unit_name(coh_refusal_unit unit)
{
    static const char *const names[COH_UNITS] = {
        "instructions",   "operands", "bindings",
        "waits",          "extents",  "chunks",
        "uses of chunks", "objects",  "grains of parameters",
        "bytes",
    };
    return (unsigned)unit < COH_UNITS ? names[unit] : "unknown units";
}
