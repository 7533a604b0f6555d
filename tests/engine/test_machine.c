/* Properties of the machine (cohobate/machine.h, memory/available.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/small_file.h"
#include "coh_config.h"
#include "cohobate/machine.h"
#include "memory/available.h"
#include "tests/temporary.h"

#ifdef COH_HAVE_URING
#include "tests/old_ring.h"
#endif

#define FINDINGS_MOST 48

static char folder[256];

static int make_folder(void **state)
{
    (void)state;
    return temporary_folder(folder, sizeof(folder), "machine");
}

static int remove_folder(void **state)
{
    (void)state;
    return temporary_remove(folder);
}

/* Writes a file below `folder` and makes its parent folders. */
static void plant(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof(full), "%s%s", folder, path);
    for (char *at = full + strlen(folder) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(full, 0700);
        *at = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void the_smallest_quota_on_the_way_up_counts(void **state)
{
    (void)state;
    assert_true(coh_cpu_quota_cores(folder) == 0); /* no file exists */
    plant("/proc/self/cgroup", "0::/slice/unit\n");
    plant("/sys/fs/cgroup/slice/unit/cpu.max", "400000 100000\n");
    assert_true(coh_cpu_quota_cores(folder) == 4);
    plant("/sys/fs/cgroup/slice/cpu.max", "150000 100000\n");
    assert_true(coh_cpu_quota_cores(folder) == 1.5);
    plant("/sys/fs/cgroup/slice/cpu.max", "max 100000\n");
    assert_true(coh_cpu_quota_cores(folder) == 4);
    plant("/sys/fs/cgroup/slice/unit/cpu.max", "max 100000\n");
    assert_true(coh_cpu_quota_cores(folder) == 0);
}

static void a_group_that_is_not_visible_falls_back_to_the_mount(void **state)
{
    (void)state;
    plant("/proc/self/cgroup", "0::/docker/0123abc\n");
    plant("/sys/fs/cgroup/cpu.max", "250000 100000\n");
    assert_true(coh_cpu_quota_cores(folder) == 2.5);
}

static void version_1_groups_are_read_by_controller(void **state)
{
    (void)state;
    plant("/proc/self/cgroup", "5:cpuset:/other\n4:cpu,cpuacct:/a\n1:memory:/a\n");
    plant("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000\n");
    plant("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    plant("/sys/fs/cgroup/cpuset/other/cpu.cfs_quota_us", "100000\n"); /* no CPU group */
    plant("/sys/fs/cgroup/cpuset/other/cpu.cfs_period_us", "100000\n");
    assert_true(coh_cpu_quota_cores(folder) == 3);
    plant("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
    assert_true(coh_cpu_quota_cores(folder) == 0);
}

static uint64_t throttled_under_folder(void)
{
    const int descriptor = coh_cpu_throttle_open(folder);
    const uint64_t ns = coh_cpu_throttled_ns(descriptor);
    if (descriptor >= 0)
        close(descriptor);
    return ns;
}

static void throttling_is_that_of_the_nearest_group_with_a_limit(void **state)
{
    (void)state;
    assert_true(throttled_under_folder() == UINT64_MAX); /* no file exists */
    plant("/proc/self/cgroup", "0::/slice/unit\n");
    plant("/sys/fs/cgroup/slice/unit/cpu.stat", "usage_usec 12\nuser_usec 8\n");
    assert_true(throttled_under_folder() == UINT64_MAX);
    plant("/sys/fs/cgroup/slice/cpu.stat", "usage_usec 99\nnr_throttled 3\nthrottled_usec 250\n");
    assert_true(throttled_under_folder() == 250000);
    plant("/proc/self/cgroup", "4:cpu,cpuacct:/a\n");
    plant("/sys/fs/cgroup/cpu/a/cpu.stat", "nr_periods 7\nthrottled_time 1234567\n");
    assert_true(throttled_under_folder() == 1234567);
}

static void cores_are_those_this_process_may_run_on(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    assert_in_range(coh_machine_core_count(), 1, CPU_COUNT(&before));
    int first = 0;
    while (!CPU_ISSET(first, &before))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    /* In a child process, which has no OpenBLAS thread that might run elsewhere. */
    pid_t child = fork();
    if (child == 0)
        _exit(sched_setaffinity(0, sizeof(one), &one) == 0 ? coh_machine_core_count() : 100);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
}

static void free_bytes_leave_a_reserve(void **state)
{
    (void)state;
    unsigned long long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "r");
    assert_non_null(file);
    while (kib == 0 && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "MemTotal: %llu kB", &kib) != 1)
            kib = 0;
    fclose(file);
    uint64_t total = (uint64_t)kib * 1024;
    assert_true(total > 0);
    uint64_t reserve = total / 16 > (256u << 20) ? 0 : 256u << 20; /* 1/16 of the free bytes */
    assert_true(coh_machine_free_bytes() + reserve <= total);
}

/* A limit of the process holds still while it is read again, and free memory does not. */
static void each_process_keeps_memory_in_addition_to_its_arenas(void **state)
{
    (void)state;
    const uint64_t mib = 1 << 20, left = 3072 * mib;
    struct rlimit before, limit;
    char text[8192];
    uint64_t kib = 0, bytes[2][4];
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    assert_true(coh_small_file_read("", "/proc/self/status", "", text, sizeof(text)));
    assert_true(coh_small_file_number(text, "VmSize:", &kib));
    limit = before;
    limit.rlim_cur = kib * 1024 + left;
    if (limit.rlim_cur > before.rlim_cur || coh_memory_available_bytes(NULL) < 2 * left) {
        print_message("less than 6 GiB are free\n");
        skip();
    }
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    for (int is_gpu = 0; is_gpu < 2; is_gpu++)
        for (int32_t count = 0; count < 4; count++)
            bytes[is_gpu][count] = coh_machine_arena_bytes(count, is_gpu);
    const uint64_t most = coh_machine_most_bytes();
    const uint64_t of_files = coh_machine_file_bytes(1);
    const int is_limited = coh_machine_is_limited();
    const char *remedy, *name = coh_machine_limit(&remedy);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    const uint64_t there = bytes[0][1] + 128 * mib; /* `left`, or less by what the heap took */
    assert_true(there <= left && there + mib > left);
    assert_int_equal(bytes[0][0], bytes[0][1]);
    assert_int_equal(bytes[0][2], there / 2 - 128 * mib);
    assert_int_equal(bytes[0][3], there / 3 - 128 * mib);
    assert_int_equal(bytes[1][1], there - 2048 * mib);
    assert_int_equal(bytes[1][2], 0);
    assert_int_equal(most, bytes[0][1]);
    assert_true(of_files > left); /* a limit of the process does not bound files in memory */
    assert_true(is_limited);
    assert_string_equal(name, "RLIMIT_AS");
    assert_string_equal(remedy, "raise ulimit -v");
}

static const coh_finding *find(const coh_finding *findings, size_t count, const char *subject)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(findings[i].subject, subject) == 0)
            return &findings[i];
    return NULL;
}

static void every_subject_is_examined_and_a_warning_says_what_to_do(void **state)
{
    (void)state;
    static const char *const subjects[] = {
        "cores",    "instruction set", "BLAS",     "memory",   "cgroup", "huge pages",
        "NUMA",     "memlock",         "io_uring", "O_DIRECT", "disk",   "CUDA",
#ifdef COH_HAVE_CUDA
        "cuBLASLt", "cuDNN",
#endif
#ifdef COH_HAVE_NCCL
        "NCCL",
#endif
    };
    coh_finding findings[FINDINGS_MOST];
    size_t count = 0;
    assert_int_equal(coh_machine_examine(&(coh_disk){ folder, UINT64_MAX, 0 }, 1, findings,
                                         FINDINGS_MOST, &count),
                     COH_OK);
    for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++)
        if (find(findings, count, subjects[i]) == NULL)
            fail_msg("there is no finding about %s", subjects[i]);
    for (size_t i = 0; i < count; i++) {
        const coh_finding *finding = &findings[i];
        assert_true(finding->found[0] != '\0');
        if (finding->level != COH_FINDING_OK && finding->cost[0] == '\0')
            fail_msg("%s: '%s' without what it costs", finding->subject, finding->found);
        if (finding->level == COH_FINDING_WARN && finding->remedy[0] == '\0')
            fail_msg("%s: '%s' without what to do", finding->subject, finding->found);
    }
}

#ifdef COH_HAVE_URING
static void an_io_uring_without_reads_and_writes_is_a_warning(void **state)
{
    (void)state;
    coh_finding findings[FINDINGS_MOST];
    size_t count = 0;
    ring_is_old = 1;
    assert_int_equal(coh_machine_examine(&(coh_disk){ folder, UINT64_MAX, 0 }, 1, findings,
                                         FINDINGS_MOST, &count),
                     COH_OK);
    ring_is_old = 0;
    const coh_finding *ring = find(findings, count, "io_uring");
    assert_non_null(ring);
    assert_int_equal(ring->level, COH_FINDING_WARN);
    if (strncmp(ring->found, "denied", strlen("denied")) == 0) {
        print_message("skipped: io_uring is %s\n", ring->found);
        skip();
    }
    assert_string_equal(ring->found, "lacks reads and writes");
    assert_string_equal(ring->remedy, "a kernel of 5.6 or newer");
}
#endif

static void no_more_findings_are_written_than_there_is_room_for(void **state)
{
    (void)state;
    coh_finding findings[4];
    memset(findings, 0x77, sizeof(findings));
    size_t count = 0;
    assert_int_equal(
        coh_machine_examine(&(coh_disk){ folder, UINT64_MAX, 0 }, 1, findings, 3, &count), COH_OK);
    assert_int_equal(count, 3);
    for (size_t i = 0; i < sizeof(findings[3]); i++)
        assert_int_equal(((unsigned char *)&findings[3])[i], 0x77);
    assert_int_equal(coh_machine_examine(&(coh_disk){ folder, UINT64_MAX, 0 }, 1, NULL, 0, &count),
                     COH_OK);
    assert_int_equal(count, 0);
    assert_int_equal(coh_machine_examine(NULL, 1, findings, 3, &count), COH_ERR_ARGUMENT);
}

static void the_probe_of_a_folder_leaves_nothing_in_it(void **state)
{
    (void)state;
    coh_finding findings[FINDINGS_MOST];
    size_t count = 0;
    assert_int_equal(coh_machine_examine(&(coh_disk){ folder, UINT64_MAX, 0 }, 1, findings,
                                         FINDINGS_MOST, &count),
                     COH_OK);
    DIR *open_folder = opendir(folder);
    assert_non_null(open_folder);
    int entry_count = 0;
    while (readdir(open_folder) != NULL)
        entry_count++;
    closedir(open_folder);
    assert_int_equal(entry_count, 2); /* . and .. */
}

static void a_folder_that_cannot_hold_files_is_a_finding_not_a_failure(void **state)
{
    (void)state;
    static const char *const folders[] = { "/no/such/folder", "/proc" };
    for (int i = 0; i < 2; i++) {
        coh_finding findings[FINDINGS_MOST];
        size_t count = 0;
        assert_int_equal(coh_machine_examine(&(coh_disk){ folders[i], UINT64_MAX, 0 }, 1, findings,
                                             FINDINGS_MOST, &count),
                         COH_OK);
        const coh_finding *direct = find(findings, count, "O_DIRECT");
        assert_non_null(direct);
        assert_int_equal(direct->level, COH_FINDING_WARN);
        assert_non_null(strstr(direct->remedy, "disk"));
    }
}

static void a_preset_blas_variable_is_named_with_its_remedy(void **state)
{
    (void)state;
    coh_finding findings[FINDINGS_MOST];
    size_t count = 0;
    char *before = getenv("OPENBLAS_CORETYPE");
    before = before == NULL ? NULL : strdup(before);
    setenv("OPENBLAS_CORETYPE", "Haswell", 1);
    assert_int_equal(coh_machine_examine(&(coh_disk){ folder, UINT64_MAX, 0 }, 1, findings,
                                         FINDINGS_MOST, &count),
                     COH_OK);
    const coh_finding *blas = find(findings, count, "BLAS");
    assert_non_null(blas);
    assert_int_not_equal(blas->level, COH_FINDING_OK);
    assert_non_null(strstr(blas->found, "OPENBLAS_CORETYPE=Haswell"));
    assert_non_null(strstr(blas->remedy, "unset OPENBLAS_CORETYPE"));
    unsetenv("OPENBLAS_CORETYPE");
    unsetenv("OPENBLAS_L2_SIZE");
    unsetenv("COH_PLAIN_MATMUL");
    assert_int_equal(coh_machine_examine(&(coh_disk){ folder, UINT64_MAX, 0 }, 1, findings,
                                         FINDINGS_MOST, &count),
                     COH_OK);
    assert_null(strstr(find(findings, count, "BLAS")->found, "preset"));
    if (before != NULL)
        setenv("OPENBLAS_CORETYPE", before, 1);
    free(before);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(the_smallest_quota_on_the_way_up_counts),
        IN_FOLDER(a_group_that_is_not_visible_falls_back_to_the_mount),
        IN_FOLDER(throttling_is_that_of_the_nearest_group_with_a_limit),
        IN_FOLDER(version_1_groups_are_read_by_controller),
        IN_FOLDER(every_subject_is_examined_and_a_warning_says_what_to_do),
#ifdef COH_HAVE_URING
        IN_FOLDER(an_io_uring_without_reads_and_writes_is_a_warning),
#endif
        IN_FOLDER(no_more_findings_are_written_than_there_is_room_for),
        IN_FOLDER(the_probe_of_a_folder_leaves_nothing_in_it),
        IN_FOLDER(a_folder_that_cannot_hold_files_is_a_finding_not_a_failure),
        IN_FOLDER(a_preset_blas_variable_is_named_with_its_remedy),
        cmocka_unit_test(cores_are_those_this_process_may_run_on),
        cmocka_unit_test(free_bytes_leave_a_reserve),
        cmocka_unit_test(each_process_keeps_memory_in_addition_to_its_arenas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
