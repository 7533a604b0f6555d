/* logits_file.h - streams the logits of a text to a .npy file for `eval --logits`.
 *
 * The file is NumPy's format 1.0: a header of 128 bytes, then f32 [targets, vocabulary],
 * little-endian, in C order. Each row belongs to a counted target, in the order of the text; in
 * plain text row r holds the logits of id r + 1. numpy.load(FILE, mmap_mode="r") reads it piece by
 * piece.
 *
 * The file is written as FILE.partial-<process> and renamed when it is complete. */
#ifndef COH_CLI_LOGITS_FILE_H
#define COH_CLI_LOGITS_FILE_H

#include "cli/say.h"

typedef struct cli_logits_file {
    int descriptor; /* -1: none */
    const char *path;
    char partial[CLI_PATH_BYTES + 32];
    int64_t vocabulary;
    uint64_t row_count;
} cli_logits_file;

/* Initialises the struct as not open. */
void cli_logits_file_clear(cli_logits_file *file);

/* Opens the file under its temporary name. Checks first that there is room for `most_rows`. `path`
 * is borrowed. Fails: COH_ERR_FULL (the disk cannot hold it), COH_ERR_ARGUMENT (the path is too
 * long), COH_ERR_IO. */
coh_status cli_logits_file_open(const char *path, int64_t vocabulary, uint64_t most_rows,
                                cli_logits_file *out_file);

/* Appends the rows of `logits` [count, vocabulary] whose targets count. Allocates nothing. Fails:
 * COH_ERR_IO, also for a full disk. */
coh_status cli_logits_file_add(cli_logits_file *file, const float *logits, const int32_t *targets,
                               int64_t count);

/* Writes the header, flushes, and renames. Fails: COH_ERR_IO. */
coh_status cli_logits_file_finish(cli_logits_file *file);

/* Removes an unfinished file. Accepts one that is not open. */
void cli_logits_file_close(cli_logits_file *file);

#endif
