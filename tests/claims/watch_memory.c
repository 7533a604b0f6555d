/* watch_memory.c - preloaded into a process: counts all allocations and deallocations of memory
 * between two moments, and reports their callers.
 *
 *     start ... step 1, step 2 |<----- counted: should be nothing ----->| final report ... exit
 *                              ^ write of WATCH_FROM                    ^ write of WATCH_UNTIL
 *
 * The moments are the first write(2) whose bytes contain the text of WATCH_FROM (empty: the start),
 * and the first later one with the text of WATCH_UNTIL. The allocator's functions are counted where
 * they are called: a preloaded symbol precedes jemalloc's and the C library's. Mappings are counted
 * at the system call: from the first moment on a seccomp filter sends mmap, munmap, mremap and brk
 * of every thread to a handler, so calls inside the C library count, too. Without seccomp, the
 * symbols mmap and munmap are counted.
 *
 * At exit the file WATCH_FILE gets one line: counted|never-begun|never-ended, how mappings were
 * counted, and the counts; then a backtrace of each of the first calls. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { FRAMES_MOST = 32, TRACES_MOST = 8, CODE_BYTES_MOST = 64 };

static _Atomic int watching; /* 0 not yet, 1 counting, 2 ended */
static _Atomic unsigned long malloc_count, calloc_count, realloc_count, aligned_count, free_count;
static _Atomic unsigned long mmap_count, munmap_count, mremap_count, brk_count;
static _Atomic int trace_count;
static const char *from_text, *until_text, *file_path;
static const char *seen_by = "symbols";

static struct trace {
    const char *what;
    void *frames[FRAMES_MOST];
    int frame_count;
} traces[TRACES_MOST];

static void count(_Atomic unsigned long *counter, const char *what)
{
    if (watching != 1)
        return;
    (*counter)++;
    if (counter == &free_count)
        return;
    int index = trace_count++;
    if (index < TRACES_MOST) {
        traces[index].what = what;
        traces[index].frame_count = backtrace(traces[index].frames, FRAMES_MOST);
    }
}

static _Thread_local int resolving;

/* Returns the next library's function of that name; NULL while dlsym itself calls. */
static void *next_symbol(void *_Atomic *slot, const char *name)
{
    if (!*slot && !resolving) {
        resolving = 1;
        *slot = dlsym(RTLD_NEXT, name);
        resolving = 0;
    }
    return *slot;
}

/* ---- the kernel's door ---- */

#if defined(__x86_64__)
#define WATCH_ARCH AUDIT_ARCH_X86_64
/* The only place whose system calls the filter allows. */
__asm__(".text\n.globl watch_raw_call\n.hidden watch_raw_call\n.type watch_raw_call,@function\n"
        "watch_raw_call:\n"
        "  mov %rdi, %rax\n  mov %rsi, %rdi\n  mov %rdx, %rsi\n  mov %rcx, %rdx\n"
        "  mov %r8, %r10\n  mov %r9, %r8\n  mov 8(%rsp), %r9\n  syscall\n  ret\n"
        ".size watch_raw_call,.-watch_raw_call\n");
#elif defined(__aarch64__)
#define WATCH_ARCH AUDIT_ARCH_AARCH64
__asm__(".text\n.globl watch_raw_call\n.hidden watch_raw_call\n.type watch_raw_call,@function\n"
        "watch_raw_call:\n"
        "  mov x8, x0\n  mov x0, x1\n  mov x1, x2\n  mov x2, x3\n"
        "  mov x3, x4\n  mov x4, x5\n  mov x5, x6\n  svc #0\n  ret\n"
        ".size watch_raw_call,.-watch_raw_call\n");
#endif

#ifdef WATCH_ARCH
extern long watch_raw_call(long number, long a, long b, long c, long d, long e, long f)
    __attribute__((visibility("hidden")));

static void on_call(int signal_number, siginfo_t *info, void *context)
{
    ucontext_t *user = context;
    int saved_errno = errno;
    (void)signal_number;
#if defined(__x86_64__)
    greg_t *r = user->uc_mcontext.gregs;
    long result =
        watch_raw_call(info->si_syscall, (long)r[REG_RDI], (long)r[REG_RSI], (long)r[REG_RDX],
                       (long)r[REG_R10], (long)r[REG_R8], (long)r[REG_R9]);
    r[REG_RAX] = result;
#else
    unsigned long long *r = user->uc_mcontext.regs;
    long result = watch_raw_call(info->si_syscall, (long)r[0], (long)r[1], (long)r[2], (long)r[3],
                                 (long)r[4], (long)r[5]);
    r[0] = (unsigned long long)result;
#endif
    switch (info->si_syscall) {
    case SYS_mmap:
        count(&mmap_count, "mmap");
        break;
    case SYS_munmap:
        count(&munmap_count, "munmap");
        break;
    case SYS_mremap:
        count(&mremap_count, "mremap");
        break;
    default:
        count(&brk_count, "brk");
        break;
    }
    errno = saved_errno;
}

/* Sends the four calls of all threads to on_call, except those of watch_raw_call. */
static int install_filter(void)
{
    const uint64_t raw = (uint64_t)(uintptr_t)watch_raw_call;
    const uint32_t ip_low = offsetof(struct seccomp_data, instruction_pointer);
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, WATCH_ARCH, 0, 10),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_brk, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ip_low + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(raw >> 32), 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ip_low),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)raw, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, (uint32_t)raw + CODE_BYTES_MOST, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    const struct sock_fprog program = { .len = sizeof(lines) / sizeof(lines[0]), .filter = lines };
    struct sigaction action = { .sa_sigaction = on_call, .sa_flags = SA_SIGINFO | SA_NODEFER };
    return sigaction(SIGSYS, &action, NULL) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}
#else
static int install_filter(void)
{
    return 0;
}
#endif

/* Keeps SIGSYS unblocked: a thread that blocks it would be killed instead of counted. */
int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    static void *_Atomic slot;
    int (*next)(int, const sigset_t *, sigset_t *) = NULL;
    *(void **)&next = next_symbol(&slot, "pthread_sigmask");
    sigset_t without;
    if (set && how != SIG_UNBLOCK) {
        without = *set;
        sigdelset(&without, SIGSYS);
        set = &without;
    }
    return next(how, set, before);
}

/* ---- the two moments ---- */

static int contains(const void *bytes, size_t byte_count, const char *text)
{
    return text && memmem(bytes, byte_count, text, strlen(text)) != NULL;
}

static void watch(void)
{
    if (install_filter())
        seen_by = "kernel";
    watching = 1;
}

ssize_t write(int descriptor, const void *bytes, size_t byte_count)
{
    if (watching == 1 && contains(bytes, byte_count, until_text))
        watching = 2;
    long done = syscall(SYS_write, descriptor, bytes, byte_count);
    if (watching == 0 && contains(bytes, byte_count, from_text))
        watch();
    return done;
}

__attribute__((constructor)) static void begin(void)
{
    void *frames[FRAMES_MOST];
    from_text = getenv("WATCH_FROM");
    until_text = getenv("WATCH_UNTIL");
    file_path = getenv("WATCH_FILE");
    (void)backtrace(frames, FRAMES_MOST); /* loads the unwinder now */
    if (from_text && from_text[0] == '\0')
        watch();
}

__attribute__((destructor)) static void end(void)
{
    static const char *const states[] = { "never-begun", "never-ended", "counted" };
    char line[512];
    int descriptor = file_path ? open(file_path, O_CREAT | O_WRONLY | O_TRUNC, 0666) : -1;
    int state = watching;
    if (descriptor < 0)
        return;
    watching = 2;
    int length =
        snprintf(line, sizeof(line),
                 "%s %s malloc %lu calloc %lu realloc %lu aligned %lu mmap %lu munmap %lu "
                 "mremap %lu brk %lu free %lu\n",
                 states[state], seen_by, malloc_count, calloc_count, realloc_count, aligned_count,
                 mmap_count, munmap_count, mremap_count, brk_count, free_count);
    if (write(descriptor, line, (size_t)length) != length)
        abort();
    for (int i = 0; i < trace_count && i < TRACES_MOST; i++) {
        dprintf(descriptor, "%s:\n", traces[i].what);
        backtrace_symbols_fd(traces[i].frames, traces[i].frame_count, descriptor);
    }
    close(descriptor);
}

/* ---- the allocator's functions ---- */

static _Alignas(64) char early[1 << 16]; /* for dlsym's own calls */
static _Atomic size_t early_used;

static int is_early(const void *memory)
{
    return (const char *)memory >= early && (const char *)memory < early + sizeof(early);
}

static void *early_take(size_t bytes)
{
    size_t at = atomic_fetch_add(&early_used, (bytes + 63) / 64 * 64);
    if (at + bytes > sizeof(early))
        abort();
    return early + at;
}

#define NEXT(name)                                                                                 \
    static void *_Atomic slot;                                                                     \
    union {                                                                                        \
        void *address;                                                                             \
        __typeof__(&name) call;                                                                    \
    } next = { next_symbol(&slot, #name) }

void *malloc(size_t bytes)
{
    NEXT(malloc);
    count(&malloc_count, "malloc");
    return next.address ? next.call(bytes) : early_take(bytes);
}

void *calloc(size_t element_count, size_t element_bytes)
{
    NEXT(calloc);
    count(&calloc_count, "calloc");
    return next.address ? next.call(element_count, element_bytes)
                        : early_take(element_count * element_bytes);
}

void *realloc(void *memory, size_t bytes)
{
    NEXT(realloc);
    count(&realloc_count, "realloc");
    if (!is_early(memory) && next.address)
        return next.call(memory, bytes);
    /* The length of the early piece is unknown, so bytes of its neighbour may be copied, too. */
    size_t most = memory ? (size_t)(early + sizeof(early) - (char *)memory) : 0;
    void *fresh = malloc(bytes);
    if (fresh && most > 0)
        memcpy(fresh, memory, bytes < most ? bytes : most);
    return fresh;
}

void free(void *memory)
{
    NEXT(free);
    if (!memory || is_early(memory))
        return;
    count(&free_count, "free");
    if (next.address)
        next.call(memory);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    NEXT(aligned_alloc);
    count(&aligned_count, "aligned_alloc");
    return next.call(alignment, bytes);
}

int posix_memalign(void **out_memory, size_t alignment, size_t bytes)
{
    NEXT(posix_memalign);
    count(&aligned_count, "posix_memalign");
    return next.call(out_memory, alignment, bytes);
}

void *memalign(size_t alignment, size_t bytes);
void *memalign(size_t alignment, size_t bytes)
{
    NEXT(memalign);
    count(&aligned_count, "memalign");
    return next.call(alignment, bytes);
}

/* Counts here only if the system calls are not counted. */
static void count_symbol(_Atomic unsigned long *counter, const char *what)
{
    if (strcmp(seen_by, "symbols") == 0)
        count(counter, what);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int descriptor, off_t offset)
{
    NEXT(mmap);
    count_symbol(&mmap_count, "mmap");
    return next.call(address, bytes, protection, flags, descriptor, offset);
}

int munmap(void *address, size_t bytes)
{
    NEXT(munmap);
    count_symbol(&munmap_count, "munmap");
    return next.call(address, bytes);
}
