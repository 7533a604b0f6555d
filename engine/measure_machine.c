/* The facts of this machine in a profile, and the fingerprint that distinguishes machines. Next:
 * measure.h. */
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/plural.h"
#include "coh_config.h"
#include "cohobate/cohobate.h"
#include "cohobate/engine.h"
#include "cohobate/machine.h"
#include "cohobate/run.h"
#include "engine/kernel_table.h"
#include "engine/machine_findings.h"
#include "engine/measure.h"
#include "memory/available.h"

#ifdef COH_HAVE_CUDA
#include "memory/cuda_facts.h"

static coh_cuda_facts cuda_facts; /* zero if there is no driver */
static pthread_once_t cuda_facts_are_read = PTHREAD_ONCE_INIT;

static void read_cuda_facts(void)
{
    (void)coh_cuda_facts_read(&cuda_facts);
}
#endif

/* Describes processor, cores, memory, kernels and build: everything that can change an
 * instruction's time. */
static void describe(char *text, size_t text_bytes)
{
    char cpu[COH_KERNEL_MACHINE_BYTES];
    const uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    coh_kernel_machine(cpu);
    snprintf(text, text_bytes, "%.60s, %d cores, %llu GiB", cpu, coh_machine_core_count(),
             (unsigned long long)((bytes + (1u << 29)) >> 30));
}

/* Hashes the code that contains this function, the library's or (statically linked) the program's:
 * two builds of one version differ in speed. */
static int hash_code(struct dl_phdr_info *object, size_t bytes, void *out_hash)
{
    (void)bytes;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        const uintptr_t begin = object->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0 ||
            (uintptr_t)hash_code < begin || (uintptr_t)hash_code >= begin + part->p_filesz)
            continue;
        *(uint64_t *)out_hash = XXH3_64bits((const void *)begin, part->p_filesz);
        return 1;
    }
    return 0;
}

/* Separates a GPU from the host in a profile's machine: "NVIDIA H200; " and the host's text. */
#define BEHIND_GPU "; "
enum { GPU_NAME_BYTES = 48 }; /* characters of it that are printed */

/* Returns the CUDA version of the driver that sees a GPU called `gpu`; 0: none. The driver is asked
 * once. */
static int driver_version(const char *gpu, size_t gpu_bytes)
{
#ifdef COH_HAVE_CUDA
    pthread_once(&cuda_facts_are_read, read_cuda_facts);
    for (int i = 0; i < cuda_facts.gpu_count && i < COH_CUDA_GPUS_MOST; i++)
        if (strnlen(cuda_facts.gpus[i].name, GPU_NAME_BYTES) == gpu_bytes &&
            memcmp(cuda_facts.gpus[i].name, gpu, gpu_bytes) == 0)
            return cuda_facts.driver_version;
#else
    (void)gpu;
    (void)gpu_bytes;
#endif
    return 0;
}

/* `gpu`, of `gpu_bytes` bytes, is prefixed to the description; 0: no GPU. */
static uint64_t fingerprint(const char *gpu, size_t gpu_bytes)
{
    char text[512], driver[24] = "";
    uint64_t code = 0;
    memcpy(text, gpu, gpu_bytes);
    describe(text + gpu_bytes, sizeof(text) - gpu_bytes);
    const size_t used = strlen(text);
    (void)dl_iterate_phdr(hash_code, &code);
    if (gpu_bytes > 0)
        snprintf(driver, sizeof(driver), ", CUDA %d", driver_version(gpu, gpu_bytes));
    snprintf(text + used, sizeof(text) - used, ", %s, %s, %016llx%s", coh_kernel_path(),
             coh_version(), (unsigned long long)code, driver);
    const uint64_t hash = XXH3_64bits(text, strlen(text));
    return hash != 0 ? hash : 1;
}

uint64_t coh_machine_fingerprint(void)
{
    return fingerprint("", 0);
}

uint64_t coh_machine_fingerprint_of(const coh_profile *profile)
{
    const char *end =
        profile->device_kind != COH_DEVICE_HOST ? strstr(profile->machine, BEHIND_GPU) : NULL;
    return end == NULL ? coh_machine_fingerprint()
                       : fingerprint(profile->machine, (size_t)(end - profile->machine));
}

int coh_profile_is_of_here(const coh_profile *profile)
{
    if (profile == NULL)
        return 0;
    return profile != NULL && profile->source == COH_PROFILE_MEASURED &&
           profile->fingerprint == coh_machine_fingerprint_of(profile);
}

/* Of one drive: "ext4, device 254:0, 252 GiB". */
enum { DRIVE_BYTES = 96 };

/* Prints "" if the folder cannot be examined. */
static void describe_drive(const char *folder, char *text, size_t text_bytes)
{
    struct stat place;
    struct statfs system;
    text[0] = '\0';
    if (stat(folder, &place) != 0 || statfs(folder, &system) != 0)
        return;
    snprintf(text, text_bytes, "%s, device %u:%u, %llu GiB",
             coh_file_system_name((long)system.f_type), major(place.st_dev), minor(place.st_dev),
             (unsigned long long)(((uint64_t)system.f_blocks * (uint64_t)system.f_bsize) >> 30));
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Joins the drives of the folders, in an order that does not depend on that of the folders. */
static void describe_drives(const coh_disk *disks, uint32_t disk_count, char *text,
                            size_t text_bytes)
{
    char drives[COH_DISKS_MOST][DRIVE_BYTES];
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < disk_count; i++)
        describe_drive(disks[i].folder, drives[i], DRIVE_BYTES);
    qsort(drives, disk_count, DRIVE_BYTES, by_text);
    for (uint32_t i = 0; i < disk_count && used < text_bytes; i++)
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s",
                                 i > 0 ? COH_PROFILE_DRIVE_JOIN : "", drives[i]);
}

int coh_profile_is_of_drives(const coh_profile *profile, const coh_disk *disks, uint32_t disk_count)
{
    if (profile == NULL || disks == NULL || disk_count < 1 || disk_count > COH_DISKS_MOST)
        return 0;
    for (uint32_t i = 0; i < disk_count; i++)
        if (disks[i].folder == NULL)
            return 0;
    char here[sizeof(profile->drive)];
    describe_drives(disks, disk_count, here, sizeof(here));
    return profile->drive[0] == '\0' || strcmp(profile->drive, here) == 0;
}

/* Adds up the free space of the drives; each file system counts once. */
static uint64_t free_bytes_of(const coh_disk *disks, uint32_t disk_count)
{
    dev_t systems[COH_DISKS_MOST] = { 0 };
    uint64_t sum = 0;
    for (uint32_t i = 0; i < disk_count; i++) {
        struct stat place;
        uint64_t bytes = 0;
        uint32_t first = 0;
        systems[i] = stat(disks[i].folder, &place) == 0 ? place.st_dev : 0;
        while (systems[first] != systems[i])
            first++;
        if (first == i && coh_space_free_bytes(disks[i].folder, &bytes) == COH_OK &&
            bytes < UINT64_MAX) /* else unknown, in a profile 0 */
            sum = bytes > UINT64_MAX - sum ? UINT64_MAX : sum + bytes;
    }
    return sum;
}

/* How many bytes this process may lock; UINT64_MAX: no limit. */
static uint64_t memlock_bytes(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return 0;
    return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : (uint64_t)limit.rlim_cur;
}

/* If all cores compute, the host lane's thread and the compute threads share them in proportion. */
static void share_cores(coh_profile *profile)
{
    const double threads = profile->threads;
    if (coh_machine_core_count() > profile->threads)
        return;
    profile->contention[COH_LANE_COMPUTE][COH_LANE_HOST] = threads / (threads + 1);
    profile->contention[COH_LANE_HOST][COH_LANE_COMPUTE] = threads / (threads + 1);
}

/* Describes the host device, or a GPU and its host. */
static void describe_device(const coh_measure *m)
{
    coh_profile *profile = m->profile;
    char host[sizeof(profile->machine)];
    if (m->bed->is_host) {
        share_cores(profile);
        describe(profile->machine, sizeof(profile->machine));
        profile->memory_bytes[COH_TIER_DEVICE] = coh_machine_free_bytes();
        return;
    }
    describe(host, sizeof(host));
    profile->device_kind = COH_DEVICE_CUDA;
    snprintf(profile->machine, sizeof(profile->machine), "%.*s%s%.76s", GPU_NAME_BYTES,
             m->bed->facts.name, BEHIND_GPU, host);
    profile->memory_bytes[COH_TIER_DEVICE] = m->bed->facts.memory_bytes;
    profile->memory_bytes[COH_TIER_HOST] = coh_machine_free_bytes();
}

void coh_measure_machine(coh_measure *m)
{
    coh_profile *profile = m->profile;
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(profile->date, sizeof(profile->date), "%Y-%m-%d", &local);
    if (profile->name[0] == '\0') /* else it is a known profile's name */
        snprintf(profile->name, sizeof(profile->name), "measured, %d thread%s%s",
                 (int)m->options->thread_count, COH_PLURAL_S(m->options->thread_count),
                 m->options->quick ? COH_MEASURE_QUICK : "");
    else if (m->options->quick && strstr(profile->name, COH_MEASURE_QUICK) == NULL)
        snprintf(profile->name + strlen(profile->name),
                 sizeof(profile->name) - strlen(profile->name), COH_MEASURE_QUICK);
    profile->source = COH_PROFILE_MEASURED;
    profile->threads = m->options->thread_count;
    describe_device(m);
    profile->fingerprint = coh_machine_fingerprint_of(profile);
    if (m->options->disk_count > 0) {
        describe_drives(m->options->disks, m->options->disk_count, profile->drive,
                        sizeof(profile->drive));
        profile->memory_bytes[COH_TIER_DISK] =
            free_bytes_of(m->options->disks, m->options->disk_count);
    }
    /* NVIDIA's driver pins pages itself and does not look at RLIMIT_MEMLOCK. */
    profile->memlock_bytes = m->bed->is_host ? memlock_bytes() : UINT64_MAX;
    profile->cgroup_bytes = coh_memory_limit_bytes();
}
