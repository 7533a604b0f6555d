#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>
#include <hwloc.h>

#include "base/bytes.h"
#include "base/small_file.h"
#include "memory/arena.h"
#include "memory/available.h"
#include "memory/topology.h"
#include "tests/faults/alloc_faults.h"
#include "tests/temporary.h"

/* Odd sizes: one page, just below and above a huge page, more than one piece of the first touch. */
static const uint64_t sizes[] = { 4096, (2 << 20) - 4096, (2 << 20) + 4096, (40 << 20) + 12288 };

/* qemu-user accepts every madvise and ignores it, so pages become resident only at their first use.
 * A kernel refuses an unknown advice. */
static int advice_is_ignored(void)
{
    void *page = mmap(NULL, COH_PAGE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    int taken = madvise(page, COH_PAGE_BYTES, 12345) == 0;
    munmap(page, COH_PAGE_BYTES);
    return taken;
}

static void every_page_is_resident_zero_and_writable_after_create(void **state)
{
    (void)state;
    if (advice_is_ignored()) {
        print_message("skipped: madvise does nothing here\n");
        skip();
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            coh_arena *arena;
            uint64_t bytes = sizes[i];
            assert_int_equal(
                coh_arena_create(bytes, "test arena", COH_TIER_DEVICE, NULL, threads, &arena),
                COH_OK);
            unsigned char *base = coh_arena_base(arena);
            assert_int_equal((uintptr_t)base % COH_PAGE_BYTES, 0);
            assert_int_equal(coh_arena_bytes(arena), bytes);
            unsigned char *resident = malloc(bytes / COH_PAGE_BYTES);
            assert_int_equal(mincore(base, bytes, resident), 0);
            for (uint64_t page = 0; page < bytes / COH_PAGE_BYTES; page++) {
                assert_true(resident[page] & 1);
                assert_int_equal(base[page * COH_PAGE_BYTES], 0);
            }
            free(resident);
            base[0] = 1;
            base[bytes - 1] = 2;
            coh_arena_destroy(arena);
        }
}

static void an_arena_is_in_the_ledger_from_create_to_destroy(void **state)
{
    (void)state;
    coh_ledger *ledger;
    coh_arena *arena;
    coh_ledger_sums sums;
    assert_int_equal(coh_ledger_create(&ledger), COH_OK);
    assert_int_equal(coh_arena_create(1 << 20, "host arena", COH_TIER_HOST, ledger, 2, &arena),
                     COH_OK);
    coh_ledger_read(ledger, COH_TIER_HOST, &sums);
    assert_int_equal(sums.reserved_bytes, 1 << 20);
    coh_arena_destroy(arena);
    coh_arena_destroy(NULL);
    assert_int_equal(coh_ledger_total_bytes(ledger), 0);
    coh_ledger_destroy(ledger);
}

static void an_abandoned_arena_stays_mapped_and_is_not_in_the_ledger(void **state)
{
    (void)state;
    coh_ledger *ledger;
    coh_arena *arena;
    assert_int_equal(coh_ledger_create(&ledger), COH_OK);
    assert_int_equal(coh_arena_create(1 << 20, "host arena", COH_TIER_HOST, ledger, 2, &arena),
                     COH_OK);
    unsigned char *base = coh_arena_base(arena);
    coh_arena_abandon(arena);
    coh_arena_abandon(NULL);
    assert_int_equal(coh_ledger_total_bytes(ledger), 0);
    coh_ledger_destroy(ledger);
    base[0] = base[(1 << 20) - 1] = 3;
    assert_int_equal(munmap(base, 1 << 20), 0);
}

static void asking_for_more_than_there_is_is_refused_with_what_would_fit(void **state)
{
    (void)state;
    coh_arena *arena = (coh_arena *)(uintptr_t)1;
    coh_ledger *ledger;
    assert_int_equal(coh_ledger_create(&ledger), COH_OK);
    uint64_t available = coh_memory_available_bytes(NULL);
    assert_true(available > 0 && available < UINT64_MAX);
    uint64_t absurd = coh_bytes_round_page(available) * 4;
    assert_int_equal(coh_arena_create(absurd, "device arena", COH_TIER_DEVICE, ledger, 1, &arena),
                     COH_ERR_MEMORY);
    assert_null(arena);
    char asked[32];
    snprintf(asked, sizeof(asked), "%llu", (unsigned long long)absurd);
    assert_non_null(strstr(coh_last_error(), asked));
    assert_non_null(strstr(coh_last_error(), "would fit"));
    assert_int_equal(coh_ledger_total_bytes(ledger), 0);
    coh_ledger_destroy(ledger);
}

static void sizes_that_are_no_pages_are_a_callers_mistake(void **state)
{
    (void)state;
    coh_arena *arena;
    assert_int_equal(coh_arena_create(0, "a", COH_TIER_DEVICE, NULL, 1, &arena), COH_ERR_ARGUMENT);
    assert_int_equal(coh_arena_create(4097, "a", COH_TIER_DEVICE, NULL, 1, &arena),
                     COH_ERR_ARGUMENT);
    assert_int_equal(coh_arena_create(4096, "a", COH_TIER_DEVICE, NULL, 0, &arena),
                     COH_ERR_ARGUMENT);
}

static void every_failing_allocation_leaves_nothing_behind(void **state)
{
    (void)state;
    coh_ledger *ledger;
    assert_int_equal(coh_ledger_create(&ledger), COH_OK);
    for (uint64_t n = 1;; n++) {
        coh_arena *arena = NULL;
        alloc_fail_nth(n);
        coh_status status = coh_arena_create(1 << 20, "arena", COH_TIER_DEVICE, ledger, 2, &arena);
        int hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        if (!hit) {
            assert_int_equal(status, COH_OK);
            coh_arena_destroy(arena);
            break;
        }
        assert_int_equal(status, COH_ERR_MEMORY);
        assert_null(arena);
        assert_int_equal(coh_ledger_total_bytes(ledger), 0);
    }
    coh_ledger_destroy(ledger);
}

static void a_full_ledger_refuses_the_arena(void **state)
{
    (void)state;
    coh_ledger *ledger;
    coh_arena *arena;
    char owner[COH_LEDGER_NAME_BYTES];
    assert_int_equal(coh_ledger_create(&ledger), COH_OK);
    for (int i = 0; i < COH_LEDGER_ENTRY_COUNT; i++) {
        snprintf(owner, sizeof(owner), "%d", i);
        assert_int_equal(coh_ledger_add(ledger, COH_TIER_HOST, "x", owner, 0), COH_OK);
    }
    assert_int_equal(coh_arena_create(1 << 20, "arena", COH_TIER_DEVICE, ledger, 1, &arena),
                     COH_ERR_FULL);
    assert_null(arena);
    coh_ledger_destroy(ledger);
}

/* ---- what is available, on machines made of files ---- */

typedef struct tree {
    char root[256];
} tree;

static void put_file(const tree *made, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof(full), "%s%s", made->root, path);
    for (char *slash = strchr(full + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void tree_make(tree *made)
{
    assert_int_equal(temporary_folder(made->root, sizeof(made->root), "arena"), 0);
    put_file(made, "/proc/meminfo",
             "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    4000 kB\n");
}

static void tree_remove(tree *made)
{
    char command[320];
    snprintf(command, sizeof(command), "rm -rf '%s'", made->root);
    assert_int_equal(system(command), 0);
}

static void without_a_cgroup_limit_the_machine_is_the_wall(void **state)
{
    (void)state;
    tree made;
    const char *source;
    tree_make(&made);
    assert_int_equal(coh_memory_available_under(made.root, &source), 4000 * 1024);
    assert_string_equal(source, "MemAvailable");
    put_file(&made, "/proc/self/cgroup", "0::/a\n");
    put_file(&made, "/sys/fs/cgroup/a/memory.max", "max\n");
    put_file(&made, "/sys/fs/cgroup/a/memory.current", "100\n");
    assert_int_equal(coh_memory_available_under(made.root, NULL), 4000 * 1024);
    tree_remove(&made);
}

static void the_limit_of_a_group_above_us_binds_too(void **state)
{
    (void)state;
    tree made;
    const char *source;
    tree_make(&made);
    put_file(&made, "/proc/self/cgroup", "0::/a/b\n");
    put_file(&made, "/sys/fs/cgroup/a/b/memory.max", "3000000\n");
    put_file(&made, "/sys/fs/cgroup/a/b/memory.current", "100000\n");
    put_file(&made, "/sys/fs/cgroup/a/memory.max", "2000000\n");
    put_file(&made, "/sys/fs/cgroup/a/memory.current", "500000\n");
    put_file(&made, "/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 200000\n");
    assert_int_equal(coh_memory_available_under(made.root, &source), 1700000);
    assert_string_equal(source, "the memory cgroup");
    tree_remove(&made);
}

static void version_1_groups_and_paths_that_are_not_there_are_understood(void **state)
{
    (void)state;
    tree made;
    tree_make(&made);
    put_file(&made, "/proc/self/cgroup", "5:cpu,memory:/not/visible/here\n4:pids:/\n");
    put_file(&made, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000\n");
    put_file(&made, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "1200000\n");
    put_file(&made, "/sys/fs/cgroup/memory/memory.stat",
             "inactive_file 1\ntotal_inactive_file 300000\n");
    assert_int_equal(coh_memory_available_under(made.root, NULL), 100000);
    put_file(&made, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(coh_memory_available_under(made.root, NULL), 4000 * 1024);
    tree_remove(&made);
}

/* Files that are read again and again are active; the kernel gives them back, too, but a page that
 * has to be written only once it is. */
static void a_group_gives_back_its_page_cache_but_not_what_must_be_written(void **state)
{
    (void)state;
    tree made;
    tree_make(&made);
    put_file(&made, "/proc/self/cgroup", "0::/a\n");
    put_file(&made, "/sys/fs/cgroup/a/memory.max", "2000000\n");
    put_file(&made, "/sys/fs/cgroup/a/memory.current", "1900000\n");
    put_file(&made, "/sys/fs/cgroup/a/memory.stat",
             "anon 100000\nfile 1600000\nfile_mapped 7\nfile_dirty 100000\n"
             "file_writeback 50000\ninactive_file 300000\nactive_file 1200000\n"
             "slab_reclaimable 200000\nslab_unreclaimable 9\n");
    assert_int_equal(coh_memory_available_under(made.root, NULL), 100000 + 1700000 - 150000);
    put_file(&made, "/sys/fs/cgroup/a/memory.stat",
             "file_dirty 100000\ninactive_file 30000\nactive_file 20000\n");
    assert_int_equal(coh_memory_available_under(made.root, NULL), 100000);
    put_file(&made, "/proc/self/cgroup", "4:memory:/\n");
    put_file(&made, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
    put_file(&made, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "1900000\n");
    put_file(&made, "/sys/fs/cgroup/memory/memory.stat",
             "active_file 1\ntotal_dirty 30000\ntotal_writeback 20000\n"
             "total_inactive_file 300000\ntotal_active_file 500000\n");
    assert_int_equal(coh_memory_available_under(made.root, NULL), 100000 + 800000 - 50000);
    tree_remove(&made);
}

static void the_lower_one_of_memory_max_and_memory_high_counts(void **state)
{
    (void)state;
    static const struct {
        const char *max, *high;
        uint64_t available;
    } cases[] = {
        { "2000000\n", "1500000\n", 500000 }, { "2000000\n", "max\n", 1000000 },
        { "max\n", "1200000\n", 200000 },     { "1100000\n", "1200000\n", 100000 },
        { "max\n", "900000\n", 0 },           { "max\n", "max\n", 4000 * 1024 },
    };
    tree made;
    tree_make(&made);
    put_file(&made, "/proc/self/cgroup", "0::/a\n");
    put_file(&made, "/sys/fs/cgroup/a/memory.current", "1000000\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        put_file(&made, "/sys/fs/cgroup/a/memory.max", cases[i].max);
        put_file(&made, "/sys/fs/cgroup/a/memory.high", cases[i].high);
        assert_int_equal(coh_memory_available_under(made.root, NULL), cases[i].available);
    }
    tree_remove(&made);
}

static void strict_accounting_is_a_wall_where_it_is_switched_on(void **state)
{
    (void)state;
    tree made;
    const char *source;
    tree_make(&made);
    put_file(&made, "/proc/meminfo",
             "MemAvailable: 4000 kB\nCommitLimit: 5000 kB\nCommitted_AS: 4000 kB\n");
    for (char mode[] = "0\n"; mode[0] < '2'; mode[0]++) {
        put_file(&made, "/proc/sys/vm/overcommit_memory", mode);
        assert_int_equal(coh_memory_available_under(made.root, NULL), 4000 * 1024);
    }
    put_file(&made, "/proc/sys/vm/overcommit_memory", "2\n");
    assert_int_equal(coh_memory_available_under(made.root, &source), 1000 * 1024);
    assert_string_equal(source, "the commit limit");
    put_file(&made, "/proc/sys/vm/admin_reserve_kbytes", "100\n");
    put_file(&made, "/proc/sys/vm/user_reserve_kbytes", "300\n");
    assert_int_equal(coh_memory_available_under(made.root, NULL), 600 * 1024);
    put_file(&made, "/proc/sys/vm/user_reserve_kbytes", "3000\n");
    assert_int_equal(coh_memory_available_under(made.root, NULL), 0);
    tree_remove(&made);
}

/* A machine of nodes 0, 1 and 3 with 1000, 600 and 3 KiB; the process may use `allowed`. */
static void nodes_make(tree *made, const char *allowed)
{
    char status[128];
    tree_make(made);
    put_file(made, "/sys/devices/system/node/has_memory", "0-1,3\n");
    put_file(made, "/sys/devices/system/node/node0/meminfo",
             "Node 0 MemTotal: 2000 kB\nNode 0 MemFree: 100 kB\nNode 0 Active: 950 kB\n"
             "Node 0 Active(file): 700 kB\nNode 0 Inactive(file): 200 kB\n");
    put_file(made, "/sys/devices/system/node/node1/meminfo",
             "Node 1 MemFree: 600 kB\nNode 1 Active(file): 0 kB\nNode 1 Inactive(file): 0 kB\n");
    put_file(made, "/sys/devices/system/node/node3/meminfo",
             "Node 3 MemFree: 1 kB\nNode 3 Active(file): 1 kB\nNode 3 Inactive(file): 1 kB\n");
    snprintf(status, sizeof(status), "Name:\tx\nMems_allowed:\tf\nMems_allowed_list:\t%s\n",
             allowed);
    put_file(made, "/proc/self/status", status);
}

static void memory_of_nodes_that_are_not_ours_is_not_counted(void **state)
{
    (void)state;
    enum { ALL = 4000 }; /* MemAvailable */
    static const struct {
        const char *allowed;
        uint64_t kib;
    } cases[] = {
        { "0", 1000 },  { "1", 600 },   { "0,3", 1003 }, { "0-1", 1600 }, { "1-7", 603 },
        { "0-3", ALL }, { "0-7", ALL }, { "2", 0 },      { "", ALL },     { "0-", ALL },
    };
    tree made;
    const char *source;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        nodes_make(&made, cases[i].allowed);
        assert_int_equal(coh_memory_available_under(made.root, &source), cases[i].kib * 1024);
        assert_string_equal(source, cases[i].kib == ALL ? "MemAvailable" : "the memory nodes");
        tree_remove(&made);
    }
    nodes_make(&made, "0-1"); /* what a node has is unknown */
    put_file(&made, "/sys/devices/system/node/node1/meminfo", "Node 1 MemFree: 600 kB\n");
    assert_int_equal(coh_memory_available_under(made.root, NULL), ALL * 1024);
    put_file(&made, "/proc/meminfo", "MemAvailable: 500 kB\n"); /* the lesser one counts */
    put_file(&made, "/proc/self/status", "Name:\tx\nMems_allowed_list:\t0\n");
    assert_int_equal(coh_memory_available_under(made.root, &source), 500 * 1024);
    assert_string_equal(source, "MemAvailable");
    tree_remove(&made);
}

/* numactl --membind changes the policy of a process, and not the nodes of its cpuset. */
static void memory_that_numactl_binds_is_that_of_its_nodes(void **state)
{
    (void)state;
    enum { DEFAULT = 0, BIND = 2 }; /* MPOL_ */
    const unsigned long first = 1;
    tree made;
    const char *source;
    if (syscall(SYS_set_mempolicy, BIND, &first, 8 * sizeof(first)) != 0) {
        print_message("the system has no memory policies\n");
        skip();
    }
    nodes_make(&made, "0-3");
    const uint64_t bytes = coh_memory_available_under(made.root, &source);
    assert_int_equal(syscall(SYS_set_mempolicy, DEFAULT, NULL, 0), 0);
    assert_int_equal(bytes, 1000 * 1024);
    assert_string_equal(source, "the memory nodes");
    assert_int_equal(coh_memory_available_under(made.root, NULL), 4000 * 1024);
    tree_remove(&made);
}

static uint64_t bytes_of_status(const char *key)
{
    char text[8192];
    uint64_t kib = 0;
    assert_true(coh_small_file_read("", "/proc/self/status", "", text, sizeof(text)));
    assert_true(coh_small_file_number(text, key, &kib));
    return kib * 1024;
}

/* Of all the process's memory a few hundred pages are left, which nothing here takes. */
static void limits_of_the_process_are_named(void **state)
{
    (void)state;
    static const struct {
        int resource;
        const char *key, *source;
    } cases[] = { { RLIMIT_AS, "VmSize:", "RLIMIT_AS" },
                  { RLIMIT_DATA, "VmData:", "RLIMIT_DATA" } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rlimit before, limit;
        const char *source;
        assert_int_equal(getrlimit(cases[i].resource, &before), 0);
        limit = before;
        limit.rlim_cur = bytes_of_status(cases[i].key) + (1 << 20);
        assert_int_equal(setrlimit(cases[i].resource, &limit), 0);
        const uint64_t bytes = coh_memory_available_bytes(&source);
        const uint64_t left = limit.rlim_cur - bytes_of_status(cases[i].key);
        assert_int_equal(setrlimit(cases[i].resource, &before), 0);
        assert_string_equal(source, cases[i].source);
        assert_int_equal(bytes, left);
    }
}

static void a_topology_has_a_core_and_a_node(void **state)
{
    (void)state;
    coh_topology topology;
    assert_int_equal(coh_topology_read(&topology), COH_OK);
    assert_true(topology.core_count >= 1 && topology.node_count >= 1);
    assert_true(topology.thread_count >= topology.core_count);
    assert_true(topology.thread_count <= sysconf(_SC_NPROCESSORS_ONLN));
}

/* ---- memory nodes, of machines that hwloc makes up ---- */

#define TWO_NODES  "node:2 core:2 pu:1"
#define WITH_A_GAP "pack:2 [numa(indexes=0,60)] core:2 pu:1"

/* Exports a machine of three nodes, the last of which this process may not use. */
static void export_machine(const char *path)
{
    hwloc_topology_t topology;
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    assert_int_equal(hwloc_bitmap_set_range(allowed, 0, 1), 0);
    assert_int_equal(hwloc_topology_init(&topology), 0);
    assert_int_equal(hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED), 0);
    assert_int_equal(hwloc_topology_set_synthetic(topology, "node:3 core:1 pu:1"), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    assert_int_equal(hwloc_topology_allow(topology, NULL, allowed, HWLOC_ALLOW_FLAG_CUSTOM), 0);
    assert_int_equal(hwloc_topology_export_xml(topology, path, 0), 0);
    hwloc_topology_destroy(topology);
    hwloc_bitmap_free(allowed);
}

/* Places new pages on such a machine (a description, or a file's path), with system files below
 * `root`. With `is_real` the policy is applied, too, and *out_mode and *out_mask are the kernel's
 * for these pages; mode -1 if it refuses to report. */
static coh_placement place(const char *machine, const char *root, int near, uint64_t bytes,
                           int is_real, int *out_mode, unsigned long *out_mask)
{
    coh_placement placement = { .node_count = -1 };
    unsigned long mask[16] = { 0 };
    void *base = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    const char *variable = machine[0] == '/' ? "HWLOC_XMLFILE" : "HWLOC_SYNTHETIC";
    assert_int_equal(setenv(variable, machine, 1), 0);
    assert_int_equal(setenv("HWLOC_THISSYSTEM", is_real ? "1" : "0", 1), 0);
    coh_topology_place(root, near, base, bytes, &placement);
    assert_int_equal(unsetenv(variable), 0);
    assert_int_equal(unsetenv("HWLOC_THISSYSTEM"), 0);
    if (is_real) {
        const unsigned long of_address = 2; /* MPOL_F_ADDR */
        *out_mode = -1;
        (void)syscall(SYS_get_mempolicy, out_mode, mask, 8 * sizeof(mask), base, of_address);
        *out_mask = mask[0];
    }
    munmap(base, bytes);
    return placement;
}

/* The node of a thread's processors on such a machine. */
static int own_node(const char *machine)
{
    const char *variable = machine[0] == '/' ? "HWLOC_XMLFILE" : "HWLOC_SYNTHETIC";
    assert_int_equal(setenv(variable, machine, 1), 0);
    assert_int_equal(setenv("HWLOC_THISSYSTEM", "0", 1), 0);
    const int node = coh_node_of_thread();
    assert_int_equal(unsetenv(variable), 0);
    assert_int_equal(unsetenv("HWLOC_THISSYSTEM"), 0);
    return node;
}

static void a_thread_has_a_node_if_its_processors_are_of_one(void **state)
{
    (void)state;
    assert_int_equal(own_node("node:1 core:2 pu:1"), 0);
    assert_int_equal(own_node("pack:1 [numa(indexes=7)] core:2 pu:2"), 7);
    assert_int_equal(own_node(TWO_NODES), COH_NODE_ANY);
    assert_int_equal(own_node(WITH_A_GAP), COH_NODE_ANY);
}

static void pages_go_to_the_near_node_if_it_is_ours_and_has_room(void **state)
{
    (void)state;
    enum { KIB = 64 };
    static const struct {
        const char *machine; /* NULL: export_machine's */
        int near, is_near, node_count;
        uint64_t kib;
    } cases[] = {
        { TWO_NODES, 1, 1, 1, KIB },            /* just enough */
        { TWO_NODES, 1, 0, 2, KIB + 4 },        /* one page too many */
        { TWO_NODES, 0, 0, 2, KIB },            /* the other one is full */
        { TWO_NODES, COH_NODE_ANY, 0, 2, KIB }, /* the nearest node is unknown */
        { TWO_NODES, 60, 0, 2, KIB },           /* has room, but does not exist */
        { NULL, 2, 0, 2, KIB },                 /* has room, but the process may not use it */
        { NULL, 1, 1, 1, KIB },                 /* may be used, like the other */
        { WITH_A_GAP, 1, 0, 2, KIB },           /* no node has that number */
        { WITH_A_GAP, 60, 1, 1, KIB },          /* numbers are the system's */
        { "node:4 core:1 pu:1", 3, 0, 4, KIB }, /* free memory is unknown */
        { "node:1 core:2 pu:1", 0, 0, 1, 4 },   /* there is only one */
    };
    tree made;
    char exported[320];
    tree_make(&made);
    snprintf(exported, sizeof(exported), "%s/machine.xml", made.root);
    export_machine(exported);
    put_file(&made, "/sys/devices/system/node/node0/meminfo", "Node 0 MemFree: 32 kB\n");
    put_file(&made, "/sys/devices/system/node/node1/meminfo",
             "Node 1 MemTotal:       9000 kB\nNode 1 MemFree:          64 kB\n");
    put_file(&made, "/sys/devices/system/node/node2/meminfo", "Node 2 MemFree: 640 kB\n");
    put_file(&made, "/sys/devices/system/node/node60/meminfo", "Node 60 MemFree: 640 kB\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const coh_placement placement =
            place(cases[i].machine != NULL ? cases[i].machine : exported, made.root, cases[i].near,
                  cases[i].kib * 1024, 0, NULL, NULL);
        if (placement.is_near != cases[i].is_near || placement.node_count != cases[i].node_count)
            fail_msg("case %zu: near %d, of %d nodes", i, placement.is_near, placement.node_count);
    }
    tree_remove(&made);
}

/* Checks the kernel's own policy for these pages, on a node that every machine has and on one that
 * none has. */
static void near_pages_are_preferred_and_a_refusal_spreads_them(void **state)
{
    (void)state;
    enum { PREFERRED = 1, INTERLEAVED = 3, PREFERRED_OF_MANY = 5 };
    int mode;
    unsigned long mask;
    tree made;
    (void)place(TWO_NODES, "", COH_NODE_ANY, COH_PAGE_BYTES, 1, &mode, &mask);
    if (mode != INTERLEAVED) {
        print_message("skipped: the kernel binds no memory here\n");
        skip();
    }
    tree_make(&made);
    put_file(&made, "/sys/devices/system/node/node0/meminfo", "Node 0 MemFree: 64 kB\n");
    put_file(&made, "/sys/devices/system/node/node60/meminfo", "Node 60 MemFree: 64 kB\n");
    assert_true(place(WITH_A_GAP, made.root, 0, 16 << 10, 1, &mode, &mask).is_near);
    assert_true(mode == PREFERRED || mode == PREFERRED_OF_MANY);
    assert_int_equal(mask, 1);
    const coh_placement refused = place(WITH_A_GAP, made.root, 60, 16 << 10, 1, &mode, &mask);
    assert_false(refused.is_near);
    assert_int_equal(refused.node_count, 2);
    assert_int_equal(mode, INTERLEAVED);
    (void)place("node:1 core:2 pu:1", made.root, 0, 16 << 10, 1, &mode, &mask);
    assert_int_equal(mode, 0); /* no policy was set */
    tree_remove(&made);
}

/* As under numactl --membind=0. */
static void memory_that_somebody_bound_stays_so(void **state)
{
    (void)state;
    enum { DEFAULT, BIND = 2, INTERLEAVED };
    int mode;
    unsigned long mask, only_first = 1;
    (void)place(TWO_NODES, "", COH_NODE_ANY, COH_PAGE_BYTES, 1, &mode, &mask);
    if (mode != INTERLEAVED) {
        print_message("skipped: the kernel binds no memory here\n");
        skip();
    }
    assert_int_equal(syscall(SYS_set_mempolicy, BIND, &only_first, 8 * sizeof(only_first)), 0);
    const coh_placement bound = place(TWO_NODES, "", COH_NODE_ANY, COH_PAGE_BYTES, 1, &mode, &mask);
    assert_int_equal(syscall(SYS_set_mempolicy, DEFAULT, NULL, 0), 0);
    assert_int_equal(bound.node_count, 1);
    assert_int_equal(mode, DEFAULT); /* no policy is set for these pages: the binding holds */
}

static void the_node_by_a_device_is_the_systems_to_say(void **state)
{
    (void)state;
    tree made;
    tree_make(&made);
    put_file(&made, "/sys/bus/pci/devices/0000:1b:00.0/numa_node", "1\n");
    put_file(&made, "/sys/bus/pci/devices/0000:1c:00.0/numa_node", "-1\n");
    assert_int_equal(coh_node_of_pci(made.root, "0000:1b:00.0"), 1);
    assert_int_equal(coh_node_of_pci(made.root, "0000:1c:00.0"), COH_NODE_ANY);
    assert_int_equal(coh_node_of_pci(made.root, "0000:1d:00.0"), COH_NODE_ANY);
    put_file(&made, "/sys/bus/pci/devices/0000:1b:00.0/numa_node", "4294967297\n");
    assert_int_equal(coh_node_of_pci(made.root, "0000:1b:00.0"), COH_NODE_ANY);
    tree_remove(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_page_is_resident_zero_and_writable_after_create),
        cmocka_unit_test(an_arena_is_in_the_ledger_from_create_to_destroy),
        cmocka_unit_test(an_abandoned_arena_stays_mapped_and_is_not_in_the_ledger),
        cmocka_unit_test(asking_for_more_than_there_is_is_refused_with_what_would_fit),
        cmocka_unit_test(sizes_that_are_no_pages_are_a_callers_mistake),
        cmocka_unit_test(every_failing_allocation_leaves_nothing_behind),
        cmocka_unit_test(a_full_ledger_refuses_the_arena),
        cmocka_unit_test(without_a_cgroup_limit_the_machine_is_the_wall),
        cmocka_unit_test(the_limit_of_a_group_above_us_binds_too),
        cmocka_unit_test(version_1_groups_and_paths_that_are_not_there_are_understood),
        cmocka_unit_test(a_group_gives_back_its_page_cache_but_not_what_must_be_written),
        cmocka_unit_test(the_lower_one_of_memory_max_and_memory_high_counts),
        cmocka_unit_test(strict_accounting_is_a_wall_where_it_is_switched_on),
        cmocka_unit_test(memory_of_nodes_that_are_not_ours_is_not_counted),
        cmocka_unit_test(memory_that_numactl_binds_is_that_of_its_nodes),
        cmocka_unit_test(limits_of_the_process_are_named),
        cmocka_unit_test(a_topology_has_a_core_and_a_node),
        cmocka_unit_test(a_thread_has_a_node_if_its_processors_are_of_one),
        cmocka_unit_test(pages_go_to_the_near_node_if_it_is_ours_and_has_room),
        cmocka_unit_test(near_pages_are_preferred_and_a_refusal_spreads_them),
        cmocka_unit_test(memory_that_somebody_bound_stays_so),
        cmocka_unit_test(the_node_by_a_device_is_the_systems_to_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
