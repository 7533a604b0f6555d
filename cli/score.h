/* score.h - computes the loss of a text, with the same windows and arithmetic for eval and for
 * validations of train.
 *
 *     ids      0 1 2 3 4 5 6 7 8 9 ...     sequence 6, stride 2
 *     window 0 [ . . . . . .]              scores the targets behind all of its tokens
 *     window 1     [ . . . . . .]          scores the last 2
 *     window 2         [ . . . . . .]      scores the last 2
 *
 * Windows are in the order of the text. Each window except the first scores its last `stride`
 * targets, so that every id after the first is scored exactly once; the last window is padded. In
 * an aligned token file (text.h) windows do not overlap. The loss depends only on weights, text,
 * sequence, stride and micro-batch, not on a seed or a budget. */
#ifndef COH_CLI_SCORE_H
#define COH_CLI_SCORE_H

#include "cli/data.h"

typedef struct cli_score {
    const cli_data *data;
    int64_t sequence;    /* tokens of a window */
    int64_t stride;      /* 1 to `sequence` */
    int64_t micro_batch; /* windows of one pass */
    cli_batch batch;     /* the caller's: one micro-batch */
    uint64_t total;      /* windows of the whole text */
    /* Called after each micro-batch with its targets, whose logits the engine still holds. A
     * failure ends the scoring. NULL: not called. */
    coh_status (*after)(void *context, const int32_t *targets, int64_t count);
    /* Called after each micro-batch: `done` windows of `total` are scored, with `counted` targets
     * that count and their mean loss (NaN: none counts). NULL: not called. */
    void (*passed)(void *context, uint64_t done, uint64_t total, int64_t counted, double loss);
    /* Computes the loss of a micro-batch; NULL: coh_engine_evaluate does. */
    coh_status (*evaluate)(void *context, const coh_step_input *input, double *out_loss);
    void *context;
} cli_score;

typedef struct cli_score_result {
    double loss;           /* nats per target that counts; NaN if none counts */
    int64_t counted;       /* targets that count */
    uint64_t window_count; /* scored */
} cli_score_result;

/* Fills out_score for a text; the caller sets micro_batch, batch and, optionally, `after` and
 * `evaluate`.
 * Fails: COH_ERR_CORRUPT for a text without a target (`flag` and `what` name it in the message);
 * COH_ERR_ARGUMENT for a stride above the sequence, or another stride of aligned data. */
coh_status cli_score_init(const cli_data *data, const char *flag, const char *what,
                          int64_t sequence, int64_t stride, cli_score *out_score);

/* Scores `window_count` windows, spread evenly over the text; from score->total on, all of them.
 * Allocates nothing. Fails: as the engine, reading the data, or score->after does. */
coh_status cli_score_run(const cli_score *score, coh_engine *engine, uint64_t window_count,
                         cli_score_result *out_result);

#endif
