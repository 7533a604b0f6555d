/* oracle.h - finds the shortest period of a tiny step by exhaustive search: any item may be fetched
 * at any time, with any victims. It knows nothing of the planner: only items, instructions and one
 * link in each direction.
 *
 * A state has the next instruction and the remaining time of the running one, which items are
 * present, where they are and whether they are changed, and the transfers in progress. From each
 * possible initial state the search goes best-first to the same state one step later. Items of
 * one size have slots, which are part of the state: a program has fixed addresses, so a step
 * that ends with two items swapped is no period. Other items fit wherever there are enough
 * bytes. */
#ifndef COH_TESTS_PLANNER_ORACLE_H
#define COH_TESTS_PLANNER_ORACLE_H

#include <stdint.h>

enum { ORACLE_ITEMS_MOST = 6, ORACLE_INSTRUCTIONS_MOST = 24 };

typedef struct oracle_instruction {
    int time;        /* >= 1 */
    uint8_t reads;   /* bit set of items */
    uint8_t changes; /* a subset of `reads` */
} oracle_instruction;

/* Times and sizes are integers; a link moves one item at a time, at `unit_time` per unit. */
typedef struct oracle_instance {
    int item_count, instruction_count, room;
    int size[ORACLE_ITEMS_MOST];
    oracle_instruction instruction[ORACLE_INSTRUCTIONS_MOST];
    int unit_time; /* time of one unit on a link */
} oracle_instance;

/* Returns the shortest time from the end of a step to the end of the next; 0: no schedule can
 * run. */
int oracle_period(const oracle_instance *instance);

#endif
