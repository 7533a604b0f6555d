/* rank_choice.h - the rank pattern "auto": of all patterns the one with the fastest plan; of those
 * that are as fast, the first of the list.
 *
 * Patterns do not affect bits, so the choice may depend on calibration. */
#ifndef COH_PLANNER_RANK_CHOICE_H
#define COH_PLANNER_RANK_CHOICE_H

#include "planner/plan.h"

/* Returns 1 if the plan chooses the pattern. */
int coh_rank_pattern_is_auto(const coh_plan_options *options);

/* Lists the patterns that options->rank_pattern stands for, in the order of the list: those of
 * "auto" that these ranks can have, without those that divide the same; else the one given. Returns
 * their number, at least 1. */
int coh_rank_choices(const coh_plan_options *options, const char *names[COH_RANK_PATTERNS_MOST]);

/* Makes a plan for given options. */
typedef coh_status coh_plan_maker(const coh_graph *graph, const coh_plan_options *options,
                                  coh_plan_depth depth, coh_plan **out_plan);

/* Makes plans with `make` and keeps the fastest: quick ones of all patterns, then usual ones of
 * those that are about as fast as the best. If none fits, fails as the pattern that lacks least. */
coh_status coh_rank_choice_plan(const coh_graph *graph, const coh_plan_options *options,
                                coh_plan_depth depth, coh_plan_maker *make, coh_plan **out_plan);

/* Computes a number of a plan's options. It need not be exact below `enough`. */
typedef coh_status coh_plan_number(const coh_graph *graph, const coh_plan_options *options,
                                   uint64_t enough, uint64_t *out_number);

/* Computes the least number above 0 over the patterns that options->rank_pattern stands for; 0 if
 * it is 0 for all. Takes the first below `enough` (0: none is). */
coh_status coh_rank_choice_least(const coh_graph *graph, const coh_plan_options *options,
                                 coh_plan_number *number, uint64_t enough, uint64_t *out_least);

#endif
