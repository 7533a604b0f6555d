/* Derives waits with vector clocks: walks the instructions in issue order, finds conflicts on byte
 * intervals, and drops waits that others imply. The idea: the latest writer and the latest reader
 * of each lane represent all earlier ones, since lanes retire in order. The rules are in waits.h;
 * the verifier checks the result independently (verify.h). */
#include "planner/waits.h"

#include <string.h>

#include "base/alloc.h"
#include "planner/effort.h"

/* Numbers count a lane's instructions over all bodies from 1; 0 means none. Only lanes that have
 * instructions count: `number` is by their rank among these, as are all lanes below. */
typedef struct clock {
    uint32_t number[COH_LANE_COUNT];
} clock;

/* The last writer and readers of an interval. Lanes retire in order, so the latest reader of each
 * lane represents all of them. */
typedef struct interval_state {
    uint32_t writer;
    uint32_t reader[COH_LANE_COUNT];
    uint8_t writer_lane;
} interval_state;

/* The boundaries of all operands cut a tier into intervals: no operand touches part of one.
 * Adjacent intervals whose states were equal since the begin, or since a write covered all of them,
 * form a run. Its state is stored at its first interval, whose bit in `heads` is set. Windows are
 * written whole, so most operands meet a run or two, however finely others cut the tier. */
typedef struct space {
    uint64_t *boundaries;
    size_t boundary_count, boundary_capacity;
    /* By the upper bits of an offset: the number of boundaries below all offsets with these
     * bits. */
    uint32_t *below;
    int below_shift;
    interval_state *intervals; /* valid where a run begins */
    uint64_t *heads;           /* bit i % 64 of word i / 64 */
} space;

/* The intervals of its tier that an operand covers: [begin, end). */
typedef struct cover {
    uint32_t begin, end;
} cover;

typedef struct deriver {
    const coh_layout *layout;
    coh_program *program;
    space spaces[COH_TIER_COUNT];
    cover *covers; /* by operand */
    int lane_count;
    uint8_t rank[COH_LANE_COUNT];     /* by lane */
    uint8_t lanes[COH_LANE_COUNT];    /* by rank */
    uint32_t lengths[COH_LANE_COUNT]; /* likewise */
    /* by body and instruction index: the knowledge of an instruction when it starts, `lane_count`
     * numbers */
    uint32_t *started;
    uint32_t *instruction_of[COH_LANE_COUNT]; /* by ordinal - 1: instruction index */
    clock lane_clock[COH_LANE_COUNT];         /* of the newest instruction issued on the lane */
    size_t wait_capacity;
    uint32_t body, body_count;
} deriver;

/* Sorts by one digit of DIGIT_BITS bits, in the present order of equal digits. Returns 0 if all
 * digits are equal, and then writes nothing. */
enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };
static int sort_digit(const uint64_t *from, uint64_t *to, size_t count, int shift)
{
    size_t place[DIGITS] = { 0 }, before = 0;
    for (size_t i = 0; i < count; i++)
        place[from[i] >> shift & (DIGITS - 1)]++;
    if (place[from[0] >> shift & (DIGITS - 1)] == count)
        return 0;
    for (size_t digit = 0; digit < DIGITS; digit++) {
        const size_t of_digit = place[digit];
        place[digit] = before;
        before += of_digit;
    }
    for (size_t i = 0; i < count; i++)
        to[place[from[i] >> shift & (DIGITS - 1)]++] = from[i];
    return 1;
}

/* Sorts few values by insertion. */
enum { FEW_VALUES = 64 };
static void sort_few(uint64_t *values, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        const uint64_t value = values[i];
        size_t place = i;
        for (; place > 0 && values[place - 1] > value; place--)
            values[place] = values[place - 1];
        values[place] = value;
    }
}

/* Sorts by radix, from the lowest digit on: a program has several hundred thousand boundaries, most
 * of them of few digits that differ. May exchange *values for another allocation. */
static coh_status sort_u64(uint64_t **values, size_t count)
{
    uint64_t *other = NULL;
    if (count <= FEW_VALUES) {
        sort_few(*values, count);
        return COH_OK;
    }
    COH_TRY(COH_ALLOC(count, &other));
    for (int shift = 0; shift < 64; shift += DIGIT_BITS)
        if (sort_digit(*values, other, count, shift)) {
            uint64_t *sorted = other;
            other = *values;
            *values = sorted;
        }
    coh_free(other);
    return COH_OK;
}

/* Counts the boundaries below each of about as many equal ranges as there are boundaries. */
static coh_status count_below(space *s)
{
    const uint64_t last = s->boundary_count > 0 ? s->boundaries[s->boundary_count - 1] : 0;
    uint32_t boundary = 0;
    while (last >> s->below_shift > s->boundary_count)
        s->below_shift++;
    const uint64_t ranges = (last >> s->below_shift) + 1;
    COH_TRY(COH_ALLOC(ranges + 1, &s->below));
    for (uint64_t range = 0; range <= ranges; range++) {
        while (boundary < s->boundary_count && s->boundaries[boundary] >> s->below_shift < range)
            boundary++;
        s->below[range] = boundary;
    }
    return COH_OK;
}

/* Adds a boundary, unless it is one of the last that were added: most operands lie where others
 * did, and sorting all of them takes longer. `recent`: RECENT of them, each plus 1, by hash. */
enum { RECENT_BITS = 10, RECENT = 1 << RECENT_BITS };
static coh_status add_boundary(space *s, uint64_t *recent, uint64_t offset)
{
    uint64_t *last = &recent[offset * 0x9e3779b97f4a7c15u >> (64 - RECENT_BITS)];
    if (*last == offset + 1)
        return COH_OK;
    *last = offset + 1;
    COH_TRY(COH_EXTEND(&s->boundaries, &s->boundary_capacity, s->boundary_count + 1));
    s->boundaries[s->boundary_count++] = offset;
    return COH_OK;
}

static coh_status cut_space(deriver *d, coh_tier tier)
{
    const coh_program *p = d->program;
    space *s = &d->spaces[tier];
    uint64_t recent[RECENT] = { 0 };
    for (uint32_t i = 0; i < p->operand_count; i++) {
        const coh_operand *operand = &p->operands[i];
        if (operand->tier != tier)
            continue;
        COH_TRY(add_boundary(s, recent, operand->offset));
        COH_TRY(add_boundary(s, recent, operand->offset + operand->bytes));
    }
    COH_TRY(sort_u64(&s->boundaries, s->boundary_count));
    size_t kept = 0;
    for (size_t i = 0; i < s->boundary_count; i++)
        if (kept == 0 || s->boundaries[kept - 1] != s->boundaries[i])
            s->boundaries[kept++] = s->boundaries[i];
    s->boundary_count = kept;
    COH_TRY(count_below(s));
    COH_TRY(COH_ALLOC(kept / 64 + 1, &s->heads));
    s->heads[0] = 1;
    return COH_ALLOC(kept, &s->intervals);
}

/* ---- runs ---- */

/* Returns the first interval of the run that contains the interval. */
static size_t run_of(const space *s, size_t interval)
{
    size_t word = interval / 64;
    uint64_t bits = s->heads[word] & (~(uint64_t)0 >> (63 - interval % 64));
    while (bits == 0)
        bits = s->heads[--word]; /* the first interval starts a run */
    return word * 64 + 63 - (size_t)__builtin_clzll(bits);
}

/* Returns the next run that begins before interval `end`, or `end`. */
static size_t run_after(const space *s, size_t run, size_t end)
{
    size_t word = ++run / 64;
    uint64_t bits = s->heads[word] >> (run % 64) << (run % 64);
    while (bits == 0 && (word + 1) * 64 < end)
        bits = s->heads[++word];
    const size_t found = bits == 0 ? end : word * 64 + (size_t)__builtin_ctzll(bits);
    return found < end ? found : end;
}

/* Makes a run begin at the interval. */
static void cut_run(space *s, size_t interval)
{
    const size_t run = run_of(s, interval);
    if (run != interval)
        s->intervals[interval] = s->intervals[run];
    s->heads[interval / 64] |= (uint64_t)1 << (interval % 64);
}

/* Makes one run of the intervals [begin, end). */
static void join_runs(space *s, size_t begin, size_t end)
{
    for (size_t run = run_after(s, begin, end); run < end; run = run_after(s, run, end))
        s->heads[run / 64] &= ~((uint64_t)1 << (run % 64));
}

/* ---- operands ---- */

static uint32_t find_boundary(const space *s, uint64_t offset)
{
    const uint32_t *below = &s->below[offset >> s->below_shift];
    uint32_t begin = below[0], end = below[1];
    while (begin < end) {
        const uint32_t middle = begin + (end - begin) / 2;
        if (s->boundaries[middle] < offset)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

static coh_status find_covers(deriver *d)
{
    const coh_program *p = d->program;
    COH_TRY(COH_ALLOC(p->operand_count, &d->covers));
    for (uint32_t i = 0; i < p->operand_count; i++) {
        const coh_operand *operand = &p->operands[i];
        const space *s = &d->spaces[operand->tier];
        d->covers[i] = (cover){ find_boundary(s, operand->offset),
                                find_boundary(s, operand->offset + operand->bytes) };
    }
    return COH_OK;
}

static void require(clock *needed, int lane, uint32_t number)
{
    if (number > needed->number[lane])
        needed->number[lane] = number;
}

/* Collects the instructions that must have retired before the operand may be touched. */
static void collect(const deriver *d, uint32_t index, clock *needed)
{
    const coh_operand *operand = &d->program->operands[index];
    const space *s = &d->spaces[operand->tier];
    const cover c = d->covers[index];
    for (size_t run = c.begin < c.end ? run_of(s, c.begin) : c.end; run < c.end;
         run = run_after(s, run, c.end)) {
        const interval_state *state = &s->intervals[run];
        require(needed, state->writer_lane, state->writer);
        if (operand->access & COH_ACCESS_WRITE)
            for (int lane = 0; lane < d->lane_count; lane++)
                require(needed, lane, state->reader[lane]);
    }
}

static void record(deriver *d, uint32_t index, uint8_t lane, uint32_t number)
{
    const coh_operand *operand = &d->program->operands[index];
    space *s = &d->spaces[operand->tier];
    const cover c = d->covers[index];
    if (c.begin == c.end)
        return;
    cut_run(s, c.end);
    cut_run(s, c.begin);
    if (operand->access & COH_ACCESS_WRITE) {
        join_runs(s, c.begin, c.end);
        s->intervals[c.begin] = (interval_state){ .writer = number, .writer_lane = lane };
        return;
    }
    for (size_t run = c.begin; run < c.end; run = run_after(s, run, c.end))
        s->intervals[run].reader[lane] = number;
}

static uint32_t *started_of(const deriver *d, size_t body, uint32_t index)
{
    return d->started + (body * d->program->instruction_count + index) * (size_t)d->lane_count;
}

/* Returns what is known once lane `lane` has retired instruction `number`. */
static clock knowledge(const deriver *d, int lane, uint32_t number)
{
    const uint32_t length = d->lengths[lane];
    const uint32_t instruction = d->instruction_of[lane][(number - 1) % length];
    clock known;
    memcpy(known.number, started_of(d, (number - 1) / length, instruction),
           (size_t)d->lane_count * sizeof(known.number[0]));
    known.number[lane] = number;
    return known;
}

static void join(const deriver *d, clock *to, const clock *from)
{
    for (int lane = 0; lane < d->lane_count; lane++)
        if (from->number[lane] > to->number[lane])
            to->number[lane] = from->number[lane];
}

static coh_status add_wait(deriver *d, coh_instruction *instruction, int lane, uint32_t number)
{
    coh_program *p = d->program;
    uint32_t length = d->lengths[lane];
    COH_TRY(coh_effort_check_count((uint64_t)p->wait_count + 1, COH_UNIT_WAITS));
    COH_TRY(COH_EXTEND(&p->waits, &d->wait_capacity, p->wait_count + 1));
    p->waits[p->wait_count++] = (coh_wait){ .ordinal = (number - 1) % length + 1,
                                            .lane = d->lanes[lane],
                                            .carry = (uint8_t)(d->body - (number - 1) / length) };
    instruction->wait_count++;
    return COH_OK;
}

/* Drops from `needed` what the base knowledge or another needed instruction implies; merges the
 * rest into *base. */
static void reduce(const deriver *d, clock *needed, clock *base)
{
    clock known[COH_LANE_COUNT];
    for (int lane = 0; lane < d->lane_count; lane++) {
        if (needed->number[lane] <= base->number[lane])
            needed->number[lane] = 0;
        if (needed->number[lane] > 0)
            known[lane] = knowledge(d, lane, needed->number[lane]);
    }
    for (int lane = 0; lane < d->lane_count; lane++)
        for (int other = 0; needed->number[lane] > 0 && other < d->lane_count; other++)
            if (other != lane && needed->number[other] > 0 &&
                known[other].number[lane] >= needed->number[lane])
                needed->number[lane] = 0;
    for (int lane = 0; lane < d->lane_count; lane++)
        if (needed->number[lane] > 0)
            join(d, base, &known[lane]);
}

static coh_status visit(deriver *d, uint32_t index)
{
    coh_program *p = d->program;
    coh_instruction *instruction = &p->instructions[index];
    const uint32_t depth = p->lane_depth[instruction->lane];
    const uint8_t lane = d->rank[instruction->lane];
    uint32_t number = d->body * d->lengths[lane] + instruction->ordinal;
    clock needed = { { 0 } }, base = d->lane_clock[lane];
    if (number > depth)
        require(&base, lane, number - depth);
    for (uint32_t i = 0; i < instruction->operand_count; i++)
        collect(d, instruction->operand_begin + i, &needed);
    reduce(d, &needed, &base);
    if (d->body == d->body_count - 1) {
        instruction->wait_begin = p->wait_count;
        instruction->wait_count = 0;
        for (int other = 0; other < d->lane_count; other++)
            if (needed.number[other] > 0)
                COH_TRY(add_wait(d, instruction, other, needed.number[other]));
    }
    d->lane_clock[lane] = base;
    memcpy(started_of(d, d->body, index), base.number,
           (size_t)d->lane_count * sizeof(base.number[0]));
    for (uint32_t i = 0; i < instruction->operand_count; i++)
        record(d, instruction->operand_begin + i, lane, number);
    return COH_OK;
}

/* Ranks the lanes that have instructions, and lists these. */
static coh_status rank_lanes(deriver *d)
{
    const coh_program *p = d->program;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        if (p->lane_length[lane] == 0)
            continue;
        d->lanes[d->lane_count] = (uint8_t)lane;
        d->lengths[d->lane_count] = p->lane_length[lane];
        d->rank[lane] = (uint8_t)d->lane_count;
        COH_TRY(COH_ALLOC(p->lane_length[lane], &d->instruction_of[d->lane_count]));
        d->lane_count++;
    }
    for (uint32_t i = 0; i < p->instruction_count; i++)
        d->instruction_of[d->rank[p->instructions[i].lane]][p->instructions[i].ordinal - 1] = i;
    return COH_OK;
}

static coh_status derive(deriver *d)
{
    coh_program *p = d->program;
    COH_TRY(coh_effort_check_count((uint64_t)p->instruction_count * d->body_count,
                                   COH_UNIT_INSTRUCTIONS));
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        COH_TRY(cut_space(d, (coh_tier)tier));
    COH_TRY(find_covers(d));
    COH_TRY(rank_lanes(d));
    COH_TRY(COH_ALLOC((size_t)p->instruction_count * d->body_count * (size_t)d->lane_count,
                      &d->started));
    for (d->body = 0; d->body < d->body_count; d->body++)
        for (uint32_t i = 0; i < p->instruction_count; i++)
            COH_TRY(visit(d, i));
    return COH_OK;
}

coh_status coh_waits_derive(const coh_layout *layout, coh_program *program)
{
    deriver d = { .layout = layout,
                  .program = program,
                  .body_count = program->kind == COH_PROGRAM_BODY ? 2 : 1 };
    program->wait_count = 0;
    coh_free(program->waits);
    program->waits = NULL;
    coh_status status = derive(&d);
    COH_FIT(&program->waits, &d.wait_capacity, program->wait_count);
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        coh_free(d.spaces[tier].boundaries);
        coh_free(d.spaces[tier].below);
        coh_free(d.spaces[tier].intervals);
        coh_free(d.spaces[tier].heads);
    }
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        coh_free(d.instruction_of[lane]);
    coh_free(d.started);
    coh_free(d.covers);
    return status;
}
