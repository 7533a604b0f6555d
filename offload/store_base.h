/* store_base.h - what every store has, and the file that two of them keep their bytes in.
 *
 * A store struct begins with a struct coh_store; store.h shows only its name. */
#ifndef COH_OFFLOAD_STORE_BASE_H
#define COH_OFFLOAD_STORE_BASE_H

#include <stddef.h>
#include <stdint.h>

#include "offload/proof.h"
#include "offload/store.h"

#define COH_STORE_REASON_BYTES 512

/* What one request is cut into, so that one chunk keeps several transfers in flight. 2 MiB: smaller
 * pieces were slower at the same bytes in flight, larger ones not faster (benchmarks/store.c). */
#define COH_STORE_PIECE_BYTES ((size_t)2 << 20)

struct coh_store {
    coh_store_config config; /* folder: our copy */
    char *folder;
    coh_store_facts facts;
    coh_proof *proof;
    char reason[COH_STORE_REASON_BYTES]; /* facts.reason points here once something is said */
};

/* Checks the config and fills what is common. On failure nothing is held. Fails: COH_ERR_ARGUMENT
 * (bytes no positive multiple of a page, port_depth 0 or above 1024), COH_ERR_MEMORY. */
coh_status coh_store_base_init(coh_store *base, const coh_store_config *config, const char *rung);
void coh_store_base_fini(coh_store *base); /* nothing on a zeroed struct */

/* Adds a sentence to facts.reason, "; " between two. */
void coh_store_base_say(coh_store *base, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The `facts` of every table. */
coh_status coh_store_base_facts(const coh_store *store, coh_store_facts *out_facts);

/* Is the request one that the contract allows: inside the file, on pages, a known chunk? If not
 * that is our bug: COH_ERR_INTERNAL. */
coh_status coh_store_base_allow(const coh_store *base, const coh_store_request *request);

/* The system's words for an errno; never NULL, allocates nothing (strerror may). */
const char *coh_store_error_text(int error);

/* A failed transfer as a sentence: COH_ERR_IO. error: an errno; 0: the file ended. */
coh_status coh_store_base_tell(const coh_store *base, coh_store_port port,
                               const coh_store_request *request, int error);

/* The end of every request: a write is put on record, a read checked. mark: of a write, from
 * submit. error: -1 none, else as in tell. */
coh_status coh_store_base_finish(coh_store *base, coh_store_port port,
                                 const coh_store_request *request, uint64_t mark, int error);

/* ---- the unnamed file ---- */

#define COH_STORE_NO_ERROR (-1)

/* Makes the file of base->config in its folder: unnamed from the start (O_TMPFILE, or created and
 * unlinked at once), its blocks allocated, every one written once. Sets facts.direct,
 * facts.write_bytes_per_s and says why O_DIRECT was not taken.
 * Fails: COH_ERR_FULL with bytes wanted and free; COH_ERR_IO; COH_ERR_MEMORY. Nothing is left
 * behind then and *out_fd is -1. */
coh_status coh_store_file_open(coh_store *base, int *out_fd);

#endif
