/* own_loop.c - a training loop of one's own, by the public interface alone: trains gpt2-nano on a
 * token file and saves a checkpoint with a note that `cohobate` reads.
 *
 *     own_loop TOKEN-FILE CHECKPOINT STEPS-OF-THE-RUN STEPS-BEFORE-THE-SAVE [WITHOUT-NOTE]
 *
 * WITHOUT-NOTE: a second checkpoint, which has none. */
#include <stdio.h>
#include <stdlib.h>

#include "cohobate/cohobate.h"

#define THEN(call) (status = status == COH_OK ? (call) : status)

static coh_training_note note;

static coh_status train(coh_engine *engine, coh_token_file *file, uint64_t steps)
{
    static int32_t tokens[4096], targets[4096];
    coh_step_result result = { .struct_bytes = sizeof(result) };
    coh_status status = coh_engine_init(engine, note.seed);
    for (uint64_t step = 0; step < steps; step++) {
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .step = step,
                                       .seed = note.seed,
                                       .learning_rate =
                                           (float)coh_schedule_rate(&note.schedule, step),
                                       .clip = (float)note.clip,
                                       .inputs = { tokens, targets } };
        for (int64_t i = 0; i < note.batch; i++)
            THEN(coh_token_file_window(file, note.seed, step * (uint64_t)note.batch + (uint64_t)i,
                                       note.sequence, tokens + i * note.sequence,
                                       targets + i * note.sequence));
        THEN(coh_engine_step(engine, &input, &result));
    }
    return status;
}

static coh_status save(coh_engine *engine, const coh_model *model, const char *path, uint64_t steps)
{
    static char text[COH_TRAINING_NOTE_BYTES];
    const coh_checkpoint_note at = { .struct_bytes = sizeof(at), .step = steps, .json = text };
    coh_status status = coh_training_note_write(&note, model, text, sizeof(text));
    return THEN(coh_engine_save(engine, path, &at));
}

int main(int count, char **arguments)
{
    coh_token_file *file = NULL;
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    coh_tokenizer *tokenizer = NULL;
    coh_model model;
    coh_graph *graph = NULL;
    coh_plan_options options;
    coh_engine_options engine_options;
    coh_plan *plan = NULL;
    coh_engine *engine = NULL;
    if (count != 5 && count != 6)
        return 2;
    const uint64_t steps = strtoull(arguments[4], NULL, 10);
    coh_training_note_init(&note);
    note.steps = note.schedule.schedule_steps = strtoull(arguments[3], NULL, 10);
    note.schedule.warmup_steps = 1;
    note.batch = 4;
    note.micro_batch = 2;
    note.sequence = 16;
    coh_status status = coh_token_file_open(arguments[1], &file);
    THEN(coh_token_file_facts_get(file, &facts));
    THEN(coh_tokenizer_open("bytes", &tokenizer));
    if (status == COH_OK) {
        note.data_hash = facts.hash;
        note.tokenizer_identity = coh_tokenizer_identity(tokenizer);
    }
    snprintf(note.data, sizeof(note.data), "%s", arguments[1]);
    THEN(coh_model_preset("gpt2-nano", 257, &model));
    THEN(coh_model_train_graph(&model, note.micro_batch, note.sequence, &graph));
    coh_plan_options_init(&options);
    options.microbatch_count = (int32_t)(note.batch / note.micro_batch);
    coh_engine_options_init(&engine_options);
    engine_options.weight_decay = (float)note.weight_decay;
    THEN(coh_plan_create(graph, &options, &plan));
    THEN(coh_engine_create(plan, &engine_options, &engine));
    THEN(train(engine, file, steps));
    THEN(save(engine, &model, arguments[2], steps));
    if (count == 6) {
        const coh_checkpoint_note bare = { .struct_bytes = sizeof(bare), .step = steps };
        THEN(coh_engine_save(engine, arguments[5], &bare));
    }
    if (status != COH_OK)
        fprintf(stderr, "own_loop: %s\n", coh_last_error());
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    coh_tokenizer_close(tokenizer);
    coh_token_file_close(file);
    return coh_status_exit_code(status);
}
