#include "planner/at_once.h"

#include <assert.h>
#include <stdio.h>

#include "cohobate/status.h"

typedef struct round {
    coh_at_once_piece piece;
    void *argument;
    coh_status status[COH_AT_ONCE_MOST];
    char sentence[COH_AT_ONCE_MOST][COH_ERROR_TEXT_BYTES]; /* of what failed, on its thread */
} round;

static void run_piece(void *argument, int64_t index)
{
    round *r = argument;
    r->status[index] = r->piece(r->argument, (int)index);
    if (r->status[index] != COH_OK)
        snprintf(r->sentence[index], COH_ERROR_TEXT_BYTES, "%s", coh_last_error());
}

coh_status coh_at_once(coh_pool *pool, int count, coh_at_once_piece piece, void *argument)
{
    round r = { .piece = piece, .argument = argument };
    assert(count <= COH_AT_ONCE_MOST);
    coh_pool_run(pool, count, run_piece, &r);
    for (int i = 0; i < count; i++)
        if (r.status[i] != COH_OK)
            return coh_fail(r.status[i], "%s", r.sentence[i]);
    return COH_OK;
}
