/* alloc_faults.h - counts the library's allocations and their bytes, and makes the n-th one fail.
 *
 * Included by one file of a test program, which puts its table into base/alloc.h before main. */
#ifndef COH_TESTS_FAULTS_ALLOC_FAULTS_H
#define COH_TESTS_FAULTS_ALLOC_FAULTS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"

static _Atomic uint64_t alloc_faults_count;
static _Atomic uint64_t alloc_faults_bytes;   /* of all requests, whatever is freed */
static _Atomic uint64_t alloc_faults_failing; /* 0: none */
static _Atomic int alloc_faults_hit;

/* Counts one allocation; returns 1 if it must fail. */
static inline int alloc_must_fail(size_t bytes)
{
    atomic_fetch_add(&alloc_faults_bytes, bytes);
    uint64_t number = atomic_fetch_add(&alloc_faults_count, 1) + 1;
    if (number != atomic_load(&alloc_faults_failing))
        return 0;
    atomic_store(&alloc_faults_hit, 1);
    return 1;
}

static inline void *alloc_faulty_zeroed(size_t count, size_t element_bytes)
{
    return alloc_must_fail(count * element_bytes) ? NULL : calloc(count, element_bytes);
}

static inline void *alloc_faulty_resized(void *memory, size_t bytes)
{
    return alloc_must_fail(bytes) ? NULL : realloc(memory, bytes);
}

__attribute__((constructor)) static void alloc_faults_put_in(void)
{
    static const coh_alloc_calls calls = { .zeroed = alloc_faulty_zeroed,
                                           .resized = alloc_faulty_resized };
    coh_alloc_calls_use(&calls);
}

/* Makes the n-th allocation from now (1 is the next) fail; 0 switches this off. */
static inline void alloc_fail_nth(uint64_t n)
{
    atomic_store(&alloc_faults_hit, 0);
    atomic_store(&alloc_faults_failing, n == 0 ? 0 : atomic_load(&alloc_faults_count) + n);
}

/* Returns the number of allocations by this process so far. */
static inline uint64_t alloc_count(void)
{
    return atomic_load(&alloc_faults_count);
}

/* Returns whether the planned failure happened. */
static inline int alloc_fault_was_hit(void)
{
    return atomic_load(&alloc_faults_hit);
}

#endif
