/* The roofs: products of a layer's shape, a pass that reads and writes more than a cache holds, and
 * a chain of lines that do nothing, run as a program. */
#include "base/alloc.h"
#include "base/clock.h"
#include "engine/line_chain.h"
#include "engine/measure.h"
#include "kernels/kernels.h"

/* y = x weightᵀ of GPT-2 124M's first linear of a layer, 2048 tokens at once. */
enum { ROWS = 2048, COLUMNS = 3072, DEPTH = 768 };
/* Of the pass: read, and as many written. */
#define PASS_BYTES ((uint64_t)96 << 20)

struct coh_roofs {
    coh_pool *pool;
    coh_cold cold;
    coh_matmul products[COH_ROOF_COUNT];
};

static coh_roof roof_of(coh_dtype dtype)
{
    return dtype == COH_DTYPE_BF16 ? COH_ROOF_BF16 : COH_ROOF_F32;
}

static void product_make(coh_roofs *roofs, coh_dtype dtype)
{
    const uint64_t a_bytes = (uint64_t)ROWS * DEPTH * sizeof(float);
    const uint64_t b_bytes = (uint64_t)COLUMNS * DEPTH * sizeof(float);
    roofs->products[roof_of(dtype)] = (coh_matmul){ .layout = COH_MATMUL_NT,
                                                    .dtype = dtype,
                                                    .c_dtype = dtype,
                                                    .rows = ROWS,
                                                    .columns = COLUMNS,
                                                    .depth = DEPTH,
                                                    .a = roofs->cold.base,
                                                    .b = roofs->cold.base + a_bytes,
                                                    .c = roofs->cold.base + a_bytes + b_bytes,
                                                    .a_stride = DEPTH,
                                                    .b_stride = DEPTH,
                                                    .c_stride = COLUMNS };
}

coh_status coh_roofs_open(coh_measure *m, coh_roofs **out_roofs)
{
    coh_roofs *roofs;
    *out_roofs = NULL;
    COH_TRY(COH_ALLOC(1, &roofs));
    roofs->pool = m->pool;
    coh_status status = coh_cold_open(m, 2 * PASS_BYTES, &roofs->cold);
    if (status != COH_OK) {
        coh_free(roofs);
        return status;
    }
    coh_cold_fill(&roofs->cold, 0);
    product_make(roofs, COH_DTYPE_F32);
    product_make(roofs, COH_DTYPE_BF16);
    *out_roofs = roofs;
    return COH_OK;
}

void coh_roofs_close(coh_roofs *roofs)
{
    if (roofs == NULL)
        return;
    coh_cold_close(&roofs->cold);
    coh_free(roofs);
}

/* ---- loads ---- */

static coh_status multiply(const coh_roofs *roofs, coh_roof roof, double *done)
{
    coh_kernel_matmul(roofs->pool, &roofs->products[roof]);
    *done += 2.0 * ROWS * COLUMNS * DEPTH;
    return COH_OK;
}

static coh_status multiply_f32(void *context, double *done)
{
    return multiply(context, COH_ROOF_F32, done);
}

static coh_status multiply_bf16(void *context, double *done)
{
    return multiply(context, COH_ROOF_BF16, done);
}

static coh_status pass(void *context, double *done)
{
    const coh_roofs *roofs = context;
    coh_kernel_pass(roofs->pool, COH_DTYPE_F32, roofs->cold.base + PASS_BYTES, roofs->cold.base,
                    (int64_t)(PASS_BYTES / sizeof(float)), 0);
    *done += 2.0 * (double)PASS_BYTES;
    return COH_OK;
}

coh_load coh_roofs_product(coh_roofs *roofs, coh_dtype dtype)
{
    return (coh_load){ .turn = dtype == COH_DTYPE_BF16 ? multiply_bf16 : multiply_f32,
                       .context = roofs };
}

coh_load coh_roofs_pass(coh_roofs *roofs)
{
    return (coh_load){ .turn = pass, .context = roofs };
}

/* ---- an empty line ---- */

static coh_status do_nothing(const coh_call *call)
{
    (void)call;
    return COH_OK;
}

static coh_status measure_line(coh_measure *m)
{
    const uint32_t line_count = m->effort.line_count;
    coh_line_chain chain;
    coh_samples samples;
    coh_status status = COH_OK;
    COH_TRY(coh_line_chain_create(do_nothing, line_count, m->options->thread_count, &chain));
    COH_TRY_GOTO(status, coh_line_chain_run(&chain), done);
    coh_samples_begin(&samples);
    while (coh_samples_go_on(&samples, &m->effort)) {
        const uint64_t begin = coh_clock_ns();
        COH_TRY_GOTO(status, coh_line_chain_run(&chain), done);
        coh_samples_add(&samples, (double)(coh_clock_ns() - begin) / line_count);
    }
    m->profile->line_ns = coh_samples_figure(&samples);
done:
    coh_line_chain_fini(&chain);
    return status;
}

coh_status coh_measure_roofs(coh_measure *m, coh_roofs *roofs)
{
    static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
    coh_profile *profile = m->profile;
    for (int i = 0; i < 2; i++) {
        coh_figure *rate = &profile->flops_per_s[roof_of(dtypes[i])];
        const coh_load product = coh_roofs_product(roofs, dtypes[i]);
        coh_measure_begin(m, "products of %s", i == 0 ? "f32" : "bf16");
        if (!(rate->p50 > 0))
            COH_TRY(coh_samples_of_rate(&product, &m->effort, rate));
    }
    const coh_load streaming = coh_roofs_pass(roofs);
    coh_measure_begin(m, "memory");
    if (!(profile->memory_bytes_per_s.p50 > 0))
        COH_TRY(coh_samples_of_rate(&streaming, &m->effort, &profile->memory_bytes_per_s));
    coh_measure_begin(m, "an empty line");
    return profile->line_ns.p50 > 0 ? COH_OK : measure_line(m);
}
