/* bounds.h - what no schedule of a set of decisions can be faster than, without writing one.
 *
 *     graph + decisions ──> base (lines and their times, accesses) ──┬─> at 8 GiB:  bounds, bytes
 *                                                                    └─> at 16 GiB: ...
 *
 * A base takes the compute lines as the schedule will have them (lower.h), priced line by line, so
 * that compute's bound is exact. Over links the fewest bytes of any residency go at the link's best
 * rate (bounds_traffic.h). Nothing is placed: milliseconds, where a schedule takes seconds.
 *
 * The window bound: between the beginnings of lines p and q pass at least the bytes that p..q need
 * beyond one room; the rest of the step's lines come after q, one after the other:
 *
 *     step >= max over p, q of  bytes(p, q) / rate + latency + compute(q .. p of the next step)
 *
 * Updates on the host lane keep no order with the compute lines. Over the device's link they make
 * copies stale; over the drive, below device and host as one room, states and gradients that they
 * use are kept or moved wherever they run between their gradients and their parameters' next use
 * (coh_traffic_init_spans).
 *
 * Valid while lanes run alone, therefore also while they slow one another; the four bounds of two
 * lanes at once (link, drive, cores, DRAM) hold of lanes that slow one another as the profile
 * says. */
#ifndef COH_PLANNER_BOUNDS_H
#define COH_PLANNER_BOUNDS_H

#include "planner/plan.h"

typedef struct coh_bound_base coh_bound_base;

/* All arguments must outlive the base. decisions->device_bytes is not used.
 * Fails: COH_ERR_MEMORY, and as coh_layout_build. */
coh_status coh_bound_base_create(const coh_graph *graph, const coh_plan_options *options,
                                 const coh_pricer *pricer, const coh_decisions *decisions,
                                 coh_bound_base **out_base);
void coh_bound_base_destroy(coh_bound_base *base); /* accepts NULL */

/* The bounds with so much room on the device and in the host tier (0: there is none). With
 * decisions->in_memory nothing moves. Fails: COH_ERR_MEMORY. */
coh_status coh_bounds_at(const coh_bound_base *base, uint64_t device_bytes, uint64_t host_bytes,
                         coh_bounds *out_bounds);

#endif
