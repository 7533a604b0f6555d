/* mutate.h - the mutations: lists all that apply to a program, and makes a changed copy for
 * each. */
#ifndef COH_TESTS_MUTATE_H
#define COH_TESTS_MUTATE_H

#include "tests/planner/mutations.h"

typedef struct mutation {
    mutation_kind kind;
    uint32_t index; /* index of the wait, instruction, extent, operand, ... */
    int32_t amount;
} mutation;

typedef struct mutant {
    coh_layout layout;
    coh_program program;
    coh_verify_options options;
} mutant;

void copy_mutant(const coh_layout *layout, const coh_program *program,
                 const coh_verify_options *options, mutant *out);
void free_mutant(mutant *m);

size_t list_mutations(const coh_layout *layout, const coh_program *program, mutation **out);

/* Returns 0 if the mutation does not apply here (no such neighbour, offset, ...). */
int apply_mutation(mutant *m, const mutation *what, uint64_t seed);

/* Mutations that change no instruction, wait or call (mutate_tables.c). */
int mutate_table(mutant *m, const mutation *what);

#endif
