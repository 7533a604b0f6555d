/* libcublasLt.so.13 and libcudnn.so.9 that only report their versions, COH_LIBRARY_VERSION and
 * COH_CUDNN_VERSION: all that a plan asks of them. */
#include <stddef.h>
#include <stdlib.h>

size_t cublasLtGetVersion(void);
size_t cudnnGetVersion(void);

static size_t read_version(const char *variable)
{
    const char *text = getenv(variable);
    return text != NULL ? (size_t)strtoul(text, NULL, 10) : 0;
}

size_t cublasLtGetVersion(void)
{
    return read_version("COH_LIBRARY_VERSION");
}

size_t cudnnGetVersion(void)
{
    return read_version("COH_CUDNN_VERSION");
}
