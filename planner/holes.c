/* Closes the holes of an arena. The idea: sort all that is ever used by offset and join what
 * touches; each joined range moves down by the bytes of the holes below it. Interface: holes.h;
 * schedule.c calls it. */
#include "planner/holes.h"

#include <stdlib.h>

#include "base/alloc.h"

/* Used addresses [begin, end); everything in them moves down by `shift`. */
typedef struct range {
    uint64_t begin, end, shift;
} range;

typedef struct range_list {
    range *all;
    size_t count;
} range_list;

static int compare_ranges(const void *x, const void *y)
{
    const uint64_t a = ((const range *)x)->begin, b = ((const range *)y)->begin;
    return a < b ? -1 : a > b;
}

/* Lists everything used, one range for each use; `all` has room for them. The first is what homes
 * and pinned objects have. */
static void list_uses(const coh_level *level, coh_residency *const *runs, int run_count,
                      const coh_resident *residents, uint32_t resident_count, range_list *list)
{
    const uint64_t fixed =
        level->floor_bytes > level->base_bytes ? level->floor_bytes : level->base_bytes;
    list->all[list->count++] = (range){ 0, fixed, 0 };
    for (int k = 0; k < run_count; k++)
        for (size_t i = 0; i < runs[k]->extent_count; i++) {
            const coh_extent *extent = &runs[k]->extents[i];
            list->all[list->count++] = (range){ extent->offset, extent->offset + extent->bytes, 0 };
        }
    for (uint32_t i = 0; i < resident_count; i++)
        if (residents[i].tier == level->tier)
            list->all[list->count++] =
                (range){ residents[i].offset,
                         residents[i].offset + level->layout->chunks[residents[i].chunk].bytes, 0 };
}

/* Joins ranges without a hole between them; the list is sorted. */
static void join(range_list *list)
{
    size_t last = 0;
    for (size_t i = 1; i < list->count; i++) {
        range *before = &list->all[last], next = list->all[i];
        if (next.begin > before->end) {
            next.shift = before->shift + (next.begin - before->end);
            list->all[++last] = next;
        } else if (next.end > before->end) {
            before->end = next.end;
        }
    }
    list->count = last + 1;
}

/* Returns where the used address `offset` moves. */
static uint64_t moved(const range_list *list, uint64_t offset)
{
    size_t low = 0, high = list->count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (list->all[middle].begin <= offset)
            low = middle;
        else
            high = middle;
    }
    return offset - list->all[low].shift;
}

static void move_run(const coh_level *level, const range_list *list, coh_residency *run)
{
    run->peak_bytes = level->base_bytes;
    for (size_t i = 0; i < run->extent_count; i++) {
        coh_extent *extent = &run->extents[i];
        extent->offset = moved(list, extent->offset);
        if (extent->offset + extent->bytes > run->peak_bytes)
            run->peak_bytes = extent->offset + extent->bytes;
    }
    for (size_t i = 0; i < run->placing_count; i++) {
        const uint32_t extent = run->touch_extents[run->placings[i].touch_begin];
        if (extent != UINT32_MAX) /* else the operand is farther out */
            run->placings[i].offset = run->extents[extent].offset;
    }
}

coh_status coh_holes_close(const coh_level *level, coh_residency *const *runs, int run_count,
                           coh_resident *residents, uint32_t resident_count)
{
    range_list list = { 0 };
    size_t most = 1 + (size_t)resident_count;
    for (int k = 0; k < run_count; k++)
        most += runs[k]->extent_count;
    COH_TRY(COH_ALLOC(most, &list.all));
    list_uses(level, runs, run_count, residents, resident_count, &list);
    qsort(list.all, list.count, sizeof(range), compare_ranges);
    join(&list);
    for (int k = 0; k < run_count && list.count > 1; k++)
        move_run(level, &list, runs[k]);
    for (uint32_t i = 0; i < resident_count && list.count > 1; i++)
        if (residents[i].tier == level->tier)
            residents[i].offset = moved(&list, residents[i].offset);
    coh_free(list.all);
    return COH_OK;
}
