/* Runs a visited program: passes the runs of elements that its visitor wants, keeps the visitor's
 * first failure and tells how far it is. Next: instruction_chunk.c. */
#include "engine/visit.h"

#include <inttypes.h>
#include <math.h>

/* Counts a run of values as done, and tells the caller of each hundredth. */
static void tell_progress(coh_visit *visit, const coh_chunk_visit *run)
{
    const coh_engine *engine = visit->engine;
    if (visit->status != COH_OK || run->stream != COH_STREAM_WORK)
        return;
    visit->done += run->count;
    if (engine->options.progress == NULL ||
        (visit->done < visit->total && visit->done - visit->told < visit->total / 100))
        return;
    visit->told = visit->done;
    engine->options.progress(engine->options.progress_context, visit->operation, visit->done,
                             visit->total);
}

static int wants(void *context, const coh_chunk_visit *run)
{
    coh_visit *visit = context;
    const int is_wanted =
        visit->status == COH_OK && visit->take != NULL && visit->wants(visit, run);
    if (!is_wanted)
        tell_progress(visit, run);
    return is_wanted;
}

static coh_status take(void *context, const coh_chunk_visit *run)
{
    coh_visit *visit = context;
    visit->status = visit->take(visit, run);
    if (visit->status != COH_OK)
        coh_error_save(visit->text);
    tell_progress(visit, run);
    return COH_OK;
}

coh_status coh_engine_visit(coh_engine *engine, coh_program_kind kind, coh_visit *visit,
                            const coh_step_input *input)
{
    visit->engine = engine;
    visit->status = COH_OK;
    visit->total = engine->elements - (visit->skips_frozen ? engine->frozen_elements : 0);
    const coh_step_feed feed = { .input = input,
                                 .visitor = take,
                                 .visitor_wants = wants,
                                 .visitor_context = visit,
                                 .skips_frozen = visit->skips_frozen };
    COH_TRY(coh_engine_run_program(engine, kind, &feed, NULL));
    if (visit->status != COH_OK)
        coh_error_restore(visit->text);
    return visit->status;
}

int coh_visit_wants_values_and_states(const coh_visit *visit, const coh_chunk_visit *run)
{
    (void)visit;
    return run->stream != COH_STREAM_GRAD;
}

coh_status coh_check_values(const char *name, uint64_t element_begin, uint64_t count,
                            const float *values)
{
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return coh_fail(COH_ERR_NUMBER,
                            "the value for element %" PRIu64 " of parameter '%s' is %g: only "
                            "finite numbers can be written",
                            element_begin + i, name, (double)values[i]);
    return COH_OK;
}
