/* Prints a Hugging Face folder as text or JSON: model, graph, parameters. The one idea: the graph
 * is built for one token, which is enough to list all operators. Next: models/folder_read.c opens
 * the folder. */
#include "cli/inspect_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/artefact.h"
#include "cli/dtype.h"
#include "cli/weights.h"

typedef struct inspection {
    const char *path;
    coh_model model;
    cli_weights weights;
    coh_graph *graph; /* for one sequence of one token; all sizes have the same operators */
    int name_width;   /* width of the longest name, in characters */
} inspection;

/* Formats "2304 x 768". */
static void shape_text(const int64_t *dim, int32_t rank, cli_line *line)
{
    cli_line_clear(line);
    for (int32_t i = 0; i < rank; i++)
        cli_line_add(line, "%s%" PRId64, i ? " x " : "", dim[i]);
}

/* ---- text ---- */

/* The width of an operator's output. */
static int64_t width(const coh_graph_operator *op)
{
    return op->output.dim[op->output.rank - 1];
}

/* Prints one line per operator; of the layers, which are all equal, only the first. */
static coh_status print_graph(const inspection *of)
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
            printf("    %" PRId64 " layers, each as the first:\n",
                   coh_model_size_get(&of->model).layers);
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

static coh_status print_tensors(const inspection *of)
{
    const int many = of->weights.folder_facts.file_count > 1;
    printf("  parameters, as checkpoints and as the folder call them:\n");
    for (int64_t i = 0; i < of->weights.folder_facts.tensor_count; i++) {
        coh_folder_tensor at;
        cli_line shape;
        CLI_TRY(coh_folder_tensor_at(of->weights.folder, i, &at));
        shape_text(at.tensor.dim, at.tensor.rank, &shape);
        printf("    %-*s  %-16s %-4s  %s%s%s%s\n", of->name_width, at.tensor.name, shape.text,
               cli_dtype_name(at.dtype), at.found_name,
               at.tensor.transposed ? ", turned round" : "", many ? ", in " : "",
               many ? at.file_name : "");
    }
    return COH_OK;
}

/* Finds the width of the column of names. */
static coh_status find_name_width(inspection *of)
{
    for (int64_t i = 0; i < of->weights.folder_facts.tensor_count; i++) {
        coh_folder_tensor at;
        CLI_TRY(coh_folder_tensor_at(of->weights.folder, i, &at));
        const int length = (int)strlen(at.tensor.name);
        of->name_width = length > of->name_width ? length : of->name_width;
    }
    return COH_OK;
}

static coh_status print_text(const inspection *of)
{
    const coh_model_size size = coh_model_size_get(&of->model);
    const coh_folder_facts *facts = &of->weights.folder_facts;
    char bytes[32];
    printf("folder %s\n  a %s model: %" PRId64 " layers, %" PRId64 " heads, %" PRId64
           " wide, %" PRId64 " positions, vocabulary %" PRId64 "\n",
           of->path, coh_model_type_name(&of->model), size.layers, size.heads, size.channels,
           size.positions, size.vocabulary);
    printf("  %" PRIu64 " parameters in %" PRId64 " tensors of %s%s, %s in %u file%s",
           facts->parameter_count, facts->tensor_count, facts->mixed ? "mostly " : "",
           cli_dtype_name(facts->stored), coh_size_format(facts->bytes, bytes, sizeof(bytes)),
           facts->file_count, facts->file_count == 1 ? "" : "s");
    if (facts->passed_over_count)
        printf("; %" PRId64 " tensors that are no parameters are passed over",
               facts->passed_over_count);
    printf("\n  %s\n",
           cli_artefact_has_tokenizer(of->path) ? "with its tokenizer" : "without a tokenizer");
    for (const char *line = of->model.notes; *line;) {
        const size_t length = strcspn(line, "\n");
        printf("  note: %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    CLI_TRY(print_graph(of));
    return print_tensors(of);
}

/* ---- JSON ---- */

static void put_shape_json(const char *key, const int64_t *dim, int32_t rank)
{
    printf(", \"%s\": [", key);
    for (int32_t i = 0; i < rank; i++)
        printf("%s%" PRId64, i ? ", " : "", dim[i]);
    printf("]");
}

static void put_text_json(const char *before, const char *text)
{
    cli_line line;
    cli_line_clear(&line);
    cli_line_add_json_string(&line, text);
    printf("%s%s", before, line.text);
}

static coh_status print_graph_json(const inspection *of)
{
    printf(", \"operators\": [");
    for (int32_t i = 0; i < coh_graph_operator_count(of->graph); i++) {
        coh_graph_operator op;
        CLI_TRY(coh_graph_operator_at(of->graph, i, &op));
        printf("%s{\"name\": \"%s\", \"kind\": \"%s\", \"block\": %d, \"width\": %" PRId64 "}",
               i ? ", " : "", op.name, op.kind, op.block, width(&op));
    }
    printf("]");
    return COH_OK;
}

static coh_status print_tensors_json(const inspection *of)
{
    printf(", \"tensors\": [");
    for (int64_t i = 0; i < of->weights.folder_facts.tensor_count; i++) {
        coh_folder_tensor at;
        CLI_TRY(coh_folder_tensor_at(of->weights.folder, i, &at));
        printf("%s{\"name\": \"%s\"", i ? ", " : "", at.tensor.name);
        put_text_json(", \"published\": ", at.found_name);
        put_text_json(", \"file\": ", at.file_name);
        printf(", \"dtype\": \"%s\"", cli_dtype_name(at.dtype));
        put_shape_json("shape", at.tensor.dim, at.tensor.rank);
        put_shape_json("published_shape", at.tensor.published_dim, at.tensor.rank);
        printf("}");
    }
    printf("]");
    return COH_OK;
}

static coh_status print_json(const inspection *of)
{
    const coh_model_size size = coh_model_size_get(&of->model);
    const coh_folder_facts *facts = &of->weights.folder_facts;
    put_text_json("{\"type\": \"folder\", \"path\": ", of->path);
    printf(", \"model_type\": \"%s\", \"layers\": %" PRId64 ", \"heads\": %" PRId64
           ", \"channels\": %" PRId64 ", \"positions\": %" PRId64 ", \"vocabulary\": %" PRId64,
           coh_model_type_name(&of->model), size.layers, size.heads, size.channels, size.positions,
           size.vocabulary);
    printf(", \"parameters\": %" PRIu64 ", \"dtype\": \"%s\", \"mixed\": %s, \"bytes\": %" PRIu64
           ", \"files\": %u, \"passed_over\": %" PRId64 ", \"tokenizer\": %s",
           facts->parameter_count, cli_dtype_name(facts->stored), facts->mixed ? "true" : "false",
           facts->bytes, facts->file_count, facts->passed_over_count,
           cli_artefact_has_tokenizer(of->path) ? "true" : "false");
    put_text_json(", \"notes\": ", of->model.notes);
    CLI_TRY(print_graph_json(of));
    CLI_TRY(print_tensors_json(of));
    printf("}\n");
    return COH_OK;
}

coh_status cli_inspect_folder(const cli_options *options)
{
    inspection of = { .path = options->operand };
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
    status = options->json ? print_json(&of) : print_text(&of);
done:
    coh_graph_destroy(of.graph);
    cli_weights_close(&of.weights);
    return status;
}
