/* power_cut.h - models what a disk may forget when the power fails, for tests of saves.
 *
 * The one idea: unflushed data may or may not be on the disk, each piece independently. A journal
 * records what a save has done and not yet flushed. At a power cut, each of these is kept or
 * undone:
 *
 *     done                          promised by            else undone by
 *     bytes of a file               its fsync              pages back to zeros, or its end cut off
 *     its length                    its fsync              the length of the last fsync
 *     mkdir, create, link           fsync of the folder    removed, with all that is in it
 *     rename                        fsync of the folder    renamed back
 *     unlink, rmdir                 fsync of the folder    back again
 *
 * So a test finds a save that forgets one fsync. Killing the process never finds it, because the
 * kernel keeps everything then. Not modelled: overwritten bytes of a flushed file (a save writes
 * each byte once), and sectors that go bad.
 *
 * One journal per process, as for one disk. Folders are identified by the text of their path, so a
 * save must always use the same text.
 * Threads: one at a time. */
#ifndef COH_TESTS_FAULTS_POWER_CUT_H
#define COH_TESTS_FAULTS_POWER_CUT_H

#include <stdint.h>

typedef struct power_cut power_cut;

/* Plans a power cut instead of operation `at` (from 1). Seed 0 forgets everything that may be
 * forgotten; other seeds choose at random. Returns the process's journal; NULL if `at` is 0. */
power_cut *power_cut_begin(uint64_t at, uint64_t seed);

/* Every call below accepts NULL and then does nothing. Calls that follow an operation are made only
 * if it succeeded. */

/* Counts one operation. If it is the planned one, forgets and ends the process (_exit,
 * FILE_FAULTS_EXIT_CODE). */
void power_cut_enter(power_cut *cut);

void power_cut_made(power_cut *cut, const char *path); /* mkdir, create, link */
void power_cut_renamed(power_cut *cut, const char *from, const char *to);
/* Call begin before an unlink: returns a descriptor that keeps the bytes, or -1. Pass it to end
 * after the unlink. */
int power_cut_unlink_begin(power_cut *cut, const char *path);
void power_cut_unlink_end(power_cut *cut, const char *path, int kept, int succeeded);
void power_cut_removed_folder(power_cut *cut, const char *path);
/* Call it before bytes [begin, end) of a file change; an empty range for a change of its length. */
void power_cut_write(power_cut *cut, int fd, uint64_t begin, uint64_t end);

void power_cut_synced(power_cut *cut, int fd);
void power_cut_synced_folder(power_cut *cut, const char *path);

#endif
