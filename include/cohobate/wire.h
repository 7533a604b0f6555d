/* wire.h - the format in which weights and gradients travel between ranks.
 *
 *     wire      bytes an element      error of an element (scale: the largest |x| of its block)
 *     stored    4 (f32), 2 (bf16)     none
 *     bf16      2                     2^-9 of it
 *     int8      1 + 4/128             scale / 254      codes -127..127
 *     int4      1/2 + 4/128           scale / 14       codes -7..7
 *
 * Codes are those of blocks of 128 elements from the start of each rank's part: evenly spaced,
 * symmetric, rounded to nearest, ties to even, with one f32 scale a block; a float rounding or two
 * come on top. A block with a NaN or an infinity arrives as NaN. This is for what a rank pattern
 * divides (rank_pattern.h):
 *
 *   weights    that are gathered for each use of a training step, also the rank's own, so that all
 *              ranks compute with the same weights; what is stored, saved and evaluated is exact
 *   gradients  what ranks give to be added; sums are f32 and return as they are
 *
 * With several levels of links a slice is added within a node and rounded again before it goes
 * on. Block-quantised gathers and a two-stage exchange of gradients are those of ZeRO++ (Wang et
 * al., 2023). Wires are part of the numeric plan: results depend on them, and with them on the
 * number of ranks and their pattern, but on no placement. Threads: any. */
#ifndef COHOBATE_WIRE_H
#define COHOBATE_WIRE_H

#include <stdint.h>

#include "cohobate/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elements that share a scale. */
enum { COH_WIRE_BLOCK = 128 };

/* A row of the table above. */
typedef enum coh_wire {
    COH_WIRE_STORED, /* as in memory */
    COH_WIRE_BF16,   /* the upper half of a float, rounded to nearest */
    COH_WIRE_INT8,   /* codes of 8 bits, a scale a block */
    COH_WIRE_INT4,   /* codes of 4 bits, a scale a block */
    COH_WIRE_COUNT
} coh_wire;

/* The wires of a plan; all zero: as stored. */
typedef struct coh_wires {
    coh_wire weights;   /* gathered for a use */
    coh_wire gradients; /* slices to be added */
} coh_wires;

/* Bytes of the text of two wires, with its end. */
enum { COH_WIRES_TEXT_BYTES = 40 };

/* Returns "stored", "bf16", "int8" or "int4"; "unknown" for any other number. Never NULL. */
COH_API const char *coh_wire_name(coh_wire wire);

/* Parses "int8" (both), "weights=int8", "gradients=int4" or "weights=int8,gradients=int4".
 * Fails: COH_ERR_ARGUMENT: no such text, or one of the two twice. */
COH_API coh_status coh_wires_parse(const char *text, coh_wires *out_wires);
/* Writes what coh_wires_parse reads into `text`, of COH_WIRES_TEXT_BYTES bytes. Fails:
 * COH_ERR_ARGUMENT: a number that is no wire. */
COH_API coh_status coh_wires_write(const coh_wires *wires, char *text);

/* Returns the bytes of `count` elements on a wire, rounded up to 64; of COH_WIRE_STORED 0. */
COH_API uint64_t coh_wire_bytes(coh_wire wire, uint64_t count);

#ifdef __cplusplus
}
#endif
#endif
