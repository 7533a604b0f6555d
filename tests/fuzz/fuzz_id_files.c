/* libFuzzer target: token files of version 2 and .bin files (fuzz_token_file.c covers version 1). A
 * fuzzer cannot find a header's checksum, so it is corrected first. A file that opens must be
 * readable without an access outside it, and its windows contain ids of the vocabulary or -1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <xxhash.h>

#include "cohobate/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void check(int holds)
{
    if (!holds)
        abort();
}

/* Returns the path of a file in memory with these bytes; the caller closes *out_fd. */
static const char *write_file(const uint8_t *bytes, size_t count, int *out_fd)
{
    static char path[64];
    *out_fd = memfd_create("fuzz", MFD_CLOEXEC);
    check(*out_fd >= 0 && (count == 0 || write(*out_fd, bytes, count) == (ssize_t)count));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", *out_fd);
    return path;
}

static void read_windows(coh_token_file *file)
{
    enum { MOST = 64 };
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    int32_t tokens[MOST], targets[MOST];
    check(coh_token_file_facts_get(file, &facts) == COH_OK);
    int64_t length = facts.window > 0 ? facts.window : 5;
    uint64_t window_count = coh_token_file_window_count(file, length);
    for (uint64_t n = 0; length <= MOST && n < window_count && n < 20; n++) {
        if (coh_token_file_window(file, 1, n, length, tokens, targets) != COH_OK)
            continue;
        for (int64_t i = 0; i < length; i++)
            check(tokens[i] >= 0 && tokens[i] < facts.vocabulary && targets[i] >= -1 &&
                  targets[i] < facts.vocabulary);
    }
    (void)coh_token_file_check(file);
    coh_token_file_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    int fd;
    coh_token_file *file;
    uint8_t *copy = malloc(count + 1);
    check(copy != NULL);
    if (count)
        memcpy(copy, bytes, count);
    if (count >= 64) {
        const uint64_t hash = XXH3_64bits(copy, 56);
        for (int i = 0; i < 8; i++)
            copy[56 + i] = (uint8_t)(hash >> (8 * i));
    }
    const char *path = write_file(copy, count, &fd);
    if (coh_token_file_open(path, &file) == COH_OK)
        read_windows(file);
    close(fd);
    free(copy);
    path = write_file(bytes, count, &fd);
    for (int wide = 0; wide < 2; wide++)
        if (coh_token_file_open_raw(path, wide ? 70000 : 50257, 0, &file) == COH_OK)
            read_windows(file);
    close(fd);
    return 0;
}
