/* small_file.h - reads small system files: /proc, /sys, cgroups.
 *
 * No stdio, no allocation; any thread. `root` is put before the path: "" for the machine itself, a
 * test's own folder in tests. */
#ifndef COH_BASE_SMALL_FILE_H
#define COH_BASE_SMALL_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Reads root + path + leaf into `text`, terminated and cut at text_bytes - 1. Returns 1, or 0 if
 * the file cannot be read or is empty; `text` is then "". */
int coh_small_file_read(const char *root, const char *path, const char *leaf, char *text,
                        size_t text_bytes);

/* Finds the number after `key` at the beginning of a line. Returns 0 if there is none. */
int coh_small_file_number(const char *text, const char *key, uint64_t *out_number);

#endif
