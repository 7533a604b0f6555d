/* store_base.h - the common part of every store, and the unnamed file that two of them use.
 *
 * A store's struct begins with a struct coh_store, which store.h only declares. Read store.h
 * first. */
#ifndef COH_OFFLOAD_STORE_BASE_H
#define COH_OFFLOAD_STORE_BASE_H

#include <stddef.h>
#include <stdint.h>

#include "offload/checksum.h"
#include "offload/store.h"

#define COH_STORE_REASON_BYTES 512

/* Size of the pieces into which a request is cut, so that one chunk keeps several transfers in
 * flight. 2 MiB: smaller pieces were slower at the same bytes in flight, larger ones not faster
 * (benchmarks/store.c). */
#define COH_STORE_PIECE_BYTES ((size_t)2 << 20)

struct coh_store {
    coh_store_config config; /* folder: our copy */
    char *folder;
    coh_store_facts facts;
    coh_checksum_table *checksums;
    char reason[COH_STORE_REASON_BYTES]; /* facts.reason points here after the first sentence */
};

/* Checks the config and initialises the common part. On failure nothing is held.
 * Fails: COH_ERR_ARGUMENT (bytes is not a positive multiple of a page, port_depth is 0 or above
 * 1024), COH_ERR_MEMORY. */
coh_status coh_store_base_init(coh_store *base, const coh_store_config *config,
                               const char *backend);
void coh_store_base_fini(coh_store *base); /* does nothing on a zeroed struct */

/* Appends a sentence to facts.reason, after "; " if there is one already. */
void coh_store_base_say(coh_store *base, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Implements `facts` for every table. */
coh_status coh_store_base_facts(const coh_store *store, coh_store_facts *out_facts);

/* Checks a request against the contract: inside the file, page aligned, a known chunk. Otherwise it
 * is our bug.
 * Fails: COH_ERR_INTERNAL. */
coh_status coh_store_base_allow(const coh_store *base, const coh_store_request *request);

/* Returns the system's text for an errno; never NULL, allocates nothing (strerror may). */
const char *coh_store_error_text(int error);

/* Fails with COH_ERR_IO and a text about a failed transfer. error: an errno; 0: the file ended. */
coh_status coh_store_base_tell(const coh_store *base, coh_store_port port,
                               const coh_store_request *request, int error);

/* Ends a request: records a write, checks a read. checksum: from submit, for a write. error: -1 for
 * none, else as in coh_store_base_tell. */
coh_status coh_store_base_finish(coh_store *base, coh_store_port port,
                                 const coh_store_request *request, uint64_t checksum, int error);

/* ---- the unnamed file ---- */

#define COH_STORE_NO_ERROR (-1)

/* Makes the file of base->config in its folder: unnamed from the start (O_TMPFILE, or created and
 * unlinked at once), with all blocks allocated and written once. Sets facts.direct and
 * facts.write_bytes_per_s, and reports if O_DIRECT is not used.
 * Fails: COH_ERR_FULL with bytes wanted and free; COH_ERR_IO; COH_ERR_MEMORY. Nothing is left
 * behind then and *out_fd is -1. */
coh_status coh_store_file_open(coh_store *base, int *out_fd);

#endif
