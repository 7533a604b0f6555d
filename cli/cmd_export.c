/* cohobate export: writes a checkpoint, or another folder, as a Hugging Face folder. Of a model
 * with adapters it writes the adapters in PEFT's format, or the merged model. Next:
 * models/export.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/artefact.h"
#include "cli/commands.h"
#include "cli/dtype.h"
#include "cli/ends.h"
#include "cli/progress.h"
#include "cli/recipe.h"
#include "cli/stop.h"
#include "cli/weights.h"

typedef struct export_run {
    const cli_options *options;
    coh_model model;
    cli_weights weights;
    cli_recipe recipe;              /* of a checkpoint */
    char tokenizer[CLI_PATH_BYTES]; /* its files are copied; "": none */
    int is_of_bytes;                /* no file is their tokenizer */
    coh_text_ids ids;               /* if the tokenizer is another than that of the base */
    coh_folder_write_options write;
    coh_adapters_write_options write_beside; /* for adapters that are exported alone */

    /* Of a run on conversations. */
    coh_tokenizer *chat_tokenizer;
    coh_chat *chat;
    int32_t end_of_turn;
} export_run;

/* Checks that the tokenizer is still the one of the run's text; for a folder, that it has one. */
static coh_status check_tokenizer(export_run *run)
{
    coh_tokenizer *tokenizer;
    if (run->weights.folder) {
        CLI_TRY(coh_tokenizer_open(run->tokenizer, &tokenizer));
    } else {
        cli_recipe_set_tokenizer(&run->recipe, run->options);
        CLI_TRY(cli_recipe_open_tokenizer(&run->recipe, run->options, &tokenizer));
    }
    coh_tokenizer_close(tokenizer);
    return COH_OK;
}

/* Are adapters exported alone? Yes, unless they are merged. */
static int is_beside(const export_run *run)
{
    return run->model.adapters.rank > 0 && !run->options->merge_lora;
}

/* The tokenizer of data that was only ids: that of the run's initial model. */
static const char *chosen_by_base(const export_run *run)
{
    const char *base = run->recipe.base;
    return !base[0]                           ? "none"
           : cli_artefact_has_tokenizer(base) ? base
           : cli_artefact_is_of_bytes(base)   ? "bytes"
                                              : "none";
}

/* Adds the member to config.json that says that the ids are bytes. */
static void record_bytes(export_run *run)
{
    char *extras = run->model.extras;
    const size_t used = strlen(extras), room = sizeof(run->model.extras) - used;
    run->is_of_bytes = 1;
    if (is_beside(run)) { /* adapters have no config.json */
        cli_note_choice("note: no tokenizer goes along, since adapters cannot hold \"bytes\"");
    } else if (snprintf(extras + used, room, "%s\"" CLI_BYTES_MEMBER "\": \"bytes\"",
                        used ? ", " : "") >= (int)room) {
        extras[used] = '\0';
        cli_note_choice("note: config.json has no room to say that the ids are bytes: use the "
                        "folder with --tokenizer bytes");
    }
}

/* Chooses --tokenizer, else that of the checkpoint's note or of the folder. */
static coh_status choose_tokenizer(export_run *run)
{
    const cli_options *options = run->options;
    const char *chosen = options->tokenizer;
    const int is_given = cli_given(options, CLI_FLAG_TOKENIZER);
    const int is_noted = !is_given && !run->weights.folder;
    if (!is_given)
        chosen = !run->weights.folder                         ? run->recipe.tokenizer
                 : cli_artefact_is_of_bytes(options->operand) ? "bytes"
                                                              : options->operand;
    const int is_base = is_noted && cli_recipe_has_no_tokenizer(chosen);
    if (is_base)
        chosen = chosen_by_base(run);
    if (cli_recipe_has_no_tokenizer(chosen))
        return COH_OK;
    if (strcmp(chosen, "bytes") == 0) {
        record_bytes(run);
        return COH_OK;
    }
    snprintf(run->tokenizer, sizeof(run->tokenizer), "%s", chosen);
    return is_base || (run->weights.folder && !is_given) ? COH_OK : check_tokenizer(run);
}

/* Opens the form of the run's conversations. Weights leave without it, too: its files may be
 * gone. */
static coh_status open_chat(export_run *run)
{
    const cli_recipe *recipe = &run->recipe;
    if (!run->weights.checkpoint || !recipe->form.chat ||
        cli_recipe_has_no_tokenizer(recipe->tokenizer))
        return COH_OK;
    coh_status status = coh_tokenizer_open(recipe->tokenizer, &run->chat_tokenizer);
    if (status == COH_OK)
        status = coh_chat_open(run->chat_tokenizer, recipe->tokenizer,
                               (coh_chat_form)recipe->form.chat_form, &run->chat);
    if (status == COH_ERR_MEMORY)
        return status;
    if (status != COH_OK)
        cli_note(
            "note: the folder does not say how the run's conversations are written and end: %s",
            coh_last_error());
    run->end_of_turn = coh_chat_end_of_turn(run->chat);
    return COH_OK;
}

/* Lets other programs end answers and write conversations as the run did: the files of a base model
 * say neither. */
static void add_chat(export_run *run)
{
    const char *text = coh_chat_template_text(run->chat);
    const char *description = coh_chat_description(run->chat);
    const int has_none = !text && strncmp(description, "plain", 5) == 0;
    if (!run->chat)
        return;
    if (is_beside(run)) {
        if (text || has_none)
            cli_note("note: the run's conversations have the form %s, which is not that of the "
                     "model's own files: export the run with --merge-lora for a folder whose "
                     "files say so",
                     description);
        return;
    }
    if (run->tokenizer[0] && has_none)
        cli_note("note: the run's conversations have the form %s, and with this tokenizer no chat "
                 "template writes their ids: %s has none, so other programs refuse conversations, "
                 "or write them otherwise",
                 description, run->options->output);
    if (run->tokenizer[0])
        run->write.chat_template = text;
    if (run->end_of_turn >= 0)
        run->write.end_of_turn = &run->end_of_turn;
}

/* The folder with the licence; NULL: there is none. */
static const char *notices_from(const export_run *run)
{
    const char *base = run->weights.folder ? run->options->operand : run->recipe.base;
    const char *origin = base[0] ? cli_recipe_origin(base, run->tokenizer) : NULL;
    if (origin || !base[0])
        return origin;
    cli_note_choice(
        "note: %s, which the run began from, is gone: its LICENSE, NOTICE and README.md do "
        "not go along",
        base);
    return NULL;
}

/* Replaces the ids that files of the base give to tokens of another tokenizer. */
static coh_status set_ids(export_run *run)
{
    const char *base = run->weights.folder ? run->options->operand : run->recipe.base;
    const char *chosen = run->is_of_bytes ? "bytes" : run->tokenizer;
    coh_tokenizer *tokenizer;
    if (is_beside(run) || !base[0] || !chosen[0] ||
        (!run->is_of_bytes && cli_artefact_is_within(base, chosen)))
        return COH_OK;
    CLI_TRY(coh_tokenizer_open(chosen, &tokenizer));
    if (cli_ends_are_of_another(cli_recipe_origin(base, run->tokenizer), chosen, tokenizer)) {
        run->ids = (coh_text_ids){ .begin = coh_tokenizer_begin_of_text(tokenizer),
                                   .end = coh_tokenizer_end_of_text(tokenizer) };
        run->write.text_ids = &run->ids;
        cli_note_choice("note: the ids that begin and end texts are those of the tokenizer %s, "
                        "which is not that of %s",
                        chosen, base);
    }
    coh_tokenizer_close(tokenizer);
    return COH_OK;
}

static coh_status check_adapters(const export_run *run)
{
    const cli_options *options = run->options;
    if (options->adapter && !options->merge_lora)
        return cli_fail(COH_ERR_ARGUMENT, "--adapter of export is for merging: add --merge-lora");
    if (options->merge_lora && run->model.adapters.rank == 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s has no adapters to merge: leave --merge-lora out, give the "
                        "checkpoint of a run with --lora, or add --adapter",
                        options->operand);
    if (is_beside(run) && cli_given(options, CLI_FLAG_SHARD_SIZE))
        return cli_fail(COH_ERR_ARGUMENT, "adapters are one file: leave --shard-size out, or write "
                                          "the whole model with --merge-lora");
    return COH_OK;
}

static coh_status open_run(export_run *run)
{
    const cli_options *options = run->options;
    CLI_TRY(cli_weights_resolve(options->operand, 0, &run->model));
    CLI_TRY(cli_weights_open_adapters(options, &run->model, &run->weights));
    CLI_TRY(check_adapters(run));
    CLI_TRY(cli_weights_open(&run->model, &run->weights));
    cli_weights_say(&run->model);
    if (run->weights.checkpoint)
        CLI_TRY(cli_recipe_of_checkpoint(&run->weights.facts, options, &run->recipe));
    run->model.lora_dropout = run->recipe.lora_dropout; /* adapters are written of runs alone */
    /* Like PEFT, copies no tokenizer with adapters unless requested. */
    if (!is_beside(run) || cli_given(options, CLI_FLAG_TOKENIZER))
        CLI_TRY(choose_tokenizer(run));
    if (cli_given(options, CLI_FLAG_EXPORT_DTYPE))
        run->model.dtypes[0] = '\0'; /* all tensors in the requested dtype */
    run->write = (coh_folder_write_options){
        .struct_bytes = sizeof(run->write),
        .dtype = cli_given(options, CLI_FLAG_EXPORT_DTYPE) ? (coh_dtype)options->export_dtype
                 : is_beside(run)                          ? COH_DTYPE_F32
                                                           : run->model.stored,
        .shard_bytes = options->shard_bytes,
        .files_from = run->tokenizer[0] ? run->tokenizer : NULL,
        .notices_from = is_beside(run) ? NULL : notices_from(run),
    };
    CLI_TRY(set_ids(run));
    CLI_TRY(open_chat(run));
    add_chat(run);
    run->write_beside = (coh_adapters_write_options){
        .struct_bytes = sizeof(run->write_beside),
        .dtype = run->write.dtype,
        .base = run->recipe.base[0] && !run->recipe.base_trained ? run->recipe.base : NULL,
        .files_from = run->write.files_from,
        .frozen_nf4 = cli_recipe_is_rounded(&run->recipe),
    };
    return COH_OK;
}

/* A coh_number_source with an export_run as `context`. It is called every few MiB, so it also
 * checks for a stop. */
static coh_status numbers(void *context, const char *name, uint64_t element_begin, uint64_t count,
                          float *values)
{
    export_run *run = context;
    if (cli_stop_asked())
        return cli_fail(COH_ERR_STOPPED, "stopped on request: %s was not written; export it again",
                        run->options->output);
    return cli_weights_numbers(&run->weights, name, element_begin, count, values);
}

static uint64_t elements_of(const coh_model_tensor *tensor)
{
    return (uint64_t)(tensor->dim[0] * (tensor->rank > 1 ? tensor->dim[1] : 1));
}

/* Number of exported parameters. */
static uint64_t parameter_count(const export_run *run)
{
    uint64_t count = coh_model_adapter_elements(&run->model);
    coh_model_tensor tensor;
    if (run->weights.folder)
        return run->weights.folder_facts.parameter_count;
    if (run->weights.adapters) /* of --adapter */
        return run->weights.facts.parameter_count;
    if (!is_beside(run))
        return run->weights.facts.parameter_count - count;
    for (int64_t i = 0; coh_model_tensor_at(&run->model, i, &tensor) == COH_OK; i++)
        count += coh_model_is_adapted(&run->model, tensor.name) ? elements_of(&tensor) : 0;
    return count;
}

/* Elements of a token table that is written again as the head. */
static uint64_t second_table(const export_run *run)
{
    int64_t index;
    coh_model_tensor table;
    if (coh_model_name_find(&run->model, "lm_head.weight", &index) != COH_MODEL_NAME_TIED ||
        coh_model_tensor_at(&run->model, index, &table) != COH_OK)
        return 0;
    return coh_model_is_adapted(&run->model, table.name) ? elements_of(&table) : 0;
}

/* Checks before the first byte that all of it has room. */
static coh_status find_room(const export_run *run)
{
    coh_space_item item = { .folder = run->options->output, .what = "the exported model" };
    CLI_TRY(is_beside(run) ? coh_adapters_write_bytes(&run->model, &run->write_beside, &item.bytes)
                           : coh_folder_write_bytes(&run->model, &run->write, &item.bytes));
    return coh_space_check(&item, 1);
}

/* Bytes of the exported tensors' data. */
static uint64_t data_bytes(const export_run *run)
{
    uint64_t bytes = 0;
    coh_model_tensor tensor;
    if (is_beside(run))
        return (parameter_count(run) + second_table(run)) * coh_dtype_bytes(run->write.dtype);
    if (!run->model.dtypes[0])
        return parameter_count(run) * coh_dtype_bytes(run->write.dtype);
    for (int64_t i = 0; coh_model_tensor_at(&run->model, i, &tensor) == COH_OK; i++)
        bytes += elements_of(&tensor) *
                 coh_dtype_bytes(coh_model_tensor_stored(&run->model, i, run->write.dtype));
    return bytes;
}

static void print_result(const export_run *run)
{
    const cli_options *options = run->options;
    const uint64_t count = parameter_count(run), bytes = data_bytes(run);
    const int mixed = run->model.dtypes[0] && !is_beside(run);
    const char *dtype = cli_dtype_name(run->write.dtype);
    cli_line line;
    if (!options->json) {
        cli_print("%s: %smodel of type %s, %" PRIu64 " parameters %sin %s, %s", options->output,
                  is_beside(run) ? "adapters beside a " : "", coh_model_type_name(&run->model),
                  count, mixed ? "mostly " : "", dtype, cli_size(bytes).at);
        return;
    }
    cli_line_clear(&line);
    cli_line_add_json(&line,
                      "{'folder': %s, 'model_type': %s, 'parameters': %" PRIu64 ", 'dtype': %s"
                      ", 'mixed': %i, 'bytes': %" PRIu64 ", 'step': %" PRIu64 ", 'tokenizer': %s}",
                      options->output, coh_model_type_name(&run->model), count, dtype, mixed, bytes,
                      run->weights.facts.step,
                      cli_artefact_is_of_bytes(options->output) ? "bytes"
                      : run->tokenizer[0] && cli_artefact_has_tokenizer(options->output)
                          ? run->tokenizer
                          : NULL);
    cli_print("%s", line.text);
}

static coh_status write_merged(export_run *run)
{
    coh_merge *merge;
    CLI_TRY(coh_merge_open(&run->model, numbers, run, &merge));
    const coh_status status =
        coh_folder_write(&run->model, &run->write, run->options->output, coh_merge_numbers, merge);
    coh_merge_close(merge);
    return status;
}

static coh_status write_files(export_run *run, const char *path)
{
    if (cli_recipe_is_rounded(&run->recipe))
        cli_note_choice(
            "%s", is_beside(run)
                      ? "note: the adapters were trained over weights in nf4, and over others they "
                        "fit a little less; --merge-lora adds them to those"
                      : "note: frozen weights of linear layers were rounded to nf4, and are "
                        "exported so");
    if (is_beside(run))
        return coh_adapters_write(&run->model, &run->write_beside, path, numbers, run);
    if (run->model.adapters.rank > 0)
        return write_merged(run);
    return coh_folder_write(&run->model, &run->write, path, numbers, run);
}

static coh_status write_folder(export_run *run)
{
    const char *path = run->options->output;
    cli_choices_hold();
    CLI_TRY(coh_folder_clear(path));
    CLI_TRY(open_run(run));
    CLI_TRY(find_room(run));
    cli_choices_release();
    static const char at_once[] =
        "\ncohobate export: stopped at once; what was written has no name "
        "yet, and the next export there removes it\n";
    CLI_TRY(cli_stop_install(0, at_once, at_once));
    if (is_beside(run) && !run->write_beside.base)
        cli_note("note: adapter_config.json names no base model: the run began with %s; say what "
                 "the adapters belong to, or write all with --merge-lora",
                 run->recipe.base_trained ? "weights that a run before it trained"
                                          : "none that is a folder");
    cli_progress_begin("writing", path, CLI_PROGRESS_FIRST_S);
    const coh_status status =
        cli_weights_name_older(&run->weights, run->options->operand, write_files(run, path));
    cli_progress_end();
    CLI_TRY(status);
    print_result(run);
    return COH_OK;
}

coh_status cli_export(const cli_options *options)
{
    export_run run = { .options = options };
    if (!options->output)
        return cli_fail(COH_ERR_ARGUMENT, "-o FOLDER is missing: the folder to write");
    const coh_status status = write_folder(&run);
    coh_chat_close(run.chat);
    coh_tokenizer_close(run.chat_tokenizer);
    cli_weights_close(&run.weights);
    return status;
}
