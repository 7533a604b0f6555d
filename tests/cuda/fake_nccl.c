/* NCCL on the stub driver's streams, in memory that processes share. Read fake_nccl.h first. */
#include "tests/cuda/fake_nccl.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda/stub_driver.h"

enum { RANKS_MOST = 16, LIVE_MOST = 256, RING = 8, GROUP_MOST = 1024 };
/* A shorter message is sent before it is received. */
enum { EAGER_BYTES = 2048 };
/* A longer one leaves no memory behind. */
enum { KEPT_BYTES = 65536 };

#define SLOT_BYTES ((size_t)32 << 20)
#define RELEASED   ((uint64_t)INT64_MAX)

static void require(int is_so, const char *what)
{
    if (is_so)
        return;
    fprintf(stderr, "fake NCCL: %s\n", what);
    abort();
}

/* ---- worlds ---- */

/* The messages of one rank to another: message n is in slot n % RING. */
typedef struct channel {
    _Atomic uint64_t posted, taken;               /* words that streams reach */
    _Atomic uint64_t labels[RING];                /* bytes, and of which kind of call */
    _Atomic int sender_is_gone, receiver_is_gone; /* aborted */
} channel;

/* A file in memory that each communicator maps; behind it, all slots. */
typedef struct fake_world {
    char id[sizeof(coh_nccl_id)];
    _Atomic int rank_count, joined_count;
    channel channels[RANKS_MOST][RANKS_MOST]; /* by sender, receiver */
} fake_world;

#define HEAD_BYTES  ((sizeof(fake_world) + 4095) / 4096 * 4096)
#define WORLD_BYTES (HEAD_BYTES + SLOT_BYTES * RING * RANKS_MOST * RANKS_MOST)

typedef enum operation_kind { MESSAGE, ALL_GATHER, REDUCE_SCATTER } operation_kind;

typedef struct operation {
    coh_nccl_communicator *communicator;
    operation_kind kind;
    const void *from; /* NULL: a receive */
    void *to;
    size_t bytes; /* of a collective: of a part */
    int peer;
    CUstream stream;
    uint64_t number;
} operation;

struct coh_nccl_communicator {
    fake_world *world;
    int rank;
    CUstream stream;                                 /* of all its groups */
    uint64_t sent[RANKS_MOST], received[RANKS_MOST]; /* messages to and from each rank */
    operation *pending;                              /* of a group in progress */
    size_t pending_count;
    int looks; /* until what is in progress is done */
    int is_in_progress, has_finalized;
    uint64_t group_count;
    _Atomic int is_in_use; /* by a thread */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static coh_nccl_communicator *live[LIVE_MOST];
static int files[LIVE_MOST]; /* of worlds that were made here, plus 1; 0: none */
static uint64_t made_count;
static uint64_t fail_in;
static fake_nccl_call fail_call;
static uint64_t call_counts[FAKE_NCCL_CALL_COUNT];
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

uint64_t fake_nccl_count(fake_nccl_call call)
{
    pthread_mutex_lock(&mutex);
    const uint64_t count = call_counts[call];
    pthread_mutex_unlock(&mutex);
    return count;
}

int fake_nccl_live_count(void)
{
    int count = 0;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < LIVE_MOST; i++)
        count += live[i] != NULL;
    pthread_mutex_unlock(&mutex);
    return count;
}

void fake_nccl_reset(void)
{
    require(fake_nccl_live_count() == 0, "communicators are alive");
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < LIVE_MOST; i++) {
        if (files[i] > 0)
            close(files[i] - 1);
        files[i] = 0;
    }
    fail_in = 0;
    was_hit = 0;
    memset(call_counts, 0, sizeof(call_counts));
    pthread_mutex_unlock(&mutex);
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
                                         "ncclRecv",
                                         "ncclAllGather",
                                         "ncclReduceScatter" };
    return names[call];
}

/* Returns 1 if this call is to fail; the mutex is held. */
static int fails(fake_nccl_call call)
{
    call_counts[call]++;
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

/* Puts a file into the table. */
static void keep(int file)
{
    int at = 0;
    while (at < LIVE_MOST && files[at] > 0)
        at++;
    require(at < LIVE_MOST, "too many worlds");
    files[at] = file + 1;
}

static int get_id(coh_nccl_id *out_id)
{
    pthread_mutex_lock(&mutex);
    if (fails(FAKE_NCCL_ID)) {
        pthread_mutex_unlock(&mutex);
        return SYSTEM_ERROR;
    }
    const int file = memfd_create("fake NCCL", 0);
    require(file >= 0 && ftruncate(file, (off_t)WORLD_BYTES) == 0, "no memory for a world");
    keep(file);
    memset(out_id, 0, sizeof(*out_id));
    snprintf(out_id->bytes, sizeof(out_id->bytes), "/proc/%d/fd/%d of world %llu", (int)getpid(),
             file, (unsigned long long)++made_count);
    pthread_mutex_unlock(&mutex);
    require(pwrite(file, out_id, sizeof(*out_id), offsetof(fake_world, id)) == sizeof(*out_id),
            "a world without an id");
    return COH_NCCL_SUCCESS;
}

/* Maps the world of an id; NULL: it is gone. */
static fake_world *open_world(const coh_nccl_id *id)
{
    char path[64];
    require(sscanf(id->bytes, "%63s", path) == 1, "no such id");
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return NULL;
    fake_world *world =
        mmap(NULL, WORLD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    require(world != MAP_FAILED, "a world cannot be mapped");
    if (memcmp(world->id, id, sizeof(*id)) == 0 &&
        coh_stub_driver.cuMemHostRegister(world, HEAD_BYTES, CU_MEMHOSTREGISTER_DEVICEMAP) ==
            CUDA_SUCCESS)
        return world;
    munmap(world, WORLD_BYTES);
    return NULL;
}

static int init(coh_nccl_communicator **out, int rank_count, coh_nccl_id id, int rank,
                coh_nccl_config *config)
{
    int at = 0;
    *out = NULL;
    require(rank >= 0 && rank < rank_count && rank_count <= RANKS_MOST, "no such rank");
    require(config->struct_bytes == sizeof(*config) && config->magic == COH_NCCL_CONFIG_MAGIC &&
                config->blocking == 0,
            "another configuration");
    require(coh_stub_current() != NULL, "no GPU is current");
    if (fails_now(FAKE_NCCL_INIT))
        return SYSTEM_ERROR;
    fake_world *world = open_world(&id);
    if (world == NULL)
        return SYSTEM_ERROR;
    coh_nccl_communicator *made = calloc(1, sizeof(*made));
    require(made != NULL, "no memory");
    *made = (coh_nccl_communicator){ .world = world, .rank = rank, .is_in_progress = 1 };
    atomic_store(&world->rank_count, rank_count);
    atomic_fetch_add(&world->joined_count, 1);
    pthread_mutex_lock(&mutex);
    while (at < LIVE_MOST && live[at] != NULL)
        at++;
    require(at < LIVE_MOST, "too many communicators");
    live[at] = made;
    pthread_mutex_unlock(&mutex);
    *out = made;
    return COH_NCCL_IN_PROGRESS;
}

/* Begins a call: the communicator is alive, and no other thread uses it. */
static void enter(coh_nccl_communicator *c)
{
    int at = 0;
    pthread_mutex_lock(&mutex);
    while (at < LIVE_MOST && live[at] != c)
        at++;
    pthread_mutex_unlock(&mutex);
    require(c != NULL && at < LIVE_MOST, "a communicator is used after its end");
    require(atomic_exchange(&c->is_in_use, 1) == 0, "two threads use a communicator at once");
}

static void leave(coh_nccl_communicator *c)
{
    atomic_store(&c->is_in_use, 0);
}

/* Begins a call that must not come before the last one is done. */
static void enter_ready(coh_nccl_communicator *c)
{
    enter(c);
    require(!c->is_in_progress, "a communicator is used while it is in progress");
}

static void launch(coh_nccl_communicator *c);

/* Completes what is in progress after some looks. Only then are a group's commands enqueued. */
static void proceed(coh_nccl_communicator *c)
{
    if (atomic_load(&c->world->joined_count) < atomic_load(&c->world->rank_count) || c->looks-- > 0)
        return;
    launch(c);
    c->is_in_progress = 0;
}

static int get_async_error(coh_nccl_communicator *c, int *out_result)
{
    enter(c);
    const int is_bad = fails_now(FAKE_NCCL_ASYNC_ERROR);
    if (c->is_in_progress)
        proceed(c);
    *out_result = is_bad              ? SYSTEM_ERROR
                  : c->is_in_progress ? COH_NCCL_IN_PROGRESS
                                      : COH_NCCL_SUCCESS;
    leave(c);
    return COH_NCCL_SUCCESS;
}

static int finalize(coh_nccl_communicator *c)
{
    if (fails_now(FAKE_NCCL_FINALIZE))
        return SYSTEM_ERROR;
    enter_ready(c);
    require(!c->has_finalized, "finalized twice");
    c->has_finalized = c->is_in_progress = 1;
    c->looks = 1;
    leave(c);
    return COH_NCCL_IN_PROGRESS;
}

/* Frees a communicator; with the last of the process that made the world, its file. */
static void end(coh_nccl_communicator *c)
{
    int process = 0, file = -1;
    require(sscanf(c->world->id, "/proc/%d/fd/%d", &process, &file) == 2, "no such id");
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < LIVE_MOST; i++) {
        live[i] = live[i] == c ? NULL : live[i];
        if (c->rank == 0 && process == (int)getpid() && files[i] == file + 1) {
            close(file);
            files[i] = 0;
        }
    }
    pthread_mutex_unlock(&mutex);
    require(coh_stub_driver.cuMemHostUnregister(c->world) == CUDA_SUCCESS ||
                coh_stub_fault_was_hit(),
            "the words cannot be freed");
    munmap(c->world, WORLD_BYTES);
    free(c->pending);
    free(c);
}

/* What a rank has sent may lie in its own memory until the peer has received it. */
static int is_all_received(const coh_nccl_communicator *c)
{
    for (int peer = 0; peer < RANKS_MOST; peer++) {
        const channel *out = &c->world->channels[c->rank][peer];
        if (!atomic_load(&out->receiver_is_gone) && atomic_load(&out->taken) < c->sent[peer])
            return 0;
    }
    return 1;
}

static int destroy(coh_nccl_communicator *c)
{
    enter_ready(c);
    require(c->has_finalized, "destroyed before it was finalized");
    require(is_all_received(c), "destroyed before a peer has received its messages");
    end(c);
    return COH_NCCL_SUCCESS;
}

/* Lets everything that the rank's stream waits for come. Peers may still write their words. */
static int release(const coh_nccl_communicator *c)
{
    for (int peer = 0; peer < RANKS_MOST; peer++) {
        channel *out = &c->world->channels[c->rank][peer], *in = &c->world->channels[peer][c->rank];
        atomic_store(&out->sender_is_gone, 1);
        atomic_store(&in->receiver_is_gone, 1);
        atomic_store(&out->taken, RELEASED);
        atomic_store(&in->posted, RELEASED);
    }
    return c->stream != NULL && coh_stub_driver.cuStreamQuery(c->stream) == CUDA_ERROR_NOT_READY;
}

static int abort_communicator(coh_nccl_communicator *c)
{
    enter(c);
    while (release(c))
        sched_yield();
    end(c);
    return COH_NCCL_SUCCESS;
}

/* ---- groups ---- */

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
    coh_nccl_communicator *c = made.communicator;
    enter_ready(c);
    require(group.is_open && group.count < GROUP_MOST, "no group");
    require(made.bytes > 0 && made.peer >= 0 && made.peer < atomic_load(&c->world->rank_count),
            "a message to nobody");
    require(made.bytes <= SLOT_BYTES, "a message is too long for this double");
    require(c->stream == NULL || c->stream == made.stream, "a communicator has two streams");
    require(group.count == 0 || group.operations[0].communicator == c,
            "two communicators in a group");
    require(!c->has_finalized, "a message after finalize");
    c->stream = made.stream;
    group.operations[group.count++] = made;
    leave(c);
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

/* Begins what is enqueued after some looks. */
static int begin(coh_nccl_communicator *c, const operation *operations, size_t count)
{
    enter_ready(c);
    c->pending = realloc(c->pending, count * sizeof(*c->pending));
    require(c->pending != NULL, "no memory");
    memcpy(c->pending, operations, count * sizeof(*c->pending));
    c->pending_count = count;
    c->looks = (int)(c->group_count++ % 3);
    c->is_in_progress = 1;
    leave(c);
    return COH_NCCL_IN_PROGRESS;
}

static int group_end(void)
{
    require(group.is_open, "no group ends");
    group.is_open = 0;
    if (fails_now(FAKE_NCCL_GROUP_END))
        return SYSTEM_ERROR;
    if (group.count == 0)
        return COH_NCCL_SUCCESS;
    return begin(group.operations[0].communicator, group.operations, group.count);
}

static int collective(operation made)
{
    coh_nccl_communicator *c = made.communicator;
    require(!group.is_open, "a collective in a group");
    require(made.bytes > 0 && made.bytes <= SLOT_BYTES, "a part is empty, or too long");
    require(c->stream == NULL || c->stream == made.stream, "a communicator has two streams");
    require(!c->has_finalized, "a collective after finalize");
    c->stream = made.stream;
    return begin(c, &made, 1);
}

static int all_gather(const void *from, void *to, size_t count, int type, coh_nccl_communicator *c,
                      CUstream stream)
{
    require(type == COH_NCCL_BYTE, "not bytes");
    if (fails_now(FAKE_NCCL_ALL_GATHER))
        return SYSTEM_ERROR;
    return collective((operation){ .communicator = c,
                                   .kind = ALL_GATHER,
                                   .from = from,
                                   .to = to,
                                   .bytes = count,
                                   .stream = stream });
}

static int reduce_scatter(const void *from, void *to, size_t count, int type, int what,
                          coh_nccl_communicator *c, CUstream stream)
{
    require(type == COH_NCCL_FLOAT && what == COH_NCCL_SUM, "not a sum of floats");
    if (fails_now(FAKE_NCCL_REDUCE_SCATTER))
        return SYSTEM_ERROR;
    return collective((operation){ .communicator = c,
                                   .kind = REDUCE_SCATTER,
                                   .from = from,
                                   .to = to,
                                   .bytes = count * sizeof(float),
                                   .stream = stream });
}

/* ---- commands ---- */

typedef struct move {
    channel *through;
    const void *from;
    void *to;
    char *slot;
    size_t bytes;
    uint64_t number, label;
} move;

static void post(const void *arguments)
{
    const move *m = arguments;
    atomic_store(&m->through->labels[m->number % RING], m->label);
    memcpy(m->slot, m->from, m->bytes);
}

/* Is the message there? Not after an abort. */
static int has_come(const move *m)
{
    if (atomic_load(&m->through->receiver_is_gone) || atomic_load(&m->through->sender_is_gone))
        return 0;
    require(atomic_load(&m->through->labels[m->number % RING]) == m->label,
            "a message of another size, or of another call, is received");
    return 1;
}

static void let_go(const move *m)
{
    if (m->bytes > KEPT_BYTES)
        (void)madvise(m->slot, m->bytes, MADV_REMOVE);
}

static void take(const void *arguments)
{
    const move *m = arguments;
    if (!has_come(m))
        return;
    memcpy(m->to, m->slot, m->bytes);
    let_go(m);
}

/* The parts of a sum: own, and those that have come. */
typedef struct sum {
    const float *own;
    float *to;
    int rank, rank_count;
    size_t count;
    move moves[RANKS_MOST];
} sum;

static void add_parts(const void *arguments)
{
    const sum *s = arguments;
    for (int rank = 0; rank < s->rank_count; rank++)
        if (rank != s->rank && !has_come(&s->moves[rank]))
            return;
    for (size_t i = 0; i < s->count; i++) {
        float total = 0;
        for (int rank = s->rank_count - 1; rank >= 0; rank--) {
            const float *part =
                rank == s->rank ? s->own : (const float *)(const void *)s->moves[rank].slot;
            total = rank == s->rank_count - 1 ? part[i] : total + part[i];
        }
        s->to[i] = total;
    }
    for (int rank = 0; rank < s->rank_count; rank++)
        if (rank != s->rank)
            let_go(&s->moves[rank]);
}

static void copy_own(const void *arguments)
{
    const move *m = arguments;
    memmove(m->to, m->from, m->bytes);
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

static void wait_word(const operation *o, const _Atomic uint64_t *word, uint64_t number)
{
    (void)coh_stub_driver.cuStreamWaitValue64(o->stream, address(word), number,
                                              CU_STREAM_WAIT_VALUE_GEQ);
}

static move move_of(const operation *o)
{
    fake_world *world = o->communicator->world;
    const int own = o->communicator->rank, from = o->from != NULL ? own : o->peer,
              to = o->from != NULL ? o->peer : own;
    const size_t slot = (size_t)(from * RANKS_MOST + to) * RING + o->number % RING;
    return (move){ .through = &world->channels[from][to],
                   .from = o->from,
                   .to = o->to,
                   .slot = (char *)world + HEAD_BYTES + slot * SLOT_BYTES,
                   .bytes = o->bytes,
                   .number = o->number,
                   .label = o->bytes | (uint64_t)o->kind << 56 };
}

static void start_send(operation *o)
{
    o->number = ++o->communicator->sent[o->peer];
    const move m = move_of(o);
    if (o->number > RING)
        wait_word(o, &m.through->taken, o->number - RING);
    coh_stub_enqueue(o->stream, post, &m, sizeof(m));
    write_word(o, &m.through->posted);
}

static void receive(operation *o)
{
    o->number = ++o->communicator->received[o->peer];
    const move m = move_of(o);
    wait_word(o, &m.through->posted, o->number);
    coh_stub_enqueue(o->stream, take, &m, sizeof(m));
    write_word(o, &m.through->taken);
}

static void finish_send(const operation *o)
{
    if (o->bytes > EAGER_BYTES)
        wait_word(o, &move_of(o).through->taken, o->number);
}

/* Enqueues what receives of a collective from each peer. */
static void receive_parts(const operation *o, operation *by_peer)
{
    coh_nccl_communicator *c = o->communicator;
    const int count = atomic_load(&c->world->rank_count);
    char *to = o->to;
    sum added = { .own = (const float *)o->from + (size_t)c->rank * o->bytes / sizeof(float),
                  .to = o->to,
                  .rank = c->rank,
                  .rank_count = count,
                  .count = o->bytes / sizeof(float) };
    const move own = { .from = o->from, .to = to + (size_t)c->rank * o->bytes, .bytes = o->bytes };
    if (o->kind == ALL_GATHER)
        coh_stub_enqueue(o->stream, copy_own, &own, sizeof(own));
    for (int peer = 0; peer < count; peer++) {
        operation *in = &by_peer[peer];
        if (peer == c->rank)
            continue;
        *in = *o;
        in->from = NULL;
        in->to = to + (size_t)peer * o->bytes;
        in->peer = peer;
        in->number = ++c->received[peer];
        const move m = added.moves[peer] = move_of(in);
        wait_word(in, &m.through->posted, in->number);
        if (o->kind == ALL_GATHER)
            coh_stub_enqueue(o->stream, take, &m, sizeof(m));
    }
    if (o->kind == REDUCE_SCATTER)
        coh_stub_enqueue(o->stream, add_parts, &added, sizeof(added));
    for (int peer = 0; peer < count; peer++)
        if (peer != c->rank)
            write_word(&by_peer[peer], &added.moves[peer].through->taken);
}

static void launch_collective(const operation *o)
{
    coh_nccl_communicator *c = o->communicator;
    const int count = atomic_load(&c->world->rank_count);
    operation sends[RANKS_MOST], receives[RANKS_MOST];
    for (int peer = 0; peer < count; peer++) {
        const size_t at = o->kind == ALL_GATHER ? 0 : (size_t)peer * o->bytes;
        sends[peer] = *o;
        sends[peer].from = (const char *)o->from + at;
        sends[peer].peer = peer;
        if (peer != c->rank)
            start_send(&sends[peer]);
    }
    receive_parts(o, receives);
    for (int peer = 0; peer < count; peer++)
        if (peer != c->rank)
            finish_send(&sends[peer]);
}

/* Enqueues a group's commands. */
static void launch(coh_nccl_communicator *c)
{
    operation *const all = c->pending, *const last = all + c->pending_count;
    if (c->pending_count > 0 && all->kind != MESSAGE) {
        launch_collective(all);
        c->pending_count = 0;
        return;
    }
    for (operation *o = all; o < last; o++)
        if (o->from != NULL)
            start_send(o);
    for (operation *o = all; o < last; o++)
        if (o->from == NULL)
            receive(o);
    for (const operation *o = all; o < last; o++)
        if (o->from != NULL)
            finish_send(o);
    c->pending_count = 0;
}

/* ---- results ---- */

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
    .ncclAllGather = all_gather,
    .ncclReduceScatter = reduce_scatter,
    .ncclGetErrorString = error_string,
    .ncclGetLastError = last_error,
};
