/* Records cores and moves workers by setting the affinity twice, with the system's calls as a
 * table. Read cores.h first for why this is needed; pool.c uses it. */
#include "base/cores.h"

#include <stddef.h>

#include "base/clock.h"

static int here(void *context)
{
    (void)context;
    return sched_getcpu();
}

static int get_allowed(void *context, cpu_set_t *out_allowed)
{
    (void)context;
    return sched_getaffinity(0, sizeof(*out_allowed), out_allowed);
}

static int set_allowed(void *context, const cpu_set_t *allowed)
{
    (void)context;
    return sched_setaffinity(0, sizeof(*allowed), allowed);
}

static uint64_t now_ns(void *context)
{
    (void)context;
    return coh_clock_ns();
}

const coh_core_ops coh_core_ops_of_system = {
    .here = here, .get_allowed = get_allowed, .set_allowed = set_allowed, .now_ns = now_ns
};

int coh_cores_say(const coh_cores *cores, int index)
{
    const int core = cores->ops->here(cores->context);
    if (core != atomic_load_explicit(&cores->at[index], memory_order_relaxed))
        atomic_store_explicit(&cores->at[index], core, memory_order_relaxed);
    return core;
}

/* Moves the thread to a core that no other thread is on, if it may use such a core. */
static void leave_cores_of_others(const coh_cores *cores, int index)
{
    cpu_set_t allowed, free_ones;
    if (cores->ops->get_allowed(cores->context, &allowed) != 0)
        return;
    free_ones = allowed;
    for (int i = 0; i < cores->thread_count; i++) {
        const int core = atomic_load_explicit(&cores->at[i], memory_order_relaxed);
        if (i != index && core >= 0 && core < CPU_SETSIZE)
            CPU_CLR((size_t)core, &free_ones);
    }
    if (CPU_COUNT(&free_ones) > 0 && cores->ops->set_allowed(cores->context, &free_ones) == 0)
        (void)cores->ops->set_allowed(cores->context, &allowed);
}

void coh_cores_keep_apart(const coh_cores *cores, int index, uint64_t *moved_ns)
{
    const int core = coh_cores_say(cores, index);
    for (int i = 0; i < index && core >= 0; i++) {
        if (atomic_load_explicit(&cores->at[i], memory_order_relaxed) != core)
            continue;
        const uint64_t now = cores->ops->now_ns(cores->context);
        if (now - *moved_ns >= COH_CORES_MOVE_AGAIN_NS) {
            *moved_ns = now;
            leave_cores_of_others(cores, index);
            (void)coh_cores_say(cores, index);
        }
        return;
    }
}
