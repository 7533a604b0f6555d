/* cohobate.h - includes the whole public API. Start here.
 *
 * Training goes through three objects, and each has one header:
 *
 *   model.h   coh_graph    what is computed: operators and their tensors
 *   plan.h    coh_plan     where each byte lies and when it moves, with predicted time and memory
 *   engine.h  coh_engine   runs the plan: steps, evaluation, checkpoints
 *
 * The other headers feed these three:
 *
 *   models.h, kinds.h                     known models as graphs (in f32 unless
 *                                         coh_model_dtype_set), and their operators
 *   layer.h, op_check.h                   operators of your own, the short way; their mistakes
 *   extension.h                           kinds and models of a shared object of yours
 *   folder.h, adapters.h                  Hugging Face folders in and out; LoRA adapters
 *   text.h                                tokenizers, token files, training windows
 *   profile.h, measure.h, calibration.h   machine speeds from which the planner predicts times
 *   kernels.h, machine.h                  tables of matrix products; what this machine has
 *   checkpoint.h, run.h                   reading checkpoints; disk space and the run's lock
 *   disk.h                                several drives as one working store
 *   world.h, rank_pattern.h, wire.h       several ranks: opened, stopped together; what each keeps,
 *                                         and how it travels
 *   plan_batch.h                          plans a batch and chooses its micro-batch
 *   fold_shape.h                          order in which gradients of replicas are added
 *   status.h, refusal.h, terms.h          errors; what does not fit, as data; words of messages
 *   tier.h                                tiers, lanes, levels: indices of arrays in plans and
 *                                         results
 *
 * Errors: every call that can fail returns a coh_status (status.h).
 * Paths of files and folders: an empty text is refused with COH_ERR_ARGUMENT.
 * Structs that may grow begin with `struct_bytes`, the size that the caller was compiled with. Set
 * it to sizeof the struct and all members that are not used to 0, also in structs that the library
 * fills: { .struct_bytes = sizeof(x) }. A struct smaller than the library's is accepted: members
 * that it lacks have their defaults, or are not filled. The size of a pointer is refused. A larger
 * struct is refused if a member that the library does not have is not 0.
 * Ownership: X_create, X_open and X_read make an object; X_destroy, X_close or X_free frees it and
 * accepts NULL. A graph must outlive its plans, a plan must outlive its engines.
 * Threads: an object is used by one thread at a time unless its header allows more. */
#ifndef COHOBATE_COHOBATE_H
#define COHOBATE_COHOBATE_H

#include "cohobate/adapters.h"
#include "cohobate/calibration.h"
#include "cohobate/checkpoint.h"
#include "cohobate/cuda.h"
#include "cohobate/disk.h"
#include "cohobate/engine.h"
#include "cohobate/extension.h"
#include "cohobate/fold_shape.h"
#include "cohobate/folder.h"
#include "cohobate/kernels.h"
#include "cohobate/kinds.h"
#include "cohobate/layer.h"
#include "cohobate/machine.h"
#include "cohobate/measure.h"
#include "cohobate/model.h"
#include "cohobate/models.h"
#include "cohobate/op_check.h"
#include "cohobate/optimizer.h"
#include "cohobate/plan.h"
#include "cohobate/plan_batch.h"
#include "cohobate/profile.h"
#include "cohobate/rank_pattern.h"
#include "cohobate/refusal.h"
#include "cohobate/run.h"
#include "cohobate/status.h"
#include "cohobate/terms.h"
#include "cohobate/text.h"
#include "cohobate/tier.h"
#include "cohobate/trace.h"
#include "cohobate/training_note.h"
#include "cohobate/wire.h"
#include "cohobate/world.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the library's version, "0.1.0". Static storage; any thread. */
COH_API const char *coh_version(void);

#ifdef __cplusplus
}
#endif

#endif
