/* any_model.h - a model of the kinds that any model needs (slice, softmax, concat, dropout, add,
 * mean or reshape, a loss over given outputs), for tests that train it on the host and on a GPU.
 * Include cmocka.h before. */
#ifndef COH_TESTS_ENGINE_ANY_MODEL_H
#define COH_TESTS_ENGINE_ANY_MODEL_H

#include <math.h>
#include <string.h>

#include "cohobate/engine.h"
#include "cohobate/kinds.h"

enum { ANY_MODEL_BATCH = 8, ANY_MODEL_TOKENS = 6, ANY_MODEL_WIDTH = 32 };
enum { ANY_MODEL_INPUTS = ANY_MODEL_BATCH * ANY_MODEL_TOKENS * ANY_MODEL_WIDTH };

static inline coh_tensor any_model_add(coh_graph *graph, const coh_op_kind *kind, const char *name,
                                       const void *attributes, size_t bytes, coh_tensor first,
                                       coh_tensor second)
{
    const coh_tensor inputs[] = { first, second };
    const coh_op_args args = { .name = name,
                               .attributes = attributes,
                               .attribute_bytes = bytes,
                               .inputs = inputs,
                               .block = -1 };
    coh_tensor output;
    if (coh_graph_op(graph, kind, &args, &output, NULL) != COH_OK)
        fail_msg("%s", coh_last_error());
    return output;
}

/* x [B,T,W] -> linear -> its two halves, of which one through softmax, joined -> linear, residual
 * -> mean over tokens or all of them in one row -> linear -> a loss against numbers or classes. */
static inline coh_graph *any_model_graph(coh_dtype dtype, int has_classes)
{
    const coh_linear_attributes wide = { ANY_MODEL_WIDTH, 1, 0.2f }, last = { 4, 1, 0.2f };
    const coh_slice_attributes halves[] = { { 0, ANY_MODEL_WIDTH / 2, -1, 0 },
                                            { ANY_MODEL_WIDTH / 2, ANY_MODEL_WIDTH, -1, 0 } };
    const coh_axis_attributes channels = { -1 }, tokens = { 1 };
    const coh_reshape_attributes flat = { { ANY_MODEL_BATCH, -1 }, 2, 0 };
    const coh_dropout_attributes dropout = { 0.2 };
    const coh_shape in = { dtype, 3, { ANY_MODEL_BATCH, ANY_MODEL_TOKENS, ANY_MODEL_WIDTH } };
    const coh_shape classes = { COH_DTYPE_I32, 1, { ANY_MODEL_BATCH } };
    const coh_shape numbers = { COH_DTYPE_F32, 2, { ANY_MODEL_BATCH, 4 } };
    coh_graph *graph = NULL;
    coh_tensor x, y, target, half[2];
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "x", &in, &x), COH_OK);
    assert_int_equal(coh_graph_input(graph, "target", has_classes ? &classes : &numbers, &target),
                     COH_OK);
    x = any_model_add(graph, &coh_kind_linear, "first", &wide, sizeof(wide), x, x);
    for (int i = 0; i < 2; i++)
        half[i] = any_model_add(graph, &coh_kind_slice, i ? "right" : "left", &halves[i],
                                sizeof(halves[i]), x, x);
    half[1] = any_model_add(graph, &coh_kind_softmax, "softmax", NULL, 0, half[1], half[1]);
    y = any_model_add(graph, &coh_kind_concat, "joined", &channels, sizeof(channels), half[0],
                      half[1]);
    y = any_model_add(graph, &coh_kind_linear, "second", &wide, sizeof(wide), y, y);
    y = any_model_add(graph, &coh_kind_dropout, "dropout", &dropout, sizeof(dropout), y, y);
    y = any_model_add(graph, &coh_kind_add, "sum", NULL, 0, y, x);
    y = has_classes ? any_model_add(graph, &coh_kind_mean, "mean", &tokens, sizeof(tokens), y, y)
                    : any_model_add(graph, &coh_kind_reshape, "flat", &flat, sizeof(flat), y, y);
    y = any_model_add(graph, &coh_kind_linear, "last", &last, sizeof(last), y, y);
    y = any_model_add(graph, has_classes ? &coh_kind_cross_entropy : &coh_kind_mean_squared_error,
                      "loss", NULL, 0, y, target);
    assert_int_equal(coh_graph_loss(graph, y), COH_OK);
    return graph;
}

/* The inputs of a micro-batch: x in the model's dtype; classes, one of them missing, or numbers. */
typedef struct any_model_data {
    float x[ANY_MODEL_INPUTS];
    float targets[ANY_MODEL_BATCH * 4];
} any_model_data;

static inline void any_model_fill(any_model_data *data, coh_dtype dtype, int has_classes)
{
    for (int i = 0; i < ANY_MODEL_INPUTS; i++) {
        uint32_t bits;
        const float value = sinf((float)(i * 37 % 101));
        memcpy(&bits, &value, sizeof(bits));
        if (dtype == COH_DTYPE_F32)
            data->x[i] = value;
        else
            ((uint16_t *)(void *)data->x)[i] = (uint16_t)(bits >> 16);
    }
    for (int i = 0; i < ANY_MODEL_BATCH * 4; i++)
        data->targets[i] = (float)(i % 7) - 3;
    for (int i = 0; i < ANY_MODEL_BATCH && has_classes; i++)
        ((int32_t *)(void *)data->targets)[i] = i == 5 ? -1 : i % 4;
}

#endif
