#include "tests/cuda/emulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum {
    WARP = 32,
    THREADS_MOST = 1024,
    /* 256 KiB and nine cache lines: stacks whose distance is a power of two would share one cache
     * set. */
    STACK_BYTES = (256 << 10) + 9 * 64,
    COPIES_MOST = 512, /* of one thread, not yet waited for */
    KERNELS_MOST = 512,
};

typedef struct copy {
    void *to;
    const void *from;
    size_t bytes;
    int is_zero, group;
} copy;

/* ---- coroutines ---- */

#if defined(__x86_64__)
/* The stack pointer of a suspended coroutine: the callee-saved registers lie on its stack.
 * Switching is most of an emulated block's work; setjmp and longjmp take three times as long. The
 * switch ends in a jump: a return to another stack is always mispredicted. */
typedef uint64_t *place;

void coh_emulate_switch(place *from, const place *to);
__asm__(".text\n"
        ".globl coh_emulate_switch\n"
        ".hidden coh_emulate_switch\n"
        ".type coh_emulate_switch, @function\n"
        "coh_emulate_switch:\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov (%rsi), %rsp\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    pop %rcx\n"
        "    jmp *%rcx\n"
        ".size coh_emulate_switch, . - coh_emulate_switch\n");

/* Pushes room for six registers, `entry` as return address, and a zero as its caller's address. */
static void prepare(place *to, unsigned char *stack, size_t bytes, void (*entry)(void))
{
    uint64_t *top = (uint64_t *)(void *)(stack + bytes / 16 * 16);
    *--top = 0;
    *--top = (uint64_t)(uintptr_t)entry;
    *to = top - 6;
}
#else
typedef ucontext_t place;

static void coh_emulate_switch(place *from, const place *to)
{
    (void)swapcontext(from, to);
}

static void prepare(place *to, unsigned char *stack, size_t bytes, void (*entry)(void))
{
    getcontext(to);
    to->uc_stack.ss_sp = stack;
    to->uc_stack.ss_size = bytes;
    makecontext(to, entry, 0);
}
#endif

/* Never ends: begins again with the next block. */
typedef struct thread {
    place place; /* where it is suspended */
    int is_done, is_at_barrier;
    uint64_t exchanges;    /* exchanges that it has begun */
    int copy_count, group; /* group: number of the next copy's group */
    copy *copies;          /* COPIES_MOST */
} thread;

typedef struct warp {
    const char *what[2];
    int arrived[2];
    unsigned char values[2][WARP][COH_EMULATED_VALUE];
} warp;

coh_emulated_thread coh_emulated;
int64_t coh_emulated_packs;

static struct {
    place scheduler;
    thread *threads; /* THREADS_MOST, made for the first launch */
    warp warps[THREADS_MOST / WARP];
    int count, live, waiting; /* waiting: number of threads at the barrier */
    int now;                  /* index of the running thread */
    int first, lanes, step;   /* the running warp: its first thread, its size, whose turn is next */
    uint64_t progress;        /* increases with every exchange, barrier and return */
    int mode;
    coh_emulated_kernel *kernel;
    const void *arguments;
} block;

static struct {
    const char *symbol;
    coh_emulated_kernel *kernel;
    size_t argument_bytes;
} kernels[KERNELS_MOST];
static int kernel_count;

static void refuse(const char *why, const char *what)
{
    fprintf(stderr, "emulated block (%u, %u, %u), thread %d: %s%s\n", coh_emulated.block.x,
            coh_emulated.block.y, coh_emulated.block.z, block.now, why, what);
    abort();
}

void coh_emulate_register(const char *symbol, coh_emulated_kernel *kernel, size_t argument_bytes)
{
    if (kernel_count == KERNELS_MOST)
        refuse("no room for kernel ", symbol);
    kernels[kernel_count].symbol = symbol;
    kernels[kernel_count].argument_bytes = argument_bytes;
    kernels[kernel_count++].kernel = kernel;
}

size_t coh_emulate_argument_bytes(const char *symbol)
{
    for (int i = 0; i < kernel_count; i++)
        if (strcmp(kernels[i].symbol, symbol) == 0)
            return kernels[i].argument_bytes;
    return 0;
}

coh_emulated_kernel *coh_emulate_find(const char *symbol)
{
    for (int i = 0; i < kernel_count; i++)
        if (strcmp(kernels[i].symbol, symbol) == 0)
            return kernels[i].kernel;
    return NULL;
}

/* ---- scheduling ---- */

static thread *lane_at(int step)
{
    const int from_last = block.mode & COH_EMULATE_BACKWARD;
    block.now = from_last ? block.first + block.lanes - 1 - step : block.first + step;
    return &block.threads[block.now];
}

/* Switches to the warp's next lane that can run or, after the last lane, to the scheduler. */
static void pass_turn(place *from)
{
    const place *to = &block.scheduler;
    while (to == &block.scheduler && block.step < block.lanes) {
        const thread *next = lane_at(block.step++);
        if (!next->is_done && !next->is_at_barrier)
            to = &next->place;
    }
    coh_emulated.thread = (coh_emulated_index){ (uint32_t)block.now, 0, 0 };
    if (to != from)
        coh_emulate_switch(from, to);
}

/* Suspends the running thread until its next turn. */
static void yield_turn(void)
{
    pass_turn(&block.threads[block.now].place);
}

static void thread_main(void)
{
    for (;;) {
        block.kernel(block.arguments);
        block.threads[block.now].is_done = 1;
        block.live--;
        block.progress++;
        yield_turn();
    }
}

static void run_warp(int first)
{
    block.first = first;
    block.lanes = first + WARP < block.count ? WARP : block.count - first;
    block.step = 0;
    pass_turn(&block.scheduler);
}

/* Runs warp after warp, each as far as possible: a thread must wait at a barrier for another warp's
 * results. */
static void run_to_barrier(void)
{
    const int warps = (block.count + WARP - 1) / WARP;
    for (int step = 0; step < warps; step++) {
        const int index = block.mode & COH_EMULATE_BACKWARD ? warps - 1 - step : step;
        uint64_t before;
        do {
            before = block.progress;
            run_warp(index * WARP);
        } while (block.progress != before);
    }
    if (block.waiting != block.live)
        refuse("lanes of a warp do not meet at ", "an exchange or the barrier");
}

static void run_block(void)
{
    memset(block.warps, 0, sizeof(block.warps));
    block.live = block.count;
    block.waiting = 0;
    for (int i = 0; i < block.count; i++) {
        thread *one = &block.threads[i];
        one->is_done = one->is_at_barrier = one->copy_count = one->group = 0;
        one->exchanges = 0;
    }
    while (block.live > 0) {
        run_to_barrier();
        block.waiting = 0;
        for (int i = 0; i < block.count; i++)
            block.threads[i].is_at_barrier = 0;
    }
}

/* Threads are kept for the next launch: the system maps their pages one by one. */
static void make_threads(void)
{
    unsigned char *stacks = mmap(NULL, (size_t)THREADS_MOST * STACK_BYTES, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    copy *copies = calloc((size_t)THREADS_MOST * COPIES_MOST, sizeof(copy));
    block.threads = calloc(THREADS_MOST, sizeof(thread));
    if (block.threads == NULL || copies == NULL || stacks == MAP_FAILED)
        refuse("no memory for its stacks", "");
    for (int i = 0; i < THREADS_MOST; i++) {
        block.threads[i].copies = copies + (size_t)i * COPIES_MOST;
        prepare(&block.threads[i].place, stacks + (size_t)i * STACK_BYTES, STACK_BYTES,
                thread_main);
    }
}

void coh_emulate_launch(coh_emulated_kernel *kernel, coh_emulated_index blocks, uint32_t threads,
                        size_t shared_bytes, const void *arguments, int mode)
{
    if (threads == 0 || threads > THREADS_MOST)
        refuse("a block has 1 to 1024 threads", "");
    block.count = (int)threads;
    block.mode = mode;
    block.kernel = kernel;
    block.arguments = arguments;
    if (block.threads == NULL)
        make_threads();
    /* the sanitizer's red zone begins where shared memory ends */
    coh_emulated.shared = aligned_alloc(16, (shared_bytes + 15) / 16 * 16);
    coh_emulated.threads = (coh_emulated_index){ threads, 1, 1 };
    coh_emulated.blocks = blocks;
    if (coh_emulated.shared == NULL)
        refuse("no memory for what its threads share", "");
    for (uint32_t z = 0; z < blocks.z; z++)
        for (uint32_t y = 0; y < blocks.y; y++)
            for (uint32_t x = 0; x < blocks.x; x++) {
                coh_emulated.block = (coh_emulated_index){ x, y, z };
                memset(coh_emulated.shared, 0xff, shared_bytes);
                run_block();
            }
    free(coh_emulated.shared);
}

/* ---- exchanges between threads ---- */

void coh_emulate_barrier(void)
{
    block.threads[block.now].is_at_barrier = 1;
    block.waiting++;
    block.progress++;
    yield_turn();
}

const unsigned char *coh_emulate_exchange(const char *what, const void *value, size_t bytes)
{
    thread *self = &block.threads[block.now];
    const int index = block.now, side = (int)(self->exchanges++ & 1);
    warp *mine = &block.warps[index / WARP];
    block.progress++;
    if (block.count % WARP != 0)
        refuse("a warp that is not whole reaches ", what);
    /* First lane to arrive: all lanes have read the values of two exchanges ago. */
    if (mine->arrived[side] == WARP)
        mine->arrived[side] = 0;
    if (mine->arrived[side] == 0)
        mine->what[side] = what;
    if (mine->what[side] != what && strcmp(mine->what[side], what) != 0)
        refuse("other lanes are not at ", what);
    if (bytes > 0) /* a barrier carries no value */
        memcpy(mine->values[side][index % WARP], value, bytes);
    mine->arrived[side]++;
    while (mine->arrived[side] < WARP)
        yield_turn();
    return &mine->values[side][0][0];
}

/* ---- asynchronous copies ---- */

static void copy_now(const copy *one)
{
    if (one->is_zero)
        memset(one->to, 0, one->bytes);
    else
        memcpy(one->to, one->from, one->bytes);
}

void coh_emulate_copy(void *to, const void *from, size_t bytes, int is_zero)
{
    thread *self = &block.threads[block.now];
    const copy one = { to, from, bytes, is_zero, self->group };
    if ((uintptr_t)to % bytes != 0 || (!is_zero && (uintptr_t)from % bytes != 0))
        refuse("an address is not aligned for ", "cp.async");
    if (!(block.mode & COH_EMULATE_LATE)) {
        copy_now(&one);
        return;
    }
    if (self->copy_count == COPIES_MOST)
        refuse("too many copies before a wait: ", "cp.async");
    self->copies[self->copy_count++] = one;
}

void coh_emulate_copy_commit(void)
{
    block.threads[block.now].group++;
}

void coh_emulate_copy_wait(int groups_left)
{
    thread *self = &block.threads[block.now];
    int kept = 0;
    for (int i = 0; i < self->copy_count; i++) {
        if (self->copies[i].group < self->group - groups_left)
            copy_now(&self->copies[i]);
        else
            self->copies[kept++] = self->copies[i];
    }
    self->copy_count = kept;
}
