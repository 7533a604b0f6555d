/* Runs independent pieces on a pool and reports the first failure by index. The idea: error
 * messages are per thread, so each piece copies its message for the caller. Interface:
 * at_once.h. */
#include "planner/at_once.h"

#include <assert.h>

#include "base/refusal.h"

typedef struct sharing {
    coh_at_once_piece piece;
    void *argument;
    coh_status status[COH_AT_ONCE_MOST];
    /* messages and refusals of failed pieces, copied on their threads; struct_bytes 0: none */
    char sentence[COH_AT_ONCE_MOST][COH_ERROR_TEXT_BYTES];
    coh_refusal refusal[COH_AT_ONCE_MOST];
} sharing;

static void run_piece(void *argument, int64_t index)
{
    sharing *s = argument;
    s->status[index] = s->piece(s->argument, (int)index);
    if (s->status[index] == COH_OK)
        return;
    coh_error_save(s->sentence[index]);
    s->refusal[index].struct_bytes = sizeof(s->refusal[index]);
    if (!coh_last_refusal(&s->refusal[index]))
        s->refusal[index].struct_bytes = 0;
}

coh_status coh_at_once(coh_pool *pool, int count, coh_at_once_piece piece, void *argument)
{
    sharing s = { .piece = piece, .argument = argument };
    assert(count <= COH_AT_ONCE_MOST);
    coh_pool_run(pool, count, run_piece, &s);
    for (int i = 0; i < count; i++)
        if (s.status[i] != COH_OK)
            return s.refusal[i].struct_bytes > 0 ? coh_refuse(&s.refusal[i])
                                                 : coh_fail(s.status[i], "%s", s.sentence[i]);
    return COH_OK;
}
