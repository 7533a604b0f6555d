/* The clock of a rehearsal, and its store. The idea: threads put work on their lanes and sleep.
 * When all of them sleep, the clock moves to the next end of work and does what follows it. Read
 * phantom.h first, then planner/fluid.h. */
#include "engine/phantom.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "engine/step_state.h"
#include "offload/store_base.h"
#include "planner/fluid.h"

/* An instruction in a lane. */
typedef struct started {
    uint64_t ticket;
    uint32_t index;
} started;

struct coh_phantom {
    const coh_plan *plan;
    coh_step *step;
    coh_fluid fluid;       /* each lane's thread issues to its lane; coh-phantom does the rest */
    coh_phantom_work work; /* each lane's thread counts its own */
    started *started[COH_LANE_COUNT];    /* of the n-th, from 0, at n % depth of the lane */
    coh_counter retired[COH_LANE_COUNT]; /* coh-phantom raises */
    int counter_count;                   /* initialised ones */
    coh_awake awake;
    int awake_is_made;
    /* By chunk: the generation of its newest copy, and where that lies; lanes store. */
    _Atomic uint64_t *versions[COH_TIER_COUNT], *offsets[COH_TIER_COUNT];
    double idle_ns; /* the compute lane's; coh-phantom adds */
    pthread_t thread;
    int is_started;
};

/* ---- work ---- */

/* Puts an instruction that moves `bytes` (0: none) on a lane that has room. */
static void issue(coh_phantom *phantom, const coh_program *program,
                  const coh_instruction *instruction, uint64_t bytes)
{
    const coh_plan *plan = phantom->plan;
    coh_instruction moved = *instruction;
    if (bytes > 0)
        moved.bytes = bytes; /* priced by what moves, not by what the table says */
    const coh_price price = coh_price_instruction(&plan->pricer, &plan->layout, program, &moved);
    phantom->work.executed[moved.lane]++;
    phantom->work.bytes[moved.lane] += bytes;
    coh_fluid_issue(&phantom->fluid, moved.lane, (double)coh_whole_ns(price.p50),
                    coh_price_link(plan->pricer.profile, program, &moved), moved.bytes);
}

void coh_phantom_start(void *context, uint64_t number, uint32_t index)
{
    coh_step *step = context;
    coh_phantom *phantom = step->phantom;
    const coh_bound *bound = coh_step_ticket(step, number)->bound;
    const coh_instruction *instruction = &bound->program->instructions[index];
    const int lane = instruction->lane;
    const uint64_t before = phantom->work.executed[lane], depth = phantom->fluid.lanes[lane].depth;
    if (before >= depth && !coh_counter_wait(&phantom->retired[lane], before + 1 - depth))
        return;
    coh_instruction_begin(step, number, index);
    phantom->started[lane][before % depth] = (started){ number, index };
    uint64_t bytes = instruction->comm > 0 ? instruction->bytes : 0;
    if (coh_opcode_moves(instruction->opcode))
        bytes = coh_bound_operand(bound, instruction, COH_SLOT_FROM)->bytes;
    issue(phantom, bound->program, instruction, bytes);
}

/* ---- versions ---- */

typedef void (*touch_visitor)(coh_step *step, const coh_ticket *ticket,
                              const coh_instruction *instruction, coh_tier tier,
                              const coh_touch *touch);

static void visit_touches(coh_step *step, uint64_t number, uint32_t index, int access,
                          touch_visitor visit)
{
    const coh_ticket *ticket = coh_step_ticket(step, number);
    const coh_program *program = ticket->bound->program;
    const coh_instruction *instruction = &program->instructions[index];
    for (uint32_t o = 0; o < instruction->operand_count; o++) {
        const coh_operand *operand = &program->operands[instruction->operand_begin + o];
        for (uint32_t t = 0; t < operand->touch_count; t++)
            if ((operand->access & access) && operand->tier != COH_TIER_DISK)
                visit(step, ticket, instruction, (coh_tier)operand->tier,
                      &program->touches[operand->touch_begin + t]);
    }
}

static uint64_t offset_of(const coh_ticket *ticket, const coh_touch *touch)
{
    return ticket->bound->program->extents[touch->extent].offset;
}

/* A newer version may be made at another place while this one is read; one at the same place has
 * replaced it. */
static void check_version(coh_step *step, const coh_ticket *ticket,
                          const coh_instruction *instruction, coh_tier tier, const coh_touch *touch)
{
    const uint64_t found = atomic_load(&step->phantom->versions[tier][touch->chunk]);
    const uint64_t wanted = coh_touch_generation(step, ticket, touch);
    if (found == wanted ||
        (found > wanted &&
         atomic_load(&step->phantom->offsets[tier][touch->chunk]) != offset_of(ticket, touch)))
        return;
    coh_fail(COH_ERR_INTERNAL,
             "%s number %" PRIu32 " of lane %s of program '%s' reads version %" PRIu64
             " of chunk %" PRIu32 " while the %s tier has version %" PRIu64 " (please report this)",
             coh_opcode_name((coh_opcode)instruction->opcode), instruction->ordinal,
             coh_lane_name((coh_lane)instruction->lane),
             coh_program_kind_name(ticket->bound->program->kind), wanted, touch->chunk,
             coh_tier_name(tier), found);
    coh_step_fail(step, COH_ERR_INTERNAL);
}

static void set_version(coh_step *step, const coh_ticket *ticket,
                        const coh_instruction *instruction, coh_tier tier, const coh_touch *touch)
{
    const uint64_t made = !coh_opcode_moves(instruction->opcode); /* movers copy */
    atomic_store(&step->phantom->offsets[tier][touch->chunk], offset_of(ticket, touch));
    atomic_store(&step->phantom->versions[tier][touch->chunk],
                 coh_touch_generation(step, ticket, touch) + made);
}

void coh_phantom_read_versions(coh_step *step, uint64_t number, uint32_t index)
{
    visit_touches(step, number, index, COH_ACCESS_READ, check_version);
}

void coh_phantom_write_versions(coh_step *step, uint64_t number, uint32_t index)
{
    visit_touches(step, number, index, COH_ACCESS_READ, check_version); /* still there? */
    visit_touches(step, number, index, COH_ACCESS_WRITE, set_version);
}

/* ---- the clock ---- */

/* Does what follows the work of the lane's instruction number `n`, from 0. */
static void retire(coh_phantom *phantom, int lane, uint64_t n)
{
    coh_step *step = phantom->step;
    if (lane != COH_LANE_READ && lane != COH_LANE_WRITE) { /* these end their own */
        const started *s = &phantom->started[lane][n % phantom->fluid.lanes[lane].depth];
        const coh_ticket *ticket = coh_step_ticket(step, s->ticket);
        coh_instruction_end(step, s->ticket, s->index);
        coh_counter_raise(coh_step_retired(step, (coh_lane)lane),
                          ticket->base[lane] +
                              ticket->bound->program->instructions[s->index].ordinal);
    }
    coh_counter_raise(&phantom->retired[lane], n + 1);
}

/* Moves the clock to the next event. Returns 0 if nothing is under way. */
static int advance(coh_phantom *phantom)
{
    coh_fluid *fluid = &phantom->fluid;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        coh_fluid_start(fluid, lane);
    const coh_fluid_event next = coh_fluid_next(fluid);
    if (next.lane < 0)
        return 0;
    const uint64_t retired = fluid->lanes[next.lane].retired;
    if (!(fluid->busy >> COH_LANE_COMPUTE & 1))
        phantom->idle_ns += next.when_ns - fluid->now_ns;
    coh_fluid_happen(fluid, &next);
    if (fluid->lanes[next.lane].retired > retired)
        retire(phantom, next.lane, retired);
    return 1;
}

static void *phantom_main(void *argument)
{
    coh_phantom *phantom = argument;
    pthread_setname_np(pthread_self(), "coh-phantom");
    while (coh_awake_wait(&phantom->awake)) {
        if (advance(phantom))
            continue;
        coh_fail(COH_ERR_INTERNAL,
                 "the rehearsal cannot go on %.6f s after its begin: every lane waits for another "
                 "one (please report this)",
                 phantom->fluid.now_ns * 1e-9);
        coh_step_fail(phantom->step, COH_ERR_INTERNAL);
    }
    return NULL;
}

coh_status coh_phantom_run(coh_phantom *phantom, coh_step *step)
{
    phantom->step = step;
    const int error = coh_thread_start(&phantom->thread, phantom_main, phantom);
    if (error != 0)
        return coh_fail(COH_ERR_MEMORY, "no thread for the rehearsal's clock: %s", strerror(error));
    phantom->is_started = 1;
    return COH_OK;
}

void coh_phantom_stop(coh_phantom *phantom)
{
    if (phantom == NULL)
        return;
    coh_awake_close(&phantom->awake);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        coh_counter_close(&phantom->retired[lane]);
}

void coh_phantom_join(coh_phantom *phantom)
{
    if (phantom == NULL || !phantom->is_started)
        return;
    pthread_join(phantom->thread, NULL);
    phantom->is_started = 0;
}

/* ---- create, destroy ---- */

/* The lanes of all programs together; depths are the same in each. */
static coh_status create_lanes(coh_phantom *phantom)
{
    coh_program all = { 0 };
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
            const coh_program *program = &phantom->plan->programs[kind];
            all.lane_length[lane] += program->lane_length[lane];
            if (program->lane_depth[lane] > all.lane_depth[lane])
                all.lane_depth[lane] = program->lane_depth[lane];
        }
    for (int tier = 0; tier < COH_TIER_DISK; tier++) {
        COH_TRY(COH_ALLOC(phantom->plan->layout.chunk_count, &phantom->versions[tier]));
        COH_TRY(COH_ALLOC(phantom->plan->layout.chunk_count, &phantom->offsets[tier]));
    }
    COH_TRY(coh_fluid_init(&phantom->fluid, &all, phantom->plan->pricer.profile, 1));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        COH_TRY(COH_ALLOC(phantom->fluid.lanes[lane].depth, &phantom->started[lane]));
    return COH_OK;
}

static coh_status create_all(coh_phantom *phantom)
{
    COH_TRY(coh_awake_init(&phantom->awake));
    phantom->awake_is_made = 1;
    for (; phantom->counter_count < COH_LANE_COUNT; phantom->counter_count++) {
        coh_counter *counter = &phantom->retired[phantom->counter_count];
        COH_TRY(coh_counter_init(counter));
        coh_counter_set_awake(counter, &phantom->awake);
    }
    return create_lanes(phantom);
}

coh_status coh_phantom_create(const coh_plan *plan, coh_phantom **out_phantom)
{
    *out_phantom = NULL;
    coh_phantom *phantom;
    COH_TRY(COH_ALLOC(1, &phantom));
    phantom->plan = plan;
    const coh_status status = create_all(phantom);
    if (status == COH_OK)
        *out_phantom = phantom;
    else
        coh_phantom_destroy(phantom);
    return status;
}

void coh_phantom_destroy(coh_phantom *phantom)
{
    if (phantom == NULL)
        return;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        coh_free(phantom->started[lane]);
    for (int tier = 0; tier < COH_TIER_DISK; tier++) {
        coh_free(phantom->versions[tier]);
        coh_free(phantom->offsets[tier]);
    }
    for (int i = 0; i < phantom->counter_count; i++)
        coh_counter_fini(&phantom->retired[i]);
    if (phantom->awake_is_made)
        coh_awake_fini(&phantom->awake);
    coh_fluid_fini(&phantom->fluid);
    coh_free(phantom);
}

coh_awake *coh_phantom_awake(coh_phantom *phantom)
{
    return phantom != NULL ? &phantom->awake : NULL;
}

coh_phantom_time coh_phantom_clock(const coh_phantom *phantom)
{
    return (coh_phantom_time){ .now_ns = phantom->fluid.now_ns, .idle_ns = phantom->idle_ns };
}

void coh_phantom_read(const coh_phantom *phantom, coh_phantom_work *out_work)
{
    *out_work = phantom->work;
}

/* ---- the store ---- */

typedef struct phantom_store {
    coh_store base;
    coh_phantom *phantom;
    coh_store_request *requests[2]; /* by port; of request n at n % port_depth */
    uint64_t reaped[2];             /* by port; its lane's thread counts */
    _Atomic uint64_t *generations;  /* by chunk; coh-write stores, coh-read loads */
} phantom_store;

static void store_close(coh_store *base)
{
    phantom_store *store = (phantom_store *)base;
    for (int port = 0; port < 2; port++)
        coh_free(store->requests[port]);
    coh_free(store->generations);
    coh_store_base_fini(base);
    coh_free(store);
}

static coh_status store_open(const coh_store_config *config, coh_store **out_store)
{
    phantom_store *store;
    *out_store = NULL;
    COH_TRY(COH_ALLOC(1, &store));
    coh_status status = coh_store_base_init(&store->base, config, "phantom");
    if (status != COH_OK) {
        coh_free(store);
        return status;
    }
    store->phantom = config->phantom;
    store->phantom->work.file_bytes = config->bytes;
    status = COH_ALLOC(config->chunk_count, &store->generations);
    for (int port = 0; port < 2 && status == COH_OK; port++)
        status = COH_ALLOC(config->port_depth, &store->requests[port]);
    if (status == COH_OK)
        *out_store = &store->base;
    else
        store_close(&store->base);
    return status;
}

static coh_status store_register_arena(coh_store *store, void *base, size_t bytes)
{
    (void)store;
    (void)base;
    (void)bytes;
    return COH_OK;
}

static coh_status check_generation(const phantom_store *store, const coh_chunk_id *id)
{
    const uint64_t found = atomic_load(&store->generations[id->chunk]);
    if (found == id->generation)
        return COH_OK;
    return coh_fail(COH_ERR_INTERNAL,
                    "the drive has version %" PRIu64 " of chunk %" PRIu32 ", and version %" PRIu64
                    " is read (please report this)",
                    found, id->chunk, id->generation);
}

static coh_status store_submit(coh_store *base, coh_store_port port,
                               const coh_store_request *request)
{
    phantom_store *store = (phantom_store *)base;
    const int reads = port == COH_STORE_READS;
    const coh_instruction mover = { .opcode = reads ? COH_OP_READ : COH_OP_WRITE,
                                    .lane = reads ? COH_LANE_READ : COH_LANE_WRITE,
                                    .call = -1 };
    coh_phantom_work *work = &store->phantom->work;
    COH_TRY(coh_store_base_allow(base, request));
    if (reads)
        COH_TRY(check_generation(store, &request->id));
    store->requests[port][work->executed[mover.lane] % base->config.port_depth] = *request;
    issue(store->phantom, NULL, &mover, request->bytes);
    return COH_OK;
}

static coh_status store_reap(coh_store *base, coh_store_port port,
                             coh_store_completion *completions, uint32_t least, uint32_t most,
                             uint32_t *out_count)
{
    phantom_store *store = (phantom_store *)base;
    coh_counter *retired =
        &store->phantom->retired[port == COH_STORE_READS ? COH_LANE_READ : COH_LANE_WRITE];
    *out_count = 0;
    if (least > 0 && !coh_counter_wait(retired, store->reaped[port] + least))
        return coh_fail(COH_ERR_STOPPED, "the rehearsal was stopped");
    while (*out_count < most && store->reaped[port] < coh_counter_read(retired)) {
        const coh_store_request *request =
            &store->requests[port][store->reaped[port]++ % base->config.port_depth];
        completions[(*out_count)++] = (coh_store_completion){ .number = request->number };
        if (port == COH_STORE_WRITES)
            atomic_store(&store->generations[request->id.chunk], request->id.generation);
    }
    return COH_OK;
}

const coh_store_ops coh_store_phantom = {
    .struct_bytes = sizeof(coh_store_ops),
    .name = "phantom",
    .open = store_open,
    .close = store_close,
    .facts = coh_store_base_facts,
    .register_arena = store_register_arena,
    .submit = store_submit,
    .reap = store_reap,
};
