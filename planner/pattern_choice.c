/* The choice of a pattern for each class of parameter groups, and its canonical text. The idea:
 * classes come from operator kinds, so a choice of three bytes serves models of any size. Next:
 * pattern.h for the patterns; layout.c and lower.c read the choice. */
#include "planner/pattern_choice.h"

#include <stdio.h>
#include <string.h>

#include "planner/pattern.h"

/* "product=replicate" is the longest entry. */
enum { ENTRY_BYTES = 64 };

static const char *const class_names[COH_CLASS_COUNT] = {
    [COH_CLASS_PLAIN] = "plain",
    [COH_CLASS_TABLE] = "table",
    [COH_CLASS_PRODUCT] = "product",
};

coh_pattern_choice coh_pattern_choose(int slices)
{
    return (coh_pattern_choice){ .of = {
                                     [COH_CLASS_PLAIN] = COH_PATTERN_REPLICATE,
                                     [COH_CLASS_TABLE] = COH_PATTERN_SLICE,
                                     [COH_CLASS_PRODUCT] =
                                         slices > 1 ? COH_PATTERN_SLICE : COH_PATTERN_REPLICATE,
                                 } };
}

int coh_pattern_choice_equal(const coh_pattern_choice *a, const coh_pattern_choice *b)
{
    return memcmp(a->of, b->of, sizeof(a->of)) == 0;
}

coh_status coh_pattern_choice_write(const coh_pattern_choice *choice, coh_text *text)
{
    for (int i = 0; i < COH_CLASS_COUNT; i++)
        COH_TRY(coh_text_add(text, "%s%s=%s", i > 0 ? "," : "", class_names[i],
                             coh_pattern_rows[choice->of[i]]->name));
    return COH_OK;
}

/* Reads the entry of one class. Returns its pattern, or -1. */
static int read_entry(const char **at, int group_class)
{
    for (int i = 0; i < COH_PATTERN_COUNT; i++) {
        char entry[ENTRY_BYTES];
        const int bytes = snprintf(entry, sizeof(entry), "%s%s=%s", group_class > 0 ? "," : "",
                                   class_names[group_class], coh_pattern_rows[i]->name);
        if (!((coh_pattern_rows[i]->classes >> group_class) & 1) ||
            strncmp(*at, entry, (size_t)bytes) != 0 ||
            ((*at)[bytes] != ',' && (*at)[bytes] != '\0'))
            continue;
        *at += bytes;
        return i;
    }
    return -1;
}

coh_status coh_pattern_choice_read(const char *text, coh_pattern_choice *out_choice)
{
    const char *at = text;
    int good = 1;
    *out_choice = (coh_pattern_choice){ 0 };
    for (int i = 0; i < COH_CLASS_COUNT && good; i++) {
        const int pattern = read_entry(&at, i);
        good = pattern >= 0;
        out_choice->of[i] = (uint8_t)(good ? pattern : 0);
    }
    if (good && *at == '\0')
        return COH_OK;
    return coh_fail(COH_ERR_CORRUPT,
                    "\"patterns\" is \"%.80s\", which is not of the form "
                    "\"plain=replicate,table=slice,product=replicate\", or gives a class a pattern "
                    "that it cannot have",
                    text);
}
