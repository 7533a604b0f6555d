/* NCCL on the streams of the stub driver. Read fake_nccl.h first. */
#include "tests/cuda/fake_nccl.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/stub_driver.h"

enum { RANKS_MOST = 16, WORLDS_MOST = 64, RING = 64, GROUP_MOST = 1024 };

#define RELEASED ((uint64_t)INT64_MAX)

static void require(int is_so, const char *what)
{
    if (is_so)
        return;
    fprintf(stderr, "fake NCCL: %s\n", what);
    abort();
}

/* ---- worlds ---- */

typedef struct parcel {
    const void *from;
    size_t bytes;
} parcel;

/* The messages of one rank to another. */
typedef struct channel {
    _Atomic uint64_t *posted, *taken; /* words that streams reach */
    uint64_t sent, received;          /* enqueued; each of one rank's thread */
    parcel ring[RING];
    _Atomic int sender_is_gone, receiver_is_gone; /* aborted */
} channel;

typedef struct fake_world {
    int is_used, rank_count, joined_count, finished_count, left_count;
    uint64_t *words;
    channel channels[RANKS_MOST][RANKS_MOST]; /* by sender, receiver */
} fake_world;

struct coh_nccl_communicator {
    fake_world *world;
    int rank;
    CUstream stream; /* of its last group */
    int is_late;     /* looks until a group that is in progress is not */
    int has_finalized, has_joined;
    uint64_t group_count;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static fake_world worlds[WORLDS_MOST];
static int live_count;
static uint64_t fail_in;
static fake_nccl_call fail_call;
static int was_hit;

void fake_nccl_fail_nth(fake_nccl_call call, uint64_t n)
{
    pthread_mutex_lock(&mutex);
    fail_call = call;
    fail_in = n;
    was_hit = 0;
    pthread_mutex_unlock(&mutex);
}

int fake_nccl_fault_was_hit(void)
{
    pthread_mutex_lock(&mutex);
    const int hit = was_hit;
    pthread_mutex_unlock(&mutex);
    return hit;
}

void fake_nccl_reset(void)
{
    pthread_mutex_lock(&mutex);
    require(live_count == 0, "communicators are alive");
    memset(worlds, 0, sizeof(worlds));
    fail_in = 0;
    was_hit = 0;
    pthread_mutex_unlock(&mutex);
}

int fake_nccl_live_count(void)
{
    pthread_mutex_lock(&mutex);
    const int count = live_count;
    pthread_mutex_unlock(&mutex);
    return count;
}

const char *fake_nccl_call_name(fake_nccl_call call)
{
    static const char *const names[] = { "ncclGetUniqueId",
                                         "ncclCommInitRankConfig",
                                         "ncclCommGetAsyncError",
                                         "ncclCommFinalize",
                                         "ncclGroupStart",
                                         "ncclGroupEnd",
                                         "ncclSend",
                                         "ncclRecv" };
    return names[call];
}

/* Returns 1 if this call is to fail; the mutex is held. */
static int fails(fake_nccl_call call)
{
    if (fail_in == 0 || call != fail_call || --fail_in > 0)
        return 0;
    was_hit = 1;
    return 1;
}

static int fails_now(fake_nccl_call call)
{
    pthread_mutex_lock(&mutex);
    const int result = fails(call);
    pthread_mutex_unlock(&mutex);
    return result;
}

enum { SYSTEM_ERROR = 2 };

/* ---- communicators ---- */

static int get_id(coh_nccl_id *out_id)
{
    int found = 0;
    pthread_mutex_lock(&mutex);
    if (fails(FAKE_NCCL_ID)) {
        pthread_mutex_unlock(&mutex);
        return SYSTEM_ERROR;
    }
    while (found < WORLDS_MOST && worlds[found].is_used)
        found++;
    require(found < WORLDS_MOST, "too many worlds");
    memset(&worlds[found], 0, sizeof(worlds[found]));
    worlds[found].is_used = 1;
    pthread_mutex_unlock(&mutex);
    memset(out_id, 0, sizeof(*out_id));
    snprintf(out_id->bytes, sizeof(out_id->bytes), "fake %d", found);
    return COH_NCCL_SUCCESS;
}

static void make_words(fake_world *world)
{
    const size_t bytes = 2 * RANKS_MOST * RANKS_MOST * sizeof(*world->words);
    void *words = NULL;
    require(coh_stub_driver.cuMemAllocHost(&words, bytes) == CUDA_SUCCESS, "no words");
    memset(words, 0, bytes);
    world->words = words;
    for (int a = 0; a < RANKS_MOST; a++)
        for (int b = 0; b < RANKS_MOST; b++) {
            world->channels[a][b].posted =
                (_Atomic uint64_t *)&world->words[2 * (a * RANKS_MOST + b)];
            world->channels[a][b].taken =
                (_Atomic uint64_t *)&world->words[2 * (a * RANKS_MOST + b) + 1];
        }
}

static int init(coh_nccl_communicator **out, int rank_count, coh_nccl_id id, int rank,
                coh_nccl_config *config)
{
    int number = -1;
    *out = NULL;
    require(sscanf(id.bytes, "fake %d", &number) == 1 && number >= 0 && number < WORLDS_MOST &&
                rank >= 0 && rank < rank_count && rank_count <= RANKS_MOST,
            "no such world");
    require(config->struct_bytes == sizeof(*config) && config->magic == COH_NCCL_CONFIG_MAGIC &&
                config->blocking == 0,
            "another configuration");
    if (fails_now(FAKE_NCCL_INIT))
        return SYSTEM_ERROR;
    coh_nccl_communicator *made = calloc(1, sizeof(*made));
    require(made != NULL, "no memory");
    pthread_mutex_lock(&mutex);
    fake_world *world = &worlds[number];
    require(world->is_used, "the world is gone");
    world->rank_count = rank_count;
    if (world->joined_count++ == 0)
        make_words(world);
    live_count++;
    pthread_mutex_unlock(&mutex);
    *made = (coh_nccl_communicator){ .world = world, .rank = rank };
    *out = made;
    return COH_NCCL_IN_PROGRESS;
}

static int get_async_error(coh_nccl_communicator *c, int *out_result)
{
    pthread_mutex_lock(&mutex);
    const int is_bad = fails(FAKE_NCCL_ASYNC_ERROR);
    const fake_world *world = c->world;
    const int has_all = world->joined_count == world->rank_count;
    const int is_early =
        !has_all || (c->has_finalized && world->finished_count < world->rank_count);
    pthread_mutex_unlock(&mutex);
    *out_result = is_bad                                             ? SYSTEM_ERROR
                  : is_early || (c->is_late > 0 && c->is_late-- > 0) ? COH_NCCL_IN_PROGRESS
                                                                     : COH_NCCL_SUCCESS;
    return COH_NCCL_SUCCESS;
}

static int finalize(coh_nccl_communicator *c)
{
    if (fails_now(FAKE_NCCL_FINALIZE))
        return SYSTEM_ERROR;
    pthread_mutex_lock(&mutex);
    require(!c->has_finalized, "finalized twice");
    c->has_finalized = 1;
    c->world->finished_count++;
    pthread_mutex_unlock(&mutex);
    return COH_NCCL_IN_PROGRESS;
}

static void leave(coh_nccl_communicator *c)
{
    fake_world *world = c->world;
    pthread_mutex_lock(&mutex);
    live_count--;
    /* A world that not all have joined is kept until those that have are gone. */
    if (++world->left_count == world->joined_count) {
        require(coh_stub_driver.cuMemFreeHost(world->words) == CUDA_SUCCESS ||
                    coh_stub_fault_was_hit(),
                "the words cannot be freed");
        world->words = NULL;
        world->is_used = world->joined_count < world->rank_count;
        world->joined_count = world->left_count = 0;
    }
    pthread_mutex_unlock(&mutex);
    free(c);
}

static int destroy(coh_nccl_communicator *c)
{
    require(c->has_finalized, "destroyed before it was finalized");
    leave(c);
    return COH_NCCL_SUCCESS;
}

/* Lets everything that the rank's stream waits for come. Peers may still write their words. */
static int release(coh_nccl_communicator *c)
{
    for (int peer = 0; peer < RANKS_MOST; peer++) {
        channel *out = &c->world->channels[c->rank][peer], *in = &c->world->channels[peer][c->rank];
        atomic_store(&out->sender_is_gone, 1);
        atomic_store(&in->receiver_is_gone, 1);
        atomic_store(out->taken, RELEASED);
        atomic_store(in->posted, RELEASED);
    }
    return c->stream != NULL && coh_stub_driver.cuStreamQuery(c->stream) == CUDA_ERROR_NOT_READY;
}

static int abort_communicator(coh_nccl_communicator *c)
{
    while (release(c))
        sched_yield();
    leave(c);
    return COH_NCCL_SUCCESS;
}

/* ---- groups ---- */

typedef struct operation {
    coh_nccl_communicator *communicator;
    const void *from; /* NULL: a receive */
    void *to;
    size_t bytes;
    int peer;
    CUstream stream;
    uint64_t number;
} operation;

static _Thread_local struct {
    int is_open;
    size_t count;
    operation operations[GROUP_MOST];
} group;

static int group_start(void)
{
    if (fails_now(FAKE_NCCL_GROUP_START))
        return SYSTEM_ERROR;
    require(!group.is_open, "a group in a group");
    group.is_open = 1;
    group.count = 0;
    return COH_NCCL_SUCCESS;
}

static int add(operation made)
{
    require(group.is_open && group.count < GROUP_MOST, "no group");
    require(made.bytes > 0 && made.peer >= 0 && made.peer < made.communicator->world->rank_count,
            "a message to nobody");
    group.operations[group.count++] = made;
    return COH_NCCL_SUCCESS;
}

static int send_bytes(const void *from, size_t count, int type, int peer, coh_nccl_communicator *c,
                      CUstream stream)
{
    require(type == COH_NCCL_BYTE, "not bytes");
    if (fails_now(FAKE_NCCL_SEND))
        return SYSTEM_ERROR;
    return add((operation){
        .communicator = c, .from = from, .bytes = count, .peer = peer, .stream = stream });
}

static int receive_bytes(void *to, size_t count, int type, int peer, coh_nccl_communicator *c,
                         CUstream stream)
{
    require(type == COH_NCCL_BYTE, "not bytes");
    if (fails_now(FAKE_NCCL_RECEIVE))
        return SYSTEM_ERROR;
    return add(
        (operation){ .communicator = c, .to = to, .bytes = count, .peer = peer, .stream = stream });
}

/* ---- commands ---- */

typedef struct move {
    channel *through;
    const void *from;
    void *to;
    size_t bytes;
    uint64_t number;
} move;

static void post(const void *arguments)
{
    const move *m = arguments;
    m->through->ring[m->number % RING] = (parcel){ m->from, m->bytes };
}

static void take(const void *arguments)
{
    const move *m = arguments;
    if (atomic_load(&m->through->receiver_is_gone) || atomic_load(&m->through->sender_is_gone))
        return;
    const parcel *sent = &m->through->ring[m->number % RING];
    require(sent->bytes == m->bytes, "a message of another size is received");
    memcpy(m->to, sent->from, m->bytes);
}

static CUdeviceptr address(const _Atomic uint64_t *word)
{
    return (CUdeviceptr)(uintptr_t)word;
}

static void write_word(const operation *o, const _Atomic uint64_t *word)
{
    (void)coh_stub_driver.cuStreamWriteValue64(o->stream, address(word), o->number,
                                               CU_STREAM_WRITE_VALUE_DEFAULT);
}

static void wait_word(const operation *o, const _Atomic uint64_t *word)
{
    (void)coh_stub_driver.cuStreamWaitValue64(o->stream, address(word), o->number,
                                              CU_STREAM_WAIT_VALUE_GEQ);
}

static channel *channel_of(const operation *o)
{
    const int own = o->communicator->rank;
    return o->from != NULL ? &o->communicator->world->channels[own][o->peer]
                           : &o->communicator->world->channels[o->peer][own];
}

static void start_send(operation *o)
{
    channel *through = channel_of(o);
    o->number = ++through->sent;
    const move m = { .through = through, .from = o->from, .bytes = o->bytes, .number = o->number };
    coh_stub_enqueue(o->stream, post, &m, sizeof(m));
    write_word(o, through->posted);
}

static void receive(operation *o)
{
    channel *through = channel_of(o);
    o->number = ++through->received;
    const move m = { .through = through, .to = o->to, .bytes = o->bytes, .number = o->number };
    wait_word(o, through->posted);
    coh_stub_enqueue(o->stream, take, &m, sizeof(m));
    write_word(o, through->taken);
}

static int group_end(void)
{
    require(group.is_open, "no group ends");
    group.is_open = 0;
    if (fails_now(FAKE_NCCL_GROUP_END))
        return SYSTEM_ERROR;
    if (group.count == 0)
        return COH_NCCL_SUCCESS;
    coh_nccl_communicator *c = group.operations[0].communicator;
    for (size_t i = 0; i < group.count; i++)
        require(group.operations[i].communicator == c, "two communicators in a group");
    c->stream = group.operations[0].stream;
    for (size_t i = 0; i < group.count; i++)
        if (group.operations[i].from != NULL)
            start_send(&group.operations[i]);
    for (size_t i = 0; i < group.count; i++)
        if (group.operations[i].from == NULL)
            receive(&group.operations[i]);
    for (size_t i = 0; i < group.count; i++)
        if (group.operations[i].from != NULL)
            wait_word(&group.operations[i], channel_of(&group.operations[i])->taken);
    c->is_late = c->group_count++ % 3 == 1;
    return c->is_late ? COH_NCCL_IN_PROGRESS : COH_NCCL_SUCCESS;
}

static const char *error_string(int result)
{
    return result == SYSTEM_ERROR ? "made to fail" : "no such error";
}

static const char *last_error(coh_nccl_communicator *c)
{
    (void)c;
    return "";
}

const coh_nccl_calls fake_nccl = {
    .ncclGetUniqueId = get_id,
    .ncclCommInitRankConfig = init,
    .ncclCommGetAsyncError = get_async_error,
    .ncclCommFinalize = finalize,
    .ncclCommDestroy = destroy,
    .ncclCommAbort = abort_communicator,
    .ncclGroupStart = group_start,
    .ncclGroupEnd = group_end,
    .ncclSend = send_bytes,
    .ncclRecv = receive_bytes,
    .ncclGetErrorString = error_string,
    .ncclGetLastError = last_error,
};
