/* Splits a list at commas and tries fnmatch on a name and on each part after a dot. Read
 * name_pattern.h first. */
#include "base/name_pattern.h"

#include <fnmatch.h>
#include <string.h>

int coh_pattern_next(const char **list, char out_pattern[COH_PATTERN_BYTES])
{
    while (**list == ',' || **list == ' ')
        (*list)++;
    size_t length = strcspn(*list, ",");
    const char *begin = *list;
    *list += length;
    while (length > 0 && begin[length - 1] == ' ')
        length--;
    if (length >= COH_PATTERN_BYTES)
        length = COH_PATTERN_BYTES - 1;
    memcpy(out_pattern, begin, length);
    out_pattern[length] = '\0';
    return length > 0;
}

int coh_pattern_matches_one(const char *pattern, const char *name)
{
    for (const char *at = name; at; at = strchr(at, '.')) {
        at += *at == '.';
        if (fnmatch(pattern, at, 0) == 0)
            return 1;
    }
    return 0;
}

int coh_pattern_matches(const char *patterns, const char *name)
{
    char pattern[COH_PATTERN_BYTES];
    while (coh_pattern_next(&patterns, pattern))
        if (coh_pattern_matches_one(pattern, name))
            return 1;
    return 0;
}
