/* Plays a recorded step with other durations. The one idea: the program and its waits stay, and a
 * lane keeps as many instructions in flight as it had, so the difference between two plays is what
 * the durations change. */
#include <string.h>

#include "base/alloc.h"
#include "report/analysis.h"

enum { TURNS = 6 };

/* Ends of this step's and the last step's instructions, and of the last ones of each lane. */
typedef struct play {
    const report_window *window;
    const uint64_t *durations;
    uint64_t *ends, *before;
    uint64_t *rings[COH_LANE_COUNT]; /* of in_flight places */
    uint64_t positions[COH_LANE_COUNT];
} play;

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Plays one step; returns the begin of its first compute instruction. */
static uint64_t play_step(play *p)
{
    const coh_trace *t = p->window->trace;
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < t->instruction_count; i++) {
        const coh_trace_instruction *in = &t->instructions[i];
        const uint32_t places = later(p->window->lanes[in->lane].in_flight, 1);
        uint64_t *place = &p->rings[in->lane][p->positions[in->lane]++ % places];
        uint64_t begin = *place;
        for (uint32_t w = 0; w < in->wait_count; w++) {
            const coh_trace_wait *wait = &t->waits[in->wait_begin + w];
            begin = later(begin, (wait->carry ? p->before : p->ends)[wait->instruction]);
        }
        *place = p->ends[i] = begin + p->durations[i];
        if (in->lane == COH_LANE_COMPUTE && begin < first)
            first = begin;
    }
    memcpy(p->before, p->ends, t->instruction_count * sizeof(*p->ends));
    return first;
}

static coh_status play_all(play *p, uint64_t *out_step_ns)
{
    const coh_trace *t = p->window->trace;
    uint64_t first[TURNS];
    COH_TRY(COH_ALLOC(t->instruction_count, &p->ends));
    COH_TRY(COH_ALLOC(t->instruction_count, &p->before));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        COH_TRY(COH_ALLOC(p->window->lanes[lane].in_flight + 1, &p->rings[lane]));
    for (int turn = 0; turn < TURNS; turn++)
        first[turn] = play_step(p);
    *out_step_ns = (first[TURNS - 1] - first[TURNS - 3]) / 2;
    return COH_OK;
}

coh_status report_replay(const report_window *window, const uint64_t *durations,
                         uint64_t *out_step_ns)
{
    play p = { .window = window, .durations = durations };
    const coh_status status = play_all(&p, out_step_ns);
    coh_free(p.ends);
    coh_free(p.before);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        coh_free(p.rings[lane]);
    return status;
}
