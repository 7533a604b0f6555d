/* Names and counts lines of JSON that are no documents. The one idea: a list of a file's bad lines
 * lets the user mend all of them at once, where a refusal of the first would come again for each.
 * Next: token_jsonl.c, the caller. */
#include "text/bad_lines.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/plural.h"
#include "cohobate/terms.h"

void coh_bad_lines_add(coh_bad_lines *bad, coh_bad_line why, size_t file)
{
    bad->counts[why]++;
    if (bad->first[0])
        return;
    bad->first_file = file;
    coh_error_save(bad->first);
}

void coh_bad_lines_join(coh_bad_lines *bad, const coh_bad_lines *other)
{
    for (int i = 0; i < COH_BAD_KINDS; i++)
        bad->counts[i] += other->counts[i];
    if (!other->first[0] || (bad->first[0] && bad->first_file < other->first_file))
        return;
    bad->first_file = other->first_file;
    memcpy(bad->first, other->first, sizeof(bad->first));
}

uint64_t coh_bad_lines_count(const coh_bad_lines *bad)
{
    uint64_t count = 0;
    for (int i = 0; i < COH_BAD_KINDS; i++)
        count += bad->counts[i];
    return count;
}

void coh_bad_lines_describe(const coh_bad_lines *bad, char *out_text, size_t text_bytes)
{
    static const char *const reasons[COH_BAD_KINDS] = {
        [COH_BAD_JSON] = "no object of JSON",
        [COH_BAD_FIELD] = "without a text in the field",
        [COH_BAD_CONVERSATION] = "without a conversation that can be written",
        [COH_BAD_TOKEN] = "with a token outside the vocabulary",
    };
    size_t used = 0;
    out_text[0] = '\0';
    for (int i = COH_BAD_JSON; i < COH_BAD_KINDS && used < text_bytes; i++)
        if (bad->counts[i])
            used += (size_t)snprintf(out_text + used, text_bytes - used, "%s%" PRIu64 " %s",
                                     used ? ", " : "", bad->counts[i], reasons[i]);
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
