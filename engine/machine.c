/* The host's part of `cohobate doctor` (memory, cores, instruction sets, BLAS), and the machine
 * facts that plans take as defaults. Next: cohobate/machine.h, machine_findings.h; machine_disk.c
 * and machine_cuda.c are the other parts. */
#include "cohobate/machine.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/small_file.h"
#include "cohobate/engine.h"
#include "cohobate/terms.h"
#include "engine/machine_findings.h"
#include "kernels/product.h"
#include "memory/arena.h"
#include "memory/available.h"
#include "memory/topology.h"

#define SIZE_TEXT_BYTES 32

/* The process takes less than 128 MiB in addition to the arenas (code, stacks, library buffers);
 * the other half is for the rest of the machine. */
#define RESERVE_LEAST_BYTES (UINT64_C(256) << 20)

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

uint64_t coh_machine_most_bytes(void)
{
    const uint64_t available = coh_memory_available_bytes(NULL);
    return available > COH_ARENA_RESERVE_BYTES ? available - COH_ARENA_RESERVE_BYTES : 0;
}

int coh_machine_is_limited(void)
{
    const char *wall = "";
    (void)coh_memory_available_bytes(&wall);
    return strcmp(wall, "RLIMIT_AS") == 0;
}

static int core_count_of(const coh_topology *topology, double quota_cores)
{
    if (quota_cores > 0 && quota_cores < topology->core_count)
        return (int)ceil(quota_cores);
    return topology->core_count;
}

int coh_machine_core_count(void)
{
    coh_topology topology;
    (void)coh_topology_read(&topology); /* if it fails, it reports one core */
    return core_count_of(&topology, coh_cpu_quota_cores(""));
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

static void examine_cores(coh_finding_list *list, const coh_topology *topology)
{
    coh_finding *finding = coh_finding_next(list, "cores");
    double quota = coh_cpu_quota_cores("");
    char cache[SIZE_TEXT_BYTES];
    COH_FINDING_SAY(finding->found, "%d cores, %d hardware threads (%s), last-level cache %s",
                    topology->core_count, topology->thread_count,
                    topology->cpu_name[0] != '\0' ? topology->cpu_name : "unknown processor",
                    coh_size_format(topology->last_cache_bytes, cache, sizeof(cache)));
    if (quota <= 0 || quota >= topology->core_count)
        return;
    finding->level = COH_FINDING_NOTE;
    size_t used = strlen(finding->found);
    coh_finding_print(finding->found + used, sizeof(finding->found) - used,
                      ", of which the control group grants %.2f", quota);
    COH_FINDING_SAY(finding->cost, "all threads are stopped for the rest of a period once the "
                                   "quota is used up");
    COH_FINDING_SAY(finding->remedy, "raise the container's processor limit; %s is %d by default",
                    coh_term_text(COH_TERM_THREADS), core_count_of(topology, quota));
}

static void examine_instruction_set(coh_finding_list *list)
{
    coh_finding *finding = coh_finding_next(list, "instruction set");
    const char *path = coh_kernel_path();
    int length = (int)strcspn(path, "+");
    COH_FINDING_SAY(finding->found, "kernels run on the %.*s path", length, path);
    if (coh_kernels_bf16() == COH_BF16_PRETENDED) {
        finding->level = COH_FINDING_NOTE;
        COH_FINDING_SAY(finding->cost,
                        "COH_ISA=bf16-pretended, a test setting: bf16 is the default "
                        "dtype, but is not multiplied in hardware");
        COH_FINDING_SAY(finding->remedy, "unset COH_ISA");
    }
    if (strncmp(path, "plain", 5) != 0)
        return;
    finding->level = COH_FINDING_NOTE;
    COH_FINDING_SAY(finding->cost, "norms, attention and updates run on plain C");
    COH_FINDING_SAY(finding->remedy, "%s",
                    getenv("COH_ISA") != NULL ? "unset COH_ISA"
                                              : "a processor with AVX2 or AVX-512 is faster");
}

static void examine_products(coh_finding_list *list)
{
    coh_finding *finding = coh_finding_next(list, "matrix products");
    static const char *const how[] = {
        [COH_BF16_WIDENED] = "widened to f32, as this processor has no bf16 products",
        [COH_BF16_HARDWARE] = "in hardware",
        [COH_BF16_PRETENDED] = "widened to f32, as COH_ISA=bf16-pretended asks",
    };
    COH_FINDING_SAY(finding->found, "bf16 by %s, %s; f32 by %s; oneDNN %s; %s is %s unless given",
                    coh_product_name(coh_product_default(COH_DTYPE_BF16)), how[coh_kernels_bf16()],
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
    finding->level = COH_FINDING_WARN;
    COH_FINDING_SAY(finding->found, "OpenBLAS cannot be loaded");
    COH_FINDING_SAY(finding->cost, "f32 products run on panels: slower, and with other bits than "
                                   "with OpenBLAS");
    COH_FINDING_SAY(finding->remedy, "%s", coh_kernel_fallback());
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
    finding->level = slow ? COH_FINDING_WARN : COH_FINDING_NOTE;
    COH_FINDING_SAY(finding->cost, "%s",
                    slow ? "about half the speed of matrix products: 250 instead of 450 to 490 "
                           "GFLOP/s were measured on two cores with AVX-512"
                    : !is_used
                        ? "nothing as it is: our own panels multiply here; a kernel table that "
                          "names openblas would be slower and round otherwise"
                        : "the bits of a run depend on the core type: another machine without "
                          "these variables may round otherwise");
    COH_FINDING_SAY(finding->remedy, "unset%s", unset);
}

static void examine_memory(coh_finding_list *list)
{
    coh_finding *finding = coh_finding_next(list, "memory");
    const char *wall = "";
    char total[SIZE_TEXT_BYTES], available[SIZE_TEXT_BYTES], free_text[SIZE_TEXT_BYTES];
    uint64_t total_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t free_bytes = coh_machine_free_bytes();
    coh_size_format(coh_memory_available_bytes(&wall), available, sizeof(available));
    coh_size_format(free_bytes, free_text, sizeof(free_text));
    COH_FINDING_SAY(finding->found, "%s in all, %s available (%s), %s of it without the reserve",
                    coh_size_format(total_bytes, total, sizeof(total)), available, wall, free_text);
    if (free_bytes >= RESERVE_LEAST_BYTES)
        return;
    finding->level = COH_FINDING_WARN;
    COH_FINDING_SAY(finding->cost, "the default budget is %s: most models do not plan in it",
                    free_text);
    COH_FINDING_SAY(finding->remedy, "%s",
                    coh_machine_is_limited()
                        ? "raise ulimit -v"
                        : "end other programs, or give the container more memory");
}

static void examine_cgroup(coh_finding_list *list)
{
    coh_finding *finding = coh_finding_next(list, "cgroup");
    uint64_t limit = coh_memory_limit_bytes();
    char text[SIZE_TEXT_BYTES];
    if (limit == UINT64_MAX) {
        COH_FINDING_SAY(finding->found, "no memory limit");
        return;
    }
    COH_FINDING_SAY(finding->found, "memory limit of %s",
                    coh_size_format(limit, text, sizeof(text)));
    COH_FINDING_SAY(finding->cost, "beyond it the kernel kills the process; page cache of the "
                                   "files it reads counts, too");
    COH_FINDING_SAY(finding->remedy, "keep %s and 128 MiB of overhead below it",
                    coh_term_text(COH_TERM_DEVICE_MEMORY));
}

static void examine_huge_pages(coh_finding_list *list)
{
    coh_finding *finding = coh_finding_next(list, "huge pages");
    char text[128];
    if (!coh_small_file_read("", "/sys/kernel/mm/transparent_hugepage/enabled", "", text,
                             sizeof(text))) {
        COH_FINDING_SAY(finding->found, "this kernel has no transparent huge pages");
        finding->level = COH_FINDING_NOTE;
    } else if (strstr(text, "[never]") != NULL) {
        COH_FINDING_SAY(finding->found, "transparent huge pages are switched off");
        finding->level = COH_FINDING_NOTE;
    } else {
        COH_FINDING_SAY(finding->found, "transparent huge pages: %s",
                        strstr(text, "[always]") != NULL ? "always" : "for those who ask (arenas)");
        return;
    }
    COH_FINDING_SAY(finding->cost, "arenas are touched and translated in pages of 4 KiB: a slower "
                                   "start, more misses in the translation cache");
    COH_FINDING_SAY(finding->remedy,
                    "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
}

static void examine_numa(coh_finding_list *list, const coh_topology *topology)
{
    coh_finding *finding = coh_finding_next(list, "NUMA");
    COH_FINDING_SAY(finding->found, "%d memory node%s", topology->node_count,
                    topology->node_count == 1 ? "" : "s");
    if (topology->node_count == 1)
        return;
    finding->level = COH_FINDING_NOTE;
    COH_FINDING_SAY(finding->cost,
                    "arenas are spread over the nodes (pinned memory is by its GPU where it fits); "
                    "part of every access crosses between them");
    COH_FINDING_SAY(finding->remedy,
                    "if the model fits one node, bind its processors and memory with numactl");
}

coh_status coh_machine_examine(const char *folder, coh_finding *out_findings, size_t most,
                               size_t *out_count)
{
    COH_NEED(out_count);
    *out_count = 0;
    if (folder == NULL || (out_findings == NULL && most > 0))
        return coh_fail(COH_ERR_ARGUMENT, "no folder or no room for findings was given");
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
    coh_examine_memlock(&list);
    coh_examine_uring(&list);
    coh_examine_direct(&list, folder);
    coh_examine_disk(&list, folder);
    coh_examine_cuda(&list);
    *out_count = list.count;
    return COH_OK;
}
