/* status.h - how everything in this library says that something went wrong.
 *
 * Every call that can fail returns a coh_status. The sentence that goes with it (what failed, on
 * which object, with which numbers, and what to do) is kept per thread: coh_last_error(). The
 * library never prints, exits or aborts on bad input. */
#ifndef COHOBATE_STATUS_H
#define COHOBATE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* What is part of the shared library's interface. */
#define COH_API __attribute__((visibility("default")))

/* What tells the kinds apart is whose fault it is and when it shows:
 *   FULL     known before anything ran: a plan, budget or disk that could never hold it
 *   IO       met while it ran: a disk that fills under a write, a failed transfer; also a chunk
 *            that the working store wrote and gets back with other bytes, since nobody but the
 *            device can have changed it
 *   CORRUPT  the caller's files: a checkpoint, token file, tokenizer or plan that is damaged or
 *            foreign */
typedef enum coh_status {
    COH_OK = 0,
    COH_ERR_ARGUMENT, /* a caller's mistake: flag, option, call order */
    COH_ERR_SHAPE,    /* shapes that do not go together */
    COH_ERR_MEMORY,   /* the operating system refused memory */
    COH_ERR_FULL,     /* it does not fit the budget or the disk; the text says what would */
    COH_ERR_IO,       /* a file or disk operation failed, or brought back other bytes */
    COH_ERR_CORRUPT,  /* files that are not what they must be: foreign, torn, stale, malformed */
    COH_ERR_DEVICE,   /* the device, or a rung of it, is not to be had or broke */
    COH_ERR_NUMBER,   /* NaN or infinity where numbers were needed */
    COH_ERR_STOPPED,  /* stopped on request; the work can be resumed */
    COH_ERR_INTERNAL, /* a promise of ours did not hold: a bug */
} coh_status;

/* The sentence of this thread's last failure; "" when there was none. Valid until the thread's next
 * failing call. */
COH_API const char *coh_last_error(void);

/* The status of a command line program: 0 ok, 1 run failed, 2 usage, 3 does not fit, 4 bad data,
 * 5 I/O or device fault, 75 stopped and resumable. */
COH_API int coh_status_exit_code(coh_status status);

/* "COH_ERR_FULL" and so on, for logs. Never NULL. */
COH_API const char *coh_status_name(coh_status status);

#ifdef __cplusplus
}
#endif
#endif
