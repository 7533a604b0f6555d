/* Keeps the segments of an arena sorted by offset and finds free ranges in it. The idea: each of up
 * to 4096 strides records its first segment, its last free segment, its longest free range and
 * bounds of its content's uses, so that a search skips strides. Interface: arena_map.h; its user is
 * residency.c. */
#include "planner/arena_map.h"

#include <assert.h>

#include "base/alloc.h"

/* Up to so many chunks, chunks usually lie in so many strides: more take longer to pass than they
 * save. */
enum { CHUNKS_OF_FEW_STRIDES = 8192, FEW_STRIDES = 1024 };
enum { BLOCKS = COH_ARENA_STRIDES / COH_ARENA_BLOCK_STRIDES };

static const coh_arena_uses no_uses = { .latest_next = 0, .earliest_last = INT64_MAX };

/* ---- strides ---- */

static size_t stride_of(const coh_arena_map *map, uint64_t offset)
{
    uint64_t stride = (offset - map->begin) >> map->stride_bits;
    return stride < COH_ARENA_STRIDES ? (size_t)stride : COH_ARENA_STRIDES - 1;
}

static void mark(uint64_t *strides, size_t stride)
{
    strides[stride / 64] |= (uint64_t)1 << (stride % 64);
}

static void unmark(uint64_t *strides, size_t stride)
{
    strides[stride / 64] &= ~((uint64_t)1 << (stride % 64));
}

/* Returns the last marked stride before `stride`; COH_ARENA_STRIDES if there is none. */
static size_t marked_before(const uint64_t *strides, size_t stride)
{
    size_t word = stride / 64;
    uint64_t below = strides[word] & (((uint64_t)1 << (stride % 64)) - 1);
    while (below == 0) {
        if (word == 0)
            return COH_ARENA_STRIDES;
        below = strides[--word];
    }
    return word * 64 + 63 - (size_t)__builtin_clzll(below);
}

/* Returns the first marked stride after `stride`; COH_ARENA_STRIDES if there is none. */
static size_t marked_after(const uint64_t *strides, size_t stride)
{
    size_t word = ++stride / 64;
    if (stride == COH_ARENA_STRIDES)
        return COH_ARENA_STRIDES;
    uint64_t above = strides[word] & (UINT64_MAX << (stride % 64));
    while (above == 0) {
        if (++word == COH_ARENA_STRIDES / 64)
            return COH_ARENA_STRIDES;
        above = strides[word];
    }
    return word * 64 + (size_t)__builtin_ctzll(above);
}

static int is_marked(const uint64_t *strides, size_t stride)
{
    return (int)(strides[stride / 64] >> (stride % 64) & 1);
}

/* Records that a segment now begins at its offset. */
static void note_begin(coh_arena_map *map, int32_t index)
{
    size_t stride = stride_of(map, map->segments[index].offset);
    int32_t *first = &map->in_stride[stride];
    if (*first < 0 || map->segments[*first].offset > map->segments[index].offset)
        *first = index;
    mark(map->strides_with_begin, stride);
}

/* Removes a segment from its stride; the next one may begin in the same stride. */
static void note_end(coh_arena_map *map, int32_t index)
{
    size_t stride = stride_of(map, map->segments[index].offset);
    int32_t next = map->segments[index].next;
    if (map->taken_last[stride] == index)
        map->taken_last[stride] = -1;
    if (map->in_stride[stride] != index)
        return;
    int is_there = next >= 0 && stride_of(map, map->segments[next].offset) == stride;
    map->in_stride[stride] = is_there ? next : -1;
    if (is_there)
        return;
    unmark(map->strides_with_begin, stride);
    map->uses[stride] = no_uses;
}

/* Returns the last free segment before `index`; -1 if there is none. */
static int32_t free_before(const coh_arena_map *map, int32_t index)
{
    size_t stride = stride_of(map, map->segments[index].offset);
    int32_t previous = map->segments[index].previous;
    while (previous >= 0 && map->segments[previous].chunk >= 0 &&
           stride_of(map, map->segments[previous].offset) == stride)
        previous = map->segments[previous].previous;
    if (previous < 0 || map->segments[previous].chunk < 0)
        return previous;
    stride = marked_before(map->strides_with_free, stride);
    return stride < COH_ARENA_STRIDES ? map->last_free[stride] : -1;
}

static uint64_t end_of(const coh_segment *s)
{
    return s->offset + s->bytes;
}

/* Records whether the last free segment of a stride borders on the next stride. */
static void note_border(coh_arena_map *map, size_t stride)
{
    const int32_t next = map->segments[map->last_free[stride]].next;
    if (next < 0 || stride_of(map, map->segments[next].offset) != stride)
        mark(map->strides_ending_free, stride);
    else
        unmark(map->strides_ending_free, stride);
}

/* Adds a newly free segment to the list of free ones. */
static void note_free(coh_arena_map *map, int32_t index)
{
    coh_segment *s = &map->segments[index];
    size_t stride = stride_of(map, s->offset);
    s->previous_free = free_before(map, index);
    map->settles_at[stride] = INT64_MIN;
    if (s->previous_free >= 0)
        map->settles_at[stride_of(map, map->segments[s->previous_free].offset)] = INT64_MIN;
    s->next_free =
        s->previous_free >= 0 ? map->segments[s->previous_free].next_free : map->first_free;
    if (s->previous_free >= 0)
        map->segments[s->previous_free].next_free = index;
    else
        map->first_free = index;
    if (s->next_free >= 0)
        map->segments[s->next_free].previous_free = index;
    if (s->next_free < 0 || stride_of(map, map->segments[s->next_free].offset) != stride) {
        map->last_free[stride] = index;
        note_border(map, stride);
    }
    if (!is_marked(map->strides_with_free, stride) || s->last_use < map->oldest_free[stride])
        map->oldest_free[stride] = s->last_use;
    mark(map->strides_with_free, stride);
    map->most_free[stride] = UINT64_MAX; /* not measured */
}

/* Removes a segment from the list of free ones. */
static void note_taken(coh_arena_map *map, int32_t index)
{
    const coh_segment *s = &map->segments[index];
    size_t stride = stride_of(map, s->offset);
    if (s->previous_free >= 0)
        map->segments[s->previous_free].next_free = s->next_free;
    else
        map->first_free = s->next_free;
    if (s->next_free >= 0)
        map->segments[s->next_free].previous_free = s->previous_free;
    if (map->last_free[stride] != index)
        return;
    map->last_free[stride] = s->previous_free;
    unmark(map->strides_ending_free, stride); /* the one before it ends inside */
    if (s->previous_free < 0 || stride_of(map, map->segments[s->previous_free].offset) != stride)
        unmark(map->strides_with_free, stride);
}

int32_t coh_arena_map_at(const coh_arena_map *map, uint64_t offset)
{
    size_t stride = stride_of(map, offset);
    if (map->in_stride[stride] < 0 || map->segments[map->in_stride[stride]].offset > offset)
        stride = marked_before(map->strides_with_begin, stride); /* the first begins at `begin` */
    const coh_segment *segments = map->segments;
    int32_t index = map->in_stride[stride];
    const int32_t near = map->taken_last[stride];
    if (near >= 0 && (segments[near].offset <= offset ||
                      segments[near].offset - offset < offset - segments[index].offset))
        index = near;
    while (segments[index].offset > offset)
        index = segments[index].previous;
    while (end_of(&segments[index]) <= offset)
        index = segments[index].next;
    return index;
}

/* ---- searching for space ---- */

/* The request of coh_arena_map_find, and the range that ends with the last free segment visited. */
typedef struct room_search {
    uint64_t bytes, floor;
    int64_t latest;
    int of_moves;
    uint64_t begin, end;
} room_search;

static int64_t last_use_of(const coh_segment *segment, int of_moves)
{
    return of_moves ? segment->last_moved : segment->last_use;
}

static uint64_t longer(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Visits the free segments of a stride. Returns 1 once the range is long enough; otherwise records
 * the longest range that they make, and their earliest last use. */
static int search_stride(const coh_arena_map *map, room_search *s, size_t stride, int32_t first)
{
    const coh_segment *segments = map->segments;
    uint64_t longest = 0, room_begin = segments[first].offset;
    int64_t oldest = INT64_MAX;
    for (int32_t i = first;; i = segments[i].next_free) {
        const coh_segment *segment = &segments[i];
        oldest = segment->last_use < oldest ? segment->last_use : oldest;
        if (last_use_of(segment, s->of_moves) <= s->latest && segment->offset >= s->floor) {
            if (segment->offset != s->end)
                s->begin = segment->offset;
            s->end = end_of(segment);
            if (s->end - s->begin >= s->bytes)
                return 1;
        }
        const int is_last = i == map->last_free[stride];
        if (is_last || segment->next != segment->next_free) {
            longest = longer(longest, end_of(segment) - room_begin);
            if (is_last)
                break;
            room_begin = segments[segment->next_free].offset;
        }
    }
    map->most_free[stride] = longest;
    map->oldest_free[stride] = oldest;
    return 0;
}

/* Returns 1 if a range of free segments crosses the end of the stride. */
static int crosses_end(const coh_arena_map *map, size_t stride)
{
    if (!is_marked(map->strides_ending_free, stride))
        return 0;
    const coh_segment *last = &map->segments[map->last_free[stride]];
    return last->next_free >= 0 && last->next == last->next_free;
}

/* Most strides are passed without a look at their segments: all of them were used too recently, or
 * make too short a range. */
int coh_arena_map_find(const coh_arena_map *map, uint64_t bytes, int64_t latest, uint64_t floor,
                       int of_moves, uint64_t *out_offset)
{
    room_search s = { .bytes = bytes, .floor = floor, .latest = latest, .of_moves = of_moves };
    size_t stride = floor > map->begin ? stride_of(map, floor) : 0;
    size_t before = marked_before(map->strides_with_free, stride);
    int is_entered = 0; /* a range may have begun in the stride before */
    if (!is_marked(map->strides_with_free, stride))
        stride = marked_after(map->strides_with_free, stride);
    for (; stride < COH_ARENA_STRIDES; stride = marked_after(map->strides_with_free, stride)) {
        int is_left = 0;
        if (of_moves || map->oldest_free[stride] <= latest) {
            is_left = crosses_end(map, stride);
            if (is_entered || is_left || map->most_free[stride] >= bytes) {
                const int32_t first = before < COH_ARENA_STRIDES
                                          ? map->segments[map->last_free[before]].next_free
                                          : map->first_free;
                if (search_stride(map, &s, stride, first)) {
                    *out_offset = s.begin;
                    return 1;
                }
            }
        }
        is_entered = is_left;
        before = stride;
    }
    return 0;
}

/* Returns the last free segment of the map; -1 if there is none. */
static int32_t last_free_of(const coh_arena_map *map)
{
    size_t stride = COH_ARENA_STRIDES - 1;
    if (!is_marked(map->strides_with_free, stride))
        stride = marked_before(map->strides_with_free, stride);
    return stride < COH_ARENA_STRIDES ? map->last_free[stride] : -1;
}

int coh_arena_map_find_highest(const coh_arena_map *map, uint64_t bytes, int64_t latest,
                               uint64_t floor, int of_moves, uint64_t *out_offset)
{
    const coh_segment *segments = map->segments;
    uint64_t begin = 0, end = 0;
    for (int32_t i = last_free_of(map); i >= 0; i = segments[i].previous_free) {
        if (last_use_of(&segments[i], of_moves) > latest)
            continue;
        if (end_of(&segments[i]) != begin)
            end = end_of(&segments[i]);
        begin = segments[i].offset;
        if (end - begin < bytes)
            continue;
        *out_offset = end - bytes;
        return *out_offset >= floor;
    }
    return 0;
}

/* ---- next uses ---- */

static void add_uses(coh_arena_uses *uses, const coh_arena_uses *more)
{
    uses->latest_next = longer(uses->latest_next, more->latest_next);
    if (more->earliest_last < uses->earliest_last)
        uses->earliest_last = more->earliest_last;
}

static coh_arena_uses uses_of(const coh_segment *s)
{
    return (coh_arena_uses){ .latest_next = s->next_use, .earliest_last = s->last_use };
}

static int may_be_within(const coh_arena_limits *limits, const coh_arena_uses *uses)
{
    return coh_arena_is_within(limits, uses->latest_next, uses->earliest_last);
}

void coh_arena_map_set_next_use(coh_arena_map *map, int32_t segment, uint64_t next_use)
{
    coh_segment *s = &map->segments[segment];
    const size_t stride = stride_of(map, s->offset);
    s->next_use = next_use;
    const coh_arena_uses uses = uses_of(s);
    add_uses(&map->uses[stride], &uses);
    add_uses(&map->uses_of_block[stride / COH_ARENA_BLOCK_STRIDES], &uses);
}

/* Returns the first taken segment after the free ones from `first` on, or `first` if these have
 * `bytes`; -1 if there is neither. */
static int32_t end_of_range(const coh_arena_map *map, int32_t first, uint64_t bytes)
{
    const coh_segment *segments = map->segments;
    uint64_t found = 0;
    int32_t i = first;
    for (; i >= 0 && segments[i].chunk < 0; i = segments[i].next) {
        found += segments[i].bytes;
        if (found >= bytes)
            return first;
    }
    return i;
}

/* Returns the free segment with which a stride ends, else the first segment after the stride. */
static int32_t last_of(const coh_arena_map *map, size_t stride)
{
    const size_t after = marked_after(map->strides_with_begin, stride);
    const int32_t end = after < COH_ARENA_STRIDES ? map->in_stride[after] : -1;
    if (!is_marked(map->strides_with_free, stride))
        return end;
    int32_t i = map->last_free[stride];
    if (map->segments[i].next != end)
        return end;
    while (i != map->in_stride[stride] && map->segments[map->segments[i].previous].chunk < 0)
        i = map->segments[i].previous;
    return i;
}

static int may_hold(const coh_arena_map *map, size_t stride, uint64_t bytes)
{
    return is_marked(map->strides_with_free, stride) && map->most_free[stride] >= bytes;
}

/* Returns 1 if a range of `bytes` may begin with a free segment of the stride, though all that
 * begin in it are needed soon: it lies inside, or at the end. */
static int may_begin_free(const coh_arena_map *map, size_t stride, uint64_t bytes)
{
    return is_marked(map->strides_with_free, stride) &&
           (is_marked(map->strides_ending_free, stride) || map->most_free[stride] >= bytes);
}

/* Returns 1 if no free segment and no content within the limits begins in the block. */
static int is_block_passed(const coh_arena_map *map, size_t block, const coh_arena_limits *limits)
{
    const size_t first = block * COH_ARENA_BLOCK_STRIDES;
    const uint64_t free = map->strides_with_free[first / 64] >> (first % 64);
    return (free & (((uint64_t)1 << COH_ARENA_BLOCK_STRIDES) - 1)) == 0 &&
           !may_be_within(limits, &map->uses_of_block[block]);
}

/* Returns 1 if no segment begins in an earlier stride of the same block. */
static int is_first_of_block(const coh_arena_map *map, size_t stride)
{
    const size_t before = stride % COH_ARENA_BLOCK_STRIDES;
    const uint64_t begun = map->strides_with_begin[stride / 64] >> ((stride - before) % 64);
    return (begun & (((uint64_t)1 << before) - 1)) == 0;
}

/* Passes the strides of one block from *stride on as pass_strides does; *stride is then the one at
 * which it ends, or the first of a later block. Returns 1 if it ends inside. Makes the block's
 * bounds closer if it passes all of it. */
static int pass_block(const coh_arena_map *map, size_t *stride, const coh_arena_limits *limits,
                      uint64_t bytes)
{
    const size_t block = *stride / COH_ARENA_BLOCK_STRIDES;
    const int is_whole = is_first_of_block(map, *stride);
    coh_arena_uses uses = no_uses;
    for (; *stride / COH_ARENA_BLOCK_STRIDES == block;
         *stride = marked_after(map->strides_with_begin, *stride)) {
        if (may_be_within(limits, &map->uses[*stride]) || may_begin_free(map, *stride, bytes))
            return 1;
        add_uses(&uses, &map->uses[*stride]);
    }
    if (is_whole)
        map->uses_of_block[block] = uses;
    return 0;
}

/* Returns the first segment from `first` on in whose stride a range of `bytes` may begin with a
 * free segment, or content may be within the limits; -1 if there is none. Most strides are passed
 * here. */
static int32_t pass_strides(const coh_arena_map *map, int32_t first, const coh_arena_limits *limits,
                            uint64_t bytes)
{
    const size_t begin = stride_of(map, map->segments[first].offset);
    size_t stride = begin;
    while (stride < COH_ARENA_STRIDES) {
        const size_t block = stride / COH_ARENA_BLOCK_STRIDES;
        if (is_block_passed(map, block, limits))
            stride = marked_after(map->strides_with_begin,
                                  block * COH_ARENA_BLOCK_STRIDES + COH_ARENA_BLOCK_STRIDES - 1);
        else if (pass_block(map, &stride, limits, bytes))
            break;
    }
    if (stride == begin)
        return first;
    return stride < COH_ARENA_STRIDES ? map->in_stride[stride] : -1;
}

int32_t coh_arena_map_after(const coh_arena_map *map, int32_t segment,
                            const coh_arena_limits *limits, uint64_t bytes)
{
    const coh_segment *segments = map->segments;
    int32_t i = segments[segment].next;
    while (i >= 0 && (i = pass_strides(map, i, limits, bytes)) >= 0) {
        const size_t stride = stride_of(map, segments[i].offset);
        int is_whole = i == map->in_stride[stride];
        coh_arena_uses uses = no_uses;
        if (!may_be_within(limits, &map->uses[stride]) && !may_hold(map, stride, bytes)) {
            const int32_t last = last_of(map, stride);
            if (last < 0 || segments[last].offset > segments[i].offset)
                i = last;
            is_whole = 0;
        }
        for (; i >= 0 && stride_of(map, segments[i].offset) == stride; i = segments[i].next) {
            const int32_t taken = segments[i].chunk < 0 ? end_of_range(map, i, bytes) : i;
            if (taken < 0)
                return -1;
            const coh_arena_uses own = uses_of(&segments[taken]);
            if (segments[taken].chunk < 0 || may_be_within(limits, &own))
                return i;
            i = taken;
            add_uses(&uses, &own);
        }
        if (is_whole)
            map->uses[stride] = uses;
    }
    return -1;
}

/* ---- segments ---- */

/* Makes a node for a new segment, linked after `previous` (-1: first). */
static coh_status insert(coh_arena_map *map, int32_t previous, coh_segment segment,
                         int32_t *out_index)
{
    int32_t index = map->unused;
    if (index >= 0) {
        map->unused = map->segments[index].next;
    } else {
        COH_TRY(COH_EXTEND(&map->segments, &map->capacity, map->count + 1));
        index = (int32_t)map->count++;
    }
    segment.previous = previous;
    segment.next = previous >= 0 ? map->segments[previous].next : map->first;
    map->segments[index] = segment;
    if (previous >= 0)
        map->segments[previous].next = index;
    else
        map->first = index;
    if (segment.next >= 0)
        map->segments[segment.next].previous = index;
    else
        map->last = index;
    note_begin(map, index);
    if (segment.chunk < 0)
        note_free(map, index);
    *out_index = index;
    return COH_OK;
}

static void unlink_segment(coh_arena_map *map, int32_t index)
{
    coh_segment *s = &map->segments[index];
    note_end(map, index);
    if (s->chunk < 0)
        note_taken(map, index);
    if (s->previous >= 0)
        map->segments[s->previous].next = s->next;
    else
        map->first = s->next;
    if (s->next >= 0)
        map->segments[s->next].previous = s->previous;
    else
        map->last = s->previous;
    if (s->previous >= 0 && map->segments[s->previous].chunk < 0) {
        const size_t stride = stride_of(map, map->segments[s->previous].offset);
        if (map->last_free[stride] == s->previous)
            note_border(map, stride);
    }
    s->next = map->unused;
    s->chunk = -1;
    map->unused = index;
}

coh_status coh_arena_map_init(coh_arena_map *map, uint64_t begin, uint64_t end,
                              uint64_t usual_bytes, uint32_t chunk_count)
{
    uint64_t bytes = end - begin < usual_bytes ? end - begin : usual_bytes;
    *map = (coh_arena_map){
        .first = -1, .last = -1, .unused = -1, .first_free = -1, .begin = begin, .end = end
    };
    const uint64_t strides = chunk_count > CHUNKS_OF_FEW_STRIDES ? COH_ARENA_STRIDES : FEW_STRIDES;
    while (bytes >> map->stride_bits >= strides)
        map->stride_bits++;
    const uint64_t usual = (strides - 1) << map->stride_bits;
    map->usual_end = end - begin < usual ? end : begin + usual;
    const size_t count = stride_of(map, end) + 1;
    COH_TRY(COH_ALLOC(count, &map->taken_last));
    COH_TRY(COH_ALLOC(count, &map->settles_at));
    for (size_t i = 0; i < count; i++)
        map->in_stride[i] = map->taken_last[i] = -1;
    COH_TRY(COH_ALLOC(count, &map->most_free));
    COH_TRY(COH_ALLOC(count, &map->oldest_free));
    COH_TRY(COH_ALLOC(count, &map->uses));
    COH_TRY(COH_ALLOC(BLOCKS, &map->uses_of_block));
    for (size_t i = 0; i < count; i++)
        map->uses[i] = no_uses;
    for (int i = 0; i < BLOCKS; i++)
        map->uses_of_block[i] = no_uses;
    COH_TRY(COH_ALLOC(chunk_count, &map->segment_of_chunk));
    for (uint32_t i = 0; i < chunk_count; i++)
        map->segment_of_chunk[i] = -1;
    int32_t index = -1;
    return insert(map, -1,
                  (coh_segment){ .offset = begin,
                                 .bytes = end - begin,
                                 .chunk = -1,
                                 .extent = COH_NO_EXTENT,
                                 .last_use = -1,
                                 .last_moved = -1,
                                 .pin_step = UINT32_MAX },
                  &index);
}

void coh_arena_map_fini(coh_arena_map *map)
{
    coh_free(map->segments);
    coh_free(map->segment_of_chunk);
    coh_free(map->most_free);
    coh_free(map->oldest_free);
    coh_free(map->uses);
    coh_free(map->uses_of_block);
    coh_free(map->taken_last);
    coh_free(map->settles_at);
    *map = (coh_arena_map){ 0 };
}

/* Cuts a free segment at `offset`; *out_right is the part that begins there. */
static coh_status split(coh_arena_map *map, int32_t index, uint64_t offset, int32_t *out_right)
{
    coh_segment right = map->segments[index];
    *out_right = index;
    if (right.offset == offset)
        return COH_OK;
    right.bytes -= offset - right.offset;
    map->segments[index].bytes = offset - right.offset;
    right.offset = offset;
    return insert(map, index, right, out_right);
}

coh_status coh_arena_map_take(coh_arena_map *map, uint32_t chunk, uint64_t offset, uint64_t bytes)
{
    if (offset < map->begin || bytes > map->end || offset > map->end - bytes)
        return coh_fail(COH_ERR_INTERNAL, "a chunk was placed outside its arena");
    int32_t index = coh_arena_map_at(map, offset);
    int32_t first = -1, rest = -1;
    COH_TRY(split(map, index, offset, &first));
    int32_t last_use = map->segments[first].last_use, last_moved = map->segments[first].last_moved;
    uint64_t covered = 0;
    for (int32_t i = first; covered < bytes;) {
        if (i < 0 || map->segments[i].chunk >= 0)
            return coh_fail(COH_ERR_INTERNAL, "a chunk was placed over another");
        if (covered + map->segments[i].bytes > bytes)
            COH_TRY(split(map, i, offset + bytes, &rest));
        covered += map->segments[i].bytes;
        if (map->segments[i].last_use > last_use)
            last_use = map->segments[i].last_use;
        if (map->segments[i].last_moved > last_moved)
            last_moved = map->segments[i].last_moved;
        int32_t next = map->segments[i].next;
        if (i != first)
            unlink_segment(map, i);
        i = next;
    }
    coh_segment *s = &map->segments[first];
    note_taken(map, first);
    s->bytes = bytes;
    s->chunk = (int32_t)chunk;
    s->extent = COH_NO_EXTENT;
    s->last_use = last_use;
    s->last_moved = last_moved;
    s->pin_step = UINT32_MAX;
    map->segment_of_chunk[chunk] = first;
    map->taken_last[stride_of(map, offset)] = first;
    return COH_OK;
}

void coh_arena_map_release(coh_arena_map *map, int32_t segment)
{
    coh_segment *s = &map->segments[segment];
    assert(s->chunk >= 0);
    map->segment_of_chunk[s->chunk] = -1;
    s->chunk = -1;
    s->extent = COH_NO_EXTENT;
    s->pin_step = UINT32_MAX;
    note_free(map, segment);
}

/* Merges the free segments that begin in a stride, from `first` on. */
static void settle_stride(coh_arena_map *map, size_t stride, int32_t first, int64_t step)
{
    int64_t settles_at = INT64_MAX;
    for (int32_t i = first; i >= 0 && stride_of(map, map->segments[i].offset) == stride;) {
        coh_segment *s = &map->segments[i];
        const int32_t next = s->next_free;
        if (next < 0 || next != s->next) {
            i = next;
            continue;
        }
        const coh_segment *n = &map->segments[next];
        const int64_t latest = s->last_use > n->last_use ? s->last_use : n->last_use;
        if (latest > step && s->last_use != n->last_use) {
            settles_at = latest < settles_at ? latest : settles_at;
            i = next;
            continue;
        }
        s->bytes += n->bytes;
        map->most_free[stride] = UINT64_MAX;
        if (n->last_moved > s->last_moved)
            s->last_moved = n->last_moved;
        s->last_use = (int32_t)latest;
        unlink_segment(map, next);
    }
    map->settles_at[stride] = settles_at;
}

void coh_arena_map_settle(coh_arena_map *map, int64_t step)
{
    const size_t begin = map->first_free >= 0
                             ? stride_of(map, map->segments[map->first_free].offset)
                             : COH_ARENA_STRIDES;
    int32_t before = -1; /* the last free segment of earlier strides */
    for (size_t stride = begin; stride < COH_ARENA_STRIDES;
         stride = marked_after(map->strides_with_free, stride)) {
        if (map->settles_at[stride] <= step)
            settle_stride(map, stride,
                          before < 0 ? map->first_free : map->segments[before].next_free, step);
        before = map->last_free[stride];
    }
}
