/* Tracks the lifetimes of extents while verify_bytes.c runs the program (rules OVERLAP, LOST_DATA,
 * CLOSURE). The idea: cut arenas into cells at all extent ends, so each cell has one tenant at a
 * time and only its previous tenant need be compared. Neighbouring cells with the same tenant form
 * runs, since an extent may have hundreds of cells. The structures are in verify_scene.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/verify_scene.h"

/* ---- cells ---- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t find_edge(const uint64_t *edges, uint32_t count, uint64_t value)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (edges[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The cells of both arenas share one numbering: an offset of the host tier has its top bit set. */
static uint64_t edge_of(uint8_t tier, uint64_t offset)
{
    return tier == COH_TIER_HOST ? offset | (uint64_t)1 << 63 : offset;
}

/* Lists the ends of all extents. Most repeat one of the last ones and are left out; of the others
 * some repeat, too. */
static uint32_t list_edges(const coh_program *program, uint64_t *edges)
{
    enum { SEEN_BITS = 12 };
    uint64_t seen[1 << SEEN_BITS] = { 0 }; /* each plus 1, by hash */
    uint32_t count = 0;
    for (uint32_t i = 0; i < 2 * program->extent_count; i++) {
        const coh_extent *extent = &program->extents[i / 2];
        const uint64_t edge = edge_of(extent->tier, extent->offset + i % 2 * extent->bytes);
        uint64_t *last = &seen[edge * 0x9e3779b97f4a7c15u >> (64 - SEEN_BITS)];
        if (*last != edge + 1)
            edges[count++] = edge;
        *last = edge + 1;
    }
    return count;
}

/* Numbers the cells of every extent, and makes them without tenants. */
static coh_status cut_cells(coh_scene *scene)
{
    const coh_program *program = scene->v->program;
    uint64_t *edges = NULL;
    COH_TRY(COH_ALLOC(2 * (size_t)program->extent_count, &edges));
    const uint32_t count = list_edges(program, edges);
    qsort(edges, count, sizeof(*edges), by_value);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (kept == 0 || edges[kept - 1] != edges[i])
            edges[kept++] = edges[i];
    for (uint32_t e = 0; e < program->extent_count; e++) {
        const coh_extent *extent = &program->extents[e];
        scene->cell_begin[e] = find_edge(edges, kept, edge_of(extent->tier, extent->offset));
        scene->cell_end[e] =
            find_edge(edges, kept, edge_of(extent->tier, extent->offset + extent->bytes));
    }
    coh_free(edges);
    COH_TRY(COH_ALLOC(kept / 64 + 1, &scene->heads));
    scene->heads[0] = 1;
    return COH_ALLOC(kept + 1, &scene->tenants);
}

/* Returns the first cell of the run that contains a cell. */
static uint32_t head_of(const coh_scene *scene, uint32_t cell)
{
    uint32_t word = cell / 64;
    uint64_t bits = scene->heads[word] & (UINT64_MAX >> (63 - cell % 64));
    while (bits == 0)
        bits = scene->heads[--word]; /* the first cell begins a run */
    return word * 64 + 63 - (uint32_t)__builtin_clzll(bits);
}

/* Returns the cell after the run that begins with `head`, but no cell after `end`. */
static uint32_t end_of_run(const coh_scene *scene, uint32_t head, uint32_t end)
{
    for (uint32_t cell = head + 1; cell < end; cell = (cell / 64 + 1) * 64) {
        const uint64_t bits = scene->heads[cell / 64] >> (cell % 64);
        if (bits != 0) {
            const uint32_t found = cell + (uint32_t)__builtin_ctzll(bits);
            return found < end ? found : end;
        }
    }
    return end;
}

/* Makes a run begin with a cell. */
static void cut_run(coh_scene *scene, uint32_t cell)
{
    scene->tenants[cell] = scene->tenants[head_of(scene, cell)];
    scene->heads[cell / 64] |= (uint64_t)1 << (cell % 64);
}

/* ---- the boundary map ---- */

static coh_status map_residents(coh_scene *scene)
{
    const coh_layout *layout = scene->v->layout;
    for (uint32_t i = 0; i < layout->resident_count; i++) {
        const coh_resident *entry = &layout->residents[i];
        uint32_t *slot = &scene->resident[coh_tier_chunk(scene, entry->tier, entry->chunk)];
        const coh_object *object = coh_chunk_object(scene->v, entry->chunk);
        if (*slot != 0 || object->pinned || !object->survives)
            COH_TRY(coh_verify_breach(scene->v, COH_RULE_CLOSURE, COH_NO_INSTRUCTION, entry->chunk,
                                      "boundary entry %" PRIu32 " is a second one of its chunk and "
                                      "tier, or of a chunk that is pinned or does not survive",
                                      i));
        *slot = i + 1;
    }
    return COH_OK;
}

/* Returns 1 if the boundary map has this extent's chunk at this place. */
static int is_boundary_place(const coh_scene *scene, const coh_extent *extent)
{
    const coh_layout *layout = scene->v->layout;
    const coh_object *object = coh_chunk_object(scene->v, extent->chunk);
    if (object->pinned)
        return extent->tier == COH_TIER_DEVICE && extent->offset == object->pinned_offset &&
               extent->at_begin && extent->at_end;
    uint32_t entry = scene->resident[coh_tier_chunk(scene, extent->tier, extent->chunk)];
    return entry != 0 && layout->residents[entry - 1].offset == extent->offset;
}

static coh_status map_extents(coh_scene *scene)
{
    const coh_program *program = scene->v->program;
    for (uint32_t e = 0; e < program->extent_count; e++) {
        const coh_extent *extent = &program->extents[e];
        size_t at = coh_tier_chunk(scene, extent->tier, extent->chunk);
        int is_pinned =
            extent->tier == COH_TIER_DEVICE && coh_chunk_object(scene->v, extent->chunk)->pinned;
        if ((extent->at_begin || extent->at_end || is_pinned) && !is_boundary_place(scene, extent))
            COH_TRY(coh_verify_breach(scene->v, COH_RULE_CLOSURE, COH_NO_INSTRUCTION, extent->chunk,
                                      "extent %" PRIu32 " at %s %" PRIu64
                                      " is there at the %s, the "
                                      "boundary map has no such entry",
                                      e, coh_tier_name((coh_tier)extent->tier), extent->offset,
                                      extent->at_begin ? "begin" : "end"));
        if ((extent->at_begin && scene->begin_extent[at] != 0) ||
            (extent->at_end && scene->end_extent[at] != 0))
            COH_TRY(coh_verify_breach(scene->v, COH_RULE_CLOSURE, COH_NO_INSTRUCTION, extent->chunk,
                                      "extent %" PRIu32 " represents a boundary entry that another "
                                      "one represents",
                                      e));
        if (extent->at_begin)
            scene->begin_extent[at] = e + 1;
        if (extent->at_end)
            scene->end_extent[at] = e + 1;
    }
    return COH_OK;
}

coh_status coh_scene_map(coh_scene *scene)
{
    const coh_layout *layout = scene->v->layout;
    COH_TRY(cut_cells(scene));
    COH_TRY(map_residents(scene));
    COH_TRY(map_extents(scene));
    for (uint32_t i = 0; i < layout->resident_count; i++) {
        const coh_resident *entry = &layout->residents[i];
        size_t at = coh_tier_chunk(scene, entry->tier, entry->chunk);
        int begins = scene->begin_extent[at] != 0 || coh_scene_starts_empty(scene);
        if (!begins || scene->end_extent[at] == 0)
            COH_TRY(coh_verify_breach(
                scene->v, COH_RULE_CLOSURE, COH_NO_INSTRUCTION, entry->chunk,
                "the boundary map has it at %s %" PRIu64 ", no extent is there at the %s",
                coh_tier_name((coh_tier)entry->tier), entry->offset, begins ? "end" : "begin"));
    }
    return COH_OK;
}

/* ---- entering and leaving ---- */

static coh_status not_ordered(coh_scene *scene, uint32_t instruction, uint32_t extent, int lane,
                              uint32_t number)
{
    uint32_t length = scene->v->lane_length[lane];
    return coh_verify_breach(scene->v, COH_RULE_OVERLAP, instruction,
                             scene->v->program->extents[extent].chunk,
                             "extent %" PRIu32 " takes bytes that instruction %" PRIu32
                             " of the lane %s used for another chunk, and does not wait for it",
                             extent, (number - 1) % length + 1, coh_lane_name((coh_lane)lane));
}

/* Makes a life, of an unused number if there is one. May move the others. */
static coh_status new_life(coh_scene *scene, uint32_t extent, uint32_t *out_life)
{
    if (scene->unused_count > 0) {
        *out_life = scene->unused_lives[--scene->unused_count];
    } else {
        COH_TRY(COH_GROW(&scene->lives, &scene->life_capacity, scene->life_count + 1));
        COH_TRY(COH_GROW(&scene->unused_lives, &scene->unused_capacity, scene->life_count + 1));
        *out_life = (uint32_t)scene->life_count++;
    }
    scene->lives[*out_life] = (coh_life){ .extent = extent, .place = { .version = COH_GARBAGE } };
    return COH_OK;
}

/* Ends a life that was left once it is the tenant of no cell. */
static void end_life(coh_scene *scene, uint32_t index)
{
    coh_life *life = &scene->lives[index];
    if (!life->is_left || life->cell_count > 0 || life->is_unused)
        return;
    life->is_unused = 1;
    scene->unused_lives[scene->unused_count++] = index;
}

/* Returns the number in a lane of an instruction. */
static uint32_t number_of(const coh_verifier *v, uint32_t run, uint32_t instruction)
{
    return run * v->lane_length[v->program->instructions[instruction].lane] +
           v->ordinals[instruction];
}

/* Returns the highest number of a lane that used a life before the instruction. It may have used
 * the life itself: an operand that takes the place of another one follows it at once. */
static uint32_t uses_before(const coh_scene *scene, uint32_t run, uint32_t instruction,
                            const coh_life *life, int lane)
{
    const int is_own = instruction != COH_NO_INSTRUCTION &&
                       scene->v->program->instructions[instruction].lane == lane &&
                       life->uses[lane] == number_of(scene->v, run, instruction);
    return is_own ? life->use_before : life->uses[lane];
}

/* Checks that the tenant of a cell that `life` takes was left, and that all of its uses are ordered
 * before the life's. */
static coh_status follow(coh_scene *scene, uint32_t run, uint32_t instruction, coh_life *life,
                         coh_life *other)
{
    const coh_program *program = scene->v->program;
    if (!other->is_left) {
        other->is_evicted = 1;
        COH_TRY(coh_verify_breach(
            scene->v, COH_RULE_OVERLAP, instruction, program->extents[life->extent].chunk,
            "extent %" PRIu32 " takes bytes of extent %" PRIu32 " (chunk %" PRIu32
            "), of whose %" PRIu32 " uses %" PRIu32 " are done",
            life->extent, other->extent, program->extents[other->extent].chunk,
            program->extents[other->extent].use_count, scene->used[other->extent]));
    }
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        const uint32_t used = uses_before(scene, run, instruction, other, lane);
        if (instruction != COH_NO_INSTRUCTION &&
            coh_instruction_clock(scene->v, run, instruction)[lane] < used)
            COH_TRY(not_ordered(scene, instruction, life->extent, lane, used));
        if (used > life->before[lane])
            life->before[lane] = used;
    }
    return COH_OK;
}

/* Makes a life the tenant of its cells, which are one run then. `instruction` COH_NO_INSTRUCTION:
 * it exists as the program begins. */
static coh_status enter(coh_scene *scene, uint32_t run, uint32_t instruction, uint32_t life_index)
{
    coh_life *life = &scene->lives[life_index];
    const uint32_t begin = scene->cell_begin[life->extent], end = scene->cell_end[life->extent];
    uint32_t last = 0, next;
    life->cell_count = end - begin;
    cut_run(scene, end);
    cut_run(scene, begin);
    for (uint32_t cell = begin; cell < end; cell = next) {
        const uint32_t tenant = scene->tenants[cell];
        next = end_of_run(scene, cell, end);
        if (cell > begin)
            scene->heads[cell / 64] &= ~((uint64_t)1 << (cell % 64));
        scene->tenants[cell] = life_index + 1;
        if (tenant == 0)
            continue;
        if (tenant != last)
            COH_TRY(follow(scene, run, instruction, life, &scene->lives[tenant - 1]));
        last = tenant;
        scene->lives[tenant - 1].cell_count -= next - cell;
        end_life(scene, tenant - 1);
    }
    return COH_OK;
}

/* Returns 1 if the place holds the chunk's value between programs. Copies farther out than the
 * nearest count as stale, unless the chunk is read only. */
static int is_kept(const coh_scene *scene, const coh_extent *extent)
{
    return coh_scene_home(scene, extent->chunk) == extent->tier ||
           coh_chunk_is_read_only(scene->v->layout, extent->chunk);
}

/* The version in an extent when the program starts for the first time. */
static int64_t first_version(const coh_scene *scene, const coh_extent *extent)
{
    const coh_object *object = coh_chunk_object(scene->v, extent->chunk);
    if (!object->survives)
        return COH_GARBAGE;
    if (object->pinned)
        return 0;
    return !coh_scene_starts_empty(scene) && is_kept(scene, extent) ? 0 : COH_GARBAGE;
}

/* Begins the life of an extent that exists as a run begins: it goes on from the run before, or is a
 * new one. */
static coh_status begin_life(coh_scene *scene, uint32_t run, uint32_t e)
{
    const coh_extent *extent = &scene->v->program->extents[e];
    const uint32_t before = scene->end_extent[coh_tier_chunk(scene, extent->tier, extent->chunk)];
    const int goes_on = run > 0 && before != 0 &&
                        scene->v->program->extents[before - 1].offset == extent->offset &&
                        scene->life_of[before - 1] < COH_LIFE_LEFT;
    uint32_t *life = &scene->next_life_of[e];
    if (!goes_on) {
        COH_TRY(new_life(scene, e, life));
        scene->lives[*life].place.version = run == 0 ? first_version(scene, extent) : COH_GARBAGE;
        return enter(scene, run, COH_NO_INSTRUCTION, *life);
    }
    *life = scene->life_of[before - 1];
    scene->lives[*life].extent = e;
    if (!coh_chunk_object(scene->v, extent->chunk)->pinned && !is_kept(scene, extent))
        scene->lives[*life].place.version = COH_GARBAGE;
    return COH_OK;
}

/* Ends the uses of an extent. */
static void leave(coh_scene *scene, uint32_t *life_of, uint32_t extent)
{
    const uint32_t life = life_of[extent];
    life_of[extent] = COH_LIFE_LEFT;
    scene->lives[life].is_left = 1;
    end_life(scene, life);
}

coh_status coh_scene_begin_lives(coh_scene *scene, uint32_t run)
{
    const uint32_t count = scene->v->program->extent_count;
    memset(scene->used, 0, count * sizeof(*scene->used));
    for (uint32_t e = 0; e < count; e++) {
        scene->next_life_of[e] = COH_NO_LIFE;
        if (!scene->v->program->extents[e].at_begin)
            continue;
        COH_TRY(begin_life(scene, run, e));
        if (coh_extent_is_unused(&scene->v->program->extents[e]))
            leave(scene, scene->next_life_of, e);
    }
    memcpy(scene->life_of, scene->next_life_of, count * sizeof(*scene->life_of));
    return COH_OK;
}

coh_status coh_scene_use(coh_scene *scene, uint32_t run, uint32_t instruction, uint32_t extent)
{
    coh_verifier *v = scene->v;
    const uint32_t chunk = v->program->extents[extent].chunk;
    const uint32_t *clock = coh_instruction_clock(v, run, instruction);
    const uint32_t before = scene->life_of[extent];
    if (before >= COH_LIFE_LEFT)
        COH_TRY(new_life(scene, extent, &scene->life_of[extent]));
    if (before == COH_NO_LIFE)
        COH_TRY(enter(scene, run, instruction, scene->life_of[extent]));
    coh_life *life = &scene->lives[scene->life_of[extent]];
    if (before == COH_LIFE_LEFT || life->is_evicted)
        COH_TRY(coh_verify_breach(v, COH_RULE_OVERLAP, instruction, chunk,
                                  "extent %" PRIu32 " was left after %" PRIu32
                                  " uses, or its bytes were taken, before this use of it",
                                  extent, scene->used[extent]));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (clock[lane] < life->before[lane])
            COH_TRY(not_ordered(scene, instruction, extent, lane, life->before[lane]));
    int lane = v->program->instructions[instruction].lane;
    life->use_before = life->uses[lane];
    life->uses[lane] = number_of(v, run, instruction);
    scene->used[extent]++;
    return COH_OK;
}

coh_status coh_scene_release(coh_scene *scene, uint32_t instruction, uint32_t extent, int is_live)
{
    const coh_extent *facts = &scene->v->program->extents[extent];
    if (facts->at_end || scene->life_of[extent] >= COH_LIFE_LEFT ||
        scene->used[extent] < facts->use_count)
        return COH_OK;
    coh_scene_place *place = &scene->lives[scene->life_of[extent]].place;
    const int held_current = place->version == coh_scene_current(scene, facts->chunk);
    coh_scene_set_version(scene, place, facts->chunk, COH_GARBAGE);
    leave(scene, scene->life_of, extent);
    if (held_current && is_live && scene->copies[facts->chunk] == 0)
        return coh_verify_breach(scene->v, COH_RULE_LOST_DATA, instruction, facts->chunk,
                                 "extent %" PRIu32 " is left with the only copy of version %" PRId64
                                 ", which is read later or survives",
                                 extent, scene->writes[facts->chunk]);
    return COH_OK;
}

coh_status coh_scene_end_lives(coh_scene *scene)
{
    for (uint32_t e = 0; e < scene->v->program->extent_count; e++) {
        const coh_extent *extent = &scene->v->program->extents[e];
        const int is_entered = scene->life_of[e] != COH_NO_LIFE;
        const int is_left = scene->life_of[e] == COH_LIFE_LEFT;
        if (scene->used[e] != extent->use_count || (is_entered && !is_left && !extent->at_end))
            COH_TRY(coh_verify_breach(scene->v, COH_RULE_OVERLAP, COH_NO_INSTRUCTION, extent->chunk,
                                      "extent %" PRIu32 " counts %" PRIu32 " uses, %" PRIu32
                                      " instructions use it: it is never left",
                                      e, extent->use_count, scene->used[e]));
        if (extent->at_end && !is_entered)
            COH_TRY(coh_verify_breach(scene->v, COH_RULE_CLOSURE, COH_NO_INSTRUCTION, extent->chunk,
                                      "extent %" PRIu32 " is to be there at the end and is never "
                                      "entered",
                                      e));
    }
    return COH_OK;
}
