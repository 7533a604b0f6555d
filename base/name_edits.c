/* Finds how near a mistyped word is to a name: cohobate/terms.h. The idea: the limit grows with the
 * word, since a short word is near to many names by chance. */
#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "cohobate/terms.h"

enum { LONGEST = 64, PREFIX_LEAST = 3, PREFIX_EDITS = 2 };

static int32_t least_of(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int differ(char a, char b)
{
    return tolower((unsigned char)a) != tolower((unsigned char)b);
}

/* The table of Levenshtein's distance, of which one row is kept: row[j] is the distance of the
 * word's first i characters to the name's first j. */
static int32_t distance(const char *word, int32_t length, const char *name, int32_t width)
{
    int32_t row[LONGEST + 1];
    for (int32_t j = 0; j <= width; j++)
        row[j] = j;
    for (int32_t i = 1; i <= length; i++) {
        int32_t diagonal = row[0];
        row[0] = i;
        for (int32_t j = 1; j <= width; j++) {
            const int32_t replaced = diagonal + differ(word[i - 1], name[j - 1]);
            diagonal = row[j];
            row[j] = least_of(replaced, 1 + least_of(row[j], row[j - 1]));
        }
    }
    return row[width];
}

static int begins_alike(const char *word, const char *name, int32_t length)
{
    int32_t i = 0;
    while (i < length && !differ(word[i], name[i]))
        i++;
    return i == length;
}

int32_t coh_name_edits(const char *word, const char *name)
{
    if (word == NULL || name == NULL)
        return -1;
    const size_t word_bytes = strnlen(word, LONGEST + 1), name_bytes = strnlen(name, LONGEST + 1);
    if (word_bytes > LONGEST || name_bytes > LONGEST)
        return -1;
    const int32_t length = (int32_t)word_bytes, width = (int32_t)name_bytes;
    const int32_t shorter = least_of(length, width);
    int32_t edits = distance(word, length, name, width);
    if (shorter >= PREFIX_LEAST && begins_alike(word, name, shorter))
        edits = least_of(edits, PREFIX_EDITS);
    return edits <= 1 + (length + 2) / 6 ? edits : -1; /* 1 of 3 letters, 2 of 4, 3 of 10 */
}

void coh_nearest_offer(coh_nearest *nearest, const char *name)
{
    const int32_t edits = nearest != NULL ? coh_name_edits(nearest->word, name) : -1;
    if (edits < 0 || (nearest->name != NULL && edits >= nearest->edits))
        return;
    nearest->name = name;
    nearest->edits = edits;
}
