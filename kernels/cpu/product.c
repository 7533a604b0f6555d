/* Selects the product (panels, OpenBLAS, oneDNN) of each shape, by default or from a table, and
 * writes the kernel path that names the selection. Next: kernels/product.h; matmul.c runs it. */
#include "kernels/product.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>
#endif

#include "base/check.h"
#include "cohobate/engine.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/tile.h"

/* Written by coh_products_start and coh_kernels_choose, while no thread reads it. */
static struct {
    coh_product of_f32;
    coh_panel_run *panels_f32, *panels_bf16;
    coh_bf16_support bf16;
    int is_plain, wants_openblas;
    char path[128];
    int32_t path_length; /* length without the table's part */
    coh_product_choice choices[COH_PRODUCT_CHOICES_MAX];
    int32_t choice_count;
} products;

const char *const coh_product_names[COH_PRODUCT_COUNT + 1] = { "default", "panels", "openblas",
                                                               "onednn", NULL };

const char *coh_product_name(coh_product product)
{
    return product < COH_PRODUCT_COUNT ? coh_product_names[product] : "unknown";
}

#if defined(__x86_64__)
/* Checks for bf16 tiles (Intel 64 manual, CPUID leaf 7) and for a system that saves them; Linux
 * does so for processes that ask (arch_prctl(2)). */
static int has_amx(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1u) || !(d >> 24 & 1u))
        return 0;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

coh_panel_run *coh_panel_run_of(const char *isa, coh_dtype dtype)
{
    (void)dtype; /* on other processors one function serves both */
#if defined(__x86_64__)
    if (strcmp(isa, "avx512amx") == 0)
        return coh_panel_run_of("avx512bf16", dtype) != NULL && has_amx() ? coh_panel_run_avx512amx
                                                                          : NULL;
    if (strcmp(isa, "avx512bf16") == 0)
        return dtype == COH_DTYPE_BF16 && coh_rows_of("avx512", COH_DTYPE_F32) != NULL &&
                       __builtin_cpu_supports("avx512bf16")
                   ? coh_panel_run_avx512bf16
                   : NULL;
    if (strcmp(isa, "avx512") == 0)
        return coh_rows_of(isa, COH_DTYPE_F32) != NULL ? coh_panel_run_avx512 : NULL;
    if (strcmp(isa, "avx2") == 0)
        return coh_rows_of(isa, COH_DTYPE_F32) != NULL ? coh_panel_run_avx2 : NULL;
#endif
    return strcmp(isa, "plain") == 0 ? coh_panel_run_plain : NULL;
}

static coh_bf16_support bf16_support(const char *isa, const char *highest)
{
    if (strcmp(highest, "bf16-pretended") == 0)
        return COH_BF16_PRETENDED;
    return strcmp(isa, "avx512") == 0 && strcmp(highest, "avx512") != 0 &&
                   coh_panel_run_of("avx512bf16", COH_DTYPE_BF16) != NULL
               ? COH_BF16_HARDWARE
               : COH_BF16_WIDENED;
}

/* The path is "<rows>+<product of f32>", then "+bf16" if pairs of bf16 are multiplied, "+amx" if
 * tiles of them are, "+bf16-pretended" if they are widened and bf16 is the default. */
void coh_products_start(const char *isa, const char *highest)
{
    const char *plain = getenv("COH_PLAIN_MATMUL"), *bf16 = "";
    const int is_plain = plain != NULL && strcmp(plain, "1") == 0;
    char name[64];
    products.panels_f32 = products.panels_bf16 =
        coh_panel_run_of(is_plain ? "plain" : isa, COH_DTYPE_F32);
    products.of_f32 = COH_PRODUCT_PANELS;
    snprintf(name, sizeof(name), is_plain ? "plain" : "panels");
    products.wants_openblas = !is_plain && strcmp(isa, "avx512") != 0;
    if (products.wants_openblas && coh_openblas_start()) {
        products.of_f32 = COH_PRODUCT_OPENBLAS;
        coh_openblas_name(name, sizeof(name));
    }
    products.bf16 = bf16_support(isa, highest);
    if (products.bf16 == COH_BF16_PRETENDED)
        bf16 = "+bf16-pretended";
    else if (products.bf16 == COH_BF16_HARDWARE && !is_plain) {
        coh_panel_run *tiles = strcmp(highest, "avx512bf16") != 0
                                   ? coh_panel_run_of("avx512amx", COH_DTYPE_BF16)
                                   : NULL;
        bf16 = tiles != NULL ? "+amx" : "+bf16";
        products.panels_bf16 =
            tiles != NULL ? tiles : coh_panel_run_of("avx512bf16", COH_DTYPE_BF16);
    }
    products.is_plain = is_plain;
    products.path_length =
        (int32_t)snprintf(products.path, sizeof(products.path), "%s+%s%s", isa, name, bf16);
}

const char *coh_kernel_path(void)
{
    coh_kernels_start();
    return products.path;
}

const char *coh_kernel_fallback(void)
{
    coh_kernels_start();
    return products.wants_openblas ? coh_openblas_why_not() : "";
}

coh_bf16_support coh_kernels_bf16(void)
{
    coh_kernels_start();
    return products.bf16;
}

int coh_product_available(coh_product product, coh_dtype dtype)
{
    switch (product) {
    case COH_PRODUCT_DEFAULT:
    case COH_PRODUCT_PANELS:
        return dtype == COH_DTYPE_F32 || dtype == COH_DTYPE_BF16;
    case COH_PRODUCT_OPENBLAS:
        return dtype == COH_DTYPE_F32 && coh_openblas_start();
    case COH_PRODUCT_ONEDNN: /* its bf16 needs AVX-512 */
        return coh_onednn_available() &&
               (dtype == COH_DTYPE_F32 ||
                (dtype == COH_DTYPE_BF16 && strcmp(coh_rows_get()->name, "avx512") == 0));
    case COH_PRODUCT_COUNT:
        return 0;
    }
    return 0;
}

coh_product coh_product_default(coh_dtype dtype)
{
    coh_kernels_start();
    return dtype == COH_DTYPE_F32 ? products.of_f32 : COH_PRODUCT_PANELS;
}

/* ---- the table ---- */

/* Orders by shape; a table is sorted so that its hash does not depend on the order of its lines. */
static int compare(const void *left, const void *right)
{
    const coh_product_choice *a = left, *b = right;
    const int64_t x[] = { a->dtype, a->layout, a->rows, a->columns, a->depth };
    const int64_t y[] = { b->dtype, b->layout, b->rows, b->columns, b->depth };
    for (int i = 0; i < 5; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

coh_product coh_product_find(coh_dtype dtype, coh_matmul_layout layout, int64_t rows,
                             int64_t columns, int64_t depth)
{
    const coh_product_choice wanted = { dtype, layout, rows, columns, depth, COH_PRODUCT_DEFAULT };
    const coh_product_choice *found =
        products.choice_count == 0
            ? NULL
            : bsearch(&wanted, products.choices, (size_t)products.choice_count, sizeof(wanted),
                      compare);
    if (found != NULL && found->product != COH_PRODUCT_DEFAULT && !products.is_plain)
        return found->product;
    return coh_product_default(dtype);
}

/* XXH3 of the numbers of the lines; each line's hash is the seed of the next. */
static uint64_t table_hash(void)
{
    uint64_t hash = 0;
    for (int32_t i = 0; i < products.choice_count; i++) {
        const coh_product_choice *c = &products.choices[i];
        const int64_t numbers[] = {
            c->dtype, c->layout, c->rows, c->columns, c->depth, c->product
        };
        hash = XXH3_64bits_withSeed(numbers, sizeof(numbers), hash);
    }
    return hash;
}

int coh_product_is_named(coh_product product, coh_dtype dtype)
{
    for (int32_t i = 0; i < products.choice_count && !products.is_plain; i++)
        if (products.choices[i].product == product && products.choices[i].dtype == dtype)
            return 1;
    return 0;
}

static int table_names(coh_product product)
{
    return coh_product_is_named(product, COH_DTYPE_F32) ||
           coh_product_is_named(product, COH_DTYPE_BF16);
}

/* Appends the table's part to the path: the libraries that it uses, and its hash. */
static void write_path(void)
{
    char blas[48] = "", onednn[32] = "";
    products.path[products.path_length] = '\0';
    if (products.choice_count == 0 || products.is_plain)
        return;
    if (table_names(COH_PRODUCT_OPENBLAS) && products.of_f32 != COH_PRODUCT_OPENBLAS) {
        blas[0] = '+';
        coh_openblas_name(blas + 1, sizeof(blas) - 1);
    }
    if (table_names(COH_PRODUCT_ONEDNN)) {
        onednn[0] = '+';
        coh_onednn_name(onednn + 1, sizeof(onednn) - 1);
    }
    snprintf(products.path + products.path_length,
             sizeof(products.path) - (size_t)products.path_length, "%s%s+table-%016" PRIx64, blas,
             onednn, table_hash());
}

static coh_status not_available(const coh_product_choice *choice)
{
    if (choice->product == COH_PRODUCT_OPENBLAS && choice->dtype == COH_DTYPE_F32)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the kernel table names openblas, which cannot be loaded: %s, or measure "
                        "again",
                        coh_openblas_why_not());
    return coh_fail(COH_ERR_ARGUMENT,
                    "the kernel table names %s for %s products, which is not available here: "
                    "measure again",
                    coh_product_name(choice->product),
                    choice->dtype == COH_DTYPE_BF16 ? "bf16" : "f32");
}

coh_status coh_kernels_choose(const coh_product_choice *choices, int32_t count)
{
    coh_product_choice sorted[COH_PRODUCT_CHOICES_MAX];
    coh_kernels_start();
    if (count < 0 || count > COH_PRODUCT_CHOICES_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "a kernel table of %" PRId32 " lines: at most %d", count,
                        COH_PRODUCT_CHOICES_MAX);
    for (int32_t i = 0; i < count; i++)
        sorted[i] = choices[i];
    qsort(sorted, (size_t)count, sizeof(*sorted), compare);
    for (int32_t i = 0; i < count; i++) {
        if (!coh_product_available(sorted[i].product, sorted[i].dtype))
            return not_available(&sorted[i]);
        if (i > 0 && compare(&sorted[i - 1], &sorted[i]) == 0)
            return coh_fail(COH_ERR_ARGUMENT,
                            "the kernel table names the product %" PRId64 " x %" PRId64
                            " x %" PRId64 " twice",
                            sorted[i].rows, sorted[i].columns, sorted[i].depth);
    }
    memcpy(products.choices, sorted, (size_t)count * sizeof(*sorted));
    products.choice_count = count;
    write_path();
    return COH_OK;
}

void coh_tile_run_by(coh_product product, const coh_tile *tile)
{
    coh_kernels_start();
    if (product == COH_PRODUCT_ONEDNN && coh_onednn_run(tile))
        return;
    if (product == COH_PRODUCT_OPENBLAS && tile->dtype == COH_DTYPE_F32 &&
        tile->c_dtype == COH_DTYPE_F32 && coh_openblas_start())
        coh_openblas_run(tile);
    else if (tile->dtype == COH_DTYPE_F32)
        products.panels_f32(tile);
    else
        products.panels_bf16(tile);
}
