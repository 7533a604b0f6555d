/* cohobate.h - everything public. Start with model.h (what to compute), then plan.h (where and
 * when), then engine.h (run it). */
#ifndef COHOBATE_COHOBATE_H
#define COHOBATE_COHOBATE_H

#include "cohobate/adapters.h"
#include "cohobate/calibration.h"
#include "cohobate/checkpoint.h"
#include "cohobate/engine.h"
#include "cohobate/folder.h"
#include "cohobate/kernels.h"
#include "cohobate/kinds.h"
#include "cohobate/machine.h"
#include "cohobate/measure.h"
#include "cohobate/model.h"
#include "cohobate/models.h"
#include "cohobate/plan.h"
#include "cohobate/profile.h"
#include "cohobate/run.h"
#include "cohobate/status.h"
#include "cohobate/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0". */
COH_API const char *coh_version(void);

#ifdef __cplusplus
}
#endif

#endif
