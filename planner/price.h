/* price.h - how long each instruction of a program takes when it runs alone, by a profile.
 *
 *     bytes over a link      bytes / its rate                    (the simulator adds the latency)
 *     operators              samples of the same signature (of a backward in the same form, or the
 *                            nearest to it: coh_backward_signature), else the mean of all samples
 *                            of its kind, dtype and phase, else the roofline
 *     weights in NF4         the operator with plain weights, and opening them: their bytes, packed
 *                            and opened, at the memory's rate; on a processor at least
 *                            COH_OPEN_NS of a thread for each element. Samples of the operator
 *                            itself have both
 *     norm, add, ...         samples of that name and dtype, else the roofline
 *     update                 samples of its optimizer, else of AdamW, else the roofline
 *
 * The roofline: max(flops / rate, bytes / memory rate). Samples and rates are of kernels alone;
 * instruction_ns is added to either. The calibration factor of the opcode multiplies the result.
 * Every price is a median with its spread. */
#ifndef COH_PLANNER_PRICE_H
#define COH_PLANNER_PRICE_H

#include "planner/graph.h"
#include "planner/profile.h"
#include "planner/program.h"

/* In nanoseconds. Instructions with the same `source` are priced from the same figure, so they
 * share its error. */
typedef struct coh_price {
    double p10, p50, p90;
    uint32_t source;
} coh_price;

/* Longer than any program takes (146 years); fits the clock of a walk. */
#define COH_NS_MOST ((uint64_t)1 << 62)

/* Rounds to whole nanoseconds; negative values become 0, values beyond the clock COH_NS_MOST. */
static inline uint64_t coh_whole_ns(double ns)
{
    if (!(ns > 0))
        return 0;
    return ns < (double)COH_NS_MOST ? (uint64_t)(ns + 0.5) : COH_NS_MOST;
}

/* The curves of one operator and phase, or of one opcode: curves[begin .. end). */
typedef struct coh_curve_range {
    uint32_t begin, end;
} coh_curve_range;

/* Samples as a function of work. */
typedef struct coh_price_curve {
    const coh_operator_times *times;
    double *work; /* seconds at the roofs, of each sample */
} coh_price_curve;

/* Nanoseconds in which a thread opens an element on a processor (kernels/cpu/nf4.c): 0.45 in bf16,
 * 0.51 in f32 on an EPYC with AVX-512. */
#define COH_OPEN_NS 0.5

/* What an operator opens. Zeroed: nothing, or its samples have it. */
typedef struct coh_opening {
    double part[COH_PHASE_COUNT]; /* of an instruction's bytes: read packed, written opened */
    double element_bytes;         /* of an element, both together */
} coh_opening;

/* The curves of one optimizer's updates: by is bf16, is on the host lane. */
typedef struct coh_update_curves {
    const coh_optimizer *optimizer;
    coh_curve_range ranges[2][2];
} coh_update_curves;

/* The figures of a profile, looked up once for every operator of a graph. Borrows both. */
typedef struct coh_pricer {
    const coh_profile *profile;
    size_t op_count;
    coh_price_curve *curves; /* by kind, phase, lane, dtype */
    uint32_t curve_count;
    double *work;                                /* of all curves */
    coh_curve_range *operators;                  /* by operator: forward, backward by its form */
    coh_opening *openings;                       /* by operator; NULL: no weight is in NF4 */
    coh_curve_range opcodes[COH_OP_COUNT][2][2]; /* by is bf16, is on the host lane */
    coh_update_curves *updates;                  /* of every optimizer */
    int32_t update_count;
} coh_pricer;

/* `graph`: NULL if programs run no kinds. Fails: COH_ERR_MEMORY; *out_pricer can then be
 * released. */
coh_status coh_pricer_init(coh_pricer *out_pricer, const coh_profile *profile,
                           const coh_graph *graph);
void coh_pricer_fini(coh_pricer *pricer); /* accepts a zeroed struct */

/* Returns 1 if the profile has a measurement of the operator's kind. */
int coh_pricer_is_measured(const coh_pricer *pricer, size_t op);

/* Returns the link that the bytes of an instruction cross: that of its lane; of an exchange within
 * pairs theirs, if the profile has one; of an exchange between nodes else that within a node.
 * NULL: none. */
const coh_link_profile *coh_price_link(const coh_profile *profile, const coh_program *program,
                                       const coh_instruction *instruction);

struct coh_plan_options;

/* Returns the part of their time in which updates on the host, priced by the roofline, move bytes
 * at the memory's rate; the rest of it they compute on codes of fewer bytes. From 0 to 1, and 1 if
 * nothing is trained. */
double coh_price_update_part(const coh_graph *graph, const struct coh_plan_options *options);

/* Returns by how much a run is expected to differ from the price of an instruction, as a part of
 * it: the calibration's uncertainty. All instructions share the error, as far as they have one. */
double coh_price_uncertainty(const coh_profile *profile, const coh_instruction *instruction);

/* Returns the price of an instruction while nothing else runs. */
coh_price coh_price_instruction(const coh_pricer *pricer, const coh_layout *layout,
                                const coh_program *program, const coh_instruction *instruction);

/* Returns the name under which a profile stores samples of an instruction that runs no kind:
 * "norm", "add", ...; those of updates are AdamW's. */
const char *coh_price_name(coh_opcode opcode);

/* Writes the name under which a profile stores samples of an optimizer's updates: "update" of
 * AdamW, "update NAME" of the others. A processor computes longer on fewer bytes if states are
 * codes. A profile without these samples has AdamW's, by bytes. */
void coh_price_update_name(const coh_optimizer *optimizer, char *out, size_t bytes);

#endif
