/* Ends a resumed run of which no step is left. The one idea: a kill after the last save leaves
 * little undone, for which nothing must be loaded: the link to the best checkpoint, old
 * checkpoints, the record of the end. So a loop that resumes until it succeeds ends, also if it
 * begins once more. Next: job.c finds out that nothing is left; run_folder.c. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/launch.h"
#include "cli/room.h"
#include "cli/train.h"
#include "report/run.h"

void cli_train_add_saved(const cli_run *run, uint64_t hash, cli_line *line)
{
    if (run->saved_step == run->done_steps)
        cli_line_add(line, "saved:  %s/step-%" PRIu64 "\n", run->folder.path, run->saved_step);
    if (run->folder.keeps_best && run->folder.best_loss < INFINITY)
        cli_line_add(line, "best:   %s/step-%" PRIu64 ", validation loss %.4f\n", run->folder.path,
                     run->folder.best_step, run->folder.best_loss);
    if (run->ended)
        cli_line_add(line,
                     "ended:  %" PRIu64 " validation%s in a row without a lower loss"
                     " (--stop-after-worse)\n",
                     run->job.recipe.stop_after_worse,
                     run->job.recipe.stop_after_worse == 1 ? "" : "s");
    cli_line_add(line, "hash:   %016" PRIx64 "\n", hash);
}

void cli_train_add_saved_json(const cli_run *run, uint64_t hash, cli_line *line)
{
    const cli_run_folder *folder = &run->folder;
    cli_line_add_json(line,
                      "'step': %" PRIu64 ", 'stopped': %i, 'hash': '%016" PRIx64
                      "', 'run_folder': %s, 'ended_early': %i",
                      run->done_steps, run->stopped, hash, folder->path, run->ended);
    if (folder->keeps_best && folder->best_step != UINT64_MAX)
        cli_line_add_json(line, "'best_step': %" PRIu64 ", 'best_validation_loss': %.17g",
                          folder->best_step, folder->best_loss);
}

/* Records the end, unless the run did. Without a run.json there is no place for it. */
static void record_end(const cli_run *run)
{
    report_run record;
    if (report_run_read_facts(run->folder.path, &record) != COH_OK)
        return;
    if (!record.facts.ended_how[0])
        cli_record_end(run->folder.path, run->ended ? "early" : "finished", run->done_steps, "");
    report_run_close(&record);
}

static coh_status clean_folder(cli_run *run)
{
    char path[CLI_PATH_BYTES];
    const cli_recipe *recipe = &run->job.recipe;
    CLI_TRY(cli_room_folder(&run->job, path));
    if (!path[0])
        return COH_OK;
    CLI_TRY(cli_run_folder_open(path, run->options, (int64_t)recipe->keep, run->done_steps,
                                &run->folder));
    run->folder.keeps_best |= run->options->keep_best != 0;
    cli_run_folder_find_best(&run->folder, recipe->validation_hash);
    cli_run_folder_prune(&run->folder);
    run->saved_step = run->done_steps;
    record_end(run);
    return COH_OK;
}

static void say_nothing_is_left(const cli_run *run)
{
    const char *path = run->job.weights.facts.path;
    if (run->ended)
        cli_note("note: %s is where --stop-after-worse %" PRIu64
                 " ended the run: nothing is left to train; a larger one goes on",
                 path, run->job.recipe.stop_after_worse);
    else
        cli_note("note: %s is the last step of the run: nothing is left to train; --steps %" PRIu64
                 " or more goes on",
                 path, run->done_steps + 1);
}

coh_status cli_train_end_done(cli_run *run)
{
    cli_line line;
    const coh_checkpoint_facts *facts = &run->job.weights.facts;
    run->done_steps = facts->step;
    run->saved_step = UINT64_MAX;
    run->ended = run->job.ended_early;
    if (run->options->launch && run->options->launch->rank > 0)
        return COH_OK;
    CLI_TRY(clean_folder(run));
    say_nothing_is_left(run);
    cli_line_clear(&line);
    if (!run->options->json) {
        cli_train_add_saved(run, facts->hash, &line);
        return cli_prose_write(STDOUT_FILENO, line.text);
    }
    cli_line_add(&line, "{");
    cli_train_add_saved_json(run, facts->hash, &line);
    cli_line_add(&line, "}\n");
    return cli_write(STDOUT_FILENO, line.text, line.used);
}
