/* Measures the products of a graph's shapes, and lets a process use the results. Next:
 * kernel_table.h; kernel_table_file.c for the file. */
#include "engine/kernel_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/pool.h"
#include "base/thread.h"
#include "cohobate/engine.h"
#include "kernels/kernels.h"
#include "planner/graph.h"

/* A product is chosen only if its time is below this part of the standard one's. */
#define FASTER 0.97
/* Rounds in which the products take turns; the least time of each counts. */
#define ROUNDS 5

const char *coh_kernel_product_name(int32_t product)
{
    return coh_product_name(product >= 0 && product < COH_KERNEL_PRODUCTS
                                ? coh_kernel_product_of(product)
                                : COH_PRODUCT_COUNT);
}

const char *const coh_kernel_layout_names[] = {
    [COH_MATMUL_NT] = "nt", [COH_MATMUL_NN] = "nn", [COH_MATMUL_TN] = "tn", NULL
};

coh_status coh_kernel_layout_of(const char *name, coh_matmul_layout *out_layout)
{
    for (int i = 0; coh_kernel_layout_names[i] != NULL; i++)
        if (strcmp(name, coh_kernel_layout_names[i]) == 0) {
            *out_layout = (coh_matmul_layout)i;
            return COH_OK;
        }
    return coh_fail(COH_ERR_CORRUPT, "its layout \"%.20s\" is not one of nt, nn, tn", name);
}

/* ---- shapes ---- */

static coh_status add_shape(coh_kernel_shapes *list, coh_dtype dtype, coh_matmul_layout layout,
                            int64_t rows, int64_t columns, int64_t depth)
{
    const char *name = coh_kernel_layout_names[layout];
    for (size_t i = 0; i < list->count; i++) {
        coh_kernel_timing *known = &list->shapes[i];
        if (known->dtype == dtype && known->layout == name && known->rows == rows &&
            known->columns == columns && known->depth == depth) {
            known->use_count++;
            return COH_OK;
        }
    }
    COH_TRY(COH_GROW(&list->shapes, &list->capacity, list->count + 1));
    list->shapes[list->count++] = (coh_kernel_timing){ .dtype = dtype,
                                                       .layout = name,
                                                       .rows = rows,
                                                       .columns = columns,
                                                       .depth = depth,
                                                       .use_count = 1 };
    return COH_OK;
}

/* Adds x [rows,depth] with weight [columns,depth]: the forward product and its two gradients. */
static coh_status add_layer(coh_kernel_shapes *list, coh_dtype dtype, int64_t rows, int64_t columns,
                            int64_t depth)
{
    COH_TRY(add_shape(list, dtype, COH_MATMUL_NT, rows, columns, depth));
    COH_TRY(add_shape(list, dtype, COH_MATMUL_NN, rows, depth, columns));
    return add_shape(list, dtype, COH_MATMUL_TN, columns, depth, rows);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The classifier multiplies tile by tile, for whatever ranges of rows a plan uses (kernels.h). */
static coh_status add_classifier(coh_kernel_shapes *list, coh_dtype dtype, int64_t tokens,
                                 int64_t vocabulary, int64_t channels)
{
    const int64_t chunk = coh_kernel_classifier_chunk(dtype);
    for (int64_t v = 0; v < vocabulary; v += COH_ROW_BLOCK)
        for (int64_t n = 0; n < tokens; n += chunk)
            COH_TRY(add_layer(list, dtype, smaller(chunk, tokens - n),
                              smaller(COH_ROW_BLOCK, vocabulary - v), channels));
    return COH_OK;
}

coh_status coh_kernel_shapes_of(const coh_graph *graph, coh_kernel_shapes *shapes)
{
    for (size_t i = 0; i < graph->op_count; i++) {
        const coh_graph_op_entry *op = &graph->ops[i];
        if (op->kind.input_count < 1 || op->parameter[0] < 0 || op->kind.parameter_count < 1)
            continue;
        const coh_shape *x = &graph->tensors[op->input[0]].shape;
        const coh_shape *weight = &graph->parameters[op->parameter[0]].facts.shape;
        const int64_t rows = coh_shape_elements(x) / x->dim[x->rank - 1];
        if (strncmp(op->kind.name, "cohobate.linear", strlen("cohobate.linear")) == 0)
            COH_TRY(add_layer(shapes, x->dtype, rows, weight->dim[0], weight->dim[1]));
        else if (strcmp(op->kind.name, "cohobate.classifier") == 0)
            COH_TRY(add_classifier(shapes, x->dtype, rows, weight->dim[0], weight->dim[1]));
    }
    return COH_OK;
}

void coh_kernel_shapes_fini(coh_kernel_shapes *shapes)
{
    coh_free(shapes->shapes);
    *shapes = (coh_kernel_shapes){ 0 };
}

/* ---- measuring ---- */

static coh_status time_shape(coh_pool *pool, coh_kernel_timing *shape)
{
    coh_product_choice choice = {
        .dtype = shape->dtype, .rows = shape->rows, .columns = shape->columns, .depth = shape->depth
    };
    COH_TRY(coh_kernel_layout_of(shape->layout, &choice.layout));
    shape->standard = (int32_t)(coh_product_default(shape->dtype) - coh_kernel_product_of(0));
    for (int round = 0; round < ROUNDS; round++)
        for (int32_t p = 0; p < COH_KERNEL_PRODUCTS; p++) {
            double seconds;
            choice.product = coh_kernel_product_of(p);
            if (!coh_product_available(choice.product, choice.dtype))
                continue;
            COH_TRY(coh_kernels_time(pool, &choice, &seconds));
            if (round == 0 || seconds < shape->seconds[p])
                shape->seconds[p] = seconds;
        }
    shape->chosen = shape->standard;
    for (int32_t p = 0; p < COH_KERNEL_PRODUCTS; p++)
        if (shape->seconds[p] > 0 && shape->seconds[p] < FASTER * shape->seconds[shape->standard] &&
            shape->seconds[p] < shape->seconds[shape->chosen])
            shape->chosen = p;
    return COH_OK;
}

typedef struct measuring {
    coh_kernel_shapes *list;
    int32_t thread_count;
    coh_kernel_report report;
    void *context;
} measuring;

static coh_status measure(void *argument)
{
    const measuring *m = argument;
    coh_status status = COH_OK;
    coh_pool *pool = NULL;
    COH_TRY_GOTO(status, coh_pool_create(m->thread_count, &pool), done);
    for (size_t i = 0; i < m->list->count; i++) {
        COH_TRY_GOTO(status, time_shape(pool, &m->list->shapes[i]), done);
        if (m->report)
            m->report(m->context, &m->list->shapes[i]);
    }
done:
    coh_pool_destroy(pool);
    return status;
}

coh_status coh_kernels_tune(const coh_graph *graph, int32_t thread_count, const char *path,
                            coh_kernel_report report, void *context)
{
    if (!graph || !path || !path[0])
        return coh_fail(COH_ERR_ARGUMENT, "a kernel table needs a graph and a path");
    coh_kernel_shapes list = { 0 };
    measuring m = {
        .list = &list, .thread_count = thread_count, .report = report, .context = context
    };
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, coh_kernel_shapes_of(graph, &list), done);
    if (list.count == 0 || list.count > COH_PRODUCT_CHOICES_MAX)
        COH_TRY_GOTO(status,
                     coh_fail(COH_ERR_ARGUMENT,
                              "the graph multiplies matrices of %zu shapes: a kernel table has 1 "
                              "to %d",
                              list.count, COH_PRODUCT_CHOICES_MAX),
                     done);
    COH_TRY_GOTO(status, coh_thread_run("coh-tune", measure, &m), done);
    const coh_kernel_list table = { .shapes = list.shapes,
                                    .shape_count = list.count,
                                    .thread_count = thread_count };
    status = coh_kernel_table_write(&table, path);
done:
    coh_kernel_shapes_fini(&list);
    return status;
}

/* ---- using ---- */

uint64_t coh_kernels_hash(void)
{
    static const char mark[] = "+table-";
    const char *found = strstr(coh_kernel_path(), mark);
    const uint64_t products = found ? strtoull(found + sizeof(mark) - 1, NULL, 16) : 0;
    const uint64_t algorithms = coh_algorithms_hash(NULL);
    return algorithms == 0 ? products
                           : XXH3_64bits_withSeed(&products, sizeof(products), algorithms);
}

int coh_kernels_onednn(coh_dtype dtype)
{
    return coh_product_is_named(COH_PRODUCT_ONEDNN, dtype);
}

coh_status coh_kernels_use(const char *path, char *out_machine, size_t machine_bytes)
{
    if (!path || !path[0])
        return coh_fail(COH_ERR_ARGUMENT, "using a kernel table needs its path");
    coh_kernel_list list = { 0 };
    char here[COH_KERNEL_MACHINE_BYTES];
    COH_TRY(coh_kernel_table_read(path, &list));
    coh_status status = coh_kernels_choose(list.choices, list.choice_count);
    if (status == COH_OK) {
        coh_algorithms_take(list.algorithms, list.algorithm_count);
        list.algorithms = NULL;
        coh_kernel_machine(here);
        if (out_machine)
            snprintf(out_machine, machine_bytes, "%s",
                     list.choice_count == 0 || strcmp(list.machine, here) == 0 ? "" : list.machine);
    } else {
        status = coh_fail_prefix(status, "kernel table %s", path);
    }
    coh_kernel_list_fini(&list);
    return status;
}
