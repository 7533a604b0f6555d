/* input.h - checks the paths of a command line, with one table of what each flag and operand
 * requires, and whether a model's folder holds a model. Every command calls it first. */
#ifndef COH_CLI_INPUT_H
#define COH_CLI_INPUT_H

#include <sys/stat.h>

#include "cli/options.h"

/* Checks every path of `options`. A path may be a preset's or a shipped profile's name if the
 * command accepts one. Fails: COH_ERR_ARGUMENT (exit code 2): the path, or the parent folder of an
 * output, does not exist; COH_ERR_CORRUPT (4): it is of another kind, or a folder without the
 * required model; COH_ERR_IO (5): it cannot be examined, read or written. */
coh_status cli_input_check(const cli_options *options);

/* Takes an operand FILE[:TIMES] of mix apart, and checks the path. A file whose name is the whole
 * operand is read once. out_path has CLI_PATH_BYTES. Fails: as above, and COH_ERR_ARGUMENT if TIMES
 * is no number of times. */
coh_status cli_input_read_part(const char *operand, char *out_path, double *out_times);

/* Makes and removes an unnamed file in `folder`, or a named one if the file system has no unnamed
 * ones. Returns 0, or the errno of the failure; a full drive is none. */
int cli_input_probe(const char *folder);

/* Checks --disk FOLDER as train does. Fails: COH_ERR_IO: no file can be made in it. */
coh_status cli_input_check_disk(const char *folder);

/* Does the path name the file of `facts`, by whatever name? NULL and "" name none. */
int cli_input_is_file(const char *path, const struct stat *facts);

/* Does folder `path` hold a *.safetensors? */
int cli_input_has_tensors(const char *path);

#endif
