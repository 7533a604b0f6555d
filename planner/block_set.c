/* A set of blocks as a bit array, and its canonical text such as "0-3,7". Interface:
 * block_set.h. */
#include "planner/block_set.h"

void coh_block_set_add(coh_block_set *set, int32_t block)
{
    if (block >= 0 && block < COH_BLOCK_SET_MOST)
        set->bits[block / 64] |= (uint64_t)1 << (block % 64);
}

void coh_block_set_remove(coh_block_set *set, int32_t block)
{
    if (block >= 0 && block < COH_BLOCK_SET_MOST)
        set->bits[block / 64] &= ~((uint64_t)1 << (block % 64));
}

coh_block_set coh_block_set_first(int32_t count)
{
    coh_block_set set = { 0 };
    for (int32_t block = 0; block < count && block < COH_BLOCK_SET_MOST; block++)
        coh_block_set_add(&set, block);
    return set;
}

coh_block_set coh_block_set_spread(int32_t count, int32_t blocks)
{
    coh_block_set set = { 0 };
    for (int32_t block = 0; block < blocks; block++)
        if ((int64_t)(block + 1) * count / blocks > (int64_t)block * count / blocks)
            coh_block_set_add(&set, block);
    return set;
}

int32_t coh_block_set_count(const coh_block_set *set)
{
    int32_t count = 0;
    for (int32_t block = 0; block < COH_BLOCK_SET_MOST; block++)
        count += coh_block_set_has(set, block);
    return count;
}

coh_status coh_block_set_write(const coh_block_set *set, coh_text *text)
{
    const char *comma = "";
    for (int32_t first = 0; first < COH_BLOCK_SET_MOST; first++) {
        if (!coh_block_set_has(set, first))
            continue;
        int32_t last = first;
        while (coh_block_set_has(set, last + 1))
            last++;
        COH_TRY(coh_text_add(text, "%s%d", comma, first));
        if (last > first)
            COH_TRY(coh_text_add(text, "-%d", last));
        comma = ",";
        first = last;
    }
    return COH_OK;
}

/* Reads a number without sign or leading zero, below COH_BLOCK_SET_MOST; else returns -1. */
static int32_t read_number(const char **at)
{
    int32_t value = 0;
    const char *begin = *at;
    for (; **at >= '0' && **at <= '9' && value < COH_BLOCK_SET_MOST; ++*at)
        value = value * 10 + (**at - '0');
    if (*at == begin || value >= COH_BLOCK_SET_MOST || (*begin == '0' && *at > begin + 1))
        return -1;
    return value;
}

coh_status coh_block_set_read(const char *text, coh_block_set *out_set)
{
    const char *at = text;
    int32_t least = 0; /* at least one block lies between two ranges, else they were one */
    *out_set = (coh_block_set){ 0 };
    while (*at) {
        int32_t first = read_number(&at), last = first;
        if (first >= 0 && *at == '-') {
            at++;
            last = read_number(&at);
            if (last == first)
                last = -1;
        }
        if (first < least || last < first || (*at && (*at != ',' || !at[1])))
            return coh_fail(COH_ERR_CORRUPT, "\"%.40s\" is not a list of blocks such as \"0-3,7\"",
                            text);
        for (int32_t block = first; block <= last; block++)
            coh_block_set_add(out_set, block);
        least = last + 2;
        at += *at == ',';
    }
    return COH_OK;
}
