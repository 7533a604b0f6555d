/* Finds how near a mistyped word is to a name: cohobate/terms.h. The idea: the limit grows with the
 * word, since a short word is near to many names by chance. */
#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cohobate/terms.h"

/* The longest word; the least lengths of a beginning, an end, and both of them, that mean the whole
 * name; how many times the size of one model that of another is which is not meant. */
enum { LONGEST = 64, BEGINNING_LEAST = 3, END_LEAST = 4, MIDDLE_LEAST = 6, TIMES_APART = 5 };

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

/* A word without the characters that separate its parts, which people leave out and mix up.
 * joins[i]: characters i - 1 and i are neighbours in one number. length is LONGEST + 1 if the word
 * is too long. */
typedef struct bare {
    char at[LONGEST + 1], joins[LONGEST + 2];
    int32_t length;
} bare;

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bare bare_of(const char *word, size_t count)
{
    bare b = { .length = LONGEST + 1 };
    if (count > LONGEST)
        return b;
    b.length = 0;
    for (size_t i = 0; i < count; i++) {
        if (strchr("-._ ", word[i]) != NULL)
            continue;
        b.joins[b.length] = i > 0 && is_digit(word[i - 1]) && is_digit(word[i]);
        b.at[b.length++] = word[i];
    }
    return b;
}

/* Is `shorter` what is left of `longer` if one run of characters is cut out: its beginning, its
 * end, or, of longer texts, both? A cut divides no number, since 13b is not about 3b. */
static int is_left_of(const bare *shorter, const bare *longer)
{
    const int32_t length = shorter->length, cut = longer->length - length;
    int32_t begin = 0, end = 0;
    while (begin < length && !differ(shorter->at[begin], longer->at[begin]))
        begin++;
    while (end < length &&
           !differ(shorter->at[length - 1 - end], longer->at[length - 1 - end + cut]))
        end++;
    for (int32_t at = length - end; at <= begin; at++) {
        const int32_t least = at == length ? BEGINNING_LEAST : at == 0 ? END_LEAST : MIDDLE_LEAST;
        if (length >= least && !longer->joins[at] && !longer->joins[at + cut])
            return 1;
    }
    return 0;
}

static int is_cut_from(const bare *a, const bare *b)
{
    return a->length <= b->length ? is_left_of(a, b) : is_left_of(b, a);
}

/* Edits of bare texts, where a cut is one. */
static int32_t edits_of(const bare *w, const bare *n)
{
    const int32_t edits = distance(w->at, w->length, n->at, n->length);
    return is_cut_from(w, n) ? least_of(edits, 1) : edits;
}

/* The size in a model's name, in millions of parameters: the last number before "b" or "m" that
 * ends a part of the word. 0: there is none. *out_begin and *out_end: where it lies. */
static double size_in(const char *word, size_t *out_begin, size_t *out_end)
{
    for (size_t unit = strlen(word); unit-- > 1;) {
        const int is_b = !differ(word[unit], 'b');
        size_t at = unit;
        double value = 0, scale = 1;
        if ((!is_b && differ(word[unit], 'm')) || isalnum((unsigned char)word[unit + 1]))
            continue;
        for (; at > 0 && is_digit(word[at - 1]); at--, scale *= 10)
            value += scale * (word[at - 1] - '0');
        if (at > 1 && at < unit && word[at - 1] == '.' && is_digit(word[at - 2])) {
            value /= scale;
            scale = 1;
            for (at--; at > 0 && is_digit(word[at - 1]); at--, scale *= 10)
                value += scale * (word[at - 1] - '0');
        }
        *out_begin = at;
        *out_end = unit + 1;
        if (value > 0)
            return is_b ? 1000 * value : value;
    }
    return 0;
}

/* How many times the one size is the other; 0: one of them is unknown. */
static double times_apart(double a, double b)
{
    return a <= 0 || b <= 0 ? 0 : a > b ? a / b : b / a;
}

/* Is the unit of the size the only difference, as of opt-125b and opt-125m? Then a letter is wrong,
 * however far apart the sizes are. */
static int has_other_unit(const char *word, const char *name)
{
    size_t begins[2], ends[2];
    const double a = size_in(word, &begins[0], &ends[0]), b = size_in(name, &begins[1], &ends[1]);
    if (a <= 0 || b <= 0 || begins[0] != begins[1] || ends[0] != ends[1] ||
        strlen(word) != strlen(name) || !differ(word[ends[0] - 1], name[ends[0] - 1]))
        return 0;
    for (size_t i = 0; word[i]; i++)
        if (i != ends[0] - 1 && differ(word[i], name[i]))
            return 0;
    return 1;
}

/* Edits of two names with sizes, where another size is one. */
static int32_t sized_edits(const char *word, const char *name)
{
    char stems[2][LONGEST + 1];
    const char *const texts[2] = { word, name };
    double sizes[2];
    for (int i = 0; i < 2; i++) {
        size_t begin = 0, end = 0;
        sizes[i] = size_in(texts[i], &begin, &end);
        memcpy(stems[i], texts[i], begin);
        memcpy(stems[i] + begin, texts[i] + end, strlen(texts[i] + end) + 1);
    }
    const bare w = bare_of(stems[0], strlen(stems[0])), n = bare_of(stems[1], strlen(stems[1]));
    return edits_of(&w, &n) + (times_apart(sizes[0], sizes[1]) > 1);
}

/* Do both words have characters of a kind, letters or digits, of which none is common? Then they
 * name another kind or generation: v100 is no mistyped h100. */
static int have_none_in_common(const bare *w, const bare *n, int (*is_of)(int))
{
    int has_w = 0, has_n = 0;
    for (int32_t j = 0; j < n->length; j++)
        has_n |= is_of((unsigned char)n->at[j]) != 0;
    for (int32_t i = 0; i < w->length; i++) {
        if (!is_of((unsigned char)w->at[i]))
            continue;
        has_w = 1;
        for (int32_t j = 0; j < n->length; j++)
            if (!differ(w->at[i], n->at[j]))
                return 0;
    }
    return has_w && has_n;
}

int32_t coh_name_edits(const char *word, const char *name)
{
    size_t begin, end;
    if (word == NULL || name == NULL)
        return -1;
    const bare w = bare_of(word, strnlen(word, LONGEST + 1));
    const bare n = bare_of(name, strnlen(name, LONGEST + 1));
    if (w.length > LONGEST || n.length > LONGEST)
        return -1;
    if (has_other_unit(word, name))
        return 1;
    int32_t edits = edits_of(&w, &n);
    const double apart = times_apart(size_in(word, &begin, &end), size_in(name, &begin, &end));
    if (edits > 0 && (apart >= TIMES_APART || have_none_in_common(&w, &n, isalpha) ||
                      (apart == 0 && have_none_in_common(&w, &n, isdigit))))
        return -1;
    if (apart > 0)
        edits = least_of(edits, sized_edits(word, name));
    return edits <= 1 + (w.length + 2) / 6 ? edits : -1; /* 1 of 3 letters, 2 of 4, 3 of 10 */
}

/* 2: the word is a part of the name, 1: the name of the word, 0: neither. */
static int is_part(const char *word, const char *name)
{
    const bare w = bare_of(word, strlen(word)), n = bare_of(name, strlen(name));
    return is_cut_from(&w, &n) ? 1 + (w.length <= n.length) : 0;
}

/* Of two names as near: a mistyped word seldom has another first letter, the digits of a size are
 * seldom right by chance, a size is seldom far from what is meant, a part is left out more often
 * than a digit is wrong, and separators say which of opt-13b and opt-1.3b is meant. The words are
 * no longer than LONGEST. */
static int is_likelier(const char *word, const char *name, const char *than)
{
    size_t begin, end;
    const int begins = !differ(word[0], name[0]), other_begins = !differ(word[0], than[0]);
    if (begins != other_begins)
        return begins;
    const int unit = has_other_unit(word, name), other_unit = has_other_unit(word, than);
    if (unit != other_unit)
        return unit;
    const double size = size_in(word, &begin, &end);
    const double apart = times_apart(size, size_in(name, &begin, &end));
    const double other_apart = times_apart(size, size_in(than, &begin, &end));
    if (apart > 0 && other_apart > 0 && apart != other_apart)
        return apart < other_apart;
    const int cut = is_part(word, name), other_cut = is_part(word, than);
    if (cut != other_cut)
        return cut > other_cut;
    const int32_t length = (int32_t)strlen(word);
    return distance(word, length, name, (int32_t)strlen(name)) <
           distance(word, length, than, (int32_t)strlen(than));
}

/* Is the name, which has that many edits, nearer than another (NULL: none)? */
static int is_nearer(const char *word, const char *name, int32_t edits, const char *than,
                     int32_t than_edits)
{
    return than == NULL || edits < than_edits ||
           (edits == than_edits && is_likelier(word, name, than));
}

void coh_nearest_offer(coh_nearest *nearest, const char *name)
{
    const int32_t edits = nearest != NULL ? coh_name_edits(nearest->word, name) : -1;
    if (edits < 0 || (nearest->name != NULL && strcmp(name, nearest->name) == 0))
        return;
    if (is_nearer(nearest->word, name, edits, nearest->name, nearest->edits)) {
        nearest->second = nearest->name;
        nearest->second_edits = nearest->edits;
        nearest->name = name;
        nearest->edits = edits;
    } else if (is_nearer(nearest->word, name, edits, nearest->second, nearest->second_edits)) {
        nearest->second = name;
        nearest->second_edits = edits;
    }
}

const char *coh_nearest_meant(const coh_nearest *nearest, char *text, size_t text_bytes)
{
    if (text == NULL || text_bytes == 0)
        return "";
    text[0] = '\0';
    if (nearest == NULL || nearest->word == NULL || nearest->name == NULL)
        return text;
    const int is_either = nearest->second != NULL && has_other_unit(nearest->word, nearest->name);
    snprintf(text, text_bytes, "%s%s%s", nearest->name, is_either ? " or " : "",
             is_either ? nearest->second : "");
    return text;
}
