/* tensorboard.h - writes the curves of a run as an event file for TensorBoard (--tensorboard).
 *
 *     DIR/events.out.tfevents.<seconds>.<host>.<process>.0
 *         | length | crc | Event | crc | length | crc | Event | crc | ...
 *
 * A record is a TFRecord: u64 length, its checksum, a protobuf message, its checksum. Checksums are
 * masked CRC-32C. A process begins a file of its name; the file of a resumed run is later in the
 * order of names, and its first event makes TensorBoard drop the steps that it repeats.
 *
 * After cli_tensorboard_open nothing allocates; a step is one write. */
#ifndef COH_CLI_TENSORBOARD_H
#define COH_CLI_TENSORBOARD_H

#include "cli/say.h"

typedef struct cli_tensorboard {
    int descriptor;      /* -1: none */
    int has_made_folder; /* the folder did not exist */
    char folder[CLI_PATH_BYTES];
    char path[CLI_PATH_BYTES + 512];
} cli_tensorboard;

/* Makes `folder` if it does not exist (its parent must), and an event file in it, for steps after
 * `first_step`. Fails: COH_ERR_IO, and nothing is left. */
coh_status cli_tensorboard_open(const char *folder, uint64_t first_step,
                                cli_tensorboard *out_board);
void cli_tensorboard_clear(cli_tensorboard *out_board);
void cli_tensorboard_close(cli_tensorboard *board); /* accepts a cleared one */
/* Removes the file, and the folder if it was made and is empty; after close. */
void cli_tensorboard_undo(const cli_tensorboard *board);

/* A curve's name and value. */
typedef struct cli_scalar {
    const char *tag;
    double value;
} cli_scalar;
enum { CLI_SCALARS_MOST = 8, CLI_TAG_BYTES = 40 };

/* Adds an event of step `step` with `count` scalars, whole or not at all. Does nothing without a
 * file. Fails: COH_ERR_IO with errno's text; the file is closed then. */
coh_status cli_tensorboard_add(cli_tensorboard *board, uint64_t step, const cli_scalar *scalars,
                               int count);

#endif
