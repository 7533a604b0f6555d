/* Prints refusals as JSON. The one idea: every member is a field of coh_refusal, so other words in
 * the sentence change no member. Next: cohobate/refusal.h. */
#include "cli/refusal.h"

#include <inttypes.h>
#include <stdio.h>

static const char *truth(int is_true)
{
    return is_true ? "true" : "false";
}

/* `null` for an empty text. */
static void add_text(cli_line *line, const char *key, const char *text)
{
    cli_line_add(line, ", \"%s\": ", key);
    if (text[0])
        cli_line_add_json_string(line, text);
    else
        cli_line_add(line, "null");
}

static const char *tier_name(int32_t tier)
{
    return tier >= 0 ? coh_tier_name((coh_tier)tier) : "";
}

static void add_change(const coh_change *change, cli_line *line)
{
    const int has_tier = change->kind == COH_CHANGE_RAISE || change->kind == COH_CHANGE_LOWER;
    cli_line_add(line, "{\"change\": \"%s\"", coh_change_kind_name(change->kind));
    add_text(line, "tier", has_tier ? tier_name(change->tier) : "");
    cli_line_add(line, ", \"bytes\": %" PRIu64 ", \"is_least\": %s, \"micro_batch\": %" PRId64 "}",
                 change->bytes, truth(change->is_least), change->microbatch);
}

static void add_by_hand(uint32_t by_hand, cli_line *line)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } all[] = { { COH_BY_HAND_CHUNK, "chunk" },
                { COH_BY_HAND_RECOMPUTE, "recompute" },
                { COH_BY_HAND_PINS, "pins" } };
    const char *before = "";
    cli_line_add(line, ", \"by_hand\": [");
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (by_hand & all[i].bit) {
            cli_line_add(line, "%s\"%s\"", before, all[i].name);
            before = ", ";
        }
    cli_line_add(line, "]");
}

void cli_refusal_add_json(const coh_refusal *r, cli_line *line)
{
    char remedy[1024];
    cli_line_add(line, "\"status\": \"%s\", \"reason\": \"%s\"", coh_status_name(r->status),
                 coh_refusal_reason_name(r->reason));
    add_text(line, "short", tier_name(r->tier));
    cli_line_add(line,
                 ", \"short_bytes\": %" PRIu64 ", \"given_bytes\": %" PRIu64
                 ", \"needed_bytes\": %" PRIu64 ", \"is_least\": %s, \"is_proven\": %s",
                 r->short_bytes, r->given_bytes, r->needed_bytes, truth(r->is_least),
                 truth(r->is_proven));
    cli_line_add(line,
                 ", \"is_gpu\": %s, \"count\": %" PRIu64 ", \"count_most\": %" PRIu64
                 ", \"unit\": \"%s\", \"chunk_bytes\": %" PRIu64 ", \"micro_batches\": %d"
                 ", \"micro_batch\": %" PRId64 ", \"largest_micro_batch\": %" PRId64
                 ", \"is_with_disk\": %s",
                 truth(r->is_gpu), r->count, r->count_most, coh_refusal_unit_name(r->unit),
                 r->chunk_bytes, (int)r->microbatch_count, r->microbatch, r->largest_microbatch,
                 truth(r->is_with_disk));
    add_by_hand(r->by_hand, line);
    add_text(line, "operator", r->operator_name);
    add_text(line, "pin", r->pin);
    add_text(line, "profile", r->profile);
    add_text(line, "path", r->path);
    add_text(line, "items", r->items);
    cli_line_add(line, ", \"changes\": [");
    for (int32_t i = 0; i < r->change_count; i++) {
        cli_line_add(line, "%s", i ? ", " : "");
        add_change(&r->changes[i], line);
    }
    cli_line_add(line, "]");
    add_text(line, "remedy", coh_refusal_remedy(r, remedy, sizeof(remedy)));
}

void cli_refusal_json(coh_status status, const char *model)
{
    cli_line line;
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    const int is_refused = coh_last_refusal(&refusal);
    if (!is_refused && status != COH_ERR_FULL)
        return;
    cli_line_clear(&line);
    cli_line_add(&line, "{\"model\": ");
    cli_line_add_json_string(&line, model ? model : "");
    cli_line_add(&line, ", \"fits\": false, ");
    if (is_refused) {
        cli_refusal_add_json(&refusal, &line);
        cli_line_add(&line, ", ");
    }
    cli_line_add(&line, "\"why\": ");
    cli_line_add_json_string(&line, coh_last_error());
    printf("%s}\n", line.text);
}
