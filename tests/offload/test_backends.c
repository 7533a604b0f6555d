/* The store that is used in a folder, and how it is reported. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/check.h"
#include "offload/store_base.h"
#include "tests/denied_calls.h"
#include "tests/offload/store_fixture.h"

#ifdef COH_HAVE_URING
#include "tests/old_ring.h"
#endif

static coh_status denied_open(const coh_store_config *config, coh_store **out_store)
{
    (void)config;
    *out_store = NULL;
    return coh_fail(COH_ERR_DEVICE, "the best backend is denied here");
}

static coh_status full_open(const coh_store_config *config, coh_store **out_store)
{
    (void)config;
    *out_store = NULL;
    return coh_fail(COH_ERR_FULL, "the disk is full");
}

static const coh_store_ops denied = { sizeof(coh_store_ops), "denied", .open = denied_open };
static const coh_store_ops full = { sizeof(coh_store_ops), "full", .open = full_open };
static const coh_store_ops not_built = { sizeof(coh_store_ops), "absent" };

static void a_denied_backend_steps_down_and_says_why(void **state)
{
    (void)state;
    static const coh_store_ops *const backends[] = { &denied, &coh_store_posix };
    rig made = { 0 };
    coh_store_facts facts;
    rig_layout(&made);
    coh_store_config config = rig_config(&made);
    assert_int_equal(coh_store_open_first(&config, backends, 2, &made.ops, &made.store), COH_OK);
    assert_ptr_equal(made.ops, &coh_store_posix);
    assert_int_equal(made.ops->facts(made.store, &facts), COH_OK);
    assert_string_equal(facts.backend, "posix");
    assert_non_null(strstr(facts.reason, "the best backend is denied here"));
    assert_int_equal(rig_write(&made, 1, 1), COH_OK);
    assert_int_equal(rig_read(&made, 1, 1), COH_OK);
    rig_close(&made);
}

static void a_backend_that_was_not_built_steps_down_too(void **state)
{
    (void)state;
    static const coh_store_ops *const backends[] = { &not_built, &coh_store_mem };
    rig made = { 0 };
    coh_store_facts facts;
    rig_layout(&made);
    coh_store_config config = rig_config(&made);
    assert_int_equal(coh_store_open_first(&config, backends, 2, &made.ops, &made.store), COH_OK);
    assert_ptr_equal(made.ops, &coh_store_mem);
    assert_int_equal(made.ops->facts(made.store, &facts), COH_OK);
    assert_non_null(strstr(facts.reason, "not built"));
    rig_close(&made);
}

static void a_full_disk_is_not_tried_again_on_the_next_backend(void **state)
{
    (void)state;
    static const coh_store_ops *const backends[] = { &full, &coh_store_mem };
    rig made = { 0 };
    rig_layout(&made);
    coh_store_config config = rig_config(&made);
    assert_int_equal(coh_store_open_first(&config, backends, 2, &made.ops, &made.store),
                     COH_ERR_FULL);
    assert_null(made.ops);
    assert_null(made.store);
    rig_close(&made);
}

static void with_every_backend_denied_the_answer_is_a_sentence(void **state)
{
    (void)state;
    static const coh_store_ops *const backends[] = { &denied, &not_built };
    rig made = { 0 };
    rig_layout(&made);
    coh_store_config config = rig_config(&made);
    assert_int_equal(coh_store_open_first(&config, backends, 2, &made.ops, &made.store),
                     COH_ERR_DEVICE);
    assert_non_null(strstr(coh_last_error(), "no kind of working store"));
    rig_close(&made);
}

static void a_wanted_store_is_taken_and_no_other(void **state)
{
    (void)state;
    rig made = { 0 };
    rig_layout(&made);
    coh_store_config config = rig_config(&made);
    assert_int_equal(coh_store_open(&config, &denied, &made.ops, &made.store), COH_ERR_DEVICE);
    assert_null(made.store);
    rig_open(&made, &coh_store_mem);
    assert_ptr_equal(made.ops, &coh_store_mem);
    rig_close(&made);
}

static void a_store_larger_than_the_disk_is_refused_with_numbers(void **state)
{
    (void)state;
    static const coh_store_ops *const stores[] = { &coh_store_uring, &coh_store_posix };
    for (size_t i = 0; i < 2; i++) {
        rig made = { 0 };
        struct statvfs before;
        rig_layout(&made);
        if (!rig_can(stores[i])) {
            rig_close(&made);
            continue;
        }
        coh_store_config config = rig_config(&made);
        assert_int_equal(statvfs(made.folder, &before), 0);
        uint64_t free_bytes = (uint64_t)before.f_bavail * before.f_frsize;
        config.bytes = coh_bytes_round_page(free_bytes) * 2;
        assert_int_equal(coh_store_open(&config, stores[i], &made.ops, &made.store), COH_ERR_FULL);
        assert_null(made.store);
        char wanted[32];
        snprintf(wanted, sizeof(wanted), "%llu", (unsigned long long)config.bytes);
        assert_non_null(strstr(coh_last_error(), wanted));
        assert_non_null(strstr(coh_last_error(), "are free"));
        rig_close(&made);
    }
}

typedef struct asked {
    _Atomic int count;
    int most;
} asked;

static coh_status go_on(void *context)
{
    asked *a = context;
    return ++a->count > a->most ? coh_fail(COH_ERR_STOPPED, "asked to stop") : COH_OK;
}

/* A store of 64 MiB in two folders; each is asked before every 4 MiB. */
static void opening_a_store_ends_when_it_is_asked_to(void **state)
{
    (void)state;
    static const coh_store_ops *const stores[] = { &coh_store_uring, &coh_store_posix };
    static const int mosts[] = { 0, 8, INT_MAX };
    rig_disk_count = 2;
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < sizeof(mosts) / sizeof(mosts[0]); k++) {
            const int stops = mosts[k] < INT_MAX;
            rig made = { 0 };
            asked a = { .most = mosts[k] };
            rig_layout(&made);
            if (rig_can(stores[i])) {
                coh_store_config config = rig_config(&made);
                config.bytes = (uint64_t)64 << 20;
                config.go_on = go_on;
                config.go_on_context = &a;
                assert_int_equal(coh_store_open(&config, stores[i], &made.ops, &made.store),
                                 stops ? COH_ERR_STOPPED : COH_OK);
                assert_int_equal(made.store == NULL, stops);
                assert_true(stops ? a.count <= mosts[k] + 2 : a.count >= 16);
                if (stops)
                    assert_string_equal(coh_last_error(), "asked to stop");
            }
            rig_close(&made);
        }
    rig_disk_count = 1;
}

static void a_folder_that_is_not_there_is_an_io_error(void **state)
{
    (void)state;
    rig made = { 0 };
    rig_layout(&made);
    coh_store_config config = rig_config(&made);
    char missing[300];
    snprintf(missing, sizeof(missing), "%s/missing", made.folder);
    made.disks[0].folder = missing;
    assert_int_equal(coh_store_open(&config, &coh_store_posix, &made.ops, &made.store), COH_ERR_IO);
    assert_non_null(strstr(coh_last_error(), missing));
    config.disk_count = 0;
    assert_int_equal(coh_store_open(&config, &coh_store_posix, &made.ops, &made.store),
                     COH_ERR_ARGUMENT);
    rig_close(&made);
}

/* Linux accepts O_DIRECT on tmpfs since 6.6 and refuses it before: neither may count as direct. */
static void a_file_system_in_memory_is_never_called_direct(void **state)
{
    (void)state;
    struct statfs system;
    if (statfs("/dev/shm", &system) != 0 || system.f_type != TMPFS_MAGIC ||
        access("/dev/shm", W_OK) != 0) {
        print_message("skipped: no tmpfs at /dev/shm\n");
        skip();
    }
    rig made = { 0 };
    coh_store_facts facts;
    rig_layout(&made);
    coh_store_config config = rig_config(&made);
    made.disks[0].folder = "/dev/shm";
    assert_int_equal(coh_store_open(&config, NULL, &made.ops, &made.store), COH_OK);
    assert_int_equal(made.ops->facts(made.store, &facts), COH_OK);
    assert_int_equal(facts.direct, 0);
    assert_non_null(strstr(facts.reason, "/dev/shm"));
    assert_non_null(strstr(facts.reason, "outside the budget"));
    assert_int_equal(rig_write(&made, 4, 1), COH_OK);
    assert_int_equal(rig_read(&made, 4, 1), COH_OK);
    rig_close(&made);
}

/* ---- in a child process, whose rights are taken away first ---- */

static int deny_io_uring(void)
{
    return deny_call(SYS_io_uring_setup, EPERM);
}

/* Makes every openat whose flags have `bits` fail with `error`, like a file system without that
 * feature. */
static int deny_open_flags(uint32_t bits, uint32_t error)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return deny_by(program, sizeof(program) / sizeof(program[0]));
}

static int deny_direct(void)
{
    return deny_open_flags(O_DIRECT, EINVAL);
}

static int deny_unnamed(void)
{
    return deny_open_flags(O_TMPFILE & ~O_DIRECTORY, EOPNOTSUPP);
}

/* Removes all locked memory, and the right to exceed the limit. */
static int deny_locked_memory(void)
{
    struct rlimit limit = { 64 << 10, 64 << 10 };
    return setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && (geteuid() != 0 || setuid(65534) == 0);
}

enum { AS_EXPECTED, NOT_AS_EXPECTED, CANNOT_DENY };

typedef struct expectation {
    int (*deny)(void);
    const char *backend, *reason; /* NULL: any */
    int not_direct;
} expectation;

/* Opens the first store that works, and moves a chunk both ways. Runs in the child: returns a
 * status instead of asserting. */
static int child(rig *made, const expectation *expected)
{
    coh_store_facts facts;
    coh_store_completion completion;
    uint32_t count;
    coh_store_config config = rig_config(made);
    if (!expected->deny())
        return CANNOT_DENY;
    if (coh_store_open(&config, NULL, &made->ops, &made->store) != COH_OK ||
        made->ops->register_arena(made->store, made->arena, ARENA_BYTES) != COH_OK ||
        made->ops->facts(made->store, &facts) != COH_OK)
        return NOT_AS_EXPECTED;
    int right = (expected->backend == NULL || strcmp(facts.backend, expected->backend) == 0) &&
                facts.direct != expected->not_direct &&
                (expected->reason == NULL ||
                 (facts.reason != NULL && strstr(facts.reason, expected->reason) != NULL));
    for (int port = COH_STORE_PORT_COUNT - 1; port >= 0; port--) {
        coh_store_request request = rig_request(made, 4, 1);
        if (made->ops->submit(made->store, (coh_store_port)port, &request) != COH_OK ||
            made->ops->reap(made->store, (coh_store_port)port, &completion, 1, 1, &count) !=
                COH_OK ||
            completion.status != COH_OK)
            right = 0;
    }
    made->ops->close(made->store);
    return right ? AS_EXPECTED : NOT_AS_EXPECTED;
}

static void in_child(const expectation *expected)
{
    rig made = { 0 };
    int ended;
    rig_layout(&made);
    assert_int_equal(chmod(made.folder, 0777), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(child(&made, expected));
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    assert_true(WIFEXITED(ended));
    rig_close(&made);
    if (WEXITSTATUS(ended) == CANNOT_DENY) {
        print_message("skipped: the right cannot be taken away here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(ended), AS_EXPECTED);
}

static void without_io_uring_the_posix_store_serves(void **state)
{
    (void)state;
    static const expectation posix = { deny_io_uring, "posix", "io_uring", 0 };
    in_child(&posix);
}

#ifdef COH_HAVE_URING
static int make_rings_old(void)
{
    ring_is_old = 1;
    return 1;
}

static void a_ring_without_reads_and_writes_steps_down_too(void **state)
{
    (void)state;
    static const expectation posix = { make_rings_old, "posix", "Linux 5.6", 0 };
    if (!rig_can(&coh_store_uring)) {
        print_message("skipped: %s\n", coh_last_error());
        skip();
    }
    in_child(&posix);
}
#endif

static void without_locked_memory_the_arena_stays_unregistered(void **state)
{
    (void)state;
    static const expectation unregistered = { deny_locked_memory, "io_uring", "memlock", 0 };
    if (!rig_can(&coh_store_uring)) {
        print_message("skipped: %s\n", coh_last_error());
        skip();
    }
    in_child(&unregistered);
}

/* Registers an arena of addresses without memory, which the system cannot pin, and looks for
 * `reason` in the report. */
static void register_addresses(uint64_t bytes, const char *reason)
{
    rig made = { 0 };
    coh_store_facts facts;
    rig_layout(&made);
    coh_store_config config = rig_config(&made);
    void *arena = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED ||
        coh_store_open(&config, &coh_store_uring, &made.ops, &made.store) != COH_OK) {
        rig_close(&made);
        print_message("skipped: no io_uring, or too few addresses\n");
        skip();
    }
    assert_int_equal(made.ops->register_arena(made.store, arena, bytes), COH_OK);
    assert_int_equal(made.ops->facts(made.store, &facts), COH_OK);
    assert_string_equal(facts.backend, "io_uring");
    assert_non_null(facts.reason);
    if (strstr(facts.reason, reason) == NULL || strstr(facts.reason, "memlock") != NULL)
        fail_msg("%s", facts.reason);
    rig_close(&made);
    assert_int_equal(munmap(arena, bytes), 0);
}

static void an_arena_of_hundreds_of_gib_is_refused_by_the_system_alone(void **state)
{
    (void)state;
    register_addresses(UINT64_C(300) << 30, "Bad address");
}

static void an_arena_of_too_many_buffers_is_not_blamed_on_locked_memory(void **state)
{
    (void)state;
    register_addresses(UINT64_C(16385) << 30, "16385 buffers of 1 GiB");
}

static void where_o_direct_is_refused_the_page_cache_serves_and_is_named(void **state)
{
    (void)state;
    static const expectation cached = { deny_direct, NULL, "refuses O_DIRECT", 1 };
    in_child(&cached);
}

/* in_child checks that the folder is empty afterwards. */
static void where_unnamed_files_are_refused_the_name_is_taken_away_at_once(void **state)
{
    (void)state;
    static const expectation named = { deny_unnamed, NULL, NULL, 0 };
    in_child(&named);
}

/* Takes the place of the C library's: a file system that makes the file before it refuses
 * O_DIRECT. */
static int makes_then_refuses;

int mkostemp(char *path, int flags)
{
    const int fd = mkstemp(path);
    if (fd < 0 || fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | (flags & O_DIRECT)) != 0)
        return -1;
    if (!makes_then_refuses || !(flags & O_DIRECT))
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

static int refuse_late(void)
{
    makes_then_refuses = 1;
    return deny_unnamed();
}

/* The folder is removed at the end, which fails if anything is in it. */
static void a_file_that_was_made_and_refused_is_taken_away(void **state)
{
    (void)state;
    static const expectation named = { refuse_late, NULL, "page cache", 1 };
    in_child(&named);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_denied_backend_steps_down_and_says_why),
        cmocka_unit_test(a_backend_that_was_not_built_steps_down_too),
        cmocka_unit_test(a_full_disk_is_not_tried_again_on_the_next_backend),
        cmocka_unit_test(with_every_backend_denied_the_answer_is_a_sentence),
        cmocka_unit_test(a_wanted_store_is_taken_and_no_other),
        cmocka_unit_test(a_store_larger_than_the_disk_is_refused_with_numbers),
        cmocka_unit_test(opening_a_store_ends_when_it_is_asked_to),
        cmocka_unit_test(a_folder_that_is_not_there_is_an_io_error),
        cmocka_unit_test(a_file_system_in_memory_is_never_called_direct),
        cmocka_unit_test(without_io_uring_the_posix_store_serves),
#ifdef COH_HAVE_URING
        cmocka_unit_test(a_ring_without_reads_and_writes_steps_down_too),
#endif
        cmocka_unit_test(without_locked_memory_the_arena_stays_unregistered),
        cmocka_unit_test(an_arena_of_hundreds_of_gib_is_refused_by_the_system_alone),
        cmocka_unit_test(an_arena_of_too_many_buffers_is_not_blamed_on_locked_memory),
        cmocka_unit_test(where_o_direct_is_refused_the_page_cache_serves_and_is_named),
        cmocka_unit_test(where_unnamed_files_are_refused_the_name_is_taken_away_at_once),
        cmocka_unit_test(a_file_that_was_made_and_refused_is_taken_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
