/* Turns --epochs into a number of steps. The one idea: steps = windows x epochs / batch, rounded
 * up, computed once the data is open. Next: recipe.c sets the schedule. */
#include "cli/epochs.h"

#include <inttypes.h>

#include "cli/train.h"

/* As the limit of --steps. */
#define STEPS_MOST 1000000000000u

/* Does the command make several plans? Each would print the same note. */
static int is_table(const cli_options *options)
{
    return options->max || options->sweep || options->what_if[0];
}

coh_status cli_epochs_take(cli_job *job, const cli_data *data)
{
    cli_recipe *recipe = &job->recipe;
    if (!cli_given(job->options, CLI_FLAG_EPOCHS))
        return COH_OK;
    const uint64_t epochs = (uint64_t)job->options->epochs, batch = (uint64_t)recipe->batch;
    const uint64_t windows = coh_token_file_window_count(data->file, recipe->sequence);
    uint64_t all;
    if (__builtin_mul_overflow(epochs, windows, &all) || all / batch >= STEPS_MOST)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--epochs %" PRIu64 " of %" PRIu64
                        " sequences each are more steps than a run has: lower it",
                        epochs, windows);
    const uint64_t steps = all / batch + (all % batch != 0);
    if (!is_table(job->options))
        cli_note("epochs: %" PRIu64 " of %" PRIu64 " sequences of %" PRId64 " tokens, %" PRIu64
                 " a step: %" PRIu64 " step%s",
                 epochs, windows, recipe->sequence, batch, steps, steps == 1 ? "" : "s");
    return cli_recipe_set_steps(recipe, job->options, steps);
}

coh_status cli_epochs_take_named(cli_job *job)
{
    const cli_options *options = job->options;
    cli_data data;
    int is_text;
    if (!cli_given(options, CLI_FLAG_EPOCHS))
        return COH_OK;
    if (!options->data)
        return cli_fail(COH_ERR_ARGUMENT, "--epochs counts passes through the data: add --data "
                                          "FILE, or say how long the run is with --steps");
    CLI_TRY(cli_data_is_text("data", options->data, &is_text));
    if (is_text)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--epochs: how many sequences the text of --data %s is, tokenizing it says:"
                        " give what cohobate tokenize -o FILE makes of it, or --steps",
                        options->data);
    const cli_data_source source = cli_train_data_source(job);
    CLI_TRY(cli_data_open(&source, "data", options->data, NULL, NULL, &data, NULL));
    coh_status status =
        cli_data_check_windows(&data, "data", options->data, job->recipe.sequence, 1);
    if (status == COH_OK)
        status = cli_epochs_take(job, &data);
    cli_data_close(&data);
    return status;
}
