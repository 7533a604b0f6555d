#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/planner/maker_script.h"

/* The location and version of a chunk's only copy in a tier. */
typedef struct copy_state {
    int extent;  /* -1: not there */
    int version; /* -1: garbage */
    int last_use;
} copy_state;

typedef struct stream {
    const maker_recipe *recipe;
    const maker_script *script;
    coh_layout *layout;
    coh_program *program;
    copy_state (*copies)[COH_TIER_COUNT]; /* by chunk, tier; the disk's has no extent */
    int *version, *locked;                /* by chunk */
    int *is_open;                         /* by extent */
    int instruction;                      /* index in the script */
    size_t instruction_capacity, operand_capacity, touch_capacity, extent_capacity, call_capacity,
        binding_capacity, open_capacity;
} stream;

static const coh_object *object_of(const stream *s, uint32_t chunk)
{
    return &s->layout->objects[s->layout->chunks[chunk].object];
}

/* Returns 1 if the chunk's present value is read later. Called before instruction `instruction`
 * has run. */
static int is_wanted(const stream *s, uint32_t chunk, int instruction)
{
    for (int i = instruction; i < s->script->count; i++)
        for (int w = 0; w < s->script->instructions[i].wish_count; w++) {
            const maker_wish *wish = &s->script->instructions[i].wishes[w];
            uint32_t first = s->layout->objects[wish->object].chunk_begin + wish->first;
            if (chunk >= first && chunk < first + wish->count)
                return (wish->access & COH_ACCESS_READ) != 0;
        }
    return object_of(s, chunk)->survives;
}

/* ---- extents ---- */

static int open_extent(stream *s, uint32_t chunk, coh_tier tier, uint64_t offset)
{
    coh_program *p = s->program;
    COH_GROW(&p->extents, &s->extent_capacity, p->extent_count + 1);
    COH_GROW(&s->is_open, &s->open_capacity, p->extent_count + 1);
    p->extents[p->extent_count] = (coh_extent){ .offset = offset,
                                                .bytes = s->layout->chunks[chunk].bytes,
                                                .chunk = chunk,
                                                .tier = (uint8_t)tier };
    s->is_open[p->extent_count] = 1;
    s->copies[chunk][tier] = (copy_state){ (int)p->extent_count, -1, s->instruction };
    return (int)p->extent_count++;
}

static void close_extent(stream *s, uint32_t chunk, coh_tier tier)
{
    s->is_open[s->copies[chunk][tier].extent] = 0;
    s->copies[chunk][tier] = (copy_state){ -1, -1, 0 };
}

static int is_resident(const stream *s, uint32_t chunk, coh_tier tier, uint64_t *offset)
{
    for (uint32_t i = 0; i < s->layout->resident_count; i++)
        if (s->layout->residents[i].chunk == chunk && s->layout->residents[i].tier == tier) {
            *offset = s->layout->residents[i].offset;
            return 1;
        }
    return 0;
}

static int is_free(const stream *s, coh_tier tier, uint64_t offset, uint64_t bytes)
{
    if (offset + bytes > s->layout->arena_bytes[tier])
        return 0;
    for (uint32_t e = 0; e < s->program->extent_count; e++) {
        const coh_extent *extent = &s->program->extents[e];
        if (s->is_open[e] && extent->tier == tier && extent->offset < offset + bytes &&
            offset < extent->offset + extent->bytes)
            return 0;
    }
    for (uint32_t i = 0; tier == COH_TIER_HOST && i < s->layout->resident_count; i++) {
        const coh_resident *entry = &s->layout->residents[i]; /* places kept for host entries */
        if (entry->tier == tier && entry->offset < offset + bytes &&
            offset < entry->offset + s->layout->chunks[entry->chunk].bytes)
            return 0;
    }
    return 1;
}

static int find_hole(const stream *s, coh_tier tier, uint64_t bytes, uint64_t *out_offset)
{
    uint64_t begin = tier == COH_TIER_DEVICE ? s->layout->pinned_bytes : 0;
    for (uint64_t at = begin; at + bytes <= s->layout->arena_bytes[tier]; at += MAKER_PAGE)
        if (is_free(s, tier, at, bytes)) {
            *out_offset = at;
            return 1;
        }
    return 0;
}

/* ---- instructions ---- */

static void add_operand(stream *s, int32_t object, coh_tier tier, int access, int role,
                        uint32_t first, uint32_t count)
{
    coh_program *p = s->program;
    const coh_chunk *chunk = &s->layout->chunks[first];
    COH_GROW(&p->operands, &s->operand_capacity, p->operand_count + 1);
    coh_operand *operand = &p->operands[p->operand_count++];
    *operand = (coh_operand){ .object = object,
                              .tier = (uint8_t)tier,
                              .access = (uint8_t)access,
                              .role = (uint8_t)role,
                              .touch_begin = p->touch_count,
                              .touch_count = count,
                              .object_offset = chunk->object_offset,
                              .offset = tier == COH_TIER_DISK
                                            ? chunk->file_offset
                                            : p->extents[s->copies[first][tier].extent].offset };
    for (uint32_t c = first; c < first + count; c++) {
        COH_GROW(&p->touches, &s->touch_capacity, p->touch_count + 1);
        p->touches[p->touch_count++] = (coh_touch){
            c, tier == COH_TIER_DISK ? COH_EXTENT_FILE : (uint32_t)s->copies[c][tier].extent,
            s->version[c]
        };
        operand->bytes += s->layout->chunks[c].bytes;
    }
    p->instructions[p->instruction_count - 1].operand_count++;
}

static coh_instruction *add_instruction(stream *s, int opcode, coh_lane lane, int before_after)
{
    coh_program *p = s->program;
    uint32_t done = p->lane_length[COH_LANE_COMPUTE];
    COH_GROW(&p->instructions, &s->instruction_capacity, p->instruction_count + 1);
    coh_instruction *instruction = &p->instructions[p->instruction_count++];
    *instruction = (coh_instruction){ .opcode = (uint8_t)opcode,
                                      .lane = (uint8_t)lane,
                                      .before_after = (uint8_t)before_after,
                                      .predicate_cell = COH_CELL_NONE,
                                      .ordinal = ++p->lane_length[lane],
                                      .position = before_after == 2 ? done - 1 : done,
                                      .operand_begin = p->operand_count,
                                      .call = -1 };
    return instruction;
}

static void move(stream *s, coh_opcode opcode, uint32_t chunk, coh_tier from, coh_tier to)
{
    coh_lane lane = opcode == COH_OP_LOAD    ? COH_LANE_H2D
                    : opcode == COH_OP_STORE ? COH_LANE_D2H
                    : opcode == COH_OP_READ  ? COH_LANE_READ
                                             : COH_LANE_WRITE;
    int32_t object = s->layout->chunks[chunk].object;
    int is_end = s->instruction >= s->script->count;
    add_instruction(s, opcode, lane, is_end ? 2 : 0)->bytes = s->layout->chunks[chunk].bytes;
    add_operand(s, object, from, COH_ACCESS_READ, COH_ROLE_FROM, chunk, 1);
    add_operand(s, object, to, COH_ACCESS_WRITE, COH_ROLE_TO, chunk, 1);
    s->copies[chunk][to].version = s->copies[chunk][from].version;
}

/* ---- making room ---- */

static void evict_host(stream *s, uint32_t chunk)
{
    const copy_state *copies = s->copies[chunk];
    int version = s->version[chunk];
    if (is_wanted(s, chunk, s->instruction) && copies[COH_TIER_HOST].version == version &&
        copies[COH_TIER_DISK].version != version && copies[COH_TIER_DEVICE].version != version)
        move(s, COH_OP_WRITE, chunk, COH_TIER_HOST, COH_TIER_DISK);
    close_extent(s, chunk, COH_TIER_HOST);
}

static void evict_device(stream *s, uint32_t chunk);

/* Returns an offset with room for `bytes`, evicting the least recently used copies. */
static uint64_t make_room(stream *s, coh_tier tier, uint64_t bytes)
{
    uint64_t offset = 0, unused = 0;
    while (!find_hole(s, tier, bytes, &offset)) {
        uint32_t victim = UINT32_MAX;
        for (uint32_t c = 0; c < s->layout->chunk_count; c++) {
            if (s->copies[c][tier].extent < 0 || object_of(s, c)->pinned || s->locked[c] ||
                (tier == COH_TIER_HOST && is_resident(s, c, tier, &unused)))
                continue;
            if (victim == UINT32_MAX ||
                s->copies[c][tier].last_use < s->copies[victim][tier].last_use)
                victim = c;
        }
        if (victim == UINT32_MAX)
            abort(); /* the recipe is too small */
        if (tier == COH_TIER_HOST)
            evict_host(s, victim);
        else
            evict_device(s, victim);
    }
    return offset;
}

static void open_host(stream *s, uint32_t chunk)
{
    uint64_t offset = 0;
    if (s->copies[chunk][COH_TIER_HOST].extent >= 0)
        return;
    int was_locked = s->locked[chunk];
    s->locked[chunk] = 1;
    if (!is_resident(s, chunk, COH_TIER_HOST, &offset))
        offset = make_room(s, COH_TIER_HOST, s->layout->chunks[chunk].bytes);
    s->locked[chunk] = was_locked;
    open_extent(s, chunk, COH_TIER_HOST, offset);
}

static void evict_device(stream *s, uint32_t chunk)
{
    int version = s->version[chunk];
    int has_copy = s->copies[chunk][COH_TIER_HOST].version == version ||
                   s->copies[chunk][COH_TIER_DISK].version == version;
    if (is_wanted(s, chunk, s->instruction) && !has_copy) {
        if (s->recipe->host_tier) {
            open_host(s, chunk);
            move(s, COH_OP_STORE, chunk, COH_TIER_DEVICE, COH_TIER_HOST);
        } else {
            move(s, COH_OP_WRITE, chunk, COH_TIER_DEVICE, COH_TIER_DISK);
        }
    }
    close_extent(s, chunk, COH_TIER_DEVICE);
}

/* ---- bringing in ---- */

static void fetch(stream *s, uint32_t chunk)
{
    int version = s->version[chunk];
    if (!s->recipe->host_tier) {
        if (s->copies[chunk][COH_TIER_DISK].version != version)
            abort();
        move(s, COH_OP_READ, chunk, COH_TIER_DISK, COH_TIER_DEVICE);
        return;
    }
    if (s->copies[chunk][COH_TIER_HOST].version != version) {
        if (s->copies[chunk][COH_TIER_DISK].version != version)
            abort();
        open_host(s, chunk);
        move(s, COH_OP_READ, chunk, COH_TIER_DISK, COH_TIER_HOST);
    }
    s->copies[chunk][COH_TIER_HOST].last_use = s->instruction;
    move(s, COH_OP_LOAD, chunk, COH_TIER_HOST, COH_TIER_DEVICE);
}

static int stands_together(const stream *s, uint32_t first, uint32_t count)
{
    for (uint32_t c = first; c < first + count; c++) {
        if (s->copies[c][COH_TIER_DEVICE].extent < 0)
            return 0;
        const coh_extent *here = &s->program->extents[s->copies[c][COH_TIER_DEVICE].extent];
        const coh_extent *last =
            c > first ? &s->program->extents[s->copies[c - 1][COH_TIER_DEVICE].extent] : NULL;
        if (last != NULL && here->offset != last->offset + last->bytes)
            return 0;
    }
    return 1;
}

static void bring_in(stream *s, const maker_wish *wish)
{
    uint32_t first = s->layout->objects[wish->object].chunk_begin + wish->first;
    uint64_t bytes = 0;
    if (stands_together(s, first, wish->count))
        return;
    for (uint32_t c = first; c < first + wish->count; c++) {
        bytes += s->layout->chunks[c].bytes;
        if (s->copies[c][COH_TIER_DEVICE].extent >= 0)
            evict_device(s, c);
    }
    uint64_t offset = make_room(s, COH_TIER_DEVICE, bytes);
    for (uint32_t c = first; c < first + wish->count; c++) {
        open_extent(s, c, COH_TIER_DEVICE, offset);
        offset += s->layout->chunks[c].bytes;
        s->locked[c] = 1;
    }
    for (uint32_t c = first; c < first + wish->count && (wish->access & COH_ACCESS_READ); c++)
        fetch(s, c);
}

/* ---- compute instructions ---- */

static void bind(stream *s, int role, int port, int operand, uint64_t offset, uint64_t bytes,
                 coh_dtype dtype)
{
    coh_program *p = s->program;
    int64_t elements = (int64_t)(bytes / (dtype == COH_DTYPE_BF16 ? 2 : 4));
    COH_GROW(&p->bindings, &s->binding_capacity, p->binding_count + 1);
    p->bindings[p->binding_count++] = (coh_binding){ .role = (uint8_t)role,
                                                     .port = (uint8_t)port,
                                                     .operand = (uint16_t)operand,
                                                     .object_offset = offset,
                                                     .shape = { dtype, 1, { elements } } };
    p->calls[p->call_count - 1].binding_count++;
}

/* Binds one port per wish, or one per parameter if a wish covers several. */
static void bind_wish(stream *s, const maker_wish *wish, int operand, int ports[])
{
    const coh_object *object = &s->layout->objects[wish->object];
    const coh_chunk *first = &s->layout->chunks[object->chunk_begin + wish->first];
    uint64_t end = first->object_offset;
    coh_instruction_call *call = &s->program->calls[s->program->call_count - 1];
    for (uint32_t c = 0; c < wish->count; c++)
        end += first[c].bytes;
    if ((wish->role == COH_ROLE_TO) && wish->access == COH_ACCESS_BOTH)
        call->input_grad_adds |= 1;
    const coh_group_layout *group =
        object->stream <= COH_STREAM_GRAD ? &s->layout->groups[object->owner] : NULL;
    coh_dtype dtype = group != NULL ? group->dtype : COH_DTYPE_F32;
    if (object->stream == COH_STREAM_SCRATCH && wish->role != COH_ROLE_WORKSPACE)
        dtype = s->layout->groups[object->owner].dtype; /* a gradient of operator = group 1 */
    if (group == NULL || group->parameter_count == 1) {
        if (wish->role == COH_ROLE_PARAMETER_GRAD && wish->access == COH_ACCESS_BOTH)
            call->parameter_grad_adds |= 1u << ports[wish->role];
        bind(s, wish->role, ports[wish->role]++, operand, first->object_offset,
             end - first->object_offset, dtype);
        return;
    }
    for (uint32_t i = 0; i < group->parameter_count; i++) {
        const coh_parameter_layout *parameter = &s->layout->parameters[group->parameter_begin + i];
        if (parameter->offset < first->object_offset || parameter->offset >= end)
            continue;
        if (wish->role == COH_ROLE_PARAMETER_GRAD && wish->access == COH_ACCESS_BOTH)
            call->parameter_grad_adds |= 1u << ports[wish->role];
        bind(s, wish->role, ports[wish->role]++, operand, parameter->offset,
             parameter->elements * (dtype == COH_DTYPE_BF16 ? 2 : 4), dtype);
    }
}

static void compute(stream *s, const script_instruction *what)
{
    coh_instruction *instruction = add_instruction(s, what->opcode, COH_LANE_COMPUTE, 1);
    int ports[32] = { 0 };
    instruction->predicate_cell = what->predicate_cell;
    if (what->has_call) {
        coh_program *p = s->program;
        COH_GROW(&p->calls, &s->call_capacity, p->call_count + 1);
        instruction->call = (int32_t)p->call_count;
        p->calls[p->call_count] = what->call;
        p->calls[p->call_count++].binding_begin = p->binding_count;
    }
    for (int w = 0; w < what->wish_count; w++) {
        const maker_wish *wish = &what->wishes[w];
        uint32_t first = s->layout->objects[wish->object].chunk_begin + wish->first;
        add_operand(s, wish->object, COH_TIER_DEVICE, wish->access, wish->role, first, wish->count);
        if (what->has_call)
            bind_wish(s, wish, w, ports);
    }
    for (int w = 0; w < what->wish_count; w++) {
        const maker_wish *wish = &what->wishes[w];
        uint32_t first = s->layout->objects[wish->object].chunk_begin + wish->first;
        for (uint32_t c = first; c < first + wish->count; c++) {
            s->version[c] += (wish->access & COH_ACCESS_WRITE) != 0;
            s->copies[c][COH_TIER_DEVICE].version = s->version[c];
            s->copies[c][COH_TIER_DEVICE].last_use = s->instruction;
        }
    }
}

/* ---- begin and end ---- */

static int is_used(const stream *s, int32_t object)
{
    for (int i = 0; i < s->script->count; i++)
        for (int w = 0; w < s->script->instructions[i].wish_count; w++)
            if (s->script->instructions[i].wishes[w].object == object)
                return 1;
    return 0;
}

static void begin(stream *s)
{
    int starts_empty =
        s->program->kind == COH_PROGRAM_INIT || s->program->kind == COH_PROGRAM_IMPORT;
    for (uint32_t c = 0; c < s->layout->chunk_count; c++) {
        for (int tier = 0; tier < COH_TIER_COUNT; tier++)
            s->copies[c][tier] = (copy_state){ -1, -1, -1 };
        if (object_of(s, c)->pinned && is_used(s, s->layout->chunks[c].object)) {
            int e = open_extent(s, c, COH_TIER_DEVICE, object_of(s, c)->pinned_offset);
            s->program->extents[e].at_begin = 1;
            s->copies[c][COH_TIER_DEVICE].version = object_of(s, c)->survives ? 0 : -1;
        } else if (object_of(s, c)->survives && !object_of(s, c)->pinned && !starts_empty) {
            s->copies[c][COH_TIER_DISK].version = 0;
        }
    }
    for (uint32_t i = 0; i < s->layout->resident_count && !starts_empty; i++) {
        const coh_resident *entry = &s->layout->residents[i];
        int e = open_extent(s, entry->chunk, (coh_tier)entry->tier, entry->offset);
        int is_inner =
            entry->tier == COH_TIER_DEVICE || s->copies[entry->chunk][COH_TIER_DEVICE].extent < 0;
        s->program->extents[e].at_begin = 1;
        s->copies[entry->chunk][entry->tier].version = is_inner ? 0 : -1;
        s->copies[entry->chunk][COH_TIER_DISK].version = -1;
    }
}

static void end_device(stream *s)
{
    uint64_t offset = 0;
    for (uint32_t c = 0; c < s->layout->chunk_count; c++) {
        int e = s->copies[c][COH_TIER_DEVICE].extent;
        if (e < 0 || object_of(s, c)->pinned ||
            (is_resident(s, c, COH_TIER_DEVICE, &offset) &&
             offset == s->program->extents[e].offset))
            continue;
        evict_device(s, c);
    }
    for (uint32_t i = 0; i < s->layout->resident_count; i++) {
        const coh_resident *entry = &s->layout->residents[i];
        if (entry->tier != COH_TIER_DEVICE || s->copies[entry->chunk][COH_TIER_DEVICE].extent >= 0)
            continue;
        open_extent(s, entry->chunk, COH_TIER_DEVICE, entry->offset);
        fetch(s, entry->chunk);
    }
}

static void end_host(stream *s)
{
    uint64_t offset = 0;
    for (uint32_t c = 0; c < s->layout->chunk_count; c++)
        if (s->copies[c][COH_TIER_HOST].extent >= 0 && !is_resident(s, c, COH_TIER_HOST, &offset))
            evict_host(s, c);
    for (uint32_t i = 0; i < s->layout->resident_count; i++) {
        uint32_t chunk = s->layout->residents[i].chunk;
        if (s->layout->residents[i].tier != COH_TIER_HOST ||
            s->copies[chunk][COH_TIER_HOST].extent >= 0)
            continue;
        open_host(s, chunk);
        move(s, COH_OP_STORE, chunk, COH_TIER_DEVICE, COH_TIER_HOST);
    }
}

static void count_uses(stream *s)
{
    coh_program *p = s->program;
    for (uint32_t e = 0; e < p->extent_count; e++) {
        p->extents[e].at_end = (uint8_t)s->is_open[e];
        uint64_t end = p->extents[e].offset + p->extents[e].bytes;
        if (end > p->peak_bytes[p->extents[e].tier])
            p->peak_bytes[p->extents[e].tier] = end;
    }
    if (p->peak_bytes[COH_TIER_DEVICE] < s->layout->pinned_bytes)
        p->peak_bytes[COH_TIER_DEVICE] = s->layout->pinned_bytes;
    for (uint32_t t = 0; t < p->touch_count; t++)
        if (p->touches[t].extent != COH_EXTENT_FILE)
            p->extents[p->touches[t].extent]
                .use_count++; /* no instruction touches an extent twice */
}

void stream_script(const maker_recipe *recipe, const maker_script *script, made_program *made)
{
    stream s = {
        .recipe = recipe, .script = script, .layout = &made->layout, .program = &made->program
    };
    size_t chunks = made->layout.chunk_count;
    s.copies = calloc(chunks, sizeof(*s.copies));
    s.version = calloc(chunks, sizeof(int));
    s.locked = calloc(chunks, sizeof(int));
    begin(&s);
    for (; s.instruction < script->count; s.instruction++) {
        const script_instruction *instruction = &script->instructions[s.instruction];
        memset(s.locked, 0, chunks * sizeof(int));
        for (int w = 0; w < instruction->wish_count; w++)
            for (uint32_t c = 0; c < instruction->wishes[w].count; c++)
                s.locked[made->layout.objects[instruction->wishes[w].object].chunk_begin +
                         instruction->wishes[w].first + c] = 1;
        for (int w = 0; w < instruction->wish_count; w++)
            bring_in(&s, &instruction->wishes[w]);
        compute(&s, instruction);
    }
    memset(s.locked, 0, chunks * sizeof(int));
    end_device(&s);
    end_host(&s);
    count_uses(&s);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        made->program.lane_depth[lane] =
            lane == COH_LANE_COMPUTE ? recipe->compute_depth : recipe->mover_depth;
    free(s.copies);
    free(s.version);
    free(s.locked);
    coh_free(s.is_open);
}
