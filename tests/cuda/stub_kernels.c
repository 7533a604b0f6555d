/* Modules, kernels and launches of the stub driver. */
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/stub_state.h"

CUresult stub_cuModuleLoadData(CUmodule *module, const void *image)
{
    (void)image;
    STUB_BEGIN(cuModuleLoadData);
    if (coh_stub_ends_strict_capture())
        return coh_stub_end(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    *module = calloc(1, sizeof(**module));
    if (*module == NULL)
        return coh_stub_end(CUDA_ERROR_OUT_OF_MEMORY);
    coh_stub.used_bytes += coh_stub.module_bytes;
    coh_stub.live_count++;
    return coh_stub_end(CUDA_SUCCESS);
}

CUresult stub_cuModuleUnload(CUmodule module)
{
    CUresult result = coh_stub_begin(COH_STUB_cuModuleUnload, 1);
    for (int i = 0; i < module->function_count; i++)
        free(module->functions[i]);
    free(module);
    coh_stub.used_bytes -= coh_stub.module_bytes;
    coh_stub.live_count--;
    return coh_stub_end(result);
}

CUresult stub_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *symbol)
{
    STUB_BEGIN(cuModuleGetFunction);
    if ((size_t)module->function_count == sizeof(module->functions) / sizeof(CUfunction))
        abort();
    *function = calloc(1, sizeof(**function));
    if (*function == NULL)
        return coh_stub_end(CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < coh_stub.twin_count; i++)
        if (strcmp(coh_stub.twins[i].symbol, symbol) == 0) {
            (*function)->work = coh_stub.twins[i].work;
            (*function)->argument_bytes = coh_stub.twins[i].argument_bytes;
        }
    if ((*function)->work == NULL && coh_stub.kernels != NULL) {
        (*function)->argument_bytes = coh_stub.kernels->argument_bytes(symbol);
        (*function)->of_kernel = (*function)->argument_bytes > 0 ? symbol : NULL;
    }
    module->functions[module->function_count++] = *function;
    return coh_stub_end(CUDA_SUCCESS);
}

CUresult stub_cuFuncLoad(CUfunction function)
{
    (void)function;
    STUB_BEGIN(cuFuncLoad);
    return coh_stub_end(CUDA_SUCCESS);
}

CUresult stub_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    STUB_BEGIN(cuFuncSetAttribute);
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        function->shared_bytes = (unsigned)value;
    return coh_stub_end(CUDA_SUCCESS);
}

static void run_kernel(const void *launch)
{
    coh_stub.kernels->run(launch);
}

CUresult stub_cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z,
                             unsigned threads, unsigned threads_y, unsigned threads_z,
                             unsigned shared_bytes, CUstream stream, void **parameters,
                             void **extra)
{
    (void)threads_y;
    (void)threads_z;
    (void)extra;
    STUB_BEGIN(cuLaunchKernel);
    if (x == 0 || y == 0 || z == 0 || threads == 0 || threads > 1024 ||
        shared_bytes > function->shared_bytes)
        return coh_stub_end(CUDA_ERROR_INVALID_VALUE);
    if (function->work == NULL && function->of_kernel == NULL)
        return coh_stub_end(CUDA_ERROR_NOT_FOUND);
    stub_command c = { .kind = STUB_WORK, .work = function->work };
    if (function->work != NULL) {
        memcpy(c.arguments, parameters[0], function->argument_bytes);
    } else {
        coh_stub_launch launch = { function->of_kernel, x, y, z, threads, shared_bytes, { 0 } };
        memcpy(launch.arguments, parameters[0], function->argument_bytes);
        memcpy(c.arguments, &launch, sizeof(launch));
        c.work = run_kernel;
    }
    coh_stub_push(stream, &c);
    return coh_stub_end(CUDA_SUCCESS);
}

/* ---- for tests ---- */

void coh_stub_set_kernels(const coh_stub_kernels *kernels)
{
    coh_stub.kernels = kernels;
}

void coh_stub_set_twin(const char *symbol, coh_stub_work work, size_t argument_bytes)
{
    if (coh_stub.twin_count == STUB_TWINS_MOST || argument_bytes > COH_STUB_ARGUMENT_BYTES)
        abort();
    coh_stub.twins[coh_stub.twin_count++] =
        (struct stub_twin){ .symbol = symbol, .work = work, .argument_bytes = argument_bytes };
}
