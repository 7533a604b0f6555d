/* Keeps a binary tree of maxima over the listed homes of a tier. The idea: a walk from the highest
 * home down descends only into subtrees that have a home vacant for long enough. Interface:
 * vacancy.h; used by residency.c and residency_choose.c. */
#include "planner/vacancy.h"

#include "base/alloc.h"

#define NO_HOME UINT32_MAX

static uint64_t home_begin(const coh_vacancy *v, uint32_t home)
{
    return v->level->home_offset[v->level->home_chunks[home]];
}

static uint64_t home_end(const coh_vacancy *v, uint32_t home)
{
    return home_begin(v, home) + v->level->layout->chunks[v->level->home_chunks[home]].bytes;
}

/* Sets a home's leaf, and what is above it. */
static void renew_home(coh_vacancy *v, uint32_t home)
{
    uint32_t node = v->leaf_begin + home;
    v->latest[node] =
        v->takers[home] > 0 ? 0 : coh_next_use_step(v->next, v->level->home_chunks[home]);
    for (node /= 2; node > 0; node /= 2) {
        const uint64_t left = v->latest[2 * node], right = v->latest[2 * node + 1];
        v->latest[node] = left > right ? left : right;
    }
}

coh_status coh_vacancy_init(coh_vacancy *v, const coh_level *level, const coh_next_use *next)
{
    const uint32_t count = level->home_chunks != NULL ? level->home_count : 0;
    *v = (coh_vacancy){ .level = level, .next = next };
    if (count == 0)
        return COH_OK;
    uint32_t leaves = 1;
    while (leaves <= count) /* one more: a walk begins to the right of the last home */
        leaves *= 2;
    COH_TRY(COH_ALLOC(2 * (size_t)leaves, &v->latest));
    COH_TRY(COH_ALLOC(count, &v->takers));
    COH_TRY(COH_ALLOC(level->layout->chunk_count, &v->home_of));
    v->leaf_begin = leaves;
    for (uint32_t chunk = 0; chunk < level->layout->chunk_count; chunk++)
        v->home_of[chunk] = NO_HOME;
    for (uint32_t home = 0; home < count; home++)
        v->home_of[level->home_chunks[home]] = home;
    coh_vacancy_renew_all(v);
    return COH_OK;
}

void coh_vacancy_fini(coh_vacancy *v)
{
    coh_free(v->latest);
    coh_free(v->takers);
    coh_free(v->home_of);
    *v = (coh_vacancy){ 0 };
}

/* Returns the first home that ends above `offset`; the count if there is none. */
static uint32_t first_above(const coh_vacancy *v, uint64_t offset)
{
    uint32_t low = 0, high = v->level->home_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (home_end(v, middle) > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Adds `change` to the takers of the chunk's own home and of the others below its segment. */
static void change_takers(coh_vacancy *v, uint32_t chunk, uint64_t offset, uint64_t bytes,
                          uint32_t change)
{
    if (v->leaf_begin == 0)
        return;
    const uint32_t own = v->home_of[chunk];
    if (own != NO_HOME) {
        v->takers[own] += change;
        renew_home(v, own);
    }
    for (uint32_t home = first_above(v, offset);
         home < v->level->home_count && home_begin(v, home) < offset + bytes; home++) {
        if (home == own)
            continue;
        v->takers[home] += change;
        renew_home(v, home);
    }
}

void coh_vacancy_take(coh_vacancy *v, uint32_t chunk, uint64_t offset, uint64_t bytes)
{
    change_takers(v, chunk, offset, bytes, 1);
}

void coh_vacancy_release(coh_vacancy *v, uint32_t chunk, uint64_t offset, uint64_t bytes)
{
    change_takers(v, chunk, offset, bytes, (uint32_t)-1);
}

void coh_vacancy_renew(coh_vacancy *v, uint32_t chunk)
{
    if (v->leaf_begin != 0 && v->home_of[chunk] != NO_HOME)
        renew_home(v, v->home_of[chunk]);
}

void coh_vacancy_renew_all(coh_vacancy *v)
{
    for (uint32_t home = 0; v->leaf_begin != 0 && home < v->level->home_count; home++)
        renew_home(v, home);
}

/* Returns the last home before `end` that is vacant until step `until`; NO_HOME if none is. */
static uint32_t last_vacant(const coh_vacancy *v, uint32_t end, uint64_t until)
{
    /* Up to the first subtree on the left that has one, then down to its last. */
    uint32_t node = v->leaf_begin + end;
    while (node > 1 && (node % 2 == 0 || v->latest[node - 1] <= until))
        node /= 2;
    if (node <= 1)
        return NO_HOME;
    for (node--; node < v->leaf_begin;)
        node = 2 * node + (v->latest[2 * node + 1] > until);
    return node - v->leaf_begin;
}

int coh_vacancy_find(const coh_vacancy *v, uint64_t until, uint64_t bytes, uint64_t *out_offset)
{
    uint64_t end = v->level->floor_bytes;
    if (v->leaf_begin == 0)
        return 0;
    for (uint32_t above = v->level->home_count;;) {
        const uint32_t home = last_vacant(v, above, until);
        if (home == NO_HOME)
            return 0;
        if (home + 1 < above) /* those between are taken */
            end = home_begin(v, home + 1);
        if (home_begin(v, home) + bytes <= end) {
            *out_offset = home_begin(v, home);
            return 1;
        }
        above = home;
    }
}
