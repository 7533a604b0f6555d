/* The thread that looks how long the comm lanes have waited. Read rank_watch.h first. */
#include "engine/rank_watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"

static coh_watched_lane *lane_of(coh_rank_watch *watch, coh_lane lane)
{
    return &watch->lanes[lane == COH_LANE_COMM1];
}

/* All ranks submit a step at the same time. In the other programs one rank may do more than the
 * others: rank 0 of a save waits for its drive while they gather. */
static int is_of_a_step(const coh_program *program)
{
    return program->kind == COH_PROGRAM_BODY || program->kind == COH_PROGRAM_DRAIN;
}

void coh_rank_watch_begin(coh_rank_watch *watch, coh_lane lane, const coh_program *program,
                          const coh_instruction *instruction)
{
    coh_watched_lane *of = lane_of(watch, lane);
    if (watch->limit_ns == 0 || !is_of_a_step(program))
        return;
    atomic_store_explicit(&of->program, program, memory_order_relaxed);
    atomic_store_explicit(&of->instruction, (uint32_t)(instruction - program->instructions),
                          memory_order_relaxed);
    atomic_store_explicit(&of->begin_ns, coh_clock_ns(), memory_order_release);
}

void coh_rank_watch_end(coh_rank_watch *watch, coh_lane lane)
{
    atomic_store_explicit(&lane_of(watch, lane)->begin_ns, 0, memory_order_release);
}

static const char *first_parameter(const coh_plan *plan, int32_t group)
{
    const coh_layout *layout = &plan->layout;
    const uint32_t first = layout->groups[group].parameter_begin;
    return plan->graph->parameters[layout->parameters[first].parameter].name;
}

/* Stops the world with the instruction that a lane waits in. */
static void stop_world(const coh_rank_watch *watch, const coh_watched_lane *lane)
{
    char sentence[512];
    const coh_program *program = atomic_load_explicit(&lane->program, memory_order_relaxed);
    const uint32_t index = atomic_load_explicit(&lane->instruction, memory_order_relaxed);
    const coh_instruction *instruction = &program->instructions[index];
    const coh_comm_call *comm = &program->comms[instruction->comm - 1];
    const coh_object *object =
        &watch->plan->layout.objects[program->operands[instruction->operand_begin].object];
    const int32_t rank = coh_world_rank(watch->world);
    const int32_t members = coh_mesh_group_size(&watch->plan->layout.mesh, comm->axes);
    int used =
        snprintf(sentence, sizeof(sentence),
                 "it has waited %.3g s for the other rank%s of its group in %s, instruction "
                 "%" PRIu32 " of the %s program, on %s",
                 (double)watch->limit_ns * 1e-9, members > 2 ? "s" : "",
                 coh_opcode_name((coh_opcode)instruction->opcode), index,
                 coh_program_kind_name(program->kind), coh_stream_name((coh_stream)object->stream));
    if (coh_stream_is_of_group(object->stream))
        used += snprintf(sentence + used, sizeof(sentence) - (size_t)used, " of %s",
                         first_parameter(watch->plan, object->owner));
    used += snprintf(sentence + used, sizeof(sentence) - (size_t)used, " (its group: ranks");
    for (int32_t i = 0; i < members && (size_t)used < sizeof(sentence) - 64; i++)
        used += snprintf(sentence + used, sizeof(sentence) - (size_t)used, " %" PRId32,
                         coh_mesh_group_member(&watch->plan->layout.mesh, comm->axes, rank, i));
    (void)snprintf(sentence + used, sizeof(sentence) - (size_t)used,
                   "): one of them hangs, or needs a longer rank timeout");
    (void)coh_world_stop(watch->world, COH_ERR_DEVICE, sentence);
}

/* Looks at the lanes once. Returns 1 if it has stopped the world. */
static int look(const coh_rank_watch *watch)
{
    for (int i = 0; i < COH_WATCHED_LANES; i++) {
        const uint64_t begin_ns =
            atomic_load_explicit(&watch->lanes[i].begin_ns, memory_order_acquire);
        if (begin_ns == 0 || coh_clock_ns() - begin_ns < watch->limit_ns)
            continue;
        stop_world(watch, &watch->lanes[i]);
        return 1;
    }
    return 0;
}

static void *watch_main(void *argument)
{
    coh_rank_watch *watch = argument;
    pthread_setname_np(pthread_self(), "coh-watch");
    const uint64_t nap_ns = watch->limit_ns / 4;
    pthread_mutex_lock(&watch->mutex);
    while (!watch->ends) {
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        const uint64_t at_ns = (uint64_t)until.tv_nsec + nap_ns;
        until.tv_sec += (time_t)(at_ns / 1000000000u);
        until.tv_nsec = (long)(at_ns % 1000000000u);
        (void)pthread_cond_timedwait(&watch->changed, &watch->mutex, &until);
        if (!watch->ends && look(watch))
            break;
    }
    pthread_mutex_unlock(&watch->mutex);
    return NULL;
}

coh_status coh_rank_watch_start(coh_rank_watch *watch, coh_world *world, const coh_plan *plan,
                                double limit_s)
{
    pthread_condattr_t attributes;
    if (limit_s <= 0 || world == NULL)
        return COH_OK;
    watch->world = world;
    watch->plan = plan;
    watch->limit_ns = (uint64_t)(limit_s * 1e9);
    pthread_mutex_init(&watch->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    const int error = coh_thread_start(&watch->thread, watch_main, watch);
    watch->is_started = error == 0;
    if (error == 0)
        return COH_OK;
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->mutex);
    return coh_fail(COH_ERR_MEMORY, "no thread to watch the ranks: %s", strerror(error));
}

void coh_rank_watch_stop(coh_rank_watch *watch)
{
    if (!watch->is_started)
        return;
    pthread_mutex_lock(&watch->mutex);
    watch->ends = 1;
    pthread_cond_signal(&watch->changed);
    pthread_mutex_unlock(&watch->mutex);
    pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->mutex);
    watch->is_started = 0;
}
