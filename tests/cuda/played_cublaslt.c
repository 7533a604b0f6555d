/* libcublasLt.so.13 for the GPU that emulated_gpu.c plays: the fake, under the library's names.
 *
 * It computes products when they are enqueued, not when the stream's turn comes, so a program's
 * results are meaningless. Its calls, their order, and its messages about them are meaningful. */
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
