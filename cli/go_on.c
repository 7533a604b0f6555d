/* The last sentence of a run that ended before its last step was saved. The one idea: it says which
 * steps are lost, which checkpoint remains, and the command that continues from there. Next:
 * train.h, train_loop.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/launch.h"
#include "cli/stop.h"
#include "cli/train.h"

/* A sentence of the library is cut at 1,024 bytes; this part of it is for other words. */
enum { SENTENCE_BYTES = 1024, OTHER_WORDS_BYTES = 124 };

/* The newest checkpoint from which the run can go on. */
typedef struct remainder_point {
    int is_there;
    int is_new; /* this command has saved it: its note has all that this command changed */
    uint64_t step;
    char path[CLI_PATH_BYTES];
} remainder_point;

static remainder_point newest_checkpoint(const cli_run *run)
{
    remainder_point point = { .step = run->job.first_step };
    if (run->saved_step != UINT64_MAX && run->saved_step > run->job.first_step) {
        point.is_there = point.is_new = 1;
        point.step = run->saved_step;
        (void)cli_run_folder_step_path(&run->folder, point.step, point.path);
    } else if (run->job.resumed) {
        point.is_there = 1;
        snprintf(point.path, sizeof(point.path), "%s", run->job.weights.facts.path);
    }
    return point;
}

/* Adds the command that continues. Prints it by itself if a sentence with `used_bytes` more has no
 * room for it. */
static void add_command(const cli_run *run, size_t used_bytes, cli_line *line)
{
    cli_line command;
    cli_line_clear(&command);
    cli_line_add_word(&command, run->folder.path);
    cli_options_add_again(run->options, 1, &command);
    if (used_bytes + line->used + command.used + OTHER_WORDS_BYTES <= SENTENCE_BYTES) {
        cli_line_add(line, " with: cohobate train --resume %s", command.text);
        return;
    }
    cli_note("cohobate train --resume %s", command.text);
    cli_line_add(line, " with the command above");
}

coh_status cli_train_stopped(const cli_run *run)
{
    cli_line line;
    if (!run->folder.path[0])
        return cli_fail(COH_ERR_STOPPED,
                        "stopped after step %" PRIu64
                        "; nothing was kept (--save none): it cannot go on from here",
                        run->done_steps);
    cli_line_clear(&line);
    add_command(run, 0, &line);
    return cli_fail(COH_ERR_STOPPED, "stopped after step %" PRIu64 " of %" PRIu64 "; go on%s",
                    run->done_steps, run->job.recipe.steps, line.text);
}

void cli_train_say_at_once(const cli_run *run)
{
    static char said[SENTENCE_BYTES + OTHER_WORDS_BYTES]; /* the handler reads it */
    cli_line command;
    if (!run->folder.path[0])
        return;
    cli_line_clear(&command);
    cli_line_add_word(&command, run->folder.path);
    cli_options_add_again(run->options, 1, &command);
    if (command.used > SENTENCE_BYTES)
        return;
    snprintf(
        said, sizeof(said),
        "\ncohobate train: stopped at once; the last checkpoint is whole; go on with: cohobate "
        "train --resume %.1024s\n",
        command.text);
    cli_stop_say_kept(said);
}

coh_status cli_train_failed(const cli_run *run, coh_status status)
{
    char why[SENTENCE_BYTES];
    cli_line line;
    const remainder_point point = newest_checkpoint(run);
    const int is_mendable = status == COH_ERR_IO || status == COH_ERR_DEVICE ||
                            status == COH_ERR_MEMORY || status == COH_ERR_CORRUPT;
    const int is_lost = run->done_steps > point.step;
    const int is_saved = run->failed_outside && point.is_new && !is_lost;
    if (!(is_mendable || run->failed_outside) || !run->folder.path[0] ||
        !(is_lost || point.is_there))
        return status;
    snprintf(why, sizeof(why), "%s", coh_last_error());
    cli_line_clear(&line);
    if (run->done_steps == point.step + 1)
        cli_line_add(&line, "the result of step %" PRIu64 " is lost: ", run->done_steps);
    else if (is_lost)
        cli_line_add(&line,
                     "the result of steps %" PRIu64 " to %" PRIu64 " is lost: ", point.step + 1,
                     run->done_steps);
    else if (is_saved)
        cli_line_add(&line, "step %" PRIu64 " is saved: ", point.step);
    if (is_saved && (status == COH_ERR_NUMBER || point.step == run->job.recipe.steps)) {
        cli_line_add(&line, "%s", point.path); /* the same command would end as this one did */
    } else if (point.is_new) {
        cli_line_add(&line, "go on from %s", point.path);
        add_command(run, strlen(why), &line);
    } else if (point.is_there) {
        cli_line_add(&line, "the same command continues from %s", point.path);
    } else {
        cli_line_add(&line, "start again%s",
                     run->job.recipe.save_every == 0 ? ", with --save-every N to save on the way"
                                                     : "");
    }
    cli_launch_keep_words(run->options->launch, line.text);
    return cli_fail(status, "%s; %s", why, line.text);
}
