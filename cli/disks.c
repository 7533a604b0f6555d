/* The folders of --disk. The one idea: a list of one folder and a list of eight take the same
 * path; only what is printed differs. Next: disks.h; offload/disks.c, which divides the store. */
#include "cli/disks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report/format.h"

/* The most files of a checkpoint: its folder, weights, frozen ones, hashes, manifest, and four
 * streams of states. Of the records: the run's folder, lock, plan, run.json, steps, trace, the link
 * to the best, and one that takes the place of another. Of tokens: for training and validation. */
enum { CHECKPOINT_FILES = 9, RECORD_FILES = 8, TOKEN_FILES = 2 };

void cli_disks_list(const cli_options *options, cli_disks *out_disks)
{
    *out_disks = (cli_disks){ .count = (uint32_t)options->disk_count };
    for (int32_t i = 0; i < options->disk_count; i++)
        out_disks->of[i] =
            (coh_disk){ .folder = options->disk[i].folder, .bytes = options->disk[i].bytes };
}

void cli_disks_add(const cli_options *options, const char *before, const char *up_to,
                   cli_line *line)
{
    for (int32_t i = 0; i < options->disk_count; i++) {
        const cli_disk *disk = &options->disk[i];
        cli_line_add(line, "%s%s", before, disk->folder);
        if (up_to && disk->bytes != UINT64_MAX)
            cli_line_add(line, "%s%s", up_to, cli_size(disk->bytes).at);
    }
}

coh_status cli_disks_check(cli_options *options)
{
    cli_disks disks;
    uint32_t drives;
    cli_disks_list(options, &disks);
    if (disks.count < 2)
        return COH_OK;
    for (uint32_t i = 0; i < disks.count; i++)
        if (disks.of[i].bytes < COH_DISK_UNIT_BYTES)
            return cli_fail(COH_ERR_ARGUMENT,
                            "--disk %s:%s holds nothing: each of several folders holds a multiple "
                            "of %s; give at least that, or leave the folder out",
                            disks.of[i].folder, cli_size_whole(disks.of[i].bytes).at,
                            cli_size_whole(COH_DISK_UNIT_BYTES).at);
    CLI_TRY(coh_disks_check(disks.of, disks.count, &drives));
    if (drives < disks.count)
        cli_note_choice("note: the %" PRIu32 " folders are on %" PRIu32
                        " file system%s: folders on one"
                        " drive are not faster than one of them",
                        disks.count, drives, drives == 1 ? "" : "s");
    options->drive_count = (int32_t)drives;
    return COH_OK;
}

coh_status cli_disks_preflight(const cli_disks *disks, const cli_room *room)
{
    coh_space_item items[COH_DISKS_MOST + 3];
    uint64_t shares[COH_DISKS_MOST] = { 0 };
    uint32_t item_count = 0;
    char what[48];
    if (room->store_bytes > 0 && disks->count > 0)
        CLI_TRY(coh_disks_share(disks->of, disks->count, room->store_bytes, shares));
    for (uint32_t i = 0; i < disks->count; i++)
        if (shares[i] > 0)
            items[item_count++] =
                (coh_space_item){ disks->of[i].folder,
                                  disks->count > 1 ? "a part of the working store" : CLI_STORE_ITEM,
                                  shares[i], 1 };
    snprintf(what, sizeof(what), "%" PRIu64 " " CLI_CHECKPOINT_ITEM "%s", room->checkpoint_count,
             room->checkpoint_count == 1 ? "" : "s");
    if (room->run_folder)
        items[item_count++] = (coh_space_item){ room->run_folder, what, room->checkpoint_bytes,
                                                room->checkpoint_count * CHECKPOINT_FILES };
    if (room->run_folder && room->record_bytes > 0)
        items[item_count++] = (coh_space_item){ room->run_folder, "records of steps",
                                                room->record_bytes, RECORD_FILES };
    if (room->token_folder && room->token_bytes > 0)
        items[item_count++] = (coh_space_item){ room->token_folder,
                                                room->token_folder == room->run_folder
                                                    ? "tokens, estimated"
                                                    : "tokens, in TMPDIR, estimated",
                                                room->token_bytes, TOKEN_FILES };
    return coh_space_check(items, item_count);
}

coh_status cli_disks_measure(cli_disks *disks, uint64_t store_bytes)
{
    if (disks->count < 2 || store_bytes < COH_DISK_WORTH_BYTES || disks->of[0].bytes_per_s > 0)
        return COH_OK;
    for (uint32_t i = 0; i < disks->count; i++) {
        uint64_t room;
        CLI_TRY(coh_space_free_bytes(disks->of[i].folder, &room));
        if (room < COH_DISK_WORTH_BYTES)
            return COH_OK;
    }
    return coh_disks_measure(disks->of, disks->count);
}

/* Notes a limit that makes the drives slower together than their rates allow. */
static void say_narrow(const cli_disks *disks, const uint64_t *shares, uint64_t store_bytes)
{
    double sum = 0, together = 0;
    uint32_t slowest = 0;
    for (uint32_t i = 0; i < disks->count; i++) {
        const double rate = disks->of[i].bytes_per_s;
        const double store = shares[i] > 0 ? rate / (double)shares[i] * (double)store_bytes : 0;
        sum += rate;
        if (store > 0 && (together == 0 || store < together)) {
            together = store;
            slowest = i;
        }
    }
    if (together < 0.9 * sum)
        cli_note_choice("note: limits of --disk leave %s more than its share: the drives reach %s/s"
                        " together, without limits %s/s",
                        disks->of[slowest].folder, cli_size((uint64_t)together).at,
                        cli_size((uint64_t)sum).at);
}

coh_status cli_disks_describe(const cli_disks *disks, uint64_t store_bytes, double written_per_day,
                              cli_line *line)
{
    uint64_t shares[COH_DISKS_MOST];
    if (disks->count < 2 || store_bytes == 0)
        return COH_OK;
    CLI_TRY(coh_disks_share(disks->of, disks->count, store_bytes, shares));
    for (uint32_t i = 0; i < disks->count; i++) {
        const double part = (double)shares[i] / (double)store_bytes;
        cli_line_add(line, "%s %s: %s, %.0f %% of the working store",
                     i == 0 ? "disks: " : "       ", disks->of[i].folder, cli_size(shares[i]).at,
                     100 * part);
        if (disks->of[i].bytes_per_s > 0)
            cli_line_add(line, ", %s/s measured", cli_size((uint64_t)disks->of[i].bytes_per_s).at);
        if (written_per_day > 0)
            cli_line_add(line, ", %s written a day", report_written(part * written_per_day).at);
        cli_line_add(line, "\n");
    }
    say_narrow(disks, shares, store_bytes);
    return COH_OK;
}
