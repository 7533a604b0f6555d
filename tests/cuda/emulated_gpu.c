/* libcuda.so.1, as a GPU that this machine's processor plays: the stub driver (stub_driver.h),
 * whose kernels are the very sources of kernels/cuda, emulated (emulate.h). With its folder in
 * LD_LIBRARY_PATH any program of this project has a GPU, called "stub" or COH_EMULATED_NAME, under
 * a driver for CUDA's version COH_EMULATED_CUDA (13000: 13.0).
 *
 * What a program computes there passed through all that a real GPU's would but nvcc and libraries:
 * planning, rehearsal, streams in orders chosen by COH_EMULATED_SEED, launches, grids, kernels. It
 * is slow: some microseconds for each thread of each kernel. Of its memory a context and each
 * module take some, and other programs COH_EMULATED_OTHERS bytes. It is by the memory node
 * COH_EMULATED_NODE. */
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

/* Before main, and before a program asks for the driver. */
__attribute__((constructor)) static void begin(void)
{
    const char *seed_text = getenv("COH_EMULATED_SEED");
    const char *others_text = getenv("COH_EMULATED_OTHERS");
    const char *cuda = getenv("COH_EMULATED_CUDA");
    const char *node = getenv("COH_EMULATED_NODE");
    const uint64_t seed = seed_text != NULL ? strtoull(seed_text, NULL, 10) : 1;
    const uint64_t others = others_text != NULL ? strtoull(others_text, NULL, 10) : 0;
    mode = (int)(seed % COH_EMULATE_MODES);
    coh_stub_name_device(getenv("COH_EMULATED_NAME")); /* unset: a GPU without a datasheet */
    coh_stub_reset(MEMORY_BYTES);
    coh_stub_take_memory(CONTEXT_BYTES, MODULE_BYTES, (size_t)others);
    coh_stub_set_cuda_version(cuda != NULL ? atoi(cuda) : CUDA_VERSION);
    coh_stub_set_near_node(node != NULL ? atoi(node) : -1);
    coh_stub_set_kernels(&kernels);
    coh_stub_start(seed);
}

/* Each function of the driver under its own name, which cuda.h's macros make of the list's: that of
 * the stub's table. */
#define EXPORT(name)                                                                               \
    __attribute__((used)) static __typeof__(&name) resolve_##name(void)                            \
    {                                                                                              \
        return coh_stub_driver.name;                                                               \
    }                                                                                              \
    __typeof__(name) name __attribute__((ifunc("resolve_" #name)));
COH_CUDA_DRIVER_LIST(EXPORT)
