/* libcublasLt.so.13 of the GPU that emulated_gpu.c plays: the fake, under the library's names. Its
 * products are computed as they are enqueued, not when the stream's turn comes, so what a program
 * finds in memory is of no use; what it calls, in which order, and what it says of that is. */
#include "tests/cuda/fake_cublaslt.h"

__attribute__((constructor)) static void begin(void)
{
    fake_lt_reset();
}

#define EXPORT(name)                                                                               \
    __attribute__((used)) static __typeof__(&name) resolve_##name(void)                            \
    {                                                                                              \
        return fake_lt_functions.name;                                                             \
    }                                                                                              \
    __typeof__(name) name __attribute__((ifunc("resolve_" #name)));
COH_CUBLASLT_FUNCTIONS(EXPORT)
