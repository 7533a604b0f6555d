/* Finds how near a mistyped word is to a name: cohobate/terms.h. The idea: the limit grows with the
 * word, since a short word is near to many names by chance. */
#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "cohobate/terms.h"

/* The longest word, and the least lengths of a beginning, an end, and both of them, that mean the
 * whole name. */
enum { LONGEST = 64, BEGINNING_LEAST = 3, END_LEAST = 4, MIDDLE_LEAST = 6 };

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

/* Copies a word without the characters that separate its parts, which people leave out and mix up.
 * Returns its length; LONGEST + 1: it is too long. */
static int32_t without_separators(const char *word, char out[LONGEST + 1])
{
    int32_t length = 0;
    if (strnlen(word, LONGEST + 1) > LONGEST)
        return LONGEST + 1;
    for (const char *c = word; *c != '\0'; c++)
        if (strchr("-._ ", *c) == NULL)
            out[length++] = *c;
    out[length] = '\0';
    return length;
}

/* Is the shorter text what is left of the longer one if one run of characters is cut out: its
 * beginning, its end, or, of longer texts, both? */
static int is_cut_from(const char *a, int32_t a_length, const char *b, int32_t b_length)
{
    const int32_t shorter = least_of(a_length, b_length);
    int32_t begin = 0, end = 0;
    while (begin < shorter && !differ(a[begin], b[begin]))
        begin++;
    while (end < shorter && !differ(a[a_length - 1 - end], b[b_length - 1 - end]))
        end++;
    return (shorter >= BEGINNING_LEAST && begin == shorter) ||
           (shorter >= END_LEAST && end == shorter) ||
           (shorter >= MIDDLE_LEAST && begin + end >= shorter);
}

int32_t coh_name_edits(const char *word, const char *name)
{
    char w[LONGEST + 1], n[LONGEST + 1];
    if (word == NULL || name == NULL)
        return -1;
    const int32_t length = without_separators(word, w), width = without_separators(name, n);
    if (length > LONGEST || width > LONGEST)
        return -1;
    int32_t edits = distance(w, length, n, width);
    if (is_cut_from(w, length, n, width))
        edits = least_of(edits, 1);
    return edits <= 1 + (length + 2) / 6 ? edits : -1; /* 1 of 3 letters, 2 of 4, 3 of 10 */
}

/* 2: the word is a part of the name, 1: the name of the word, 0: neither. */
static int is_part(const char *word, const char *name)
{
    char w[LONGEST + 1], n[LONGEST + 1];
    const int32_t length = without_separators(word, w), width = without_separators(name, n);
    return is_cut_from(w, length, n, width) ? 1 + (length <= width) : 0;
}

/* Of two names as near: a mistyped word seldom has another first letter, a part is left out more
 * often than a digit is wrong, and separators say which of opt-13b and opt-1.3b is meant. The words
 * are no longer than LONGEST. */
static int is_likelier(const char *word, const char *name, const char *than)
{
    const int begins = !differ(word[0], name[0]), other_begins = !differ(word[0], than[0]);
    if (begins != other_begins)
        return begins;
    const int cut = is_part(word, name), other_cut = is_part(word, than);
    if (cut != other_cut)
        return cut > other_cut;
    const int32_t length = (int32_t)strlen(word);
    return distance(word, length, name, (int32_t)strlen(name)) <
           distance(word, length, than, (int32_t)strlen(than));
}

void coh_nearest_offer(coh_nearest *nearest, const char *name)
{
    const int32_t edits = nearest != NULL ? coh_name_edits(nearest->word, name) : -1;
    if (edits < 0 || (nearest->name != NULL && edits > nearest->edits) ||
        (nearest->name != NULL && edits == nearest->edits &&
         !is_likelier(nearest->word, name, nearest->name)))
        return;
    nearest->name = name;
    nearest->edits = edits;
}
