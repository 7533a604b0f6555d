/* The whole of a measurement: what is done, in which order, and the lanes beside one another.
 *
 *   probe | roofs | operators | chunks | links | drive | pairs of lanes | probe */
#include "engine/measure.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "kernels/kernels.h"

/* A machine whose probes before and after differ by more was two machines. */
#define DRIFT_MOST 0.05
#define UNSTEADY   ", unsteady"

static const coh_effort full = {
    .samples_least = 7,
    .samples_most = 21,
    .budget_ns = 300000000,
    .window_ns = 40000000,
    .cold_bytes = (uint64_t)512 << 20,
    .disk_bytes = (uint64_t)1 << 30,
    .disk_chunk_bytes = (uint64_t)2 << 20,
    .sustained_bytes = (uint64_t)4 << 30,
    .link_bytes = (uint64_t)256 << 20,
    .deepest = 64,
    .line_count = 1000,
};

static const coh_effort quick = {
    .samples_least = 3,
    .samples_most = 5,
    .budget_ns = 20000000,
    .window_ns = 5000000,
    .cold_bytes = (uint64_t)32 << 20,
    .disk_bytes = (uint64_t)32 << 20,
    .disk_chunk_bytes = (uint64_t)1 << 20,
    .link_bytes = (uint64_t)16 << 20,
    .deepest = 16,
    .line_count = 200,
};

void coh_measure_options_init(coh_measure_options *out_options)
{
    *out_options = (coh_measure_options){ .struct_bytes = sizeof(*out_options),
                                          .thread_count = 1,
                                          .disk_bytes = UINT64_MAX };
}

void coh_measure_begin(coh_measure *m, const char *format, ...)
{
    char what[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    if (m->options->progress != NULL)
        m->options->progress(m->options->context, m->done_count, m->total_count, what);
    m->done_count++;
}

void coh_measure_say(const coh_measure *m, const char *format, ...)
{
    char sentence[COH_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    if (m->options->log != NULL)
        m->options->log(m->options->context, sentence);
}

/* ---- lanes beside one another ---- */

static const coh_lane lanes[] = { COH_LANE_COMPUTE, COH_LANE_H2D, COH_LANE_D2H, COH_LANE_READ,
                                  COH_LANE_WRITE };
enum { LANES = sizeof(lanes) / sizeof(lanes[0]), PAIRS = LANES * (LANES - 1) / 2 };

static double part_of(const coh_samples *samples)
{
    const double part = coh_samples_figure(samples).p50;
    return fmin(fmax(part, COH_PROFILE_PART_LEAST), 1);
}

/* Alone and together in turns: a ratio survives a machine that changes its speed. */
static coh_status measure_pair(coh_measure *m, coh_lane a, coh_lane b)
{
    const uint64_t window_ns = 2 * m->effort.window_ns;
    coh_samples samples[2];
    coh_samples_begin(&samples[0]);
    coh_samples_begin(&samples[1]);
    while (coh_samples_go_on(&samples[0], &m->effort)) {
        double alone[2], together[2];
        COH_TRY(coh_load_rate(&m->loads[a], window_ns, &alone[0]));
        COH_TRY(coh_load_rate(&m->loads[b], window_ns, &alone[1]));
        COH_TRY(coh_load_rates(&m->loads[a], &m->loads[b], window_ns, &together[0], &together[1]));
        for (int i = 0; i < 2; i++)
            if (alone[i] > 0 && together[i] > 0)
                coh_samples_add(&samples[i], together[i] / alone[i]);
    }
    if (samples[0].count > 0 && samples[1].count > 0) {
        m->profile->contention[a][b] = part_of(&samples[0]);
        m->profile->contention[b][a] = part_of(&samples[1]);
    }
    return COH_OK;
}

static coh_status measure_pairs(coh_measure *m, const uint8_t known[COH_LANE_COUNT])
{
    for (int i = 0; i < LANES; i++)
        for (int j = i + 1; j < LANES; j++) {
            coh_measure_begin(m, "%s beside %s", coh_lane_name(lanes[i]), coh_lane_name(lanes[j]));
            if (m->loads[lanes[i]].turn == NULL || m->loads[lanes[j]].turn == NULL ||
                (known[lanes[i]] && known[lanes[j]]))
                continue;
            COH_TRY(lanes[i] == COH_LANE_COMPUTE ? coh_measure_steal(m, lanes[j])
                                                 : measure_pair(m, lanes[i], lanes[j]));
        }
    return COH_OK;
}

/* ---- probes ---- */

enum { PROBES = 2 };

static coh_status probe(const coh_measure *m, coh_roofs *roofs, double rates[PROBES])
{
    const coh_load loads[PROBES] = { coh_roofs_product(roofs, COH_DTYPE_F32),
                                     coh_roofs_pass(roofs) };
    for (int i = 0; i < PROBES; i++) {
        coh_figure rate;
        COH_TRY(coh_samples_of_rate(&loads[i], &m->effort, &rate));
        rates[i] = rate.p50;
    }
    return COH_OK;
}

/* Says it at once, and for good where people look: in the name, unless that says so already. */
static void note_drift(coh_measure *m, const double before[PROBES], const double after[PROBES])
{
    char *name = m->profile->name;
    const size_t used = strlen(name);
    double drift = 0;
    for (int i = 0; i < PROBES; i++)
        drift = fmax(drift, fabs(after[i] / before[i] - 1));
    if (!(drift > DRIFT_MOST))
        return;
    if (strstr(name, UNSTEADY) == NULL)
        snprintf(name + used, sizeof(m->profile->name) - used, UNSTEADY " by %.0f %%", drift * 100);
    coh_measure_say(m,
                    "products or memory were %.0f %% faster or slower at the end than at the "
                    "beginning: measure again when the machine does nothing else",
                    drift * 100);
}

/* ---- the whole ---- */

/* What of the profile is known before: lanes whose pairs need not be measured again. */
static void find_known(const coh_measure *m, uint8_t known[COH_LANE_COUNT])
{
    memset(known, 0, COH_LANE_COUNT);
    known[COH_LANE_COMPUTE] = m->profile->flops_per_s[COH_ROOF_F32].p50 > 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (m->profile->link[lane].bytes_per_s.p50 > 0)
            known[lane] = 1;
}

static coh_status measure_lanes(coh_measure *m, const uint8_t known[COH_LANE_COUNT])
{
    coh_links *links = NULL;
    coh_drive *drive = NULL;
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, coh_links_open(m, &links), done);
    COH_TRY_GOTO(status, coh_measure_links(m, links), done);
    if (m->options->disk_folder != NULL) {
        coh_measure_begin(m, "a scratch file in %s", m->options->disk_folder);
        COH_TRY_GOTO(status, coh_drive_open(m, &drive), done);
        COH_TRY_GOTO(status, coh_measure_drive(m, drive), done);
    }
    status = measure_pairs(m, known);
done:
    coh_drive_close(m, drive);
    coh_links_close(m, links);
    return status;
}

static coh_status measure_all(coh_measure *m, coh_operator_list **out_list)
{
    enum { ROOFS = 4, LINKS = 2, DRIVE = 4 };
    uint8_t known[COH_LANE_COUNT];
    double before[PROBES], after[PROBES];
    uint32_t operator_count = 0;
    coh_roofs *roofs = NULL;
    coh_status status = COH_OK;
    COH_TRY(coh_operators_find(m, out_list, &operator_count));
    m->total_count = ROOFS + operator_count + COH_MEASURE_CHUNK_SIZES + LINKS + PAIRS +
                     (m->options->disk_folder != NULL ? DRIVE : 0);
    find_known(m, known);
    COH_TRY_GOTO(status, coh_roofs_open(m, &roofs), done);
    COH_TRY_GOTO(status, probe(m, roofs, before), done);
    COH_TRY_GOTO(status, coh_measure_roofs(m, roofs), done);
    COH_TRY_GOTO(status, coh_measure_operators(m, *out_list), done);
    COH_TRY_GOTO(status, coh_measure_chunks(m), done);
    m->loads[COH_LANE_COMPUTE] = coh_roofs_product(roofs, COH_DTYPE_F32);
    COH_TRY_GOTO(status, measure_lanes(m, known), done);
    COH_TRY_GOTO(status, probe(m, roofs, after), done);
    note_drift(m, before, after);
done:
    coh_roofs_close(roofs);
    return status;
}

/* What is known, for others to be added. */
static coh_status copy_known(coh_measure *m, const coh_profile *known)
{
    coh_profile *profile = m->profile;
    *profile = *known;
    profile->operators = NULL;
    profile->operator_count = 0;
    profile->origins = NULL;
    profile->origin_count = 0;
    for (uint32_t i = 0; i < known->operator_count; i++)
        for (uint32_t s = 0; s < known->operators[i].sample_count; s++)
            COH_TRY(coh_measure_add(m, &known->operators[i], &known->operators[i].samples[s]));
    return COH_OK;
}

static coh_status check(const coh_measure_options *options, const coh_profile *known)
{
    if (options == NULL || options->thread_count < 1 ||
        (options->graph_count > 0 && options->graphs == NULL))
        return coh_fail(COH_ERR_ARGUMENT, "measuring takes options, and at least one thread");
    if (options->struct_bytes != sizeof(*options))
        return coh_fail(COH_ERR_ARGUMENT,
                        "measure options of %u bytes, this library has %zu: call "
                        "coh_measure_options_init",
                        options->struct_bytes, sizeof(*options));
    if (known == NULL)
        return COH_OK;
    if (!coh_profile_is_of_here(known))
        return coh_fail(COH_ERR_ARGUMENT,
                        "it was not measured on this machine by this build but on %.100s: name "
                        "another file",
                        known->machine[0] != '\0' ? known->machine : "no machine at all");
    if (known->origin_count > 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "figures of it were given, not measured (\"%s\" %s): name the file "
                        "without entries",
                        known->origins[0].of, known->origins[0].text);
    if (options->disk_folder != NULL && !coh_profile_is_of_drive(known, options->disk_folder))
        return coh_fail(COH_ERR_ARGUMENT,
                        "its drive is another (%s) than that of %s: name another file",
                        known->drive, options->disk_folder);
    if (known->threads != options->thread_count)
        return coh_fail(COH_ERR_ARGUMENT,
                        "it was measured for %d threads, not %d: name another file, or ask for as "
                        "many",
                        (int)known->threads, (int)options->thread_count);
    return COH_OK;
}

typedef struct job {
    coh_measure m;
    const coh_profile *known;
} job;

static coh_status measure_main(void *argument)
{
    job *j = argument;
    coh_measure *m = &j->m;
    coh_operator_list *list = NULL;
    coh_status status = COH_OK;
    coh_kernels_start();
    if (j->known != NULL && !m->options->quick && strstr(j->known->name, COH_MEASURE_QUICK) != NULL)
        coh_measure_say(m, "what was known was measured with --quick: all of it is measured anew");
    else if (j->known != NULL)
        COH_TRY_GOTO(status, copy_known(m, j->known), done);
    coh_measure_machine(m);
    COH_TRY_GOTO(status, coh_pool_create(m->options->thread_count, &m->pool), done);
    status = measure_all(m, &list);
done:
    coh_operators_free(list);
    coh_pool_destroy(m->pool);
    return status;
}

coh_status coh_profile_measure(const coh_measure_options *options, const coh_profile *known,
                               coh_profile **out_profile)
{
    *out_profile = NULL;
    COH_TRY(check(options, known));
    job j = { .m = { .options = options, .effort = options->quick ? quick : full },
              .known = known };
    COH_TRY(COH_ALLOC(1, &j.m.profile));
    coh_profile_init(j.m.profile);
    coh_status status = coh_thread_run("coh-measure", measure_main, &j);
    if (status == COH_OK)
        *out_profile = j.m.profile;
    else
        coh_profile_destroy(j.m.profile);
    return status;
}
