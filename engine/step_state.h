/* step_state.h - the inside of a coh_step, shared by the files of the executor:
 *
 *   step.c       tickets, the step thread that issues device lanes, waiting, failing
 *   step_create.c  creates and destroys arenas, store, threads
 *   lane_threads.c  the threads of the disk lanes, of the host lane and of those between ranks
 *   lane_comm.c  REDUCE, GATHER; comm_wire.c packs what they send
 *   instruction.c  one instruction on its lane, or a recorded run: enter, execute, leave
 *   instruction_optimizer.c  FEED, NORM, CLIP, UPDATE, SETTLE
 *   instruction_chunk.c  INIT and visits
 *   bind.c       everything that can be looked up before the first step: views, lanes, uses */
#ifndef COH_ENGINE_STEP_STATE_H
#define COH_ENGINE_STEP_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/world.h"
#include "engine/instruction_times.h"
#include "engine/instruction_work.h"
#include "engine/optimizer_numbers.h"
#include "engine/phantom.h"
#include "engine/rank_watch.h"
#include "engine/step.h"
#include "engine/step_records.h"
#include "planner/opcodes.h"

/* ---- a program, bound to the arenas (bind.c) ---- */

/* Each extent has two counts, chosen by the parity of the ticket, because two tickets of one
 * program overlap.
 *
 *   run n      ... | READ w | BWD | NORM |            an extent that exists at the end
 *   run n + 1                 | WRITE w |  leave?     continues as one that exists at the begin
 *
 * When the second extent is left in its run, users of the first may still be working. So the second
 * counts the first as one more user, which is subtracted when the first one's own count reaches
 * zero. */
typedef struct coh_extent_state {
    _Atomic uint32_t remaining; /* uses left; lanes decrement it (acquire-release) */
    _Atomic uint32_t entered;   /* the first user sets it, the last one clears it */
} coh_extent_state;

/* The operands of an instruction by their places in the row of its opcode (planner/opcodes.h): 1
 * + index in the instruction; 0: the instruction has none. */
typedef struct coh_operand_slots {
    uint16_t at[COH_OPERAND_RULES];
} coh_operand_slots;

/* A run of the compute lane's instructions that may be issued as one command: `first` to `first` +
 * `count` - 1, by ordinal.
 *
 *   compute   FEED | F0 F1 F2 | F3 F4 B4 N4 | CLIP | U4 ...
 *                             ^ F3 waits for a READ, or a WRITE waits for F2
 *
 * The one idea: only the first instruction of a run waits for other instructions, and other
 * instructions wait only for its last. So a device may take the run as one command, issued in place
 * of its first instruction and retired when its last instruction ends. Every wait of the program
 * stays as exact as before. The instructions do the same in every step, since they name cells and
 * places in arenas, and nothing that belongs to one step. */
typedef struct coh_instruction_run {
    uint32_t first, count;
    const coh_recording *recording; /* NULL: launch the instructions one by one */
} coh_instruction_run;

/* Elements in memory, and their place on a wire (comm_wire.h). */
typedef struct coh_wire_piece {
    char *elements, *on_wire;
    int64_t count;
} coh_wire_piece;

/* An instruction that ranks execute together (lane_comm.c). */
typedef struct coh_comm_line {
    uint32_t line; /* of the transport */
    /* Of a REDUCE: the slices of this rank's part, by member of the group; the part, and its
     * length: 0 if the transport has added them (a collective). */
    const void **slices;
    int32_t members;
    void *sum;
    int64_t count;
    /* Of a GATHER of a slot for each rank: all of them. */
    char *slots;
    size_t slot_bytes;
    /* Of a GATHER of what lies elsewhere on this rank: where it lies, and where it is sent from. */
    const void *from;
    char *own;
    size_t own_bytes; /* 0: it lies in its place */
    /* On another wire than the stored one: what is packed before the line starts, and unpacked
     * when it is done; the rank's own part, too. */
    coh_wire wire;
    coh_dtype dtype;
    coh_wire_piece *packed, *unpacked;
    int32_t packed_count, unpacked_count;
} coh_comm_line;

/* A chunk of work of which each rank updates a part (planner/comm_parts.h). */
typedef struct coh_divided_chunk {
    uint32_t chunk;
    uint64_t first_partial; /* of the norm */
} coh_divided_chunk;

typedef struct coh_bound {
    const coh_program *program;
    const coh_graph *graph;                      /* has the attributes and input shapes of calls */
    uint32_t *lane_instructions[COH_LANE_COUNT]; /* instruction of ordinal n at [n - 1] */
    coh_bound_port *ports;                       /* by binding */
    coh_operand_slots *slots;                    /* by instruction */
    uint32_t *uses, *use_begin; /* distinct extents of instruction i: [use_begin[i], [i + 1]) */
    coh_extent_state *extents[2];
    uint32_t *goes_on_as; /* by extent: 1 + its continuation in the next run, left there; 0: none */
    uint8_t *comes_from;  /* by extent: 1: it is the continuation of another */
    uint32_t *takes;      /* by extent: 1 + the one in whose place it is entered; 0: none */
    uint8_t *is_taken;    /* by extent: 1: another one is entered in its place */
    /* By chunk: versions that one run makes. A chunk's generation in the store is the number of
     * versions made by all earlier runs, plus this per repetition, plus the instruction's
     * version. */
    uint32_t *versions_per_run;
    coh_comm_line *comms;      /* by index in the program's table; NULL: no world */
    uint32_t clip_ordinal;     /* in the compute lane; 0: none */
    coh_instruction_run *runs; /* of the compute lane */
    uint32_t run_count;
    coh_instruction_run **run_of; /* by ordinal in the compute lane; NULL: in no run */
    /* Indices of residents that this program makes without reading their old values (INIT,
     * IMPORT). */
    uint32_t *replaced, replaced_count;
    uint32_t *unused, unused_count; /* extents that are left when a run begins */
} coh_bound;

/* ---- tickets ---- */

/* Tickets live at the same time: the two that may overlap; the results and inputs of two more stay
 * readable. */
enum { COH_TICKET_SLOTS = 4 };

typedef struct coh_ticket_shared {
    coh_feed_values feed;
    coh_clip_record clip;
} coh_ticket_shared;

typedef struct coh_ticket {
    coh_bound *bound;
    uint64_t number;
    uint64_t repetition; /* of the same program since the last quiet point; 0: the first */
    uint64_t base[COH_LANE_COUNT];
    uint64_t submitted_ns;

    coh_step_input input;
    uint64_t microbatch_count;
    /* Shared with the device: FEED reads its values and the inputs when it executes; CLIP writes
     * its record. */
    coh_ticket_shared *shared;
    void *input_bytes[COH_PORT_MAX]; /* by graph input */

    coh_chunk_visitor visitor;
    coh_chunk_filter visitor_wants;
    void *visitor_context;
    int32_t skips_frozen;
    int32_t scan;
    coh_step_record *record; /* NULL: the ticket is not recorded */

    /* The failure of a kind in this ticket that ends only the ticket (instruction.c). The
     * compute lane writes it; coh_step_await reads it after the lane has retired. COH_OK: none. */
    coh_status kind_failure;
    /* A rank was asked to stop before the losses were gathered. The comm lane writes it before
     * CLIP. */
    int32_t is_stop_asked;
    char kind_failure_text[COH_ERROR_TEXT_BYTES];

    /* When CLIP ends, result and time are copied from its record; coh_step_await reads them after
     * CLIP has retired and was timed. Exposed and links: since create. */
    uint64_t clip_ns;
    coh_step_result result;
} coh_ticket;

/* ---- the executor ---- */

/* Grains of bf16 values that a visitor sees at a time: 1 MiB of f32, which stays in cache from
 * assembly to hashing. */
enum { COH_VISIT_GRAINS = 16 };

/* The counters of a step, in one table so that a failure can close them all. */
enum {
    COH_COUNTER_RETIRED = 0,                    /* + lane: instructions retired */
    COH_COUNTER_WALKED = COH_LANE_COUNT,        /* + lane: tickets its own thread has finished */
    COH_COUNTER_SUBMITTED = 2 * COH_LANE_COUNT, /* tickets; the creating thread raises */
    COH_COUNTER_ISSUED,                         /* tickets; coh-step raises */
    COH_COUNTER_COUNT
};

/* Host buffers for data of a device that the host cannot address. */
typedef enum coh_stage {
    COH_STAGE_VALUES,
    COH_STAGE_STATES,
    COH_STAGE_GATHERED, /* states of all ranks */
    COH_STAGE_COUNT
} coh_stage;
#define COH_STAGE_BYTES ((uint64_t)1 << 20)

/* A request of a disk lane that is not retired. */
typedef struct coh_disk_request {
    uint64_t ticket;
    uint64_t begin_ns; /* for the instruction's time; 0: does not count */
    uint32_t instruction;
    int is_done;
} coh_disk_request;

/* A thread that walks the instructions of one lane itself: read, write, host, comm0 or comm1. */
typedef struct coh_lane_thread {
    struct coh_step *step;
    coh_lane lane;
    pthread_t thread;
    int is_started;
    /* The lane's own: instructions (retired, submitted] are in flight, instruction n at ring[n %
     * depth]. */
    uint64_t submitted;
    uint32_t depth;
    coh_disk_request *ring;
    coh_store_completion *completions;
} coh_lane_thread;

struct coh_step {
    const coh_plan *plan;
    const coh_layout *layout;
    coh_engine_options options;
    const coh_device_ops *device_ops;
    coh_device *device;
    coh_phantom *phantom; /* of a rehearsal: no byte may be touched; else NULL */
    coh_world *world;     /* of several ranks, the caller's; else NULL */
    int32_t rank;         /* in the world; 0 without one */
    /* Executes comm lanes, with a world: the world's, or on GPUs one that wraps it. */
    coh_transport *transport;
    void *loss_slots; /* on GPUs, shared with the device: the losses of all ranks */
    coh_rank_watch watch;
    coh_divided_chunk *divided; /* in the order of their chunks; with a world */
    uint32_t divided_count;
    coh_fold_shape fold; /* of the replicas of all ranks */
    /* Of device lanes in use; on GPUs also of comm lanes, whose threads enqueue. */
    coh_queue *queues[COH_LANE_COUNT];
    /* 1: the host reads and writes the device tier directly, and a launch is complete when it
     * returns. 0: the host accesses it through `stages`: a buffer for data of the parameters' size,
     * one for states and one for gathered states, each of the largest chunk of parameters, the
     * first two of at least COH_STAGE_BYTES. */
    int host_addressable;
    void *stages[COH_STAGE_COUNT];
    void *look;         /* of coh_step_look; NULL: not needed */
    void *kernel_queue; /* passed to kernels of the compute lane: the pool, or its queue */
    void *arenas[COH_TIER_COUNT];
    const coh_store_ops *store_ops;
    coh_store *store;
    int store_is_counted; /* in the ledger */
    coh_pool *pool;
    coh_pool *host_pool; /* of the host lane's kernels with a GPU; NULL: only its own thread */
    coh_ledger *ledger;
    coh_grain_table grains;
    coh_optimizer_numbers numbers[COH_PLAN_OPTIMIZERS]; /* by optimizer of the layout */
    coh_update_scalars scalars;                         /* of all of them */
    coh_bound bounds[COH_PROGRAM_KIND_COUNT];
    coh_bound small; /* the body with the shapes of options.small_graph; zeroed: there is none */
    struct coh_call_check *call_check;     /* NULL: calls work on the arena itself */
    struct coh_update_check *update_check; /* NULL: updates do */
    coh_call call; /* compute lane: filled in for each instruction that runs a kind */
    /* compute lane: COH_VISIT_GRAINS grains of values for a visitor; NULL: all groups are f32 */
    float *visit_values;
    uint16_t *visit_low; /* stands for the low halves that other ranks have; NULL: none do */

    /* The creating thread writes a ticket, then raises `submitted`; the others then read it. */
    coh_ticket tickets[COH_TICKET_SLOTS];
    coh_counter counters[COH_COUNTER_COUNT];
    int counter_count;         /* initialised ones */
    coh_program_kind running;  /* of the newest ticket; creating thread only */
    uint64_t repetition_count; /* of `running` since its quiet point */
    uint64_t *generations;     /* by chunk; changed at quiet points only */

    coh_instruction_times times; /* of the body's instructions */
    coh_step_records records;

    pthread_t issuer;
    int issuer_is_started;
    coh_lane_thread threads[COH_LANE_COUNT];

    _Atomic uint64_t exposed_ns[COH_LANE_COUNT]; /* compute's queue adds */
    /* each lane adds its own; frozen: the part for parameters that are not trained */
    _Atomic uint64_t link_bytes[COH_LANE_COUNT], frozen_bytes[COH_LANE_COUNT];
    uint64_t clip_ns, clip_exposed_ns[COH_LANE_COUNT];
    uint64_t clip_link_bytes[COH_LANE_COUNT], clip_frozen_bytes[COH_LANE_COUNT];

    /* pthread_self() of the thread that is in a function of a kind; 0: none is. That thread writes
     * it, any thread compares it with its own. */
    _Atomic uintptr_t kind_thread;

    _Atomic int32_t asks_stop; /* any thread or signal handler sets it, once */

    /* First failure: any thread, under the mutex. */
    pthread_mutex_t failure_mutex;
    int mutex_is_made;
    coh_status failure;
    char failure_text[COH_ERROR_TEXT_BYTES];

    coh_scan_finding finding; /* compute lane writes, read at quiet points */
    int has_finding;

    /* 1: a rank did not come when the lines ended, and may still touch the arenas. */
    int is_left_behind;
};

/* Returns the kind of device whose functions of operator kinds (coh_op_kind.devices) the compute
 * lane runs. */
static inline coh_device_kind coh_step_device_kind(const coh_step *step)
{
    return step->host_addressable ? COH_DEVICE_HOST : COH_DEVICE_CUDA;
}

static inline coh_ticket *coh_step_ticket(coh_step *step, uint64_t number)
{
    return &step->tickets[number % COH_TICKET_SLOTS];
}

/* Lanes that the step thread issues. Each other lane has a thread. */
static inline int coh_lane_is_queue(coh_lane lane)
{
    return lane == COH_LANE_COMPUTE || lane == COH_LANE_H2D || lane == COH_LANE_D2H;
}

static inline coh_counter *coh_step_retired(coh_step *step, coh_lane lane)
{
    return &step->counters[COH_COUNTER_RETIRED + lane];
}

/* The value of its lane's `retired` at which a wait in `ticket` ends; 0: it holds already. */
static inline uint64_t coh_wait_value(const coh_ticket *ticket, const coh_wait *wait)
{
    uint64_t base = ticket->base[wait->lane];
    if (!wait->carry)
        return base + wait->ordinal;
    if (ticket->repetition == 0)
        return 0;
    return base - ticket->bound->program->lane_length[wait->lane] + wait->ordinal;
}

/* Returns the number of the version of a chunk that an instruction of the ticket finds. */
static inline uint64_t coh_touch_generation(const coh_step *step, const coh_ticket *ticket,
                                            const coh_touch *touch)
{
    return step->generations[touch->chunk] + (uint64_t)touch->version +
           ticket->repetition * ticket->bound->versions_per_run[touch->chunk];
}

/* ---- step.c ---- */

/* Records this thread's last error as the step's failure, if it is the first, and stops everything:
 * the other ranks, too, and then the failure is that with which the world stopped. Any thread. */
void coh_step_fail(coh_step *step, coh_status status);
/* Likewise, but the other ranks go on: this one is at rest. */
void coh_step_end(coh_step *step, coh_status status);
/* Copies totals into the ticket's result when CLIP ends. */
void coh_step_stamp(coh_step *step, coh_ticket *ticket);
/* Likewise its time, and what compute was stalled until then. */
void coh_step_stamp_time(coh_step *step, coh_ticket *ticket, uint64_t at_ns);
/* Prefixes this thread's error text with the chunk that an instruction moves, on one of the
 * lanes h2d, d2h, read, write. Returns `status`. */
coh_status coh_step_name_chunk(const coh_step *step, const coh_program *program,
                               const coh_instruction *instruction, coh_status status);
/* The thread coh-step. */
void *coh_issue_main(void *step);

/* ---- step_create.c ---- */

/* Returns the bytes of a graph input for one micro-batch. */
uint64_t coh_input_bytes(const coh_graph *graph, uint32_t input);

/* ---- bind.c ---- */

/* Looks up everything that the instructions of `program` need. Fails: COH_ERR_MEMORY,
 * COH_ERR_INTERNAL. */
coh_status coh_bound_init(const coh_step *step, const coh_program *program, coh_bound *out_bound);
void coh_bound_fini(coh_bound *bound); /* accepts a zeroed struct */
/* Binds the program of `body` to another graph that coh_small_graph_check accepts. Only ports and
 * recorded runs are its own; all else, counts included, is that of `body`. Fails: as above. */
coh_status coh_bound_init_small(const coh_bound *body, const coh_graph *graph,
                                coh_bound *out_bound);
void coh_bound_fini_small(coh_bound *bound); /* accepts a zeroed struct */
/* Finds the longest possible runs of a program, in order; a run may have one instruction. The
 * caller frees the table (coh_free). Reads only the program. Fails: COH_ERR_MEMORY. */
coh_status coh_instruction_runs_find(const coh_program *program, coh_instruction_run **out_runs,
                                     uint32_t *out_count);
/* Resets all counts. Call before the first of several runs, which has ticket `number`. */
void coh_bound_reset(coh_bound *bound, uint64_t number);

/* Returns the address of an operand in its arena. Not for files. */
static inline void *coh_operand_data(const coh_step *step, const coh_operand *operand)
{
    return (char *)step->arenas[operand->tier] + operand->offset;
}

/* Returns the operand of an instruction at place `slot` of its row (COH_SLOT_*), or NULL. */
static inline const coh_operand *coh_bound_operand(const coh_bound *bound,
                                                   const coh_instruction *instruction, int slot)
{
    const uint16_t at = bound->slots[instruction - bound->program->instructions].at[slot];
    return at > 0 ? &bound->program->operands[instruction->operand_begin + at - 1] : NULL;
}

/* ---- step_view.c: the host's view of the device ---- */

/* Allocates buffers and finds out the kind of device. Fails: COH_ERR_MEMORY. */
coh_status coh_step_create_views(coh_step *step);
void coh_step_destroy_views(coh_step *step);

/* The device addresses of a pinned object and of the cells; NULL: there is none. */
void *coh_step_pinned(coh_step *step, int32_t object);
static inline coh_cells *coh_step_cells(coh_step *step)
{
    return coh_step_pinned(step, step->layout->cells);
}

/* Returns the buffer for data of a stream. */
coh_stage coh_stage_of(coh_stream stream);

/* Fills bytes of an arena: at a quiet point, or when a notify releases them. */
coh_status coh_step_fill(coh_step *step, coh_tier tier, uint64_t offset, int byte, uint64_t bytes);

/* For an instruction that works on the host, once its queue has finished the work before it:
 * copies `bytes` at `data` of an arena to a host address. coh_step_take_back copies them back
 * after a change. */
coh_status coh_step_bring(coh_step *step, coh_stage stage, coh_tier tier, void *data,
                          uint64_t bytes, void **out_data);
/* Likewise for bytes that were just set to 0: nothing is copied from the device. */
void *coh_step_bring_zeros(coh_step *step, coh_stage stage, coh_tier tier, void *data,
                           uint64_t bytes);
coh_status coh_step_take_back(coh_step *step, coh_stage stage, coh_tier tier, void *data,
                              uint64_t bytes);
/* Checks that every element of a tensor on the device is finite, in the same situation. */
coh_status coh_step_all_finite(coh_step *step, const coh_view *view, int *out_finite);
/* Makes that situation: an asynchronous device first finishes all earlier launches. */
void coh_step_wait_for_device(coh_step *step);

/* ---- instruction.c: coh_device_work of (step, ticket number, instruction index) ---- */

void coh_instruction_begin(void *step, uint64_t number, uint32_t index); /* delay, enter extents */
void coh_instruction_execute(void *step, uint64_t number, uint32_t index); /* not for movers */
void coh_instruction_end(void *step, uint64_t number, uint32_t index); /* count, leave extents */
/* coh_device_timed: take the time at which an instruction began and ended; each after the function
 * above of the same place. */
void coh_instruction_began(void *step, uint64_t number, uint32_t index, uint64_t at_ns);
void coh_instruction_ended(void *step, uint64_t number, uint32_t index, uint64_t at_ns);
/* Has the device prepare what the first run of each instruction would make
 * (coh_device_ops.rehearse), before coh-step starts. Fails: the device's failure, with the
 * operator. */
coh_status coh_instruction_rehearse_all(coh_step *step);
/* When a ticket begins: removes the ticket's use of extents that it finds and does not use.
 * Creating thread. */
void coh_instruction_drop_unused(coh_step *step, const coh_ticket *ticket);

/* Returns the value of the instruction's predicate, in the cells that the instruction names as
 * an operand, or else in the device's cells; NULL: the instruction always runs. */
const int32_t *coh_instruction_predicate(const coh_step *step, const coh_bound *bound,
                                         const coh_instruction *instruction);

/* Has the device record the runs of every program, if it can, after the rehearsal. Recording
 * ends at the first run that cannot be recorded, and the log has a line about it. The instructions
 * of that run and of the later runs are launched one by one. */
void coh_instruction_record_all(coh_step *step);
/* Returns the recorded run that issues an instruction of the ticket; NULL: the instruction is
 * issued by itself. */
const coh_instruction_run *coh_instruction_recorded(const coh_ticket *ticket,
                                                    const coh_instruction *instruction);
/* coh_device_work: does coh_instruction_end for all instructions of the run that begins with
 * instruction `index`. */
void coh_instruction_end_run(void *step, uint64_t number, uint32_t index);
/* coh_device_timed: takes the time at which that run ended. */
void coh_instruction_run_ended(void *step, uint64_t number, uint32_t index, uint64_t at_ns);

/* ---- the functions of opcodes (planner/opcodes.def) that instruction.c does not hold ---- */

/* instruction_optimizer.c */
coh_status coh_run_feed(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction);
coh_status coh_run_norm(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction);
coh_status coh_run_clip(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction);
coh_status coh_run_update(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction);
coh_status coh_run_settle(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction);
/* instruction_chunk.c */
coh_status coh_run_visit(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction);

/* lane_comm.c */
coh_status coh_run_reduce(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction);
coh_status coh_run_gather(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction);
/* Binds the instructions that ranks execute together to the world's transport, on all ranks
 * together. On GPUs makes the queues of comm lanes first. Fails: COH_ERR_MEMORY, and as
 * coh_nccl_open and coh_transport_bind. */
coh_status coh_comm_bind(coh_step *step, const struct coh_nccl_calls *nccl);
/* Ends the lines, before the queues are destroyed (sets is_left_behind); and frees what bind made.
 * Both accept a step that was not bound. */
void coh_comm_unbind(coh_step *step);
void coh_comm_close(coh_step *step);

/* ---- lane_threads.c ---- */

/* The thread of a lane that walks its own instructions. */
void *coh_lane_main(void *lane_thread);

#endif
