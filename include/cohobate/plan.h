/* plan.h - decides everything before a run: placements, schedule, addresses and predicted time.
 *
 *     graph + options ──> coh_plan_create ──> coh_plan ──> coh_engine_create (engine.h)
 *
 * A plan has two halves. The *numeric plan* is everything that may change bits: micro-batch,
 * accumulation, kinds, shapes, dtypes, kernel path. The *placement plan* is the rest: budgets,
 * chunk size, tiers, recomputation, threads. Equal numeric plans give equal bits, whatever the
 * placement plan. The only exceptions are kinds that add by atomics on a GPU (coh_op_kind), which
 * the caller has to ask for.
 *
 * Tiers: device, host, disk. Lanes: compute and the links (h2d, d2h, read, write, ...); lanes work
 * in parallel. A plan holds a program, a list of instructions, for the step (the *body*) and for
 * saving, evaluating and so on. Read docs/planning.md next.
 * Threads: one at a time makes plans of a graph or asks about it; any thread may read a plan. */
#ifndef COHOBATE_PLAN_H
#define COHOBATE_PLAN_H

#include "cohobate/disk.h"
#include "cohobate/fold_shape.h"
#include "cohobate/model.h"
#include "cohobate/optimizer.h"
#include "cohobate/profile.h"
#include "cohobate/rank_pattern.h"
#include "cohobate/refusal.h"
#include "cohobate/tier.h"
#include "cohobate/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Blocks that run again in backward in place of keeping activations: AUTO (the planner chooses),
 * NONE, ALL. */
typedef enum coh_recompute {
    COH_RECOMPUTE_AUTO,
    COH_RECOMPUTE_NONE,
    COH_RECOMPUTE_ALL
} coh_recompute;

/* Order of the calls in a step of several micro-batches. Part of the numeric plan: if several
 * operators use a parameter, its gradient is summed in this order. */
typedef enum coh_sweep_order {
    COH_SWEEP_MICROBATCH, /* one micro-batch goes forward and back, then the next */
    /* Each block runs all micro-batches, then the next block does. Streamed weights are fetched
     * only twice a step, however many micro-batches it has, but activations of all micro-batches
     * are live at once. */
    COH_SWEEP_LAYER,
    COH_SWEEP_AUTO, /* the faster of the two, priced without calibration */
    /* the faster of the two if results do not depend on it, because no two operators share a
     * parameter that is trained; else COH_SWEEP_MICROBATCH */
    COH_SWEEP_SAME_BITS
} coh_sweep_order;

/* Returns "micro-batch", "layer", "auto" or "same bits". */
COH_API const char *coh_sweep_order_name(coh_sweep_order order);

/* Effort of the search for a placement. It does not affect bits. */
typedef enum coh_search {
    COH_SEARCH_USUAL, /* improves the best placements of the first round */
    /* Takes the best placement of the first round, in a third to a thirtieth of the time. Steps are
     * often a tenth slower. */
    COH_SEARCH_QUICK,
    /* Gives up early: COH_ERR_FULL does not mean that the usual search finds nothing. For callers
     * that try many budgets to see which may fit. */
    COH_SEARCH_PROBE,
    /* As usual, with at most a fifth of the effort. For callers that compare many plans of long
     * steps. */
    COH_SEARCH_COMPARE,
    /* As usual, and goes on with random changes of the best placements, for 3 to 10 times as long.
     * Steps that stream are up to some per cent shorter. */
    COH_SEARCH_THOROUGH
} coh_search;

/* The body of a plan: TRAIN or INFER. */
typedef enum coh_plan_mode {
    COH_PLAN_TRAIN, /* body = one optimizer step */
    COH_PLAN_INFER  /* body = forward only; parameters are read, kinds' states kept */
} coh_plan_mode;

/* How the gradients of several ranks are added. */
typedef enum coh_reduce {
    /* In the order of the replicas' shape, so that no bit depends on the number of ranks. */
    COH_REDUCE_EXACT,
    /* By NCCL's reduce-scatter between GPUs, and gathered by its all-gather, wherever all parts of
     * a window have one size and it travels as it is stored. NCCL's order depends on the number of
     * ranks, on chunks, links and its version, and so do results, except where each factor of the
     * ranks is 2. Programs, memory and predictions are those of COH_REDUCE_EXACT. */
    COH_REDUCE_LIBRARY,
    COH_REDUCE_COUNT
} coh_reduce;

/* Returns "exact" or "library"; "unknown" for any other number. Never NULL. */
COH_API const char *coh_reduce_name(coh_reduce reduce);

/* Decision that a pin makes. The first three are about parameters: where weights are stored between
 * steps (gradients and optimizer states remain the planner's choice). The others are about
 * activations in training. */
typedef enum coh_pin_place {
    COH_PIN_DEVICE,    /* weights never leave the device */
    COH_PIN_HOST,      /* weights are stored in the host tier and fetched for each use */
    COH_PIN_DISK,      /* weights are stored on disk only */
    COH_PIN_KEEP,      /* activations for backward never leave the device */
    COH_PIN_RECOMPUTE, /* the operator's whole block runs again in backward */
    COH_PIN_OFFLOAD,   /* activations for backward leave the device while unused */
    COH_PIN_PATTERN,   /* the ranks divide the parameters by a pattern of this pin */
    COH_PIN_PLACE_COUNT
} coh_pin_place;

/* Bytes of a target with its end; most pins of a plan. */
enum { COH_PIN_TARGET_BYTES = 128, COH_PINS_MOST = 4096 };
/* A decision made by hand, `place`; the search makes the others. `target` is "blocks.3",
 * "blocks.0-3" (blocks by number, in graph order), "blocks.*" (all) or a pattern for operator names
 * with * ? [..]. Pins are part of the placement plan, so they do not change bits. */
typedef struct coh_pin {
    char target[COH_PIN_TARGET_BYTES];
    coh_pin_place place;
    char pattern[COH_RANK_PATTERN_BYTES]; /* of COH_PIN_PATTERN: as coh_plan_options.rank_pattern */
} coh_pin;

/* Parses "blocks.0-3=device" or "blocks.*=zero3". A rank pattern must be registered before; its
 * numbers are checked by coh_plan_create. Fails: COH_ERR_ARGUMENT. */
COH_API coh_status coh_pin_parse(const char *text, coh_pin *out_pin);
/* Returns "device", "host", ... as in coh_pin_parse; "pattern" for COH_PIN_PATTERN. */
COH_API const char *coh_pin_place_name(coh_pin_place place);
/* Returns what a pin decides as coh_pin_parse reads it: the name of its place, or its pattern,
 * which lives as long as the pin. */
COH_API const char *coh_pin_decision(const coh_pin *pin);
/* Reads the pins in a file (docs/planning.md describes its form). Owns: the caller frees *out_pins
 * with coh_pins_free. Fails: COH_ERR_IO, COH_ERR_CORRUPT naming the entry, COH_ERR_MEMORY. */
COH_API coh_status coh_pins_read(const char *path, coh_pin **out_pins, int32_t *out_count);
/* Accepts NULL. */
COH_API void coh_pins_free(coh_pin *pins);

/* The largest chunk that the planner chooses for a plan with far tiers. Two staging buffers of a
 * chunk and of its states are next to the arenas. */
#define COH_CHUNK_BYTES_MOST ((uint64_t)256 << 20)
/* A requested chunk size is rounded down to a multiple of this, and to at least this: the f32 bytes
 * of the smallest unit that an update writes. */
#define COH_CHUNK_BYTES_LEAST ((uint64_t)64 << 10)

/* The optimizer of the parameters that `pattern` matches, by the name of the parameter or of its
 * operator, as in coh_parameter_group. */
typedef struct coh_optimizer_choice {
    char pattern[COH_PATTERN_BYTES];
    char optimizer[COH_OPTIMIZER_NAME_BYTES];
} coh_optimizer_choice;

/* Most choices of a plan. */
enum { COH_OPTIMIZER_CHOICES_MOST = 64 };

/* Options of a plan; coh_plan_options_init sets the defaults. `pin_count`, `earlier_count` and
 * `optimizer_choice_count` are the lengths of the arrays before them (`optimizer_choices` has the
 * optimizers of some parameters). `mode`, `recompute`, `sweep_order`, `search`: see above. */
typedef struct coh_plan_options {
    uint32_t struct_bytes; /* sizeof(coh_plan_options); coh_plan_options_init sets it */
    coh_plan_mode mode;
    uint64_t device_memory_bytes; /* RAM or GPU memory budget; UINT64_MAX: no limit (in memory) */
    uint64_t host_memory_bytes;   /* limit of the host tier; 0: none */
    /* 1: lets the host device have a host tier: memory that compute may not touch, for tests and to
     * try what a GPU would do. Without effect on a GPU, whose host tier is pinned main memory. */
    int32_t emulate_host;
    uint64_t disk_bytes; /* limit of the far tier on disk; 0: no such tier; UINT64_MAX: no limit */
    double link_bytes_per_s; /* rate limit of an emulated host tier; 0: memory speed */
    /* A disk tier of this limit is used if no plan fits without one, disk_bytes is 0 and the
     * profile has a drive; 0: none */
    uint64_t spare_disk_bytes;
    uint64_t wear_bytes; /* limit of disk bytes written per step; 0: no limit */
    /* Limit of disk bytes written per day of uninterrupted steps, since writing wears a drive out;
     * 0: no limit. A plan that writes less is searched, and the refusal names the least limit that
     * one was found for. */
    uint64_t disk_write_bytes_per_day;
    int32_t thread_count; /* >= 1 */
    uint64_t chunk_bytes; /* largest chunk; 0: the planner chooses */
    coh_recompute recompute;
    int32_t microbatch_count; /* per optimizer step, >= 1 */
    coh_sweep_order sweep_order;
    /* 1: exact global-norm clipping, so updates wait for the norm and overlap the next forward;
     * gradients stay readable until then. 0: updates are made during backward, with no clipping or
     * by the norm of the step before, and each gradient's memory is free after its update. */
    int32_t deferred_update;
    char kernel_path[128]; /* instruction set and BLAS core; part of the numeric plan */
    int32_t bf16_is_fast;  /* 1: price bf16 as multiplied in hardware; does not change bits */
    /* Profile that prices the plan; NULL: built-in constants. Must outlive the plan. */
    const coh_profile *profile;
    /* 1: ignore the profile's calibration. Set it when comparing micro-batches by predicted time:
     * their choice affects bits, so calibration must not change it. COH_SWEEP_AUTO does the
     * same. */
    int32_t uncalibrated;
    /* Decisions made by hand, at most COH_PINS_MOST; copied. Pins that contradict each other, or
     * that match nothing, are refused. */
    const coh_pin *pins;
    int32_t pin_count;
    /* Earlier plans of the same model; their decisions are tried as well if they fit. Passing plans
     * with less memory or slower links guarantees that more memory or faster links never make a
     * step slower. A plan with another numeric plan is skipped. Borrowed during coh_plan_create. */
    const struct coh_plan *const *earlier;
    int32_t earlier_count;
    /* 1: gradients of bf16 parameters are f32, so sums over micro-batches, or over the uses of a
     * tied parameter, are not rounded on the way; costs 2 bytes more per parameter. 0: they are
     * bf16. Part of the numeric plan if a bf16 parameter is trained, else without effect. */
    int32_t f32_gradients;
    coh_search search;
    /* The optimizers (optimizer.h), by name; part of the numeric plan. `optimizer` trains the
     * parameters that no choice matches; "": adamw. The choices are copied; a choice that matches
     * no trained parameter, and two that give one parameter different optimizers, are refused. */
    char optimizer[COH_OPTIMIZER_NAME_BYTES];
    const coh_optimizer_choice *optimizer_choices;
    int32_t optimizer_choice_count;
    /* Drives that share the disk tier (disk.h), 0 or 1: one. A profile's assumed drive is one of
     * them, so that they have this multiple of its rates and endurance; measured rates, and those
     * given as entries, are of all drives together. */
    int32_t drive_count;
    /* The step's micro-batches belong to this many replicas, whose gradients are made apart and
     * then added in this shape (fold_shape.h); replica r has micro-batches r * n to r * n + n - 1,
     * n of microbatch_count for each. All zero: one replica. Part of the numeric plan; bf16
     * parameters need f32_gradients, since the sums are f32. */
    coh_fold_shape replicas;
    /* The ranks that train together (world.h), as the shape in which the sums of their replicas are
     * added: replicas 2 and ranks 2x2 give the bits of one rank with replicas 2x2x2. All zero: one
     * rank. All other options are of one rank, microbatch_count and replicas, too; all ranks have
     * the same plan. Rank r has the step's micro-batches from r * microbatch_count on. bf16
     * parameters need f32_gradients. */
    coh_fold_shape ranks;
    /* Consecutive ranks of a pair and of a node, as in coh_world_options; 0: 1 and all. */
    int32_t pair_ranks, node_ranks;
    /* 1: with a disk tier, the plan may make updates during backward as if the norm were within the
     * limit, if that is faster. The disk tier keeps the overwritten numbers until the norm is
     * known, which takes room there for weights and states twice; a step whose norm is above the
     * limit is taken back and run again with its factor (engine.h). Needs deferred_update 1, whose
     * bits the results have. Part of the placement plan. */
    int32_t speculates;
    /* The part of each parameter without a pin that a rank keeps: a pattern of rank_pattern.h, by
     * name or numbers; "": replicate; "auto": the fastest that fits, in coh_plan_summary. Part of
     * the placement plan. With parts of states everything that reads them (hash, save) is done by
     * all ranks together (engine.h), with parts of weights also evaluations. */
    char rank_pattern[COH_RANK_PATTERN_BYTES];
    /* How weights and gradients travel between ranks (wire.h). Part of the numeric plan. */
    coh_wires wires;
    /* How the gradients of ranks are added: a coh_reduce. Part of the numeric plan.
     * COH_REDUCE_LIBRARY needs several ranks, the profile of a GPU, since NCCL adds between GPUs
     * only, and a rank pattern with a name. */
    int64_t reduce;
    /* Limit of the main memory of the process that will run the plan (coh_machine_cgroup_bytes). It
     * replaces the limit in the profile, if there is one, which is of the process that measured.
     * UINT64_MAX: no limit; 0: the profile's. */
    uint64_t main_memory_limit_bytes;
} coh_plan_options;

/* As coh_plan_options_init; `bytes` is the size that the caller was compiled with. */
COH_API void coh_plan_options_init_sized(coh_plan_options *out_options, size_t bytes);
/* Sets the defaults: train, no limits, no far tiers, one thread, one micro-batch, deferred updates,
 * the usual search; kernel_path and bf16_is_fast of this machine. */
static inline void coh_plan_options_init(coh_plan_options *out_options)
{
    coh_plan_options_init_sized(out_options, sizeof(*out_options));
}

/* Decisions, programs, addresses and predictions. */
typedef struct coh_plan coh_plan;

/* Checks that the machine of options->profile allows a process such budgets (the memory limit of
 * its cgroup, or main_memory_limit_bytes). coh_plan_create checks, too; call this first to avoid
 * useless searches.
 * Fails: COH_ERR_FULL with the tier, the missing bytes and what to do. */
COH_API coh_status coh_plan_check_budgets(const coh_plan_options *options);

/* Makes the plan for `graph`: searches the decisions, then writes, verifies and prices all
 * programs. The graph must outlive the plan, and can no longer change (model.h). Deterministic:
 * equal graph and options, equal plan.
 * Fails: COH_ERR_FULL if it does not fit (refusal.h): tier, missing bytes, whether that is proven,
 * and the changes that help. COH_ERR_ARGUMENT (also: the profile has no links to a given tier; a
 * pin matches nothing, contradicts another or needs a missing tier), COH_ERR_SHAPE,
 * COH_ERR_MEMORY. */
COH_API coh_status coh_plan_create(const coh_graph *graph, const coh_plan_options *options,
                                   coh_plan **out_plan);
/* Call it after destroying every engine made from the plan. Accepts NULL. */
COH_API void coh_plan_destroy(coh_plan *plan);

/* Lower bounds of a steady-state step, by cause. They hold for every schedule of the plan's
 * decisions within its limits, wherever tensors are placed. The largest bound names the bottleneck.
 * D2H, READ and WRITE are as H2D. */
typedef enum coh_plan_bound {
    COH_PLAN_BOUND_COMPUTE, /* all instructions of the compute lane, one after the other */
    COH_PLAN_BOUND_H2D,     /* fewest bytes over each link, at its rate */
    COH_PLAN_BOUND_D2H,
    COH_PLAN_BOUND_READ,
    COH_PLAN_BOUND_WRITE,
    COH_PLAN_BOUND_HOST,       /* updates in host memory */
    COH_PLAN_BOUND_LINK,       /* both directions of the host link at once */
    COH_PLAN_BOUND_DRIVE,      /* reads and writes of the drive at once */
    COH_PLAN_BOUND_CORES,      /* compute together with a lane that slows it */
    COH_PLAN_BOUND_DRAM,       /* lanes that move bytes through one memory */
    COH_PLAN_BOUND_TURNAROUND, /* a gradient's way out, its update, its weight's way back */
    /* host updates can run only from the first gradient to the last forward */
    COH_PLAN_BOUND_HOST_WINDOW,
    COH_PLAN_BOUND_UPDATE_PHASE, /* deferred: all states pass during the first forward */
    /* a part of the step that needs more bytes than the device has room for */
    COH_PLAN_BOUND_PHASE,
    COH_PLAN_BOUND_COUNT
} coh_plan_bound;

/* Returns "compute", "h2d", "drive", "update phase", ... Never NULL. */
COH_API const char *coh_plan_bound_name(coh_plan_bound bound);

/* Facts known before the run. `parameter_count` and `parameter_bytes` count elements and their
 * bytes in the dtype of compute. `drain_ns`, `save_ns` and `evaluate_ns` are predicted times of
 * these programs; `busy_ns` is the time that a lane works in a body, `exposed_ns` the time that
 * compute waits for it. `chunk_bytes` is the largest chunk. `verified_instructions` counts the
 * instructions of all programs. */
typedef struct coh_plan_summary {
    uint32_t struct_bytes;
    uint64_t peak_bytes[COH_TIER_COUNT]; /* exact size of the arenas; disk: the working store */
    /* No smaller device budget has a plan with the other options unchanged, chunk size,
     * recomputation and pins included; 0 for a plan that was read, because nothing was searched. */
    uint64_t smallest_device_bytes;
    int32_t smallest_is_proven; /* 1: a lower bound of every schedule; 0: the smallest found */
    uint64_t parameter_count, parameter_bytes;
    uint64_t stream_bytes; /* work + gradient + states of all parameters */
    uint64_t step_ns;      /* predicted time of a body in steady state */
    /* No plan of these options is faster, whatever it decides; of a plan that only runs forward, or
     * has no far tier, the largest of bounds_ns. */
    uint64_t bound_ns;
    uint64_t bounds_ns[COH_PLAN_BOUND_COUNT]; /* no schedule of these decisions is faster */
    /* the largest bound, and the next largest with another cause */
    coh_plan_bound binding, runner_up;
    uint64_t drain_ns, save_ns, evaluate_ns;
    uint64_t busy_ns[COH_LANE_COUNT], exposed_ns[COH_LANE_COUNT];
    uint64_t link_bytes[COH_LANE_COUNT]; /* per body */
    /* the fewest bytes that any schedule of these decisions moves within these limits */
    uint64_t least_link_bytes[COH_LANE_COUNT];
    /* Bytes per body over the outermost link (READ and WRITE; LOAD and STORE without a disk), by
     * stream: weights, gradients, states, all others. */
    uint64_t work_link_bytes, grad_link_bytes, state_link_bytes, other_link_bytes;
    uint32_t instruction_count, program_count; /* instructions of the body; programs in all */
    uint64_t numeric_fingerprint;              /* of the numeric plan */
    uint64_t program_hash;                     /* of the body and its memory layout */
    uint64_t chunk_bytes;
    uint64_t host_update_bytes;  /* bytes of parameters that are updated on the host lane */
    coh_sweep_order sweep_order; /* MICROBATCH or LAYER */
    int32_t recomputes;          /* number of recomputed blocks */
    /* Compute time of the forward calls, and of those repeated in backward, each without
     * interference: parts of bounds_ns[COH_PLAN_BOUND_COMPUTE]. */
    uint64_t forward_ns, recompute_ns;
    int32_t caches;     /* operators that keep their optional cache for backward */
    int32_t row_passes; /* passes over the rows of split parameters */
    int32_t verified_instructions;
    double disk_bytes_written; /* per body */
    uint64_t disk_limit_bytes; /* disk_bytes of the options, or spare_disk_bytes if it is used */
    /* step_ns if no lane slowed another, and if each were always as slow as others make it */
    uint64_t step_alone_ns, step_contended_ns;
    /* The step's time under the spread of the profile's figures: 10 % of such machines are faster
     * than p10, 10 % slower than p90. All three equal step_ns if the profile has no spread. */
    uint64_t step_p10_ns, step_p50_ns, step_p90_ns;
    int32_t order_keeps_bits; /* 1: results do not depend on the sweep order */
    /* The first kind of the graph without a measurement in the profile, and the number of operators
     * of such kinds. Their times are flops and bytes at the machine's rates, which of a kind of
     * yours are rough: coh_profile_measure with this graph measures it. NULL, 0: all are measured.
     * A profile without measured operators (built-in, a datasheet) has none of them. */
    const char *unmeasured_kind;  /* lives as long as the kind's name */
    int32_t unmeasured_operators; /* their number */
    /* Part of the working store that holds weights and states of the step before, so that a step
     * can be taken back; 0: the plan does not speculate (coh_plan_options). */
    uint64_t kept_bytes;
    /* The most ranks over which the streams of a parameter are divided (rank_pattern.h). With
     * work above 1 all ranks take part in evaluations. */
    coh_rank_parts rank_parts;
    char rank_pattern[COH_RANK_PATTERN_BYTES]; /* as in the options, or what "auto" has chosen */
    /* The part of each arena that a step uses, up to its highest address: less than peak_bytes
     * where another program uses more, such as the one that makes the first values. */
    uint64_t step_peak_bytes[COH_TIER_COUNT];
} coh_plan_summary;

/* Returns the plan's profile, with link_bytes_per_s applied. It belongs to the plan. */
COH_API const coh_profile *coh_plan_profile(const coh_plan *plan);

/* Reads the planner's results; texts in them live as long as the plan.
 * Fails: COH_ERR_ARGUMENT (NULL, struct_bytes). */
COH_API coh_status coh_plan_summarize(const coh_plan *plan, coh_plan_summary *out_summary);

/* Computes the bytes occupied over a steady-state step, by predicted times: splits the period into
 * `count` equal parts and reports each part's maximum. out_bytes has COH_TIER_COUNT * count places,
 * tier after tier. Fails: COH_ERR_ARGUMENT, COH_ERR_MEMORY. */
COH_API coh_status coh_plan_memory_curve(const coh_plan *plan, int32_t count, uint64_t *out_bytes);

/* ---- contents of a plan ---- */

/* Purposes of bytes. Workspaces include inputs, outputs, cells and padding between pinned tensors.
 * PARAMETERS, GRADIENTS and STATES are streams; ACTIVATIONS are kept from forward for backward.
 * WORKSPACES are all others. */
typedef enum coh_plan_purpose {
    COH_PLAN_PARAMETERS,
    COH_PLAN_GRADIENTS,
    COH_PLAN_STATES,
    COH_PLAN_ACTIVATIONS,
    COH_PLAN_WORKSPACES
} coh_plan_purpose;
/* The number of purposes. */
enum { COH_PLAN_PURPOSES = 5 };

/* Reports the bytes of each tier by purpose, at the moment of a steady-state step when that tier is
 * fullest (by predicted times). Their sum is at most peak_bytes; the rest is unused at that moment
 * or needed by another program. Fails: COH_ERR_MEMORY. */
COH_API coh_status coh_plan_memory(const coh_plan *plan,
                                   uint64_t out_bytes[COH_TIER_COUNT][COH_PLAN_PURPOSES]);

/* Placement of one operator's tensors in this plan. `name`, `kind` and `block` are the graph's;
 * `parameter_bytes`, `activation_bytes` (of its outputs) and `saved_bytes` are those of one
 * micro-batch. `states` is where optimizer states are, as `parameters`. */
typedef struct coh_plan_operator {
    uint32_t struct_bytes;
    const char *name, *kind;
    int32_t block;
    uint64_t parameter_bytes, activation_bytes, saved_bytes;
    /* "keep", "recompute" (with its block), "again" (by itself: a norm, a product of elements or a
     * short attention of a block that is not recomputed), "move" (some of them leave the
     * device) */
    const char *activations;
    const char *parameters; /* between steps: "device", "host", "disk"; "-": none */
    const char *states;
    const char *updates; /* lane that updates its parameters: "device", "host"; "-": none */
    /* "replicate": whole, on every device; "slice x4": its weight is used in 4 ranges of rows;
     * "2/4/8": and ranks divide its weights, gradients and states (rank_pattern.h) */
    const char *pattern;
} coh_plan_operator;

/* Returns the number of operators. Index i below is operator i in graph order. */
COH_API int32_t coh_plan_operator_count(const coh_plan *plan);
/* Reads operator `index`; texts in *out_operator live as long as the plan. Fails: COH_ERR_ARGUMENT
 * if there is none. */
COH_API coh_status coh_plan_operator_at(const coh_plan *plan, int32_t index,
                                        coh_plan_operator *out_operator);

/* How a plan treats one parameter. `name` is the graph's. */
typedef struct coh_plan_parameter {
    uint32_t struct_bytes;
    const char *name;
    const char *optimizer; /* that trains it; NULL: no step changes it */
    /* 1: it is not frozen, but no step changes it, because the loss does not depend on it: often a
     * mistake in the graph. Always 0 with COH_PLAN_INFER. */
    int32_t is_unused;
} coh_plan_parameter;
/* Reads parameter `index`, numbered as in coh_graph_parameter_at; texts in *out_parameter live as
 * long as the plan. coh_engine_create reports unused parameters to its log.
 * Fails: COH_ERR_ARGUMENT if there is none. */
COH_API coh_status coh_plan_parameter_at(const coh_plan *plan, int32_t index,
                                         coh_plan_parameter *out_parameter);

/* Result of changing one decision and keeping all others. `fits` is 1 if it can run; `step_ns`,
 * `peak_bytes`, `link_bytes`, `busy_ns` and `exposed_ns` are then as in coh_plan_summary. */
typedef struct coh_plan_trial {
    uint32_t struct_bytes;
    int32_t fits;
    int32_t replaces_pin; /* 1: the plan has a pin for the same target, which the trial replaces */
    uint64_t step_ns;
    uint64_t peak_bytes[COH_TIER_COUNT], link_bytes[COH_LANE_COUNT], busy_ns[COH_LANE_COUNT],
        exposed_ns[COH_LANE_COUNT];
    uint64_t program_hash; /* equal to the plan's if the pin changes nothing */
    char why[512];         /* the reason if it does not fit */
    coh_refusal refusal;   /* the same as data; reason COH_REFUSAL_NONE if it fits */
} coh_plan_trial;

/* Builds, verifies and simulates the step of this plan's decisions with `pin` added to its pins, or
 * replacing one for the same target. It does not search, so a search with this pin may find a
 * better plan. A trial that does not fit is not an error.
 * Fails: COH_ERR_ARGUMENT: the pin matches nothing, contradicts one of the plan's, or needs a
 * missing tier; COH_ERR_MEMORY. */
COH_API coh_status coh_plan_try(const coh_plan *plan, const coh_pin *pin,
                                coh_plan_trial *out_trial);
/* As coh_plan_try, but moves an operator's updates. on_host 1: the host lane updates the parameters
 * of operator `index` and of all blocks after it. 0: the device updates those of operator `index`
 * and of all blocks before it. If the operator's updates are there already, nothing changes; a plan
 * may divide updates at more than one block. Fails: as above, and if there is no host tier. */
COH_API coh_status coh_plan_try_update(const coh_plan *plan, int32_t index, int32_t on_host,
                                       coh_plan_trial *out_trial);

/* Estimates the step time without making a plan: the smallest lower bound among the decisions with
 * which the search begins. Takes tenths of a second, where a plan takes seconds. The search may go
 * on to other decisions, so a plan can be faster; this is rare and a matter of some per cent. 0:
 * unknown, as without a far tier. Fails: as coh_plan_create, except COH_ERR_FULL. */
COH_API coh_status coh_plan_least_ns(const coh_graph *graph, const coh_plan_options *options,
                                     uint64_t *out_ns);

/* Summarizes the plan that coh_plan_create would make, without making it whole, to compare options:
 * verifies nothing and simulates the step alone. Bounds by cause, the step's forecast
 * (step_alone_ns to step_p90_ns), drain_ns, save_ns, evaluate_ns and program_hash are 0, and
 * bound_ns may be. Fails: as coh_plan_create; COH_ERR_ARGUMENT (struct_bytes). */
COH_API coh_status coh_plan_estimate(const coh_graph *graph, const coh_plan_options *options,
                                     coh_plan_summary *out_summary);

/* Returns the bytes that an in-memory run (no far tier) would need: the reference of a "25 %
 * budget". If that program is too long to be planned, the most bytes live at once in it.
 * Fails: as coh_plan_create, except for lack of room. */
COH_API coh_status coh_plan_in_memory_bytes(const coh_graph *graph, const coh_plan_options *options,
                                            uint64_t *out_bytes);

/* Returns the least disk bytes written per step among the plans that the search begins with: the
 * smallest wear_bytes for which a plan is found, for a program that chooses wear_bytes before it
 * plans. A refusal names the same bytes. options->wear_bytes is ignored. 0: unknown, or a plan that
 * writes nothing was found. Fails: as coh_plan_create, except for lack of room. */
COH_API coh_status coh_plan_least_written(const coh_graph *graph, const coh_plan_options *options,
                                          uint64_t *out_bytes);

/* Writes plan.json to `path`, whole or not at all: decisions, slots, predictions, builder version,
 * program hash. Canonical: equal plans give equal bytes. An existing file is replaced only if it is
 * empty or a plan. Fails: COH_ERR_ARGUMENT (another file), COH_ERR_IO, COH_ERR_MEMORY. */
COH_API coh_status coh_plan_write(const coh_plan *plan, const char *path);

/* Bytes of a plan's note with its end. */
enum { COH_PLAN_NOTE_BYTES = 16384 };
/* As coh_plan_write, with a note for the caller's own later use: a text of at most
 * COH_PLAN_NOTE_BYTES - 1 bytes without control characters.
 * Fails: COH_ERR_ARGUMENT, COH_ERR_IO, COH_ERR_MEMORY. */
COH_API coh_status coh_plan_write_noted(const coh_plan *plan, const char *note, const char *path);

/* Facts in a plan file, read without rebuilding the plan. `profile_hash` is that of the profile.
 * `program_hash`, `step_ns`, `chunk_bytes` and `numeric_fingerprint` are as in coh_plan_summary;
 * `peak_device_bytes`, `peak_host_bytes` and `peak_disk_bytes` are its peaks. `host_memory_bytes`
 * and `disk_bytes` are the limits that the plan was made for, `is_gpu` its kind of device.
 * `microbatch_count`, `deferred_update`, `optimizer` and the `optimizer_choice_count` entries of
 * `optimizer_choices` are as in coh_plan_options, and so are `replicas`, `ranks`, `pair_ranks` and
 * `node_ranks`; `pin_count`, `operator_count`: pins and operators. */
typedef struct coh_plan_file {
    uint32_t struct_bytes;
    char note[COH_PLAN_NOTE_BYTES]; /* "": none */
    char profile_name[64];          /* profile that priced it */
    uint64_t profile_hash, program_hash, peak_device_bytes, step_ns, host_memory_bytes, disk_bytes;
    int32_t is_gpu, microbatch_count;
    uint64_t peak_host_bytes, peak_disk_bytes, chunk_bytes, numeric_fingerprint;
    uint32_t instruction_count;  /* of the body */
    coh_sweep_order sweep_order; /* never AUTO */
    int32_t is_in_memory;        /* nothing leaves the device */
    int32_t recomputes;          /* blocks */
    int32_t host_updates;        /* number of blocks that the host lane updates */
    int32_t pin_count, operator_count;
    int32_t f32_gradients; /* of bf16 parameters */
    int32_t atomics;       /* 1: a kind may add by atomics on a GPU, so bits vary from run to run */
    /* Number of operators per place or treatment: "12 device, 30 disk". */
    char parameters[96], states[96], activations[96];
    /* as in coh_plan_options */
    char optimizer[COH_OPTIMIZER_NAME_BYTES];
    int32_t optimizer_choice_count;
    coh_optimizer_choice optimizer_choices[COH_OPTIMIZER_CHOICES_MOST];
    int32_t deferred_update;
    coh_fold_shape replicas, ranks;
    int32_t speculates; /* as in coh_plan_options */
    coh_wires wires;    /* likewise */
    int32_t pair_ranks, node_ranks;
    coh_reduce reduce; /* as in coh_plan_options */
} coh_plan_file;
/* Reads the facts. Fails: COH_ERR_CORRUPT, COH_ERR_IO, COH_ERR_MEMORY. */
COH_API coh_status coh_plan_file_read(const char *path, coh_plan_file *out_file);
/* As coh_plan_file_read, from the text of a plan file, which ranks share (coh_world_share_plan). */
COH_API coh_status coh_plan_file_parse(const char *text, coh_plan_file *out_file);

/* Rebuilds the plan in file `path` for this graph, compares hashes and verifies. `options` gives
 * the budgets (the plan's peaks must fit; a far tier of 0 bytes is as large as in the file), thread
 * count and profile; the pins are the file's.
 * Fails: COH_ERR_CORRUPT (foreign, malformed, or the rebuilt program differs), COH_ERR_FULL;
 * COH_ERR_ARGUMENT if other options differ from those it was made with, or a GPU's plan has no
 * profile. */
COH_API coh_status coh_plan_read(const coh_graph *graph, const coh_plan_options *options,
                                 const char *path, coh_plan **out_plan);

/* As coh_plan_read, from the text of a plan file; `name` stands for the file in messages. */
COH_API coh_status coh_plan_parse(const coh_graph *graph, const coh_plan_options *options,
                                  const char *name, const char *text, coh_plan **out_plan);

/* Writes the program as text, one instruction per line, for people and diffs.
 * An existing file is replaced only if it is empty or such a listing.
 * Fails: COH_ERR_ARGUMENT (another file), COH_ERR_IO, COH_ERR_MEMORY. */
COH_API coh_status coh_plan_write_program(const coh_plan *plan, const char *path);

/* Checks that `path` is a complete, well-formed plan file. Fails: COH_ERR_CORRUPT, COH_ERR_IO. */
COH_API coh_status coh_plan_check_file(const char *path);

#ifdef __cplusplus
}
#endif
#endif
