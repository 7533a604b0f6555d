/* status.h - error codes and error texts of the whole library.
 *
 * Every call that can fail returns a coh_status. The error text (what failed, on which object, with
 * which numbers, and what to do) is kept per thread; coh_last_error() returns it. The library never
 * prints, exits or aborts on bad input. Threads: any. */
#ifndef COHOBATE_STATUS_H
#define COHOBATE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Marks a symbol as part of the shared library's interface. */
#define COH_API __attribute__((visibility("default")))

/* Error codes. Three of them concern files and disks and are easily confused:
 *
 *   FULL     found before anything ran: the plan, budget or disk is too small
 *   IO       found while running: the disk fills up during a write, or a transfer fails; also a
 *            chunk that the working store reads back with other bytes than it wrote, because only
 *            the drive can have changed them
 *   CORRUPT  the caller's file (checkpoint, token file, tokenizer, plan) is damaged, or is of
 *            another format */
typedef enum coh_status {
    COH_OK = 0,       /* done */
    COH_ERR_ARGUMENT, /* the caller's mistake: flag, option, call order */
    COH_ERR_SHAPE,    /* shapes do not match */
    COH_ERR_MEMORY,   /* the operating system refused memory */
    COH_ERR_FULL,     /* does not fit the budget or the disk; the text says what would fit */
    COH_ERR_IO,       /* a file or disk operation failed, or returned other bytes than written */
    COH_ERR_CORRUPT,  /* a file is malformed, truncated, stale or of another format */
    COH_ERR_DEVICE,   /* a device or a backend is missing or failed */
    COH_ERR_NUMBER,   /* NaN or infinity in the numbers */
    COH_ERR_STOPPED,  /* stopped on request; the work can be resumed */
    COH_ERR_INTERNAL, /* a bug: one of our own invariants was violated */
} coh_status;

/* Returns the error text of this thread's last failure, "" if there was none. Valid until the
 * thread's next failing call. */
COH_API const char *coh_last_error(void);

/* Returns the exit code for a command line program: 0 ok, 1 failed, 2 wrong usage, 3 does not fit,
 * 4 bad data, 5 I/O or device fault, 75 stopped and resumable. */
COH_API int coh_status_exit_code(coh_status status);

/* Returns the code's name, such as "COH_ERR_FULL", for logs. Never NULL. */
COH_API const char *coh_status_name(coh_status status);

#ifdef __cplusplus
}
#endif
#endif
