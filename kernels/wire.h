/* wire.h - packs elements for their way between ranks, and unpacks them (cohobate/wire.h).
 *
 *     bf16    the elements
 *     int8    scales of the blocks, codes
 *     int4    scales of the blocks, 64 bytes a block: element i in the lower half of byte i,
 *             element 64 + i in the upper half
 *
 * Packing what was unpacked gives the same bytes, of f32 and of bf16 elements: what is gathered
 * over one axis after the other is rounded once. Runs on the calling thread. Threads: any. */
#ifndef COH_KERNELS_WIRE_H
#define COH_KERNELS_WIRE_H

#include <stdint.h>

#include "cohobate/model.h"
#include "cohobate/wire.h"

/* `count` elements of dtype f32 or bf16, from and to the start of a block; `packed`:
 * coh_wire_bytes(wire, count) bytes, at a multiple of 4. `wire` is not COH_WIRE_STORED. */
void coh_wire_pack(coh_wire wire, coh_dtype dtype, int64_t count, const void *from, void *packed);
void coh_wire_unpack(coh_wire wire, coh_dtype dtype, int64_t count, const void *packed, void *to);

#endif
