/* float_mode.h - the floating-point mode in which the library computes: to nearest, ties to even,
 * with subnormal numbers and without traps.
 *
 * The one idea: bits must not depend on the mode of the program around the library. A program that
 * is linked with -ffast-math flushes subnormal numbers on its main thread, and a thread inherits
 * the mode of its creator. So threads start in this mode (thread.c), public calls of an engine
 * switch to it and back, and it is restored after each function of a caller's kind. */
#ifndef COH_BASE_FLOAT_MODE_H
#define COH_BASE_FLOAT_MODE_H

#include <fenv.h>

/* Sets the mode and keeps the one before. */
static inline void coh_float_mode_begin(fenv_t *out_before)
{
    (void)fegetenv(out_before);
    (void)fesetenv(FE_DFL_ENV); /* of glibc and musl: flushing of subnormal numbers is off, too */
}

/* Sets it back. Flags that were raised since are dropped, as a caller never asked for them. */
static inline void coh_float_mode_end(const fenv_t *before)
{
    (void)fesetenv(before);
}

/* Restores the mode where foreign code may have left another one: some ns if none was left. */
static inline void coh_float_mode_restore(void)
{
#if defined(__x86_64__)
    enum { DEFAULT = 0x1f80, FLAGS = 0x3f }; /* of MXCSR */
    if ((__builtin_ia32_stmxcsr() & ~(unsigned)FLAGS) != DEFAULT)
        __builtin_ia32_ldmxcsr(DEFAULT);
#else
    if (fegetround() != FE_TONEAREST)
        (void)fesetenv(FE_DFL_ENV);
#endif
}

#endif
