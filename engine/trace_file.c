/* Stores a trace in a file and reads it back. The one idea: a record is written and read by one
 * function, which visits its members in order, so the two directions cannot differ. A slot beyond
 * the end of the file is empty; each part ends with its checksum. docs/report.md has the layout. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/file_ops.h"
#include "base/file_text.h"
#include "cohobate/trace.h"
#include "planner/trace_tables.h"

#define VERSION 1u

static const char magic[8] = { 'C', 'O', 'H', 'T', 'R', 'A', 'C', 'E' };

enum {
    HASH_BYTES = 8,
    HEADER_BYTES = 8 + 12 * 4 + 8 + HASH_BYTES,
    OPERATOR_BYTES = 8 * 4,
    INSTRUCTION_BYTES = 4 * 8 + 7 * 4 + 2,
    WAIT_BYTES = 8,
    EXTENT_BYTES = 8 + 3 * 4 + 3,
    FIXED_BYTES = (3 * COH_TIER_COUNT + COH_LANE_COUNT + 3) * 8,
    LATENCIES_BYTES = COH_LANE_COUNT * COH_TRACE_LATENCIES * 8 + HASH_BYTES,
    SPAN_BYTES = 16,
    STEP_BYTES = 2 * 4 + 9 * 8 /* without spans */
};

/* ---- members ---- */

/* The place in a part of the file, and the direction. */
typedef struct coder {
    uint8_t *at;
    int is_reading;
    const char *texts; /* reading: all texts */
    uint64_t text_bytes, text_at;
    int is_bad; /* a text's offset is wrong */
} coder;

static void visit(coder *c, void *member, size_t bytes)
{
    uint64_t value = 0;
    if (c->is_reading) {
        for (size_t i = 0; i < bytes; i++)
            value |= (uint64_t)c->at[i] << (8 * i);
        if (bytes == 8)
            memcpy(member, &value, 8);
        else if (bytes == 4)
            *(uint32_t *)member = (uint32_t)value;
        else
            *(uint8_t *)member = (uint8_t)value;
    } else {
        if (bytes == 8)
            memcpy(&value, member, 8);
        else
            value = bytes == 4 ? *(uint32_t *)member : *(uint8_t *)member;
        for (size_t i = 0; i < bytes; i++)
            c->at[i] = (uint8_t)(value >> (8 * i));
    }
    c->at += bytes;
}

#define VISIT(c, member) visit((c), &(member), sizeof(member))

/* A text is the offset of its first byte; texts are written in the order of their visits. */
static void visit_text(coder *c, const char **text)
{
    uint32_t offset = (uint32_t)c->text_at;
    if (!c->is_reading)
        c->text_at += strlen(*text) + 1;
    VISIT(c, offset);
    if (c->is_reading && offset >= c->text_bytes)
        c->is_bad = 1;
    else if (c->is_reading)
        *text = c->texts + offset;
}

static void visit_header(coder *c, coh_trace *t, uint32_t *version, uint32_t *slots,
                         uint64_t *text_bytes)
{
    uint32_t lanes = COH_LANE_COUNT, tiers = COH_TIER_COUNT, latencies = COH_TRACE_LATENCIES;
    uint32_t unused = 0;
    VISIT(c, *version);
    VISIT(c, *slots);
    VISIT(c, t->opcode_count);
    VISIT(c, t->purpose_count);
    VISIT(c, t->operator_count);
    VISIT(c, t->instruction_count);
    VISIT(c, t->wait_count);
    VISIT(c, t->extent_count);
    VISIT(c, lanes);
    VISIT(c, tiers);
    VISIT(c, latencies);
    VISIT(c, unused);
    VISIT(c, *text_bytes);
    c->is_bad |=
        lanes != COH_LANE_COUNT || tiers != COH_TIER_COUNT || latencies != COH_TRACE_LATENCIES;
}

static void visit_fixed(coder *c, coh_trace *t)
{
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        VISIT(c, t->pinned_bytes[tier]);
        VISIT(c, t->arena_bytes[tier]);
        VISIT(c, t->budget_bytes[tier]);
    }
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        VISIT(c, t->lane_bytes_per_s[lane]);
    VISIT(c, t->flops_per_s);
    VISIT(c, t->predicted_step_ns);
    VISIT(c, t->program_hash);
}

static void visit_operator(coder *c, coh_trace_operator *o)
{
    const char **texts[] = { &o->name,   &o->kind,    &o->activations, &o->parameters,
                             &o->states, &o->updates, &o->pattern };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        visit_text(c, texts[i]);
    VISIT(c, o->block);
}

static void visit_instruction(coder *c, coh_trace_instruction *i)
{
    VISIT(c, i->predicted_begin_ns);
    VISIT(c, i->predicted_end_ns);
    VISIT(c, i->bytes);
    VISIT(c, i->flops);
    VISIT(c, i->opcode);
    VISIT(c, i->operator_index);
    VISIT(c, i->chunk);
    VISIT(c, i->stream);
    VISIT(c, i->wait_begin);
    VISIT(c, i->wait_count);
    VISIT(c, i->microbatch);
    VISIT(c, i->lane);
    VISIT(c, i->is_shared);
}

static void visit_extent(coder *c, coh_trace_extent *e)
{
    VISIT(c, e->bytes);
    VISIT(c, e->first);
    VISIT(c, e->last);
    VISIT(c, e->purpose);
    VISIT(c, e->tier);
    VISIT(c, e->at_begin);
    VISIT(c, e->at_end);
}

static void visit_tables(coder *c, coh_trace *t, coh_trace_tables *tables)
{
    visit_fixed(c, t);
    for (uint32_t i = 0; i < t->opcode_count; i++)
        visit_text(c, &tables->opcodes[i]);
    for (uint32_t i = 0; i < t->purpose_count; i++)
        visit_text(c, &tables->purposes[i]);
    for (uint32_t i = 0; i < t->operator_count; i++)
        visit_operator(c, &tables->operators[i]);
    for (uint32_t i = 0; i < t->instruction_count; i++)
        visit_instruction(c, &tables->instructions[i]);
    for (uint32_t i = 0; i < t->wait_count; i++) {
        VISIT(c, tables->waits[i].instruction);
        VISIT(c, tables->waits[i].carry);
    }
    for (uint32_t i = 0; i < t->extent_count; i++)
        visit_extent(c, &tables->extents[i]);
}

static void visit_latencies(coder *c, coh_trace_latency latencies[COH_LANE_COUNT])
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        for (int i = 0; i < COH_TRACE_LATENCIES; i++)
            VISIT(c, latencies[lane].counts[i]);
}

static void visit_step(coder *c, coh_trace_step *s, uint32_t *is_used, uint32_t instruction_count)
{
    coh_trace_counters *n = &s->counters;
    uint64_t *numbers[] = { &s->step,          &s->begin_ns,     &s->step_ns,
                            &n->minor_faults,  &n->major_faults, &n->throttled_ns,
                            &n->store_retries, &n->gpu_clock_hz, &n->gpu_power_mw };
    VISIT(c, *is_used);
    VISIT(c, s->is_slow);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        VISIT(c, *numbers[i]);
    for (uint32_t i = 0; i < instruction_count; i++) {
        VISIT(c, s->spans[i].begin_ns);
        VISIT(c, s->spans[i].end_ns);
    }
}

/* The checksum of a part is behind its other bytes. */
static void seal(uint8_t *part, uint64_t bytes)
{
    coder c = { .at = part + bytes - HASH_BYTES };
    uint64_t hash = XXH3_64bits(part, bytes - HASH_BYTES);
    VISIT(&c, hash);
}

static int is_sealed(uint8_t *part, uint64_t bytes)
{
    coder c = { .at = part + bytes - HASH_BYTES, .is_reading = 1 };
    uint64_t hash;
    VISIT(&c, hash);
    return hash == XXH3_64bits(part, bytes - HASH_BYTES);
}

/* ---- sizes ---- */

/* Bytes of each part of a file. */
typedef struct part_sizes {
    uint64_t records, tables, slot; /* tables: records, texts and checksum */
} part_sizes;

static coh_status add_product(uint64_t count, uint64_t bytes, uint64_t *sum)
{
    uint64_t product;
    COH_TRY(coh_bytes_mul(count, bytes, &product));
    return coh_bytes_add(*sum, product, sum);
}

static coh_status size_parts(const coh_trace *t, uint64_t text_bytes, part_sizes *out)
{
    *out = (part_sizes){ .records = FIXED_BYTES, .slot = STEP_BYTES + HASH_BYTES };
    COH_TRY(add_product((uint64_t)t->opcode_count + t->purpose_count, 4, &out->records));
    COH_TRY(add_product(t->operator_count, OPERATOR_BYTES, &out->records));
    COH_TRY(add_product(t->instruction_count, INSTRUCTION_BYTES, &out->records));
    COH_TRY(add_product(t->wait_count, WAIT_BYTES, &out->records));
    COH_TRY(add_product(t->extent_count, EXTENT_BYTES, &out->records));
    COH_TRY(add_product(t->instruction_count, SPAN_BYTES, &out->slot));
    COH_TRY(coh_bytes_add(out->records, HASH_BYTES, &out->tables));
    return coh_bytes_add(out->tables, text_bytes, &out->tables);
}

/* ---- writing ---- */

struct coh_trace_file {
    coh_file_ops ops;
    int fd;
    uint32_t slots, instruction_count;
    uint64_t latencies_at, slots_at, slot_bytes;
    uint8_t *slot; /* room for a slot, or the latencies */
};

static coh_status write_part(coh_trace_file *file, uint64_t bytes, uint64_t offset)
{
    seal(file->slot, bytes);
    const int error = coh_file_write(&file->ops, file->fd, file->slot, bytes, offset);
    if (error)
        return coh_fail(COH_ERR_IO, "cannot write the trace: %s: make room on its disk",
                        strerror(-error));
    return COH_OK;
}

/* Bytes of all texts, in the order of visit_tables. */
static uint64_t text_bytes_of(const coh_trace *t)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->opcode_count; i++)
        bytes += strlen(t->opcodes[i]) + 1;
    for (uint32_t i = 0; i < t->purpose_count; i++)
        bytes += strlen(t->purposes[i]) + 1;
    for (uint32_t i = 0; i < t->operator_count; i++) {
        const coh_trace_operator *o = &t->operators[i];
        bytes += strlen(o->name) + strlen(o->kind) + strlen(o->activations) +
                 strlen(o->parameters) + strlen(o->states) + strlen(o->updates) +
                 strlen(o->pattern) + 7;
    }
    return bytes;
}

uint64_t coh_trace_file_bytes(const coh_trace *trace, uint32_t slots)
{
    part_sizes sizes;
    uint64_t bytes = HEADER_BYTES + LATENCIES_BYTES;
    if (!trace || coh_trace_check(trace, COH_ERR_ARGUMENT) != COH_OK ||
        size_parts(trace, text_bytes_of(trace), &sizes) != COH_OK ||
        coh_bytes_add(bytes, sizes.tables, &bytes) != COH_OK ||
        add_product(slots, sizes.slot, &bytes) != COH_OK)
        return UINT64_MAX;
    return bytes;
}

static void copy_texts(const coh_trace *t, char *texts)
{
    for (uint32_t i = 0; i < t->opcode_count; i++)
        coh_trace_text(t->opcodes[i], &texts);
    for (uint32_t i = 0; i < t->purpose_count; i++)
        coh_trace_text(t->purposes[i], &texts);
    for (uint32_t i = 0; i < t->operator_count; i++) {
        const coh_trace_operator *o = &t->operators[i];
        coh_trace_text(o->name, &texts);
        coh_trace_text(o->kind, &texts);
        coh_trace_text(o->activations, &texts);
        coh_trace_text(o->parameters, &texts);
        coh_trace_text(o->states, &texts);
        coh_trace_text(o->updates, &texts);
        coh_trace_text(o->pattern, &texts);
    }
}

static coh_status write_tables(const char *path, const coh_trace *trace, uint32_t slots,
                               const part_sizes *sizes, uint64_t text_bytes)
{
    /* a writing coder only reads members */
    coh_trace copy = *trace;
    coh_trace_tables tables = { .opcodes = (const char **)(uintptr_t)trace->opcodes,
                                .purposes = (const char **)(uintptr_t)trace->purposes,
                                .operators = (coh_trace_operator *)(uintptr_t)trace->operators,
                                .instructions =
                                    (coh_trace_instruction *)(uintptr_t)trace->instructions,
                                .waits = (coh_trace_wait *)(uintptr_t)trace->waits,
                                .extents = (coh_trace_extent *)(uintptr_t)trace->extents };
    const uint64_t bytes = HEADER_BYTES + sizes->tables + LATENCIES_BYTES;
    uint32_t version = VERSION;
    uint8_t *data;
    COH_TRY(coh_alloc(bytes, 1, (void **)&data));
    memcpy(data, magic, sizeof(magic));
    coder header = { .at = data + 8 };
    visit_header(&header, &copy, &version, &slots, &text_bytes);
    seal(data, HEADER_BYTES);
    coder records = { .at = data + HEADER_BYTES };
    visit_tables(&records, &copy, &tables);
    copy_texts(trace, (char *)data + HEADER_BYTES + sizes->records);
    seal(data + HEADER_BYTES, sizes->tables);
    seal(data + HEADER_BYTES + sizes->tables, LATENCIES_BYTES);
    const coh_status status = coh_file_write_whole(path, (const char *)data, bytes);
    coh_free(data);
    return status;
}

coh_status coh_trace_file_create(const char *path, const coh_trace *trace, uint32_t slots,
                                 coh_trace_file **out_file)
{
    COH_NEED(out_file);
    *out_file = NULL;
    COH_NEED_PATH(path);
    COH_NEED(trace);
    coh_trace_file *file;
    part_sizes sizes;
    COH_TRY(coh_trace_check(trace, COH_ERR_ARGUMENT));
    const uint64_t text_bytes = text_bytes_of(trace);
    if (text_bytes > UINT32_MAX)
        return coh_fail(COH_ERR_FULL, "the names in a trace are longer than 4 GiB");
    COH_TRY(size_parts(trace, text_bytes, &sizes));
    COH_TRY(COH_ALLOC(1, &file));
    file->fd = -1;
    coh_file_ops_init(&file->ops);
    file->slots = slots;
    file->instruction_count = trace->instruction_count;
    file->slot_bytes = sizes.slot;
    file->latencies_at = HEADER_BYTES + sizes.tables;
    file->slots_at = file->latencies_at + LATENCIES_BYTES;
    const uint64_t room = sizes.slot > LATENCIES_BYTES ? sizes.slot : LATENCIES_BYTES;
    coh_status status = coh_alloc(room, 1, (void **)&file->slot);
    if (status == COH_OK)
        status = write_tables(path, trace, slots, &sizes, text_bytes);
    if (status == COH_OK) {
        file->fd = open(path, O_WRONLY | O_CLOEXEC);
        if (file->fd < 0) {
            status = coh_fail(COH_ERR_IO, "cannot open %s: %s", path, strerror(errno));
            unlink(path);
        }
    }
    if (status != COH_OK)
        coh_trace_file_close(file);
    else
        *out_file = file;
    return status;
}

coh_status coh_trace_file_put(coh_trace_file *file, uint32_t slot, const coh_trace_step *step)
{
    COH_NEED(file);
    COH_NEED(step);
    coh_trace_step copy = *step;
    uint32_t is_used = 1;
    uint64_t offset = file->slots_at;
    if (slot >= file->slots)
        return coh_fail(COH_ERR_ARGUMENT, "slot %" PRIu32 " of a trace of %" PRIu32 " slots", slot,
                        file->slots);
    if (!step->spans && file->instruction_count)
        return coh_fail(COH_ERR_ARGUMENT, "a step of a trace has no spans");
    COH_TRY(add_product(slot, file->slot_bytes, &offset));
    coder c = { .at = file->slot };
    visit_step(&c, &copy, &is_used, file->instruction_count);
    return write_part(file, file->slot_bytes, offset);
}

coh_status coh_trace_file_put_latencies(coh_trace_file *file,
                                        const coh_trace_latency latencies[COH_LANE_COUNT])
{
    COH_NEED(file);
    COH_NEED(latencies);
    coder c = { .at = file->slot };
    visit_latencies(&c, (coh_trace_latency *)(uintptr_t)latencies);
    return write_part(file, LATENCIES_BYTES, file->latencies_at);
}

void coh_trace_file_close(coh_trace_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        coh_file_close(&file->ops, file->fd);
    coh_free(file->slot);
    coh_free(file);
}

/* ---- reading ---- */

typedef struct reading {
    const char *path;
    int fd;
    uint64_t file_bytes, text_bytes;
    uint32_t slots;
    part_sizes sizes;
    coh_trace *trace;
} reading;

/* Reads a part that lies within the file. */
static coh_status read_part(const reading *r, uint64_t offset, uint64_t bytes, uint8_t *out)
{
    for (uint64_t done = 0; done < bytes;) {
        const ssize_t now = pread(r->fd, out + done, bytes - done, (off_t)(offset + done));
        if (now < 0 && errno == EINTR)
            continue;
        if (now <= 0)
            return coh_fail(COH_ERR_IO, "cannot read %s: %s", r->path,
                            now < 0 ? strerror(errno) : "it became shorter");
        done += (uint64_t)now;
    }
    return COH_OK;
}

static coh_status read_header(reading *r, coh_trace *counts)
{
    uint8_t bytes[HEADER_BYTES];
    uint32_t version = 0;
    if (r->file_bytes < HEADER_BYTES)
        return coh_fail(COH_ERR_CORRUPT, "%s is no trace: it is shorter than a header", r->path);
    COH_TRY(read_part(r, 0, HEADER_BYTES, bytes));
    if (memcmp(bytes, magic, sizeof(magic)) != 0)
        return coh_fail(COH_ERR_CORRUPT, "%s is no trace", r->path);
    coder c = { .at = bytes + 8, .is_reading = 1 };
    visit_header(&c, counts, &version, &r->slots, &r->text_bytes);
    if (version > VERSION)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s is of version %" PRIu32 ", this program reads %u: use a newer program",
                        r->path, version, VERSION);
    if (!is_sealed(bytes, HEADER_BYTES) || version != VERSION || c.is_bad)
        return coh_fail(COH_ERR_CORRUPT, "%s is damaged: the header's checksum is wrong", r->path);
    if (size_parts(counts, r->text_bytes, &r->sizes) != COH_OK ||
        r->sizes.tables > r->file_bytes - HEADER_BYTES)
        return coh_fail(COH_ERR_CORRUPT, "%s is truncated: its tables end beyond the file",
                        r->path);
    return COH_OK;
}

static coh_status read_tables(reading *r, coh_trace *counts)
{
    coh_trace_tables tables;
    uint8_t *bytes;
    const uint64_t slots_at = HEADER_BYTES + r->sizes.tables + LATENCIES_BYTES;
    const uint64_t rest = r->file_bytes > slots_at ? r->file_bytes - slots_at : 0;
    counts->step_count =
        (uint32_t)(rest / r->sizes.slot < r->slots ? rest / r->sizes.slot : r->slots);
    COH_TRY(coh_alloc(r->sizes.tables, 1, (void **)&bytes));
    coh_status status = read_part(r, HEADER_BYTES, r->sizes.tables, bytes);
    if (status == COH_OK && !is_sealed(bytes, r->sizes.tables))
        status = coh_fail(COH_ERR_CORRUPT, "%s is damaged: the checksum of its tables is wrong",
                          r->path);
    if (status == COH_OK)
        status = coh_trace_allocate(counts, r->text_bytes + 1, &tables, &r->trace);
    if (status == COH_OK) {
        /* the byte behind the last text is 0 */
        memcpy(tables.texts, bytes + r->sizes.records, r->text_bytes);
        coder c = {
            .at = bytes, .is_reading = 1, .texts = tables.texts, .text_bytes = r->text_bytes
        };
        visit_tables(&c, r->trace, &tables);
        status = c.is_bad ? coh_fail(COH_ERR_CORRUPT, "a name of the trace lies outside it")
                          : coh_trace_check(r->trace, COH_ERR_CORRUPT);
        if (status != COH_OK)
            status = coh_fail_prefix(status, "%s", r->path);
    }
    coh_free(bytes);
    return status;
}

/* Latencies that are truncated or damaged are all 0. */
static coh_status read_latencies(reading *r, uint32_t *lost)
{
    uint8_t bytes[LATENCIES_BYTES];
    const uint64_t offset = HEADER_BYTES + r->sizes.tables;
    if (r->file_bytes - offset < LATENCIES_BYTES) {
        *lost += r->file_bytes > offset;
        return COH_OK;
    }
    COH_TRY(read_part(r, offset, LATENCIES_BYTES, bytes));
    coder c = { .at = bytes, .is_reading = 1 };
    if (is_sealed(bytes, LATENCIES_BYTES))
        visit_latencies(&c, r->trace->latencies);
    else
        ++*lost;
    return COH_OK;
}

static int is_step(const coh_trace_step *step, uint32_t instruction_count)
{
    for (uint32_t i = 0; i < instruction_count; i++)
        if (step->spans[i].begin_ns > step->spans[i].end_ns ||
            step->spans[i].end_ns > COH_TRACE_TIME_MOST)
            return 0;
    return step->step_ns <= COH_TRACE_TIME_MOST && step->begin_ns <= COH_TRACE_TIME_MOST &&
           step->step <= INT64_MAX;
}

static int is_zero(const uint8_t *bytes, uint64_t count)
{
    return count == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0);
}

static int step_order(const void *left, const void *right)
{
    const coh_trace_step *a = left, *b = right;
    return (a->step > b->step) - (a->step < b->step);
}

/* Keeps one of several records of a step. */
static void order_steps(coh_trace *trace)
{
    uint32_t kept = 0;
    if (trace->step_count)
        qsort(trace->steps, trace->step_count, sizeof(*trace->steps), step_order);
    for (uint32_t i = 0; i < trace->step_count; i++)
        if (i == 0 || trace->steps[i].step != trace->steps[kept - 1].step)
            trace->steps[kept++] = trace->steps[i];
        else
            trace->steps[kept - 1].is_slow |= trace->steps[i].is_slow;
    trace->step_count = kept;
}

static coh_status read_slots(reading *r, uint32_t *lost)
{
    coh_trace *trace = r->trace;
    const uint64_t slots_at = HEADER_BYTES + r->sizes.tables + LATENCIES_BYTES;
    const uint32_t whole = trace->step_count;
    uint8_t *bytes;
    trace->step_count = 0;
    COH_TRY(coh_alloc(r->sizes.slot, 1, (void **)&bytes));
    coh_status status = COH_OK;
    for (uint32_t slot = 0; slot < whole && status == COH_OK; slot++) {
        uint32_t is_used = 0;
        coh_trace_step *step = &trace->steps[trace->step_count];
        status = read_part(r, slots_at + slot * r->sizes.slot, r->sizes.slot, bytes);
        if (status != COH_OK || is_zero(bytes, r->sizes.slot))
            continue;
        coder c = { .at = bytes, .is_reading = 1 };
        visit_step(&c, step, &is_used, trace->instruction_count);
        if (is_sealed(bytes, r->sizes.slot) && is_used == 1 &&
            is_step(step, trace->instruction_count))
            trace->step_count++;
        else
            ++*lost;
    }
    if (r->file_bytes > slots_at + whole * r->sizes.slot && whole < r->slots)
        ++*lost;
    coh_free(bytes);
    if (status == COH_OK)
        order_steps(trace);
    return status;
}

static coh_status read_all(reading *r, uint32_t *lost)
{
    struct stat facts;
    coh_trace counts = { 0 };
    if (fstat(r->fd, &facts) != 0)
        return coh_fail(COH_ERR_IO, "cannot read %s: %s", r->path, strerror(errno));
    if (!S_ISREG(facts.st_mode))
        return coh_fail(COH_ERR_CORRUPT, "%s is no trace: it is not a regular file", r->path);
    r->file_bytes = (uint64_t)facts.st_size;
    COH_TRY(read_header(r, &counts));
    COH_TRY(read_tables(r, &counts));
    COH_TRY(read_latencies(r, lost));
    return read_slots(r, lost);
}

coh_status coh_trace_read(const char *path, coh_trace **out_trace, uint32_t *out_lost)
{
    COH_NEED(out_trace);
    *out_trace = NULL;
    COH_NEED_PATH(path);
    uint32_t lost = 0;
    reading r = { .path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) };
    if (r.fd < 0)
        return coh_fail(COH_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    const coh_status status = read_all(&r, &lost);
    close(r.fd);
    if (status != COH_OK)
        coh_trace_free(r.trace);
    else
        *out_trace = r.trace;
    if (out_lost)
        *out_lost = lost;
    return status;
}
