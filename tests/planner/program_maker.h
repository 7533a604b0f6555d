/* program_maker.h - small valid programs, made by rules so simple that they are right by
 * inspection.
 *
 *   operators   0 embedding (table, by two ranges of rows)   1 layer (two parameters, adds by ADD)
 *               2 layer   3 classifier (the same table, by rows) -> loss
 *
 * Chunks are loaded when an instruction needs them and evicted when room is needed (least
 * recently used first). There is one wait for each conflict on bytes, less those that
 * happens_before.c shows to be implied. Of the planner, only the tables of program.h are used. */
#ifndef COH_TESTS_PROGRAM_MAKER_H
#define COH_TESTS_PROGRAM_MAKER_H

#include "planner/program.h"

typedef struct maker_recipe {
    const char *name;
    int deferred;  /* updates after backward, behind a CLIP; else during backward */
    int host_tier; /* disk <-> host <-> device, else disk <-> device */
    int recompute; /* recompute operator 1 */
    int microbatches;
    uint32_t device_pages, host_pages;
    uint32_t compute_depth, mover_depth;
    int resident_count; /* number of boundary entries, 0 to 3 */
    int halves;         /* 1: group 1 is bf16 */
} maker_recipe;

typedef struct made_program {
    coh_layout layout;
    coh_program program;
} made_program;

/* Returns 1, or 0 if this recipe has no such program (a drain without deferred updates). Aborts if
 * the program does not fit: recipes are constants of the tests. */
int make_program(const maker_recipe *recipe, coh_program_kind kind, made_program *out);
void made_program_fini(made_program *made);

/* Derives all waits again from the conflicts and leaves out implied ones. Aborts if conflicts reach
 * two bodies back. */
void make_waits(coh_program *program);
/* As make_waits, but leaves out none. Returns 0 if the waits do not order all conflicts. */
int make_all_waits(coh_program *program);

extern const maker_recipe maker_recipes[];
extern const int maker_recipe_count;

#endif
