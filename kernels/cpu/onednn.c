/* Runs tiles of a matrix product by oneDNN, if a kernel table asks for it. Its code for a shape is
 * made once and kept in a list. Next: tile.h, kernels/product.h. */
#include "coh_config.h"
#include "kernels/cpu/dispatch.h"

#if COH_HAVE_ONEDNN
#include <dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A primitive is oneDNN's code for one shape, with its strides and endings. It is made when a tile
 * of that shape first runs (step 1) and kept; the selection of code depends only on the shape.
 *
 * Running a primitive allocates: the library makes six small blocks inside dnnl_primitive_execute
 * (2.6.3), and we make four memory objects that hold the addresses of the operands. This is the
 * only kernel that allocates, and it runs only if a table asks for it.
 *
 * Debian's oneDNN runs on OpenMP. Our pool has the threads, so each of them tells OpenMP to use one
 * thread; the setting belongs to the calling thread. */
extern void omp_set_num_threads(int count);

/* oneDNN's scratch for a tile of 192 x 768 is below 900 KB; shapes that need more go to panels. */
#define SCRATCH_BYTES (1024 * 1024)

typedef struct shape {
    int64_t rows, columns, depth, a_stride, b_stride, c_stride;
    int32_t dtype, c_dtype, a_transposed, b_transposed, has_bias, adds;
} shape;

typedef struct primitive {
    struct primitive *next;
    shape shape;
    dnnl_primitive_t code; /* NULL: oneDNN has none for this shape, or it needs too much scratch */
    dnnl_memory_desc_t a, b, c, bias, scratch;
} primitive;

/* Written under the lock; entries of the list do not change. */
static struct {
    pthread_mutex_t lock;
    pthread_once_t once;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int works;
    primitive *first;
} library = { .lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT };

static void start(void)
{
    library.works = dnnl_engine_create(&library.engine, dnnl_cpu, 0) == dnnl_success &&
                    dnnl_stream_create(&library.stream, library.engine,
                                       dnnl_stream_default_flags) == dnnl_success;
}

int coh_onednn_available(void)
{
    pthread_once(&library.once, start);
    return library.works;
}

void coh_onednn_name(char *out_name, size_t bytes)
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(out_name, bytes, "onednn-%d.%d.%d", version->major, version->minor, version->patch);
}

static dnnl_data_type_t data_type(int32_t dtype)
{
    return dtype == COH_DTYPE_BF16 ? dnnl_bf16 : dnnl_f32;
}

static dnnl_status_t describe(dnnl_memory_desc_t *out, int64_t rows, int64_t columns, int32_t dtype,
                              int64_t stride, int transposed)
{
    const dnnl_dims_t dims = { rows, columns };
    const dnnl_dims_t strides = { transposed ? 1 : stride, transposed ? stride : 1 };
    return dnnl_memory_desc_init_by_strides(out, 2, dims, data_type(dtype), strides);
}

/* The old contents of c (adds, or the residual) are added in f32 before c is rounded. */
static dnnl_status_t attributes(const shape *s, dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(out);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && s->adds) {
        status = dnnl_post_ops_create(&ops);
        if (status == dnnl_success)
            status = dnnl_post_ops_append_sum(ops, 1.0f);
        if (status == dnnl_success)
            status = dnnl_primitive_attr_set_post_ops(*out, ops);
        dnnl_post_ops_destroy(ops);
    }
    return status;
}

/* Returns dnnl_success with p->code; it is NULL if the code would need too much scratch. */
static dnnl_status_t make_code(primitive *p)
{
    const shape *s = &p->shape;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t description = NULL;
    dnnl_matmul_desc_t matmul;
    dnnl_status_t status =
        describe(&p->a, s->rows, s->depth, s->dtype, s->a_stride, s->a_transposed);
    if (status == dnnl_success)
        status = describe(&p->b, s->depth, s->columns, s->dtype, s->b_stride, s->b_transposed);
    if (status == dnnl_success)
        status = describe(&p->c, s->rows, s->columns, s->c_dtype, s->c_stride, 0);
    if (status == dnnl_success)
        status = describe(&p->bias, 1, s->columns, s->dtype, s->columns, 0);
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&matmul, &p->a, &p->b, s->has_bias ? &p->bias : NULL, &p->c);
    if (status == dnnl_success)
        status = attributes(s, &attr);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(&description, &matmul, attr, library.engine, NULL);
    if (status == dnnl_success) {
        p->scratch = *dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
        if (dnnl_memory_desc_get_size(&p->scratch) <= SCRATCH_BYTES)
            status = dnnl_primitive_create(&p->code, description);
    }
    dnnl_primitive_desc_destroy(description);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

/* Does the status depend only on the shape, so that a retry is useless? After a failed allocation a
 * retry may succeed. */
static int is_final(dnnl_status_t status)
{
    return status == dnnl_success || status == dnnl_unimplemented ||
           status == dnnl_invalid_arguments;
}

/* Returns NULL if making it failed; the next call tries again. */
static const primitive *find(const shape *s)
{
    pthread_mutex_lock(&library.lock);
    primitive *p = library.first;
    while (p != NULL && memcmp(&p->shape, s, sizeof(*s)) != 0)
        p = p->next;
    if (p == NULL && (p = calloc(1, sizeof(*p))) != NULL) {
        p->shape = *s;
        if (is_final(make_code(p))) {
            p->next = library.first;
            library.first = p;
        } else {
            free(p);
            p = NULL;
        }
    }
    pthread_mutex_unlock(&library.lock);
    return p;
}

static dnnl_status_t execute(const primitive *p, const coh_tile *t)
{
    char scratch[SCRATCH_BYTES] __attribute__((aligned(64)));
    const dnnl_memory_desc_t *descriptions[] = { &p->a, &p->b, &p->c, &p->scratch, &p->bias };
    void *const places[] = { (void *)t->a, (void *)t->b, t->c, scratch, (void *)t->bias };
    static const int names[] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD,
                                 DNNL_ARG_BIAS };
    dnnl_exec_arg_t arguments[5] = { 0 };
    const int count = p->shape.has_bias ? 5 : 4;
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < count && status == dnnl_success; i++) {
        arguments[i].arg = names[i];
        status =
            dnnl_memory_create(&arguments[i].memory, descriptions[i], library.engine, places[i]);
    }
    if (status == dnnl_success)
        status = dnnl_primitive_execute(p->code, library.stream, count, arguments);
    for (int i = 0; i < count; i++)
        dnnl_memory_destroy(arguments[i].memory);
    return status;
}

static void copy_rows(const coh_tile *t)
{
    const size_t bytes = (size_t)coh_tile_element_bytes(t->c_dtype);
    for (int64_t i = 0; i < t->rows; i++)
        memcpy((char *)t->c + (size_t)(i * t->c_stride) * bytes,
               (const char *)t->residual + (size_t)(i * t->c_stride) * bytes,
               (size_t)t->columns * bytes);
}

int coh_onednn_run(const coh_tile *tile)
{
    const shape s = { .rows = tile->rows,
                      .columns = tile->columns,
                      .depth = tile->depth,
                      .a_stride = tile->a_stride,
                      .b_stride = tile->b_stride,
                      .c_stride = tile->c_stride,
                      .dtype = (int32_t)tile->dtype,
                      .c_dtype = (int32_t)tile->c_dtype,
                      .a_transposed = tile->a_transposed,
                      .b_transposed = tile->b_transposed,
                      .has_bias = tile->bias != NULL,
                      .adds = tile->adds || tile->residual != NULL };
    if (tile->residual != NULL && (tile->adds || tile->dtype != tile->c_dtype))
        return 0;
    omp_set_num_threads(1);
    const primitive *p = coh_onednn_available() ? find(&s) : NULL;
    if (p == NULL || p->code == NULL)
        return 0;
    if (tile->residual != NULL && tile->residual != tile->c)
        copy_rows(tile);
    if (execute(p, tile) != dnnl_success)
        return 0;
    coh_tile_activate(tile);
    return 1;
}

#else

int coh_onednn_available(void)
{
    return 0;
}

void coh_onednn_name(char *out_name, size_t bytes)
{
    if (bytes > 0)
        out_name[0] = '\0';
}

int coh_onednn_run(const coh_tile *tile)
{
    (void)tile;
    return 0;
}

#endif
