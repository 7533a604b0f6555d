#include "benchmarks/gpu_passes.h"

#include <math.h>
#include <string.h>

#include "kernels/cuda/arguments.h"
#include "kernels/cuda/grid.h"
#include "kernels/kernels.h"
#include "kernels/nf4.h"
#include "kernels/optimizer.h"
#include "kernels/plain.h"
#include "kernels/table.h"

/* ---- by functions of kernels.h and its like ---- */

static int64_t elements(const gpu_rows *t)
{
    return t->N * t->C;
}

static coh_norm norm_of(const gpu_rows *t)
{
    return (coh_norm){ .N = t->N,
                       .C = t->C,
                       .dtype = t->dtype,
                       .epsilon = 1e-5f,
                       .x = t->of[0],
                       .weight = t->weight,
                       .bias = t->weight,
                       .y = t->of[1],
                       .mean = t->mean,
                       .rstd = t->rstd,
                       .dy = t->of[2],
                       .dx = t->of[1],
                       .dweight = t->dweight,
                       .dbias = t->dbias,
                       .partials = t->partials };
}

static void norm(gpu_rows *t)
{
    const coh_norm n = norm_of(t);
    coh_kernel_norm(t->turns->queue, &n);
}

static void norm_backward(gpu_rows *t)
{
    const coh_norm n = norm_of(t);
    coh_kernel_norm_backward(t->turns->queue, &n);
}

static void rms_norm(gpu_rows *t)
{
    coh_norm n = norm_of(t);
    n.mean = NULL;
    n.bias = NULL;
    coh_kernel_norm(t->turns->queue, &n);
}

static void rms_norm_backward(gpu_rows *t)
{
    coh_norm n = norm_of(t);
    n.mean = NULL;
    n.dbias = NULL;
    coh_kernel_norm_backward(t->turns->queue, &n);
}

static void gelu(gpu_rows *t)
{
    coh_kernel_activate(t->turns->queue, COH_ACTIVATION_GELU, t->dtype, t->of[1], t->of[0],
                        elements(t));
}

static void gelu_backward(gpu_rows *t)
{
    coh_kernel_activate_backward(t->turns->queue, COH_ACTIVATION_GELU, t->dtype, t->of[1], t->of[2],
                                 t->of[0], elements(t), 0);
}

static void relu(gpu_rows *t)
{
    coh_kernel_activate(t->turns->queue, COH_ACTIVATION_RELU, t->dtype, t->of[1], t->of[0],
                        elements(t));
}

static void relu_backward(gpu_rows *t)
{
    coh_kernel_activate_backward(t->turns->queue, COH_ACTIVATION_RELU, t->dtype, t->of[1], t->of[2],
                                 t->of[0], elements(t), 0);
}

/* Computes bias gradients in the same pass. */
static void activation_gradient(gpu_rows *t, coh_activation activation)
{
    const coh_activation_gradient g = { .activation = activation,
                                        .dtype = t->dtype,
                                        .N = t->N,
                                        .O = t->C,
                                        .dy = t->of[2],
                                        .of = t->of[0],
                                        .dh = t->of[1],
                                        .sums = t->dbias,
                                        .partials = t->partials };
    coh_kernel_activation_gradient(t->turns->queue, &g);
}

static void gelu_gradient(gpu_rows *t)
{
    activation_gradient(t, COH_ACTIVATION_GELU);
}

static void relu_gradient(gpu_rows *t)
{
    activation_gradient(t, COH_ACTIVATION_RELU);
}

static void scale(gpu_rows *t)
{
    const coh_scale s = {
        .dtype = t->dtype, .count = elements(t), .x = t->of[0], .y = t->of[1], .factor = 0.5f
    };
    coh_kernel_scale(t->turns->queue, &s);
}

static void copy(gpu_rows *t)
{
    coh_kernel_pass(t->turns->queue, t->dtype, t->of[1], t->of[0], elements(t), 0);
}

/* Adds to a tensor that the ceiling's copies reset in each turn. */
static void add(gpu_rows *t)
{
    coh_kernel_pass(t->turns->queue, t->dtype, t->of[GPU_ROWS_TENSORS - 1], t->of[0], elements(t),
                    1);
}

static void round_sums(gpu_rows *t)
{
    coh_kernel_round(t->turns->queue, t->dtype, t->of[1], (const float *)(const void *)t->of[0],
                     elements(t), 0);
}

static void gated(gpu_rows *t, int gelu)
{
    const coh_swiglu s = { .dtype = t->dtype,
                           .count = elements(t),
                           .gate = t->of[0],
                           .up = t->of[2],
                           .y = t->of[1],
                           .gelu = gelu };
    coh_kernel_swiglu(t->turns->queue, &s);
}

static void gated_backward(gpu_rows *t, int gelu)
{
    const coh_swiglu s = { .dtype = t->dtype,
                           .count = elements(t),
                           .gate = t->of[0],
                           .up = t->of[2],
                           .dy = t->of[3],
                           .dgate = t->of[1],
                           .dup = t->of[4],
                           .gelu = gelu };
    coh_kernel_swiglu_backward(t->turns->queue, &s);
}

static void swiglu(gpu_rows *t)
{
    gated(t, 0);
}

static void swiglu_backward(gpu_rows *t)
{
    gated_backward(t, 0);
}

static void geglu(gpu_rows *t)
{
    gated(t, 1);
}

static void geglu_backward(gpu_rows *t)
{
    gated_backward(t, 1);
}

static void dropout(gpu_rows *t)
{
    const coh_dropout d = {
        .dtype = t->dtype,
        .count = elements(t),
        .drop = { .cell = &t->cells->random, .threshold = 0x1999999au, .scale = 1.0f / 0.9f },
        .x = t->of[0],
        .residual = t->of[2],
        .y = t->of[1]
    };
    coh_kernel_dropout(t->turns->queue, &d);
}

static void rope(gpu_rows *t)
{
    float frequencies[64];
    for (int c = 0; c < 64; c++)
        frequencies[c] = powf(1e4f, -(float)c / 64.0f);
    const coh_rope r = { .B = t->N / t->T,
                         .T = t->T,
                         .H = t->C / 128,
                         .D = 128,
                         .x_stride = t->C,
                         .y_stride = t->C,
                         .magnitude = 1.0f,
                         .dtype = t->dtype,
                         .frequencies = frequencies,
                         .x = t->of[0],
                         .y = t->of[1] };
    coh_kernel_rope(t->turns->queue, &r);
}

static void position(gpu_rows *t)
{
    const coh_position p = { .dtype = t->dtype,
                             .B = t->N / t->T,
                             .T = t->T,
                             .C = t->C,
                             .rows = t->T,
                             .x = t->of[0],
                             .weight = t->of[2],
                             .y = t->of[1] };
    coh_kernel_position(t->turns->queue, &p);
}

static void position_backward(gpu_rows *t)
{
    const coh_position_gradient g = { .dtype = t->dtype,
                                      .B = t->N / t->T,
                                      .T = t->T,
                                      .C = t->C,
                                      .rows = t->T,
                                      .dy = t->of[0],
                                      .dweight = t->of[1] };
    coh_kernel_position_backward(t->turns->queue, &g);
}

/* One step at the last position of full caches. */
static void attention_decode(gpu_rows *t)
{
    const coh_attention_decode d = { .B = t->N / t->T,
                                     .T = 1,
                                     .H = t->C / 128,
                                     .G = t->C / 128,
                                     .D = 128,
                                     .positions = t->T,
                                     .position = t->last,
                                     .dtype = t->dtype,
                                     .q_stride = t->C,
                                     .kv_stride = t->C,
                                     .q = t->of[3],
                                     .k = t->of[4],
                                     .v = t->of[4],
                                     .keys = t->of[0],
                                     .values = t->of[2],
                                     .y = t->of[1],
                                     .scratch = t->scratch };
    coh_kernel_attention_decode(t->turns->queue, &d);
}

static coh_embedding embedding_of(const gpu_rows *t)
{
    return (coh_embedding){ .N = t->N,
                            .C = t->C,
                            .row_end = t->N,
                            .tokens = t->tokens,
                            .dtype = t->dtype,
                            .order = t->order };
}

static void embedding(gpu_rows *t)
{
    const coh_embedding e = embedding_of(t);
    coh_kernel_embedding(t->turns->queue, &e, t->of[1], t->of[0]);
}

static void embedding_backward(gpu_rows *t)
{
    const coh_embedding e = embedding_of(t);
    coh_kernel_embedding_backward(t->turns->queue, &e, t->of[1], t->of[2], 0);
}

static void embedding_backward_common(gpu_rows *t)
{
    coh_embedding e = embedding_of(t);
    e.tokens = t->common;
    coh_kernel_embedding_backward(t->turns->queue, &e, t->of[1], t->of[2], 0);
}

static void column_sum(gpu_rows *t)
{
    coh_kernel_column_sum(t->turns->queue, &(coh_column_sum){ .dtype = t->dtype,
                                                              .sums_dtype = t->dtype,
                                                              .sums = t->dbias,
                                                              .x = t->of[0],
                                                              .rows = t->N,
                                                              .columns = t->C,
                                                              .partials = t->partials });
}

/* One tensor, as a chunk of grains. */
static coh_grain_run all_grains(const gpu_rows *t)
{
    return (coh_grain_run){ .count = elements(t), .rate_factor = 1, .decay = 0.1f };
}

static void square_sums(gpu_rows *t)
{
    const coh_grain_run run = all_grains(t);
    const coh_square_sums s = {
        .dtype = t->dtype, .grains = { &run, 1 }, .grad = t->of[2], .partials = t->squares
    };
    coh_kernel_square_sums(t->turns->queue, &s);
}

static void update(gpu_rows *t, const char *optimizer, const float *hyperparameters,
                   const coh_update *states)
{
    const coh_grain_run run = all_grains(t);
    coh_update u = *states;
    u.optimizer = coh_optimizer_find(optimizer);
    u.dtype = t->dtype;
    u.grains = (coh_chunk_grains){ &run, 1 };
    u.work = t->of[1];
    u.grad = t->of[2];
    if (t->dtype == COH_DTYPE_BF16 && !u.optimizer->rounds_work)
        u.low = (uint16_t *)(void *)t->of[3];
    u.cells = t->cells;
    u.hyperparameters = hyperparameters;
    coh_kernel_update(t->turns->queue, &u);
}

static void adamw(gpu_rows *t)
{
    static const float numbers[] = { 0.9f, 0.95f, 1e-8f };
    const coh_update states = { .states = { t->of[4], t->of[GPU_ROWS_SQUARES] } };
    update(t, "adamw", numbers, &states);
}

/* Codes have a byte for each element; the scales are behind them, in the room of f32 moments. */
static void update_by_codes(gpu_rows *t, const char *optimizer)
{
    static const float numbers[] = { 0.9f, 0.95f, 1e-8f };
    char *const m = (char *)t->of[4], *const v = (char *)t->of[GPU_ROWS_SQUARES];
    const int64_t scales = 2 * elements(t);
    const coh_update states = { .states = { m, m + scales, v, v + scales } };
    update(t, optimizer, numbers, &states);
}

static void adamw8(gpu_rows *t)
{
    update_by_codes(t, "adamw8");
}

static void adamw8sr(gpu_rows *t)
{
    update_by_codes(t, "adamw8sr");
}

static void lion(gpu_rows *t)
{
    static const float numbers[] = { 0.9f, 0.99f };
    const coh_update states = { .states = { t->of[4] } };
    update(t, "lion", numbers, &states);
}

static void sgd(gpu_rows *t)
{
    static const float numbers[] = { 0.9f, 0 };
    const coh_update states = { .states = { t->of[4] } };
    update(t, "sgd", numbers, &states);
}

/* The first half of each row. */
static void take_blocks(gpu_rows *t)
{
    const coh_blocks b = { .dtype = t->dtype,
                           .outer = t->N,
                           .count = t->C / 2,
                           .wide = t->C,
                           .whole_in = t->of[0],
                           .part_out = t->of[1] };
    coh_kernel_take_blocks(t->turns->queue, &b);
}

static coh_mean mean_of(const gpu_rows *t, int64_t count, int64_t inner)
{
    return (coh_mean){ .dtype = t->dtype,
                       .outer = elements(t) / (count * inner),
                       .count = count,
                       .inner = inner,
                       .from = t->of[0],
                       .to = t->of[1] };
}

/* Opens blocks of any numbers. */
static void open_nf4(gpu_rows *t)
{
    coh_kernel_nf4(t->turns->queue, &(coh_nf4_weight){ .dtype = t->dtype,
                                                       .count = elements(t),
                                                       .packed = t->of[0],
                                                       .y = t->of[1] });
}

static void row_mean(gpu_rows *t)
{
    const coh_mean m = mean_of(t, t->C, 1);
    coh_kernel_mean(t->turns->queue, &m);
}

static void row_mean_backward(gpu_rows *t)
{
    const coh_mean m = mean_of(t, t->C, 1);
    coh_kernel_mean_backward(t->turns->queue, &m);
}

static void column_mean(gpu_rows *t)
{
    const coh_mean m = mean_of(t, t->T, t->C);
    coh_kernel_mean(t->turns->queue, &m);
}

static void softmax(gpu_rows *t)
{
    const coh_softmax s = {
        .dtype = t->dtype, .rows = t->N, .columns = t->C, .from = t->of[0], .to = t->of[1]
    };
    coh_kernel_softmax(t->turns->queue, &s);
}

static void softmax_backward(gpu_rows *t)
{
    const coh_softmax s = { .dtype = t->dtype,
                            .rows = t->N,
                            .columns = t->C,
                            .from = t->of[2],
                            .y = t->of[0],
                            .to = t->of[1] };
    coh_kernel_softmax_backward(t->turns->queue, &s);
}

static void cross_entropy(gpu_rows *t)
{
    const coh_cross_entropy e = { .dtype = t->dtype,
                                  .rows = t->N,
                                  .columns = t->C,
                                  .logits = t->of[0],
                                  .targets = t->targets,
                                  .max = t->mean,
                                  .sum = t->rstd,
                                  .each = t->target };
    coh_kernel_cross_entropy(t->turns->queue, &e);
}

static coh_squares squares_of(const gpu_rows *t)
{
    return (coh_squares){ .dtype = t->dtype,
                          .target_dtype = t->dtype,
                          .count = elements(t),
                          .x = t->of[0],
                          .target = t->of[2],
                          .partial = t->squares,
                          .loss = t->target,
                          .to = t->of[1],
                          .loss_share = 1.0f };
}

static void squares(gpu_rows *t)
{
    const coh_squares s = squares_of(t);
    coh_kernel_squares(t->turns->queue, &s);
}

static void squares_backward(gpu_rows *t)
{
    const coh_squares s = squares_of(t);
    coh_kernel_squares_backward(t->turns->queue, &s);
}

/* In place. */
static void soft_cap(gpu_rows *t)
{
    const coh_soft_cap c = {
        .rows = t->N, .columns = t->C, .stride = t->C, .x = (float *)(void *)t->of[0], .cap = 50.0f
    };
    coh_kernel_soft_cap(t->turns->queue, &c);
}

/* As a REDUCE of four ranks. */
static void fold(gpu_rows *t)
{
    const void *contributions[] = { t->of[0], t->of[1], t->of[2], t->of[3] };
    const coh_fold_call f = { .shape = { { 4 } },
                              .contributions = contributions,
                              .to = t->of[0],
                              .dtype = t->dtype,
                              .to_dtype = t->dtype,
                              .count = elements(t) };
    coh_kernel_fold(t->turns->queue, &f);
}

static coh_wire_call wire_of(gpu_rows *t)
{
    return (coh_wire_call){ .wire = COH_WIRE_INT8,
                            .dtype = t->dtype,
                            .count = elements(t),
                            .elements = t->of[0],
                            .packed = t->of[1] };
}

static void wire_pack(gpu_rows *t)
{
    const coh_wire_call call = wire_of(t);
    coh_kernel_wire_pack(t->turns->queue, &call);
}

static void wire_unpack(gpu_rows *t)
{
    const coh_wire_call call = wire_of(t);
    coh_kernel_wire_unpack(t->turns->queue, &call);
}

/* ---- parts of calls that multiply as well ---- */

/* Logits of N tokens, for a tile of the table's rows. */
static void logits(gpu_rows *t, coh_cuda_kernel f32, void *tile)
{
    const coh_cuda_logits_arguments arguments = { .tokens = t->N,
                                                  .rows = t->C,
                                                  .stride = t->C,
                                                  .logits = tile,
                                                  .targets = t->targets,
                                                  .max = t->mean,
                                                  .sum = t->rstd,
                                                  .target_logit = t->target,
                                                  .gradient = tile,
                                                  .share = 1.0f,
                                                  .N = t->N,
                                                  .packed = 1 };
    const coh_cuda_grid grid = coh_cuda_flat(t->turns->queue, 32 * t->N); /* one warp each */
    coh_cuda_launch(t->turns->queue, coh_cuda_of(f32, t->dtype), &grid, &arguments);
}

static void classifier_take(gpu_rows *t)
{
    logits(t, COH_CUDA_CLASSIFIER_TAKE_F32, t->of[0]);
}

static void classifier_gradient(gpu_rows *t)
{
    logits(t, COH_CUDA_CLASSIFIER_GRADIENT_F32, t->of[1]);
}

/* The epilogue of a product whose rows are not contiguous. */
static void activate_rows(gpu_rows *t)
{
    const int64_t most = 64 * (int64_t)coh_cuda_multiprocessors(t->turns->queue);
    const coh_cuda_grid grid = {
        .x = (uint32_t)(t->N < most ? t->N : most), .y = 1, .z = 1, .threads = 256
    };
    const coh_cuda_activate_arguments arguments = {
        .rows = t->N, .columns = t->C, .stride = t->C, .x = t->of[0], .y = t->of[1], .packed = 1
    };
    coh_cuda_launch(t->turns->queue, coh_cuda_of(COH_CUDA_ACTIVATE_ROWS_F32, t->dtype), &grid,
                    &arguments);
}

/* ---- all ---- */

#define WIDE 8192 /* columns: too many for one pack per thread, few enough for shared memory */
const gpu_pass gpu_passes[] = {
    { "norm", norm, "norm", .of_type = 2 },
    { "norm backward", norm_backward, "norm_backward norm_backward_wide partial_sum",
      .of_type = 3 },
    { "norm backward 1024", norm_backward, "norm_backward partial_sum", .of_type = 3,
      .columns = 1024 },
    { "norm backward 8192", norm_backward, "norm_backward_wide partial_sum", .of_type = 3,
      .columns = WIDE },
    { "norm backward 16384", norm_backward, "norm_backward_widest partial_sum", .of_type = 3,
      .columns = GPU_ROWS_WIDEST },
    { "rms norm", rms_norm, "norm", .of_type = 2 },
    { "rms norm backward", rms_norm_backward, "norm_backward norm_backward_wide partial_sum",
      .of_type = 3 },
    { "gelu", gelu, "gelu", .of_type = 2 },
    { "gelu backward", gelu_backward, "gelu_backward", .of_type = 3 },
    { "gelu gradient", gelu_gradient, "gelu_gradient partial_sum", .of_type = 3 },
    { "gelu of rows", activate_rows, "activate_rows", .of_type = 2 },
    { "relu", relu, "relu", .of_type = 2 },
    { "relu backward", relu_backward, "relu_backward", .of_type = 3 },
    { "relu gradient", relu_gradient, "relu_gradient partial_sum", .of_type = 3 },
    { "swiglu", swiglu, "swiglu", .of_type = 3 },
    { "swiglu backward", swiglu_backward, "swiglu_backward", .of_type = 5 },
    { "geglu", geglu, "geglu", .of_type = 3 },
    { "geglu backward", geglu_backward, "geglu_backward", .of_type = 5 },
    { "scale", scale, "scale", .of_type = 2 },
    { "copy", copy, "copy", .of_type = 2 },
    { "soft cap", soft_cap, "soft_cap_rows", .floats = 2 },
    { "half of rows", take_blocks, "blocks", .of_type = 1 },
    { "weights in 4 bits", open_nf4, "nf4", .of_type = 1, .nf4 = 1 },
    { "row mean", row_mean, "row_mean", .of_type = 1 },
    { "row mean backward", row_mean_backward, "spread", .of_type = 1 },
    { "column mean", column_mean, "column_mean", .of_type = 1 },
    { "softmax", softmax, "softmax", .of_type = 2 },
    { "softmax backward", softmax_backward, "softmax_backward", .of_type = 3 },
    { "cross-entropy", cross_entropy, "entropy", .of_type = 1 },
    { "squared error", squares, "squares squares_loss", .of_type = 2 },
    { "squared error backward", squares_backward, "squares_backward", .of_type = 3 },
    { "add", add, "add", .of_type = 3 },
    { "round", round_sums, "round", .of_type = 1, .floats = 1 },
    { "dropout", dropout, "dropout", .of_type = 3 },
    { "rope", rope, "rope", .of_type = 2 },
    { "position", position, "position", .of_type = 2, .of_sequence = 1 },
    { "position backward", position_backward, "position_backward", .of_type = 1, .of_sequence = 1 },
    { "embedding", embedding, "embedding", .of_type = 2 },
    { "embedding backward", embedding_backward,
      "embedding_sort embedding_merge embedding_rows copy", .of_type = 2 },
    { "embedding backward of common tokens", embedding_backward_common,
      "embedding_sort embedding_merge embedding_heavy copy", .of_type = 2 },
    { "classifier loss", classifier_take, "classifier_take", .of_type = 1,
      .columns = COH_CUDA_LOGIT_ROWS },
    { "classifier gradient", classifier_gradient, "classifier_gradient", .of_type = 2,
      .columns = COH_CUDA_LOGIT_ROWS },
    { "attention decode", attention_decode, "attention_decode attention_decode_join",
      .of_type = 2 },
    { "column sum", column_sum, "column_pieces partial_sum", .of_type = 1 },
    { "square sums", square_sums, "square_sums", .of_type = 1 },
    { "update", adamw, "adamw", .of_type = 3, .floats = 4, .halves = 2 },
    { "update of adamw8", adamw8, "adamw8", .of_type = 3, .halves = 2, .bytes = 4 },
    { "update of adamw8sr", adamw8sr, "adamw8", .of_type = 3, .bytes = 4 },
    { "update of lion", lion, "lion", .of_type = 3, .floats = 2, .halves = 2 },
    { "update of sgd", sgd, "sgd", .of_type = 3, .floats = 2, .halves = 2 },
    { "fold of four ranks", fold, "fold", .of_type = 5 },
    { "wire pack, int8", wire_pack, "wire_pack", .of_type = 1, .bytes = 1 },
    { "wire unpack, int8", wire_unpack, "wire_unpack", .of_type = 1, .bytes = 1 },
};
const int gpu_pass_count = sizeof(gpu_passes) / sizeof(gpu_passes[0]);

/* Kernels without long passes over memory. gpu_products measures the first line, gpu_attention the
 * second. */
static const char *const left_out[] = {
    "product_nt product_nn product_tn",
    "attention_forward* attention_dq* attention_dk* attention_dv* attention_delta*",
    "check_indices",           /* reads an id for each row of a micro-batch */
    "classifier_loss",         /* one block; reads four numbers for each token */
    "cells_feed cells_settle", /* one thread; writes some numbers */
    "cells_clip",              /* one block; reads a double for each 16,384 parameters */
    "column_sum",              /* of at most COH_COLUMN_SUM_PIECE rows */
};

static const char *const symbols[] = {
#define COH_CUDA_KERNEL(name, symbol, file) symbol,
#include "kernels/cuda/kernel_list.h"
#undef COH_CUDA_KERNEL
};
enum {
    SYMBOLS = sizeof(symbols) / sizeof(symbols[0]),
    LEFT_OUT = sizeof(left_out) / sizeof(left_out[0])
};

/* Returns 1 if this is the symbol's name in our lists; with a star at the end, if it is a
 * prefix. */
static int is_word_of(const char *word, size_t length, const char *symbol)
{
    const char *stem = symbol + strlen("coh_");
    size_t stem_length = strlen(stem);
    if (length > 0 && word[length - 1] == '*')
        return strncmp(word, stem, length - 1) == 0;
    if (stem_length > 5 && strcmp(stem + stem_length - 5, "_bf16") == 0)
        stem_length -= 5;
    else if (stem_length > 4 && strcmp(stem + stem_length - 4, "_f32") == 0)
        stem_length -= 4;
    return length == stem_length && strncmp(word, stem, length) == 0;
}

/* Marks the kernels that the words name in `seen`. Errors: COH_ERR_INTERNAL for a word that names
 * nothing. */
static coh_status mark(const char *words, int seen[SYMBOLS])
{
    for (const char *word = words; *word != '\0';) {
        const size_t length = strcspn(word, " ");
        int found = 0;
        for (int i = 0; i < SYMBOLS; i++)
            if (is_word_of(word, length, symbols[i]))
                found = seen[i] = 1;
        if (!found)
            return coh_fail(COH_ERR_INTERNAL,
                            "gpu_passes.c names a kernel %.*s, and kernels/cuda/kernel_list.h has "
                            "none: take it out",
                            (int)length, word);
        word += length;
        word += strspn(word, " ");
    }
    return COH_OK;
}

coh_status gpu_passes_check(void)
{
    int seen[SYMBOLS] = { 0 };
    for (int i = 0; i < gpu_pass_count; i++)
        COH_TRY(mark(gpu_passes[i].kernels, seen));
    for (int i = 0; i < LEFT_OUT; i++)
        COH_TRY(mark(left_out[i], seen));
    for (int i = 0; i < SYMBOLS; i++)
        if (!seen[i])
            return coh_fail(COH_ERR_INTERNAL,
                            "%s is in no pass of gpu_passes.c and not left out: give it a pass, or "
                            "a reason",
                            symbols[i]);
    return COH_OK;
}
