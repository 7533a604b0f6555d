/* cuda_library.h - where NVIDIA's shared libraries are on this machine, and how one is opened.
 *
 * The program links none of them, so that the same binary runs where they are missing. A library is
 * looked for in these places, the first that can be opened wins:
 *
 *   1. $COH_CUDA_LIBRARIES                          folders, with ':' between them
 *   2. $CUDA_HOME, $CUDA_PATH, /usr/local/cuda      lib64, lib and targets/<any>-linux/lib of each
 *   3. the Python package `nvidia`                  every nvidia/<any>/lib below the site-packages
 *                                                   of $VIRTUAL_ENV, $CONDA_PREFIX, the prefix of
 *                                                   each folder of $PATH, $HOME/.local, /usr/local
 *                                                   and /usr, and below the folders of $PYTHONPATH
 *   4. the loader's own path                        $LD_LIBRARY_PATH, ld.so.conf
 *
 * Allocates and opens files: set-up only. Any thread that does not race with setenv. */
#ifndef COH_MEMORY_CUDA_LIBRARY_H
#define COH_MEMORY_CUDA_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

enum { COH_CUDA_LIBRARY_PATH_BYTES = 4096 };

/* What is looked for, and what a person installs who does not have it. */
typedef struct coh_cuda_library_name {
    const char *file;    /* "libcublasLt.so.13" */
    const char *product; /* "cuBLASLt" */
    const char *package; /* "nvidia-cublas": a Python package that brings it */
    const char *version; /* its function that says 130100 for 13.1.0 */
    int32_t least;       /* older ones are not used; 0: all are */
    const char *flaw;    /* of those */
} coh_cuda_library_name;

extern const coh_cuda_library_name coh_cuda_library_cublaslt;
extern const coh_cuda_library_name coh_cuda_library_cudnn;
extern const coh_cuda_library_name coh_cuda_library_nccl;

/* Writes the first file of that name in places 1 to 3, which need not be one that opens. `root` is
 * put before every folder: "" for the machine itself, a made-up tree in tests. Returns 1, or 0
 * where there is none; `out_path` is then "". */
int coh_cuda_library_find(const char *root, const coh_cuda_library_name *name,
                          char out_path[COH_CUDA_LIBRARY_PATH_BYTES]);

/* Opens the library and says where it was. It stays open as long as the process: NVIDIA's libraries
 * tell driver and C library what to call at exit, and are not made to leave before.
 * Fails: COH_ERR_DEVICE where there is none, with what to install; COH_ERR_IO where one was found
 * and none that was found can be opened, with why. */
coh_status coh_cuda_library_open(const char *root, const coh_cuda_library_name *name,
                                 void **out_library, char out_path[COH_CUDA_LIBRARY_PATH_BYTES]);

enum { COH_CUDA_VERSION_BYTES = 32 };

/* An open library's version, 130100 and "13.1.0"; 0 and "of unknown version" where it does not
 * say. */
int32_t coh_cuda_library_version(void *library, const coh_cuda_library_name *name,
                                 char out_text[COH_CUDA_VERSION_BYTES]);

/* Is a library of that version used? Fails: COH_ERR_DEVICE where it is too old, or does not say,
 * with why and what to install. */
coh_status coh_cuda_library_accept(const coh_cuda_library_name *name, int32_t version);

/* Fills `table`, `count` function pointers in a row, with the functions of these names.
 * Fails: COH_ERR_CORRUPT naming the first one that it does not have: it is another library. */
coh_status coh_cuda_library_bind(void *library, const coh_cuda_library_name *name,
                                 const char *const *functions, size_t count, void *table);

#endif
