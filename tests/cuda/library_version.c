/* libcublasLt.so.13 that says its version, COH_LIBRARY_VERSION, and can do nothing else: what a
 * plan asks of it. */
#include <stddef.h>
#include <stdlib.h>

size_t cublasLtGetVersion(void);

size_t cublasLtGetVersion(void)
{
    const char *text = getenv("COH_LIBRARY_VERSION");
    return text != NULL ? (size_t)strtoul(text, NULL, 10) : 0;
}
