/* libFuzzer target: a token file. Its header contains the hash of its ids and ends with its own
 * hash, neither of which a fuzzer can find: an input is read as it is, then with both corrected. An
 * accepted file must give the same ids however it is read, all within the vocabulary. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/alloc.h"
#include "text/token_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts on a violated guarantee. */
static void check(int holds)
{
    if (!holds)
        abort();
}

static void ranges_check(coh_token_file *file, const int32_t *ids, uint64_t count)
{
    int32_t piece[5];
    for (uint64_t begin = 0; begin < count; begin += 1 + begin / 3) {
        const size_t now = count - begin < 5 ? (size_t)(count - begin) : 5;
        check(coh_token_file_read(file, begin, now, piece) == COH_OK);
        check(memcmp(piece, ids + begin, now * sizeof(*ids)) == 0);
    }
    check(coh_token_file_read(file, count, 1, piece) == COH_ERR_ARGUMENT);
    check(coh_token_file_read(file, UINT64_MAX, 2, piece) == COH_ERR_ARGUMENT);
    check(coh_token_file_read(file, 1, SIZE_MAX, piece) == COH_ERR_ARGUMENT);
}

/* Returns the expected number of windows: in an aligned file each has one extra id at its end,
 * shared with no other. */
static uint64_t windows_expected(const coh_token_file_facts *facts, uint64_t length)
{
    if (facts->window)
        return (int64_t)length == facts->window ? facts->token_count / (length + 1) : 0;
    return facts->token_count ? (facts->token_count - 1) / length : 0;
}

/* Checks that targets are the following tokens, or -1 where masked. */
static void windows_check(coh_token_file *file, const coh_token_file_facts *facts)
{
    int32_t tokens[7], targets[7], positions[7];
    for (int64_t length = 1; length <= 7; length += 3) {
        const uint64_t windows = coh_token_file_window_count(file, length);
        check(windows == windows_expected(facts, (uint64_t)length));
        for (uint64_t number = 0; number < windows * 2 && number < 40; number++) {
            check(coh_token_file_window_positions(file, 3, number, length, tokens, targets,
                                                  positions) == COH_OK);
            for (int64_t i = 0; i < length; i++)
                check(positions[i] == (i ? positions[i - 1] + 1 : 0) ||
                      (facts->marks_documents && positions[i] == 0));
            for (int64_t i = 0; i + 1 < length; i++)
                check(targets[i] == tokens[i + 1] || (facts->has_mask && targets[i] == -1));
        }
        if (windows == 0)
            check(coh_token_file_window(file, 3, 0, length, tokens, targets) == COH_ERR_ARGUMENT);
    }
}

static void entropy_check(coh_token_file *file, int64_t vocabulary)
{
    double nats;
    if (vocabulary > 100000) /* the entropy counts every id of the vocabulary */
        return;
    check(coh_token_file_unigram_entropy(file, &nats) == COH_OK);
    check(nats >= 0 && nats <= log((double)vocabulary) + 1e-9);
}

static void use(coh_token_file *file, size_t size, int is_sealed)
{
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    int32_t *ids;
    check(coh_token_file_facts_get(file, &facts) == COH_OK);
    check(facts.vocabulary >= 1 && facts.vocabulary <= INT32_MAX && facts.token_count <= size);
    if (COH_ALLOC(facts.token_count, &ids) != COH_OK)
        abort();
    const coh_status status = coh_token_file_read(file, 0, facts.token_count, ids);
    const coh_status hashed = coh_token_file_check(file);
    check(status == COH_OK || status == COH_ERR_CORRUPT);
    check(hashed == (is_sealed ? status : COH_ERR_CORRUPT) || hashed == status);
    if (status == COH_OK) {
        for (uint64_t i = 0; i < facts.token_count; i++)
            check(ids[i] >= 0 && ids[i] < facts.vocabulary);
        ranges_check(file, ids, facts.token_count);
        windows_check(file, &facts);
        entropy_check(file, facts.vocabulary);
    }
    coh_free(ids);
}

/* Opens a file without a name that holds these bytes, and uses it. */
static void open_and_use(const uint8_t *bytes, size_t size, int is_sealed)
{
    char path[64];
    coh_token_file *file;
    const int fd = memfd_create("tokens", MFD_CLOEXEC);
    check(fd >= 0 && (size == 0 || write(fd, bytes, size) == (ssize_t)size));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const coh_status status = coh_token_file_open(path, &file);
    check(status == COH_OK || status == COH_ERR_CORRUPT);
    if (status == COH_OK)
        use(file, size, is_sealed);
    else
        check(strstr(coh_last_error(), path) != NULL);
    coh_token_file_close(file);
    close(fd);
}

static void put(uint8_t *bytes, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
}

/* Returns the hash of the ids; in version 2, of bytes 48..55, too. */
static uint64_t hash_of(const uint8_t *bytes, size_t size)
{
    XXH3_state_t *state = XXH3_createState();
    check(state && XXH3_64bits_reset(state) == XXH_OK);
    check(XXH3_64bits_update(state, bytes + COH_TOKEN_HEADER_BYTES,
                             size - COH_TOKEN_HEADER_BYTES) == XXH_OK);
    if (bytes[8] == 2)
        check(XXH3_64bits_update(state, bytes + 48, 8) == XXH_OK);
    const uint64_t hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    open_and_use(data, size, 0);
    if (size < COH_TOKEN_HEADER_BYTES)
        return 0;
    uint8_t *sealed;
    if (coh_alloc(size, 1, (void **)&sealed) != COH_OK)
        abort();
    memcpy(sealed, data, size);
    put(sealed + 40, hash_of(sealed, size));
    put(sealed + 56, XXH3_64bits(sealed, 56));
    open_and_use(sealed, size, 1);
    coh_free(sealed);
    return 0;
}
