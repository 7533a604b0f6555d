/* proof.h - a table of expected chunk contents, against which every read of the working store is
 * checked.
 *
 *   write  submit: mark = mix(XXH3(bytes), chunk, generation)     reap: record(chunk) = mark
 *   read                                      reap: the mark of what came == record(chunk)?
 *
 * The table is in RAM, so the file needs no headers. The bytes of a stale, misplaced, torn or
 * flipped chunk give another mark. On a mismatch the text reports what is cheap to find out about
 * the bytes: they have the mark before the last one (stale: the disk lost the last write), the mark
 * of another chunk (misplaced), or the request names another generation (the program read the wrong
 * version: our bug).
 *
 * Threads: the thread of the write port writes it, the thread of the read port reads it. The
 * program's waits order the two. The fields are atomics (relaxed) nevertheless, so that a program
 * with a missing wait shows as a wrong generation and not as undefined behaviour. */
#ifndef COH_OFFLOAD_PROOF_H
#define COH_OFFLOAD_PROOF_H

#include <stdint.h>

#include "offload/store.h"

typedef struct coh_proof coh_proof;

coh_status coh_proof_create(uint32_t chunk_count, coh_proof **out_proof);
void coh_proof_destroy(coh_proof *proof); /* accepts NULL */

/* Computes the mark of the request's bytes. Reads all of them on the calling thread, about as fast
 * as one core reads memory: 3.6 % of a core for 1 GB/s of traffic, submission included. */
uint64_t coh_proof_mark(const coh_store_request *request);

/* Records that the write finished and that `mark` is what it wrote. */
void coh_proof_record(coh_proof *proof, const coh_store_request *request, uint64_t mark);

/* Records a failed write: the contents of the file are unknown now, and no read of them may
 * pass. */
void coh_proof_forget(coh_proof *proof, const coh_store_request *request);

/* Checks the bytes that a read returned. Fails: COH_ERR_CORRUPT with chunk, file offset, generation
 * and what is known about the bytes. */
coh_status coh_proof_check(const coh_proof *proof, const coh_store_request *request);

#endif
