/* Names and counts lines of JSON that are no documents. The one idea: a list of a file's bad lines
 * lets the user mend all of them at once, where a refusal of the first would come again for each.
 * Next: token_jsonl.c, the caller. */
#include "text/bad_lines.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/plural.h"
#include "cohobate/terms.h"

void coh_bad_lines_add(coh_bad_lines *bad, coh_bad_line why, size_t part)
{
    bad->counts[why]++;
    if (bad->first[0])
        return;
    bad->first_part = part;
    coh_error_save(bad->first);
}

void coh_bad_lines_join(coh_bad_lines *bad, const coh_bad_lines *other)
{
    for (int i = 0; i < COH_BAD_KINDS; i++)
        bad->counts[i] += other->counts[i];
    if (!other->first[0] || (bad->first[0] && bad->first_part < other->first_part))
        return;
    bad->first_part = other->first_part;
    bad->first_begin = other->first_begin;
    bad->first_number = other->first_number;
    memcpy(bad->first, other->first, sizeof(bad->first));
}

uint64_t coh_bad_lines_count(const coh_bad_lines *bad)
{
    uint64_t count = 0;
    for (int i = 0; i < COH_BAD_KINDS; i++)
        count += bad->counts[i];
    return count;
}

/* Writes the reason, with the name of the field that it is about. */
static void describe(coh_bad_line why, const char *field, char *out_text, size_t text_bytes)
{
    enum { SHOWN = 40 };
    static const char *const reasons[COH_BAD_KINDS] = {
        [COH_BAD_JSON] = "not JSON",
        [COH_BAD_OBJECT] = "not an object",
        [COH_BAD_NO_CONVERSATION] = "without a conversation",
        [COH_BAD_TWO_CONVERSATIONS] = "with two conversations",
        [COH_BAD_MESSAGES] = "without a list of messages",
        [COH_BAD_ROLE] = "with an unknown role",
        [COH_BAD_CONTENT] = "with a content that is no text",
        [COH_BAD_EMPTY] = "with an empty content",
        [COH_BAD_MEMBER] = "with a member that is not written",
        [COH_BAD_ANSWER] = "without an answer that is learned",
        [COH_BAD_WRITTEN] = "refused by the form of conversations",
        [COH_BAD_TOKEN] = "with a token outside the vocabulary",
    };
    const char *comma = strchr(field, ',');
    const int is_second = why == COH_BAD_NO_COMPLETION || why == COH_BAD_COMPLETION;
    const char *name = is_second && comma ? comma + 1 : field;
    const size_t count = comma && !is_second ? (size_t)(comma - field) : strlen(name);
    if (reasons[why])
        (void)snprintf(out_text, text_bytes, "%s", reasons[why]);
    else if (why == COH_BAD_NO_FIELD || why == COH_BAD_NO_COMPLETION)
        (void)snprintf(out_text, text_bytes, "without the field \"%.*s\"",
                       count < SHOWN ? (int)count : SHOWN, name);
    else
        (void)snprintf(out_text, text_bytes, "whose field \"%.*s\" is no text",
                       count < SHOWN ? (int)count : SHOWN, name);
}

void coh_bad_lines_describe(const coh_bad_lines *bad, const char *field, char *out_text,
                            size_t text_bytes)
{
    static const char more[] = ", ...";
    size_t used = 0;
    out_text[0] = '\0';
    for (int i = COH_BAD_JSON; i < COH_BAD_KINDS; i++) {
        char reason[80], part[128];
        if (bad->counts[i] == 0)
            continue;
        describe((coh_bad_line)i, field ? field : "text", reason, sizeof(reason));
        const size_t bytes = (size_t)snprintf(part, sizeof(part), "%s%" PRIu64 " %s",
                                              used ? ", " : "", bad->counts[i], reason);
        const int fits = used + bytes + sizeof(more) <= text_bytes;
        used += (size_t)snprintf(out_text + used, text_bytes - used, "%s", fits ? part : more);
        if (!fits)
            return;
    }
}

void coh_bad_places_add(coh_bad_places *places, uint64_t number)
{
    if (places->count < COH_BAD_LINES_NAMED)
        places->numbers[places->count] = number;
    places->count++;
}

int coh_bad_places_are_enough(const coh_bad_places *places)
{
    return !places->has_good && places->count >= COH_BAD_LINES_LOOKED;
}

/* Writes ", also 5, 9", the numbers behind the first. */
static void list_others(const coh_bad_places *places, char *out_text, size_t text_bytes)
{
    size_t used = 0;
    out_text[0] = '\0';
    for (uint64_t i = 1; i < places->count && i < COH_BAD_LINES_NAMED; i++)
        used += (size_t)snprintf(out_text + used, text_bytes - used, "%s%" PRIu64,
                                 i > 1 ? ", " : ", also ", places->numbers[i]);
    if (places->count > COH_BAD_LINES_NAMED)
        (void)snprintf(out_text + used, text_bytes - used, ", ...");
}

coh_status coh_bad_places_refuse(const coh_bad_places *places, const char *why)
{
    const int is_cut = coh_bad_places_are_enough(places);
    char others[COH_BAD_LINES_NAMED * 24 + 16];
    list_others(places, others, sizeof(others));
    if (places->count <= 1 && !places->has_good)
        return coh_fail(COH_ERR_CORRUPT, "%s", why);
    if (places->count <= 1)
        return coh_fail(COH_ERR_CORRUPT, "%s (%s leaves bad lines out)", why,
                        coh_term_text(COH_TERM_SKIP_BAD));
    if (!places->has_good)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s; %s%" PRIu64 " lines of the file are bad%s, and none%s is good", why,
                        is_cut ? "at least " : "", places->count, others, is_cut ? " so far" : "");
    return coh_fail(COH_ERR_CORRUPT,
                    "%s; %" PRIu64 " lines of the file are bad%s (%s leaves them out)", why,
                    places->count, others, coh_term_text(COH_TERM_SKIP_BAD));
}
