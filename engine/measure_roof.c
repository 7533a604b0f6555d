/* The roofs, upper bounds for all other work: products of a layer's shape, a pass that reads and
 * writes more than a cache holds, and a chain of empty instructions, run as a program. Next:
 * measure.h. */
#include "base/alloc.h"
#include "engine/instruction_chain.h"
#include "engine/measure.h"
#include "kernels/kernels.h"

/* Scale 4 is y = x weightᵀ of the first linear of a layer of GPT-2 124M, with 2048 tokens. On a
 * host one such product takes up to a tenth of a second, many windows of a quick measurement: that
 * takes scale 2. A GPU starts at a smaller scale, which doubles until a batch takes long enough:
 * the necessary width depends on the GPU, and launch time must not show. */
enum { ROWS = 512, COLUMNS = 768, DEPTH = 192, LEAST_SCALE = 1, MOST_SCALE = 16 };

enum { LOAD_PASS = COH_ROOF_COUNT, LOAD_COUNT };

typedef struct coh_roofs {
    coh_bed *bed;
    uint64_t pass_bytes;
    int least_scale;
    coh_cold cold;
    coh_matmul products[COH_ROOF_COUNT];
    coh_work_load loads[LOAD_COUNT];
} coh_roofs;

static coh_roof roof_of(coh_dtype dtype)
{
    return dtype == COH_DTYPE_BF16 ? COH_ROOF_BF16 : COH_ROOF_F32;
}

/* ---- work ---- */

static coh_status multiply_f32(void *context, uint64_t index)
{
    const coh_roofs *roofs = context;
    (void)index;
    coh_kernel_matmul(roofs->bed->queue, &roofs->products[COH_ROOF_F32]);
    return COH_OK;
}

static coh_status multiply_bf16(void *context, uint64_t index)
{
    const coh_roofs *roofs = context;
    (void)index;
    coh_kernel_matmul(roofs->bed->queue, &roofs->products[COH_ROOF_BF16]);
    return COH_OK;
}

static coh_status pass(void *context, uint64_t index)
{
    const coh_roofs *roofs = context;
    (void)index;
    coh_kernel_pass(roofs->bed->queue, COH_DTYPE_F32, roofs->cold.base + roofs->pass_bytes,
                    roofs->cold.base, (int64_t)(roofs->pass_bytes / sizeof(float)), 0);
    return COH_OK;
}

/* ---- memory and loads ---- */

/* Returns 0 if there is no room for this scale. */
static int product_make(coh_roofs *roofs, coh_dtype dtype, int scale)
{
    const int64_t rows = (int64_t)ROWS * scale, columns = (int64_t)COLUMNS * scale,
                  depth = (int64_t)DEPTH * scale;
    const uint64_t a_bytes = (uint64_t)(rows * depth) * sizeof(float);
    const uint64_t b_bytes = (uint64_t)(columns * depth) * sizeof(float);
    if (a_bytes + b_bytes + (uint64_t)(rows * columns) * sizeof(float) > roofs->cold.bytes)
        return 0;
    roofs->products[roof_of(dtype)] = (coh_matmul){ .layout = COH_MATMUL_NT,
                                                    .dtype = dtype,
                                                    .c_dtype = dtype,
                                                    .rows = rows,
                                                    .columns = columns,
                                                    .depth = depth,
                                                    .a = roofs->cold.base,
                                                    .b = roofs->cold.base + a_bytes,
                                                    .c = roofs->cold.base + a_bytes + b_bytes,
                                                    .a_stride = depth,
                                                    .b_stride = depth,
                                                    .c_stride = columns };
    return 1;
}

static coh_status open_product(coh_roofs *roofs, coh_dtype dtype)
{
    const coh_bed_work work = dtype == COH_DTYPE_BF16 ? multiply_bf16 : multiply_f32;
    const coh_matmul *product = &roofs->products[roof_of(dtype)];
    coh_work_load *load = &roofs->loads[roof_of(dtype)];
    for (int scale = roofs->least_scale; scale <= MOST_SCALE && product_make(roofs, dtype, scale);
         scale *= 2) {
        COH_TRY(coh_work_load_init(
            roofs->bed, work, roofs,
            2.0 * (double)product->rows * (double)product->columns * (double)product->depth, load));
        if (load->repeat == 1)
            break;
    }
    return COH_OK;
}

static coh_status open_loads(coh_roofs *roofs)
{
    COH_TRY(coh_cold_open(roofs->bed, 2 * roofs->pass_bytes, &roofs->cold));
    COH_TRY(coh_cold_fill(&roofs->cold, 0));
    COH_TRY(open_product(roofs, COH_DTYPE_F32));
    COH_TRY(open_product(roofs, COH_DTYPE_BF16));
    return coh_work_load_init(roofs->bed, pass, roofs, 2.0 * (double)roofs->pass_bytes,
                              &roofs->loads[LOAD_PASS]);
}

coh_status coh_roofs_open(coh_measure *m)
{
    COH_TRY(COH_ALLOC(1, &m->roofs));
    m->roofs->bed = m->bed;
    m->roofs->pass_bytes = m->effort.pass_bytes;
    m->roofs->least_scale = m->bed->is_host ? m->effort.host_scale : LEAST_SCALE;
    return open_loads(m->roofs);
}

void coh_roofs_close(coh_measure *m)
{
    if (m->roofs != NULL)
        coh_cold_close(&m->roofs->cold);
    coh_free(m->roofs);
}

coh_load coh_roofs_product(const coh_measure *m, coh_dtype dtype)
{
    return coh_work_load_of(&m->roofs->loads[roof_of(dtype)]);
}

coh_load coh_roofs_pass(const coh_measure *m)
{
    return coh_work_load_of(&m->roofs->loads[LOAD_PASS]);
}

/* ---- an empty instruction ---- */

static coh_status do_nothing(const coh_call *call)
{
    (void)call;
    return COH_OK;
}

static coh_status run_chain(void *chain)
{
    return coh_instruction_chain_run(chain);
}

static coh_status measure_instruction(coh_measure *m)
{
    coh_instruction_chain chain;
    const int is_host = m->bed->is_host;
    COH_TRY(coh_instruction_chain_create(do_nothing, m->effort.instruction_count,
                                         m->options->thread_count, is_host ? NULL : m->bed->what,
                                         is_host ? NULL : m->profile, &chain));
    coh_status status = coh_instruction_chain_run(&chain);
    if (status == COH_OK)
        status = coh_measure_time(m, run_chain, &chain, m->effort.instruction_count,
                                  &m->profile->instruction_ns);
    coh_instruction_chain_fini(&chain);
    return status;
}

/* Products in bf16 draw all the power that a GPU may have: within tenths of a second it lowers its
 * clock. An H200 made 899 TFLOP/s in the first 20 ms, and 790 in long runs. */
static coh_status heat(const coh_measure *m, const coh_load *product, const coh_figure *figure)
{
    double rate;
    return m->bed->is_host || figure->p50 > 0 ? COH_OK
                                              : coh_load_rate(product, m->effort.heat_ns, &rate);
}

coh_status coh_measure_roofs(coh_measure *m)
{
    static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
    coh_profile *profile = m->profile;
    for (int i = 0; i < 2; i++) {
        const coh_load product = coh_roofs_product(m, dtypes[i]);
        coh_figure *figure = &profile->flops_per_s[roof_of(dtypes[i])];
        coh_measure_begin(m, "products of %s", i == 0 ? "f32" : "bf16");
        if (dtypes[i] == COH_DTYPE_BF16)
            COH_TRY(heat(m, &product, figure));
        COH_TRY(coh_measure_rate(m, &product, figure));
    }
    const coh_load streaming = coh_roofs_pass(m);
    coh_measure_begin(m, "memory");
    COH_TRY(coh_measure_rate(m, &streaming, &profile->memory_bytes_per_s));
    coh_measure_begin(m, "an empty instruction");
    return profile->instruction_ns.p50 > 0 ? COH_OK : measure_instruction(m);
}
