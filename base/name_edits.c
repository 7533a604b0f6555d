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

/* The table of Levenshtein's distance, in which two neighbours that changed places are one edit,
 * too (optimal string alignment). Three rows are kept, that of i at i % 3: its element j is the
 * distance of the word's first i characters to the name's first j. */
static int32_t distance(const char *word, int32_t length, const char *name, int32_t width)
{
    int32_t rows[3][LONGEST + 1];
    for (int32_t j = 0; j <= width; j++)
        rows[0][j] = j;
    for (int32_t i = 1; i <= length; i++) {
        int32_t *row = rows[i % 3];
        const int32_t *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (int32_t j = 1; j <= width; j++) {
            const int32_t replaced = last[j - 1] + differ(word[i - 1], name[j - 1]);
            row[j] = least_of(replaced, 1 + least_of(last[j], row[j - 1]));
            if (i > 1 && j > 1 && !differ(word[i - 1], name[j - 2]) &&
                !differ(word[i - 2], name[j - 1]))
                row[j] = least_of(row[j], 1 + before[j - 2]);
        }
    }
    return rows[length % 3][width];
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
