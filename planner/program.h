/* program.h - a training step, written down before it runs.
 *
 *   position      0           1           2           3           4
 *   compute |  FWD 0    |  FWD 1    |  FWD 2    |  BWD 2    |  BWD 1    |
 *   read    |           | w1 at 1-  | w2 at 2-  |           | w1 at 4-  |   before its first user
 *   write   |           |           |           | g2 at 3+  | g1 at 4+  |   after its last producer
 *
 * A position is one line of the compute lane; n- is just before it, n+ just after.
 *
 * The one idea: list the lines by key (position, before < at < after). Every wait then points to a
 * smaller key, so the list is a topological issue order and no deadlock can be written. Time is
 * another matter: a READ keyed late runs as early as its waits allow. Prefetch is not an
 * instruction; it is a slot that became free early.
 *
 * Plain data: no pointers into other tables, no device, no clock. Written by planner/schedule,
 * checked by planner/verify (which shares no code with it), walked by planner/simulate and
 * engine/step. All indices are into the tables of the same program or of its layout. */
#ifndef COH_PLANNER_PROGRAM_H
#define COH_PLANNER_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/model.h"
#include "memory/tier.h"

/* ---- the layout: what exists, shared by all programs of one plan ---- */

typedef enum coh_stream {
    COH_STREAM_WORK, /* parameters as compute reads them; f32: also the master */
    COH_STREAM_GRAD,
    COH_STREAM_STATE, /* what only the optimizer reads, moving together: see coh_state_factor */
    COH_STREAM_ACTIVATION,
    COH_STREAM_ACTIVATION_GRAD,
    COH_STREAM_SAVED,   /* from an operator's forward to its backward */
    COH_STREAM_CACHE,   /* likewise, where there is room: backward could compute it again */
    COH_STREAM_SCRATCH, /* workspaces; gradients on their way to an ADD */
    COH_STREAM_KEPT,    /* states of a kind: keys and values */
    COH_STREAM_CELLS,   /* pinned from here on */
    COH_STREAM_PARTIALS,
    COH_STREAM_INPUT,
    COH_STREAM_LOSS,
    COH_STREAM_OUTPUT,
    COH_STREAM_COUNT
} coh_stream;

/* A logical object: one stream of one parameter group (the parameters that one operator brought
 * into the graph, laid out one after the other, each from a page on), one activation, one saved
 * object, a workspace. Its chunks are chunks[chunk_begin .. + chunk_count).
 *
 * `survives`: it has a value between programs. Anything else is dead at a program's end, and
 * reading it before writing it is an error even if bytes are there. */
typedef struct coh_object {
    uint64_t bytes; /* sum of its chunks: a multiple of a page */
    uint32_t chunk_begin, chunk_count;
    int32_t owner;      /* streams of parameters: group. Others: operator or tensor index */
    int32_t microbatch; /* 0; in a sweep by layers, of what each micro-batch has its own: whose */
    uint8_t stream;     /* coh_stream */
    uint8_t survives;
    uint8_t pinned; /* stands at device offset `pinned_offset` for the whole run; one chunk */
    uint64_t pinned_offset;
} coh_object;

/* The unit of transfer. object_offset and bytes are multiples of a page. The chunk of a STATE
 * object that belongs to a WORK chunk [a, a+n) is [f a, f a + f n), f = coh_state_factor(dtype):
 *
 *     f32    work |  n: the master  |      state | m  n | v  n |
 *     bf16   work |  n: its high 16 |      state | low  n | m      2n | v      2n |
 *
 * High and low 16 bits together are the f32 master, exactly; m and v are f32 in both. */
typedef struct coh_chunk {
    int32_t object;
    uint64_t object_offset, bytes;
    uint64_t file_offset; /* in the working store */
} coh_chunk;

/* A parameter in its group's objects: elements [0, elements) at byte `offset` of WORK, and at that
 * times coh_group_grad_factor of GRAD.
 * Grain g of it, 16 Ki elements in either dtype, has norm partial `partial_begin + g`. */
typedef struct coh_parameter_layout {
    int32_t parameter; /* of the graph */
    int32_t group;
    uint64_t offset; /* in bytes: a multiple of a page */
    uint64_t elements;
    uint32_t partial_begin, grain_count;
    int32_t decays, frozen;
    coh_init init;
    float init_std;
} coh_parameter_layout;

typedef struct coh_group_layout {
    int32_t work, grad, state; /* objects; grad and state -1 where frozen or not training */
    uint32_t parameter_begin, parameter_count; /* in parameters[] */
    coh_dtype dtype;                           /* of WORK: F32 or BF16 */
    int32_t f32_gradients;                     /* 1: GRAD is f32 beside it, else as it is */
} coh_group_layout;

/* Bytes of a STATE chunk for each byte of its WORK chunk. */
static inline uint64_t coh_state_factor(coh_dtype dtype)
{
    return dtype == COH_DTYPE_BF16 ? 5 : 2;
}

/* How a group's GRAD is stored, and its bytes for each byte of WORK: chunk for chunk, element for
 * element. */
static inline coh_dtype coh_group_grad_dtype(const coh_group_layout *group)
{
    return group->f32_gradients ? COH_DTYPE_F32 : group->dtype;
}
static inline uint64_t coh_group_grad_factor(const coh_group_layout *group)
{
    return group->f32_gradients && group->dtype == COH_DTYPE_BF16 ? 2 : 1;
}

/* What is resident, and where, at the begin AND at the end of every program that runs on these
 * arenas: body, drain, evaluate, save alike (the boundary map). Its copies farther out count as
 * stale at the begin, unless nothing but INIT and IMPORT writes it (coh_chunk_is_read_only): then
 * those programs leave its copy in the farthest tier up to date, and no other need write it. A
 * program that disturbed an entry brings it back at its end (that is the wrap-around prefetch), so
 * programs follow one another in any order and the loop closes by construction. Pinned objects are
 * not listed. Entries are of surviving objects. */
typedef struct coh_resident {
    uint32_t chunk;
    uint8_t tier; /* device or host */
    uint64_t offset;
} coh_resident;

typedef struct coh_layout {
    coh_object *objects;
    uint32_t object_count;
    coh_chunk *chunks;
    uint32_t chunk_count;
    coh_parameter_layout *parameters;
    uint32_t parameter_count; /* in tensor order */
    coh_group_layout *groups;
    uint32_t group_count;
    coh_resident *residents;
    uint32_t resident_count;         /* sorted by tier, then chunk */
    int32_t cells, partials, losses; /* objects; -1: none */
    int32_t libraries;               /* workspace of a GPU's libraries; -1: none */
    int32_t *input_objects;
    uint32_t input_count;      /* by graph input */
    uint32_t microbatch_count; /* per optimizer step */
    uint32_t partial_count;
    uint64_t pinned_bytes;                /* [0, pinned_bytes) of the device arena */
    uint64_t file_bytes;                  /* working store; 0: no disk tier */
    uint64_t arena_bytes[COH_TIER_COUNT]; /* device, host: the peak over all programs */
    coh_access_matrix access;
} coh_layout;

/* Parameters that are not trained: INIT and IMPORT write them, all else reads. */
static inline int coh_chunk_is_read_only(const coh_layout *layout, uint32_t chunk)
{
    const coh_object *object = &layout->objects[layout->chunks[chunk].object];
    return object->stream == COH_STREAM_WORK && layout->groups[object->owner].state < 0;
}

/* ---- cells ---- */

/* Of coh_cells (memory/cells.h): what an instruction names as its predicate. */
enum { COH_CELL_NONE = -1, COH_CELL_PENDING = 0 };

/* ---- lines ---- */

typedef enum coh_opcode {
    COH_OP_FEED, /* host ring -> cells and inputs of this step; the body's first line */
    COH_OP_FORWARD,
    COH_OP_RECOMPUTE, /* forward again, same inputs, versions and seed */
    COH_OP_BACKWARD,
    COH_OP_ADD,  /* scratch gradient -> gradient, for kinds that cannot add */
    COH_OP_NORM, /* final gradient chunk -> one partial per grain; where updates are deferred */
    COH_OP_CLIP, /* partials, losses -> latched cells; loss and norm to the host ring */
    /* Work, grad, states of one chunk -> the next version. Where updates are not deferred it
     * follows the last contribution and makes the chunk's norm partials in the same pass: operand
     * PARTIALS; there is then no NORM. */
    COH_OP_UPDATE,
    COH_OP_LOAD,  /* host -> device */
    COH_OP_STORE, /* device -> host */
    COH_OP_READ,  /* disk -> device or host */
    COH_OP_WRITE, /* device or host -> disk */
    /* The next four visit one chunk; of a bf16 group with states a chunk of work AND its states, as
     * two operands (WORK, OPTIMIZER_STATE): half of the master lies in each. */
    COH_OP_INIT,   /* a chunk of work (its init), grad or state (zeros) */
    COH_OP_IMPORT, /* a chunk of work or state from a checkpoint; others zeros */
    COH_OP_HASH,   /* a chunk of work or state -> its grain hashes */
    COH_OP_SAVE,   /* a chunk of work or state -> the checkpoint, with its grain hashes */
    COH_OP_SETTLE, /* ends a drain: clears `pending` */
    COH_OP_COUNT
} coh_opcode;

enum { COH_ACCESS_READ = 1, COH_ACCESS_WRITE = 2, COH_ACCESS_BOTH = 3 };

typedef enum coh_role {
    COH_ROLE_INPUT,
    COH_ROLE_OUTPUT,
    COH_ROLE_PARAMETER,
    COH_ROLE_STATE,
    COH_ROLE_OUTPUT_GRAD,
    COH_ROLE_INPUT_GRAD,
    COH_ROLE_PARAMETER_GRAD,
    COH_ROLE_SAVED,
    COH_ROLE_CACHE, /* written by FORWARD, read and written by BACKWARD; both have it, or neither */
    COH_ROLE_WORKSPACE,
    COH_ROLE_CELLS,
    COH_ROLE_PARTIALS,
    COH_ROLE_LOSS,
    COH_ROLE_WORK,
    COH_ROLE_GRAD,
    COH_ROLE_OPTIMIZER_STATE, /* of UPDATE, NORM, INIT, ... */
    COH_ROLE_FROM,
    COH_ROLE_TO /* of movers and ADD */
} coh_role;

/* The lifetime of one chunk's bytes in one arena: the unit that is entered and left. Not a slot: a
 * window's next tenant receives its first chunk while the old last chunk is still being written.
 * `use_count` lines of the program use it; whichever retires last leaves it (counts it off, fills
 * it with NaN in test mode) BEFORE its lane's `retired` rises. No single line is "the last" at plan
 * time: a write-back and a reader may finish in any order.
 * `at_begin`: it is there when the program begins (a coh_resident, or a pinned object). `at_end`:
 * it stays when the program ends and is never left. Otherwise its first user enters it. */
typedef struct coh_extent {
    uint64_t offset, bytes;
    uint32_t chunk;
    uint32_t use_count;
    uint8_t tier;
    uint8_t at_begin, at_end;
} coh_extent;

/* A copy that the program finds, does not use and does not keep (of what nothing writes: its room
 * was worth more). It is left as the program begins. */
static inline int coh_extent_is_unused(const coh_extent *extent)
{
    return extent->at_begin && !extent->at_end && extent->use_count == 0;
}

/* Who takes part in its life: its lines, or the program's begin where there are none. */
static inline uint32_t coh_extent_users(const coh_extent *extent)
{
    return extent->use_count + (uint32_t)coh_extent_is_unused(extent);
}

/* One chunk that an operand touches. `version` counts the writes to the chunk since the program
 * began, before this line: a reader finds that version; a compute line that writes leaves
 * version + 1. The far end of a mover does not count as a write: a READ, WRITE, LOAD or STORE
 * copies version `version` (both its operands carry the same number). */
#define COH_EXTENT_FILE UINT32_MAX
typedef struct coh_touch {
    uint32_t chunk;
    uint32_t extent; /* COH_EXTENT_FILE: the chunk's place in the working store */
    int32_t version;
} coh_touch;

/* Contiguous bytes that a line touches: whole chunks, one after the other in their tier from
 * `offset` on. What must be contiguous (the window) is the scheduler's affair and has been
 * honoured. */
typedef struct coh_operand {
    int32_t object;
    uint8_t tier, access, role;
    uint32_t touch_begin, touch_count;
    uint64_t object_offset, bytes;
    uint64_t offset; /* in the arena, or in the file */
} coh_operand;

/* Go when lane `lane` has retired this program's line `ordinal` (from 1), or with `carry` the same
 * program's run before. */
typedef struct coh_wait {
    uint32_t ordinal;
    uint8_t lane, carry;
} coh_wait;

/* One port of a call: the bytes at object_offset of operand `operand` (counted from the line's
 * first) seen as a tensor. */
typedef struct coh_binding {
    uint8_t role, port;
    uint16_t operand;
    uint64_t object_offset;
    coh_shape shape;   /* of the piece */
    int64_t origin[2]; /* of dims 0 and 1 */
} coh_binding;

/* The cold half of a compute line that runs a kind (FORWARD, RECOMPUTE, BACKWARD), or an ADD
 * (operator -1, bindings FROM and TO; input_grad_adds 1: TO += FROM, 0: TO = FROM). */
typedef struct coh_line_call {
    int32_t operator_index;
    int32_t microbatch;
    int64_t row_begin, row_end, row_count; /* see coh_call */
    int32_t column_slices;                 /* 1: ranges of a kind with column_slices */
    uint32_t input_grad_adds, parameter_grad_adds;
    uint32_t binding_begin, binding_count;
} coh_line_call;

typedef struct coh_instruction {
    uint8_t opcode, lane;
    uint8_t before_after;  /* 0: before the compute line at `position`, 1: it is it, 2: after */
    int8_t predicate_cell; /* COH_CELL_NONE: always. A false line still waits, enters, leaves and
                               retires; the cells are one of its read operands */
    uint32_t ordinal;      /* in its lane, from 1 */
    uint32_t position;
    uint32_t operand_begin, operand_count, wait_begin, wait_count;
    int32_t call;   /* or -1 */
    uint64_t bytes; /* movers: over the link. Compute: memory traffic, for the simulator */
    double flops;
} coh_instruction;

typedef enum coh_program_kind {
    COH_PROGRAM_INIT,
    COH_PROGRAM_BODY,     /* one optimizer step, or one decoded position; may follow itself */
    COH_PROGRAM_DRAIN,    /* the deferred updates of the last body, then SETTLE */
    COH_PROGRAM_EVALUATE, /* forward and loss of one micro-batch */
    COH_PROGRAM_SAVE,
    COH_PROGRAM_HASH,
    COH_PROGRAM_IMPORT,
    COH_PROGRAM_KIND_COUNT
} coh_program_kind;

typedef struct coh_program {
    coh_program_kind kind;
    coh_extent *extents;
    uint32_t extent_count;
    coh_instruction *lines;
    uint32_t line_count; /* in issue order */
    coh_operand *operands;
    uint32_t operand_count;
    coh_touch *touches;
    uint32_t touch_count;
    coh_wait *waits;
    uint32_t wait_count;
    coh_line_call *calls;
    uint32_t call_count;
    coh_binding *bindings;
    uint32_t binding_count;
    uint32_t lane_length[COH_LANE_COUNT];
    /* lines issued and not retired; part of the program: waits depend on it */
    uint32_t lane_depth[COH_LANE_COUNT];
    /* highest occupied end offset, pinned and padding included */
    uint64_t peak_bytes[COH_TIER_COUNT];
} coh_program;

/* Releases the tables; accepts a zeroed struct. */
void coh_program_fini(coh_program *program);
void coh_layout_fini(coh_layout *layout);

/* XXH3 of everything in the tables but waits' derived order: two programs with one hash do the
 * same. */
uint64_t coh_program_hash(const coh_layout *layout, const coh_program *program);

/* "FORWARD", "body", "work", ... Never NULL. */
const char *coh_opcode_name(coh_opcode opcode);
const char *coh_program_kind_name(coh_program_kind kind);
const char *coh_stream_name(coh_stream stream);

#endif
