/* The ring on files that end early and files that are refused: results that a complete file never
 * gives. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "tests/offload/store_fixture.h"

#ifdef COH_HAVE_URING

#include "offload/store_uring.h"

typedef struct bench {
    rig made;
    coh_store base;
    coh_ring_port port;
} bench;

static void bench_open(bench *b, coh_store_port which, uint64_t file_bytes)
{
    char path[300];
    memset(b, 0, sizeof(*b));
    rig_layout(&b->made);
    coh_store_config config = rig_config(&b->made);
    assert_int_equal(coh_store_base_init(&b->base, &config, "io_uring"), COH_OK);
    snprintf(path, sizeof(path), "%s/file", b->made.folder);
    b->base.fds[0] = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(b->base.fds[0] >= 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ftruncate(b->base.fds[0], (off_t)file_bytes), 0);
    assert_int_equal(coh_ring_port_init(&b->port, &b->base, which, 4), COH_OK);
}

static void bench_close(bench *b)
{
    coh_ring_port_fini(&b->port);
    coh_ring_port_fini(&b->port);  /* has no effect the second time */
    coh_store_base_fini(&b->base); /* closes the file */
    rig_close(&b->made);
}

static coh_status one(bench *b, const coh_store_request *request)
{
    coh_store_completion completion;
    uint32_t count;
    assert_int_equal(coh_ring_port_submit(&b->port, request), COH_OK);
    assert_int_equal(coh_ring_port_reap(&b->port, &completion, 1, 1, &count), COH_OK);
    assert_int_equal(count, 1);
    return completion.status;
}

/* The first read returns 2.5 of 3 pages: it is continued at the last block border, is short again
 * and then finds the end. Mistakes show as a hang or a wrong count. */
static void a_file_that_ends_inside_a_chunk_is_an_io_error(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, COH_STORE_READS, 2 * PAGE + PAGE / 2);
    coh_store_request request = rig_request(&b.made, 1, 1); /* 3 pages */
    request.file_offset = 0;
    assert_int_equal(one(&b, &request), COH_ERR_IO);
    bench_close(&b);
}

static void a_file_that_ends_before_a_chunk_says_so(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, COH_STORE_READS, 2 * PAGE);
    coh_store_request request = rig_request(&b.made, 1, 1);
    request.file_offset = 0;
    assert_int_equal(one(&b, &request), COH_ERR_IO);
    assert_non_null(strstr(coh_last_error(), "the file ended"));
    bench_close(&b);
}

/* A chunk of several pieces, the later ones beyond the end: one completion,
 * after all its pieces. */
static void a_chunk_of_which_some_pieces_fail_completes_once(void **state)
{
    (void)state;
    bench b;
    coh_store_completion completions[2];
    uint32_t count;
    bench_open(&b, COH_STORE_READS, PIECE);
    coh_store_request request = rig_request(&b.made, 4, 1); /* 3 pieces and 7 pages */
    request.file_offset = 0;
    assert_int_equal(one(&b, &request), COH_ERR_IO);
    assert_int_equal(coh_ring_port_reap(&b.port, completions, 1, 2, &count), COH_OK);
    assert_int_equal(count, 0);
    assert_int_equal(b.port.in_kernel_count, 0);
    assert_int_equal(b.port.slots.active_count, 0);
    assert_int_equal(b.port.slots.done_count, 0);
    bench_close(&b);
}

/* A write past the limit on file sizes fails with EFBIG; a chunk across the limit is torn. */
static void a_refused_write_is_an_error_and_its_chunk_is_not_believed(void **state)
{
    (void)state;
    bench b;
    struct rlimit before, limit;
    bench_open(&b, COH_STORE_WRITES, 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){ 2 * PAGE, before.rlim_max };
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    coh_store_request request = rig_request(&b.made, 1, 1);
    request.file_offset = 0;
    coh_status status = one(&b, &request);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, COH_ERR_IO);
    assert_non_null(strstr(coh_last_error(), "writing chunk 1"));
    assert_int_equal(coh_checksum_table_check(b.base.checksums, &request), COH_ERR_CORRUPT);
    bench_close(&b);
}

static void a_file_that_cannot_be_read_fails_its_request(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, COH_STORE_READS, PAGE);
    int not_a_file = open(b.made.folder, O_RDONLY | O_DIRECTORY); /* a folder is not readable */
    assert_true(not_a_file >= 0);
    b.port.files_fixed = 0;
    close(b.base.fds[0]);
    b.base.fds[0] = not_a_file;
    coh_store_request request = rig_request(&b.made, 0, 1);
    assert_int_equal(one(&b, &request), COH_ERR_IO);
    assert_non_null(strstr(coh_last_error(), "failed: "));
    bench_close(&b);
}

/* Replaces the file by a pipe, which gives its contents: one page now, the other two later. */
static void pipe_in_place_of_the_file(bench *b, int *out_far_end)
{
    int ends[2];
    bench_open(b, COH_STORE_READS, PAGE);
    assert_int_equal(pipe(ends), 0);
    b->port.files_fixed = 0;
    close(b->base.fds[0]);
    b->base.fds[0] = ends[0];
    *out_far_end = ends[1];
}

static void a_short_transfer_goes_on_where_it_stopped(void **state)
{
    (void)state;
    bench b;
    int far_end;
    coh_store_completion completion;
    uint32_t count;
    pipe_in_place_of_the_file(&b, &far_end);
    coh_store_request request = rig_request(&b.made, 1, 1); /* 3 pages */
    unsigned char *sent = malloc(request.bytes);
    rig_fill(&request);
    coh_checksum_table_record(b.base.checksums, &request, coh_checksum_of(&request));
    memcpy(sent, request.memory, request.bytes);
    memset(request.memory, 0, request.bytes);

    assert_int_equal(write(far_end, sent, PAGE), PAGE);
    assert_int_equal(coh_ring_port_submit(&b.port, &request), COH_OK);
    assert_int_equal(coh_ring_port_reap(&b.port, &completion, 0, 1, &count), COH_OK);
    assert_int_equal(count, 0);
    assert_int_equal(write(far_end, sent + PAGE, 2 * PAGE), 2 * PAGE);
    assert_int_equal(coh_ring_port_reap(&b.port, &completion, 1, 1, &count), COH_OK);
    assert_int_equal(count, 1);
    assert_int_equal(completion.status, COH_OK);
    assert_memory_equal(request.memory, sent, request.bytes);
    free(sent);
    close(far_end);
    bench_close(&b);
}

static int can(void)
{
    return rig_can(&coh_store_uring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_ends_inside_a_chunk_is_an_io_error),
        cmocka_unit_test(a_file_that_ends_before_a_chunk_says_so),
        cmocka_unit_test(a_chunk_of_which_some_pieces_fail_completes_once),
        cmocka_unit_test(a_refused_write_is_an_error_and_its_chunk_is_not_believed),
        cmocka_unit_test(a_file_that_cannot_be_read_fails_its_request),
        cmocka_unit_test(a_short_transfer_goes_on_where_it_stopped),
    };
    if (!can()) {
        printf("skipped: %s\n", coh_last_error());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    printf("skipped: built without io_uring\n");
    return 77;
}

#endif
