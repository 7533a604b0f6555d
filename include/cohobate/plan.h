/* plan.h - decide everything before anything runs: placements, schedule, addresses, predicted time.
 *
 *     graph + options ──> coh_plan_create ──> coh_plan ──> coh_engine_create (engine.h)
 *
 * A plan has two halves. The *numeric plan* is what may change bits: micro-batch, accumulation,
 * kinds, shapes, dtypes, kernel path. The *placement plan* is the rest: budgets, chunk size, tiers,
 * recomputation, threads. Same numeric plan, same bits, whatever the placement plan; but for kinds
 * that add by atomics on a GPU (coh_op_kind), which only a caller who asks for them has. */
#ifndef COHOBATE_PLAN_H
#define COHOBATE_PLAN_H

#include "cohobate/model.h"
#include "cohobate/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum coh_recompute {
    COH_RECOMPUTE_AUTO,
    COH_RECOMPUTE_NONE,
    COH_RECOMPUTE_ALL
} coh_recompute;

/* The order of the calls of a step of several micro-batches. A part of the numeric plan: where a
 * parameter is used by several operators, its gradient is summed in this order. */
typedef enum coh_sweep_order {
    COH_SWEEP_MICROBATCH, /* each micro-batch goes forward and back, then the next begins */
    /* Each block takes all micro-batches, then the next does: weights that stream are fetched twice
     * a step, however many micro-batches it has; activations of all of them live at once. */
    COH_SWEEP_LAYER,
    COH_SWEEP_AUTO /* the faster of the two, by a profile without what runs found */
} coh_sweep_order;

/* "micro-batch", "layer", "auto". */
COH_API const char *coh_sweep_order_name(coh_sweep_order order);

/* How long the search for a placement goes on. Bits do not depend on it. */
typedef enum coh_search {
    COH_SEARCH_USUAL, /* betters the best placements of the first round */
    /* Takes the best placement of the first round: a third to a thirtieth of the time. Steps are
     * often a tenth slower, and a host updates no parameters for a GPU. */
    COH_SEARCH_QUICK,
    /* Gives up early, so that COH_ERR_FULL does not mean that a usual search finds nothing. For a
     * caller that asks for many budgets which of them may do. */
    COH_SEARCH_PROBE
} coh_search;

typedef enum coh_plan_mode {
    COH_PLAN_TRAIN, /* body = one optimizer step */
    COH_PLAN_INFER  /* body = forward only; parameters are read, states of kinds kept */
} coh_plan_mode;

/* What a pin asks for. The first three are of parameters: where their weights stand between steps
 * (gradients and optimizer states stay the planner's choice). The others are of activations in
 * training. */
typedef enum coh_pin_place {
    COH_PIN_DEVICE,    /* the weights never leave the device */
    COH_PIN_HOST,      /* ... stand in the host tier, and come for each use */
    COH_PIN_DISK,      /* ... stand on disk alone */
    COH_PIN_KEEP,      /* what is made for backward never leaves the device */
    COH_PIN_RECOMPUTE, /* the operator's whole block is run again in backward */
    COH_PIN_OFFLOAD,   /* what is made for backward leaves the device when it is idle */
    COH_PIN_PLACE_COUNT
} coh_pin_place;

/* One decision that is made by hand; the search fills in the rest. `target` is "blocks.3",
 * "blocks.0-3" (blocks by their number in the order of the graph) or a pattern of operators' names
 * with * ? [..]. Placement: bits do not change. */
enum { COH_PIN_TARGET_BYTES = 128, COH_PINS_MOST = 4096 };
typedef struct coh_pin {
    char target[COH_PIN_TARGET_BYTES];
    coh_pin_place place;
} coh_pin;

/* Reads "blocks.0-3=device". Fails: COH_ERR_ARGUMENT. */
COH_API coh_status coh_pin_parse(const char *text, coh_pin *out_pin);
/* "device", "host", ... as coh_pin_parse takes them. */
COH_API const char *coh_pin_place_name(coh_pin_place place);
/* The pins of a file (docs/planning.md has its form). *out_pins is the caller's: coh_pins_free.
 * Fails: COH_ERR_IO, COH_ERR_CORRUPT with the entry, COH_ERR_MEMORY. */
COH_API coh_status coh_pins_read(const char *path, coh_pin **out_pins, int32_t *out_count);
/* Accepts NULL. */
COH_API void coh_pins_free(coh_pin *pins);

typedef struct coh_plan_options {
    uint32_t struct_bytes; /* sizeof(coh_plan_options); coh_plan_options_init sets it */
    coh_plan_mode mode;
    uint64_t device_memory_bytes; /* the RAM budget; UINT64_MAX: no limit (in memory) */
    uint64_t emulate_host_bytes;  /* > 0: an emulated far tier of at most so many bytes */
    uint64_t disk_bytes;          /* far tier on disk of at most so many bytes; 0: none;
                                     UINT64_MAX: as much as needed */
    double link_bytes_per_s;      /* throttle of the emulated far tier; 0: memory speed */
    uint64_t wear_bytes;          /* most bytes written to disk per step; 0: no limit */
    int32_t thread_count;         /* >= 1 */
    uint64_t chunk_bytes;         /* largest chunk; 0: the planner chooses */
    coh_recompute recompute;
    int32_t microbatch_count; /* per optimizer step, >= 1 */
    coh_sweep_order sweep_order;
    /* 1: exact global-norm clipping, so updates wait for the norm and overlap the next forward.
     * 0: clipping off, updates go out in backward. */
    int32_t deferred_update;
    char kernel_path[128]; /* instruction set and BLAS core: goes into the numeric plan */
    int32_t bf16_is_fast;  /* 1: price bf16 as multiplied in hardware; changes no bits */
    /* What prices the plan; NULL: constants that are built in. Borrowed: it must outlive the
     * plan. */
    const coh_profile *profile;
    /* 1: priced as if coh_profile_calibrate had found nothing. Who chooses a micro-batch by the
     * time of its plan chooses so, since bits depend on it; COH_SWEEP_AUTO does. */
    int32_t uncalibrated;
    /* Decisions made by hand, at most COH_PINS_MOST; copied. Two that contradict one another, or
     * one that names nothing, are refused. */
    const coh_pin *pins;
    int32_t pin_count;
    /* Plans of the same model whose decisions are tried as well, where they fit: with those of less
     * memory or slower links among them, more memory or faster links do not make a step slower. One
     * of another numeric plan is left out. Borrowed while the plan is made. */
    const struct coh_plan *const *earlier;
    int32_t earlier_count;
    /* 1: gradients of bf16 parameters are f32, so that sums over micro-batches and over the uses of
     * a tied parameter are not rounded on the way: 2 bytes a parameter more. 0: they are bf16. Of
     * the numeric plan where a parameter is bf16 and trained, else nothing. */
    int32_t f32_gradients;
    coh_search search;
} coh_plan_options;

/* Defaults: train, no limits, no far tiers, one thread, one micro-batch, deferred, the usual
 * search. kernel_path and bf16_is_fast are set to this machine's. */
COH_API void coh_plan_options_init(coh_plan_options *out_options);

typedef struct coh_plan coh_plan;

/* Does the machine of options->profile let a process have budgets like these (the memory limit of
 * its cgroup)? coh_plan_create asks as well; before it, no other plan has to be looked for.
 * Fails: COH_ERR_FULL with the tier, the bytes short and what to do. */
COH_API coh_status coh_plan_check_budgets(const coh_plan_options *options);

/* Writes, verifies and prices all programs for `graph`. The graph must outlive the plan.
 * Deterministic: same graph and options, same plan.
 * Fails: COH_ERR_FULL: does not fit; the sentence names the tier, the bytes short and the smallest
 * change that fits, and says whether that is proven or only not found; where a pin is what does not
 * fit, which. COH_ERR_ARGUMENT (also: a tier is given that the profile knows no links to; a pin
 * that names nothing, contradicts another or needs a tier that is not there), COH_ERR_SHAPE,
 * COH_ERR_MEMORY. */
COH_API coh_status coh_plan_create(const coh_graph *graph, const coh_plan_options *options,
                                   coh_plan **out_plan);
/* After every engine made from it. Accepts NULL. */
COH_API void coh_plan_destroy(coh_plan *plan);

/* device host disk; compute h2d d2h read write ... */
enum { COH_PLAN_TIERS = 3, COH_PLAN_LANES = 8 };

/* Lower bounds of a settled step, by what sets them: true of every schedule of a plan's decisions
 * within its limits, whatever stands where. The largest names what limits the step. */
typedef enum coh_plan_bound {
    COH_PLAN_BOUND_COMPUTE, /* every line of the compute lane, one after the other */
    COH_PLAN_BOUND_H2D,     /* the fewest bytes over each link, at its rate */
    COH_PLAN_BOUND_D2H,
    COH_PLAN_BOUND_READ,
    COH_PLAN_BOUND_WRITE,
    COH_PLAN_BOUND_HOST,         /* updates in host memory */
    COH_PLAN_BOUND_LINK,         /* both directions of the host link at once */
    COH_PLAN_BOUND_DRIVE,        /* reads and writes of the drive at once */
    COH_PLAN_BOUND_CORES,        /* compute beside a lane that slows it */
    COH_PLAN_BOUND_DRAM,         /* two others that slow one another */
    COH_PLAN_BOUND_TURNAROUND,   /* a gradient's way out, its update there, its weight's way back */
    COH_PLAN_BOUND_HOST_WINDOW,  /* no update before the first gradient or after the last forward */
    COH_PLAN_BOUND_UPDATE_PHASE, /* deferred: all states pass within the first forward */
    COH_PLAN_BOUND_PHASE,        /* any part of the step that needs more bytes than there is room */
    COH_PLAN_BOUND_COUNT
} coh_plan_bound;

/* "compute", "h2d", "drive", "update phase", ... Never NULL. */
COH_API const char *coh_plan_bound_name(coh_plan_bound bound);

/* What is known before the run. */
typedef struct coh_plan_summary {
    uint64_t peak_bytes[COH_PLAN_TIERS]; /* arenas, to the byte; disk: the working store */
    /* No budget below it plans with the same other options, chunk size, recomputation and pins
     * among them; 0 for a plan that was read, where nothing was searched. */
    uint64_t smallest_device_bytes;
    int32_t smallest_is_proven; /* a bound of every schedule; else the least that was found */
    uint64_t parameter_count, parameter_bytes;
    uint64_t stream_bytes; /* work + gradient + states of all parameters */
    uint64_t step_ns;      /* predicted time of a settled body */
    uint64_t bound_ns;     /* no schedule of these decisions can be faster: the largest of: */
    uint64_t bounds_ns[COH_PLAN_BOUND_COUNT];
    coh_plan_bound binding, runner_up; /* the largest, and the largest of what else limits */
    uint64_t drain_ns, save_ns, evaluate_ns;
    uint64_t busy_ns[COH_PLAN_LANES], exposed_ns[COH_PLAN_LANES];
    uint64_t link_bytes[COH_PLAN_LANES]; /* per body */
    /* the fewest that any schedule of these decisions moves within these limits */
    uint64_t least_link_bytes[COH_PLAN_LANES];
    /* of READ and WRITE (or LOAD and STORE without a disk) per body: parameter streams only */
    uint64_t work_link_bytes, grad_link_bytes, state_link_bytes, other_link_bytes;
    uint32_t line_count, program_count; /* of the body; of all */
    uint64_t numeric_fingerprint;       /* of the numeric plan */
    uint64_t program_hash;              /* of the body and its layout */
    uint64_t chunk_bytes;
    uint64_t host_update_bytes;  /* of parameters: updated on the host lane, not on the device */
    coh_sweep_order sweep_order; /* never AUTO */
    int32_t recomputes;          /* blocks that are recomputed */
    /* Compute time of the forward calls, and of those that run again in backward, each alone: parts
     * of bounds_ns[COH_PLAN_BOUND_COMPUTE]. */
    uint64_t forward_ns, recompute_ns;
    int32_t caches;     /* operators that keep their optional cache for backward */
    int32_t row_passes; /* passes over the rows of split parameters */
    int32_t verified_lines;
    double disk_bytes_written; /* per body */
    /* step_ns if no lane slowed another, and if every lane always slowed every other */
    uint64_t step_alone_ns, step_contended_ns;
    /* the step's time with the spread of the profile's figures: a tenth of such machines is faster
     * than p10, a tenth slower than p90. All three are step_ns where the profile has no spread. */
    uint64_t step_p10_ns, step_p50_ns, step_p90_ns;
} coh_plan_summary;

/* What priced it, link_bytes_per_s taken into account; lives as long as the plan. */
COH_API const coh_profile *coh_plan_profile(const coh_plan *plan);

/* Copies what the planner found out; texts in it live as long as the plan. */
COH_API coh_status coh_plan_summarize(const coh_plan *plan, coh_plan_summary *out_summary);

/* Bytes occupied while a settled step runs, by the predicted times: the period in `count` equal
 * parts, the most in each. out_bytes has COH_PLAN_TIERS * count places, tier after tier.
 * Fails: COH_ERR_ARGUMENT, COH_ERR_MEMORY. */
COH_API coh_status coh_plan_memory_curve(const coh_plan *plan, int32_t count, uint64_t *out_bytes);

/* ---- what it comes to ---- */

/* What bytes are for. Workspaces: also inputs, outputs, cells and padding between pinned things. */
typedef enum coh_plan_purpose {
    COH_PLAN_PARAMETERS,
    COH_PLAN_GRADIENTS,
    COH_PLAN_STATES,
    COH_PLAN_ACTIVATIONS,
    COH_PLAN_WORKSPACES
} coh_plan_purpose;
enum { COH_PLAN_PURPOSES = 5 };

/* Bytes of each tier by purpose at the moment of a settled step at which that tier is fullest, by
 * the predicted times. Their sum is at most peak_bytes: between them is room that stands empty
 * then, or that another program needs. Fails: COH_ERR_MEMORY. */
COH_API coh_status coh_plan_memory(const coh_plan *plan,
                                   uint64_t out_bytes[COH_PLAN_TIERS][COH_PLAN_PURPOSES]);

/* Where one operator's things stand in this plan. */
typedef struct coh_plan_operator {
    const char *name, *kind;
    int32_t block;
    uint64_t parameter_bytes, activation_bytes, saved_bytes;
    const char *activations; /* "keep", "recompute", "move" (some of it leaves the device) */
    const char *parameters;  /* "device", "host", "disk": where they stand between steps; "-" */
    const char *states;
    const char *updates; /* "device", "host": the lane that updates its parameters; "-" */
    /* "replicate": whole, on every device; "slice x4": its weight in so many ranges of rows */
    const char *pattern;
} coh_plan_operator;

/* By index in the order of the graph. Fails: COH_ERR_ARGUMENT when there is no such operator. */
COH_API int32_t coh_plan_operator_count(const coh_plan *plan);
/* Texts in *out_operator live as long as the plan. Fails: COH_ERR_ARGUMENT. */
COH_API coh_status coh_plan_operator_at(const coh_plan *plan, int32_t index,
                                        coh_plan_operator *out_operator);

/* One decision made otherwise, all others as they are: what the step comes to. */
typedef struct coh_plan_trial {
    int32_t fits;
    int32_t replaces_pin; /* one of the plan's own, for the same target: left out meanwhile */
    uint64_t step_ns;
    uint64_t peak_bytes[COH_PLAN_TIERS], link_bytes[COH_PLAN_LANES], busy_ns[COH_PLAN_LANES],
        exposed_ns[COH_PLAN_LANES];
    uint64_t program_hash; /* that of the plan: the pin changes nothing */
    char why[512];         /* where it does not fit */
} coh_plan_trial;

/* Builds, verifies and simulates the step of this plan's decisions with `pin` beside its own pins
 * (in place of one for the same target);
 * nothing is searched, so a search may find better around it. Not to fit is no failure.
 * Fails: COH_ERR_ARGUMENT: the pin names nothing, contradicts one of the plan's, or needs a tier
 * that is not there; COH_ERR_MEMORY. */
COH_API coh_status coh_plan_try(const coh_plan *plan, const coh_pin *pin,
                                coh_plan_trial *out_trial);
/* The same with the parameters of operator `index` updated on the host lane, and with them those of
 * all blocks behind it, or on the device, and with them those of all before it: so updates are
 * divided. Nothing changes where it is so. Fails: as above, also without a host tier. */
COH_API coh_status coh_plan_try_update(const coh_plan *plan, int32_t index, int32_t on_host,
                                       coh_plan_trial *out_trial);

/* The least time of a step that a search for a plan begins with (the bound of its first sets of
 * decisions), without making one: tenths of a second where a plan takes seconds. The plan is rarely
 * faster, and by some per cent. 0: nothing is known, as without a far tier.
 * Fails: as coh_plan_create, but for COH_ERR_FULL. */
COH_API coh_status coh_plan_least_ns(const coh_graph *graph, const coh_plan_options *options,
                                     uint64_t *out_ns);

/* The bytes that a run in memory (no far tier) would need: the reference of "25 % budget". If its
 * program is too long to be planned, the fewest bytes that exist at once in it. */
COH_API coh_status coh_plan_in_memory_bytes(const coh_graph *graph, const coh_plan_options *options,
                                            uint64_t *out_bytes);

/* What a step writes to disk at the least, of the plans that the search begins with: with
 * wear_bytes of so many there is a plan, with fewer none is found. options->wear_bytes is not
 * asked. 0: not known, or a plan that writes nothing was found.
 * Fails: as coh_plan_create for other reasons than room. */
COH_API coh_status coh_plan_least_written(const coh_graph *graph, const coh_plan_options *options,
                                          uint64_t *out_bytes);

/* plan.json: decisions, slots, predictions, builder version, program hash. Canonical: same plan,
 * same bytes. Written to `path` whole or not at all. */
COH_API coh_status coh_plan_write(const coh_plan *plan, const char *path);

enum { COH_PLAN_NOTE_BYTES = 16384 };
/* The same, with what its caller wants to know of it later: a text of at most
 * COH_PLAN_NOTE_BYTES - 1 bytes without control characters. Fails: COH_ERR_ARGUMENT, COH_ERR_IO,
 * COH_ERR_MEMORY. */
COH_API coh_status coh_plan_write_noted(const coh_plan *plan, const char *note, const char *path);

/* What a plan file says of itself, before anything is rebuilt. */
typedef struct coh_plan_file {
    char note[COH_PLAN_NOTE_BYTES]; /* "": none */
    char profile_name[64];          /* what priced it */
    uint64_t profile_hash, program_hash, peak_device_bytes, step_ns, emulate_host_bytes, disk_bytes;
    int32_t is_gpu, microbatch_count;
    uint64_t peak_host_bytes, peak_disk_bytes, chunk_bytes, numeric_fingerprint;
    uint32_t line_count;         /* of the body */
    coh_sweep_order sweep_order; /* never AUTO */
    int32_t is_in_memory;        /* nothing leaves the device */
    int32_t recomputes;          /* blocks */
    int32_t host_updates;        /* so many of the last blocks are updated on the host lane */
    int32_t pin_count, operator_count;
    int32_t f32_gradients; /* of bf16 parameters */
    int32_t atomics;       /* 1: a kind may add by atomics on a GPU: other bits each time */
    /* How many operators stand where, or have theirs how: "12 device, 30 disk". */
    char parameters[96], states[96], activations[96];
} coh_plan_file;
/* Fails: COH_ERR_CORRUPT, COH_ERR_IO, COH_ERR_MEMORY. */
COH_API coh_status coh_plan_file_read(const char *path, coh_plan_file *out_file);

/* Rebuilds the plan that `path` describes for this graph, compares hashes, verifies. `options`
 * gives budgets to hold it to (the plan's own peaks must fit; a far tier of 0 bytes is as large as
 * the file has it), thread count and profile; pins are the file's.
 * Fails: COH_ERR_CORRUPT (foreign, malformed, or the rebuilt program differs), COH_ERR_FULL;
 * COH_ERR_ARGUMENT for other options than it was made with, or a GPU's plan without its profile. */
COH_API coh_status coh_plan_read(const coh_graph *graph, const coh_plan_options *options,
                                 const char *path, coh_plan **out_plan);

/* Writes the program list itself, a line an instruction, for people and diffs. */
COH_API coh_status coh_plan_write_program(const coh_plan *plan, const char *path);

/* Is `path` a whole and well-formed plan file? Fails: COH_ERR_CORRUPT, COH_ERR_IO. */
COH_API coh_status coh_plan_check_file(const char *path);

#ifdef __cplusplus
}
#endif
#endif
