/* How fast the machine is right now. Others run on it: a neighbour on the same cores, a browser, a
 * clock that was raised. They come in spells of a tenth of a second to minutes, so a figure taken
 * in one says nothing of the machine; what it is at its best it can be again. */
#include <math.h>

#include "base/alloc.h"
#include "engine/measure.h"

/* Of a look: long enough that one interrupt is nothing in it. */
#define LOOK_NS ((uint64_t)10000000)
/* Before anything is measured: the first one finds cold pages and clocks. */
#define FIRST_LOOKS 2

coh_status coh_pacer_open(coh_roofs *roofs, coh_pacer *out_pacer)
{
    *out_pacer =
        (coh_pacer){ .loads = { coh_roofs_product(roofs, COH_DTYPE_F32), coh_roofs_pass(roofs) } };
    coh_pace first;
    for (int i = 0; i < FIRST_LOOKS; i++)
        COH_TRY(coh_pacer_look(out_pacer, &first));
    return COH_OK;
}

coh_status coh_pacer_look(coh_pacer *pacer, coh_pace *out_pace)
{
    for (int i = 0; i < COH_PACE_LOADS; i++) {
        double *rate = &out_pace->rates[i];
        COH_TRY(coh_load_rate(&pacer->loads[i], LOOK_NS, rate));
        pacer->best.rates[i] = fmax(pacer->best.rates[i], *rate);
    }
    return COH_OK;
}

/* The slower of two, load by load. */
static coh_pace slower_of(const coh_pace *a, const coh_pace *b)
{
    coh_pace slower;
    for (int i = 0; i < COH_PACE_LOADS; i++)
        slower.rates[i] = fmin(a->rates[i], b->rates[i]);
    return slower;
}

double coh_pacer_share(const coh_pacer *pacer, const coh_pace *pace)
{
    double share = 1;
    for (int i = 0; i < COH_PACE_LOADS; i++)
        if (pacer->best.rates[i] > 0)
            share = fmin(share, pace->rates[i] / pacer->best.rates[i]);
    return share;
}

/* ---- turns ---- */

typedef struct state {
    coh_pace pace; /* of the best attempt */
    int is_left_out;
} state;

static int is_steady(const coh_pacer *pacer, const state *s)
{
    return s->is_left_out || coh_pacer_share(pacer, &s->pace) >= COH_PACE_LEAST;
}

static coh_status try_one(coh_pacer *pacer, const coh_paced *paced, uint32_t index, state *s)
{
    coh_pace before, after;
    COH_TRY(coh_pacer_look(pacer, &before));
    COH_TRY(paced->attempt(paced->context, index, &s->is_left_out));
    if (s->is_left_out)
        return COH_OK;
    COH_TRY(coh_pacer_look(pacer, &after));
    const coh_pace pace = slower_of(&before, &after);
    if (coh_pacer_share(pacer, &pace) > coh_pacer_share(pacer, &s->pace)) {
        paced->keep(paced->context, index);
        s->pace = pace;
    }
    return COH_OK;
}

coh_status coh_pacer_turns(coh_pacer *pacer, const coh_paced *paced, int turns,
                           uint32_t *out_unsteady)
{
    state *states;
    coh_status status = COH_OK;
    *out_unsteady = 0;
    COH_TRY(COH_ALLOC(paced->count, &states));
    for (int turn = 0; turn < turns; turn++)
        for (uint32_t i = 0; i < paced->count && status == COH_OK; i++)
            if (turn == 0 || !is_steady(pacer, &states[i]))
                status = try_one(pacer, paced, i, &states[i]);
    for (uint32_t i = 0; i < paced->count; i++)
        *out_unsteady += !is_steady(pacer, &states[i]);
    coh_free(states);
    return status;
}
