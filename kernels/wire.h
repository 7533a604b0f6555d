/* wire.h - packs elements for their way between ranks, and unpacks them (cohobate/wire.h).
 *
 *     bf16    the elements
 *     int8    scales of the blocks, codes
 *     int4    scales of the blocks, 64 bytes a block: element i in the lower half of byte i,
 *             element 64 + i in the upper half
 *
 * Packing what was unpacked gives the same bytes, of f32 and of bf16 elements: what is gathered
 * over one axis after the other is rounded once. The bytes are the same on the host and on CUDA,
 * except those of a NaN. Queues: kernels/table.h; the host works on the calling thread. */
#ifndef COH_KERNELS_WIRE_H
#define COH_KERNELS_WIRE_H

#include <stdint.h>

#include "cohobate/model.h"
#include "cohobate/wire.h"

/* Elements from and to the start of a block. */
typedef struct coh_wire_call {
    coh_wire wire;   /* not COH_WIRE_STORED */
    coh_dtype dtype; /* of the elements: f32 or bf16 */
    int64_t count;
    void *elements; /* [count] */
    void *packed;   /* coh_wire_bytes(wire, count) bytes, at a multiple of 4 */
} coh_wire_call;

void coh_kernel_wire_pack(void *queue, const coh_wire_call *call);
void coh_kernel_wire_unpack(void *queue, const coh_wire_call *call);

#endif
