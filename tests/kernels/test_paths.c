/* The kernel paths a process may take, each in its own process (the choice is made once). Threads
 * change no bit; with plain products instruction sets change none, either; other products are named
 * in the path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/pool.h"
#include "cohobate/engine.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/panel.h"
#include "tests/kernels/shapes.h"
#include "tests/length.h"

static void hash_bytes(void *context, const char *name, const void *data, size_t count)
{
    uint64_t *hash = context;
    (void)name;
    const unsigned char *bytes = data;
    for (size_t i = 0; i < count; i++)
        *hash = (*hash ^ bytes[i]) * 0x100000001b3u;
}

/* Prints "<hash of every case's results> <kernel path>". */
static int child(int thread_count)
{
    uint64_t hash = 0xcbf29ce484222325u;
    coh_pool *pool;
    if (coh_pool_create(thread_count, &pool) != COH_OK)
        return 1;
    for (int index = 0; index < SHAPE_CASES; index++) {
        if (test_is_brief() && shape_case_at(index)->is_large)
            continue;
        coh_case one;
        shape_case_create(&one, index, 21);
        if (coh_case_forward(&one, pool) != COH_OK || coh_case_backward(&one, pool) != COH_OK)
            return 1;
        coh_case_results(&one, hash_bytes, &hash);
        coh_case_destroy(&one);
    }
    coh_pool_destroy(pool);
    printf("%016" PRIx64 " %s\n", hash, coh_kernel_path());
    return 0;
}

typedef struct answer {
    char hash[32], path[128];
} answer;

static const char *self;

/* Runs this program again; where it is emulated (scripts/test-arm64), by the emulator. */
static answer run_again(const char *isa, const char *plain_matmul, const char *threads)
{
    answer out = { "", "" };
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("COH_ISA", isa, 1);
        setenv("COH_PLAIN_MATMUL", plain_matmul, 1);
        dup2(ends[1], STDOUT_FILENO);
        execl("/bin/sh", "sh", "-c", "exec $MESON_EXE_WRAPPER \"$0\" \"$1\"", self, threads,
              (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *from = fdopen(ends[0], "r");
    assert_non_null(from);
    assert_int_equal(fscanf(from, "%31s %127s", out.hash, out.path), 2);
    fclose(from);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return out;
}

/* Returns what this program answers with these settings, which it is asked once. */
static answer ask(const char *isa, const char *plain_matmul, const char *threads)
{
    enum { ASKED_MOST = 32 };
    static struct {
        char settings[64];
        answer out;
    } asked[ASKED_MOST];
    static int count;
    char settings[sizeof(asked[0].settings)];
    int at = 0;
    (void)snprintf(settings, sizeof(settings), "%s %s %s", isa, plain_matmul, threads);
    while (at < count && strcmp(asked[at].settings, settings) != 0)
        at++;
    if (at == count) {
        assert_true(count < ASKED_MOST);
        asked[at].out = run_again(isa, plain_matmul, threads);
        memcpy(asked[count++].settings, settings, sizeof(settings));
    }
    return asked[at].out;
}

static void threads_and_with_plain_products_instruction_sets_change_no_bit(void **state)
{
    (void)state;
    static const char *const isas[] = { "plain", "avx2", "avx512" };
    static const char *const threads[] = { "1", "2", "3" };
    const answer plain = ask("plain", "1", "2");
    for (int i = 0; i < 3; i++) {
        if (coh_rows_of(isas[i], COH_DTYPE_F32) == NULL) {
            print_message("this CPU has no %s\n", isas[i]);
            continue;
        }
        assert_string_equal(ask(isas[i], "1", threads[i]).hash, plain.hash);
        if (test_is_brief() && i == 1) /* the instruction set between the other two */
            continue;
        const answer first = ask(isas[i], "0", "1"), other = ask(isas[i], "0", "3");
        assert_string_equal(other.hash, first.hash);
        assert_string_equal(other.path, first.path);
        assert_int_equal(strncmp(other.path, isas[i], strlen(isas[i])), 0);
    }
}

/* Asks the operating system, which dispatch does not do. */
static int cpu_has(const char *flag)
{
    static char line[8192];
    const size_t length = strlen(flag);
    int found = 0;
    FILE *from = fopen("/proc/cpuinfo", "r");
    while (from != NULL && !found && fgets(line, sizeof(line), from) != NULL)
        for (const char *at = line; !found && (at = strstr(at, flag)) != NULL; at += length)
            found = strncmp(line, "flags", 5) == 0 && (at[length] == ' ' || at[length] == '\n');
    if (from != NULL)
        fclose(from);
    return found;
}

static void the_path_names_instruction_set_and_product(void **state)
{
    (void)state;
    assert_string_equal(ask("plain", "1", "1").path, "plain+plain");
    const answer blas = ask("plain", "0", "1");
    assert_int_equal(strncmp(blas.path, "plain+openblas-", 15), 0);
    assert_true(strlen(blas.path) > 20);
    if (coh_rows_of("avx512", COH_DTYPE_F32) != NULL)
        assert_string_equal(ask("avx512", "0", "1").path, "avx512+panels");
    if (coh_panel_run_of("avx512bf16", COH_DTYPE_BF16) == NULL)
        return;
    const answer bf16 = ask("avx512bf16", "0", "1");
    assert_string_equal(bf16.path, "avx512+panels+bf16");
    assert_string_equal(ask("", "0", "1").path,
                        cpu_has("amx_bf16") ? "avx512+panels+amx" : bf16.path);
}

/* The test setting changes the default dtype but no bit; the path names it on every processor. */
static void pretended_bf16_is_named_and_has_the_bits_of_widened_products(void **state)
{
    (void)state;
    const char *highest = coh_rows_of("avx512", COH_DTYPE_F32) != NULL ? "avx512"
                          : coh_rows_of("avx2", COH_DTYPE_F32) != NULL ? "avx2"
                                                                       : "plain";
    const char *threads = test_is_brief() ? "3" : "2"; /* 3: as above */
    const answer widened = ask(highest, "0", threads);
    const answer pretended = ask("bf16-pretended", "0", threads);
    char path[160];
    snprintf(path, sizeof(path), "%s+bf16-pretended", widened.path);
    assert_string_equal(pretended.path, path);
    assert_string_equal(pretended.hash, widened.hash);
    assert_string_equal(ask("bf16-pretended", "1", "2").hash, ask("plain", "1", "2").hash);
}

int main(int count, char **arguments)
{
    if (count == 2)
        return child(atoi(arguments[1]));
    self = arguments[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_and_with_plain_products_instruction_sets_change_no_bit),
        cmocka_unit_test(the_path_names_instruction_set_and_product),
        cmocka_unit_test(pretended_bf16_is_named_and_has_the_bits_of_widened_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
