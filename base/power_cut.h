/* power_cut.h - what a disk may forget when the power goes, for tests of saves.
 *
 * The one idea: what was not flushed may be there or not, each piece by itself. A journal remembers
 * what a save has done and not yet flushed; when the power is cut, each of these
 * things is kept or undone:
 *
 *     done                          promised by            else undone by
 *     bytes of a file               its fsync              pages back to zeros, or its end cut off
 *     its length                    its fsync              the length of the last fsync
 *     mkdir, create                 fsync of the folder    removed, with all that is in it
 *     rename                        fsync of the folder    renamed back
 *     unlink, rmdir                 fsync of the folder    back again
 *
 * So a save that forgets one fsync is found by a test, which killing the process never does: there
 * the kernel keeps everything. What it does not model: bytes of a flushed file that are written
 * over (a save writes each once), and sectors that go bad.
 *
 * One journal per process, as there is one disk; made once, and only when the mode is on. Folders
 * are told apart by the text of their path, so a save must name each in one way.
 * Threads: one at a time. */
#ifndef COH_BASE_POWER_CUT_H
#define COH_BASE_POWER_CUT_H

#include <stdint.h>

typedef struct coh_power_cut coh_power_cut;

/* The power goes in place of operation `at` (from 1). Seed 0 forgets all that may be forgotten, any
 * other draws. The process's journal, made by the first call; NULL when `at` is 0
 * or memory is short. */
coh_power_cut *coh_power_cut_begin(uint64_t at, uint64_t seed);

/* Every call below accepts NULL and then does nothing. Those that follow an operation are for one
 * that succeeded. */

/* Counts one operation; if it is the one: forgets and ends the process (_exit,
 * COH_FILE_OPS_EXIT_CODE). */
void coh_power_cut_enter(coh_power_cut *cut);

void coh_power_cut_made(coh_power_cut *cut, const char *path); /* after mkdir, create */
void coh_power_cut_renamed(coh_power_cut *cut, const char *from, const char *to);
/* Before unlink: a descriptor that keeps the bytes, or -1; after it: hand it over. */
int coh_power_cut_unlink_begin(coh_power_cut *cut, const char *path);
void coh_power_cut_unlink_end(coh_power_cut *cut, const char *path, int kept, int succeeded);
void coh_power_cut_removed_folder(coh_power_cut *cut, const char *path);
/* Before [begin, end) of a file changes; nothing, for a change of its length. */
void coh_power_cut_write(coh_power_cut *cut, int fd, uint64_t begin, uint64_t end);

void coh_power_cut_synced(coh_power_cut *cut, int fd);
void coh_power_cut_synced_folder(coh_power_cut *cut, const char *path);

#endif
