/* Runs tiles of a matrix product by OpenBLAS, which is loaded when the first product needs it.
 *
 * A program that links OpenBLAS starts its thread pool before main, whether it multiplies or not.
 * The pool's threads retry forever when they get no memory, so that under a small address-space
 * limit even --help did not end. Here the library is loaded by a thread that sees one CPU: it then
 * starts no pool. Next: tile.h. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/thread.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/tile.h"

#define LIBRARY "libopenblas.so.0"

/* The C interface of BLAS (cblas.h); this library's integers have 32 bits. */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
typedef void sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                   const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);

/* Written once, by start(), before any thread reads it. */
static struct {
    pthread_once_t once;
    void *handle; /* NULL: not loaded */
    sgemm *multiply;
    const char *(*config)(void), *(*core_name)(void);
    /* Sets the calling thread's OpenMP; NULL: this OpenBLAS uses other threads, or none. */
    void (*set_openmp_threads)(int count);
    char why_not[192];
} library = { .once = PTHREAD_ONCE_INIT };

/* OpenBLAS counts the CPUs of the thread that loads it, and starts a pool if there are several.
 * Only this thread is bound to one CPU, and it ends after loading. */
static void *load(void *unused)
{
    cpu_set_t all, one;
    (void)pthread_setname_np(pthread_self(), "coh-blas-load");
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof(all), &all) == 0)
        for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
            if (CPU_ISSET(cpu, &all))
                CPU_SET(cpu, &one);
    if (CPU_COUNT(&one) == 1)
        (void)sched_setaffinity(0, sizeof(one), &one);
    library.handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library.handle == NULL) {
        const char *why = dlerror();
        snprintf(library.why_not, sizeof(library.why_not), "%.120s: %s", why,
                 strstr(why, "cannot open shared object") != NULL
                     ? "install OpenBLAS (Debian: libopenblas0)"
                     : "see to ulimit -v");
    }
    return unused;
}

/* POSIX stores a function's address this way (dlsym(3)); `out` is a pointer to a function
 * pointer. */
static void find(const char *name, void *out)
{
    void *found = dlsym(library.handle, name);
    memcpy(out, &found, sizeof(found));
}

/* OpenBLAS maps a packing buffer for each concurrent call, when a call finds none free, and keeps
 * it. If the system refuses, it retries forever, so this function asks first. OpenBLAS exports its
 * functions for buffers; if a build does not, the buffers are mapped during the first steps. */
enum { BUFFERS_MOST = 64 };
#define BUFFER_BYTES ((size_t)128 << 20) /* on x86-64 and arm64, as Debian builds it */

static int may_map(int count)
{
    void *tried[BUFFERS_MOST];
    int mapped = 0;
    while (mapped < count &&
           (tried[mapped] = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED)
        mapped++;
    for (int i = 0; i < mapped; i++)
        munmap(tried[i], BUFFER_BYTES);
    if (mapped < count)
        snprintf(library.why_not, sizeof(library.why_not),
                 "its buffers take %zu MiB of address space, which the system does not give: raise "
                 "ulimit -v",
                 (size_t)count * (BUFFER_BYTES >> 20));
    return mapped == count;
}

/* Maps a buffer per core: our pool calls OpenBLAS from as many threads at a time. */
static int map_buffers(void)
{
    void *(*allocate)(int position);
    void (*release)(void *buffer);
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const int wanted = cores < 1 ? 1 : cores > BUFFERS_MOST - 2 ? BUFFERS_MOST : (int)cores + 2;
    void *buffers[BUFFERS_MOST];
    if (!may_map(wanted))
        return 0;
    find("blas_memory_alloc", &allocate);
    find("blas_memory_free", &release);
    if (allocate == NULL || release == NULL)
        return 1;
    for (int i = 0; i < wanted; i++)
        buffers[i] = allocate(0);
    for (int i = 0; i < wanted; i++)
        if (buffers[i] != NULL)
            release(buffers[i]);
    return 1;
}

/* Memory for the libraries, the thread that loads them and its allocations. The system's loader and
 * allocator may crash if memory runs out on the way. */
#define LOAD_BYTES ((size_t)96 << 20)

static int has_room_to_load(void)
{
    void *tried = mmap(NULL, LOAD_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (tried != MAP_FAILED)
        munmap(tried, LOAD_BYTES);
    return tried != MAP_FAILED;
}

static void start(void)
{
    pthread_t thread;
    const int error = has_room_to_load() ? coh_thread_start(&thread, load, NULL) : ENOMEM;
    if (error != 0)
        snprintf(library.why_not, sizeof(library.why_not),
                 "no thread or room to load it: %s: see to ulimit -u and -v", strerror(error));
    else
        pthread_join(thread, NULL);
    if (library.handle == NULL)
        return;
    void (*set_threads)(int count);
    find("openblas_set_num_threads", &set_threads);
    find("cblas_sgemm", &library.multiply);
    find("openblas_get_config", &library.config);
    find("openblas_get_corename", &library.core_name);
    find("omp_set_num_threads", &library.set_openmp_threads);
    if (set_threads == NULL || library.multiply == NULL || library.config == NULL ||
        library.core_name == NULL) {
        snprintf(library.why_not, sizeof(library.why_not),
                 LIBRARY " lacks functions of OpenBLAS: install OpenBLAS (Debian: libopenblas0)");
        library.handle = NULL;
    } else if (map_buffers()) {
        set_threads(1); /* needed if the program itself loaded it before, with a pool */
    } else {
        library.handle = NULL;
    }
}

int coh_openblas_start(void)
{
    pthread_once(&library.once, start);
    return library.handle != NULL;
}

const char *coh_openblas_why_not(void)
{
    (void)coh_openblas_start();
    return library.why_not;
}

const char *coh_openblas_config(void)
{
    return coh_openblas_start() ? library.config() : "";
}

const char *coh_openblas_core(void)
{
    return coh_openblas_start() ? library.core_name() : "";
}

/* The configuration text is "OpenBLAS 0.3.21 NO_LAPACKE ...". */
void coh_openblas_name(char *out_name, size_t bytes)
{
    const char *begin = strchr(coh_openblas_config(), ' ');
    size_t count = begin == NULL ? 0 : strcspn(begin + 1, " ");
    snprintf(out_name, bytes, "openblas-%.*s-%s", (int)count, begin == NULL ? "" : begin + 1,
             coh_openblas_core());
}

/* On AVX-512, OpenBLAS 0.3.21 has a special kernel for products of up to 10^6 multiplications, and
 * the one for two untransposed operands calls malloc. The plain panels run those products instead,
 * with the same bits under every COH_ISA. */
#define SMALL_PRODUCT 1000000

static int may_allocate(const coh_tile *tile)
{
    return !tile->a_transposed && !tile->b_transposed &&
           tile->rows * tile->columns * tile->depth <= SMALL_PRODUCT;
}

/* Sets c to the values to which the product is added. */
static void begin_sum(const coh_tile *t)
{
    const coh_rows *row = coh_rows_get();
    const float *bias = t->bias;
    for (int64_t i = 0; i < t->rows; i++) {
        float *c = (float *)t->c + i * t->c_stride;
        const float *residual = t->residual;
        if (residual != NULL)
            residual += i * t->c_stride;
        if (residual != NULL && bias != NULL)
            row->sum(c, residual, bias, t->columns);
        else if (residual != c)
            memcpy(c, residual != NULL ? residual : bias, (size_t)t->columns * sizeof(float));
    }
}

static void multiply(const coh_tile *tile, int adds)
{
    if (may_allocate(tile)) {
        coh_tile plain = *tile;
        plain.adds = adds;
        plain.bias = plain.residual = plain.activated = NULL;
        coh_panel_run_plain(&plain);
        return;
    }
    if (library.set_openmp_threads != NULL)
        library.set_openmp_threads(1);
    library.multiply(ROW_MAJOR, tile->a_transposed ? TRANS : NO_TRANS,
                     tile->b_transposed ? TRANS : NO_TRANS, (int)tile->rows, (int)tile->columns,
                     (int)tile->depth, 1.0f, tile->a, (int)tile->a_stride, tile->b,
                     (int)tile->b_stride, adds ? 1.0f : 0.0f, tile->c, (int)tile->c_stride);
}

void coh_openblas_run(const coh_tile *tile)
{
    const int begins = tile->bias != NULL || tile->residual != NULL;
    if (begins)
        begin_sum(tile);
    multiply(tile, begins || tile->adds);
    coh_tile_activate(tile);
}
