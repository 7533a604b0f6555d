/* The classifier on CUDA: launches the softmax kernels of each tile of logits. Next:
 * kernels/classifier.h for the tiles, classifier.cu, scratch.h. */
#include "kernels/classifier.h"

#include "kernels/cuda/arguments.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/table.h"

#define WARP 32

_Static_assert(COH_CUDA_CLASSIFIER_ROWS % COH_CUDA_LOGIT_ROWS == 0, "tiles are whole parts");

/* Launches one warp per token. */
static void launch_rows(void *queue, coh_cuda_kernel f32, const coh_logit_tile *tile)
{
    const coh_classifier *c = tile->c;
    const coh_cuda_logits_arguments arguments = {
        .tokens = tile->tokens,
        .rows = tile->rows,
        .stride = tile->stride,
        .v0 = tile->v0,
        .logits = tile->logits,
        .gradient = tile->logits,
        .targets = c->targets + tile->n0,
        .max = c->max + tile->n0,
        .sum = c->sum + tile->n0,
        .target_logit = c->target_logit + tile->n0,
        .loss_factor = c->loss_factor,
        .cap = c->cap,
        .share = c->loss_share,
        .N = c->N,
        .packed = COH_CUDA_PACKED(tile->logits) && tile->stride % coh_cuda_pack(c->dtype) == 0,
    };
    const coh_cuda_grid grid = coh_cuda_flat(queue, tile->tokens * WARP);
    coh_cuda_launch(queue, coh_cuda_of(f32, c->dtype), &grid, &arguments);
}

static void take_tile(void *queue, const coh_logit_tile *tile)
{
    launch_rows(queue, COH_CUDA_CLASSIFIER_TAKE_F32, tile);
}

static void gradient_tile(void *queue, const coh_logit_tile *tile)
{
    launch_rows(queue, COH_CUDA_CLASSIFIER_GRADIENT_F32, tile);
}

/* Tiles have more tokens than on the host. The sums of dweight follow the logits in the scratch. */
static coh_classifier_device device_of(const coh_classifier *c)
{
    coh_classifier_device device = { .rows = COH_CUDA_CLASSIFIER_ROWS,
                                     .chunk = coh_cuda_classifier_chunk(c->dtype),
                                     .take = take_tile,
                                     .gradient = gradient_tile };
    if (coh_cuda_classifier_sum_bytes(c->dtype, c->N, c->C, c->V) > 0)
        device.dweight_sum = (float *)(void *)((char *)c->logits + coh_cuda_classifier_logit_bytes(
                                                                       c->dtype, c->N, c->V));
    return device;
}

void coh_cuda_classifier(void *queue, const coh_classifier *classifier)
{
    const coh_classifier_device device = device_of(classifier);
    const coh_cuda_loss_arguments loss = { .N = classifier->N,
                                           .targets = classifier->targets,
                                           .max = classifier->max,
                                           .sum = classifier->sum,
                                           .target_logit = classifier->target_logit,
                                           .loss = classifier->loss };
    const coh_cuda_grid one = coh_cuda_blocks(1, COH_CUDA_LOSS_THREADS);
    coh_classifier_forward(queue, classifier, &device);
    if (classifier->row_end == classifier->V)
        coh_cuda_launch(queue, COH_CUDA_CLASSIFIER_LOSS, &one, &loss);
}

void coh_cuda_classifier_backward(void *queue, const coh_classifier *classifier)
{
    const coh_classifier_device device = device_of(classifier);
    coh_classifier_backward(queue, classifier, &device);
}
