/* fatbins.h - the compiled kernels, as data inside the library.
 *
 * One image for each .cu of this folder, made by nvcc: machine code of several GPUs and PTX. The
 * driver picks what fits its GPU. embed.py writes the table. */
#ifndef COH_KERNELS_CUDA_FATBINS_H
#define COH_KERNELS_CUDA_FATBINS_H

#include <stdint.h>

typedef struct coh_fatbin {
    const char *name; /* of the .cu, without its ending */
    const void *image;
    uint64_t bytes;
} coh_fatbin;

/* The last one has no name. */
extern const coh_fatbin coh_fatbins[];

#endif
