/* oracle.h - the shortest period of a tiny step, found by trying all there is: any item fetched at
 * any time, any victim. It knows nothing of the planner: items, lines, one link in each direction.
 *
 * A state is what a clock would see: the next line, how long the present one still runs, what is
 * there and where, what of it is changed, what is on its way and for how long. From every state in
 * which a step may begin, best-first to the same state one step later. The places are part of it
 * where items are of one size: a program has fixed addresses, so a step that ends with its items in
 * one another's places is no period. Other items fit where there are bytes enough. */
#ifndef COH_TESTS_PLANNER_ORACLE_H
#define COH_TESTS_PLANNER_ORACLE_H

#include <stdint.h>

enum { ORACLE_ITEMS_MOST = 6, ORACLE_LINES_MOST = 24 };

typedef struct oracle_line {
    int time;        /* >= 1 */
    uint8_t reads;   /* items, as bits */
    uint8_t changes; /* a part of them */
} oracle_line;

/* Times and sizes are whole numbers; a link moves one item at a time, one unit in one time. */
typedef struct oracle_instance {
    int item_count, line_count, room;
    int size[ORACLE_ITEMS_MOST];
    oracle_line line[ORACLE_LINES_MOST];
    int unit_time; /* of one unit over a link */
} oracle_instance;

/* The least time from one step's end to the next one's; 0: no line order can run at all. */
int oracle_period(const oracle_instance *instance);

#endif
