/* Two books of bytes: reservations under a mutex, and extents as atomic counts. Both are listed as
 * rows in one order, from which the text is printed. Read ledger.h first. */
#include "memory/ledger.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

typedef struct entry {
    char purpose[COH_LEDGER_NAME_BYTES], owner[COH_LEDGER_NAME_BYTES];
    coh_tier tier;
    uint64_t bytes, peak_bytes;
} entry;

/* Every lane thread adds and subtracts (relaxed: a count orders no other access). */
typedef struct count {
    _Atomic uint64_t live_bytes, peak_bytes;
} count;

struct coh_ledger {
    pthread_mutex_t lock; /* guards entries, entry_count, reserved, reserved_peak */
    entry entries[COH_LEDGER_ENTRY_COUNT];
    int entry_count;
    uint64_t reserved[COH_TIER_COUNT], reserved_peak[COH_TIER_COUNT];

    count tiers[COH_TIER_COUNT];
    count streams[COH_TIER_COUNT][COH_LEDGER_STREAM_COUNT];
    _Atomic uint64_t end_peak[COH_TIER_COUNT];
};

coh_status coh_ledger_create(coh_ledger **out_ledger)
{
    *out_ledger = NULL;
    coh_ledger *ledger;
    COH_TRY(COH_ALLOC(1, &ledger));
    pthread_mutex_init(&ledger->lock, NULL); /* a default mutex: cannot fail on Linux */
    *out_ledger = ledger;
    return COH_OK;
}

void coh_ledger_destroy(coh_ledger *ledger)
{
    if (ledger == NULL)
        return;
    assert(coh_ledger_total_bytes(ledger) == 0);
    pthread_mutex_destroy(&ledger->lock);
    coh_free(ledger);
}

static entry *find(coh_ledger *ledger, coh_tier tier, const char *purpose, const char *owner)
{
    for (int i = 0; i < ledger->entry_count; i++) {
        entry *candidate = &ledger->entries[i];
        if (candidate->tier == tier &&
            strncmp(candidate->purpose, purpose, COH_LEDGER_NAME_BYTES - 1) == 0 &&
            strncmp(candidate->owner, owner, COH_LEDGER_NAME_BYTES - 1) == 0)
            return candidate;
    }
    return NULL;
}

coh_status coh_ledger_add(coh_ledger *ledger, coh_tier tier, const char *purpose, const char *owner,
                          uint64_t bytes)
{
    pthread_mutex_lock(&ledger->lock);
    entry *held = find(ledger, tier, purpose, owner);
    if (held == NULL && ledger->entry_count < COH_LEDGER_ENTRY_COUNT) {
        held = &ledger->entries[ledger->entry_count++];
        held->tier = tier;
        snprintf(held->purpose, sizeof(held->purpose), "%s", purpose);
        snprintf(held->owner, sizeof(held->owner), "%s", owner);
    }
    if (held != NULL) {
        held->bytes += bytes;
        if (held->bytes > held->peak_bytes)
            held->peak_bytes = held->bytes;
        ledger->reserved[tier] += bytes;
        if (ledger->reserved[tier] > ledger->reserved_peak[tier])
            ledger->reserved_peak[tier] = ledger->reserved[tier];
    }
    pthread_mutex_unlock(&ledger->lock);
    if (held == NULL)
        return coh_fail(COH_ERR_FULL, "the ledger has %d entries and no room for %s of %s",
                        COH_LEDGER_ENTRY_COUNT, purpose, owner);
    return COH_OK;
}

void coh_ledger_remove(coh_ledger *ledger, coh_tier tier, const char *purpose, const char *owner,
                       uint64_t bytes)
{
    pthread_mutex_lock(&ledger->lock);
    entry *held = find(ledger, tier, purpose, owner);
    int there = held != NULL && held->bytes >= bytes;
    assert(there);
    if (there) {
        held->bytes -= bytes;
        ledger->reserved[tier] -= bytes;
    }
    pthread_mutex_unlock(&ledger->lock);
}

static void raise_to(_Atomic uint64_t *peak, uint64_t value)
{
    uint64_t seen = atomic_load_explicit(peak, memory_order_relaxed);
    while (seen < value && !atomic_compare_exchange_weak_explicit(
                               peak, &seen, value, memory_order_relaxed, memory_order_relaxed)) {
    }
}

static void count_in(count *counted, uint64_t bytes)
{
    uint64_t before = atomic_fetch_add_explicit(&counted->live_bytes, bytes, memory_order_relaxed);
    raise_to(&counted->peak_bytes, before + bytes);
}

static void count_out(count *counted, uint64_t bytes)
{
    uint64_t before = atomic_fetch_sub_explicit(&counted->live_bytes, bytes, memory_order_relaxed);
    assert(before >= bytes);
    (void)before;
}

void coh_ledger_enter(coh_ledger *ledger, coh_tier tier, uint32_t stream, uint64_t offset,
                      uint64_t bytes)
{
    if (ledger == NULL)
        return;
    assert(stream < COH_LEDGER_STREAM_COUNT);
    count_in(&ledger->tiers[tier], bytes);
    count_in(&ledger->streams[tier][stream], bytes);
    raise_to(&ledger->end_peak[tier], offset + bytes);
}

void coh_ledger_leave(coh_ledger *ledger, coh_tier tier, uint32_t stream, uint64_t offset,
                      uint64_t bytes)
{
    (void)offset;
    if (ledger == NULL)
        return;
    assert(stream < COH_LEDGER_STREAM_COUNT);
    count_out(&ledger->tiers[tier], bytes);
    count_out(&ledger->streams[tier][stream], bytes);
}

/* Readers lock, too. The cast is valid because a ledger is never a const object. */
static void lock(const coh_ledger *ledger)
{
    pthread_mutex_lock((pthread_mutex_t *)&ledger->lock);
}

static void unlock(const coh_ledger *ledger)
{
    pthread_mutex_unlock((pthread_mutex_t *)&ledger->lock);
}

static void read_count(const count *counted, uint64_t *out_live, uint64_t *out_peak)
{
    *out_live = atomic_load_explicit(&counted->live_bytes, memory_order_relaxed);
    *out_peak = atomic_load_explicit(&counted->peak_bytes, memory_order_relaxed);
}

void coh_ledger_read(const coh_ledger *ledger, coh_tier tier, coh_ledger_sums *out_sums)
{
    lock(ledger);
    out_sums->reserved_bytes = ledger->reserved[tier];
    out_sums->reserved_peak_bytes = ledger->reserved_peak[tier];
    unlock(ledger);
    read_count(&ledger->tiers[tier], &out_sums->live_bytes, &out_sums->live_peak_bytes);
    out_sums->end_peak_bytes = atomic_load_explicit(&ledger->end_peak[tier], memory_order_relaxed);
}

void coh_ledger_read_stream(const coh_ledger *ledger, coh_tier tier, uint32_t stream,
                            uint64_t *out_live_bytes, uint64_t *out_live_peak_bytes)
{
    read_count(&ledger->streams[tier][stream], out_live_bytes, out_live_peak_bytes);
}

uint64_t coh_ledger_total_bytes(const coh_ledger *ledger)
{
    uint64_t total = 0;
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        coh_ledger_sums sums;
        coh_ledger_read(ledger, (coh_tier)tier, &sums);
        total += sums.reserved_bytes + sums.live_bytes;
    }
    return total;
}

/* Finds row *left of the reservations; if there are fewer, subtracts their number from *left. */
static int reserved_row(const coh_ledger *ledger, uint32_t *left, coh_ledger_row *row)
{
    int found = 0;
    lock(ledger);
    for (int tier = 0; tier < COH_TIER_COUNT && !found; tier++)
        for (int i = 0; i < ledger->entry_count && !found; i++) {
            const entry *held = &ledger->entries[i];
            if (held->tier != (coh_tier)tier || (*left)-- > 0)
                continue;
            *row = (coh_ledger_row){ .tier = held->tier,
                                     .bytes = held->bytes,
                                     .peak_bytes = held->peak_bytes };
            memcpy(row->purpose, held->purpose, sizeof(row->purpose));
            memcpy(row->owner, held->owner, sizeof(row->owner));
            found = 1;
        }
    unlock(ledger);
    return found;
}

static int stream_row(const coh_ledger *ledger, coh_tier tier, const char *const *names,
                      uint32_t name_count, uint32_t *left, coh_ledger_row *row)
{
    *row = (coh_ledger_row){ .tier = tier, .owner = "extents" };
    for (uint32_t stream = 0; stream < COH_LEDGER_STREAM_COUNT; stream++) {
        read_count(&ledger->streams[tier][stream], &row->bytes, &row->peak_bytes);
        if (row->peak_bytes == 0 || (*left)-- > 0)
            continue;
        if (names != NULL && stream < name_count)
            snprintf(row->purpose, sizeof(row->purpose), "%s", names[stream]);
        else
            snprintf(row->purpose, sizeof(row->purpose), "stream %" PRIu32, stream);
        return 1;
    }
    row->bytes = 0;
    row->peak_bytes = atomic_load_explicit(&ledger->end_peak[tier], memory_order_relaxed);
    snprintf(row->purpose, sizeof(row->purpose), "highest end");
    return row->peak_bytes > 0 && (*left)-- == 0;
}

int coh_ledger_row_at(const coh_ledger *ledger, const char *const *stream_names,
                      uint32_t stream_count, uint32_t index, coh_ledger_row *out_row)
{
    uint32_t left = index;
    if (reserved_row(ledger, &left, out_row))
        return 1;
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        if (stream_row(ledger, (coh_tier)tier, stream_names, stream_count, &left, out_row))
            return 1;
    return 0;
}

typedef struct text_out {
    char *buffer;
    size_t room, used; /* used counts what does not fit, too */
} text_out;

__attribute__((format(printf, 2, 3))) static void put(text_out *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t at = out->used < out->room ? out->used : out->room;
    int length = vsnprintf(out->buffer + at, out->room - at, format, arguments);
    va_end(arguments);
    if (length > 0)
        out->used += (size_t)length;
}

size_t coh_ledger_print(const coh_ledger *ledger, const char *const *stream_names,
                        uint32_t stream_count, char *buffer, size_t buffer_bytes)
{
    text_out out = { .buffer = buffer, .room = buffer_bytes };
    coh_ledger_row row;
    put(&out, "%-7s %-24s %-16s %15s %15s\n", "tier", "purpose", "owner", "bytes now", "peak");
    for (uint32_t i = 0; coh_ledger_row_at(ledger, stream_names, stream_count, i, &row); i++)
        put(&out, "%-7s %-24s %-16s %15" PRIu64 " %15" PRIu64 "\n", coh_tier_name(row.tier),
            row.purpose, row.owner, row.bytes, row.peak_bytes);
    return out.used + 1;
}
