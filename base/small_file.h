/* small_file.h - the one-page files in which Linux says what it is: /proc, /sys, cgroups.
 *
 * No stdio, no allocation; any thread. `root` is put before the path: "" for the machine itself, a
 * folder of the test's own in tests. */
#ifndef COH_BASE_SMALL_FILE_H
#define COH_BASE_SMALL_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Reads root + path + leaf into `text`, terminated and cut at text_bytes - 1. Returns 1, or 0 when
 * it cannot be read or is empty; `text` is then "". */
int coh_small_file_read(const char *root, const char *path, const char *leaf, char *text,
                        size_t text_bytes);

/* The number that follows `key` at the begin of a line. Returns 0 when there is none. */
int coh_small_file_number(const char *text, const char *key, uint64_t *out_number);

#endif
