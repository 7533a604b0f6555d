/* Compares the settings of all ranks. The one idea: a fact is 64 bits, so lists, texts and reals
 * are compared by their hashes. Read agree.h first; launch.c gathers and compares. */
#include "cli/agree.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "cli/launch.h"
#include "cohobate/kernels.h"

typedef struct fact_list {
    cli_launch_fact at[CLI_LAUNCH_FACTS_MOST];
    int count;
} fact_list;

static void add(fact_list *list, const char *other, uint64_t value)
{
    list->at[list->count++] = (cli_launch_fact){ other, value };
}

/* ---- hashes ---- */

#define HASH_BEGIN UINT64_C(1) /* 0: there is nothing to hash */

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
    return XXH3_64bits_withSeed(bytes, count, hash);
}

/* With its NUL, so that a list of texts is cut where it was. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    return hash_bytes(hash, text, strlen(text) + 1);
}

static uint64_t of_text(const char *text)
{
    return hash_text(HASH_BEGIN, text);
}

static uint64_t of_real(double number)
{
    return hash_bytes(HASH_BEGIN, &number, sizeof(number));
}

static uint64_t of_fors(const cli_for_list *list)
{
    uint64_t hash = HASH_BEGIN;
    for (int64_t i = 0; i < list->count; i++) {
        hash = hash_text(hash, list->at[i].pattern);
        hash = hash_bytes(hash, &list->at[i].value, sizeof(list->at[i].value));
    }
    return hash;
}

static uint64_t of_optimizers(const cli_optimizer_list *list)
{
    uint64_t hash = HASH_BEGIN;
    for (int64_t i = 0; i < list->count; i++)
        hash = hash_text(hash_text(hash, list->at[i].pattern), list->at[i].optimizer);
    return hash;
}

static void forget_name(coh_model *model)
{
    memcpy(model->name, "any", sizeof("any"));
}

coh_status cli_agree_hash_model(const coh_model *model, uint64_t *hash)
{
    char text[COH_MODEL_JSON_BYTES];
    coh_model nameless = *model;
    forget_name(&nameless);
    CLI_TRY(coh_model_to_json(&nameless, text, sizeof(text)));
    *hash = hash_text(*hash != 0 ? *hash : HASH_BEGIN, text);
    return COH_OK;
}

uint64_t cli_agree_hash_text(const char *text)
{
    return text != NULL ? of_text(text) : 0;
}

/* ---- starting values ---- */

/* Numbers that are read of each tensor. Reading all would take as long as loading; training, even
 * of one epoch at a low rate, changes many numbers of every tensor that it trains. */
enum { PLACES = 4, AT_A_PLACE = 16 };

static coh_status hash_numbers(cli_weights *weights, const char *name, uint64_t elements,
                               uint64_t *hash)
{
    const uint64_t count = elements < AT_A_PLACE ? elements : AT_A_PLACE;
    *hash = hash_text(*hash, name);
    for (uint64_t place = 0; place < PLACES; place++) {
        float values[AT_A_PLACE] = { 0 };
        const uint64_t begin = (elements - count) / (PLACES - 1) * place;
        CLI_TRY(cli_weights_numbers(weights, name, begin, count, values));
        *hash = hash_bytes(*hash, values, sizeof(values));
    }
    return COH_OK;
}

static coh_status hash_tensors(cli_job *job, uint64_t *hash)
{
    coh_model_tensor tensor;
    for (int64_t i = 0; i < coh_model_tensor_count(&job->model); i++) {
        CLI_TRY(coh_model_tensor_at(&job->model, i, &tensor));
        const int64_t rows = tensor.rank > 1 ? tensor.dim[1] : 1;
        CLI_TRY(hash_numbers(&job->weights, tensor.name, (uint64_t)(tensor.dim[0] * rows), hash));
    }
    return COH_OK;
}

static coh_status hash_adapters(cli_job *job, uint64_t *hash)
{
    const uint64_t rank = (uint64_t)job->model.adapters.rank;
    coh_model_adapter adapter;
    for (int64_t i = 0; i < coh_model_adapter_count(&job->model); i++) {
        char a[128], b[128];
        CLI_TRY(coh_model_adapter_at(&job->model, i, &adapter));
        snprintf(a, sizeof(a), "%s.lora_A.weight", adapter.name);
        snprintf(b, sizeof(b), "%s.lora_B.weight", adapter.name);
        CLI_TRY(hash_numbers(&job->weights, a, rank * (uint64_t)adapter.inputs, hash));
        CLI_TRY(hash_numbers(&job->weights, b, rank * (uint64_t)adapter.outputs, hash));
    }
    return COH_OK;
}

/* Hashes what the run begins with: a checkpoint by the hash of its values, folders by samples. */
static coh_status find_start(cli_job *job)
{
    const cli_weights *weights = &job->weights;
    job->weights_hash = HASH_BEGIN;
    if (weights->is_checkpoint)
        job->weights_hash = weights->facts.hash;
    if (weights->folder != NULL)
        CLI_TRY(hash_tensors(job, &job->weights_hash));
    job->adapter_hash = HASH_BEGIN;
    if (weights->adapters != NULL)
        CLI_TRY(hash_adapters(job, &job->adapter_hash));
    job->has_start_hashes = 1;
    return COH_OK;
}

static void add_start(const cli_job *job, fact_list *list)
{
    add(list, "a --resume checkpoint of another step", job->first_step);
    add(list, "other values in its --resume checkpoint", job->resumed ? job->weights_hash : 0);
    add(list, "another --reset-optimizer", (uint64_t)job->options->reset_optimizer);
    add(list, "another --from-scratch", (uint64_t)job->options->from_scratch);
}

/* After the model's form: folders of other models are named by it. */
static void add_weights(const cli_job *job, fact_list *list)
{
    add(list, "other adapters in its --adapter", job->adapter_hash);
    add(list, "other weights in the folder of its model", job->weights_hash);
}

/* ---- settings ---- */

static uint64_t of_shape(const coh_fold_shape *shape)
{
    return of_text(cli_shape_text(shape).at);
}

static void add_batch(const cli_job *job, fact_list *list)
{
    const cli_recipe *recipe = &job->recipe;
    add(list, "another --batch", (uint64_t)recipe->batch);
    add(list, "another --sequence", (uint64_t)recipe->sequence);
    add(list, "another --replicas", of_shape(&recipe->replicas));
    add(list, "another --micro-batch", (uint64_t)recipe->micro_batch);
    add(list, "another --sweep-order", recipe->by_layers);
    add(list, "another --gradients", recipe->f32_gradients);
    add(list, "another --atomics", recipe->atomics);
    add(list, "another --reduce", (uint64_t)job->options->reduce);
    add(list, "another --wire",
        (uint64_t)job->wires.weights << 32 | (uint64_t)job->wires.gradients);
    add(list, "another --kernels", coh_kernels_hash());
}

static coh_status add_model(const cli_job *job, fact_list *list)
{
    uint64_t hash = 0;
    const cli_recipe *recipe = &job->recipe;
    const coh_adapters *adapters = &job->model.adapters;
    const uint64_t scale = hash_bytes(HASH_BEGIN, &adapters->alpha, sizeof(adapters->alpha));
    CLI_TRY(cli_agree_hash_model(&job->model, &hash));
    add(list, "another --dtype", coh_model_size_get(&job->model).dtype);
    add(list, "another --freeze", of_text(adapters->freeze));
    add(list, "another --lora", scale + (uint64_t)adapters->rank);
    add(list, "another --lora-targets", of_text(adapters->targets));
    add(list, "another --lora-also", of_text(adapters->also));
    add(list, "another --lora-dropout", of_real(recipe->lora_dropout));
    add(list, "another --dropout", of_real(recipe->dropout));
    add(list, "another --frozen-dtype", recipe->frozen_nf4);
    add(list, "another model", hash);
    return COH_OK;
}

static void add_data(const cli_recipe *recipe, fact_list *list)
{
    const coh_text_form *form = &recipe->form;
    add(list, "another --seed", recipe->seed);
    add(list, "another --tokenizer", recipe->tokenizer_identity);
    add(list, "another --field", of_text(form->field));
    add(list, "another --chat", (uint64_t)form->chat);
    add(list, "another --chat-form", (uint64_t)form->chat_form);
    add(list, "another --documents", (uint64_t)form->aligned);
    add(list, "another --validation-split", of_real(form->validation_split));
    add(list, "another --skip-bad", recipe->skip_bad);
    add(list, "another --data", recipe->data_hash);
    add(list, "another --validation", recipe->validation_hash);
}

/* A rank that validates more often, or over more windows, would wait for the others forever: they
 * are not waited for inside a step, so no timeout ends it. */
static void add_saves(const cli_job *job, fact_list *list)
{
    const cli_recipe *recipe = &job->recipe;
    add(list, "another --save-every", recipe->save_every);
    add(list, "another --validation-every", recipe->validation_every);
    add(list, "another --validation-windows", recipe->validation_windows);
    add(list, "another --stop-after-worse", recipe->stop_after_worse);
    add(list, "another --keep-best", cli_given(job->options, CLI_FLAG_KEEP_BEST) != 0);
}

static void add_schedule(const cli_recipe *recipe, fact_list *list)
{
    const coh_schedule *schedule = &recipe->schedule;
    add(list, "another --steps", recipe->steps);
    add(list, "another --lr", of_real(schedule->highest));
    add(list, "another --min-lr", of_real(schedule->lowest));
    add(list, "another --warmup", schedule->warmup_steps);
    add(list, "another --schedule-steps", schedule->schedule_steps);
    add(list, "another --schedule", recipe->schedule_kind);
    add(list, "another --decay-steps", recipe->decay_steps);
}

static void add_optimizer(const cli_job *job, fact_list *list)
{
    const cli_recipe *recipe = &job->recipe;
    add(list, "another --optimizer, or --state,", of_text(cli_recipe_optimizer(recipe)));
    add(list, "another --optimizer-for", of_optimizers(&recipe->optimizer_for));
    add(list, "another --hyperparameter", of_fors(&recipe->hyperparameters));
    add(list, "another --beta1", of_real(recipe->beta1));
    add(list, "another --beta2", of_real(recipe->beta2));
    add(list, "another --weight-decay", of_real(recipe->weight_decay));
    add(list, "another --weight-decay-for", of_fors(&recipe->weight_decay_for));
    add(list, "another --lr-for", of_fors(&recipe->lr_for));
    add(list, "another --clip", of_real(recipe->clip));
    add(list, "another --clip-mode", cli_recipe_clip_mode(recipe));
}

/* Sets *out_hash to that of the run's note, without what may differ: paths, which are compared by
 * their contents, and how many checkpoints rank 0 keeps. */
static coh_status hash_note(const cli_job *job, uint64_t *out_hash)
{
    cli_line note;
    cli_recipe recipe = job->recipe;
    coh_model model = job->model;
    char *const paths[] = { recipe.tokenizer, recipe.base, recipe.data, recipe.validation,
                            recipe.kernels };
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        paths[i][0] = '\0';
    recipe.keep = 0;
    recipe.steps += recipe.steps == 0; /* with --epochs, before the data is open */
    recipe.schedule.schedule_steps += recipe.schedule.schedule_steps == 0;
    forget_name(&model);
    CLI_TRY(cli_recipe_to_note(&recipe, &model, &note));
    *out_hash = of_text(note.text);
    return COH_OK;
}

coh_status cli_agree(cli_job *job)
{
    fact_list list = { .count = 0 };
    uint64_t note;
    if (job->options->launch == NULL)
        return COH_OK;
    if (!job->has_start_hashes)
        CLI_TRY(find_start(job));
    CLI_TRY(hash_note(job, &note));
    add_start(job, &list);
    add_batch(job, &list);
    CLI_TRY(add_model(job, &list));
    add_weights(job, &list);
    add_data(&job->recipe, &list);
    add_schedule(&job->recipe, &list);
    add_saves(job, &list);
    add_optimizer(job, &list);
    add(&list, "other settings in the note of its run", note);
    return cli_launch_agree(job->options->launch, list.at, list.count);
}
