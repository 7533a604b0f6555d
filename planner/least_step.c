/* Writes and solves the linear programme over shares of blocks. The idea: each content (weights,
 * states, gradients, activations) is split by where it lies in memory, and each split adds bytes to
 * phases and boundaries. The programme is explained in least_step.h; its figures come from
 * step_facts.c, the solver is simplex.c. */
#include "planner/least_step.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/effort.h"
#include "planner/lower_late.h"
#include "planner/rank_axes.h"
#include "planner/simplex.h"
#include "planner/step_facts.h"

typedef coh_step_facts facts;
typedef coh_step_unit unit;

enum { AHEAD = COH_AHEAD, BETWEEN = COH_BETWEEN, BACK = COH_BACK, EARLIER = COH_EARLIER };
enum { BACKS = BACK | EARLIER, ANY = AHEAD | BETWEEN | BACKS };
enum { MASKS = COH_PHASE_MASKS, PHASES = COH_PHASES };

/* Where memory is counted, as bits of a pattern: what lies in memory there. Of several passes TURN
 * is the first turn; REST and MIDDLE are the means of the other turns and of the begins between
 * passes. */
enum { BEGIN = 1, TURN = 2, REST = 4, MIDDLE = 8, BOUNDARIES = 4, PATTERNS = 16 };

/* Two levels of memory: the innermost with its link, and all but the drive. */
enum { LEVELS = 2 };
enum { LANE_COMPUTE, LANE_HOST, LANE_MEMORY, LANE_LINKS, LANES = LANE_LINKS + 4 * LEVELS };
enum { WAY_IN, WAY_OUT, WAY_BOTH }; /* lanes of a level; WAY_BOTH: two, of the pair */

/* Kinds of block and of other parameters in the programme; the smallest are left out. */
enum { UNITS_MOST = 10 };

/* ---- the programme ---- */

/* What a share costs: nanoseconds of each lane that fall into a mask of phases, and bytes of each
 * level at each boundary. */
typedef struct cost {
    double ns[LANES][MASKS];
    double bytes[LEVELS][BOUNDARIES];
} cost;

/* A level of memory. */
typedef struct level {
    int32_t exists, number;
    int32_t splits_updates; /* the host's updates lie beyond it */
    double room;
    double ns_per_byte[2];
    double pair[2];        /* the speed of each way while the other is busy */
    double memory_part[2]; /* of host memory's rate, by way */
} level;

enum { ROWS_PER_UNIT = 24, COLUMNS_PER_UNIT = 128 };

typedef struct programme {
    const facts *f;
    const coh_plan_options *options;
    const coh_pricer *pricer;
    level levels[LEVELS];
    int patterns;   /* BEGIN | TURN, with REST | MIDDLE if there are several passes */
    cost fixed;     /* of the shares that are all zero */
    cost *columns;  /* by column: what it adds */
    double *shares; /* by share row and column */
    double *limits; /* by share row */
    int column_count, row_count, column_most, row_most;
    int update_column[UNITS_MOST], keep_column[UNITS_MOST]; /* by unit; -1: none */
} programme;

static int is_deferred(const programme *p)
{
    return coh_plan_defers(p->options);
}

static void need(cost *c, int lane, int mask, double ns)
{
    c->ns[lane][mask] += ns;
}

/* Adds compute time of all backwards, equal parts of each. */
static void need_back(const programme *p, cost *c, double ns)
{
    need(c, LANE_COMPUTE, BACK, ns / p->f->passes);
    need(c, LANE_COMPUTE, EARLIER, ns - ns / p->f->passes); /* 0 of one pass */
}

/* Adds a transfer of the level in one direction. */
static void move(const level *l, cost *c, int way, int mask, double bytes)
{
    const int first = LANE_LINKS + 4 * l->number;
    const double ns = bytes * l->ns_per_byte[way], a = l->pair[WAY_IN], b = l->pair[WAY_OUT];
    const int never_gains = a + b <= 1;
    need(c, first + way, mask, ns);
    need(c, LANE_MEMORY, mask, ns * l->memory_part[way]);
    /* The corners of the dual in bounds.c. */
    need(c, first + WAY_BOTH, mask, never_gains || way == WAY_IN ? ns : ns * (1 - a) / b);
    need(c, first + WAY_BOTH + 1, mask, never_gains || way == WAY_OUT ? ns : ns * (1 - b) / a);
}

static void keep(const level *l, cost *c, int pattern, double bytes)
{
    for (int boundary = 0; boundary < BOUNDARIES; boundary++)
        if (pattern & 1 << boundary)
            c->bytes[l->number][boundary] += bytes;
}

/* A way to treat content of a unit: what it costs if it lies in memory at the boundaries of
 * `pattern`. Returns 0 if it cannot. */
typedef int content(const programme *p, const level *l, const unit *u, int pattern, cost *out);

/* Weights that each pass reads. */
static void read_weights(const programme *p, const level *l, double bytes, double back, int pattern,
                         cost *out)
{
    if (!(pattern & BEGIN))
        move(l, out, WAY_IN, AHEAD, bytes);
    if (!(pattern & TURN))
        move(l, out, WAY_IN, BACKS, back);
    if (!(pattern & REST))
        move(l, out, WAY_IN, BACKS, (p->f->passes - 1) * back);
    if (!(pattern & MIDDLE))
        move(l, out, WAY_IN, BETWEEN, (p->f->passes - 1) * bytes);
    keep(l, out, pattern, bytes);
}

static int frozen_weights(const programme *p, const level *l, const unit *u, int pattern, cost *out)
{
    read_weights(p, l, u->frozen, u->frozen_back, pattern, out);
    return u->frozen > 0;
}

/* Returns 1 if content of the innermost level, which the device updates, is known to be updated in
 * the last backward. */
static int is_in_back(const programme *p, const level *l)
{
    return !is_deferred(p) && l->number == 0;
}

/* Changed content that the update leaves: it crosses unless it never leaves memory. A deferred
 * update runs before the first turn: content that is not in memory there has left before. */
static void store_changed(const programme *p, const level *l, double bytes, int pattern, cost *out)
{
    int mask = ANY;
    if (is_deferred(p) && !(pattern & TURN))
        mask = AHEAD;
    if (is_in_back(p, l) && !(pattern & BEGIN))
        mask = BACK;
    if (pattern != p->patterns)
        move(l, out, WAY_OUT, mask, bytes);
}

static int own_weights(const programme *p, const level *l, const unit *u, int pattern, cost *out)
{
    read_weights(p, l, u->work, u->work_back, pattern, out);
    store_changed(p, l, u->work, pattern, out);
    return u->work > 0;
}

/* Weights that the host updates: copies in memory are stale from then on. */
static int host_weights(const programme *p, const level *l, const unit *u, int pattern, cost *out)
{
    read_weights(p, l, u->work, u->work_back, pattern, out);
    if (!is_deferred(p) && (pattern & BEGIN))
        move(l, out, WAY_IN, BACK, u->work);
    return u->work > 0 && (!is_deferred(p) || !(pattern & BEGIN));
}

/* Returns the turn next to the update of states: the first one follows a deferred update, the last
 * one, of REST, precedes any other. */
static int update_turn(const programme *p)
{
    return is_deferred(p) || p->f->passes == 1 ? TURN : REST;
}

static int states(const programme *p, const level *l, const unit *u, int pattern, cost *out)
{
    const int turn = update_turn(p), leaves = pattern != p->patterns;
    int mask = ANY;
    if (is_deferred(p))
        mask = pattern & BEGIN ? BETWEEN | BACKS : AHEAD;
    else if (is_in_back(p, l))
        mask = !(pattern & turn) ? BACK : p->f->passes == 1 ? AHEAD : ANY;
    if (leaves)
        move(l, out, WAY_IN, mask, u->state);
    store_changed(p, l, u->state, pattern, out);
    keep(l, out, leaves ? pattern & ~REST : pattern, u->state);
    if (leaves && (pattern & REST)) /* at one of these turns */
        keep(l, out, REST, u->state / (p->f->passes - 1));
    /* states that leave gain nothing by staying elsewhere */
    return u->state > 0 && !(leaves && (pattern & ~(BEGIN | turn)));
}

/* Gradients from one micro-batch to the next; there are none at the first turn. */
static int sums(const programme *p, const level *l, const unit *u, int pattern, cost *out)
{
    const double times = p->f->passes - 1;
    if (!(pattern & REST) || !(pattern & MIDDLE)) {
        move(l, out, WAY_OUT, pattern & MIDDLE ? BETWEEN | EARLIER : EARLIER, times * u->grad);
        move(l, out, WAY_IN, pattern & REST ? BETWEEN : BACKS, times * u->grad);
    }
    keep(l, out, pattern, u->grad);
    return times > 0 && u->grad > 0 && !(pattern & (BEGIN | TURN));
}

/* Gradients that wait for a deferred update on the device. */
static int own_gradients(const programme *p, const level *l, const unit *u, int pattern, cost *out)
{
    if (!(pattern & BEGIN)) {
        move(l, out, WAY_OUT, BACK, u->grad);
        move(l, out, WAY_IN, AHEAD, u->grad);
    }
    keep(l, out, pattern, u->grad);
    return is_deferred(p) && u->grad > 0 && !(pattern & ~BEGIN);
}

/* Gradients on their way to an update of the host. */
static int host_gradients(const programme *p, const level *l, const unit *u, int pattern, cost *out)
{
    move(l, out, WAY_OUT, !is_deferred(p) ? AHEAD | BACK : pattern & BEGIN ? AHEAD : BACK, u->grad);
    keep(l, out, pattern, u->grad);
    return u->grad > 0 && !(pattern & ~BEGIN);
}

/* Activations: written before their turn, read after it. */
static int activations(const programme *p, const level *l, double bytes, int pattern, cost *out)
{
    const double first = pattern & TURN ? 0 : bytes;
    const double others = pattern & REST ? 0 : (p->f->passes - 1) * bytes;
    move(l, out, WAY_OUT, AHEAD, first);
    move(l, out, WAY_OUT, BETWEEN, others);
    move(l, out, WAY_IN, BACKS, first + others);
    keep(l, out, pattern, bytes);
    return bytes > 0 && !(pattern & ~(TURN | REST));
}

static int kept(const programme *p, const level *l, const unit *u, int pattern, cost *out)
{
    return activations(p, l, u->kept, pattern, out);
}

static int recomputed(const programme *p, const level *l, const unit *u, int pattern, cost *out)
{
    return activations(p, l, u->recomputed, pattern, out);
}

/* Adds `factor` times a cost to a column, or to what is fixed (column -1). */
static void charge(programme *p, int column, const cost *c, double factor)
{
    double *to = (double *)(column < 0 ? &p->fixed : &p->columns[column]);
    const double *from = (const double *)c;
    for (size_t i = 0; i < sizeof(cost) / sizeof(double); i++)
        to[i] += factor * from[i];
}

static double *share_at(const programme *p, int row, int column)
{
    return &p->shares[(size_t)row * (size_t)p->column_most + (size_t)column];
}

static int add_column(programme *p)
{
    assert(p->column_count < p->column_most);
    return p->column_count++;
}

/* Adds a share that is at most `limit`, or at most another share. */
static int add_row(programme *p, double limit)
{
    assert(p->row_count < p->row_most);
    p->limits[p->row_count] = limit;
    return p->row_count++;
}

/* Which part of a unit has the content: all of it, or with `with` >= 0 what that share takes or
 * leaves. */
typedef struct part {
    int with;
    int takes;
} part;

/* Adds a content of a unit: nothing in memory, or the shares of each other pattern. */
static void add_content(programme *p, const level *l, const unit *u, content *of, part share)
{
    cost none = { 0 };
    const int is_part = share.with >= 0;
    const int takes = is_part && share.takes;
    if (!of(p, l, u, 0, &none))
        return;
    charge(p, takes ? share.with : -1, &none, u->copies);
    if (is_part && !takes)
        charge(p, share.with, &none, -u->copies);
    const int row = add_row(p, takes ? 0 : 1);
    if (is_part)
        *share_at(p, row, share.with) = takes ? -1 : 1;
    for (int pattern = 1; pattern < PATTERNS; pattern++) {
        cost other = { 0 };
        if ((pattern & ~p->patterns) || !of(p, l, u, pattern, &other))
            continue;
        const int column = add_column(p);
        charge(p, column, &other, u->copies);
        charge(p, column, &none, -u->copies);
        *share_at(p, row, column) = 1;
    }
}

/* Adds a share of its own, between 0 and 1. */
static int add_share(programme *p)
{
    const int column = add_column(p);
    *share_at(p, add_row(p, 1), column) = 1;
    return column;
}

static void add_unit(programme *p, int index)
{
    const unit *u = &p->f->units[index];
    const coh_plan_options *o = p->options;
    const int may_keep = o->recompute != COH_RECOMPUTE_ALL || o->pin_count > 0;
    const int may_recompute = o->recompute != COH_RECOMPUTE_NONE || o->pin_count > 0;
    cost device = { 0 }, host = { 0 }, again = { 0 }, light = { 0 };
    const part all = { -1, 0 };
    part kept_part = all, updated = all;
    p->update_column[index] = p->keep_column[index] = -1;
    need(&device, LANE_COMPUTE, is_deferred(p) ? AHEAD : BACK, u->update_ns);
    need(&host, LANE_HOST, is_deferred(p) ? AHEAD : AHEAD | BACK, u->host_update_ns);
    need(&host, LANE_MEMORY, is_deferred(p) ? AHEAD : AHEAD | BACK,
         u->host_update_ns * p->pricer->profile->memory_part[COH_LANE_HOST]);
    need_back(p, &again, u->recompute_ns);
    need_back(p, &light, u->light_ns);
    charge(p, -1, &device, u->copies);
    if (u->grad > 0 && o->host_memory_bytes > 0) {
        p->update_column[index] = updated.with = add_share(p);
        charge(p, updated.with, &host, u->copies);
        charge(p, updated.with, &device, -u->copies);
    }
    if (u->is_block && may_recompute) {
        charge(p, -1, &again, u->copies);
        p->keep_column[index] = kept_part.with = add_share(p);
        charge(p, kept_part.with, &again, -u->copies);
        charge(p, kept_part.with, &light, u->copies);
        if (!may_keep)
            p->limits[p->row_count - 1] = 0;
    }
    for (int i = 0; i < LEVELS && p->levels[i].exists; i++) {
        const level *l = &p->levels[i];
        part device_part = l->splits_updates ? updated : all;
        add_content(p, l, u, frozen_weights, all);
        add_content(p, l, u, own_weights, device_part);
        add_content(p, l, u, states, device_part);
        add_content(p, l, u, sums, all);
        add_content(p, l, u, own_gradients, device_part);
        if (l->splits_updates && updated.with >= 0) {
            add_content(p, l, u, host_weights, (part){ updated.with, 1 });
            add_content(p, l, u, host_gradients, (part){ updated.with, 1 });
        }
        add_content(p, l, u, kept, kept_part.with < 0 ? all : (part){ kept_part.with, 1 });
        if (kept_part.with >= 0)
            add_content(p, l, u, recomputed, kept_part);
    }
}

/* ---- the machine ---- */

/* The least time of a byte: chunks' times are rounded to whole nanoseconds. */
static double ns_per_byte(const coh_pricer *pricer, coh_lane lane, coh_opcode opcode)
{
    const uint64_t bytes = (uint64_t)COH_CHUNK_LEAST;
    const coh_instruction instruction = {
        .opcode = (uint8_t)opcode, .lane = (uint8_t)lane, .bytes = bytes, .call = -1
    };
    const coh_program none = { 0 };
    const double ns = coh_price_instruction(pricer, NULL, &none, &instruction).p50 - 0.5;
    return ns > 0 ? ns / COH_CHUNK_LEAST : 0;
}

static level make_level(const coh_pricer *pricer, int number, int is_drive, double room)
{
    const coh_lane in = is_drive ? COH_LANE_READ : COH_LANE_H2D;
    const coh_lane out = is_drive ? COH_LANE_WRITE : COH_LANE_D2H;
    const coh_profile *profile = pricer->profile;
    return (
        level){ .exists = 1,
                .number = number,
                .splits_updates = !is_drive,
                .room = room,
                .ns_per_byte = { ns_per_byte(pricer, in, is_drive ? COH_OP_READ : COH_OP_LOAD),
                                 ns_per_byte(pricer, out, is_drive ? COH_OP_WRITE : COH_OP_STORE) },
                .pair = { profile->contention[in][out], profile->contention[out][in] },
                .memory_part = { profile->memory_part[in], profile->memory_part[out] } };
}

static void make_levels(programme *p)
{
    const coh_plan_options *o = p->options;
    const double pinned = p->f->pinned_bytes;
    const double device = (double)o->device_memory_bytes - pinned;
    const double host = (double)o->host_memory_bytes;
    int count = 0;
    if (host > 0)
        p->levels[count++] = make_level(p->pricer, 0, 0, device);
    if (o->disk_bytes > 0) {
        p->levels[count] = make_level(p->pricer, count, 1, device + host);
        count++;
    }
}

/* ---- solving ---- */

/* The rows of the table, one after another. */
typedef struct table {
    double *values;
    int rows, columns;
} table;

static double *cell(const table *t, int row, int column)
{
    return &t->values[(size_t)row * (size_t)(t->columns + 1) + (size_t)column];
}

/* Returns the phases that exist. */
static int phases_of(const programme *p)
{
    return p->f->passes > 1 ? ANY : AHEAD | BACK;
}

/* Sums what falls into a mask of phases, of those that exist. */
static double inside(const programme *p, const cost *c, int lane, int mask)
{
    const int exists = phases_of(p);
    double ns = 0;
    for (int m = 1; m < MASKS; m++)
        if (((m & exists) & ~mask) == 0)
            ns += c->ns[lane][m];
    return ns;
}

/* Each lane has as much time as the phases that its work falls into. */
static void add_times(const programme *p, double most_ns, table *t)
{
    for (int lane = 0; lane < LANES; lane++)
        for (int mask = 1; mask < MASKS; mask++) {
            const int number = (lane - LANE_LINKS) / 4;
            if ((mask & ~phases_of(p)) || (lane >= LANE_LINKS && !p->levels[number].exists))
                continue;
            double limit = -inside(p, &p->fixed, lane, mask) / most_ns;
            for (int column = 0; column < p->column_count; column++)
                *cell(t, t->rows, column) = inside(p, &p->columns[column], lane, mask) / most_ns;
            for (int phase = 0; phase < PHASES; phase++)
                if (mask & 1 << phase) {
                    *cell(t, t->rows, p->column_count + phase) = 1;
                    limit += 1;
                }
            *cell(t, t->rows++, t->columns) = limit > 0 ? limit : 0;
        }
}

static void add_rooms(const programme *p, table *t)
{
    for (int i = 0; i < LEVELS && p->levels[i].exists; i++)
        for (int boundary = 0; boundary < BOUNDARIES; boundary++) {
            for (int column = 0; column < p->column_count; column++)
                *cell(t, t->rows, column) =
                    p->columns[column].bytes[i][boundary] / p->levels[i].room;
            *cell(t, t->rows++, t->columns) = 1;
        }
}

/* Without a drive, everything that lives at the turn lies in the device or the host tier. */
static void add_far_room(const programme *p, table *t)
{
    const coh_plan_options *o = p->options;
    const double room = (double)o->device_memory_bytes + (double)o->host_memory_bytes;
    double left = room;
    if (o->disk_bytes > 0)
        return;
    for (int i = 0; i < p->f->unit_count; i++) {
        const unit *u = &p->f->units[i];
        const int column = p->keep_column[i];
        const double less = u->kept < u->recomputed ? u->kept : u->recomputed;
        left -= u->copies * (u->frozen + u->work + u->state + (column < 0 ? u->kept : less));
        if (column >= 0)
            *cell(t, t->rows, column) = u->copies * (u->kept - less) / room;
    }
    *cell(t, t->rows++, t->columns) = left > 0 ? left / room : 0;
}

static void add_shares(const programme *p, table *t)
{
    for (int row = 0; row < p->row_count; row++) {
        for (int column = 0; column < p->column_count; column++)
            *cell(t, t->rows, column) = *share_at(p, row, column);
        *cell(t, t->rows++, t->columns) = p->limits[row];
    }
}

static double most_fixed_ns(const programme *p)
{
    double most = 0;
    for (int lane = 0; lane < LANES; lane++) {
        const double ns = inside(p, &p->fixed, lane, ANY);
        most = ns > most ? ns : most;
    }
    return most;
}

/* Estimates the part of the host's updates for which the last backward leaves no time, if it
 * recomputes so many blocks. */
static int32_t estimate_late(const programme *p, int32_t recompute)
{
    double back_ns = 0, host_ns = 0;
    for (int i = 0; i < p->f->unit_count; i++) {
        const unit *u = &p->f->units[i];
        back_ns += u->is_block ? u->copies * u->recompute_ns * recompute / p->f->block_count : 0;
        host_ns += u->copies * u->host_update_ns;
    }
    back_ns = p->f->compute_ns[BACK] + back_ns / p->f->passes;
    return back_ns < host_ns ? (int32_t)(COH_LATE_PARTS * (1 - back_ns / host_ns)) : 0;
}

/* Rounds the decisions of the solution to whole blocks. */
static void read_decisions(const programme *p, const double *x, coh_least_set *out)
{
    double recompute = 0, host_updates = 0;
    for (int i = 0; i < p->f->unit_count; i++) {
        const unit *u = &p->f->units[i];
        if (!u->is_block)
            continue;
        if (p->keep_column[i] >= 0)
            recompute += u->copies * (1 - x[p->keep_column[i]]);
        if (p->update_column[i] >= 0)
            host_updates += u->copies * x[p->update_column[i]];
    }
    out->recompute = (int32_t)(recompute + 0.5);
    out->host_updates = (int32_t)(host_updates + 0.5);
    if (out->host_updates >= p->f->block_count && host_updates > 0)
        out->host_updates = p->f->block_count + 1;
    /* where ranks divide states, a gather follows each update and holds it in its place */
    out->late =
        is_deferred(p) || coh_ranks_divide(p->options) ? 0 : estimate_late(p, out->recompute);
}

/* The error of the solver, as a part of the sum of all phases, and of each object's time. */
#define SOLVER_ERROR 1e-7

static coh_status solve(const programme *p, coh_least_step *out)
{
    /* No phase of the best step is longer: a step without any share takes at most this. */
    const double most_ns = PHASES * most_fixed_ns(p) + 1;
    const int phases = __builtin_popcount((unsigned)phases_of(p));
    table t = { .columns = p->column_count + PHASES };
    const int row_most = LANES * MASKS + LEVELS * BOUNDARIES + 2 + p->row_count;
    double *x = NULL, value = 0;
    int is_most = 0;
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC((size_t)row_most * (size_t)(t.columns + 1), &t.values), done);
    COH_TRY_GOTO(status, COH_ALLOC(t.columns, &x), done);
    add_times(p, most_ns, &t);
    add_rooms(p, &t);
    add_far_room(p, &t);
    add_shares(p, &t);
    for (int phase = 0; phase < PHASES; phase++)
        if (1 << phase & phases_of(p))
            *cell(&t, t.rows, p->column_count + phase) = -1;
    COH_TRY_GOTO(status, coh_simplex_maximise(t.values, t.rows, t.columns, x, &value, &is_most),
                 done);
    const double slack = 2.0 * (p->f->passes + 1) * p->f->object_count;
    const double ns = most_ns * (phases - value - phases * SOLVER_ERROR) - slack;
    if (is_most && ns > 0)
        out->ns = (uint64_t)ns;
    read_decisions(p, x, &out->plain);
done:
    coh_free(t.values);
    coh_free(x);
    return status;
}

static coh_status build_and_solve(const facts *f, const coh_plan_options *options,
                                  const coh_pricer *pricer, coh_least_step *out)
{
    programme p = { .f = f,
                    .options = options,
                    .pricer = pricer,
                    .patterns = f->passes > 1 ? BEGIN | TURN | REST | MIDDLE : BEGIN | TURN };
    coh_status status = COH_OK;
    p.column_most = f->unit_count * COLUMNS_PER_UNIT;
    p.row_most = f->unit_count * ROWS_PER_UNIT;
    COH_TRY_GOTO(status, COH_ALLOC(p.column_most, &p.columns), done);
    COH_TRY_GOTO(status, COH_ALLOC(p.row_most, &p.limits), done);
    COH_TRY_GOTO(status, COH_ALLOC((size_t)p.row_most * (size_t)p.column_most, &p.shares), done);
    for (int mask = 1; mask < MASKS; mask++)
        p.fixed.ns[LANE_COMPUTE][mask] = f->compute_ns[mask];
    make_levels(&p);
    if (!p.levels[0].exists || !(p.levels[0].room > 0))
        goto done;
    for (int i = 0; i < f->unit_count; i++)
        add_unit(&p, i);
    status = solve(&p, out);
done:
    coh_free(p.shares);
    coh_free(p.limits);
    coh_free(p.columns);
    return status;
}

static int same_units(const facts *a, const facts *b)
{
    return a->unit_count == b->unit_count &&
           memcmp(a->units, b->units, (size_t)a->unit_count * sizeof(unit)) == 0;
}

/* Solves once more for each kind of light operators that there are. `plain`: the facts of blocks in
 * which none runs again. */
static coh_status find_light(const coh_graph *graph, const coh_plan_options *options,
                             const coh_pricer *pricer, const facts *plain, coh_least_step *out)
{
    facts all[COH_LIGHT_COUNT] = { *plain };
    coh_status status = COH_OK;
    for (int light = COH_LIGHT_NONE + 1; light < COH_LIGHT_COUNT && status == COH_OK; light++) {
        coh_least_step least = { 0 };
        status = coh_step_facts_find(graph, options, pricer, UNITS_MOST, light, &all[light]);
        if (status != COH_OK || same_units(&all[light], &all[light - 1]))
            continue;
        status = build_and_solve(&all[light], options, pricer, &least);
        if (status != COH_OK)
            break;
        if (least.ns > 0)
            out->light[light] = least.plain;
        out->light_ns = least.ns < out->light_ns ? least.ns : out->light_ns; /* 0: none known */
    }
    for (int light = COH_LIGHT_NONE + 1; light < COH_LIGHT_COUNT; light++)
        coh_step_facts_fini(&all[light]);
    return status;
}

coh_status coh_least_step_find(const coh_graph *graph, const coh_plan_options *options,
                               const coh_pricer *pricer, coh_least_step *out_least)
{
    const coh_decisions whole = { .chunk_bytes = COH_WHOLE_OBJECTS,
                                  .row_passes = 1,
                                  .patterns = coh_pattern_choose(1) };
    facts f = { 0 };
    coh_effort effort;
    *out_least = (coh_least_step){ 0 };
    for (int light = 0; light < COH_LIGHT_COUNT; light++)
        out_least->light[light].recompute = -1;
    if (options->mode != COH_PLAN_TRAIN ||
        (options->host_memory_bytes == 0 && options->disk_bytes == 0))
        return COH_OK;
    COH_TRY(coh_effort_of(graph, options, &whole, &effort));
    if (!coh_effort_is_bearable(&effort))
        return COH_OK; /* the facts are of a whole body, whose length would be refused */
    coh_status status = coh_step_facts_find(graph, options, pricer, UNITS_MOST, COH_LIGHT_NONE, &f);
    if (status == COH_OK)
        status = build_and_solve(&f, options, pricer, out_least);
    out_least->light_ns = out_least->ns;
    if (status == COH_OK && options->recompute == COH_RECOMPUTE_AUTO)
        status = find_light(graph, options, pricer, &f, out_least);
    coh_step_facts_fini(&f);
    return status;
}

coh_status coh_least_step_of(coh_plan *plan)
{
    return plan->least.ns > 0
               ? COH_OK
               : coh_least_step_find(plan->graph, &plan->options, &plan->pricer, &plan->least);
}
