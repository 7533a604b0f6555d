/* cohobate inspect: prints what an artefact holds, as text or JSON. The one idea: the kind of the
 * path chooses the printer, and a printer only reports stored facts: nothing is rebuilt. Next:
 * artefact.c finds the kind. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/artefact.h"
#include "cli/commands.h"
#include "cli/data.h"
#include "cli/dtype.h"
#include "cli/progress.h"
#include "cli/recipe.h"
#include "cli/replay.h"
#include "cli/screen.h"
#include "cli/weights.h"
#include "report/format.h"

static void print_hash(uint64_t hash)
{
    printf("%016" PRIx64 "\n", hash);
}

/* ---- a checkpoint ---- */

/* Lists the names of the checkpoint's optimizers, in the order in which tensors name them, and a
 * NULL. No plan has more. */
static coh_status list_optimizers(const coh_checkpoint *checkpoint,
                                  const coh_checkpoint_facts *facts,
                                  const char *names[COH_OPTIMIZER_CHOICES_MOST + 2])
{
    int count = 0;
    for (int32_t i = 0; i < facts->tensor_count; i++) {
        coh_checkpoint_tensor tensor;
        CLI_TRY(coh_checkpoint_tensor_at(checkpoint, i, &tensor));
        int is_known = tensor.optimizer == NULL || count > COH_OPTIMIZER_CHOICES_MOST;
        for (int k = 0; k < count && !is_known; k++)
            is_known = strcmp(names[k], tensor.optimizer) == 0;
        if (!is_known)
            names[count++] = tensor.optimizer;
    }
    names[count] = NULL;
    return COH_OK;
}

static void checkpoint_json(const coh_checkpoint_facts *facts, const char *const *optimizers,
                            uint64_t hash)
{
    cli_recipe recipe;
    cli_line line;
    const int has_recipe = cli_recipe_from_note(facts->note_json, &recipe) == COH_OK;
    cli_line_clear(&line);
    cli_line_add_json(&line,
                      "{'type': 'checkpoint', 'path': %s, 'step': %" PRIu64
                      ", 'applied_count': %" PRIu64 ", 'parameters': %" PRIu64
                      ", 'tensors': %d, 'bytes': %" PRIu64 ", 'has_states': %i, 'optimizers': [",
                      facts->path, facts->step, facts->applied_count, facts->parameter_count,
                      facts->tensor_count, facts->bytes, facts->stream_count > 0);
    for (; *optimizers; optimizers++)
        cli_line_add_json(&line, "%s", *optimizers);
    cli_line_add_json(&line,
                      "], 'frozen_dtype': %s, 'numeric_fingerprint': '%016" PRIx64
                      "', 'hash': '%016" PRIx64 "', 'note': ",
                      has_recipe ? cli_dtype_frozen(recipe.frozen_nf4) : NULL,
                      facts->numeric_fingerprint, hash);
    cli_line_flush(&line);
    printf("%s}\n", facts->note_json);
}

/* Adds the learning rates of a run. */
static void describe_rates(const cli_recipe *recipe, cli_line *line)
{
    const coh_schedule *schedule = &recipe->schedule;
    const int falls = recipe->schedule_kind != COH_SCHEDULE_CONSTANT;
    cli_line_add(line, "  schedule: %s", cli_recipe_schedule_name(recipe));
    if (falls)
        cli_line_add(line, " of %s", cli_count(schedule->schedule_steps, "step").at);
    cli_line_add(line, ", warm-up %" PRIu64, schedule->warmup_steps);
    if (recipe->schedule_kind == COH_SCHEDULE_WSD)
        cli_line_add(line, ", decay %" PRIu64, recipe->decay_steps);
    cli_line_add(line, ", lr %s", cli_rate(schedule->highest).at);
    if (falls)
        cli_line_add(line, " to %s", cli_rate(schedule->lowest).at);
    cli_line_add(line, "\n");
}

/* Prints rates and groups of parameters if the note is one of train's. */
static void print_recipe(const char *note_json)
{
    cli_recipe recipe;
    cli_line line;
    if (cli_recipe_from_note(note_json, &recipe) != COH_OK)
        return;
    cli_line_clear(&line);
    describe_rates(&recipe, &line);
    if (cli_recipe_is_rounded(&recipe))
        cli_line_add(&line,
                     "  frozen weights of linear layers %sin nf4: the numbers here are rounded "
                     "so\n",
                     recipe.frozen_nf4 ? "" : "were ");
    cli_parameter_groups_describe(&recipe, NULL, &line);
    printf("%s", line.text);
}

static coh_status checkpoint_text(const coh_checkpoint *checkpoint,
                                  const coh_checkpoint_facts *facts, const char *const *optimizers)
{
    printf("checkpoint %s\n  step %" PRIu64 ", %s applied, %s in %s, %s%s%s", facts->path,
           facts->step, cli_count(facts->applied_count, "update").at,
           cli_count(facts->parameter_count, "parameter").at,
           cli_count((uint64_t)facts->tensor_count, "tensor").at, cli_size(facts->bytes).at,
           facts->stream_count > 0 ? ", with optimizer states" : "",
           facts->is_trained ? ", trained by " : "");
    for (int i = 0; optimizers[i]; i++)
        printf("%s%s", i ? ", " : "", optimizers[i]);
    printf("\n  numeric plan %016" PRIx64 "\n  hash %016" PRIx64
           " (as saved; --hash reads every byte)\n",
           facts->numeric_fingerprint, facts->hash);
    if (strcmp(facts->note_json, "{}") == 0)
        printf("  no note: the program that saved it wrote none\n");
    else
        printf("  note of %zu bytes: model, recipe and data (--json prints it)\n",
               strlen(facts->note_json));
    print_recipe(facts->note_json);
    for (int32_t i = 0; i < facts->tensor_count; i++) {
        coh_checkpoint_tensor tensor;
        CLI_TRY(coh_checkpoint_tensor_at(checkpoint, i, &tensor));
        printf("  %-39s ", tensor.name);
        for (int32_t d = 0; d < tensor.shape.rank; d++)
            printf("%s%" PRId64, d ? " x " : "", tensor.shape.dim[d]);
        printf("\n");
    }
    return COH_OK;
}

static coh_status inspect_open_checkpoint(const cli_options *options, coh_checkpoint *checkpoint,
                                          const coh_checkpoint_facts *facts)
{
    const char *optimizers[COH_OPTIMIZER_CHOICES_MOST + 2];
    uint64_t hash = facts->hash;
    if (options->hash) {
        cli_progress_begin("reading", facts->path, CLI_PROGRESS_FIRST_S);
        const coh_status status = coh_checkpoint_check(checkpoint, &hash);
        cli_progress_end();
        CLI_TRY(status);
    }
    CLI_TRY(list_optimizers(checkpoint, facts, optimizers));
    if (options->json)
        checkpoint_json(facts, optimizers, hash);
    else if (options->hash)
        print_hash(hash);
    else
        return checkpoint_text(checkpoint, facts, optimizers);
    return COH_OK;
}

static coh_status inspect_checkpoint(const cli_options *options)
{
    cli_weights weights = { 0 };
    CLI_TRY(cli_weights_open_checkpoint(options->operand, &weights));
    const coh_status status = inspect_open_checkpoint(options, weights.checkpoint, &weights.facts);
    cli_weights_close(&weights);
    return status;
}

/* ---- token files and ids ---- */

static void tokens_json(const coh_token_file_facts *facts, double entropy)
{
    cli_line line;
    cli_line_clear(&line);
    cli_line_add_json(&line,
                      "{'type': 'tokens', 'tokens': %" PRIu64 ", 'vocabulary': %" PRId64
                      ", 'tokenizer_identity': '%016" PRIx64 "', 'hash': '%016" PRIx64
                      "', 'unigram_entropy': %.17g, 'has_mask': %i, 'window': %" PRId64
                      ", 'marks_documents': %i}",
                      facts->token_count, facts->vocabulary, facts->tokenizer_identity, facts->hash,
                      entropy, facts->has_mask, facts->window, facts->marks_documents);
    cli_print("%s", line.text);
}

static void tokens_text(const char *path, const coh_token_file_facts *facts, double entropy)
{
    printf("token file %s\n  %s of a vocabulary of %" PRId64 " (tokenizer %016" PRIx64
           ")\n  unigram entropy %.4f nats: the loss without any context\n",
           path, cli_count(facts->token_count, "token").at, facts->vocabulary,
           facts->tokenizer_identity, entropy);
    if (facts->window > 0)
        printf("  documents in sequences of %s%s\n", cli_count((uint64_t)facts->window, "token").at,
               facts->marks_documents ? ": separate, a token attends over its own" : "");
    else if (facts->has_mask)
        printf("  conversations: only what the assistant says counts\n");
    printf("  hash %016" PRIx64 "\n", facts->hash);
}

static void ids_json(const coh_token_file_facts *facts, double entropy)
{
    cli_line line;
    cli_line_clear(&line);
    cli_line_add_json(&line,
                      "{'type': 'ids', 'form': %s, 'tokens': %" PRIu64 ", 'id_bytes': %" PRId32
                      ", 'vocabulary': %" PRId64 ", 'hash': '%016" PRIx64
                      "', 'unigram_entropy': %.17g}",
                      facts->is_llmc ? "llm.c" : "nanoGPT", facts->token_count, facts->id_bytes,
                      facts->vocabulary, facts->hash, entropy);
    cli_print("%s", line.text);
}

/* Files of other programs name neither vocabulary nor tokenizer: the vocabulary is the smallest
 * possible one. */
static void ids_text(const char *path, const coh_token_file_facts *facts, double entropy)
{
    printf("id file %s\n  %s of %" PRId32 " bytes, %s\n  needs a vocabulary of %" PRId64
           " at least; which tokenizer made it, it does not say\n  unigram entropy %.4f nats: the "
           "loss without any context\n  hash %016" PRIx64 "\n",
           path, cli_count(facts->token_count, "token").at, facts->id_bytes,
           facts->is_llmc ? "behind llm.c's header"
                          : "without a header, as nanoGPT writes them (--id-bytes if not)",
           facts->vocabulary, entropy, facts->hash);
}

static coh_status inspect_open_tokens(const cli_options *options, int is_raw, coh_token_file *file)
{
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    double entropy;
    CLI_TRY(coh_token_file_facts_get(file, &facts));
    if (options->hash && !is_raw)
        CLI_TRY(coh_token_file_check(file));
    CLI_TRY(coh_token_file_unigram_entropy(file, &entropy));
    if (options->json)
        (is_raw ? ids_json : tokens_json)(&facts, entropy);
    else if (options->hash)
        print_hash(facts.hash);
    else
        (is_raw ? ids_text : tokens_text)(options->operand, &facts, entropy);
    return COH_OK;
}

static coh_status inspect_tokens(const cli_options *options, int is_raw)
{
    coh_token_file *file;
    CLI_TRY(cli_data_open_file(options, is_raw, &file));
    const coh_status status = inspect_open_tokens(options, is_raw, file);
    coh_token_file_close(file);
    return status;
}

/* ---- a kernel table ---- */

static coh_status inspect_kernels(const cli_options *options)
{
    uint64_t hash;
    CLI_TRY(cli_artefact_kernels_hash(options->operand, &hash));
    if (options->json)
        cli_print("{\"type\": \"kernels\", \"hash\": \"%016" PRIx64 "\"}", hash);
    else if (options->hash)
        print_hash(hash);
    else
        printf("kernel table %s\n  hash %016" PRIx64 " (the file is JSON for people, too)\n",
               options->operand, hash);
    return COH_OK;
}

/* ---- a Hugging Face folder ---- */

typedef struct folder_view {
    const char *path;
    coh_model model;
    cli_weights weights;
    coh_graph *graph; /* for one sequence of one token; all sizes have the same operators */
    int name_width;   /* width of the longest name, in characters */
} folder_view;

/* Formats "2304 x 768". */
static void shape_text(const coh_model_tensor *tensor, cli_line *line)
{
    cli_line_clear(line);
    for (int32_t i = 0; i < tensor->rank; i++)
        cli_line_add(line, "%s%" PRId64, i ? " x " : "", tensor->dim[i]);
}

/* The width of an operator's output. */
static int64_t width(const coh_graph_operator *op)
{
    return op->output.dim[op->output.rank - 1];
}

/* Prints one line per operator; of the layers, which are all equal, only the first. */
static coh_status print_graph(const folder_view *of)
{
    const int32_t count = coh_graph_operator_count(of->graph);
    int in_layer = 0;
    printf("  graph (cohobate plan shows where it would be placed):\n");
    for (int32_t i = 0; i < count; i++) {
        coh_graph_operator op;
        CLI_TRY(coh_graph_operator_at(of->graph, i, &op));
        if (op.block > 0)
            continue;
        if (op.block == 0 && !in_layer)
            printf("    %s, each as the first:\n",
                   cli_count((uint64_t)coh_model_size_get(&of->model).layers, "layer").at);
        in_layer = op.block == 0;
        printf("    %s%-*s  %-28s ", in_layer ? "  " : "", of->name_width - 2 * in_layer, op.name,
               op.kind);
        if (i + 1 == count)
            printf("the loss\n");
        else
            printf("%" PRId64 " wide\n", width(&op));
    }
    return COH_OK;
}

static coh_status print_tensors(const folder_view *of)
{
    const int many = of->weights.folder_facts.file_count > 1;
    printf("  parameters, as checkpoints and as the folder call them:\n");
    for (int64_t i = 0; i < of->weights.folder_facts.tensor_count; i++) {
        coh_folder_tensor at;
        cli_line shape;
        CLI_TRY(coh_folder_tensor_at(of->weights.folder, i, &at));
        shape_text(&at.tensor, &shape);
        printf("    %-*s  %-16s %-4s  %s%s%s%s\n", of->name_width, at.tensor.name, shape.text,
               cli_dtype_name(at.dtype), at.found_name,
               at.tensor.transposed ? ", turned round" : "", many ? ", in " : "",
               many ? at.file_name : "");
    }
    return COH_OK;
}

/* Finds the width of the column of names. */
static coh_status find_name_width(folder_view *of)
{
    for (int64_t i = 0; i < of->weights.folder_facts.tensor_count; i++) {
        coh_folder_tensor at;
        CLI_TRY(coh_folder_tensor_at(of->weights.folder, i, &at));
        const int length = (int)strlen(at.tensor.name);
        of->name_width = length > of->name_width ? length : of->name_width;
    }
    return COH_OK;
}

static coh_status print_folder_text(const folder_view *of)
{
    const coh_model_size size = coh_model_size_get(&of->model);
    const coh_folder_facts *facts = &of->weights.folder_facts;
    printf("folder %s\n  model %s: %s, %s, %" PRId64 " wide, %s, vocabulary %" PRId64 "\n",
           of->path, coh_model_type_name(&of->model), cli_count((uint64_t)size.layers, "layer").at,
           cli_count((uint64_t)size.heads, "head").at, size.channels,
           cli_count((uint64_t)size.positions, "position").at, size.vocabulary);
    printf("  %" PRIu64 " parameters in %" PRId64 " tensors of %s%s, %s in %u file%s",
           facts->parameter_count, facts->tensor_count, facts->mixed ? "mostly " : "",
           cli_dtype_name(facts->stored), cli_size(facts->bytes).at, facts->file_count,
           facts->file_count == 1 ? "" : "s");
    if (facts->passed_over_count)
        printf("; passed over: %s that %s no parameter%s",
               cli_count((uint64_t)facts->passed_over_count, "tensor").at,
               facts->passed_over_count == 1 ? "is" : "are",
               facts->passed_over_count == 1 ? "" : "s");
    printf("\n  %s\n", cli_artefact_has_tokenizer(of->path) ? "with its tokenizer"
                       : cli_artefact_is_of_bytes(of->path)
                           ? "without a tokenizer: its ids are bytes"
                           : "without a tokenizer");
    for (const char *line = of->model.notes; *line;) {
        const size_t length = strcspn(line, "\n");
        printf("  note: %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    CLI_TRY(print_graph(of));
    return print_tensors(of);
}

static void add_shape_json(const char *key, const int64_t *dim, int32_t rank, cli_line *line)
{
    cli_line_add_json(line, "%s: [", key);
    for (int32_t i = 0; i < rank; i++)
        cli_line_add_json(line, "%" PRId64, dim[i]);
    cli_line_add_json(line, "]");
}

static coh_status print_graph_json(const folder_view *of, cli_line *line)
{
    cli_line_add_json(line, "'operators': [");
    for (int32_t i = 0; i < coh_graph_operator_count(of->graph); i++) {
        coh_graph_operator op;
        CLI_TRY(coh_graph_operator_at(of->graph, i, &op));
        cli_line_add_json(line, "{'name': %s, 'kind': %s, 'block': %d, 'width': %" PRId64 "}",
                          op.name, op.kind, op.block, width(&op));
        cli_line_flush(line);
    }
    cli_line_add_json(line, "]");
    return COH_OK;
}

static coh_status print_tensors_json(const folder_view *of, cli_line *line)
{
    cli_line_add_json(line, "'tensors': [");
    for (int64_t i = 0; i < of->weights.folder_facts.tensor_count; i++) {
        coh_folder_tensor at;
        CLI_TRY(coh_folder_tensor_at(of->weights.folder, i, &at));
        cli_line_add_json(line, "{'name': %s, 'published': %s, 'file': %s, 'dtype': %s",
                          at.tensor.name, at.found_name, at.file_name, cli_dtype_name(at.dtype));
        add_shape_json("shape", at.tensor.dim, at.tensor.rank, line);
        add_shape_json("published_shape", at.tensor.published_dim, at.tensor.rank, line);
        cli_line_add_json(line, "}");
        cli_line_flush(line);
    }
    cli_line_add_json(line, "]");
    return COH_OK;
}

static coh_status print_folder_json(const folder_view *of)
{
    const coh_model_size size = coh_model_size_get(&of->model);
    const coh_folder_facts *facts = &of->weights.folder_facts;
    cli_line line;
    cli_line_clear(&line);
    cli_line_add_json(&line,
                      "{'type': 'folder', 'path': %s, 'model_type': %s, 'layers': %" PRId64
                      ", 'heads': %" PRId64 ", 'channels': %" PRId64 ", 'positions': %" PRId64
                      ", 'vocabulary': %" PRId64,
                      of->path, coh_model_type_name(&of->model), size.layers, size.heads,
                      size.channels, size.positions, size.vocabulary);
    cli_line_add_json(&line,
                      "'parameters': %" PRIu64 ", 'dtype': %s, 'mixed': %i, 'bytes': %" PRIu64
                      ", 'files': %u, 'passed_over': %" PRId64 ", 'tokenizer': %i, 'notes': %s",
                      facts->parameter_count, cli_dtype_name(facts->stored), facts->mixed,
                      facts->bytes, facts->file_count, facts->passed_over_count,
                      cli_artefact_has_tokenizer(of->path) || cli_artefact_is_of_bytes(of->path),
                      of->model.notes);
    CLI_TRY(print_graph_json(of, &line));
    CLI_TRY(print_tensors_json(of, &line));
    cli_print("%s}", line.text);
    return COH_OK;
}

static coh_status inspect_folder(const cli_options *options)
{
    folder_view of = { .path = options->operand };
    coh_status status;
    if (options->hash)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--hash is of checkpoints and token files, and %s is a model's folder: "
                        "leave it out",
                        options->operand);
    CLI_TRY(cli_weights_resolve(options->operand, 0, &of.model));
    CLI_TRY_GOTO(status, cli_weights_open(&of.model, &of.weights), done);
    CLI_TRY_GOTO(status, coh_model_train_graph(&of.model, 1, 1, &of.graph), done);
    CLI_TRY_GOTO(status, find_name_width(&of), done);
    status = options->json ? print_folder_json(&of) : print_folder_text(&of);
done:
    coh_graph_destroy(of.graph);
    cli_weights_close(&of.weights);
    return status;
}

/* ---- a plan ---- */

typedef struct plan_view {
    coh_plan_file file;
    cli_plan_note note;
    coh_model model;
    int has_note; /* without a note, the plan's model is unknown */
} plan_view;

static double tokens_per_s(const plan_view *of)
{
    const double step_s = (double)of->file.step_ns * 1e-9;
    return step_s > 0 ? (double)(of->note.batch * of->note.sequence) / step_s : 0;
}

static void print_what(const plan_view *of)
{
    const coh_model_size size = coh_model_size_get(&of->model);
    const cli_plan_note *note = &of->note;
    if (!of->has_note) {
        printf("  of       a model that it does not name\n");
        return;
    }
    printf("  of       %s in %s%s%s%s, %.2f M parameters trained (%s, %s, %" PRId64
           " wide, vocabulary %" PRId64 ")\n",
           of->model.name, cli_dtype_name(size.dtype),
           of->model.frozen_nf4 ? " (frozen weights nf4)" : "",
           of->file.f32_gradients ? " (gradients f32)" : "", of->file.atomics ? " (atomics)" : "",
           (double)coh_model_trained_count(&of->model) * 1e-6,
           cli_count((uint64_t)size.layers, "layer").at, cli_count((uint64_t)size.heads, "head").at,
           size.channels, size.vocabulary);
    if (coh_fold_shape_replicas(&of->file.ranks) > 1)
        printf("  ranks    %s; the figures are of one\n", cli_shape_text(&of->file.ranks).at);
    printf("  batch    %" PRId64 " x %s, %" PRId64 " at once, by %s, replicas %s; %" PRId64
           " step%s, %s\n",
           note->batch, cli_count((uint64_t)note->sequence, "token").at, note->micro_batch,
           coh_sweep_order_name(of->file.sweep_order), cli_shape_text(&of->file.replicas).at,
           note->steps, note->steps == 1 ? "" : "s",
           note->clip <= 0             ? "not clipped"
           : !of->file.deferred_update ? "clipped by the previous norm"
           : of->file.speculates       ? "clipped, updates speculate"
                                       : "clipped");
}

/* Prints the budget for which it was made, and its use of that budget. */
static void print_room(const plan_view *of)
{
    const coh_plan_file *file = &of->file;
    const uint64_t peaks[] = { file->peak_device_bytes, file->peak_host_bytes,
                               file->peak_disk_bytes };
    if (of->has_note) {
        printf("  budget   device %s", cli_size(of->note.device_bytes).at);
        if (file->host_memory_bytes > 0)
            printf(", %s %s", file->is_gpu ? "host" : "emulated host",
                   cli_size(file->host_memory_bytes).at);
        if (file->disk_bytes > 0)
            printf(", a disk");
        if (of->note.disk_write_limit > 0)
            printf(", which may be written %s a day",
                   report_written((double)of->note.disk_write_limit).at);
        printf("\n");
    }
    printf("  takes    ");
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        if (peaks[tier] > 0)
            printf("%s%s %s", tier ? ", " : "", cli_tier_name(tier, file->is_gpu),
                   cli_size(peaks[tier]).at);
    printf(" at most, to the byte\n");
}

static void print_decisions(const coh_plan_file *file)
{
    printf("  decided  ");
    if (!file->is_in_memory)
        printf("chunks of at most %s, ", cli_size(file->chunk_bytes).at);
    printf("%d block%s recomputed, %s, %d pin%s\n", file->recomputes,
           file->recomputes == 1 ? "" : "s",
           file->is_in_memory       ? "nothing leaves the device"
           : file->host_updates > 0 ? "updates on the host lane too"
                                    : "updates on the device",
           file->pin_count, file->pin_count == 1 ? "" : "s");
    printf("  stored   parameters of %d operators: %s\n", file->operator_count,
           file->parameters[0] ? file->parameters : "none");
    if (file->states[0])
        printf("           states: %s\n", file->states);
    printf("           activations: %s\n", file->activations);
}

static void print_plan_text(const char *path, const plan_view *of)
{
    const coh_plan_file *file = &of->file;
    printf("plan %s, for a %s\n", path, file->is_gpu ? "GPU" : "host device");
    print_what(of);
    print_room(of);
    printf("  prices   profile %s (hash %016" PRIx64 ")\n", file->profile_name, file->profile_hash);
    printf("  speed    %s a step predicted", cli_time((double)file->step_ns * 1e-9).at);
    if (of->has_note)
        printf(", %s tokens/s", cli_tokens_per_s(tokens_per_s(of)).at);
    printf("\n");
    print_decisions(file);
    printf("  numbers  %016" PRIx64 "\n  program  %016" PRIx64 ", %" PRIu32
           " instructions in the step\n  (cohobate simulate rebuilds it; the file is JSON for "
           "people, too)\n",
           file->numeric_fingerprint, file->program_hash, file->instruction_count);
}

static void add_note_json(const plan_view *of, cli_line *line)
{
    const cli_plan_note *note = &of->note;
    cli_line_add_json(line,
                      "'model': %s, 'dtype': %s, 'frozen_dtype': %s, 'trained_parameters': %" PRIu64
                      ", 'batch': %" PRId64 ", 'micro_batch': %" PRId64 ", 'sequence': %" PRId64
                      ", 'steps': %" PRId64 ", 'budget_bytes': %" PRIu64
                      ", 'tokens_per_second': %.9g",
                      of->model.name, cli_dtype_name(coh_model_size_get(&of->model).dtype),
                      cli_dtype_frozen((uint64_t)of->model.frozen_nf4),
                      coh_model_trained_count(&of->model), note->batch, note->micro_batch,
                      note->sequence, note->steps, note->device_bytes, tokens_per_s(of));
}

static void print_plan_json(const plan_view *of)
{
    const coh_plan_file *file = &of->file;
    const uint64_t peaks[] = { file->peak_device_bytes, file->peak_host_bytes,
                               file->peak_disk_bytes };
    cli_line line;
    cli_line_clear(&line);
    cli_line_add_json(&line, "{'type': 'plan', 'device': %s", file->is_gpu ? "gpu" : "host");
    if (of->has_note)
        add_note_json(of, &line);
    cli_line_add_json_tiers(&line, "peak_bytes", peaks);
    cli_line_add_json(&line,
                      "'profile': %s, 'profile_hash': '%016" PRIx64 "', 'step_seconds': %.9f"
                      ", 'chunk_bytes': %" PRIu64 ", 'sweep_order': %s, 'replicas': %s, 'ranks': %s"
                      ", 'in_memory': %i"
                      ", 'recomputes': %d, 'host_updates': %d, 'pins': %d, 'operators': %d"
                      ", 'instruction_count': %" PRIu32 ", 'numeric_fingerprint': '%016" PRIx64
                      "', 'program_hash': '%016" PRIx64 "'}",
                      file->profile_name, file->profile_hash, (double)file->step_ns * 1e-9,
                      file->chunk_bytes, coh_sweep_order_name(file->sweep_order),
                      cli_shape_text(&file->replicas).at, cli_shape_text(&file->ranks).at,
                      file->is_in_memory, file->recomputes, file->host_updates, file->pin_count,
                      file->operator_count, file->instruction_count, file->numeric_fingerprint,
                      file->program_hash);
    cli_print("%s", line.text);
}

/* A plan written by another program has no note of ours, but is valid. */
static coh_status look_at_plan(const cli_options *options, plan_view *of)
{
    of->file = (coh_plan_file){ .struct_bytes = sizeof(of->file) };
    CLI_TRY(coh_plan_file_read(options->operand, &of->file));
    if (options->hash && !options->json) {
        print_hash(of->file.program_hash);
        return COH_OK;
    }
    const coh_status status =
        cli_replay_read_note(options->operand, &of->file, &of->note, &of->model);
    if (status != COH_OK && status != COH_ERR_CORRUPT)
        return status;
    of->has_note = status == COH_OK;
    if (options->json)
        print_plan_json(of);
    else
        print_plan_text(options->operand, of);
    return COH_OK;
}

static coh_status inspect_plan(const cli_options *options)
{
    plan_view *of = calloc(1, sizeof(*of));
    if (!of)
        return cli_fail(COH_ERR_MEMORY, "no memory for a plan's note");
    const coh_status status = look_at_plan(options, of);
    free(of);
    return status;
}

/* ---- a profile ---- */

/* A rate with its label; not printed if it is 0. */
typedef struct figure {
    const char *label;
    double value;
} figure;

static coh_status print_profile_json(const coh_profile *profile, const coh_profile_summary *s)
{
    cli_line line;
    cli_line_clear(&line);
    cli_line_add_json(&line,
                      "{'type': 'profile', 'name': %s, 'machine': %s, 'date': %s, 'source': %s"
                      ", 'device': %s, 'what_if': %i, 'threads': %" PRId32
                      ", 'fingerprint': '%016" PRIx64 "', 'hash': '%016" PRIx64 "'",
                      s->name, s->machine, s->date, s->source, s->is_gpu ? "gpu" : "host",
                      s->is_what_if, s->threads, s->fingerprint, s->hash);
    cli_profile_add_rates_json(s, &line);
    cli_line_add_json(&line,
                      "'device_bytes': %.0f, 'host_bytes': %.0f, 'disk_bytes': %.0f"
                      ", 'pair_ranks': %" PRId32 ", 'node_ranks': %" PRId32
                      ", 'host_gpus': %" PRId32 ", 'host_shares': %.6g"
                      ", 'shared_host_bytes_per_s': %.6g"
                      ", 'operators': %" PRIu32 ", 'origins': [",
                      (double)s->device_bytes, (double)s->host_bytes, (double)s->disk_bytes,
                      s->pair_ranks, s->node_ranks, s->host_gpus, s->host_shares,
                      s->shared_host_bytes_per_s, s->operator_count);
    for (uint32_t i = 0; i < s->origin_count; i++) {
        coh_profile_origin_text origin;
        CLI_TRY(coh_profile_origin_at(profile, i, &origin));
        cli_line_flush(&line);
        cli_line_add_json(&line, "{'of': %s, 'assumed': %i, 'text': %s}", origin.of,
                          origin.is_assumed, origin.text);
    }
    cli_print("%s]}", line.text);
    return COH_OK;
}

static coh_status print_profile_text(const coh_profile *profile, const coh_profile_summary *s)
{
    const figure rates[] = {
        { "products in f32", s->f32_flops_per_s },  { "products in bf16", s->bf16_flops_per_s },
        { "memory", s->memory_bytes_per_s },        { "host memory", s->host_memory_bytes_per_s },
        { "host to device", s->h2d_bytes_per_s },   { "device to host", s->d2h_bytes_per_s },
        { "disk reads", s->read_bytes_per_s },      { "disk writes", s->write_bytes_per_s },
        { "ranks of a pair", s->pair_bytes_per_s }, { "ranks of a node", s->comm0_bytes_per_s },
        { "ranks of nodes", s->comm1_bytes_per_s },
    };
    const uint64_t rooms[COH_TIER_COUNT] = { s->device_bytes, s->host_bytes, s->disk_bytes };
    printf("profile %s\n  %s%s%s%s, of a %s with %" PRId32 " thread%s%s\n", s->name, s->source,
           s->date[0] ? " of " : "", s->date, s->is_what_if ? ", a what-if" : "",
           s->is_gpu ? "GPU" : "host device", s->threads, s->threads == 1 ? "" : "s",
           s->fingerprint ? "" : ", of no one machine");
    if (s->machine[0])
        printf("  %s\n", s->machine);
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
        if (rates[i].value > 0)
            printf("  %-17s %12.1f %s\n", rates[i].label, rates[i].value * 1e-9,
                   i < 2 ? "GFLOP/s" : "GB/s");
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        if (rooms[tier] > 0)
            printf("  %-6s %s\n", coh_tier_name(tier), cli_size(rooms[tier]).at);
    if (s->shared_host_bytes_per_s > 0)
        printf("  links, drive and updates share the rate of host memory\n");
    if (s->host_gpus > 1 && s->host_shares > 0)
        printf("  %" PRId32 " GPUs share the host: its rates are %.2g of %" PRId32 " shares\n",
               s->host_gpus, s->host_shares, s->host_gpus);
    if (s->node_ranks)
        printf("  %s of a node, %" PRId32 " of a pair\n",
               cli_count((uint64_t)s->node_ranks, "rank").at,
               s->pair_ranks > 0 ? s->pair_ranks : 1);
    if (s->operator_count)
        printf("  %s measured\n", cli_count(s->operator_count, "operator").at);
    for (uint32_t i = 0; i < s->origin_count; i++) {
        coh_profile_origin_text origin;
        CLI_TRY(coh_profile_origin_at(profile, i, &origin));
        printf("  %s: %s%s\n", origin.of, origin.is_assumed ? "ASSUMED: " : "", origin.text);
    }
    printf("  hash %016" PRIx64 " (the file is JSON for people, too)\n", s->hash);
    return COH_OK;
}

static coh_status inspect_open_profile(const cli_options *options, const coh_profile *profile)
{
    coh_profile_summary summary = { .struct_bytes = sizeof(summary) };
    CLI_TRY(coh_profile_summarize(profile, &summary));
    if (options->json)
        return print_profile_json(profile, &summary);
    if (!options->hash)
        return print_profile_text(profile, &summary);
    print_hash(summary.hash);
    return COH_OK;
}

static coh_status inspect_profile(const cli_options *options)
{
    coh_profile *profile;
    CLI_TRY(coh_profile_read(options->operand, &profile));
    const coh_status status = inspect_open_profile(options, profile);
    coh_profile_destroy(profile);
    return status;
}

coh_status cli_inspect(const cli_options *options)
{
    cli_artefact artefact;
    CLI_TRY(cli_artefact_find(options, &artefact));
    switch (artefact) {
    case CLI_ARTEFACT_CHECKPOINT:
        return inspect_checkpoint(options);
    case CLI_ARTEFACT_FOLDER:
        return inspect_folder(options);
    case CLI_ARTEFACT_PLAN:
        return inspect_plan(options);
    case CLI_ARTEFACT_KERNELS:
        return inspect_kernels(options);
    case CLI_ARTEFACT_PROFILE:
        return inspect_profile(options);
    case CLI_ARTEFACT_TOKENS:
    case CLI_ARTEFACT_IDS:
        return inspect_tokens(options, artefact == CLI_ARTEFACT_IDS);
    }
    return COH_OK;
}
