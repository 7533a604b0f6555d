/* toy_optimizers.h - optimizers for planner tests, in the process's list. They compute nothing:
 *
 *     toy_one      velocity: f32                      toy_none     no streams
 *     toy_slow     as toy_one, 1e5 flops per element
 *     toy_rounds   code, rounds_work                  toy_bare     no streams, rounds_work
 *     toy_blocks   code: a byte per element           toy_clash    m: a byte per element, where
 *                  scale: f32 per 128 elements                     adamw's m is f32 */
#ifndef COH_TESTS_PLANNER_TOY_OPTIMIZERS_H
#define COH_TESTS_PLANNER_TOY_OPTIMIZERS_H

#include "cohobate/optimizer.h"

/* May be called again. */
coh_status toy_optimizers_register(void);

#endif
