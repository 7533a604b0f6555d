/* refusal.h - a plan or run that does not fit, as data: what is short, by how much, what helps.
 *
 *     if (coh_plan_create(graph, &options, &plan) != COH_OK) {
 *         coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
 *         if (coh_last_refusal(&refusal) && refusal.change_count > 0)
 *             ... refusal.tier, refusal.short_bytes, refusal.changes[0] ...
 *     }
 *
 * The text of such a failure (coh_last_error) is made from this struct, so a program need not take
 * the text apart.
 * Threads: the last refusal is kept per thread, as the error text is. */
#ifndef COHOBATE_REFUSAL_H
#define COHOBATE_REFUSAL_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/status.h"
#include "cohobate/tier.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reasons. The bytes of a reason: needed_bytes against given_bytes. NONE is no refusal; REASONS is
 * the number of reasons. */
typedef enum coh_refusal_reason {
    COH_REFUSAL_NONE,
    COH_REFUSAL_STEP,       /* "step": an instruction needs more device memory at once */
    COH_REFUSAL_IN_MEMORY,  /* "in-memory": without a far tier the whole step must fit */
    COH_REFUSAL_STATES,     /* "states": parameters and optimizer states exceed the disk */
    COH_REFUSAL_FAR_TIER,   /* "far-tier": the plan needs more of a far tier */
    COH_REFUSAL_ALL_TIERS,  /* "all-tiers": live bytes exceed all tiers together */
    COH_REFUSAL_WINDOW,     /* "window": operands of one instruction do not fit next to the rest */
    COH_REFUSAL_FIXED,      /* "fixed": cells, inputs and outputs alone exceed the tier */
    COH_REFUSAL_PINS,       /* "pins": pinned weights alone exceed the tier */
    COH_REFUSAL_PIN,        /* "pin": one pin makes a step need too much */
    COH_REFUSAL_PLACEMENT,  /* "placement": one placement, tried by itself, needs more */
    COH_REFUSAL_SEARCH,     /* "search": nothing was found. `tier` -1: no single tier is the cause;
                             * DISK: a step writes needed_bytes, wear_bytes is given_bytes */
    COH_REFUSAL_LENGTH,     /* "length": the program is too long to be planned */
    COH_REFUSAL_SIZE,       /* "size": a number of bytes overflows 64 bits */
    COH_REFUSAL_CGROUP,     /* "cgroup": the process may not have that much memory */
    COH_REFUSAL_MEMLOCK,    /* "memlock": the process may not lock that much memory */
    COH_REFUSAL_MACHINE,    /* "machine": the machine has less free memory */
    COH_REFUSAL_PLAN_FILE,  /* "plan-file": a plan that was read needs a larger tier */
    COH_REFUSAL_WRITES,     /* "writes": bytes written to the drive per day */
    COH_REFUSAL_FREE_SPACE, /* "free-space": a file system has less room */
    COH_REFUSAL_REASONS
} coh_refusal_reason;

/* Units of coh_refusal.count. INSTRUCTIONS, OPERANDS, BINDINGS, WAITS and EXTENTS are of a program,
 * CHUNKS and OBJECTS of a plan's tables; BYTES are bytes. UNITS is their number. */
typedef enum coh_refusal_unit {
    COH_UNIT_INSTRUCTIONS,
    COH_UNIT_OPERANDS,
    COH_UNIT_BINDINGS,
    COH_UNIT_WAITS,
    COH_UNIT_EXTENTS,
    COH_UNIT_CHUNKS,
    COH_UNIT_CHUNK_USES, /* "uses of chunks" */
    COH_UNIT_OBJECTS,
    COH_UNIT_GRAINS, /* "grains of parameters" */
    COH_UNIT_BYTES,
    COH_UNITS
} coh_refusal_unit;

/* Changes that help. `bytes` of each, 0: unknown. KINDS is the number of kinds. */
typedef enum coh_change_kind {
    COH_CHANGE_RAISE,       /* "raise": the tier's budget, to `bytes` */
    COH_CHANGE_LOWER,       /* "lower": the tier's budget, to `bytes` */
    COH_CHANGE_ADD_DISK,    /* "add-disk": of `bytes` */
    COH_CHANGE_RAISE_CHUNK, /* "raise-chunk" */
    COH_CHANGE_LOWER_CHUNK, /* "lower-chunk" */
    COH_CHANGE_DROP_CHUNK, /* "drop-chunk": let the planner choose; then `bytes` of device memory */
    COH_CHANGE_DROP_RECOMPUTE,   /* "drop-recompute": likewise */
    COH_CHANGE_DROP_PINS,        /* "drop-pins": likewise, without any pin */
    COH_CHANGE_DROP_PIN,         /* "drop-pin": likewise, without the pin named by the refusal */
    COH_CHANGE_RAISE_MICROBATCH, /* "raise-micro-batch" */
    COH_CHANGE_LOWER_MICROBATCH, /* "lower-micro-batch": to `microbatch`, 0: unknown */
    COH_CHANGE_RAISE_BATCH,      /* "raise-batch" */
    COH_CHANGE_LOWER_BATCH,      /* "lower-batch" */
    COH_CHANGE_RAISE_CGROUP,     /* "raise-cgroup": the system's limit, to `bytes` */
    COH_CHANGE_RAISE_MEMLOCK,    /* "raise-memlock": likewise */
    COH_CHANGE_RAISE_WRITES,     /* "raise-writes": the limit of disk writes, to `bytes` per day */
    COH_CHANGE_PLAN_AGAIN,       /* "plan-again": for the given budgets */
    COH_CHANGE_PROFILE,          /* "profile": the memory of its entries */
    COH_CHANGE_MEASURE_DRIVE,    /* "measure-drive": the profile has none, and a disk may help */
    COH_CHANGE_FREE_SPACE,       /* "free-space": `bytes`, or another folder */
    COH_CHANGE_FEWER_OPERATORS,  /* "fewer-operators": larger ones in the model */
    COH_CHANGE_RAISE_WEAR,       /* "raise-wear": wear_bytes, to `bytes` per step */
    COH_CHANGE_FROZEN_NF4,       /* "frozen-nf4": frozen weights in NF4 (coh_model), which rounds
                                  * them; a plan then takes `bytes` */
    COH_CHANGE_KINDS
} coh_change_kind;

/* A change of `kind` that helps; `bytes` as described there. */
typedef struct coh_change {
    coh_change_kind kind;
    /* of RAISE, LOWER, FROZEN_NF4: coh_tier; -1: device and host together, of FROZEN_NF4 all */
    int32_t tier;
    int32_t is_least; /* 1: `bytes` is a lower bound: more may be necessary */
    /* the micro-batch that then fits; 0: the requested one, of FROZEN_NF4 one that may change */
    int64_t microbatch;
    uint64_t bytes;
} coh_change;

/* Decisions of the caller that a refusal depends on: bits of coh_refusal.by_hand. */
enum { COH_BY_HAND_CHUNK = 1, COH_BY_HAND_RECOMPUTE = 2, COH_BY_HAND_PINS = 4 };

/* Most changes of a refusal; bytes of a text with its end. */
enum { COH_REFUSAL_CHANGES = 6, COH_REFUSAL_TEXT_BYTES = 256 };

/* A refusal. `reason` is its cause, which determines the members in use; `count` and `count_most`
 * are in `unit`; `change_count` of `changes` are used. */
typedef struct coh_refusal {
    uint32_t struct_bytes;
    coh_status status; /* of the call that failed */
    coh_refusal_reason reason;
    int32_t tier;   /* coh_tier that is short; -1: none, or several */
    int32_t is_gpu; /* 1: planned for a GPU, whose host tier is pinned memory */
    uint64_t given_bytes, needed_bytes, short_bytes; /* 0: not about bytes */
    int32_t is_least;  /* 1: needed_bytes is a lower bound; a plan may need more */
    int32_t is_proven; /* 1: no plan of these options fits; 0: none was found */
    uint64_t count, count_most, chunk_bytes; /* of LENGTH: number and limit of `unit` */
    coh_refusal_unit unit;
    int32_t microbatch_count;   /* per step; 0: unknown */
    int64_t microbatch;         /* the micro-batch that does not fit; 0: unknown */
    int64_t largest_microbatch; /* all from this one down to `microbatch` were tried; 0: one */
    int32_t is_with_disk;       /* 1: this holds even with an unlimited disk, which is needed */
    uint32_t by_hand;           /* COH_BY_HAND_CHUNK, ... */
    int32_t change_count;
    coh_change changes[COH_REFUSAL_CHANGES]; /* the cheapest first */
    char operator_name[64];                  /* the operator that needs the most; "": unknown */
    char pin[160];                           /* of PIN: "blocks.0=device" */
    /* The profile whose figure is the limit; or "" */
    char profile[COH_REFUSAL_TEXT_BYTES];
    char path[COH_REFUSAL_TEXT_BYTES]; /* of the plan file, or of the folder; or "" */
    /* Of FREE_SPACE: what needs room; of MACHINE: what limits memory, and how to raise it; or "" */
    char items[COH_REFUSAL_TEXT_BYTES];
} coh_refusal;

/* Reads this thread's last failure if it was a refusal. Returns 1, else 0 and leaves *out_refusal
 * unchanged. The caller sets out_refusal->struct_bytes first. Valid until the thread's next
 * failure. */
COH_API int32_t coh_last_refusal(coh_refusal *out_refusal);

/* Fails with a refusal, for a program that checks further limits: sets this thread's error text
 * and refusal, and returns refusal->status. */
COH_API coh_status coh_refuse(const coh_refusal *refusal);

/* Writes the sentence of a refusal, in the words of terms.h. Returns `text`; longer text is cut. */
COH_API const char *coh_refusal_sentence(const coh_refusal *refusal, char *text, size_t text_bytes);
/* Writes only its changes: "raise device memory to ..., or ..."; "" if there are none. Returns
 * `text`. */
COH_API const char *coh_refusal_remedy(const coh_refusal *refusal, char *text, size_t text_bytes);

/* Returns "in-memory", "pin", ... Never NULL. */
COH_API const char *coh_refusal_reason_name(coh_refusal_reason reason);
/* Returns "add-disk", "raise", ... Never NULL. */
COH_API const char *coh_change_kind_name(coh_change_kind kind);
/* Returns "chunks", "instructions", ... Never NULL. */
COH_API const char *coh_refusal_unit_name(coh_refusal_unit unit);

#ifdef __cplusplus
}
#endif
#endif
