/* Counts allocations and mappings: the malloc, calloc, realloc and mmap of a program that includes
 * this replace the C library's. Include it in one source only, and not under a sanitizer, which has
 * its own malloc (TEST_IS_SANITIZED, length.h). */
#ifndef COH_TESTS_ALLOCATION_CALLS_H
#define COH_TESTS_ALLOCATION_CALLS_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic uint64_t allocation_calls; /* so far, of all threads */

/* The C library's own entries, for programs that replace malloc. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);

void *malloc(size_t bytes)
{
    atomic_fetch_add(&allocation_calls, 1);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&allocation_calls, 1);
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    atomic_fetch_add(&allocation_calls, 1);
    return __libc_realloc(memory, bytes);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    atomic_fetch_add(&allocation_calls, 1);
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset); // NOLINT
}

/* Returns 1 if an allocation is counted. */
static inline int allocation_calls_are_counted(void)
{
    const uint64_t before = atomic_load(&allocation_calls);
    void *volatile seen = malloc(1);
    free(seen);
    return atomic_load(&allocation_calls) > before;
}

#endif
