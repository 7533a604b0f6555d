/* verify_state.h - the inside of the verifier, shared by its files:
 *
 *   verify.c          the order of the checks; the message of a broken rule
 *   verify_tables.c   indices inside their tables: a precondition of every other file, never off
 *   verify_form.c     FORM: one instruction at a time
 *   verify_places.c   ALIGNMENT, CAPACITY, WEAR: one extent at a time
 *   verify_clock.c    DEADLOCK; the instructions known to have retired when each instruction starts
 *   verify_bytes.c    READ, OVERWRITE, WRITE_ORDER, OVERLAP, LOST_DATA, CLOSURE: runs the program
 *                     on versions instead of numbers, in issue order, consulting the clocks
 *   verify_lifetime.c the extents of that run: their cells, their lives, the boundary map
 *   verify_calls.c    each call once, by rows and micro-batches; RECOMPUTE
 *   verify_once.c     EXACTLY_ONCE of gradients, norms and updates; CONSISTENT_SAVE
 *   verify_shares.c   EXACTLY_ONCE of contributions: each use in forward gives one in backward
 *   verify_adds.c     EXACTLY_ONCE of parameters that share a chunk: first overwrites, later add
 *   verify_folds.c    EXACTLY_ONCE of replicas: each gradient added once, in the fold shape's order
 *   verify_sums.c     EXACTLY_ONCE of ranks: each gradient summed over all of them, axis after axis
 *   verify_rollback.c ROLLBACK: a second run of a body finds what the first one read
 *
 * Instructions are numbered through all runs of a lane from 1: run r's instruction n has the
 * number r * lane_length + n. "a happens before b" is: clock(b)[lane of a] >= number of a. */
#ifndef COH_PLANNER_VERIFY_STATE_H
#define COH_PLANNER_VERIFY_STATE_H

#include "base/check.h"
#include "planner/opcodes.h"
#include "planner/verify.h"

#define COH_NO_INSTRUCTION UINT32_MAX

/* Runs whose clocks are kept: waits reach back one run. */
enum { COH_CLOCK_RUNS = 2 };

/* An instruction that runs a kind. */
typedef struct coh_call_entry {
    uint8_t opcode;
    int32_t op, microbatch;
    uint32_t instruction;
} coh_call_entry;

typedef struct coh_verifier {
    const coh_layout *layout;
    const coh_program *program;
    const coh_verify_options *options;
    coh_verify_result result;
    uint32_t run_count; /* 3 for a body, else 1 */
    uint32_t run;       /* the current run of verify_bytes.c, for messages */
    /* Counted by the verifier itself, so that no check relies on the program's own numbers. */
    uint32_t *ordinals; /* by instruction */
    uint32_t lane_length[COH_LANE_COUNT];
    uint32_t lane_first
        [COH_LANE_COUNT]; /* lane_instructions[lane_first[l] + ordinal - 1] is an instruction */
    uint32_t *lane_instructions;
    /* [run % COH_CLOCK_RUNS][instruction][lane]: highest number of the lane known to have
     * retired */
    uint32_t *clocks;
    coh_call_entry *calls; /* sorted by opcode, operator, micro-batch, instruction */
    uint32_t call_count;
    uint32_t *chunk_stamps; /* by chunk, zeroed; every user leaves it zeroed */
} coh_verifier;

/* ---- verify.c ---- */

/* Records the first broken rule and fails with "rule 3 (READ), body instruction 17 READ work of
 * group 2, chunk 5: <your message>". Returns COH_OK if the rule is switched off. `chunk`
 * UINT32_MAX: none. */
coh_status coh_verify_breach(coh_verifier *v, coh_rule rule, uint32_t instruction, uint32_t chunk,
                             const char *format, ...) __attribute__((format(printf, 5, 6)));

static inline int coh_verify_is_off(const coh_verifier *v, coh_rule rule)
{
    return (v->options->rules_off >> rule) & 1;
}

/* ---- the checks, in the order in which they run ---- */

coh_status coh_verify_tables(coh_verifier *v);
coh_status coh_verify_index(coh_verifier *v); /* fills ordinals, lane_* */
coh_status coh_verify_form(coh_verifier *v);
coh_status coh_verify_places(coh_verifier *v); /* ALIGNMENT, CAPACITY, WEAR */
coh_status coh_verify_issue(coh_verifier *v);  /* DEADLOCK */
coh_status coh_verify_calls(coh_verifier *v);
coh_status coh_verify_once(coh_verifier *v);
coh_status coh_verify_shares(coh_verifier *v); /* EXACTLY_ONCE of contributions, losses, outputs */
coh_status coh_verify_adds(coh_verifier *v);   /* EXACTLY_ONCE of single parameters */
coh_status coh_verify_folds(coh_verifier *v);  /* EXACTLY_ONCE of replicas */
coh_status coh_verify_sums(coh_verifier *v);   /* EXACTLY_ONCE of ranks */
coh_status coh_verify_rollback(coh_verifier *v);
coh_status coh_verify_save(coh_verifier *v);
coh_status coh_verify_bytes(coh_verifier *v);

/* Fills the clocks of a run, which replace those of the run before the last. Runs are numbered from
 * 0, and each needs the clocks of the one before. */
void coh_verify_clocks(coh_verifier *v, uint32_t run);

/* Finds the calls of an opcode, operator and micro-batch (-1: all of them): calls[begin .. end). */
void coh_verify_find_calls(const coh_verifier *v, uint8_t opcode, int32_t op, int32_t microbatch,
                           uint32_t *out_begin, uint32_t *out_end);

/* ---- small accessors of the tables ---- */

static inline const coh_operand *coh_instruction_operands(const coh_verifier *v,
                                                          uint32_t instruction)
{
    return &v->program->operands[v->program->instructions[instruction].operand_begin];
}

static inline const coh_touch *coh_operand_touches(const coh_verifier *v,
                                                   const coh_operand *operand)
{
    return &v->program->touches[operand->touch_begin];
}

static inline const coh_object *coh_chunk_object(const coh_verifier *v, uint32_t chunk)
{
    return &v->layout->objects[v->layout->chunks[chunk].object];
}

static inline const uint32_t *coh_instruction_clock(const coh_verifier *v, uint32_t run,
                                                    uint32_t instruction)
{
    const size_t row = run % COH_CLOCK_RUNS * (size_t)v->program->instruction_count + instruction;
    return &v->clocks[row * COH_LANE_COUNT];
}

/* Returns the bytes of a part of `window` bytes after the REDUCEs over the axes up to `axis`. Parts
 * are multiples of `unit`. */
static inline uint64_t coh_verify_part(const coh_mesh *mesh, int axis, uint64_t window,
                                       uint64_t unit)
{
    for (int i = 0; i <= axis; i++) {
        const uint64_t members = (uint64_t)mesh->axes[i].rank_count;
        uint64_t part = window / members + (window % members != 0);
        part += (unit - part % unit) % unit;
        window = part < window ? part : window;
    }
    return window;
}

/* More elements than any tensor has: their bytes fit 64 bits. */
#define COH_VERIFY_ELEMENTS_MOST ((uint64_t)1 << 56)

/* Returns the bytes of so many elements of a dtype; 0 for one that does not exist. */
static inline uint64_t coh_verify_array_bytes(coh_dtype dtype, uint64_t elements)
{
    switch (dtype) {
    case COH_DTYPE_F32:
    case COH_DTYPE_I32:
        return elements * 4;
    case COH_DTYPE_BF16:
    case COH_DTYPE_F16:
        return elements * 2;
    case COH_DTYPE_NF4: /* 64 elements: a scale of 2 bytes, 32 bytes of codes */
        return (elements / 64 + (elements % 64 != 0)) * 34;
    }
    return 0;
}

/* Returns the bytes of a grain in a group's WORK, or with `is_grad` in its GRAD. */
static inline uint64_t coh_verify_grain_bytes(const coh_group_layout *group, int is_grad)
{
    const int is_half = group->dtype == COH_DTYPE_BF16 && !(is_grad && group->f32_gradients);
    return (uint64_t)COH_GRAIN_ELEMENTS * (is_half ? 2 : 4);
}

/* Returns the bytes of the largest part of a divided chunk of WORK that a rank has of a stream
 * which is divided over `axes` axes. */
static inline uint64_t coh_verify_largest_part(const coh_layout *layout,
                                               const coh_group_layout *group, uint32_t chunk,
                                               int axes)
{
    return coh_verify_part(&layout->mesh, axes - 1, layout->chunks[chunk].bytes,
                           coh_verify_grain_bytes(group, 0));
}

/* Returns 1 for an ADD that takes a CONTRIBUTION. */
static inline int coh_verify_is_fold(const coh_verifier *v, uint32_t instruction)
{
    const coh_instruction *facts = &v->program->instructions[instruction];
    return facts->opcode == COH_OP_ADD && facts->operand_count > 0 &&
           v->layout->objects[coh_instruction_operands(v, instruction)[0].object].stream ==
               COH_STREAM_CONTRIBUTION;
}

/* The chunk of `object` that belongs to a chunk of the same group: the same number in it. */
static inline uint32_t coh_partner_chunk(const coh_verifier *v, uint32_t chunk, int32_t object)
{
    return v->layout->objects[object].chunk_begin + chunk - coh_chunk_object(v, chunk)->chunk_begin;
}

#endif
