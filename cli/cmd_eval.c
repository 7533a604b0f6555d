/* cohobate eval: computes the loss of a text over windows (score.h), and with --logits writes its
 * logits. Next: inference.c opens the model, score.c runs the windows. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/budget.h"
#include "cli/commands.h"
#include "cli/data.h"
#include "cli/dtype.h"
#include "cli/inference.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/score.h"
#include "cli/stop.h"

enum {
    CONTEXT_MOST = 4096,  /* default maximum of a window, in tokens */
    FOLDER_TOKENS = 2048, /* of a folder's micro-batch: enough for efficient matrix products */
    FOLDER_MICRO_BATCH_MOST = 8
};

/* ---- the file of --logits ---- */

/* A .npy file of NumPy's format 1.0, for --logits: a header of 128 bytes, then f32 [targets,
 * vocabulary], little-endian, in C order. Each row belongs to a counted target, in the order of the
 * text; in plain text row r holds the logits of id r + 1. The header is written last, when the
 * number of rows is known, and then the file is renamed from FILE.partial. */
typedef struct logits_file {
    int descriptor; /* -1: none */
    const char *path;
    char partial[CLI_PATH_BYTES + 32];
    int64_t vocabulary;
    uint64_t row_count;
} logits_file;

enum { HEADER_BYTES = 128, PREFIX_BYTES = 10 };

/* Reports a failed write, with errno's reason. */
static coh_status write_failed(const logits_file *file)
{
    return cli_fail(COH_ERR_IO, "--logits %s cannot be written: %s: nothing of it is kept; %s",
                    file->path, strerror(errno),
                    errno == EFBIG ? "raise the limit of file sizes (ulimit -f)"
                                   : "give another place");
}

/* The folder that contains `path`; "." if it names none. */
static void name_folder(const char *path, char *out_folder)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash ? (size_t)(slash - path) + (slash == path) : 0;
    snprintf(out_folder, CLI_PATH_BYTES, "%.*s", slash ? (int)length : 1, slash ? path : ".");
}

/* Checks that there is room for `most_rows`, and opens the file under its temporary name. */
static coh_status open_rows(const char *path, int64_t vocabulary, uint64_t most_rows,
                            logits_file *out_file)
{
    char folder[CLI_PATH_BYTES];
    if (strlen(path) >= CLI_PATH_BYTES)
        return cli_fail(COH_ERR_ARGUMENT, "--logits takes a path of less than %d bytes, not of %zu",
                        CLI_PATH_BYTES, strlen(path));
    name_folder(path, folder);
    const coh_space_item item = { .folder = folder,
                                  .what = "--logits",
                                  .files = 1,
                                  .bytes = HEADER_BYTES +
                                           most_rows * (uint64_t)vocabulary * sizeof(float) };
    CLI_TRY(coh_space_check(&item, 1));
    out_file->path = path;
    out_file->vocabulary = vocabulary;
    const coh_status status =
        coh_partial_open(path, out_file->partial, sizeof(out_file->partial), &out_file->descriptor);
    if (status != COH_OK)
        return cli_blame(status, "--logits");
    if (lseek(out_file->descriptor, HEADER_BYTES, SEEK_SET) < 0)
        return write_failed(out_file);
    return COH_OK;
}

/* Appends the rows of `logits` [count, vocabulary] whose targets count. Allocates nothing. */
static coh_status add_rows(logits_file *file, const float *logits, const int32_t *targets,
                           int64_t count)
{
    const size_t row_bytes = (size_t)file->vocabulary * sizeof(float);
    for (int64_t begin = 0, end; begin < count; begin = end) {
        for (end = begin; end < count && targets[end] >= 0; end++)
            ;
        if (end > begin && cli_write(file->descriptor, logits + begin * file->vocabulary,
                                     (size_t)(end - begin) * row_bytes) != COH_OK)
            return write_failed(file);
        file->row_count += (uint64_t)(end - begin);
        end += end == begin; /* skips a target that does not count */
    }
    return COH_OK;
}

/* Adds "\x93NUMPY", version 1.0, the length of the rest, and a Python dictionary padded with blanks
 * and ended by a newline. */
static int add_header(const logits_file *file)
{
    char header[HEADER_BYTES];
    memset(header, ' ', sizeof(header));
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)(HEADER_BYTES - PREFIX_BYTES);
    header[9] = 0;
    const int length =
        snprintf(header + PREFIX_BYTES, sizeof(header) - PREFIX_BYTES,
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRIu64 ", %" PRId64 "), }",
                 file->row_count, file->vocabulary);
    header[PREFIX_BYTES + length] = ' ';
    header[HEADER_BYTES - 1] = '\n';
    return lseek(file->descriptor, 0, SEEK_SET) == 0 &&
           cli_write(file->descriptor, header, sizeof(header)) == COH_OK;
}

static coh_status finish_rows(logits_file *file)
{
    if (!add_header(file) || (fsync(file->descriptor) != 0 && errno != EINVAL))
        return write_failed(file);
    if (rename(file->partial, file->path) != 0)
        return write_failed(file);
    close(file->descriptor); /* its lock has kept other writers off the name */
    file->descriptor = -1;
    return coh_name_flush(file->path);
}

/* Removes an unfinished file. */
static void close_rows(logits_file *file)
{
    if (file->descriptor < 0)
        return;
    (void)unlink(file->partial);
    close(file->descriptor);
    file->descriptor = -1;
}

/* ---- plan and data ---- */

typedef struct evaluation {
    cli_inference inference;
    cli_data data;
    int64_t sequence, stride, micro_batch;
    int32_t *tokens; /* one micro-batch, followed by its targets and positions */
    cli_score score;
    cli_score_result result;
    coh_tensor logits; /* with --logits: a graph output */
    logits_file rows;  /* of --logits */
    cli_scoring scoring;
    double seconds; /* of the windows only */
} evaluation;

/* The micro-batch affects rounding, so it depends on the model and the sequence, never on the
 * budget. That of a run is made for windows of its sequence. */
static int64_t default_micro_batch(const evaluation *run)
{
    int64_t most = FOLDER_TOKENS / run->sequence;
    if (run->inference.weights.is_checkpoint && run->sequence <= run->inference.recipe.sequence)
        return run->inference.recipe.micro_batch;
    if (most > FOLDER_MICRO_BATCH_MOST)
        most = FOLDER_MICRO_BATCH_MOST;
    return most > 1 ? most : 1;
}

static coh_status plan_with(evaluation *run, int64_t micro_batch)
{
    cli_inference *inference = &run->inference;
    coh_graph_destroy(inference->graph);
    inference->graph = NULL;
    run->micro_batch = micro_batch;
    if (inference->options->logits)
        CLI_TRY(coh_model_logits_graph(&inference->model, micro_batch, run->sequence,
                                       &inference->graph, &run->logits));
    else
        CLI_TRY(coh_model_train_graph(&inference->model, micro_batch, run->sequence,
                                      &inference->graph));
    return cli_inference_plan(inference);
}

/* Names a micro-batch that fits (0: none does) before the other changes of a refusal. */
static void name_micro_batch(coh_refusal *refusal, int64_t micro_batch)
{
    coh_change changes[COH_REFUSAL_CHANGES];
    int32_t count = 0;
    if (micro_batch > 0)
        changes[count++] = (coh_change){ .kind = COH_CHANGE_LOWER_MICROBATCH,
                                         .tier = -1,
                                         .microbatch = micro_batch };
    for (int32_t i = 0; i < refusal->change_count && count < COH_REFUSAL_CHANGES; i++)
        if (refusal->changes[i].kind != COH_CHANGE_LOWER_MICROBATCH)
            changes[count++] = refusal->changes[i];
    memcpy(refusal->changes, changes, (size_t)count * sizeof(changes[0]));
    refusal->change_count = count;
}

/* `wanted` was refused. Looks for a half of it, or a half of that and so on, that fits. With
 * --micro-batch auto it is used, otherwise the refusal names it. */
static coh_status take_smaller(evaluation *run, int64_t wanted)
{
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    coh_status status = COH_ERR_FULL;
    if (!coh_last_refusal(&refusal))
        return status;
    refusal.microbatch = wanted;
    while (status == COH_ERR_FULL && run->micro_batch > 1)
        status = plan_with(run, run->micro_batch / 2);
    if (status == COH_ERR_FULL && coh_last_refusal(&refusal)) {
        refusal.microbatch = run->micro_batch;
        refusal.largest_microbatch = wanted;
        name_micro_batch(&refusal, 0);
        for (int32_t i = 0; wanted > 1 && i < refusal.change_count; i++)
            refusal.changes[i].microbatch = run->micro_batch;
        return coh_refuse(&refusal);
    }
    CLI_TRY(status);
    if (!cli_micro_batch_is_auto(run->inference.options)) {
        name_micro_batch(&refusal, run->micro_batch);
        return coh_refuse(&refusal);
    }
    cli_note_choice("micro-batch %" PRId64 " -> %" PRId64
                    ": other rounding; the larger one does not fit this budget",
                    wanted, run->micro_batch);
    return COH_OK;
}

static coh_status choose_plan(evaluation *run)
{
    const int64_t given = run->inference.options->micro_batch;
    const int64_t wanted = given > 0 ? given : default_micro_batch(run);
    const coh_status status = plan_with(run, wanted);
    return status == COH_ERR_FULL ? take_smaller(run, wanted) : status;
}

/* Chooses the form of the data: a checkpoint's form, changed by given flags, so that the loss
 * equals that of the run's validation; for a folder that of the flags. */
static coh_status choose_form(const evaluation *run, cli_data_form *out_form)
{
    const cli_options *options = run->inference.options;
    if (!run->inference.weights.is_checkpoint)
        return cli_data_form_from_options(options, out_form);
    *out_form = run->inference.recipe.form;
    out_form->validation_split = 0;
    out_form->id_bytes = cli_data_id_bytes(options);
    if (!cli_data_may_hold_lines(options->data)) {
        out_form->chat = 0;
        out_form->field[0] = '\0';
    }
    return cli_data_form_override(options, out_form);
}

/* Does the run of the checkpoint leave out bad lines? */
static int is_noted_to_skip(const evaluation *run)
{
    return run->inference.weights.is_checkpoint && run->inference.recipe.skip_bad != 0;
}

static coh_status open_data(evaluation *run, int64_t vocabulary)
{
    const cli_options *options = run->inference.options;
    cli_data_form form;
    CLI_TRY(choose_form(run, &form));
    CLI_TRY(cli_data_check_id_bytes(options));
    const cli_data_source source = { .tokenizer = run->inference.tokenizer,
                                     .tokenizer_path = run->inference.recipe.tokenizer,
                                     .vocabulary = vocabulary,
                                     .sequence = run->sequence,
                                     .positions =
                                         coh_model_size_get(&run->inference.model).positions,
                                     .form = &form,
                                     .skips_bad = options->skip_bad || is_noted_to_skip(run),
                                     .thread_count = cli_budget_thread_count(options),
                                     .is_form_given = cli_recipe_form_is_given(options) };
    /* Text is tokenized into a folder under TMPDIR; a stop in normal order removes it. */
    static const char at_once[] =
        "\ncohobate eval: stopped at once; a folder cohobate-tokens-* may be left under TMPDIR, "
        "and the next one removes it\n";
    CLI_TRY(cli_stop_install(0, at_once, at_once));
    CLI_TRY(cli_data_open(&source, "data", options->data, NULL, NULL, &run->data, NULL));
    cli_stop_uninstall();
    return cli_stop_check("before anything was measured");
}

/* The windows without --sequence: as long as the weights were trained for. Documents that are
 * aligned for the run's sequence stay so: longer windows would hold more padding, not more text. */
static int64_t default_sequence(const evaluation *run)
{
    const cli_inference *inference = &run->inference;
    const cli_recipe *recipe = &inference->recipe;
    const int64_t trained = inference->trained_tokens;
    const int64_t most = trained < CONTEXT_MOST ? trained : CONTEXT_MOST;
    const int is_aligned = cli_given(inference->options, CLI_FLAG_DOCUMENTS)
                               ? inference->options->documents != 0
                               : recipe->form.aligned != 0;
    if (!inference->weights.is_checkpoint)
        return most;
    return recipe->steps == 0 || is_aligned || recipe->sequence > most ? recipe->sequence : most;
}

/* Says which windows were chosen, if others are possible. */
static void say_windows(const evaluation *run, int64_t positions)
{
    const cli_inference *inference = &run->inference;
    const int is_checkpoint = inference->weights.is_checkpoint;
    if (is_checkpoint && run->sequence > inference->recipe.sequence)
        cli_note_choice("windows of %s, for which the weights were trained before the run, whose "
                        "own have %" PRId64 ": --sequence changes it",
                        cli_count((uint64_t)run->sequence, "token").at, inference->recipe.sequence);
    else if (run->sequence < positions)
        cli_note_choice(
            "windows of %s, %s; the model has %" PRId64 " positions: --sequence changes it",
            cli_count((uint64_t)run->sequence, "token").at,
            !is_checkpoint                ? "the most by default"
            : inference->recipe.steps > 0 ? "as the run was trained"
                                          : "the default, as the checkpoint names no length",
            positions);
}

/* Chooses --sequence and --stride, else their defaults. */
static coh_status choose_windows(evaluation *run)
{
    const cli_inference *inference = &run->inference;
    const cli_options *options = inference->options;
    const int64_t positions = coh_model_size_get(&inference->model).positions;
    const int is_given = cli_given(options, CLI_FLAG_SEQUENCE);
    run->sequence = is_given ? options->sequence : default_sequence(run);
    run->stride = cli_given(options, CLI_FLAG_STRIDE) ? options->stride : run->sequence;
    if (run->sequence > positions) {
        cli_weights_say(&inference->model); /* a window may cover fewer positions */
        return cli_fail(COH_ERR_ARGUMENT,
                        "--sequence %" PRId64 " is longer than the model's %" PRId64
                        " positions: lower it",
                        run->sequence, positions);
    }
    if (!is_given)
        say_windows(run, positions);
    return COH_OK;
}

/* Called after each micro-batch with --logits. */
static coh_status keep_logits(void *context, const int32_t *targets, int64_t count)
{
    evaluation *run = context;
    const void *logits;
    size_t bytes;
    CLI_TRY(cli_stop_check("while logits were written: nothing of them is kept"));
    CLI_TRY(coh_engine_output(run->inference.engine, run->logits, &logits, &bytes));
    if (bytes < (size_t)count * (size_t)run->rows.vocabulary * sizeof(float))
        return cli_fail(COH_ERR_INTERNAL, "the model gave %zu bytes of logits", bytes);
    return add_rows(&run->rows, logits, targets, count);
}

static void show(void *context, uint64_t done, uint64_t total, int64_t counted, double loss)
{
    evaluation *run = context;
    cli_scoring_show(&run->scoring, cli_seconds_now(), done, total, counted, loss);
}

static coh_status open_logits(evaluation *run)
{
    static const char at_once[] =
        "\ncohobate eval: stopped at once; a file of --logits, *.partial, may be left: the next "
        "command that writes it removes it\n";
    CLI_TRY(cli_stop_install(0, at_once, at_once));
    run->score.after = keep_logits;
    return open_rows(run->inference.options->logits,
                     coh_model_size_get(&run->inference.model).vocabulary,
                     run->data.facts.token_count - 1, &run->rows);
}

/* A token attends over its own document if the checkpoint's run had separate documents; else, for
 * other weights and for text of another form, if the data marks them. */
static void choose_attention(evaluation *run)
{
    cli_inference *inference = &run->inference;
    const int marks = run->data.facts.marks_documents;
    int *separate = &inference->model.separate_documents;
    *separate = marks;
    if (inference->weights.is_checkpoint && !cli_given(inference->options, CLI_FLAG_DOCUMENTS))
        *separate = inference->recipe.form.aligned == COH_DOCUMENTS_SEPARATE;
    if (inference->model.family == COH_FAMILY_OWN)
        *separate = 0;
    cli_data_say_attention(inference->options->data, marks, *separate);
}

static coh_status evaluate(evaluation *run)
{
    cli_inference *inference = &run->inference;
    const cli_options *options = inference->options;
    CLI_TRY(choose_windows(run));
    /* Evaluation drops nothing, but kinds with dropout round differently: with them the loss has
     * the same digits as in the run's validation. */
    inference->model.dropout = inference->recipe.dropout;
    inference->model.lora_dropout = 0; /* its kind copies here: the same bits without it */
    CLI_TRY(open_data(run, coh_model_size_get(&inference->model).vocabulary));
    choose_attention(run);
    CLI_TRY(
        cli_score_init(&run->data, "data", options->data, run->sequence, run->stride, &run->score));
    CLI_TRY(choose_plan(run));
    const size_t ids = (size_t)run->micro_batch * (size_t)run->sequence;
    run->tokens = calloc(3 * ids, sizeof(int32_t));
    if (!run->tokens)
        return cli_fail(COH_ERR_MEMORY, "no memory for a micro-batch of %zu tokens", ids);
    run->score.micro_batch = run->micro_batch;
    run->score.batch = (cli_batch){ run->tokens, run->tokens + ids, run->tokens + 2 * ids };
    if (options->logits)
        CLI_TRY(open_logits(run));
    CLI_TRY(cli_inference_start(inference));
    cli_choices_release();
    run->score.passed = show;
    run->score.context = run;
    cli_scoring_begin("eval", &run->scoring);
    run->seconds = cli_seconds_now();
    const coh_status status =
        cli_score_run(&run->score, inference->engine, run->score.total, &run->result);
    run->seconds = cli_seconds_now() - run->seconds;
    cli_scoring_end(&run->scoring);
    CLI_TRY(status);
    if (run->result.counted == 0)
        return cli_fail(COH_ERR_CORRUPT, "--data holds no token that counts (padding does not, nor "
                                         "what the assistant did not say): give other data");
    if (!isfinite(run->result.loss))
        return cli_fail(COH_ERR_NUMBER,
                        "the loss over %s is not finite: the model's numbers overflow, or its "
                        "weights are far out of range: give an earlier checkpoint, or --dtype f32",
                        cli_count((uint64_t)run->result.counted, "token").at);
    return options->logits ? finish_rows(&run->rows) : COH_OK;
}

static void add_json(const evaluation *run, int is_bytes, cli_line *line)
{
    const cli_score_result *result = &run->result;
    cli_line_add_json(line, "{'loss': %.17g, 'perplexity': %.17g", result->loss, exp(result->loss));
    if (is_bytes)
        cli_line_add_json(line, "'bits_per_byte': %.17g", result->loss / log(2));
    cli_line_add_json(line,
                      "'tokens_per_second': %.17g, 'tokens': %" PRId64 ", 'windows': %" PRIu64
                      ", 'sequence': %" PRId64 ", 'stride': %" PRId64 ", 'micro_batch': %" PRId64
                      ", 'dtype': %s, 'step': %" PRIu64 "}",
                      (double)result->counted / run->seconds, result->counted, result->window_count,
                      run->sequence, run->stride, run->micro_batch,
                      cli_dtype_name(coh_model_size_get(&run->inference.model).dtype),
                      run->inference.weights.facts.step);
}

/* A run that diverged has a loss of hundreds of nats, whose perplexity has hundreds of digits. */
static void add_perplexity(double perplexity, cli_line *line)
{
    if (isinf(perplexity))
        cli_line_add(line, ", perplexity above 1e308");
    else
        cli_line_add(line, perplexity < 1e9 ? ", perplexity %.4f" : ", perplexity %.4e",
                     perplexity);
}

static void add_text(const evaluation *run, int is_bytes, cli_line *line)
{
    const cli_score_result *result = &run->result;
    cli_line_add(line, "loss %.6f nats", result->loss);
    add_perplexity(exp(result->loss), line);
    if (is_bytes)
        cli_line_add(line, ", %.4f bits per byte", result->loss / log(2));
    cli_line_add(line,
                 " over %s in %s of %" PRId64 ", stride %" PRId64 ", micro-batch %" PRId64
                 ", %.0f tokens/s",
                 cli_count((uint64_t)result->counted, "token").at,
                 cli_count(result->window_count, "window").at, run->sequence, run->stride,
                 run->micro_batch, (double)result->counted / run->seconds);
}

static void print_result(const evaluation *run)
{
    /* Ids of another program are not known to be bytes. */
    const int is_bytes =
        strcmp(run->inference.recipe.tokenizer, "bytes") == 0 && !run->data.facts.is_raw;
    cli_line line;
    cli_line_clear(&line);
    if (run->inference.options->json)
        add_json(run, is_bytes, &line);
    else
        add_text(run, is_bytes, &line);
    cli_print("%s", line.text);
}

coh_status cli_eval(const cli_options *options)
{
    evaluation run = { .rows.descriptor = -1 };
    if (!options->data)
        return cli_fail(COH_ERR_ARGUMENT, "--data FILE is missing: the text to measure on");
    CLI_TRY(cli_output_check(options));
    cli_choices_hold();
    CLI_TRY(cli_inference_open(options, &run.inference));
    coh_status status = evaluate(&run);
    if (status == COH_OK)
        print_result(&run);
    free(run.tokens);
    close_rows(&run.rows);
    cli_data_close(&run.data);
    cli_inference_close(&run.inference);
    return status;
}
