/* file_faults.h - breaks the file operations of a save, one by one.
 *
 * A program that this is linked into puts its table into base/file_ops.h before main. Operations
 * are numbered from 1 for each coh_file_ops, and these environment variables, read when that struct
 * is initialised, choose one:
 *
 *     COH_TEST_EXIT_AT=<n>          _exit(86) instead of operation n; for a write, after half of it
 *     COH_TEST_FAIL_AT=<n>[:errno]  operation n fails with that number (default 5, EIO), once
 *     COH_TEST_FAIL_AT=<n>:short    if operation n is a write, it moves only half of its bytes
 *     COH_TEST_SIGNAL_AT=<n>[:number]    the process gets that signal (default 15, SIGTERM) before
 *                                   operation n, once
 *     COH_TEST_POWER_CUT_AT=<n>[:seed]   the power fails instead of operation n: unflushed data is
 *                                   dropped or torn (power_cut.h), then _exit(86); here n counts
 *                                   all operations of the process
 *     COH_TEST_SYNC_MS=<n>          each flush of a file takes that much longer, as on a slow drive
 *
 * The program `cohobate-faulty` is the command line with this in it, and with space_faults.c:
 *
 *     COH_TEST_FREE_BYTES=<n>       every file system has at most that much free
 *     COH_TEST_FREE_FILES=<n>       every file system has room for that many files
 *
 * Threads: as base/file_ops.h, but one at a time in the whole process. */
#ifndef COH_TESTS_FAULTS_FILE_FAULTS_H
#define COH_TESTS_FAULTS_FILE_FAULTS_H

#include "base/file_ops.h"

#define FILE_FAULTS_EXIT_CODE 86

/* The table, for a test that puts another one around it. */
extern const coh_file_calls file_faults_calls;

#endif
