#include "tests/planner/poison_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096u

typedef struct piece {
    uint64_t begin, end; /* the top bits name the tier */
    uint64_t symbol;     /* 0: poison */
    uint64_t distance;   /* offset in the chunk that was written here */
    int64_t version;     /* counted over all runs */
    uint32_t chunk;
    uint32_t owner; /* 1 + extent; files: 0 */
} piece;

typedef struct machine {
    const coh_layout *layout;
    const coh_program *program;
    uint32_t run, run_count;
    piece *pieces;
    size_t piece_count;
    int64_t *writes, *writes_per_run; /* by chunk */
    uint32_t *used;                   /* by extent, in this run */
    uint8_t *is_in;                   /* by extent */
    int pending, is_in_issue_order;
    poison_result *result;
} machine;

static void fault(machine *m, uint32_t instruction, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void fault(machine *m, uint32_t instruction, const char *format, ...)
{
    if (m->result->is_faulty)
        return;
    m->result->is_faulty = 1;
    int used = snprintf(m->result->fault, sizeof(m->result->fault),
                        "run %u instruction %u: ", m->run, instruction);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(m->result->fault + used, sizeof(m->result->fault) - (size_t)used, format, arguments);
    va_end(arguments);
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

static uint64_t place(int tier, uint64_t offset)
{
    return ((uint64_t)tier << 60) + offset;
}

/* ---- pieces ---- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void cut_pieces(machine *m)
{
    const coh_program *p = m->program;
    size_t most = 2 * (size_t)(p->operand_count + p->touch_count + p->extent_count) +
                  2 * (size_t)(2 * m->layout->chunk_count + m->layout->resident_count) + 4;
    uint64_t *edges = malloc(most * sizeof(uint64_t));
    size_t count = 0, kept = 0;
    for (uint32_t i = 0; i < p->operand_count; i++) {
        uint64_t at = place(p->operands[i].tier, p->operands[i].offset);
        edges[count++] = at;
        for (uint32_t t = 0; t < p->operands[i].touch_count; t++)
            edges[count++] = at +=
                m->layout->chunks[p->touches[p->operands[i].touch_begin + t].chunk].bytes;
    }
    for (uint32_t e = 0; e < p->extent_count; e++) {
        edges[count++] = place(p->extents[e].tier, p->extents[e].offset);
        edges[count++] = place(p->extents[e].tier, p->extents[e].offset + p->extents[e].bytes);
    }
    for (uint32_t c = 0; c < m->layout->chunk_count; c++) {
        const coh_chunk *chunk = &m->layout->chunks[c];
        edges[count++] = place(COH_TIER_DISK, chunk->file_offset);
        edges[count++] = place(COH_TIER_DISK, chunk->file_offset + chunk->bytes);
        if (coh_chunk_keeps_old(m->layout, c)) {
            edges[count++] = place(COH_TIER_DISK, chunk->odd_offset);
            edges[count++] = place(COH_TIER_DISK, chunk->odd_offset + chunk->bytes);
        }
    }
    for (uint32_t i = 0; i < m->layout->resident_count; i++) {
        const coh_resident *entry = &m->layout->residents[i];
        uint64_t at = place(entry->tier, entry->offset);
        edges[count++] = at;
        edges[count++] = at + m->layout->chunks[entry->chunk].bytes;
    }
    qsort(edges, count, sizeof(uint64_t), by_value);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || edges[kept - 1] != edges[i])
            edges[kept++] = edges[i];
    m->pieces = calloc(kept + 1, sizeof(piece));
    for (size_t i = 0; i + 1 < kept; i++)
        m->pieces[m->piece_count++] = (piece){ .begin = edges[i], .end = edges[i + 1] };
    free(edges);
}

/* Returns the first piece at or after an offset; the pieces of [offset, offset + bytes) follow
 * it. */
static piece *piece_at(machine *m, int tier, uint64_t offset)
{
    size_t low = 0, high = m->piece_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (m->pieces[middle].begin < place(tier, offset))
            low = middle + 1;
        else
            high = middle;
    }
    return &m->pieces[low];
}

#define EACH_PIECE(m, p, tier, offset, bytes)                                                      \
    for (piece *p = piece_at(m, tier, offset);                                                     \
         p < (m)->pieces + (m)->piece_count && p->begin < place(tier, (offset) + (bytes)); p++)

static void poison(machine *m, int tier, uint64_t offset, uint64_t bytes)
{
    EACH_PIECE(m, p, tier, offset, bytes)
    p->symbol = 0;
}

static void write_symbol(machine *m, int tier, uint64_t offset, uint32_t chunk, uint64_t symbol,
                         int64_t version)
{
    EACH_PIECE(m, p, tier, offset, m->layout->chunks[chunk].bytes)
    {
        p->symbol = symbol;
        p->distance = p->begin - place(tier, offset);
        p->version = version;
        p->chunk = chunk;
    }
}

/* Returns the symbol at an offset if these bytes are exactly the chunk in this version, else 0. */
static uint64_t read_symbol(machine *m, int tier, uint64_t offset, uint32_t chunk, int64_t version)
{
    uint64_t symbol = 0;
    EACH_PIECE(m, p, tier, offset, m->layout->chunks[chunk].bytes)
    {
        if (p->symbol == 0 || p->chunk != chunk || p->version != version ||
            p->distance != p->begin - place(tier, offset) || (symbol != 0 && p->symbol != symbol))
            return 0;
        symbol = p->symbol;
    }
    return symbol;
}

/* Returns where a version of a chunk lies in the file, counted over all runs; `offset` in other
 * tiers. */
static uint64_t offset_of(const machine *m, int tier, uint64_t offset, uint32_t chunk,
                          int64_t version)
{
    const int is_odd = tier == COH_TIER_DISK && version % 2 != 0;
    return is_odd && coh_chunk_keeps_old(m->layout, chunk) ? m->layout->chunks[chunk].odd_offset
                                                           : offset;
}

/* ---- boundaries ---- */

static const coh_object *object_of(const machine *m, uint32_t chunk)
{
    return &m->layout->objects[m->layout->chunks[chunk].object];
}

typedef struct spot {
    int tier;
    uint64_t offset;
} spot;

/* Lists where the next program may look for a survivor: the nearest of pinned place, boundary
 * entries and file, or all of these for a frozen parameter. Returns the count. */
static int homes_of(const machine *m, uint32_t chunk, spot homes[COH_TIER_COUNT])
{
    const coh_object *object = object_of(m, chunk);
    const int is_frozen =
        object->stream == COH_STREAM_WORK && m->layout->groups[object->owner].optimizer < 0;
    int count = 0;
    if (object->pinned)
        homes[count++] = (spot){ COH_TIER_DEVICE, object->pinned_offset };
    for (int tier = COH_TIER_DEVICE; tier <= COH_TIER_HOST; tier++)
        for (uint32_t i = 0; i < m->layout->resident_count; i++) {
            const coh_resident *entry = &m->layout->residents[i];
            if (entry->chunk == chunk && (int)entry->tier == tier && (count == 0 || is_frozen))
                homes[count++] = (spot){ tier, entry->offset };
        }
    if (m->layout->file_bytes > 0 && (count == 0 || is_frozen))
        homes[count++] = (spot){ COH_TIER_DISK, m->layout->chunks[chunk].file_offset };
    return object->survives ? count : 0;
}

/* The number that version 0 of this run has when versions are counted over all runs. */
static int64_t base_of(const machine *m, uint32_t chunk)
{
    return m->run * m->writes_per_run[chunk];
}

static int starts_empty(const machine *m)
{
    return m->program->kind == COH_PROGRAM_INIT || m->program->kind == COH_PROGRAM_IMPORT;
}

/* Keeps only what the boundary guarantees, survivors at their homes, and poisons all other
 * bytes. */
static void cross_boundary(machine *m, int is_first)
{
    spot homes[COH_TIER_COUNT];
    uint64_t(*symbols)[COH_TIER_COUNT] = calloc(m->layout->chunk_count, sizeof(*symbols));
    for (uint32_t c = 0; c < m->layout->chunk_count; c++)
        for (int i = homes_of(m, c, homes); i-- > 0;) {
            const spot *at = &homes[i];
            symbols[c][i] =
                is_first
                    ? mix(UINT64_C(1) << 32, c) /* no chunk has that number */
                    : read_symbol(m, at->tier, offset_of(m, at->tier, at->offset, c, base_of(m, c)),
                                  c, base_of(m, c));
            if (is_first && starts_empty(m) && !object_of(m, c)->pinned)
                symbols[c][i] = 0;
        }
    for (size_t i = 0; i < m->piece_count; i++)
        m->pieces[i].symbol = 0;
    for (uint32_t c = 0; c < m->layout->chunk_count; c++)
        for (int i = homes_of(m, c, homes); i-- > 0;)
            if (symbols[c][i] != 0)
                write_symbol(m, homes[i].tier,
                             offset_of(m, homes[i].tier, homes[i].offset, c, base_of(m, c)), c,
                             symbols[c][i], base_of(m, c));
    free(symbols);
}

/* Returns an extent's number in the boundary map: 0 none, else 1 + entry, or UINT32_MAX for a
 * pinned object. */
static uint32_t entry_of(const machine *m, const coh_extent *extent)
{
    const coh_object *object = object_of(m, extent->chunk);
    if (object->pinned)
        return extent->tier == COH_TIER_DEVICE && extent->offset == object->pinned_offset
                   ? UINT32_MAX
                   : 0;
    for (uint32_t i = 0; i < m->layout->resident_count; i++) {
        const coh_resident *entry = &m->layout->residents[i];
        if (entry->chunk == extent->chunk && entry->tier == extent->tier &&
            entry->offset == extent->offset)
            return i + 1;
    }
    return 0;
}

static void own(machine *m, uint32_t instruction, uint32_t e)
{
    const coh_extent *extent = &m->program->extents[e];
    EACH_PIECE(m, p, extent->tier, extent->offset, extent->bytes)
    {
        if (p->owner != 0)
            fault(m, instruction, "extent %u enters bytes of extent %u", e, p->owner - 1);
        p->owner = e + 1;
    }
    uint64_t end = extent->offset + extent->bytes;
    if (end > m->result->peak_bytes[extent->tier])
        m->result->peak_bytes[extent->tier] = end;
    m->is_in[e] = 1;
}

static void begin_run(machine *m)
{
    memset(m->used, 0, m->program->extent_count * sizeof(*m->used));
    memset(m->is_in, 0, m->program->extent_count);
    memset(m->writes, 0, m->layout->chunk_count * sizeof(*m->writes));
    cross_boundary(m, m->run == 0);
    for (size_t i = 0; i < m->piece_count; i++)
        m->pieces[i].owner = 0;
    for (uint32_t e = 0; e < m->program->extent_count; e++)
        if (m->program->extents[e].at_begin) {
            if (!coh_extent_is_unused(&m->program->extents[e])) /* else: left at once */
                own(m, UINT32_MAX, e);
            if (entry_of(m, &m->program->extents[e]) == 0)
                fault(m, UINT32_MAX, "extent %u is not at the boundary", e);
        }
}

static void check_entries(machine *m, int at_end)
{
    for (uint32_t i = 0; i < m->layout->resident_count; i++) {
        uint32_t found = 0;
        for (uint32_t e = 0; e < m->program->extent_count; e++) {
            const coh_extent *extent = &m->program->extents[e];
            found += (at_end ? extent->at_end && m->is_in[e] : extent->at_begin) &&
                     entry_of(m, extent) == i + 1;
        }
        if (found != 1 && !(!at_end && starts_empty(m)))
            fault(m, UINT32_MAX, "boundary entry %u is %u times at the %s", i, found,
                  at_end ? "end" : "begin");
    }
}

/* Faults unless a second run would find the version that this one has found. */
static void check_old(machine *m, uint32_t chunk)
{
    const int64_t version = base_of(m, chunk);
    const uint64_t even = m->layout->chunks[chunk].file_offset;
    if (read_symbol(m, COH_TIER_DISK, offset_of(m, COH_TIER_DISK, even, chunk, version), chunk,
                    version) == 0)
        fault(m, UINT32_MAX, "chunk %u is not there any more for a second run", chunk);
}

static void end_run(machine *m)
{
    for (uint32_t e = 0; e < m->program->extent_count; e++) {
        const coh_extent *extent = &m->program->extents[e];
        if (m->used[e] != extent->use_count)
            fault(m, UINT32_MAX, "extent %u counts %u uses, has %u", e, extent->use_count,
                  m->used[e]);
        if (m->is_in[e] != extent->at_end)
            fault(m, UINT32_MAX, "extent %u is %s at the end", e, m->is_in[e] ? "there" : "gone");
        int is_pinned = object_of(m, extent->chunk)->pinned && extent->tier == COH_TIER_DEVICE;
        if ((is_pinned || extent->at_end) &&
            (entry_of(m, extent) == 0 || (is_pinned && !(extent->at_begin && extent->at_end))))
            fault(m, UINT32_MAX, "extent %u stays where the boundary has nothing", e);
    }
    check_entries(m, 0);
    check_entries(m, 1);
    for (uint32_t c = 0; c < m->layout->chunk_count; c++) {
        spot homes[COH_TIER_COUNT];
        if (object_of(m, c)->pinned && m->writes_per_run[c] == 0)
            continue;
        const int count = homes_of(m, c, homes);
        if (m->program->kind == COH_PROGRAM_BODY && coh_chunk_keeps_old(m->layout, c))
            check_old(m, c);
        if (count == 0 && object_of(m, c)->survives)
            fault(m, UINT32_MAX, "chunk %u has no home at the end", c);
        for (int i = 0; i < count; i++) {
            const int64_t version = base_of(m, c) + m->writes[c];
            const int tier = homes[i].tier;
            uint64_t symbol =
                read_symbol(m, tier, offset_of(m, tier, homes[i].offset, c, version), c, version);
            if (symbol == 0)
                fault(m, UINT32_MAX, "chunk %u is not whole at its home at the end", c);
            m->result->hash = i == 0 ? mix(m->result->hash, symbol) : m->result->hash;
        }
    }
}

/* ---- instructions ---- */

/* Faults unless the bytes of a touch belong to its extent, which is entered and not yet left. */
static void check_owned(machine *m, uint32_t instruction, const coh_operand *operand,
                        uint64_t offset, const coh_touch *touch)
{
    uint64_t bytes = m->layout->chunks[touch->chunk].bytes;
    if (touch->extent == COH_EXTENT_FILE) {
        if (offset != m->layout->chunks[touch->chunk].file_offset)
            fault(m, instruction, "chunk %u is not at its place in the file", touch->chunk);
        return;
    }
    const coh_extent *extent = &m->program->extents[touch->extent];
    if (extent->offset != offset || extent->bytes != bytes || extent->tier != operand->tier ||
        extent->chunk != touch->chunk)
        fault(m, instruction, "extent %u is not where the instruction touches", touch->extent);
    EACH_PIECE(m, p, operand->tier, offset, bytes)
    if (p->owner != touch->extent + 1)
        fault(m, instruction, "bytes of extent %u touched, owned by %u", touch->extent,
              p->owner - 1);
}

/* Enters an extent in place of one of an operand before, whose last use this is, and which keeps
 * its bytes until they are read. */
static void take_from(machine *m, uint32_t index, const coh_operand *operand, uint32_t extent)
{
    const coh_instruction *instruction = &m->program->instructions[index];
    const coh_operand *taken =
        &m->program->operands[instruction->operand_begin + operand->takes - 1];
    if (taken >= operand || taken->access != COH_ACCESS_READ ||
        operand->access != COH_ACCESS_WRITE || extent == COH_EXTENT_FILE) {
        fault(m, index, "it takes a place that it cannot be written in");
        return;
    }
    int is_found = 0;
    for (uint32_t t = 0; t < taken->touch_count; t++) {
        const uint32_t e = m->program->touches[taken->touch_begin + t].extent;
        const coh_extent *left = &m->program->extents[e];
        if (left->tier != operand->tier || left->offset != m->program->extents[extent].offset)
            continue;
        is_found = 1;
        if (m->used[e] + 1 != left->use_count || left->at_end)
            fault(m, index, "extent %u is taken before its last use", e);
        EACH_PIECE(m, p, left->tier, left->offset, left->bytes)
        p->owner = 0;
    }
    if (!is_found)
        fault(m, index, "it takes the place of what lies elsewhere");
    own(m, index, extent);
}

static void enter_and_check(machine *m, uint32_t index)
{
    const coh_instruction *instruction = &m->program->instructions[index];
    for (uint32_t o = 0; o < instruction->operand_count; o++) {
        const coh_operand *operand = &m->program->operands[instruction->operand_begin + o];
        uint64_t offset = operand->offset;
        if (offset % PAGE != 0 || operand->bytes % PAGE != 0)
            fault(m, index, "operand %u is not on pages", o);
        if (operand->tier != COH_TIER_DISK &&
            offset + operand->bytes > m->layout->arena_bytes[operand->tier])
            fault(m, index, "operand %u is outside the arena", o);
        if (((operand->access & COH_ACCESS_READ) &&
             !((m->layout->access.reads[instruction->lane] >> operand->tier) & 1)) ||
            ((operand->access & COH_ACCESS_WRITE) &&
             !((m->layout->access.writes[instruction->lane] >> operand->tier) & 1)))
            fault(m, index, "the lane may not touch the tier");
        uint64_t object_offset = operand->object_offset;
        for (uint32_t t = 0; t < operand->touch_count; t++) {
            const coh_touch *touch = &m->program->touches[operand->touch_begin + t];
            const coh_chunk *chunk = &m->layout->chunks[touch->chunk];
            if (chunk->object != operand->object || chunk->object_offset != object_offset)
                fault(m, index, "operand %u says other bytes than it touches", o);
            if (operand->takes > 0)
                take_from(m, index, operand, touch->extent);
            else if (touch->extent != COH_EXTENT_FILE && !m->is_in[touch->extent] &&
                     m->used[touch->extent] == 0) {
                own(m, index, touch->extent);
                poison(m, operand->tier, m->program->extents[touch->extent].offset,
                       m->program->extents[touch->extent].bytes);
            }
            check_owned(m, index, operand, offset, touch);
            offset += chunk->bytes;
            object_offset += chunk->bytes;
        }
        if (offset != operand->offset + operand->bytes)
            fault(m, index, "operand %u has another size than its chunks", o);
    }
}

/* Folds what the instruction reads into the hash; faults if the contents are not those the
 * instruction names. */
static uint64_t fold_reads(machine *m, uint32_t index, uint64_t hash)
{
    const coh_instruction *instruction = &m->program->instructions[index];
    for (uint32_t o = 0; o < instruction->operand_count; o++) {
        const coh_operand *operand = &m->program->operands[instruction->operand_begin + o];
        uint64_t offset = operand->offset;
        hash = mix(hash, operand->role * 4u + operand->access);
        for (uint32_t t = 0; t < operand->touch_count; t++) {
            const coh_touch *touch = &m->program->touches[operand->touch_begin + t];
            hash = mix(hash, touch->chunk);
            if (m->is_in_issue_order && touch->version != m->writes[touch->chunk])
                fault(m, index, "version %d of chunk %u named, %d made", (int)touch->version,
                      touch->chunk, (int)m->writes[touch->chunk]);
            if (operand->access & COH_ACCESS_READ) {
                const int64_t version = base_of(m, touch->chunk) + touch->version;
                uint64_t symbol = read_symbol(
                    m, operand->tier, offset_of(m, operand->tier, offset, touch->chunk, version),
                    touch->chunk, version);
                if (symbol == 0)
                    fault(m, index, "chunk %u is not there in version %d", touch->chunk,
                          (int)touch->version);
                hash = mix(hash, symbol);
            }
            offset += m->layout->chunks[touch->chunk].bytes;
        }
    }
    return hash;
}

static uint64_t fold_call(const machine *m, const coh_instruction *instruction)
{
    uint8_t opcode =
        instruction->opcode == COH_OP_RECOMPUTE ? (uint8_t)COH_OP_FORWARD : instruction->opcode;
    uint64_t hash = mix(1 + (uint64_t)(instruction->predicate_cell == COH_CELL_NONE), opcode);
    if (opcode == COH_OP_FEED)
        hash = mix(hash, m->run);
    if (instruction->comm > 0) {
        const coh_comm_call *comm = &m->program->comms[instruction->comm - 1];
        hash = mix(mix(hash, comm->axes), comm->part_bytes);
        hash = mix(mix(hash, (uint64_t)(uint32_t)comm->root), (uint64_t)comm->dtype);
        hash = mix(hash, (uint64_t)comm->wire);
    }
    if (instruction->call < 0)
        return hash;
    const coh_instruction_call *call = &m->program->calls[instruction->call];
    hash = mix(hash, (uint64_t)(uint32_t)call->operator_index << 32 | (uint32_t)call->microbatch);
    hash = mix(mix(hash, (uint64_t)call->row_begin), (uint64_t)call->row_end);
    hash = mix(hash, (uint64_t)call->row_count);
    hash = mix(mix(hash, call->input_grad_adds), call->parameter_grad_adds);
    for (uint32_t i = 0; i < call->binding_count; i++) {
        const coh_binding *binding = &m->program->bindings[call->binding_begin + i];
        hash = mix(hash, binding->role * 64u + binding->port);
        hash = mix(mix(hash, binding->operand), binding->object_offset);
    }
    return hash;
}

static void write_all(machine *m, uint32_t index, uint64_t hash, int changes)
{
    const coh_instruction *instruction = &m->program->instructions[index];
    for (uint32_t o = 0; o < instruction->operand_count; o++) {
        const coh_operand *operand = &m->program->operands[instruction->operand_begin + o];
        uint64_t offset = operand->offset;
        for (uint32_t t = 0; t < operand->touch_count; t++) {
            uint32_t chunk = m->program->touches[operand->touch_begin + t].chunk;
            int64_t version = base_of(m, chunk) + m->writes[chunk];
            if (operand->access & COH_ACCESS_WRITE) {
                uint64_t old = read_symbol(m, operand->tier, offset, chunk, version);
                m->writes[chunk]++;
                write_symbol(m, operand->tier, offset, chunk,
                             changes ? mix(mix(hash, o), t) | 1 : old, version + 1);
            }
            offset += m->layout->chunks[chunk].bytes;
        }
    }
}

static void compute(machine *m, uint32_t index)
{
    const coh_instruction *instruction = &m->program->instructions[index];
    uint64_t hash = fold_reads(m, index, fold_call(m, instruction));
    int runs = instruction->predicate_cell == COH_CELL_NONE || m->pending;
    if (instruction->opcode == COH_OP_CLIP)
        m->pending = 1;
    if (instruction->opcode == COH_OP_SETTLE)
        m->pending = 0;
    if (instruction->opcode != COH_OP_RECOMPUTE)
        m->result->hash += mix(hash, 5 + (uint64_t)runs); /* a sum: in any order */
    write_all(m, index, hash, runs);
}

static void copy_chunks(machine *m, uint32_t index)
{
    const coh_instruction *instruction = &m->program->instructions[index];
    const coh_operand *from = &m->program->operands[instruction->operand_begin], *to = from + 1;
    fold_reads(m, index, 0);
    if (instruction->operand_count != 2 || from->bytes != to->bytes ||
        instruction->bytes != from->bytes || from->access != COH_ACCESS_READ ||
        to->access != COH_ACCESS_WRITE || instruction->predicate_cell != COH_CELL_NONE) {
        fault(m, index, "no mover looks like this");
        return;
    }
    uint64_t at = from->offset, out = to->offset;
    for (uint32_t t = 0; t < from->touch_count; t++) {
        const coh_touch *a = &m->program->touches[from->touch_begin + t];
        const coh_touch *b = &m->program->touches[to->touch_begin + t];
        int64_t version = base_of(m, a->chunk) + a->version;
        if (a->chunk != b->chunk || a->version != b->version)
            fault(m, index, "it makes another chunk or version than it takes");
        const uint64_t read_at = offset_of(m, from->tier, at, a->chunk, version);
        write_symbol(m, to->tier, offset_of(m, to->tier, out, b->chunk, version), b->chunk,
                     read_symbol(m, from->tier, read_at, a->chunk, version), version);
        at += m->layout->chunks[a->chunk].bytes;
        out += m->layout->chunks[b->chunk].bytes;
    }
    if (to->tier == COH_TIER_DISK && m->run == 0)
        m->result->wear_bytes += to->bytes;
}

static void leave(machine *m, uint32_t index)
{
    const coh_instruction *instruction = &m->program->instructions[index];
    for (uint32_t o = 0; o < instruction->operand_count; o++) {
        const coh_operand *operand = &m->program->operands[instruction->operand_begin + o];
        for (uint32_t t = 0; t < operand->touch_count; t++) {
            uint32_t e = m->program->touches[operand->touch_begin + t].extent;
            if (e == COH_EXTENT_FILE)
                continue;
            const coh_extent *extent = &m->program->extents[e];
            if (++m->used[e] != extent->use_count || extent->at_end)
                continue;
            m->is_in[e] = 0;
            EACH_PIECE(m, p, extent->tier, extent->offset, extent->bytes)
            if (p->owner == e + 1) { /* else another one has taken its place */
                p->owner = 0;
                p->symbol = 0;
            }
        }
    }
}

static uint64_t size_of(coh_dtype dtype)
{
    return dtype == COH_DTYPE_BF16 ? 2 : 4;
}

/* The lane of a group's links: of ranks of several nodes another one than of one node. */
static uint8_t comm_lane(const coh_mesh *mesh, coh_axis_set axes)
{
    const int32_t node = mesh->levels.rank_count[COH_LEVEL_NODE];
    int32_t ranks = mesh->levels.rank_count[COH_LEVEL_WORLD];
    for (int32_t rank = 0; rank < ranks; rank++) {
        int is_member = 1; /* of the group of rank 0 */
        for (int axis = 0; axis < mesh->axis_count; axis++)
            is_member &= (axes >> axis & 1) != 0 ||
                         rank / mesh->strides[axis] % mesh->axes[axis].rank_count == 0;
        if (is_member && rank >= node)
            return COH_LANE_COMM1;
    }
    return COH_LANE_COMM0;
}

/* Checks the lane of an instruction and that a call's ports lie inside its operands. */
static void check_instruction(machine *m, uint32_t index)
{
    const coh_instruction *instruction = &m->program->instructions[index];
    static const uint8_t lanes[4] = { COH_LANE_H2D, COH_LANE_D2H, COH_LANE_READ, COH_LANE_WRITE };
    int moves = instruction->opcode >= COH_OP_LOAD && instruction->opcode <= COH_OP_WRITE;
    const int talks = instruction->opcode == COH_OP_REDUCE || instruction->opcode == COH_OP_GATHER;
    int may = instruction->lane ==
              (moves   ? lanes[instruction->opcode - COH_OP_LOAD]
               : talks ? comm_lane(&m->layout->mesh, m->program->comms[instruction->comm - 1].axes)
                       : COH_LANE_COMPUTE);
    if (!may && !(instruction->opcode == COH_OP_UPDATE && instruction->lane == COH_LANE_HOST))
        fault(m, index, "no lane does this");
    for (uint32_t i = 0;
         instruction->call >= 0 && i < m->program->calls[instruction->call].binding_count; i++) {
        const coh_binding *binding =
            &m->program->bindings[m->program->calls[instruction->call].binding_begin + i];
        const coh_operand *operand =
            &m->program->operands[instruction->operand_begin + binding->operand];
        uint64_t bytes = size_of(binding->shape.dtype);
        const coh_object *object = &m->layout->objects[operand->object];
        const int is_grad =
            object->stream == COH_STREAM_GRAD || object->stream == COH_STREAM_CONTRIBUTION;
        const coh_group_layout *group =
            is_grad || object->stream == COH_STREAM_WORK ? &m->layout->groups[object->owner] : NULL;
        const int is_wide = is_grad && group->f32_gradients;
        const int folds =
            m->layout->objects[m->program->operands[instruction->operand_begin].object].stream ==
            COH_STREAM_CONTRIBUTION;
        if (group != NULL && binding->shape.dtype != (is_wide ? COH_DTYPE_F32 : group->dtype))
            fault(m, index, "port %u takes a group's elements for others", i);
        if (instruction->opcode == COH_OP_ADD && i == 1 &&
            binding[-1].shape.dtype != (is_wide && !folds ? group->dtype : binding->shape.dtype))
            fault(m, index, "it adds unlike elements");
        for (int32_t d = 0; d < binding->shape.rank; d++)
            bytes *= (uint64_t)binding->shape.dim[d];
        if (binding->object_offset < operand->object_offset ||
            binding->object_offset + bytes > operand->object_offset + operand->bytes)
            fault(m, index, "port %u reaches outside its operand", i);
    }
}

/* ---- the whole run ---- */

static void count_writes(machine *m)
{
    for (uint32_t i = 0; i < m->program->instruction_count; i++) {
        const coh_instruction *instruction = &m->program->instructions[i];
        if (instruction->opcode >= COH_OP_LOAD && instruction->opcode <= COH_OP_WRITE)
            continue;
        for (uint32_t o = 0; o < instruction->operand_count; o++) {
            const coh_operand *operand = &m->program->operands[instruction->operand_begin + o];
            for (uint32_t t = 0; t < operand->touch_count; t++)
                m->writes_per_run[m->program->touches[operand->touch_begin + t].chunk] +=
                    (operand->access & COH_ACCESS_WRITE) != 0;
        }
    }
}

static void run_instruction(machine *m, uint32_t index)
{
    const coh_instruction *instruction = &m->program->instructions[index];
    check_instruction(m, index);
    enter_and_check(m, index);
    if (instruction->opcode >= COH_OP_LOAD && instruction->opcode <= COH_OP_WRITE)
        copy_chunks(m, index);
    else
        compute(m, index);
    leave(m, index);
}

void poison_run(const coh_layout *layout, const coh_program *program, uint32_t run_count,
                const uint32_t *order, poison_result *out)
{
    machine m = { .layout = layout, .program = program, .run_count = run_count, .result = out };
    memset(out, 0, sizeof(*out));
    cut_pieces(&m);
    m.writes = calloc(layout->chunk_count + 1, sizeof(int64_t));
    m.writes_per_run = calloc(layout->chunk_count + 1, sizeof(int64_t));
    m.used = calloc(program->extent_count + 1, sizeof(uint32_t));
    m.is_in = calloc(program->extent_count + 1, 1);
    m.is_in_issue_order = order == NULL;
    m.pending = program->kind == COH_PROGRAM_DRAIN;
    out->peak_bytes[COH_TIER_DEVICE] = layout->pinned_bytes;
    count_writes(&m);
    for (m.run = 0; m.run < run_count && !out->is_faulty; m.run++) {
        begin_run(&m);
        for (uint32_t i = 0; i < program->instruction_count && !out->is_faulty; i++)
            run_instruction(&m, order != NULL ? order[i] : i);
        end_run(&m);
    }
    free(m.pieces);
    free(m.writes);
    free(m.writes_per_run);
    free(m.used);
    free(m.is_in);
}
