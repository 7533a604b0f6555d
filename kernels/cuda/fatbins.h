/* fatbins.h - the compiled kernels, as data inside the library.
 *
 * One image for each .cu of this folder, made by nvcc: machine code for several GPUs, and PTX. The
 * driver selects the code for its GPU. embed.py writes the table. */
#ifndef COH_KERNELS_CUDA_FATBINS_H
#define COH_KERNELS_CUDA_FATBINS_H

#include <stdint.h>

typedef struct coh_fatbin {
    const char *name; /* of the .cu file, without its extension */
    const void *image;
    uint64_t bytes;
} coh_fatbin;

/* The last entry has the name NULL. */
extern const coh_fatbin coh_fatbins[];

#endif
