/* table.h - one kernel interface for several devices: the queue selects the device.
 *
 *    a kind   coh_kernel_norm(call->queue, ...)
 *                     |  the table that the queue begins with (base/queue_head.h)
 *                     +---> coh_cpu_norm     NULL, or a pool: returns when it is done
 *                     +---> another table's  a stream of its device: enqueued, returns at once
 *
 * So a kind is written once. It passes pointers, shapes and constants, and reads no tensor itself,
 * because a pointer may refer to memory of a device that is still computing. Structs, and data of
 * theirs that is marked as host memory, are read before a function returns. The tables hold the
 * functions that kernels.h, nf4.h, optimizer.h, plain.h, fold.h and wire.h declare with a queue,
 * with the same signatures: one list makes fields, calls and the declarations of the host.
 *
 * A device computes what those headers define, with the host's formulas. Bits may differ between
 * devices where sums are folded in another order, never between runs. If it fails, it keeps the
 * failure in its queue, and the engine asks for it. */
#ifndef COH_KERNELS_TABLE_H
#define COH_KERNELS_TABLE_H

#include "base/queue_head.h"
#include "kernels/fold.h"
#include "kernels/kernels.h"
#include "kernels/nf4.h"
#include "kernels/optimizer.h"
#include "kernels/plain.h"
#include "kernels/wire.h"

/* X(name, parameters, arguments): functions that cannot fail. */
#define COH_KERNEL_LIST(X)                                                                         \
    X(pass, (void *queue, coh_dtype dtype, void *to, const void *from, int64_t count, int adds),   \
      (queue, dtype, to, from, count, adds))                                                       \
    X(round, (void *queue, coh_dtype dtype, void *to, const float *from, int64_t count, int adds), \
      (queue, dtype, to, from, count, adds))                                                       \
    X(matmul, (void *queue, const coh_matmul *matmul), (queue, matmul))                            \
    X(column_sum, (void *queue, const coh_column_sum *sum), (queue, sum))                          \
    X(nf4, (void *queue, const coh_nf4_weight *weight), (queue, weight))                           \
    X(embedding, (void *queue, const coh_embedding *embedding, void *y, const void *weight),       \
      (queue, embedding, y, weight))                                                               \
    X(embedding_backward,                                                                          \
      (void *queue, const coh_embedding *embedding, void *dweight, const void *dy, int adds),      \
      (queue, embedding, dweight, dy, adds))                                                       \
    X(position, (void *queue, const coh_position *position), (queue, position))                    \
    X(position_backward, (void *queue, const coh_position_gradient *gradient), (queue, gradient))  \
    X(rope, (void *queue, const coh_rope *rope), (queue, rope))                                    \
    X(norm, (void *queue, const coh_norm *norm), (queue, norm))                                    \
    X(norm_backward, (void *queue, const coh_norm *norm), (queue, norm))                           \
    X(activate,                                                                                    \
      (void *queue, coh_activation activation, coh_dtype dtype, void *y, const void *x,            \
       int64_t count),                                                                             \
      (queue, activation, dtype, y, x, count))                                                     \
    X(activate_backward,                                                                           \
      (void *queue, coh_activation activation, coh_dtype dtype, void *dx, const void *dy,          \
       const void *of, int64_t count, int adds),                                                   \
      (queue, activation, dtype, dx, dy, of, count, adds))                                         \
    X(scale, (void *queue, const coh_scale *scale), (queue, scale))                                \
    X(soft_cap, (void *queue, const coh_soft_cap *soft_cap), (queue, soft_cap))                    \
    X(dropout, (void *queue, const coh_dropout *dropout), (queue, dropout))                        \
    X(swiglu, (void *queue, const coh_swiglu *swiglu), (queue, swiglu))                            \
    X(swiglu_backward, (void *queue, const coh_swiglu *swiglu), (queue, swiglu))                   \
    X(activation_gradient, (void *queue, const coh_activation_gradient *gradient),                 \
      (queue, gradient))                                                                           \
    X(attention, (void *queue, const coh_attention *attention), (queue, attention))                \
    X(attention_backward, (void *queue, const coh_attention *attention), (queue, attention))       \
    X(attention_decode, (void *queue, const coh_attention_decode *decode), (queue, decode))        \
    X(classifier, (void *queue, const coh_classifier *classifier), (queue, classifier))            \
    X(classifier_backward, (void *queue, const coh_classifier *classifier), (queue, classifier))   \
    X(take_blocks, (void *queue, const coh_blocks *blocks), (queue, blocks))                       \
    X(put_blocks, (void *queue, const coh_blocks *blocks), (queue, blocks))                        \
    X(mean, (void *queue, const coh_mean *mean), (queue, mean))                                    \
    X(mean_backward, (void *queue, const coh_mean *mean), (queue, mean))                           \
    X(softmax, (void *queue, const coh_softmax *softmax), (queue, softmax))                        \
    X(softmax_backward, (void *queue, const coh_softmax *softmax), (queue, softmax))               \
    X(cross_entropy, (void *queue, const coh_cross_entropy *entropy), (queue, entropy))            \
    X(cross_entropy_backward, (void *queue, const coh_cross_entropy *entropy), (queue, entropy))   \
    X(squares, (void *queue, const coh_squares *squares), (queue, squares))                        \
    X(squares_backward, (void *queue, const coh_squares *squares), (queue, squares))               \
    X(feed, (void *queue, const coh_feed *feed), (queue, feed))                                    \
    X(square_sums, (void *queue, const coh_square_sums *sums), (queue, sums))                      \
    X(clip, (void *queue, const coh_clip *clip), (queue, clip))                                    \
    X(update, (void *queue, const coh_update *update), (queue, update))                            \
    X(settle, (void *queue, coh_cells *cells), (queue, cells))                                     \
    X(fold, (void *queue, const coh_fold_call *fold), (queue, fold))                               \
    X(wire_pack, (void *queue, const coh_wire_call *call), (queue, call))                          \
    X(wire_unpack, (void *queue, const coh_wire_call *call), (queue, call))

typedef struct coh_kernel_table {
#define COH_KERNEL_FIELD(name, parameters, arguments) void(*name) parameters;
    COH_KERNEL_LIST(COH_KERNEL_FIELD)
#undef COH_KERNEL_FIELD
    coh_status (*check_indices)(void *queue, const coh_index_check *check);
} coh_kernel_table;

/* The host's functions: coh_cpu_pass, ... Their queue is a pool or NULL. */
extern const coh_kernel_table coh_kernel_table_cpu;
#define COH_KERNEL_CPU(name, parameters, arguments) void coh_cpu_##name parameters;
COH_KERNEL_LIST(COH_KERNEL_CPU)
#undef COH_KERNEL_CPU
coh_status coh_cpu_check_indices(void *queue, const coh_index_check *check);

#endif
