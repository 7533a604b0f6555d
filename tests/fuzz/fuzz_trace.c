/* libFuzzer target: a trace file without steps. Its parts end with checksums, which a fuzzer cannot
 * find: an input is read as it is, then with all of them corrected. An accepted file is written
 * again, which must succeed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/alloc.h"
#include "cohobate/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER = 72, LATENCIES = COH_LANE_COUNT * COH_TRACE_LATENCIES * 8 + 8 };

/* Aborts on a violated guarantee. */
static void check(int holds)
{
    if (!holds)
        abort();
}

static void open_and_use(const uint8_t *bytes, size_t size)
{
    char path[64], copy_path[] = "fuzz_trace_copy.bin";
    coh_trace *trace;
    coh_trace_file *copy;
    const int fd = memfd_create("trace", MFD_CLOEXEC);
    check(fd >= 0 && (size == 0 || write(fd, bytes, size) == (ssize_t)size));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const coh_status status = coh_trace_read(path, &trace, NULL);
    check(status == COH_OK || status == COH_ERR_CORRUPT);
    if (status == COH_OK) {
        check(coh_trace_file_create(copy_path, trace, 1, &copy) == COH_OK);
        coh_trace_file_close(copy);
        unlink(copy_path);
    } else {
        check(strstr(coh_last_error(), path) != NULL);
    }
    coh_trace_free(trace);
    close(fd);
}

/* Puts the checksum of bytes begin..end - 9 before `end`. */
static void seal(uint8_t *bytes, size_t begin, size_t end)
{
    const uint64_t hash = XXH3_64bits(bytes + begin, end - 8 - begin);
    for (int i = 0; i < 8; i++)
        bytes[end - 8 + (size_t)i] = (uint8_t)(hash >> (8 * i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    open_and_use(data, size);
    if (size < HEADER + 8 + LATENCIES)
        return 0;
    uint8_t *sealed;
    if (coh_alloc(size, 1, (void **)&sealed) != COH_OK)
        abort();
    memcpy(sealed, data, size);
    seal(sealed, 0, HEADER);
    seal(sealed, HEADER, size - LATENCIES);
    seal(sealed, size - LATENCIES, size);
    open_and_use(sealed, size);
    coh_free(sealed);
    return 0;
}
