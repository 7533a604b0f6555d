/* A libcuda.so.1 whose GPU is played by this machine's processor: the stub driver (stub_driver.h)
 * with the real sources of kernels/cuda, emulated (emulate.h).
 *
 * With its folder in LD_LIBRARY_PATH, any program of this project has a GPU called "stub" or
 * COH_EMULATED_NAME, under a driver for CUDA version COH_EMULATED_CUDA (13000: 13.0).
 *
 * A program's results there have passed through everything that a real GPU's would, except nvcc and
 * the libraries: planning, rehearsal, streams in orders chosen by COH_EMULATED_SEED, launches,
 * grids, kernels. It is slow: some microseconds per thread of each kernel. A context and each
 * module take some of its memory, other programs take COH_EMULATED_OTHERS bytes. It is nearest to
 * the memory node COH_EMULATED_NODE. COH_EMULATED_GPUS: as many GPUs, which share one memory;
 * COH_EMULATED_FIRST: the number in the machine of the first. */
#include <stdint.h>
#include <stdlib.h>

#include "memory/cuda_driver.h"
#include "tests/cuda/emulate.h"
#include "tests/cuda/stub_driver.h"

#define MEMORY_BYTES  ((size_t)4 << 30)
#define CONTEXT_BYTES ((size_t)300 << 20)
#define MODULE_BYTES  ((size_t)3 << 20)

static int mode;

static void run(const coh_stub_launch *launch)
{
    coh_emulate_launch(coh_emulate_find(launch->symbol),
                       (coh_emulated_index){ launch->x, launch->y, launch->z }, launch->threads,
                       launch->shared_bytes, launch->arguments, mode);
}

static const coh_stub_kernels kernels = { .argument_bytes = coh_emulate_argument_bytes,
                                          .run = run };

/* Runs before main, and before a program asks for the driver. */
__attribute__((constructor)) static void begin(void)
{
    const char *seed_text = getenv("COH_EMULATED_SEED");
    const char *others_text = getenv("COH_EMULATED_OTHERS");
    const char *cuda = getenv("COH_EMULATED_CUDA");
    const char *node = getenv("COH_EMULATED_NODE");
    const char *gpus = getenv("COH_EMULATED_GPUS");
    const char *first = getenv("COH_EMULATED_FIRST");
    const char *memory = getenv("COH_EMULATED_MEMORY"); /* in MiB */
    const uint64_t seed = seed_text != NULL ? strtoull(seed_text, NULL, 10) : 1;
    const uint64_t others = others_text != NULL ? strtoull(others_text, NULL, 10) : 0;
    mode = (int)(seed % COH_EMULATE_MODES);
    coh_stub_name_device(getenv("COH_EMULATED_NAME")); /* unset: a GPU without a datasheet */
    coh_stub_reset(memory != NULL ? (size_t)strtoull(memory, NULL, 10) << 20 : MEMORY_BYTES);
    coh_stub_take_memory(CONTEXT_BYTES, MODULE_BYTES, (size_t)others);
    coh_stub_set_cuda_version(cuda != NULL ? atoi(cuda) : CUDA_VERSION);
    coh_stub_set_near_node(node != NULL ? atoi(node) : -1);
    coh_stub_set_gpu_count(gpus != NULL ? atoi(gpus) : 1);
    coh_stub_set_first_gpu(first != NULL ? atoi(first) : 0);
    coh_stub_set_kernels(&kernels);
    coh_stub_start(seed);
}

/* Exports each driver function under its own name, which cuda.h's macros map from the list's, as a
 * call of the stub's table. */
#define EXPORT(name)                                                                               \
    __attribute__((used)) static __typeof__(&name) resolve_##name(void)                            \
    {                                                                                              \
        return coh_stub_driver.name;                                                               \
    }                                                                                              \
    __typeof__(name) name __attribute__((ifunc("resolve_" #name)));
COH_CUDA_DRIVER_LIST(EXPORT)
