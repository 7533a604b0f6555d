/* power_cut.h - models what a disk may forget when the power fails, for tests of saves.
 *
 * The one idea: unflushed data may or may not be on the disk, each piece independently. A journal
 * records what a save has done and not yet flushed. At a power cut, each of these is kept or
 * undone:
 *
 *     done                          promised by            else undone by
 *     bytes of a file               its fsync              pages back to zeros, or its end cut off
 *     its length                    its fsync              the length of the last fsync
 *     mkdir, create                 fsync of the folder    removed, with all that is in it
 *     rename                        fsync of the folder    renamed back
 *     unlink, rmdir                 fsync of the folder    back again
 *
 * So a test finds a save that forgets one fsync. Killing the process never finds it, because the
 * kernel keeps everything then. Not modelled: overwritten bytes of a flushed file (a save writes
 * each byte once), and sectors that go bad.
 *
 * One journal per process, as for one disk; made once, and only if the mode is on. Folders are
 * identified by the text of their path, so a save must always use the same text.
 * Threads: one at a time. */
#ifndef COH_BASE_POWER_CUT_H
#define COH_BASE_POWER_CUT_H

#include <stdint.h>

typedef struct coh_power_cut coh_power_cut;

/* Plans a power cut instead of operation `at` (from 1). Seed 0 forgets everything that may be
 * forgotten; other seeds choose at random. Returns the process's journal, made by the first call;
 * NULL if `at` is 0 or memory is short. */
coh_power_cut *coh_power_cut_begin(uint64_t at, uint64_t seed);

/* Every call below accepts NULL and then does nothing. Calls that follow an operation are made only
 * if it succeeded. */

/* Counts one operation. If it is the planned one, forgets and ends the process (_exit,
 * COH_FILE_OPS_EXIT_CODE). */
void coh_power_cut_enter(coh_power_cut *cut);

void coh_power_cut_made(coh_power_cut *cut, const char *path); /* after mkdir, create */
void coh_power_cut_renamed(coh_power_cut *cut, const char *from, const char *to);
/* Call begin before an unlink: returns a descriptor that keeps the bytes, or -1. Pass it to end
 * after the unlink. */
int coh_power_cut_unlink_begin(coh_power_cut *cut, const char *path);
void coh_power_cut_unlink_end(coh_power_cut *cut, const char *path, int kept, int succeeded);
void coh_power_cut_removed_folder(coh_power_cut *cut, const char *path);
/* Call it before bytes [begin, end) of a file change; an empty range for a change of its length. */
void coh_power_cut_write(coh_power_cut *cut, int fd, uint64_t begin, uint64_t end);

void coh_power_cut_synced(coh_power_cut *cut, int fd);
void coh_power_cut_synced_folder(coh_power_cut *cut, const char *path);

#endif
