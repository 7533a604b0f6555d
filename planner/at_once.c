/* Runs independent pieces on a pool and reports the first failure by index. The idea: error
 * messages are per thread, so each piece copies its message for the caller. Interface:
 * at_once.h. */
#include "planner/at_once.h"

#include <assert.h>
#include <stdio.h>

#include "cohobate/status.h"

typedef struct sharing {
    coh_at_once_piece piece;
    void *argument;
    coh_status status[COH_AT_ONCE_MOST];
    /* messages of failed pieces, copied on their threads */
    char sentence[COH_AT_ONCE_MOST][COH_ERROR_TEXT_BYTES];
} sharing;

static void run_piece(void *argument, int64_t index)
{
    sharing *s = argument;
    s->status[index] = s->piece(s->argument, (int)index);
    if (s->status[index] != COH_OK)
        snprintf(s->sentence[index], COH_ERROR_TEXT_BYTES, "%s", coh_last_error());
}

coh_status coh_at_once(coh_pool *pool, int count, coh_at_once_piece piece, void *argument)
{
    sharing s = { .piece = piece, .argument = argument };
    assert(count <= COH_AT_ONCE_MOST);
    coh_pool_run(pool, count, run_piece, &s);
    for (int i = 0; i < count; i++)
        if (s.status[i] != COH_OK)
            return coh_fail(s.status[i], "%s", s.sentence[i]);
    return COH_OK;
}
