/* Adds up the drive space of a run and checks it. The one idea: train and plan ask the same
 * function, so that a plan that fits is a run that starts. Next: room.h; disks.c sums per drive. */
#include "cli/room.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>

#include "cli/budget.h"
#include "cli/progress.h"
#include "cli/record.h"
#include "cli/train.h"
#include "cohobate/refusal.h"

/* ---- what is written ---- */

/* The folder that contains a checkpoint: a resumed run continues there. */
static coh_status beside_checkpoint(const char *checkpoint, char *out_path)
{
    char *absolute = realpath(checkpoint, NULL);
    const char *last = strrchr(checkpoint, '/');
    if (!absolute && errno == ENOENT && last > checkpoint) { /* removed by its run, which goes on */
        snprintf(out_path, CLI_PATH_BYTES, "%.*s", (int)(last - checkpoint), checkpoint);
        return COH_OK;
    }
    if (!absolute)
        return cli_fail(COH_ERR_IO, "cannot find %s again: %s: give --save DIR", checkpoint,
                        strerror(errno));
    char *slash = strrchr(absolute, '/');
    snprintf(out_path, CLI_PATH_BYTES, "%.*s", slash > absolute ? (int)(slash - absolute) : 1,
             absolute);
    free(absolute);
    return COH_OK;
}

coh_status cli_room_folder(const cli_job *job, char out_path[CLI_PATH_BYTES])
{
    const cli_options *options = job->options;
    out_path[0] = '\0';
    if (options->save && strcmp(options->save, "none") == 0)
        return COH_OK;
    if (options->save && strlen(options->save) < CLI_PATH_BYTES)
        snprintf(out_path, CLI_PATH_BYTES, "%s", options->save);
    else if (options->save)
        return cli_fail(COH_ERR_ARGUMENT, "--save takes a path of 1 to %d bytes, not of %zu",
                        CLI_PATH_BYTES - 1, strlen(options->save));
    else if (job->resumed)
        return beside_checkpoint(job->weights.facts.path, out_path);
    else
        return cli_run_folder_name(job->model.name, out_path);
    return COH_OK;
}

/* Is the number of steps unknown until the text is tokenized? */
static int counts_epochs_later(const cli_job *job)
{
    return job->options->command == CLI_TRAIN && cli_given(job->options, CLI_FLAG_EPOCHS) &&
           job->data_token_count == 0;
}

/* The number of steps from the first one of the run on that `every` divides; 0: never. */
static uint64_t count_due(const cli_job *job, uint64_t every)
{
    return every > 0 ? job->recipe.steps / every - job->first_step / every : 0;
}

/* The most future saves: one every --save-every steps and the last. A save at a stop replaces the
 * last. With --stop-after-worse or --keep-best each validation may save and the run continue. */
static uint64_t save_count(const cli_job *job, const cli_run_folder *folder)
{
    const cli_recipe *recipe = &job->recipe;
    const uint64_t every = recipe->save_every;
    if (counts_epochs_later(job))
        return 1;
    const int may_save = recipe->stop_after_worse > 0 || folder->keeps_best;
    const uint64_t judged = may_save ? count_due(job, recipe->validation_every) : 0;
    return count_due(job, every) + (every == 0 || recipe->steps % every != 0) + judged;
}

static coh_status add_run_folder(const cli_job *job, cli_run_folder *folder, cli_room *room)
{
    uint64_t bytes, frozen_bytes;
    CLI_TRY(coh_engine_save_bytes(job->plan, &bytes));
    CLI_TRY(coh_engine_save_frozen_bytes(job->plan, &frozen_bytes));
    CLI_TRY(cli_record_bytes(job, &room->record_bytes));
    room->run_folder = folder->path;
    room->checkpoint_count = cli_run_folder_room_count(folder, save_count(job, folder));
    room->checkpoint_bytes =
        cli_run_folder_room_bytes(folder, room->checkpoint_count, bytes, frozen_bytes,
                                  job->resumed ? &job->weights.facts : NULL);
    room->each_bytes = folder->checkpoint_bytes;
    return COH_OK;
}

/* Adds the token file of a text that is not yet tokenized. What the text is, opening it checks. */
static void add_tokens(const cli_job *job, const cli_run_folder *folder, cli_room *room)
{
    const char *data = job->options->data;
    int is_text;
    if (!data || job->data_token_count > 0 || cli_data_is_text("data", data, &is_text) != COH_OK ||
        !is_text)
        return;
    const cli_data_source source = cli_train_data_source(job);
    room->token_folder = folder->path[0] ? folder->path : cli_data_temporary();
    room->token_bytes = cli_data_token_bytes(&source, data);
}

coh_status cli_room_find(const cli_job *job, cli_run_folder *folder, cli_room *out_room)
{
    *out_room = (cli_room){ .store_bytes = job->summary.peak_bytes[COH_TIER_DISK] *
                                           (uint64_t)cli_budget_local_ranks(job->options) };
    if (folder->path[0])
        CLI_TRY(add_run_folder(job, folder, out_room));
    add_tokens(job, folder, out_room);
    return COH_OK;
}

/* ---- a file system in memory ---- */

int cli_room_is_in_memory(const char *folder)
{
    struct statfs system;
    return statfs(folder, &system) == 0 &&
           (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
}

/* Returns the bytes of the store that lie in memory, and the first such folder. */
static uint64_t bytes_in_memory(const cli_disks *disks, const uint64_t *shares,
                                const char **out_folder)
{
    uint64_t bytes = 0;
    for (uint32_t i = disks->count; i-- > 0;)
        if (shares[i] > 0 && cli_room_is_in_memory(disks->of[i].folder)) {
            bytes += shares[i];
            *out_folder = disks->of[i].folder;
        }
    return bytes;
}

/* The main memory that the arenas of all ranks here take. */
static uint64_t arena_bytes(const cli_job *job)
{
    const coh_plan_summary *summary = &job->summary;
    const uint64_t of_rank = job->on_gpu ? cli_budget_stage_bytes(summary->chunk_bytes)
                                         : summary->peak_bytes[COH_TIER_DEVICE];
    return (of_rank + summary->peak_bytes[COH_TIER_HOST]) *
           (uint64_t)cli_budget_local_ranks(job->options);
}

/* Such a store is refused when it is opened, too, but then the arenas are touched and the text is
 * tokenized. The free space of such a file system says nothing of the memory below it. */
static coh_status check_memory(const cli_job *job, const cli_disks *disks, const cli_room *room)
{
    uint64_t shares[COH_DISKS_MOST] = { 0 };
    const char *folder = NULL;
    if (room->store_bytes == 0 || disks->count == 0)
        return COH_OK;
    CLI_TRY(coh_disks_share(disks->of, disks->count, room->store_bytes, shares));
    const uint64_t bytes = bytes_in_memory(disks, shares, &folder);
    const uint64_t arenas = arena_bytes(job);
    const uint64_t most = coh_machine_file_bytes(cli_budget_local_processes(job->options));
    if (bytes == 0 || (arenas <= most && bytes <= most - arenas))
        return COH_OK;
    return cli_fail(COH_ERR_FULL,
                    "--disk %s is a file system in memory: the working store puts %s there, the "
                    "plan takes %s of memory besides, and %s may be taken now: name a folder on a "
                    "drive",
                    folder, cli_size(bytes).at, cli_size(arenas).at, cli_size(most).at);
}

/* ---- remedies ---- */

/* A store of all that is free would be refused as soon as somebody else writes: a 64th stays. */
enum { SPARE_PART = 64, MIB = 1 << 20 };

/* Adds the flags of checkpoints that free what is short. Two is the least room of a run that saves
 * more than once, so then --keep saves none. A run without a folder has its tokens, too. */
static void add_save_flags(const cli_room *room, uint64_t short_bytes, cli_line *line)
{
    const uint64_t kept = room->checkpoint_bytes + room->record_bytes;
    const uint64_t all = kept + (room->token_folder == room->run_folder ? room->token_bytes : 0);
    const uint64_t count = room->checkpoint_count;
    const uint64_t fewer = count > 2 ? (count - 2) * room->each_bytes : 0;
    if (all < short_bytes)
        return;
    cli_line_add(line, ": save%s to another drive (--save DIR)%s",
                 fewer >= short_bytes ? " fewer checkpoints (--keep 1), or" : "",
                 kept >= short_bytes ? ", or keep nothing (--save none)" : "");
}

/* Adds what is left if neither other saves nor a smaller store would do. */
static void add_other_store(const cli_job *job, const cli_disks *disks, const cli_room *room,
                            const coh_refusal *refusal, cli_line *line)
{
    const int is_enough =
        disks->count > 1 || refusal->needed_bytes - refusal->given_bytes <= room->store_bytes;
    if (!strstr(refusal->items, CLI_STORE_ITEM))
        return;
    cli_line_add(
        line, ": put the working store on another drive (--disk DIR)%s",
        job->options->plan_file ? "" : ", or give more memory (--device-memory, --host-memory)");
    if (!is_enough)
        cli_line_add(line, ", and save to another drive, too (--save DIR)");
}

/* Returns what a smaller store would leave room for next to the other items; 0: nothing. */
static uint64_t store_most(const cli_room *room, const coh_refusal *refusal)
{
    const uint64_t others = refusal->needed_bytes - room->store_bytes;
    if (others >= refusal->given_bytes)
        return 0;
    const uint64_t most = refusal->given_bytes - others;
    return (most - most / SPARE_PART) / MIB * MIB;
}

/* Is there a plan within a store of `bytes`? A limit of disk writes needs the job's own search. */
static int has_plan(const cli_job *job, uint64_t bytes)
{
    coh_plan_options options = job->plan_options;
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    options.disk_bytes = bytes;
    if (options.disk_write_bytes_per_day == 0)
        options.search = COH_SEARCH_PROBE;
    cli_progress_begin("looking for a smaller store for", job->model.name, CLI_PROGRESS_FIRST_S);
    const coh_status status = coh_plan_estimate(job->graph, &options, &summary);
    cli_progress_end();
    return status == COH_OK;
}

/* Adds a limit of the one folder that has none: by default the fastest plan takes whatever room it
 * likes. A limit counts for all ranks together, and each rank's plan would take it alone. */
static void add_smaller_store(const cli_job *job, const cli_disks *disks, const cli_room *room,
                              const coh_refusal *refusal, cli_line *line)
{
    if (disks->count != 1 || job->options->disk[0].bytes != UINT64_MAX || job->options->plan_file ||
        cli_budget_local_ranks(job->options) > 1 || !strstr(refusal->items, CLI_STORE_ITEM))
        return;
    const uint64_t bytes = store_most(room, refusal);
    if (bytes == 0 || !has_plan(job, bytes))
        return;
    cli_line_add(line, "; or give --disk ");
    cli_line_add_word(line, disks->of[0].folder);
    cli_line_add(line, ":%s, for which there is a plan", cli_size_whole(bytes).at);
}

/* Adds the flags that need less to a refusal of free space. */
static coh_status name_remedies(const cli_job *job, const cli_disks *disks, const cli_room *room)
{
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    char why[1024];
    cli_line more;
    if (!coh_last_refusal(&refusal) || refusal.reason != COH_REFUSAL_FREE_SPACE)
        return COH_ERR_FULL; /* limits of folders */
    snprintf(why, sizeof(why), "%s", coh_last_error());
    cli_line_clear(&more);
    if (room->run_folder && strstr(refusal.items, CLI_CHECKPOINT_ITEM))
        add_save_flags(room, refusal.needed_bytes - refusal.given_bytes, &more);
    add_smaller_store(job, disks, room, &refusal, &more);
    if (more.used == 0)
        add_other_store(job, disks, room, &refusal, &more);
    if (more.used == 0)
        return coh_refuse(&refusal); /* another plan may have failed since */
    return cli_fail(COH_ERR_FULL, "%s%s", why, more.text);
}

/* ---- public functions ---- */

coh_status cli_room_check(const cli_job *job, const cli_disks *disks, const cli_room *room)
{
    CLI_TRY(check_memory(job, disks, room));
    const coh_status status = cli_disks_preflight(disks, room);
    return status == COH_ERR_FULL ? name_remedies(job, disks, room) : status;
}

coh_status cli_room_check_plan(const cli_job *job)
{
    cli_run_folder folder;
    cli_room room;
    cli_disks disks;
    char path[CLI_PATH_BYTES];
    CLI_TRY(cli_room_folder(job, path));
    cli_run_folder_clear(&folder);
    if (path[0])
        cli_run_folder_look(path, (int64_t)job->recipe.keep, &folder);
    folder.keeps_best |= job->options->keep_best != 0;
    CLI_TRY(cli_room_find(job, &folder, &room));
    cli_disks_list(job->options, &disks);
    for (uint32_t i = 0; i < disks.count && disks.count > 1; i++) { /* train measures the shares */
        uint64_t bytes;
        if (coh_space_free_bytes(disks.of[i].folder, &bytes) == COH_OK && bytes < disks.of[i].bytes)
            disks.of[i].bytes = bytes;
    }
    return cli_room_check(job, &disks, &room);
}
