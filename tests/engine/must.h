/* must.h - calls of the library that must succeed: a test fails with the call's sentence. */
#ifndef COH_TESTS_ENGINE_MUST_H
#define COH_TESTS_ENGINE_MUST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cohobate/cohobate.h"

static inline void must(coh_status status, const char *what)
{
    if (status != COH_OK)
        fail_msg("%s: %s", what, coh_last_error());
}

#endif
