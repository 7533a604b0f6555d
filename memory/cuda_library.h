/* cuda_library.h - finds and opens NVIDIA's shared libraries on this machine.
 *
 * The program links none of them, so the same binary runs where they are missing. A library is
 * searched in these places; the first one that can be opened is used:
 *
 *   1. $COH_CUDA_LIBRARIES                          folders, with ':' between them
 *   2. $CUDA_HOME, $CUDA_PATH, /usr/local/cuda      lib64, lib and targets/<any>-linux/lib of each
 *   3. the Python package `nvidia`                  every nvidia/<any>/lib below the site-packages
 *                                                   of $VIRTUAL_ENV, $CONDA_PREFIX, the prefix of
 *                                                   each folder of $PATH, $HOME/.local, /usr/local
 *                                                   and /usr, and below the folders of $PYTHONPATH
 *   4. the loader's own path                        $LD_LIBRARY_PATH, ld.so.conf
 *
 * With COH_CUDA_LIBRARIES=none, cuBLASLt and cuDNN are not searched at all, and own kernels take
 * their place; NCCL, which nothing replaces, is searched from place 2 on.
 *
 * Allocates and opens files: set-up only. Any thread that does not race with setenv. */
#ifndef COH_MEMORY_CUDA_LIBRARY_H
#define COH_MEMORY_CUDA_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

enum { COH_CUDA_LIBRARY_PATH_BYTES = 4096 };

/* A library's file name, and what to install if it is missing. */
typedef struct coh_cuda_library_name {
    const char *file;    /* "libcublasLt.so.13" */
    const char *product; /* "cuBLASLt" */
    const char *package; /* "nvidia-cublas": a Python package that brings it */
    const char *version; /* its function that returns 130100 for 13.1.0 */
    int32_t least;       /* older versions are refused; 0: all are accepted */
    const char *flaw;    /* the defect of those older versions */
} coh_cuda_library_name;

extern const coh_cuda_library_name coh_cuda_library_cublaslt;
extern const coh_cuda_library_name coh_cuda_library_cudnn;
extern const coh_cuda_library_name coh_cuda_library_nccl;

/* Writes the path of the first file of that name in places 1 to 3, without trying to open it.
 * `root` is put before every folder: "" for the machine itself, a made-up tree in tests. Returns 1,
 * or 0 if there is none; `out_path` is then "". */
int coh_cuda_library_find(const char *root, const coh_cuda_library_name *name,
                          char out_path[COH_CUDA_LIBRARY_PATH_BYTES]);

/* Opens the library and reports its path. It stays open until the process ends: NVIDIA's libraries
 * register exit functions with the driver and the C library, and do not support being unloaded.
 * Fails: COH_ERR_DEVICE if there is none, with what to install; COH_ERR_IO if one was found but
 * none can be opened, with the reason. */
coh_status coh_cuda_library_open(const char *root, const coh_cuda_library_name *name,
                                 void **out_library, char out_path[COH_CUDA_LIBRARY_PATH_BYTES]);

enum { COH_CUDA_VERSION_BYTES = 32 };

/* Returns an open library's version, 130100 and "13.1.0"; 0 and "of unknown version" if it does not
 * report one. */
int32_t coh_cuda_library_version(void *library, const coh_cuda_library_name *name,
                                 char out_text[COH_CUDA_VERSION_BYTES]);

/* Checks that a library of that version is supported. Fails: COH_ERR_DEVICE if it is too old, or
 * does not report a version, with the reason and what to install. */
coh_status coh_cuda_library_accept(const coh_cuda_library_name *name, int32_t version);

/* Fills `table`, `count` consecutive function pointers, with the functions of these names.
 * Fails: COH_ERR_CORRUPT naming the first function that is missing: it is another library. */
coh_status coh_cuda_library_bind(void *library, const coh_cuda_library_name *name,
                                 const char *const *functions, size_t count, void *table);

#endif
