/* Trace files: what is written is read back; every truncation and every changed byte is refused or
 * loses slots, and is never read as something else. */
#include "tests/report/made_trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file_text.h"
#include "tests/temporary.h"

#define PATH "trace_file_test.bin"

static coh_trace *small_trace(void)
{
    const made_options options = { .operators = 3,
                                   .chunks = 2,
                                   .steps = 3,
                                   .chunk_bytes = 1 << 20,
                                   .forward_ns = 1000,
                                   .backward_ns = 2000,
                                   .update_ns = 300,
                                   .read_ns = 400,
                                   .write_ns = 500,
                                   .read_bytes_per_s = 1e9 };
    return made_trace(&options);
}

/* Writes the trace with 5 slots: steps 0 and 2 in slots 1 and 0, step 1 in slots 2 and 4. */
static void write_trace(const coh_trace *trace)
{
    static const uint32_t steps[] = { 0, 2, 1, 1 }, slots[] = { 1, 0, 2, 4 };
    coh_trace_latency latencies[COH_LANE_COUNT] = { 0 };
    coh_trace_file *file;
    latencies[COH_LANE_READ].counts[47] = UINT64_MAX;
    assert_int_equal(coh_trace_file_create(PATH, trace, 5, &file), COH_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(coh_trace_file_put(file, slots[i], &trace->steps[steps[i]]), COH_OK);
    assert_int_equal(coh_trace_file_put(file, 5, &trace->steps[0]), COH_ERR_ARGUMENT);
    assert_int_equal(coh_trace_file_put_latencies(file, latencies), COH_OK);
    coh_trace_file_close(file);
}

static void same_tables(const coh_trace *a, const coh_trace *b)
{
    assert_int_equal(a->instruction_count, b->instruction_count);
    assert_int_equal(a->wait_count, b->wait_count);
    assert_int_equal(a->extent_count, b->extent_count);
    assert_int_equal(a->program_hash, b->program_hash);
    assert_memory_equal(a->waits, b->waits, a->wait_count * sizeof(*a->waits));
    for (uint32_t i = 0; i < a->instruction_count; i++) {
        const coh_trace_instruction *x = &a->instructions[i], *y = &b->instructions[i];
        assert_true(x->predicted_begin_ns == y->predicted_begin_ns && x->bytes == y->bytes &&
                    x->predicted_end_ns == y->predicted_end_ns && x->flops == y->flops &&
                    x->opcode == y->opcode && x->operator_index == y->operator_index &&
                    x->chunk == y->chunk && x->stream == y->stream && x->lane == y->lane &&
                    x->wait_begin == y->wait_begin && x->wait_count == y->wait_count &&
                    x->microbatch == y->microbatch && x->is_shared == y->is_shared);
    }
    for (uint32_t i = 0; i < a->operator_count; i++) {
        assert_string_equal(a->operators[i].name, b->operators[i].name);
        assert_string_equal(a->operators[i].pattern, b->operators[i].pattern);
        assert_int_equal(a->operators[i].block, b->operators[i].block);
    }
    for (uint32_t i = 0; i < a->extent_count; i++)
        assert_true(a->extents[i].bytes == b->extents[i].bytes &&
                    a->extents[i].first == b->extents[i].first &&
                    a->extents[i].last == b->extents[i].last &&
                    a->extents[i].tier == b->extents[i].tier);
    assert_memory_equal(a->budget_bytes, b->budget_bytes, sizeof(a->budget_bytes));
    assert_memory_equal(a->lane_bytes_per_s, b->lane_bytes_per_s, sizeof(a->lane_bytes_per_s));
}

static int is_same_step(const coh_trace_step *a, const coh_trace_step *b, uint32_t count)
{
    return a->step == b->step && a->begin_ns == b->begin_ns && a->step_ns == b->step_ns &&
           memcmp(&a->counters, &b->counters, sizeof(a->counters)) == 0 &&
           memcmp(a->spans, b->spans, count * sizeof(*a->spans)) == 0;
}

static void what_was_written_is_read_back(void **state)
{
    (void)state;
    uint32_t lost = 77;
    coh_trace *trace = small_trace(), *read;
    write_trace(trace);
    struct stat facts;
    assert_int_equal(stat(PATH, &facts), 0);
    assert_int_equal(facts.st_size, coh_trace_file_bytes(trace, 5));
    assert_int_equal(coh_trace_read(PATH, &read, &lost), COH_OK);
    assert_int_equal(lost, 0);
    same_tables(trace, read);
    assert_int_equal(read->step_count, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(is_same_step(&trace->steps[i], &read->steps[i], trace->instruction_count));
    assert_true(read->latencies[COH_LANE_READ].counts[47] == UINT64_MAX);
    coh_trace_free(read);
    coh_trace_free(trace);
    unlink(PATH);
}

/* Reads a damaged file: refused in one line, or all its steps are true ones. */
static void read_damaged(const coh_trace *trace, const char *data, size_t bytes, int changed)
{
    uint32_t lost;
    coh_trace *read;
    char path[64];
    const int fd = memfd_create("trace", MFD_CLOEXEC);
    assert_true(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const coh_status status = coh_trace_read(path, &read, &lost);
    close(fd);
    if (status != COH_OK) {
        assert_int_equal(status, COH_ERR_CORRUPT);
        assert_null(read);
        assert_non_null(strstr(coh_last_error(), path));
        assert_null(strchr(coh_last_error(), '\n'));
        return;
    }
    assert_true(lost == 1 || !changed);
    same_tables(trace, read);
    for (uint32_t i = 0; i < read->step_count; i++)
        assert_true(is_same_step(&trace->steps[read->steps[i].step], &read->steps[i],
                                 trace->instruction_count));
    coh_trace_free(read);
}

static void no_truncation_and_no_changed_byte_gives_other_contents(void **state)
{
    (void)state;
    char *data;
    size_t bytes;
    coh_trace *trace = small_trace();
    write_trace(trace);
    assert_int_equal(coh_file_read_whole(PATH, 1 << 20, &data, &bytes), COH_OK);
    for (size_t i = 0; i < bytes; i++)
        read_damaged(trace, data, i, 0);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (char)(data[i] ^ (1 << i % 8));
        read_damaged(trace, data, bytes, 1);
        data[i] = (char)(data[i] ^ (1 << i % 8));
    }
    coh_free(data);
    coh_trace_free(trace);
    unlink(PATH);
}

static void a_failed_create_leaves_no_file(void **state)
{
    (void)state;
    coh_trace *trace = small_trace();
    coh_trace_file *file = (coh_trace_file *)trace;
    assert_int_equal(coh_trace_file_create("no/such/folder", trace, 5, &file), COH_ERR_IO);
    assert_null(file);
    trace->instruction_count--; /* now a wait names an instruction that is not there */
    assert_int_equal(coh_trace_file_create(PATH, trace, 5, &file), COH_ERR_ARGUMENT);
    assert_int_not_equal(access(PATH, F_OK), 0);
    trace->instruction_count++;
    coh_trace_free(trace);
}

static char folder[256];

static int enter_folder(void **state)
{
    (void)state;
    return temporary_folder(folder, sizeof(folder), "trace") != 0 || chdir(folder) != 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read_back),
        cmocka_unit_test(no_truncation_and_no_changed_byte_gives_other_contents),
        cmocka_unit_test(a_failed_create_leaves_no_file),
    };
    return cmocka_run_group_tests(tests, enter_folder, remove_folder);
}
