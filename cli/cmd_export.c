/* cohobate export: a checkpoint, or a folder once more, as a Hugging Face folder. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/artefact.h"
#include "cli/commands.h"
#include "cli/dtype.h"
#include "cli/recipe.h"
#include "cli/weights.h"

typedef struct export_run {
    const cli_options *options;
    coh_model model;
    cli_weights weights;
    cli_recipe recipe;              /* of a checkpoint */
    char tokenizer[CLI_PATH_BYTES]; /* whose files go along; "": none */
    coh_folder_write_options write;
} export_run;

/* Is what is there still what the run's text was read with? */
static coh_status check_tokenizer(export_run *run)
{
    coh_tokenizer *tokenizer;
    cli_recipe_set_tokenizer(&run->recipe, run->options);
    CLI_TRY(cli_recipe_open_tokenizer(&run->recipe, run->options, &tokenizer));
    coh_tokenizer_close(tokenizer);
    return COH_OK;
}

/* --tokenizer, else what the checkpoint's note or the folder has. */
static coh_status choose_tokenizer(export_run *run)
{
    const cli_options *options = run->options;
    const char *chosen = options->tokenizer;
    if (!cli_given(options, CLI_FLAG_TOKENIZER))
        chosen = run->weights.folder ? options->operand : run->recipe.tokenizer;
    if (strcmp(chosen, "none") == 0)
        return COH_OK;
    if (strcmp(chosen, "bytes") == 0) {
        cli_note("note: no tokenizer goes along: \"bytes\" is none that a folder can hold");
        return COH_OK;
    }
    snprintf(run->tokenizer, sizeof(run->tokenizer), "%s", chosen);
    return run->weights.folder ? COH_OK : check_tokenizer(run);
}

static coh_status open_run(export_run *run)
{
    const cli_options *options = run->options;
    CLI_TRY(cli_weights_resolve(options->operand, 0, &run->model));
    CLI_TRY(cli_weights_open(&run->model, &run->weights));
    cli_weights_say(&run->model, &run->weights);
    if (run->weights.checkpoint)
        CLI_TRY(cli_recipe_from_note(run->weights.facts.note_json, &run->recipe));
    CLI_TRY(choose_tokenizer(run));
    run->write = (coh_folder_write_options){
        .dtype = cli_given(options, CLI_FLAG_EXPORT_DTYPE) ? (coh_dtype)options->export_dtype
                                                           : run->model.stored,
        .shard_bytes = options->shard_bytes,
        .files_from = run->tokenizer[0] ? run->tokenizer : NULL,
    };
    return COH_OK;
}

/* Of what is written. */
static uint64_t parameter_count(const export_run *run)
{
    return run->weights.folder ? run->weights.folder_facts.parameter_count
                               : run->weights.facts.parameter_count;
}

/* Before the first byte: room for all of it. */
static coh_status find_room(const export_run *run)
{
    enum { OTHER_BYTES = 32 << 20 }; /* a tokenizer's files, headers, config.json */
    const coh_space_item item = {
        .folder = run->options->output,
        .what = "the exported model",
        .bytes = parameter_count(run) * coh_dtype_bytes(run->write.dtype) + OTHER_BYTES,
    };
    return coh_space_check(&item, 1);
}

static void print_result(const export_run *run)
{
    const cli_options *options = run->options;
    const uint64_t count = parameter_count(run), bytes = count * coh_dtype_bytes(run->write.dtype);
    const char *dtype = cli_dtype_name(run->write.dtype);
    char text[32];
    cli_line line;
    if (!options->json) {
        cli_print("%s: a %s model of %" PRIu64 " parameters in %s, %s", options->output,
                  coh_model_type_name(&run->model), count, dtype,
                  coh_size_format(bytes, text, sizeof(text)));
        return;
    }
    cli_line_clear(&line);
    cli_line_add(&line, "{\"folder\": ");
    cli_line_add_json_string(&line, options->output);
    cli_line_add(&line,
                 ", \"model_type\": \"%s\", \"parameters\": %" PRIu64
                 ", \"dtype\": \"%s\", \"bytes\": %" PRIu64 ", \"step\": %" PRIu64
                 ", \"tokenizer\": ",
                 coh_model_type_name(&run->model), count, dtype, bytes, run->weights.facts.step);
    if (run->tokenizer[0])
        cli_line_add_json_string(&line, run->tokenizer);
    else
        cli_line_add(&line, "null");
    cli_print("%s}", line.text);
}

static coh_status write_folder(export_run *run)
{
    const char *path = run->options->output;
    CLI_TRY(open_run(run));
    CLI_TRY(find_room(run));
    CLI_TRY(coh_folder_write(&run->model, &run->write, path, cli_weights_numbers, &run->weights));
    print_result(run);
    return COH_OK;
}

coh_status cli_export(const cli_options *options)
{
    export_run run = { .options = options };
    if (!options->output)
        return cli_fail(COH_ERR_ARGUMENT, "-o FOLDER is missing: the folder to write");
    const coh_status status = write_folder(&run);
    cli_weights_close(&run.weights);
    return status;
}
