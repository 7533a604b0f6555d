/* The facts of this machine that a profile holds, and the number that tells machines apart. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "cohobate/cohobate.h"
#include "cohobate/engine.h"
#include "cohobate/machine.h"
#include "cohobate/run.h"
#include "engine/kernel_table.h"
#include "engine/measure.h"
#include "memory/available.h"

/* Processor, cores, memory, kernels and build: what may change how long a line takes. */
static void describe(char *text, size_t text_bytes)
{
    char cpu[COH_KERNEL_MACHINE_BYTES];
    const uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    coh_kernel_machine(cpu);
    snprintf(text, text_bytes, "%.60s, %d cores, %llu GiB", cpu, coh_machine_core_count(),
             (unsigned long long)((bytes + (1u << 29)) >> 30));
}

uint64_t coh_machine_fingerprint(void)
{
    char text[512];
    describe(text, sizeof(text));
    const size_t used = strlen(text);
    snprintf(text + used, sizeof(text) - used, ", %s, %s", coh_kernel_path(), coh_version());
    const uint64_t hash = XXH3_64bits(text, strlen(text));
    return hash != 0 ? hash : 1;
}

int coh_profile_is_of_here(const coh_profile *profile)
{
    return profile != NULL && profile->source == COH_PROFILE_MEASURED &&
           profile->fingerprint == coh_machine_fingerprint();
}

static uint64_t memlock_bytes(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return 0;
    return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : (uint64_t)limit.rlim_cur;
}

void coh_measure_machine(coh_measure *m)
{
    coh_profile *profile = m->profile;
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(profile->date, sizeof(profile->date), "%Y-%m-%d", &local);
    if (profile->name[0] == '\0') /* else what is known says how steady the machine was */
        snprintf(profile->name, sizeof(profile->name), "measured, %d thread%s",
                 (int)m->options->thread_count, m->options->thread_count == 1 ? "" : "s");
    profile->source = COH_PROFILE_MEASURED;
    profile->threads = m->options->thread_count;
    describe(profile->machine, sizeof(profile->machine));
    profile->fingerprint = coh_machine_fingerprint();
    profile->memory_bytes[COH_TIER_DEVICE] = coh_machine_free_bytes();
    if (m->options->disk_folder != NULL)
        (void)coh_space_free_bytes(m->options->disk_folder, &profile->memory_bytes[COH_TIER_DISK]);
    profile->memlock_bytes = memlock_bytes();
    profile->cgroup_bytes = coh_memory_limit_bytes();
}
