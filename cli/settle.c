/* Settles options that need the model and the device, after the recipe is known. Next: job.c. */
#include "cli/settle.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* Asks whether a GPU adds by atomics in any attention layer of this run. Fails: with the limit
 * as text. */
static coh_status ask_for_atomics(const cli_job *job)
{
    const coh_model_size size = coh_model_size_get(&job->model);
    const coh_llama_config *llama = &job->model.llama;
    const coh_gemma_config *gemma = &job->model.gemma;
    coh_attention_grouped_attributes attributes = { .heads = size.heads, .kv_heads = size.heads };
    if (size.heads <= 0 || size.channels < size.heads)
        return cli_fail(COH_ERR_SHAPE, "a model without heads");
    int64_t width = size.channels / size.heads;
    if (job->model.family == COH_FAMILY_LLAMA) {
        width = llama->head_width;
        attributes.scores.window = llama->window;
    } else if (job->model.family == COH_FAMILY_GEMMA) { /* its global layers, if it has any */
        width = gemma->head_width;
        attributes.scores.cap = gemma->score_cap;
        if (gemma->scalar != width)
            attributes.scores.scale = 1.0f / sqrtf((float)gemma->scalar);
        if (gemma->pattern == 0 || gemma->pattern > gemma->layers)
            attributes.scores.window = gemma->window;
    }
    if (job->model.separate_documents)
        return cli_fail(COH_ERR_SHAPE, "it takes no separate documents");
    const coh_shape x = { .dtype = size.dtype,
                          .rank = 3,
                          .dim = { 1, job->recipe.sequence, size.heads * width } };
    return coh_kind_attention_grouped_atomic.devices[COH_DEVICE_CUDA].accepts(
        &attributes, (const coh_shape[]){ x, x, x });
}

coh_status cli_settle_atomics(cli_job *job)
{
    const char *of = NULL;
    char limit[256];
    if (!job->on_gpu)
        of = "a GPU";
    else if (coh_model_size_get(&job->model).dtype != COH_DTYPE_BF16)
        of = "weights in bf16";
    else if (job->recipe.dropout > 0)
        of = "attention without dropout";
    else if (ask_for_atomics(job) != COH_OK) {
        snprintf(limit, sizeof(limit), "attention on cuDNN (%s)", coh_last_error());
        of = limit;
    }
    const int is_given = cli_given(job->options, CLI_FLAG_ATOMICS);
    uint64_t are_on = is_given ? (uint64_t)job->options->atomics : job->recipe.atomics;
    if (are_on && of != NULL && is_given)
        return cli_fail(COH_ERR_ARGUMENT, "--atomics on is of %s: leave it out", of);
    if (are_on && of != NULL) {
        cli_note_choice("atomics on -> off: they are of %s", of);
        are_on = 0;
    } else if (are_on != job->recipe.atomics) {
        cli_note_choice("atomics %s -> %s: other rounding, the run will not continue bit for bit",
                        job->recipe.atomics ? "on" : "off", are_on ? "on" : "off");
    }
    job->recipe.atomics = are_on;
    job->model.atomics = (int32_t)are_on;
    return COH_OK;
}

/* Counts the frozen weights that can be stored in NF4. */
static int64_t count_packable(const coh_model *model)
{
    const int64_t tensors = coh_model_tensor_count(model);
    coh_model_tensor tensor;
    int64_t count = 0;
    for (int64_t i = 0; i < tensors && coh_model_tensor_at(model, i, &tensor) == COH_OK; i++)
        count +=
            tensor.linear && tensor.dim[1] % COH_NF4_ROW_UNIT == 0 && coh_model_is_frozen(model, i);
    return count;
}

static int has_frozen(const coh_model *model)
{
    return model->adapters.rank > 0 || model->adapters.freeze[0] != '\0';
}

int cli_may_pack_frozen(const cli_job *job)
{
    return !job->model.frozen_nf4 && !job->options->resume && has_frozen(&job->model) &&
           job->model.family != COH_FAMILY_OWN && count_packable(&job->model) > 0;
}

void cli_describe_frozen_dtype(const coh_model *model, cli_line *line)
{
    const int64_t tensors = coh_model_tensor_count(model);
    coh_model_tensor tensor;
    int64_t frozen = 0;
    if (!model->frozen_nf4)
        return;
    for (int64_t i = 0; i < tensors && coh_model_tensor_at(model, i, &tensor) == COH_OK; i++)
        frozen += tensor.linear && coh_model_is_frozen(model, i);
    const int64_t packed = count_packable(model);
    cli_line_add(line, "        frozen weights of linear layers in nf4, 4.25 bits each");
    if (packed < frozen)
        cli_line_add(line,
                     ": %" PRId64 " of %" PRId64 ", since rows of the others are no multiple of %d",
                     packed, frozen, COH_NF4_ROW_UNIT);
    cli_line_add(line, "\n");
}

coh_status cli_settle_frozen_dtype(cli_job *job)
{
    const int is_given = cli_given(job->options, CLI_FLAG_FROZEN_DTYPE);
    const uint64_t is_on = is_given ? (uint64_t)job->options->frozen_dtype : job->recipe.frozen_nf4;
    if (is_on && count_packable(&job->model) == 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--frozen-dtype nf4 is of frozen weights of linear layers with rows of a "
                        "multiple of %d elements, and this run has none%s",
                        COH_NF4_ROW_UNIT,
                        has_frozen(&job->model)
                            ? ": leave it out"
                            : ": add --lora 16 or --freeze PATTERN, or leave it "
                              "out");
    if (is_on && !job->recipe.frozen_nf4)
        cli_note_choice(
            "frozen weights are stored in nf4 from now on: they are rounded, unless they "
            "have been before");
    job->recipe.frozen_rounded = cli_recipe_is_rounded(&job->recipe) || is_on;
    job->recipe.frozen_nf4 = is_on;
    job->model.frozen_nf4 = (int32_t)is_on;
    return COH_OK;
}

coh_status cli_settle_dropout(cli_job *job)
{
    const int is_given = cli_given(job->options, CLI_FLAG_LORA_DROPOUT);
    if (is_given && job->model.adapters.rank == 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--lora-dropout is of the inputs of adapters, and this run has none: add "
                        "--lora 8, or leave it out");
    if (!is_given && job->options->adapter)
        job->recipe.lora_dropout = job->model.lora_dropout;
    job->model.lora_dropout = job->recipe.lora_dropout;
    job->model.dropout = job->recipe.dropout;
    return COH_OK;
}

void cli_describe_dropout(const cli_recipe *recipe, cli_line *line)
{
    if (recipe->dropout > 0)
        cli_line_add(line, "dropout: %g in training, none in validation\n", recipe->dropout);
    if (recipe->lora_dropout > 0)
        cli_line_add(line,
                     "dropout: %g of the inputs of adapters in training, none in validation\n",
                     recipe->lora_dropout);
}

/* A token file says by itself whether its documents are separate. */
static coh_status take_marks(cli_job *job, int marks)
{
    const cli_options *options = job->options;
    int64_t *layout = &job->recipe.form.aligned;
    const int was_separate = *layout == COH_DOCUMENTS_SEPARATE;
    int validates_text = 0; /* else the flag is refused later, as one of text */
    if (options->validation &&
        cli_data_is_text("validation", options->validation, &validates_text) == COH_OK &&
        validates_text && cli_given(options, CLI_FLAG_DOCUMENTS) &&
        marks != (options->documents == COH_DOCUMENTS_SEPARATE))
        return cli_fail(COH_ERR_ARGUMENT,
                        marks ? "--data %s has separate documents, and --documents says otherwise "
                                "of the validation text: give --documents separate"
                              : "--data %s does not mark where its documents begin, and "
                                "--documents separate needs the marks: make it again with "
                                "cohobate tokenize --documents separate, or give --documents "
                                "fitted",
                        options->data);
    if (job->resumed && marks != was_separate)
        cli_note_choice(marks ? "note: the documents of %s are separate: from now on a token "
                                "attends over its own document only"
                              : "note: %s does not mark where its documents begin: from now on a "
                                "token attends over all before it in its sequence",
                        options->data);
    if (marks)
        *layout = COH_DOCUMENTS_SEPARATE;
    else if (was_separate)
        *layout = COH_DOCUMENTS_FITTED;
    return COH_OK;
}

coh_status cli_settle_documents(cli_job *job)
{
    const char *data = job->options->data;
    const int marks = data ? cli_data_marks_documents(data) : -1;
    if (marks >= 0)
        CLI_TRY(take_marks(job, marks));
    job->model.separate_documents = job->recipe.form.aligned == COH_DOCUMENTS_SEPARATE;
    if (job->model.separate_documents && job->model.family == COH_FAMILY_OWN)
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s is a model of an extension, whose tokens attend over all before them "
                        "in a sequence: give --documents fitted in place of separate",
                        job->model.name);
    return COH_OK;
}
