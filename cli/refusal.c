/* Prints refusals and other failures as JSON. The one idea: what a program needs to know of a
 * refusal is a field of coh_refusal, so no other words in a sentence change it. Next:
 * cohobate/refusal.h. */
#include "cli/refusal.h"

#include <inttypes.h>
#include <stdio.h>

/* NULL, which is null in JSON, for an empty text. */
static const char *text_or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static const char *tier_or_null(int32_t tier)
{
    return tier >= 0 ? coh_tier_name((coh_tier)tier) : NULL;
}

static void add_change(const coh_change *change, cli_line *line)
{
    const int has_tier = change->kind == COH_CHANGE_RAISE || change->kind == COH_CHANGE_LOWER ||
                         change->kind == COH_CHANGE_FROZEN_NF4;
    cli_line_add_json(line,
                      "{'change': %s, 'tier': %s, 'bytes': %" PRIu64
                      ", 'is_least': %i, 'micro_batch': %" PRId64 "}",
                      coh_change_kind_name(change->kind),
                      has_tier ? tier_or_null(change->tier) : NULL, change->bytes, change->is_least,
                      change->microbatch);
}

static void add_by_hand(uint32_t by_hand, cli_line *line)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } all[] = { { COH_BY_HAND_CHUNK, "chunk" },
                { COH_BY_HAND_RECOMPUTE, "recompute" },
                { COH_BY_HAND_PINS, "pins" } };
    cli_line_add_json(line, "'by_hand': [");
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (by_hand & all[i].bit)
            cli_line_add_json(line, "%s", all[i].name);
    cli_line_add_json(line, "]");
}

static void add_members(const coh_refusal *r, cli_line *line)
{
    char remedy[1024];
    cli_line_add_json(line,
                      "'status': %s, 'reason': %s, 'short': %s, 'short_bytes': %" PRIu64
                      ", 'given_bytes': %" PRIu64 ", 'needed_bytes': %" PRIu64
                      ", 'is_least': %i, 'is_proven': %i",
                      coh_status_name(r->status), coh_refusal_reason_name(r->reason),
                      tier_or_null(r->tier), r->short_bytes, r->given_bytes, r->needed_bytes,
                      r->is_least, r->is_proven);
    cli_line_add_json(
        line,
        "'is_gpu': %i, 'count': %" PRIu64 ", 'count_most': %" PRIu64
        ", 'unit': %s, 'chunk_bytes': %" PRIu64 ", 'micro_batches': %d"
        ", 'micro_batch': %" PRId64 ", 'largest_micro_batch': %" PRId64 ", 'is_with_disk': %i",
        r->is_gpu, r->count, r->count_most, coh_refusal_unit_name(r->unit), r->chunk_bytes,
        (int)r->microbatch_count, r->microbatch, r->largest_microbatch, r->is_with_disk);
    add_by_hand(r->by_hand, line);
    cli_line_add_json(line,
                      "'operator': %s, 'pin': %s, 'profile': %s, 'path': %s, 'items': %s"
                      ", 'changes': [",
                      text_or_null(r->operator_name), text_or_null(r->pin),
                      text_or_null(r->profile), text_or_null(r->path), text_or_null(r->items));
    for (int32_t i = 0; i < r->change_count; i++)
        add_change(&r->changes[i], line);
    cli_line_add_json(line, "], 'remedy': %s",
                      text_or_null(coh_refusal_remedy(r, remedy, sizeof(remedy))));
}

void cli_refusal_add_json(const char *key, const coh_refusal *refusal, cli_line *line)
{
    if (refusal->reason == COH_REFUSAL_NONE)
        return;
    cli_line_add_json(line, "%s: {", key);
    add_members(refusal, line);
    cli_line_add_json(line, "}");
}

void cli_failure_json(coh_status status, int exit_code, const char *model,
                      const coh_refusal *refusal)
{
    cli_line line;
    cli_line_clear(&line);
    cli_line_add_json(&line, "{'exit_code': %d, 'why': %s", exit_code, coh_last_error());
    if (refusal) {
        char name[1024]; /* a longer one is cut off */
        snprintf(name, sizeof(name), "%s", model ? model : "");
        cli_line_add_json(&line, "'model': %s, 'fits': false", model ? name : NULL);
        cli_line_flush(&line);
        add_members(refusal, &line);
    } else {
        cli_line_add_json(&line, "'status': %s", coh_status_name(status));
    }
    cli_line_add_json(&line, "}");
    cli_line_flush(&line);
    cli_print("%s", "");
}
