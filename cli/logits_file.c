/* Writes logits to a .npy file row by row. The one idea: the header has a fixed size and is written
 * last, when the number of rows is known. Next: cmd_eval.c, the caller. */
#include "cli/logits_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_BYTES = 128, PREFIX_BYTES = 10 };

void cli_logits_file_clear(cli_logits_file *file)
{
    *file = (cli_logits_file){ .descriptor = -1 };
}

/* Reports a failed write, with errno's reason. */
static coh_status write_failed(const cli_logits_file *file)
{
    return cli_fail(COH_ERR_IO,
                    "--logits %s cannot be written: %s: nothing of it is kept; give another place",
                    file->path, strerror(errno));
}

/* The folder that contains `path`; "." if it names none. */
static void name_folder(const char *path, char *out_folder)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash ? (size_t)(slash - path) + (slash == path) : 0;
    snprintf(out_folder, CLI_PATH_BYTES, "%.*s", slash ? (int)length : 1, slash ? path : ".");
}

coh_status cli_logits_file_open(const char *path, int64_t vocabulary, uint64_t most_rows,
                                cli_logits_file *out_file)
{
    char folder[CLI_PATH_BYTES];
    cli_logits_file_clear(out_file);
    if (strlen(path) >= CLI_PATH_BYTES)
        return cli_fail(COH_ERR_ARGUMENT, "--logits takes a path of less than %d bytes, not of %zu",
                        CLI_PATH_BYTES, strlen(path));
    name_folder(path, folder);
    const coh_space_item item = { .folder = folder,
                                  .what = "--logits",
                                  .bytes = HEADER_BYTES +
                                           most_rows * (uint64_t)vocabulary * sizeof(float) };
    CLI_TRY(coh_space_check(&item, 1));
    out_file->path = path;
    out_file->vocabulary = vocabulary;
    snprintf(out_file->partial, sizeof(out_file->partial), "%s.partial-%ld", path, (long)getpid());
    out_file->descriptor = open(out_file->partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (out_file->descriptor < 0 || lseek(out_file->descriptor, HEADER_BYTES, SEEK_SET) < 0)
        return write_failed(out_file);
    return COH_OK;
}

coh_status cli_logits_file_add(cli_logits_file *file, const float *logits, const int32_t *targets,
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
static int add_header(const cli_logits_file *file)
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

coh_status cli_logits_file_finish(cli_logits_file *file)
{
    if (!add_header(file) || (fsync(file->descriptor) != 0 && errno != EINVAL))
        return write_failed(file);
    const int closed = close(file->descriptor);
    file->descriptor = -1;
    if (closed != 0 || rename(file->partial, file->path) != 0) {
        const coh_status status = write_failed(file);
        (void)unlink(file->partial);
        return status;
    }
    return coh_name_flush(file->path);
}

void cli_logits_file_close(cli_logits_file *file)
{
    if (file->descriptor < 0)
        return;
    close(file->descriptor);
    (void)unlink(file->partial);
    file->descriptor = -1;
}
