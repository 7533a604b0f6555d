/* The host's part of `cohobate doctor` (memory, cores, instruction sets, BLAS, disk), and the
 * machine facts that plans take as defaults. Next: cohobate/machine.h, machine_findings.h;
 * machine_cuda.c is the other part. */
#include "cohobate/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/plural.h"
#include "base/small_file.h"
#include "coh_config.h"
#include "cohobate/engine.h"
#include "cohobate/run.h"
#include "cohobate/terms.h"
#include "engine/machine_findings.h"
#include "kernels/product.h"
#include "memory/arena.h"
#include "memory/available.h"
#include "memory/topology.h"

#ifdef COH_HAVE_URING
#include "offload/store_uring.h"
#endif

/* Main memory that a process takes in addition to its arenas: code, stacks, library buffers; next
 * to a GPU also its driver and libraries. With a margin. */
#define BESIDE_ARENAS_BYTES (UINT64_C(128) << 20)
#define BESIDE_GPU_BYTES    (UINT64_C(2) << 30)
/* Half of it is for the rest of the machine. */
#define RESERVE_LEAST_BYTES (2 * BESIDE_ARENAS_BYTES)

uint64_t coh_machine_free_bytes(void)
{
    uint64_t available = coh_memory_available_bytes(NULL);
    if (available == UINT64_MAX) /* without /proc: what the C library knows */
        available = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t reserve = available / 16;
    if (reserve < RESERVE_LEAST_BYTES)
        reserve = RESERVE_LEAST_BYTES;
    return available > reserve ? available - reserve : 0;
}

uint64_t coh_machine_arena_bytes(int32_t process_count, int32_t is_gpu)
{
    const uint64_t share =
        coh_memory_available_bytes(NULL) / (process_count > 1 ? (uint64_t)process_count : 1);
    const uint64_t kept = is_gpu ? BESIDE_GPU_BYTES : BESIDE_ARENAS_BYTES;
    return share > kept ? share - kept : 0;
}

uint64_t coh_machine_file_bytes(int32_t process_count)
{
    const uint64_t left = coh_memory_of_files_bytes();
    const uint64_t kept = BESIDE_ARENAS_BYTES * (process_count > 1 ? (uint64_t)process_count : 1);
    return left > kept ? left - kept : 0;
}

uint64_t coh_machine_most_bytes(void)
{
    return coh_machine_arena_bytes(1, 0);
}

/* The limits of memory/available.h that a user can raise. */
static const struct {
    const char *name, *remedy;
    int is_of_process;
} limits[] = {
    { "MemAvailable", "end other programs, or give the container more memory", 0 },
    { "the memory nodes", "let numactl or cpuset.mems give the process more memory nodes", 0 },
    { "the commit limit", "raise vm.overcommit_ratio, or set vm.overcommit_memory to 0", 0 },
    { "the memory cgroup", "raise memory.max and memory.high of the cgroup or its container", 0 },
    { "RLIMIT_AS", "raise ulimit -v", 1 },
    { "RLIMIT_DATA", "raise ulimit -d", 1 },
};

static size_t find_limit(void)
{
    const char *name = "";
    size_t i = sizeof(limits) / sizeof(limits[0]) - 1;
    (void)coh_memory_available_bytes(&name);
    while (i > 0 && strcmp(limits[i].name, name) != 0)
        i--;
    return i;
}

const char *coh_machine_limit(const char **out_remedy)
{
    const size_t i = find_limit();
    if (out_remedy != NULL)
        *out_remedy = limits[i].remedy;
    return limits[i].name;
}

int coh_machine_is_limited(void)
{
    return limits[find_limit()].is_of_process;
}

uint64_t coh_machine_cgroup_bytes(void)
{
    return coh_memory_limit_bytes();
}

static int core_count_of(const coh_topology *topology, double quota_cores)
{
    if (quota_cores > 0 && quota_cores < topology->core_count)
        return (int)ceil(quota_cores);
    return topology->core_count;
}

/* A command asks ten times, and hwloc takes milliseconds: the topology is read again only where the
 * CPUs that this thread may run on are others. */
int coh_machine_core_count(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static coh_topology known;
    static cpu_set_t known_cpus;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    const int is_set = sched_getaffinity(0, sizeof(cpus), &cpus) == 0;
    pthread_mutex_lock(&mutex);
    if (!is_set || known.core_count == 0 || !CPU_EQUAL(&cpus, &known_cpus)) {
        (void)coh_topology_read(&known); /* if it fails, it reports one core */
        known_cpus = cpus;
    }
    const int count = core_count_of(&known, coh_cpu_quota_cores(""));
    pthread_mutex_unlock(&mutex);
    return count;
}

int coh_machine_bf16_is_fast(void)
{
    return coh_kernels_bf16() != COH_BF16_WIDENED;
}

coh_finding *coh_finding_next(coh_finding_list *list, const char *subject)
{
    coh_finding *finding = list->count < list->most ? &list->findings[list->count++] : &list->spare;
    *finding = (coh_finding){ .level = COH_FINDING_OK };
    COH_FINDING_SAY(finding->subject, "%s", subject);
    return finding;
}

void coh_finding_print(char *text, size_t text_bytes, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, text_bytes, format, arguments);
    va_end(arguments);
}

void coh_finding_blame(coh_finding *finding, coh_finding_level level, const char *cost,
                       const char *remedy, ...)
{
    va_list arguments;
    finding->level = level;
    COH_FINDING_SAY(finding->cost, "%s", cost);
    va_start(arguments, remedy);
    vsnprintf(finding->remedy, sizeof(finding->remedy), remedy, arguments);
    va_end(arguments);
}

static void examine_cores(coh_finding_list *list, const coh_topology *topology)
{
    coh_finding *finding = coh_finding_next(list, "cores");
    double quota = coh_cpu_quota_cores("");
    char cache[32];
    COH_FINDING_SAY(finding->found, "%d cores, %d hardware threads (%s), last-level cache %s",
                    topology->core_count, topology->thread_count,
                    topology->cpu_name[0] != '\0' ? topology->cpu_name : "unknown processor",
                    coh_size_format(topology->last_cache_bytes, cache, sizeof(cache)));
    if (quota <= 0 || quota >= topology->core_count)
        return;
    size_t used = strlen(finding->found);
    coh_finding_print(finding->found + used, sizeof(finding->found) - used,
                      ", of which the control group grants %.2f", quota);
    coh_finding_blame(finding, COH_FINDING_NOTE,
                      "all threads are stopped for the rest of a period once the quota is used up",
                      "raise the container's processor limit; %s is %d by default",
                      coh_term_text(COH_TERM_THREADS), core_count_of(topology, quota));
}

static void examine_instruction_set(coh_finding_list *list)
{
    coh_finding *finding = coh_finding_next(list, "instruction set");
    const char *path = coh_kernel_path();
    int length = (int)strcspn(path, "+");
    COH_FINDING_SAY(finding->found, "kernels run on the %.*s path", length, path);
    if (coh_kernels_bf16() == COH_BF16_PRETENDED)
        coh_finding_blame(finding, COH_FINDING_NOTE,
                          "COH_ISA=bf16-pretended, a test setting: bf16 is the default dtype, but "
                          "is not multiplied in hardware",
                          "unset COH_ISA");
    if (strncmp(path, "plain", 5) != 0)
        return;
    coh_finding_blame(
        finding, COH_FINDING_NOTE, "norms, attention and updates run on plain C", "%s",
        getenv("COH_ISA") != NULL ? "unset COH_ISA" : "a processor with AVX2 or AVX-512 is faster");
}

static void examine_products(coh_finding_list *list)
{
    coh_finding *finding = coh_finding_next(list, "matrix products");
    static const char *const how[] = {
        [COH_BF16_WIDENED] = "widened to f32, as this processor has no bf16 products",
        [COH_BF16_HARDWARE] = "in hardware",
        [COH_BF16_PRETENDED] = "widened to f32, as COH_ISA=bf16-pretended asks",
    };
    const coh_bf16_support bf16 = coh_kernels_bf16();
    const int is_limited = bf16 == COH_BF16_WIDENED && getenv("COH_ISA") != NULL;
    COH_FINDING_SAY(finding->found, "bf16 by %s, %s; f32 by %s; oneDNN %s; %s is %s unless given",
                    coh_product_name(coh_product_default(COH_DTYPE_BF16)),
                    is_limited ? "widened to f32 with this COH_ISA" : how[bf16],
                    coh_product_name(coh_product_default(COH_DTYPE_F32)),
                    coh_product_available(COH_PRODUCT_ONEDNN, COH_DTYPE_F32)
                        ? "can be had"
                        : "is not in this build",
                    coh_term_text(COH_TERM_DTYPE), coh_machine_bf16_is_fast() ? "bf16" : "f32");
}

/* Is this a core type of OpenBLAS that does not use AVX-512? */
static int is_narrow_core(const char *core)
{
    static const char *const narrow[] = { "Haswell", "Zen", "Sandybridge", "Nehalem", "Prescott" };
    for (size_t i = 0; i < sizeof(narrow) / sizeof(narrow[0]); i++)
        if (strcasecmp(core, narrow[i]) == 0)
            return 1;
    return 0;
}

static int has_avx512(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
#else
    return 0;
#endif
}

static void report_missing_blas(coh_finding *finding)
{
    if (coh_kernel_fallback()[0] == '\0') {
        COH_FINDING_SAY(finding->found, "OpenBLAS cannot be loaded; nothing here needs it");
        return;
    }
    COH_FINDING_SAY(finding->found, "OpenBLAS cannot be loaded");
    coh_finding_blame(finding, COH_FINDING_WARN,
                      "f32 products run on panels: slower, and with other bits than with OpenBLAS",
                      "%s", coh_kernel_fallback());
}

/* Examines variables that some machines preset without the user's knowledge. They can halve the
 * speed of products. */
static void examine_blas(coh_finding_list *list)
{
    static const char *const variables[] = { "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE",
                                             "COH_PLAIN_MATMUL" };
    coh_finding *finding = coh_finding_next(list, "BLAS");
    const char *core = coh_openblas_core();
    if (coh_openblas_why_not()[0] != '\0') {
        report_missing_blas(finding);
        return;
    }
    char preset[128] = "";
    char unset[96] = "";
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *value = getenv(variables[i]);
        if (value == NULL)
            continue;
        size_t used = strlen(preset), unset_used = strlen(unset);
        coh_finding_print(preset + used, sizeof(preset) - used, " %s=%.20s", variables[i], value);
        coh_finding_print(unset + unset_used, sizeof(unset) - unset_used, " %s", variables[i]);
    }
    COH_FINDING_SAY(finding->found, "core type %s of %s%s%s", core, coh_openblas_config(),
                    preset[0] != '\0' ? "; preset:" : "", preset);
    if (preset[0] == '\0')
        return;
    int is_used = coh_product_default(COH_DTYPE_F32) == COH_PRODUCT_OPENBLAS;
    int slow =
        getenv("COH_PLAIN_MATMUL") != NULL || (is_used && has_avx512() && is_narrow_core(core));
    coh_finding_blame(finding, slow ? COH_FINDING_WARN : COH_FINDING_NOTE,
                      slow ? "about half the speed of matrix products: 250 instead of 450 to 490 "
                             "GFLOP/s were measured on two cores with AVX-512"
                      : !is_used ? "nothing as it is: our own panels multiply here; a kernel table "
                                   "that names openblas would be slower and round otherwise"
                                 : "the bits of a run depend on the core type: another machine "
                                   "without these variables may round otherwise",
                      "unset%s", unset);
}

static void examine_memory(coh_finding_list *list)
{
    coh_finding *finding = coh_finding_next(list, "memory");
    const char *remedy, *wall = coh_machine_limit(&remedy);
    char total[32], available[32], free_text[32];
    uint64_t total_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t free_bytes = coh_machine_free_bytes();
    coh_size_format(coh_memory_available_bytes(NULL), available, sizeof(available));
    coh_size_format(free_bytes, free_text, sizeof(free_text));
    COH_FINDING_SAY(finding->found, "%s in all, %s available (%s), %s of it without the reserve",
                    coh_size_format(total_bytes, total, sizeof(total)), available, wall, free_text);
    if (free_bytes >= RESERVE_LEAST_BYTES)
        return;
    finding->level = COH_FINDING_WARN;
    COH_FINDING_SAY(finding->cost, "the default budget is %s: most models do not plan in it",
                    free_text);
    COH_FINDING_SAY(finding->remedy, "%s", remedy);
}

static void examine_cgroup(coh_finding_list *list)
{
    coh_finding *finding = coh_finding_next(list, "cgroup");
    uint64_t limit = coh_memory_limit_bytes();
    char text[32];
    if (limit == UINT64_MAX) {
        COH_FINDING_SAY(finding->found, "no memory limit");
        return;
    }
    COH_FINDING_SAY(finding->found, "memory limit of %s",
                    coh_size_format(limit, text, sizeof(text)));
    coh_finding_blame(
        finding, COH_FINDING_OK,
        "beyond memory.max the kernel kills the process, beyond memory.high it slows it down; page "
        "cache that is not written yet counts, too",
        "keep %s and 128 MiB of overhead below it", coh_term_text(COH_TERM_DEVICE_MEMORY));
}

static void examine_huge_pages(coh_finding_list *list)
{
    coh_finding *finding = coh_finding_next(list, "huge pages");
    char text[128];
    if (!coh_small_file_read("", "/sys/kernel/mm/transparent_hugepage/enabled", "", text,
                             sizeof(text))) {
        COH_FINDING_SAY(finding->found, "this kernel has no transparent huge pages");
    } else if (strstr(text, "[never]") != NULL) {
        COH_FINDING_SAY(finding->found, "transparent huge pages are switched off");
    } else {
        COH_FINDING_SAY(finding->found, "transparent huge pages: %s",
                        strstr(text, "[always]") != NULL ? "always" : "for those who ask (arenas)");
        return;
    }
    coh_finding_blame(finding, COH_FINDING_NOTE,
                      "arenas are touched and translated in pages of 4 KiB: a slower start, more "
                      "misses in the translation cache",
                      "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
}

static void examine_numa(coh_finding_list *list, const coh_topology *topology)
{
    coh_finding *finding = coh_finding_next(list, "NUMA");
    COH_FINDING_SAY(finding->found, "%d memory node%s", topology->node_count,
                    COH_PLURAL_S(topology->node_count));
    if (topology->node_count == 1)
        return;
    coh_finding_blame(finding, COH_FINDING_NOTE,
                      "arenas are spread over the nodes (pinned memory is by its GPU where it "
                      "fits); part of every access crosses between them",
                      "if the model fits one node, bind its processors and memory with numactl");
}

/* ---- the disk: each interface is tried on a scratch file, as versions do not tell ---- */

/* Does CAP_IPC_LOCK lift the limit of locked memory? */
static int may_lock_any(void)
{
    char text[4096];
    if (!coh_small_file_read("", "/proc/self/status", "", text, sizeof(text)))
        return 0;
    const char *line = strstr(text, "CapEff:");
    return line != NULL && (strtoull(line + strlen("CapEff:"), NULL, 16) >> 14 & 1);
}

static void examine_memlock(coh_finding_list *list)
{
    coh_finding *finding = coh_finding_next(list, "memlock");
    struct rlimit limit;
    char text[32];
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        limit.rlim_cur = 0;
    if (limit.rlim_cur == RLIM_INFINITY) {
        COH_FINDING_SAY(finding->found, "no limit on locked memory");
        return;
    }
    coh_size_format(limit.rlim_cur, text, sizeof(text));
    if (may_lock_any()) {
        COH_FINDING_SAY(finding->found, "limit of %s, which does not bind this user (CAP_IPC_LOCK)",
                        text);
        return;
    }
    COH_FINDING_SAY(finding->found, "at most %s of locked memory", text);
    coh_finding_blame(
        finding, COH_FINDING_NOTE,
        "arenas beyond it cannot be registered with io_uring: each transfer maps its pages again",
        "ulimit -l unlimited, or LimitMEMLOCK=infinity in the service's unit");
}

#ifdef COH_HAVE_URING
/* Makes a small ring, tries it, and registers one page with it. Returns 0 or -errno. */
static int uring_probe(int *out_registered)
{
    struct io_uring ring;
    int code = io_uring_queue_init(4, &ring, 0);
    *out_registered = 0;
    if (code < 0)
        return code;
    void *page = NULL;
    if (posix_memalign(&page, COH_PAGE_BYTES, COH_PAGE_BYTES) == 0) {
        struct iovec piece = { .iov_base = page, .iov_len = COH_PAGE_BYTES };
        *out_registered = io_uring_register_buffers(&ring, &piece, 1) == 0;
    }
    code = coh_ring_try(&ring);
    io_uring_queue_exit(&ring);
    free(page);
    return code;
}

static const char *uring_remedy(int code)
{
    return code == -ENOSYS || code == -EOPNOTSUPP
               ? "a kernel of 5.6 or newer"
               : "sysctl kernel.io_uring_disabled=0; in a container: allow io_uring_setup in its "
                 "seccomp profile";
}
#endif

static void examine_uring(coh_finding_list *list)
{
    coh_finding *finding = coh_finding_next(list, "io_uring");
    static const char slower[] = "transfers run on posix threads with pread and pwrite: more "
                                 "processor time for the same bytes";
#ifdef COH_HAVE_URING
    int registered;
    int code = uring_probe(&registered);
    if (code == 0 && registered) {
        COH_FINDING_SAY(finding->found, "works, with registered buffers");
    } else if (code == 0) {
        COH_FINDING_SAY(finding->found, "works, but registering a buffer was denied");
        coh_finding_blame(finding, COH_FINDING_NOTE, "each transfer maps its pages again",
                          "ulimit -l unlimited");
    } else {
        if (code == -EOPNOTSUPP)
            COH_FINDING_SAY(finding->found, "lacks reads and writes");
        else
            COH_FINDING_SAY(finding->found, "denied: %s", strerror(-code));
        coh_finding_blame(finding, COH_FINDING_WARN, slower, "%s", uring_remedy(code));
    }
#else
    COH_FINDING_SAY(finding->found, "not in this build");
    coh_finding_blame(finding, COH_FINDING_NOTE, slower, "install liburing-dev and build again");
#endif
}

/* Opens an unnamed file in `folder`, or a named one, unlinked at once, if the file system has no
 * O_TMPFILE. Returns a descriptor or -errno. */
static int scratch_open(const char *folder, int flags)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd >= 0)
        return fd;
    char path[4096];
    int length = snprintf(path, sizeof(path), "%s/.cohobate-probe-%ld", folder, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof(path))
        return -ENAMETOOLONG;
    fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
    int code = fd < 0 ? -errno : fd;
    if (code != -EEXIST) /* some file systems create the file, then refuse O_DIRECT */
        unlink(path);
    return code;
}

/* Writes a page and reads it back. Returns 0 or -errno; -EIO if the page differs. */
static int page_round_trip(int fd)
{
    void *page = NULL;
    if (posix_memalign(&page, COH_PAGE_BYTES, COH_PAGE_BYTES) != 0)
        return -ENOMEM;
    int code = -EIO;
    memset(page, 0x5a, COH_PAGE_BYTES);
    if (pwrite(fd, page, COH_PAGE_BYTES, 0) != (ssize_t)COH_PAGE_BYTES) {
        code = errno != 0 ? -errno : -EIO;
    } else {
        memset(page, 0, COH_PAGE_BYTES);
        if (pread(fd, page, COH_PAGE_BYTES, 0) == (ssize_t)COH_PAGE_BYTES &&
            ((unsigned char *)page)[COH_PAGE_BYTES - 1] == 0x5a)
            code = 0;
    }
    free(page);
    return code;
}

static void examine_direct(coh_finding_list *list, const char *folder)
{
    coh_finding *finding = coh_finding_next(list, "O_DIRECT");
    int fd = scratch_open(folder, O_DIRECT);
    int code = fd < 0 ? fd : page_round_trip(fd);
    if (fd >= 0)
        close(fd);
    if (code == 0) {
        COH_FINDING_SAY(finding->found, "works in %.200s", folder);
        return;
    }
    int plain = scratch_open(folder, 0);
    if (plain < 0) {
        COH_FINDING_SAY(finding->found, "no file can be made in %.150s: %s", folder,
                        strerror(-plain));
        coh_finding_blame(finding, COH_FINDING_WARN, "it cannot be the disk tier",
                          "choose another folder with %s", coh_term_text(COH_TERM_DISK));
        return;
    }
    close(plain);
    COH_FINDING_SAY(finding->found, "refused in %.150s: %s", folder, strerror(-code));
    coh_finding_blame(
        finding, COH_FINDING_WARN,
        "the disk tier goes through the page cache, which is memory outside the budget",
        "%s on a local ext4, xfs or btrfs file system", coh_term_text(COH_TERM_DISK));
}

const char *coh_file_system_name(long magic)
{
    static const struct {
        long magic;
        const char *name;
    } known[] = { { 0xef53, "ext4" },      { 0x58465342, "xfs" },     { 0x9123683e, "btrfs" },
                  { 0x01021994, "tmpfs" }, { 0x794c7630, "overlay" }, { 0x6969, "nfs" },
                  { 0x2fc12fc1, "zfs" },   { 0xf2f52010, "f2fs" } };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].magic == magic)
            return known[i].name;
    return "a file system";
}

static void examine_disk(coh_finding_list *list, const char *folder)
{
    coh_finding *finding = coh_finding_next(list, "disk");
    struct statfs facts;
    uint64_t free_bytes;
    char text[32];
    if (statfs(folder, &facts) != 0 || coh_space_free_bytes(folder, &free_bytes) != COH_OK) {
        finding->level = COH_FINDING_WARN;
        COH_FINDING_SAY(finding->found, "the file system of %.200s cannot be looked at", folder);
        COH_FINDING_SAY(finding->remedy, "name a folder that exists");
        return;
    }
    const char *name = coh_file_system_name((long)facts.f_type);
    COH_FINDING_SAY(finding->found, "%s free on %s of %.150s",
                    free_bytes == UINT64_MAX ? "an unknown amount"
                                             : coh_size_format(free_bytes, text, sizeof(text)),
                    name, folder);
    if (strcmp(name, "tmpfs") == 0) {
        coh_finding_blame(finding, COH_FINDING_WARN,
                          "its files are in memory: nothing is gained by moving there",
                          "%s on a real disk", coh_term_text(COH_TERM_DISK));
    } else if (strcmp(name, "nfs") == 0 || strcmp(name, "overlay") == 0) {
        coh_finding_blame(finding, COH_FINDING_NOTE,
                          strcmp(name, "nfs") == 0 ? "every transfer crosses the network"
                                                   : "an overlay adds a layer to every transfer",
                          "%s on a local disk or a mounted volume", coh_term_text(COH_TERM_DISK));
    }
}

/* Measures each drive; one of less than half the rate of another is named, as it adds little. */
static void examine_rates(coh_finding_list *list, const coh_disk *given, uint32_t disk_count)
{
    coh_disk disks[COH_DISKS_MOST];
    uint32_t best = 0;
    memcpy(disks, given, disk_count * sizeof(disks[0]));
    if (coh_disks_measure(disks, disk_count) != COH_OK) {
        COH_FINDING_SAY(coh_finding_next(list, "drive")->found, "not measured: %.200s",
                        coh_last_error());
        return;
    }
    for (uint32_t i = 1; i < disk_count; i++)
        best = disks[i].bytes_per_s > disks[best].bytes_per_s ? i : best;
    for (uint32_t i = 0; i < disk_count && disks[i].bytes_per_s > 0; i++) {
        coh_finding *finding = coh_finding_next(list, "drive");
        COH_FINDING_SAY(finding->found, "%.2f GB/s of reads and writes in turn in %.150s",
                        disks[i].bytes_per_s * 1e-9, disks[i].folder);
        if (2 * disks[i].bytes_per_s < disks[best].bytes_per_s)
            coh_finding_blame(finding, COH_FINDING_NOTE,
                              "it is slow next to the others: its share of the working store is "
                              "small",
                              "leave it out, or give a folder on a faster drive");
    }
}

coh_status coh_machine_examine(const coh_disk *disks, uint32_t disk_count,
                               coh_finding *out_findings, size_t most, size_t *out_count)
{
    COH_NEED(out_count);
    *out_count = 0;
    if (out_findings == NULL && most > 0)
        return coh_fail(COH_ERR_ARGUMENT, "no room for findings was given");
    COH_NEED(disks);
    COH_TRY(coh_check_integer("disk_count", disk_count, 1, COH_DISKS_MOST));
    for (uint32_t i = 0; i < disk_count; i++) {
        COH_NEED_PATH(disks[i].folder);
        COH_TRY(coh_check_number("bytes_per_s", disks[i].bytes_per_s, 0, DBL_MAX));
    }
    coh_finding_list list = { .findings = out_findings, .most = most };
    coh_topology topology;
    (void)coh_topology_read(&topology);
    examine_cores(&list, &topology);
    examine_instruction_set(&list);
    examine_products(&list);
    examine_blas(&list);
    examine_memory(&list);
    examine_cgroup(&list);
    examine_huge_pages(&list);
    examine_numa(&list, &topology);
    examine_memlock(&list);
    examine_uring(&list);
    for (uint32_t i = 0; i < disk_count; i++) {
        examine_direct(&list, disks[i].folder);
        examine_disk(&list, disks[i].folder);
    }
    examine_rates(&list, disks, disk_count);
    coh_examine_cuda(&list);
    *out_count = list.count;
    return COH_OK;
}
