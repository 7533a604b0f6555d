/* program.h - a training step, written down before it runs.
 *
 *   position      0           1           2           3           4
 *   compute |  FWD 0    |  FWD 1    |  FWD 2    |  BWD 2    |  BWD 1    |
 *   read    |           | w1 at 1-  | w2 at 2-  |           | w1 at 4-  |   before its first user
 *   write   |           |           |           | g2 at 3+  | g1 at 4+  |   after its last producer
 *
 * A position is one instruction of the compute lane; n- is just before it, n+ just after.
 *
 * The one idea: sort the instructions by key (position, before < at < after). Every wait then
 * points to a smaller key, so the list is a topological issue order and no deadlock can be written.
 * The key sets the order on a lane, not the time: a READ keyed late runs as early as its waits and
 * its lane allow. Prefetch is not an instruction; it results from memory that became free early,
 * and move_order.h keys a READ earlier than its first user.
 *
 * Plain data: no pointers into other tables, no device, no clock. Written by planner/schedule,
 * checked by planner/verify (which shares no code with it), walked by planner/simulate and
 * engine/step. All indices are into the tables of the same program or of its layout. */
#ifndef COH_PLANNER_PROGRAM_H
#define COH_PLANNER_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/fold_shape.h"
#include "cohobate/model.h"
#include "cohobate/optimizer.h"
#include "cohobate/wire.h"
#include "memory/mesh.h"
#include "memory/tier.h"

/* ---- ranks ---- */

/* Returns the lane whose instructions use the links of a level: within a node, or between nodes. */
static inline coh_lane coh_link_lane(coh_link_level level)
{
    return level < COH_LEVEL_WORLD ? COH_LANE_COMM0 : COH_LANE_COMM1;
}

/* ---- the layout: all objects, shared by all programs of one plan ---- */

typedef enum coh_stream {
    COH_STREAM_WORK, /* parameters as compute reads them; f32: also the master */
    COH_STREAM_GRAD,
    COH_STREAM_STATE, /* data that only the optimizer reads, moved together: coh_group_stream */
    COH_STREAM_ACTIVATION,
    COH_STREAM_ACTIVATION_GRAD,
    COH_STREAM_SAVED,   /* from an operator's forward to its backward */
    COH_STREAM_CACHE,   /* likewise, if there is room: backward could compute it again */
    COH_STREAM_SCRATCH, /* workspaces; gradients on their way to an ADD */
    COH_STREAM_KEPT,    /* states of a kind: keys and values */
    COH_STREAM_CELLS,   /* pinned, as are the next four */
    COH_STREAM_PARTIALS,
    COH_STREAM_INPUT,
    COH_STREAM_LOSS,
    COH_STREAM_OUTPUT,
    /* the gradient of some replicas, on its way to an ADD; chunk for chunk as GRAD. The order is
     * part of program hashes: append */
    COH_STREAM_CONTRIBUTION,
    COH_STREAM_WIRE,     /* what a REDUCE receives, until it is folded */
    COH_STREAM_GATHERED, /* the states of a divided chunk, of all parts: SAVE and HASH read them */
    /* A rank's part of a group's WORK, and of the sum of its GRAD: its part of each chunk. The
     * whole of WORK or GRAD does not survive then. */
    COH_STREAM_WORK_PART,
    COH_STREAM_GRAD_PART,
    /* A copy of WORK that is divided over fewer ranks than its part: a forward makes it on the way
     * to WORK, and recomputation and backward gather WORK from it. */
    COH_STREAM_WORK_COPY,
    COH_STREAM_COUNT
} coh_stream;

/* A logical object: one stream of one parameter group (the parameters that one operator introduced,
 * laid out one after another, each from a page on), one activation, one saved object, a workspace.
 * Its chunks are chunks[chunk_begin .. + chunk_count).
 *
 * `survives`: it has a value between programs. Any other object is dead at a program's end; reading
 * it before writing it is an error even if bytes are there. */
typedef struct coh_object {
    uint64_t bytes; /* sum of its chunks: a multiple of a page */
    uint32_t chunk_begin, chunk_count;
    int32_t owner;      /* streams of parameters: group. Others: operator or tensor */
    int32_t microbatch; /* 0; for objects per micro-batch in a sweep by layers: that micro-batch */
    uint8_t stream;     /* coh_stream */
    uint8_t survives;
    uint8_t pinned; /* lies at device offset `pinned_offset` for the whole run; one chunk */
    uint64_t pinned_offset;
} coh_object;

/* The unit of transfer. object_offset and bytes are multiples of a page. Chunk k of a group's GRAD
 * and STATE objects belongs to chunk k of its WORK. With AdamW and n bytes of work:
 *
 *     f32    work |  n: the master  |      state | m  n | v  n |
 *     bf16   work |  n: its high 16 |      state | low  n | m      2n | v      2n |
 *
 * High and low 16 bits together are the f32 master, exactly. Optimizers with rounds_work have no
 * `low`.
 *
 * Each chunk has one owner, the rank that hashes and saves it. The owners of an object's chunks
 * ascend: each rank owns one range of the object.
 *
 * A divided chunk is updated by all ranks together, each one part of it (comm_parts.h). Its STATE
 * holds that part alone, and room for the largest one. */
typedef struct coh_chunk {
    int32_t object;
    int32_t owner_rank; /* 0 in a plan of one rank */
    int32_t is_divided; /* the same for all chunks that belong to one chunk of WORK */
    uint64_t object_offset, bytes;
    uint64_t file_offset; /* in the working store; of coh_chunk_keeps_old: even generations */
    uint64_t odd_offset;  /* there; odd generations of coh_chunk_keeps_old */
} coh_chunk;

/* The place of a parameter in its group's objects: elements [0, elements) from byte `offset` of
 * WORK on, and from `offset` times coh_group_grad_factor of GRAD on. Grain g of it, 16 Ki elements
 * in either dtype, has norm partial `partial_begin + g`. */
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

/* A stream of a group's parameters, as a row: `bytes_per_block` bytes for every
 * `elements_per_block` elements. The rows of one object lie in its chunks one after the other, each
 * from a multiple of COH_PART_ALIGN bytes on. */
#define COH_PART_ALIGN ((uint64_t)64)
typedef struct coh_group_stream {
    char name[COH_OPTIMIZER_NAME_BYTES]; /* "work", "grad", "low", and the optimizer's */
    uint32_t bytes_per_block, elements_per_block;
    uint8_t object;   /* coh_stream of the object that holds it: WORK, GRAD or STATE */
    uint8_t survives; /* see coh_object */
    uint8_t readers;  /* COH_READER_* */
    int8_t part;      /* in hashes and checkpoints: 0 work, 1 + i: state stream i. -1: none */
} coh_group_stream;

enum { COH_READER_OPERATORS = 1, COH_READER_OPTIMIZER = 2 };
enum { COH_GROUP_STREAMS = 3 + COH_OPTIMIZER_STREAMS };

/* Over how many of the mesh's innermost axes the ranks divide a group's streams; 0: each rank has
 * all of the stream. None is more than the next. */
typedef struct coh_rank_axes {
    uint8_t work, grad, state;
    uint8_t copy; /* of the work; 0: none, else less than `work` */
} coh_rank_axes;

typedef struct coh_group_layout {
    /* Objects. grad is -1 if the group is frozen or nothing is trained; state is -1 then, and also
     * if no row is stored in it. */
    int32_t work, grad, state;
    int32_t work_part, grad_part; /* objects; -1: the rank keeps all of work, of grad */
    int32_t work_copy;            /* object; -1: none */
    coh_rank_axes axes;
    uint32_t parameter_begin, parameter_count; /* in parameters[] */
    coh_dtype dtype;                           /* of WORK: F32 or BF16 */
    int32_t f32_gradients;                     /* 1: GRAD is f32, else it has the dtype of WORK */
    int32_t optimizer;                         /* in the layout's optimizers; -1: not trained */
    uint8_t pattern;                           /* coh_pattern_id */
    /* Objects, by factor of the layout's fold shape: the sum of a member that is not the first of
     * its node. -1: none, as with `grad`. */
    int32_t contributions[COH_FOLD_FACTORS];
    coh_group_stream streams[COH_GROUP_STREAMS];
    int32_t stream_count;
} coh_group_layout;

/* Returns 1 if the group has gradients and updates. */
static inline int coh_group_is_trained(const coh_group_layout *group)
{
    return group->optimizer >= 0;
}

/* Returns the object that keeps a group's work between programs, and the one that has the sum of
 * its gradient over all ranks. */
static inline int32_t coh_group_kept_work(const coh_group_layout *group)
{
    return group->work_part >= 0 ? group->work_part : group->work;
}
static inline int32_t coh_group_summed_grad(const coh_group_layout *group)
{
    return group->grad_part >= 0 ? group->grad_part : group->grad;
}

/* Returns 1 if the f32 master is stored in two streams: its upper half in WORK, `low` in STATE. The
 * row of `low` is behind those of work and grad. */
static inline int coh_group_splits_master(const coh_group_layout *group)
{
    return group->stream_count > 2 && group->streams[2].part < 0;
}

/* Returns the bytes of a stream of a chunk whose WORK has `work_bytes`. */
static inline uint64_t coh_part_bytes(const coh_group_layout *group, const coh_group_stream *stream,
                                      uint64_t work_bytes)
{
    if (group->dtype == COH_DTYPE_NF4)
        return work_bytes; /* it has no other stream than work */
    const uint64_t elements = work_bytes / coh_dtype_bytes(group->dtype);
    const uint64_t blocks =
        (elements + stream->elements_per_block - 1) / stream->elements_per_block;
    return (blocks * stream->bytes_per_block + COH_PART_ALIGN - 1) / COH_PART_ALIGN *
           COH_PART_ALIGN;
}

/* Returns the offset of row `index` in its chunk; with `index` = stream_count the bytes that all
 * rows of `object` take. */
static inline uint64_t coh_part_offset(const coh_group_layout *group, uint8_t object, int32_t index,
                                       uint64_t work_bytes)
{
    uint64_t offset = 0;
    for (int32_t i = 0; i < index; i++)
        if (group->streams[i].object == object)
            offset += coh_part_bytes(group, &group->streams[i], work_bytes);
    return offset;
}

/* Returns the bytes of the chunk of `object` (WORK, GRAD or STATE) that belongs to a chunk of
 * `work_bytes`: a multiple of a page. */
static inline uint64_t coh_group_chunk_bytes(const coh_group_layout *group, uint8_t object,
                                             uint64_t work_bytes)
{
    return coh_bytes_round_page(coh_part_offset(group, object, group->stream_count, work_bytes));
}

/* The dtype of a group's GRAD, and its bytes per byte of WORK: chunk for chunk, element for
 * element. */
static inline coh_dtype coh_group_grad_dtype(const coh_group_layout *group)
{
    return group->f32_gradients ? COH_DTYPE_F32 : group->dtype;
}
static inline uint64_t coh_group_grad_factor(const coh_group_layout *group)
{
    return group->f32_gradients && group->dtype == COH_DTYPE_BF16 ? 2 : 1;
}

/* One entry of the boundary map: what is resident, and where, at the begin AND at the end of every
 * program that runs on these arenas: body, drain, evaluate, save alike.
 *
 * Copies of an entry farther out count as stale at the begin, unless only INIT, IMPORT and EDIT
 * write it (coh_chunk_is_read_only): these programs leave the file and the entry of the host tier,
 * if there is one, up to date, and no other program need write them. A program that displaces an
 * entry restores it before its end (the wrap-around prefetch), so programs can follow one another
 * in any order, and the loop closes by construction. Pinned objects are not listed. Entries are of
 * surviving objects. */
typedef struct coh_resident {
    uint32_t chunk;
    uint8_t tier; /* device or host */
    uint64_t offset;
} coh_resident;

/* Bytes of a micro-batch's slot in the LOSS object, of which the loss takes the first four. */
#define COH_LOSS_STRIDE_BYTES 64u

/* Optimizers of one plan. */
enum { COH_PLAN_OPTIMIZERS = 8 };

typedef struct coh_layout {
    coh_object *objects;
    uint32_t object_count;
    coh_chunk *chunks;
    uint32_t chunk_count;
    coh_parameter_layout *parameters;
    uint32_t parameter_count; /* in tensor order */
    coh_group_layout *groups;
    uint32_t group_count;
    const coh_optimizer *optimizers[COH_PLAN_OPTIMIZERS]; /* of the trained groups */
    int32_t optimizer_count;
    coh_resident *residents;
    uint32_t resident_count; /* sorted by tier, then chunk */
    /* 1: under any kind of boundary map of the device, and else the same decisions, all would be
     * the same (residency.h). 0: perhaps not */
    int32_t has_only_map;
    int32_t cells, partials; /* objects; -1: none */
    /* Object of a slot of COH_LOSS_STRIDE_BYTES for each micro-batch of all ranks; -1: none. A rank
     * writes the first ones; GATHER then puts each rank's slots at its place. */
    int32_t losses;
    int32_t libraries; /* workspace of a GPU's libraries; -1: none */
    int32_t wire;      /* object: what other ranks send, and what is packed; -1: one rank */
    coh_wires wires;   /* the formats of weights and gradients */
    int32_t gathered;  /* object: receives the states of a divided chunk; -1: there are none */
    int32_t *input_objects;
    uint32_t input_count;      /* by graph input */
    uint32_t microbatch_count; /* per optimizer step, of all replicas of a rank */
    coh_fold_shape fold;       /* of a rank's replicas: checked (base/fold_shape.h) */
    uint32_t partial_count;
    /* The ranks that train together, with an axis for each factor in which their sums are folded,
     * the innermost first. The layout is that of `rank`: 0, whose programs all ranks run. */
    coh_mesh mesh;
    int32_t rank;
    /* 1: a body can be taken back. No chunk that its updates write lies nearer than the working
     * store between programs, and there each has two homes: a body reads one and writes the
     * other. */
    int32_t keeps_old;
    uint64_t pinned_bytes;                /* [0, pinned_bytes) of the device arena */
    uint64_t file_bytes;                  /* working store; 0: no disk tier */
    uint64_t arena_bytes[COH_TIER_COUNT]; /* device, host: the peak over all programs */
    coh_access_matrix access;
} coh_layout;

/* Returns the number of ranks that train together. */
static inline uint64_t coh_layout_rank_count(const coh_layout *layout)
{
    return (uint64_t)coh_mesh_rank_count(&layout->mesh);
}

/* Returns the micro-batches of a step on all ranks. */
static inline uint64_t coh_layout_all_microbatches(const coh_layout *layout)
{
    return layout->microbatch_count * coh_layout_rank_count(layout);
}

/* Returns the replica that a micro-batch of the step belongs to. */
static inline int32_t coh_layout_replica(const coh_layout *layout, int32_t microbatch)
{
    const int32_t replicas = coh_fold_replicas(&layout->fold);
    return replicas > 1 ? microbatch / ((int32_t)layout->microbatch_count / replicas) : 0;
}

/* Returns 1 for gradients of parameters: a rank's own, their sum, or its part of that. */
static inline int coh_stream_is_gradient(uint8_t stream)
{
    return stream == COH_STREAM_GRAD || stream == COH_STREAM_CONTRIBUTION ||
           stream == COH_STREAM_GRAD_PART;
}

/* Returns 1 for a stream of a parameter group: `owner` of its objects is the group. */
static inline int coh_stream_is_of_group(uint8_t stream)
{
    return stream <= COH_STREAM_STATE || stream == COH_STREAM_CONTRIBUTION ||
           stream == COH_STREAM_WORK_PART || stream == COH_STREAM_GRAD_PART ||
           stream == COH_STREAM_WORK_COPY;
}

/* Returns 1 for parameters that are not trained: only INIT, IMPORT and EDIT write them, all other
 * programs read. */
static inline int coh_chunk_is_read_only(const coh_layout *layout, uint32_t chunk)
{
    const coh_object *object = &layout->objects[layout->chunks[chunk].object];
    return object->stream == COH_STREAM_WORK &&
           !coh_group_is_trained(&layout->groups[object->owner]);
}

/* Returns 1 for a chunk with two homes in the working store: work and states of trained groups,
 * in a layout whose bodies can be taken back. A chunk's generations count its versions since the
 * run began; they take the homes in turn. */
static inline int coh_chunk_keeps_old(const coh_layout *layout, uint32_t chunk)
{
    const coh_object *object = &layout->objects[layout->chunks[chunk].object];
    return layout->keeps_old &&
           (object->stream == COH_STREAM_WORK || object->stream == COH_STREAM_STATE) &&
           coh_group_is_trained(&layout->groups[object->owner]);
}

/* Returns the chunk of `object`, one of the same group, that belongs to `chunk`. */
static inline uint32_t coh_chunk_partner(const coh_layout *layout, uint32_t chunk, int32_t object)
{
    const coh_object *own = &layout->objects[layout->chunks[chunk].object];
    return layout->objects[object].chunk_begin + (chunk - own->chunk_begin);
}

/* ---- cells ---- */

/* Indices into coh_cells (memory/cells.h): the predicates that an instruction can name. */
enum { COH_CELL_NONE = -1, COH_CELL_PENDING = 0 };

/* ---- instructions ---- */

/* The instruction set: opcodes.def has a row for each opcode and says what it does. */
#define COH_OPCODE(name, ...) COH_OP_##name,
typedef enum coh_opcode {
#include "planner/opcodes.def"
    COH_OP_COUNT
} coh_opcode;
#undef COH_OPCODE

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
    COH_ROLE_TO, /* of movers and ADD */
    /* Of REDUCE and GATHER: what the rank keeps of their window. The order is part of program
     * hashes: append. */
    COH_ROLE_PART
} coh_role;

/* The lifetime of one chunk's bytes in one arena: the unit that is entered and left. It is
 * smaller than a slot: a window's next tenant receives its first chunk while the old last chunk
 * is still being written. `use_count` instructions of the program use it; the last one to retire
 * leaves it (counts it down, fills it with NaN in test mode) BEFORE its lane's `retired` rises.
 * The last instruction is not known at plan time: a write-back and a reader may finish in any
 * order. `at_begin`: it exists when the program begins (a coh_resident, or a pinned object).
 * `at_end`: it stays when the program ends and is never left. Otherwise its first user enters
 * it. */
typedef struct coh_extent {
    uint64_t offset, bytes;
    uint32_t chunk;
    uint32_t use_count;
    uint8_t tier;
    uint8_t at_begin, at_end;
} coh_extent;

/* Returns 1 for a copy that the program finds, but neither uses nor keeps (read-only data whose
 * room was worth more). It is left as the program begins. */
static inline int coh_extent_is_unused(const coh_extent *extent)
{
    return extent->at_begin && !extent->at_end && extent->use_count == 0;
}

/* The number of users of an extent: its instructions, or the program's begin if it has none. */
static inline uint32_t coh_extent_users(const coh_extent *extent)
{
    return extent->use_count + (uint32_t)coh_extent_is_unused(extent);
}

/* One chunk that an operand touches. `version` counts the writes to the chunk from the program's
 * begin to this instruction: a reader finds that version; a compute instruction that writes
 * leaves version + 1. The destination of a mover does not count as a write: READ, WRITE, LOAD
 * and STORE copy version `version` (both operands carry the same number). */
#define COH_EXTENT_FILE UINT32_MAX
typedef struct coh_touch {
    uint32_t chunk;
    uint32_t extent; /* COH_EXTENT_FILE: the chunk's place in the working store */
    int32_t version;
} coh_touch;

/* Contiguous bytes that an instruction touches: whole chunks, one after another in their tier
 * from `offset` on. The scheduler has already made windows contiguous. */
typedef struct coh_operand {
    int32_t object;
    uint8_t tier, access, role;
    /* 1 + index, in its instruction, of an earlier operand at the same place, which only reads:
     * this one is written in place of it, and its extents end. 0: none */
    uint8_t takes;
    uint32_t touch_begin, touch_count;
    uint64_t object_offset, bytes;
    uint64_t offset; /* in the arena, or in the file */
} coh_operand;

/* Wait until lane `lane` has retired instruction `ordinal` (from 1) of this run, or with `carry`
 * of the previous run of the same program. */
typedef struct coh_wait {
    uint32_t ordinal;
    uint8_t lane, carry;
} coh_wait;

/* One port of a call: the bytes at object_offset of operand `operand` (counted from the
 * instruction's first), viewed as a tensor. */
typedef struct coh_binding {
    uint8_t role, port;
    uint16_t operand;
    uint64_t object_offset;
    coh_shape shape;   /* of the piece */
    int64_t origin[2]; /* of dims 0 and 1 */
} coh_binding;

/* The rarely read part of a compute instruction that runs a kind (FORWARD, RECOMPUTE, BACKWARD),
 * or of an ADD (operator -1, bindings FROM and TO; input_grad_adds 1: TO += FROM, 0: TO = FROM). */
typedef struct coh_instruction_call {
    int32_t operator_index;
    int32_t microbatch;
    int64_t row_begin, row_end, row_count; /* see coh_call */
    int32_t column_slices;                 /* 1: ranges of a kind with column_slices */
    uint32_t input_grad_adds, parameter_grad_adds;
    uint32_t overwritten_grads; /* bit i: it may write to the gradient of output i */
    uint32_t binding_begin, binding_count;
} coh_instruction_call;

/* The rarely read part of an instruction that the ranks of a group execute together (REDUCE,
 * GATHER). Each member has one part of a window. */
typedef struct coh_comm_call {
    coh_axis_set axes; /* of the layout's mesh: the group is the ranks that differ in these only */
    coh_link_level level; /* of the group: the outermost link that it crosses */
    coh_dtype dtype;      /* of the elements in memory */
    coh_wire wire;        /* in which they travel */
    int32_t root;         /* -1: none */
    /* In memory, of each member; the last ones may have less (planner/comm_parts.h). */
    uint64_t part_bytes;
} coh_comm_call;

typedef struct coh_instruction {
    uint8_t opcode, lane;
    /* relative to the compute instruction at `position`: 0 before, 1 that instruction, 2 after */
    uint8_t before_after;
    /* COH_CELL_NONE: always runs. With a false predicate an instruction still waits, enters,
     * leaves and retires; the cells are one of its read operands */
    int8_t predicate_cell;
    uint32_t ordinal; /* in its lane, from 1 */
    uint32_t position;
    uint32_t operand_begin, operand_count, wait_begin, wait_count;
    int32_t call;   /* or -1 */
    uint64_t bytes; /* movers: over the link. Compute: memory traffic, for the simulator */
    double flops;
    uint32_t comm; /* 1 + index in `comms`, which has the order of the instructions; 0: none */
} coh_instruction;

typedef enum coh_program_kind {
    COH_PROGRAM_INIT,
    COH_PROGRAM_BODY,     /* one optimizer step, or one decoded position; may follow itself */
    COH_PROGRAM_DRAIN,    /* the deferred updates of the last body, then SETTLE */
    COH_PROGRAM_EVALUATE, /* forward and loss of one micro-batch */
    COH_PROGRAM_SAVE,
    COH_PROGRAM_HASH,
    COH_PROGRAM_IMPORT,
    COH_PROGRAM_EDIT, /* overwrites values of parameters between two steps */
    COH_PROGRAM_KIND_COUNT
} coh_program_kind;

typedef struct coh_program {
    coh_program_kind kind;
    coh_extent *extents;
    uint32_t extent_count;
    coh_instruction *instructions;
    uint32_t instruction_count; /* in issue order */
    coh_operand *operands;
    uint32_t operand_count;
    coh_touch *touches;
    uint32_t touch_count;
    coh_wait *waits;
    uint32_t wait_count;
    coh_instruction_call *calls;
    uint32_t call_count;
    coh_binding *bindings;
    uint32_t binding_count;
    coh_comm_call *comms;
    uint32_t comm_count;
    uint32_t lane_length[COH_LANE_COUNT];
    /* limit of instructions issued and not retired; part of the program: waits depend on it */
    uint32_t lane_depth[COH_LANE_COUNT];
    /* highest occupied end offset, pinned and padding included */
    uint64_t peak_bytes[COH_TIER_COUNT];
} coh_program;

/* Releases the tables; accepts a zeroed struct. */
void coh_program_fini(coh_program *program);
void coh_layout_fini(coh_layout *layout);

/* Finds for each extent whose bytes it continues: the root of those in whose place it was written;
 * else itself. out_root: by extent. */
void coh_program_extent_roots(const coh_program *program, uint32_t *out_root);

/* XXH3 of all tables except the derived order of waits: two programs with the same hash do the
 * same. */
uint64_t coh_program_hash(const coh_layout *layout, const coh_program *program);

/* "FORWARD", "body", "work", ... Never NULL. */
const char *coh_opcode_name(coh_opcode opcode);
const char *coh_program_kind_name(coh_program_kind kind);
const char *coh_stream_name(coh_stream stream);

#endif
