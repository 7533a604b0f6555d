/* Computes the loss of a text over windows. The one idea: each window is a row in which targets
 * scored before are masked, so every id is scored once. Next: score.h for the drawing. */
#include "cli/score.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Number of windows of a text of `token_count` ids: the first scores `sequence` targets, each other
 * one `stride`. */
static uint64_t count_windows(const cli_data *data, int64_t sequence, int64_t stride)
{
    const uint64_t targets = data->facts.token_count > 0 ? data->facts.token_count - 1 : 0;
    if (data->facts.window > 0)
        return coh_token_file_window_count(data->file, sequence);
    if (targets <= (uint64_t)sequence)
        return targets > 0;
    return 1 + (targets - (uint64_t)sequence + (uint64_t)stride - 1) / (uint64_t)stride;
}

coh_status cli_score_init(const cli_data *data, const char *flag, const char *what,
                          int64_t sequence, int64_t stride, cli_score *out_score)
{
    if (stride > sequence)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--stride %" PRId64 " is above the %" PRId64
                        " tokens of a window, and would leave tokens out: lower it, or raise"
                        " --sequence",
                        stride, sequence);
    if (data->facts.window > 0 && stride != sequence)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--stride %" PRId64
                        " is for packed text; --%s %s has documents in sequences, "
                        "which do not overlap: leave --stride out",
                        stride, flag, what);
    const uint64_t total = count_windows(data, sequence, stride);
    if (total == 0)
        return cli_fail(COH_ERR_CORRUPT,
                        "--%s%s%s holds %" PRIu64 " token%s, and a loss needs 2: give more", flag,
                        what[0] ? " " : "", what, data->facts.token_count,
                        data->facts.token_count == 1 ? "" : "s");
    *out_score =
        (cli_score){ .data = data, .sequence = sequence, .stride = stride, .total = total };
    return COH_OK;
}

/* Reads window `number` of the text into row `row` of the micro-batch. */
static coh_status fill_row(const cli_score *score, uint64_t number, int64_t row)
{
    const int64_t sequence = score->sequence;
    const int is_aligned = score->data->facts.window > 0;
    const uint64_t begin = number * (is_aligned ? (uint64_t)sequence + 1 : (uint64_t)score->stride);
    const cli_batch *to = &score->batch;
    int32_t *targets = to->targets + row * sequence;
    CLI_TRY(coh_token_file_stretch_positions(
        score->data->file, begin, sequence, to->tokens + row * sequence, targets,
        to->positions ? to->positions + row * sequence : NULL));
    if (number > 0) /* the previous window has scored the other targets */
        memset(targets, 0xff, (size_t)(sequence - score->stride) * sizeof(int32_t));
    return COH_OK;
}

coh_status cli_score_run(const cli_score *score, coh_engine *engine, uint64_t window_count,
                         cli_score_result *out_result)
{
    const int64_t places = score->micro_batch * score->sequence;
    const uint64_t micro_batch = (uint64_t)score->micro_batch, total = score->total;
    const uint64_t count = window_count < total ? window_count : total;
    const coh_step_input input = { .struct_bytes = sizeof(input),
                                   .inputs = { score->batch.tokens, score->batch.targets,
                                               score->batch.positions } };
    int64_t counted = 0;
    double sum = 0, loss;
    *out_result = (cli_score_result){ .loss = NAN };
    for (uint64_t first = 0; first < count; first += micro_batch) {
        /* The last micro-batch is padded with targets of -1, whose loss is 0. */
        memset(score->batch.tokens, 0, (size_t)places * sizeof(int32_t));
        memset(score->batch.targets, 0xff, (size_t)places * sizeof(int32_t));
        if (score->batch.positions)
            memset(score->batch.positions, 0, (size_t)places * sizeof(int32_t));
        for (uint64_t i = first; i < count && i < first + micro_batch; i++) {
            /* floor(i * total / count), computed without overflow */
            const uint64_t number = i * (total / count) + i * (total % count) / count;
            CLI_TRY(fill_row(score, number, (int64_t)(i - first)));
        }
        CLI_TRY(score->evaluate ? score->evaluate(score->context, &input, &loss)
                                : coh_engine_evaluate(engine, &input, &loss));
        sum += loss * (double)places;
        counted += cli_data_counted(score->batch.targets, places);
        if (score->after)
            CLI_TRY(score->after(score->context, score->batch.targets, places));
        if (score->passed)
            score->passed(score->context, first + micro_batch < count ? first + micro_batch : count,
                          count, counted, counted > 0 ? sum / (double)counted : NAN);
    }
    out_result->window_count = count;
    out_result->counted = counted;
    if (counted > 0)
        out_result->loss = sum / (double)counted;
    return COH_OK;
}
