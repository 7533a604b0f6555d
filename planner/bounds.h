/* bounds.h - lower bounds of the step time for a set of decisions, without building a schedule.
 *
 *     graph + decisions ──> base (instructions, times, accesses) ──┬─> at 8 GiB:  bounds, bytes
 *                                                                  └─> at 16 GiB: ...
 *
 * A base takes the compute instructions that the schedule will have (lower.h) and prices each of
 * them, so the compute bound is exact. For links, the fewest bytes of any residency are moved at
 * the link's best rate (bounds_traffic.h). Nothing is placed, so bounds take milliseconds and a
 * schedule takes seconds.
 *
 * The window bound: between the beginnings of instructions p and q at least those bytes must move
 * that p..q need beyond the capacity. The other instructions of the step run after q, one after
 * another:
 *
 *     step >= max over p, q of  bytes(p, q) / rate + latency + compute(q .. p of the next step)
 *
 * Updates on the host lane have no fixed order relative to compute instructions. Over the device's
 * link, they make device copies stale. Over the drive, device and host count as one memory: states
 * and gradients that updates use are kept or moved, whenever the updates run between their
 * gradients and the next use of their parameters (coh_traffic_init_spans).
 *
 * The bounds hold if lanes run alone, and therefore also if they slow one another. The four
 * bounds of lanes at once (link, drive, cores, DRAM), and that of the host's window, hold for lanes
 * that slow one another as the profile's contention says, or share the host's memory. */
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

/* Computes the bounds for this device and host capacity (0: no such tier). With
 * decisions->in_memory nothing moves. Fails: COH_ERR_MEMORY. */
coh_status coh_bounds_at(coh_bound_base *base, uint64_t device_bytes, uint64_t host_bytes,
                         coh_bounds *out_bounds);

/* As coh_bounds_at, for most_ns alone: it is exact below `enough_ns`, else any number from
 * `enough_ns` up to the exact one. The other fields may be too small, or name another bound. The
 * compute bound is first: 0 gives it alone. */
coh_status coh_bounds_until(coh_bound_base *base, uint64_t device_bytes, uint64_t host_bytes,
                            uint64_t enough_ns, coh_bounds *out_bounds);

#endif
