/* The whole of a measurement: its parts, their order, and the interference between lanes. Next:
 * measure.h lists the parts.
 *
 *   probe | roofs | operators | chunks | links | drive | pairs of lanes | probe
 *                                      ^ the host, with a GPU */
#include "engine/measure.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/plural.h"
#include "base/struct_bytes.h"
#include "base/thread.h"
#include "cohobate/machine.h"
#include "cohobate/terms.h"
#include "comm/world.h"
#include "engine/comm_rounds.h"
#include "engine/device_find.h"
#include "kernels/kernels.h"

/* If the probes before and after differ by more, the machine was not steady. */
#define DRIFT_MOST 0.05
#define UNSTEADY   ", unsteady"

static const coh_measure_effort full = {
    .samples_least = 7,
    .samples_most = 21,
    .budget_ns = 300000000,
    .window_ns = 40000000,
    .host_scale = 4,
    .cold_bytes = (uint64_t)512 << 20,
    .pass_bytes = (uint64_t)96 << 20,
    .batch_ns = 5000000,
    .heat_ns = 1000000000,
    .disk_bytes = (uint64_t)1 << 30,
    .disk_chunk_bytes = (uint64_t)2 << 20,
    .sustained_bytes = (uint64_t)4 << 30,
    .link_bytes = (uint64_t)256 << 20,
    .deepest = 64,
    .instruction_count = 1000,
};

static const coh_measure_effort quick = {
    .samples_least = 3,
    .samples_most = 5,
    .budget_ns = 20000000,
    .window_ns = 5000000,
    .host_scale = 2,
    .cold_bytes = (uint64_t)32 << 20,
    .pass_bytes = (uint64_t)96 << 20,
    .batch_ns = 1000000,
    .heat_ns = 200000000,
    .disk_bytes = (uint64_t)32 << 20,
    .disk_chunk_bytes = (uint64_t)1 << 20,
    .link_bytes = (uint64_t)16 << 20,
    .deepest = 16,
    .instruction_count = 200,
};

void coh_effort_outgrow(coh_measure_effort *effort, uint64_t cache_bytes)
{
    const uint64_t mib = (uint64_t)1 << 20, bytes = (cache_bytes + mib - 1) / mib * mib;
    if (effort->pass_bytes < bytes) /* it writes as many: twice the caches in all */
        effort->pass_bytes = bytes;
    if (effort->cold_bytes < bytes)
        effort->cold_bytes = bytes;
}

void coh_measure_options_init_sized(coh_measure_options *out_options, size_t bytes)
{
    const coh_measure_options defaults = { .thread_count = 1,
                                           .disk_bytes = UINT64_MAX,
                                           .device_bytes = UINT64_MAX };
    coh_struct_init(&defaults, sizeof(defaults), out_options, bytes);
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

/* ---- interference between lanes ---- */

/* The last one, the host lane, counts as a separate lane only with a GPU. */
static const coh_lane lanes[] = { COH_LANE_COMPUTE, COH_LANE_H2D,   COH_LANE_D2H,
                                  COH_LANE_READ,    COH_LANE_WRITE, COH_LANE_HOST };
enum { LANES = sizeof(lanes) / sizeof(lanes[0]) };

static int lane_count(const coh_measure *m)
{
    return m->bed->is_host ? LANES - 1 : LANES;
}

static uint32_t pair_count(const coh_measure *m)
{
    const uint32_t count = (uint32_t)lane_count(m);
    return count * (count - 1) / 2;
}

static double part_of(const coh_samples *samples)
{
    const double part = coh_samples_figure(samples).p50;
    return fmin(fmax(part, COH_PROFILE_PART_LEAST), 1);
}

/* Measures both lanes alone and together, in turns: a ratio is robust when the machine changes its
 * speed. */
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

/* Transfers take cores from a processor's compute lane; from a GPU they take only a part of its
 * speed. */
static coh_status measure_two(coh_measure *m, coh_lane a, coh_lane b)
{
    return a == COH_LANE_COMPUTE && m->bed->is_host ? coh_measure_interference(m, b)
                                                    : measure_pair(m, a, b);
}

static coh_status measure_pairs(coh_measure *m, const uint8_t known[COH_LANE_COUNT])
{
    for (int i = 0; i < lane_count(m); i++)
        for (int j = i + 1; j < lane_count(m); j++) {
            coh_measure_begin(m, "%s next to %s", coh_lane_name(lanes[i]), coh_lane_name(lanes[j]));
            if (m->loads[lanes[i]].turn == NULL || m->loads[lanes[j]].turn == NULL ||
                (known[lanes[i]] && known[lanes[j]]))
                continue;
            COH_TRY(measure_two(m, lanes[i], lanes[j]));
        }
    return COH_OK;
}

/* ---- probes ---- */

enum { PROBES = 2 };

static coh_status probe(const coh_measure *m, double rates[PROBES])
{
    const coh_load loads[PROBES] = { coh_roofs_product(m, COH_DTYPE_F32), coh_roofs_pass(m) };
    for (int i = 0; i < PROBES; i++) {
        coh_figure rate = { 0 };
        COH_TRY(coh_measure_rate(m, &loads[i], &rate));
        rates[i] = rate.p50;
    }
    return COH_OK;
}

/* Reports the drift at once, and marks the profile's name unless it is marked already. */
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
                    "beginning: measure into a new file when the machine does nothing else",
                    drift * 100);
}

/* ---- the whole ---- */

/* Finds lanes that the known profile covers: their pairs need not be measured again. */
static void find_known(const coh_measure *m, uint8_t known[COH_LANE_COUNT])
{
    memset(known, 0, COH_LANE_COUNT);
    known[COH_LANE_COMPUTE] = m->profile->flops_per_s[COH_ROOF_F32].p50 > 0;
    known[COH_LANE_HOST] = m->profile->host_update_bytes_per_s.p50 > 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (m->profile->link[lane].bytes_per_s.p50 > 0)
            known[lane] = 1;
}

/* Memory in addition to the arena of the measurement: the chain of empty instructions has its
 * own engine, which needs as much free memory as any engine keeps back. */
#define BESIDE_BYTES ((uint64_t)384 << 20)

/* A pass on a GPU, if it has the memory. Its caches hold 50 to 130 MB, and it takes only 40 us for
 * 96 MiB. Products wide enough for it must fit into two such passes. */
#define GPU_PASS_BYTES ((uint64_t)512 << 20)

static uint64_t gpu_pass_bytes(const coh_measure *m, uint64_t room)
{
    const uint64_t others = m->effort.link_bytes + m->effort.cold_bytes + BESIDE_BYTES;
    return room >= 2 * GPU_PASS_BYTES + others ? GPU_PASS_BYTES : m->effort.pass_bytes;
}

/* `room`: the free memory, or the budget. */
static coh_status refuse_room(const coh_measure *m, uint64_t least_bytes, uint64_t room)
{
    const char *name = m->bed->facts.name;
    char least[32], there[32], enough[COH_SIZE_TEXT_BYTES];
    coh_size_format(least_bytes, least, sizeof(least));
    coh_size_format(room, there, sizeof(there));
    if (room < m->bed->facts.memory_bytes && least_bytes <= m->bed->facts.memory_bytes)
        return coh_fail(COH_ERR_FULL,
                        "measuring %s takes %s of its memory at least, and %s may be taken: raise "
                        "%s to %s",
                        name, least, there, coh_term_text(COH_TERM_DEVICE_MEMORY),
                        coh_size_round_up(least_bytes, enough, sizeof(enough)));
    return coh_fail(COH_ERR_MEMORY,
                    "measuring %s takes %s of its memory at least, and %s are free: end what else "
                    "runs on it",
                    name, least, coh_size_format(m->bed->facts.memory_bytes, there, sizeof(there)));
}

/* Warns: a GPU whose caches hold a pass seems to have a memory as fast as its caches. */
static void say_small_passes(const coh_measure *m)
{
    char taken[32], wanted[32];
    if (m->effort.pass_bytes < GPU_PASS_BYTES)
        coh_measure_say(
            m,
            "passes over memory are of %s, for want of room, not %s: of a GPU with large "
            "caches its memory and products seem too fast or too slow; with more %s, "
            "measure into a new file",
            coh_size_format(m->effort.pass_bytes, taken, sizeof(taken)),
            coh_size_format(GPU_PASS_BYTES, wanted, sizeof(wanted)),
            coh_term_text(COH_TERM_DEVICE_MEMORY));
}

static int has_ranks(const coh_measure *m)
{
    return m->options->world != NULL && coh_world_size(m->options->world) > 1;
}

/* On a GPU: takes the memory for all parts at once. Operators and chunks get the rest. */
static coh_status take_memory(coh_measure *m)
{
    const uint64_t free_bytes = m->bed->facts.memory_bytes, most = m->options->device_bytes;
    const uint64_t room = most < free_bytes ? most : free_bytes;
    m->effort.pass_bytes = gpu_pass_bytes(m, room);
    const uint64_t fixed = 2 * m->effort.pass_bytes + m->effort.link_bytes +
                           (has_ranks(m) ? coh_level_rounds_bytes() : 0);
    const uint64_t least = fixed + m->effort.cold_bytes + BESIDE_BYTES;
    const uint64_t operators = coh_operators_bytes(m), chunks = coh_chunks_bytes(m);
    const uint64_t wanted = operators > chunks ? operators : chunks;
    if (room < least)
        return refuse_room(m, least, room);
    say_small_passes(m);
    const uint64_t left = room - fixed - BESIDE_BYTES;
    return coh_bed_take(m->bed, fixed + (wanted < left ? wanted : left));
}

static coh_status measure_all(coh_measure *m)
{
    enum { ROOFS = 4, LINKS = 2, DRIVE = 4, HOST_SIDE = 2, COMMS = 3 };
    const int is_host = m->bed->is_host, has_drive = m->options->disk_count > 0;
    uint8_t known[COH_LANE_COUNT];
    double before[PROBES], after[PROBES];
    uint32_t operator_count = 0;
    COH_TRY(coh_operators_find(m, &operator_count));
    m->total_count = ROOFS + operator_count + COH_MEASURE_CHUNK_SIZES + LINKS + pair_count(m) +
                     (has_drive ? DRIVE : 0) + (is_host ? 0 : HOST_SIDE) +
                     (has_ranks(m) ? COMMS : 0);
    find_known(m, known);
    if (is_host)
        coh_effort_outgrow(&m->effort, coh_measure_cache_bytes());
    else
        COH_TRY(take_memory(m));
    COH_TRY(coh_roofs_open(m));
    COH_TRY(probe(m, before));
    COH_TRY(coh_measure_roofs(m));
    COH_TRY(coh_measure_operators(m));
    COH_TRY(coh_measure_chunks(m));
    m->loads[COH_LANE_COMPUTE] = coh_roofs_product(m, is_host ? COH_DTYPE_F32 : COH_DTYPE_BF16);
    if (!is_host)
        COH_TRY(coh_measure_host_side(m));
    COH_TRY(coh_measure_links(m));
    if (has_drive)
        COH_TRY(coh_measure_drive(m));
    COH_TRY(measure_pairs(m, known));
    COH_TRY(coh_measure_comms(m));
    COH_TRY(probe(m, after));
    note_drift(m, before, after);
    return COH_OK;
}

static void close_all(coh_measure *m)
{
    coh_drive_close(m);
    coh_links_close(m);
    coh_host_side_close(m);
    coh_roofs_close(m);
    coh_operators_free(m);
    coh_bed_close(&m->gpu);
    coh_bed_close(&m->host);
    coh_pool_destroy(m->pool);
}

static coh_status join_operators(coh_measure *m, const coh_profile *known)
{
    for (uint32_t i = 0; i < known->operator_count; i++)
        for (uint32_t s = 0; s < known->operators[i].sample_count; s++)
            COH_TRY(coh_measure_join(m, &known->operators[i], &known->operators[i].samples[s]));
    return COH_OK;
}

/* Copies the known profile, so that only missing figures are measured. Operators that are to be
 * measured again are joined at the end. */
static coh_status copy_known(coh_measure *m, const coh_profile *known)
{
    coh_profile *profile = m->profile;
    *profile = *known;
    profile->operators = NULL;
    profile->operator_count = 0;
    profile->origins = NULL;
    profile->origin_count = 0;
    if (!m->options->again)
        return join_operators(m, known);
    m->earlier = known;
    return COH_OK;
}

static coh_status check_options(const coh_measure_options *options)
{
    if (options->graph_count > 0 && options->graphs == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "measure options: graphs is NULL, graph_count is %u",
                        options->graph_count);
    COH_TRY(coh_check_path("coh_profile_measure", "options->disk_folder", options->disk_folder));
    COH_TRY(coh_check_path("coh_profile_measure", "options->kernel_table", options->kernel_table));
    uint32_t file_system_count;
    if (options->disk_count > 0)
        COH_TRY(coh_disks_check(options->disks, options->disk_count, &file_system_count));
    return coh_check_integer("thread_count", options->thread_count, 1, COH_THREADS_MOST);
}

static coh_status check(const coh_measure_options *options, const coh_engine_device *device,
                        const coh_profile *known)
{
    COH_TRY(check_options(options));
    if (known == NULL)
        return COH_OK;
    if (!coh_profile_is_of_here(known))
        return coh_fail(COH_ERR_ARGUMENT,
                        "it was not measured on this machine by this build but on %.100s: name "
                        "another file",
                        known->machine[0] != '\0' ? known->machine : "no machine at all");
    if ((known->device_kind != COH_DEVICE_HOST) != (device->kernels != NULL))
        return coh_fail(COH_ERR_ARGUMENT,
                        "it was measured of %s, not of %s: name another file, or that device",
                        known->device_kind != COH_DEVICE_HOST ? "a GPU" : "the host device",
                        known->device_kind != COH_DEVICE_HOST ? "the host device" : "a GPU");
    if (known->origin_count > 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "figures of it were given, not measured (\"%s\" %s): name the file "
                        "without entries",
                        known->origins[0].of, known->origins[0].text);
    if (options->disk_count > 0 &&
        !coh_profile_is_of_drives(known, options->disks, options->disk_count))
        return coh_fail(COH_ERR_ARGUMENT,
                        "its drive is another (%s) than that of %s%s: name another file",
                        known->drive, options->disks[0].folder,
                        options->disk_count > 1 ? " and the other folders" : "");
    if (known->threads != options->thread_count)
        return coh_fail(COH_ERR_ARGUMENT,
                        "it was measured for %d thread%s, not %d: name another file, or ask for as "
                        "many",
                        (int)known->threads, COH_PLURAL_S(known->threads),
                        (int)options->thread_count);
    return COH_OK;
}

typedef struct job {
    coh_measure m;
    const coh_engine_device *device;
    const coh_profile *known;
} job;

static coh_status take_known(coh_measure *m, const coh_profile *known)
{
    if (known != NULL && !m->options->quick && strstr(known->name, COH_MEASURE_QUICK) != NULL)
        coh_measure_say(m, "what was known was measured with %s: all of it is measured again",
                        coh_term_text(COH_TERM_QUICK));
    else if (known != NULL)
        COH_TRY(copy_known(m, known));
    coh_measure_machine(m);
    if (known != NULL && known->fingerprint != m->profile->fingerprint)
        return coh_fail(COH_ERR_ARGUMENT,
                        "it was measured on %.100s, and this is %.100s: name "
                        "another file, or that device",
                        known->machine, m->profile->machine);
    return COH_OK;
}

static coh_status measure_main(void *argument)
{
    static const coh_engine_device host = { .ops = &coh_device_host };
    job *j = argument;
    coh_measure *m = &j->m;
    coh_status status = COH_OK;
    coh_kernels_start();
    m->bed = j->device->kernels != NULL ? &m->gpu : &m->host;
    COH_TRY_GOTO(status, coh_pool_create(m->options->thread_count, &m->pool), done);
    COH_TRY_GOTO(status, coh_bed_open(&host, m->pool, m->options, &m->host), done);
    if (m->bed == &m->gpu)
        COH_TRY_GOTO(status, coh_bed_open(j->device, m->pool, m->options, &m->gpu), done);
    m->gpu.batch_ns = m->effort.batch_ns;
    COH_TRY_GOTO(status, take_known(m, j->known), done);
    COH_TRY_GOTO(status, coh_measure_products_begin(m), done);
    status = measure_all(m);
    if (m->options->world != NULL) /* the other ranks wait for this one's links */
        status = coh_transport_end(m->options->world->transport, status);
    if (status == COH_OK && m->earlier != NULL)
        status = join_operators(m, m->earlier);
    status = coh_measure_products_write(m, status);
done:
    coh_measure_products_end();
    close_all(m);
    return status;
}

coh_status coh_profile_measure_on(const coh_measure_options *options,
                                  const coh_engine_device *device, const coh_profile *known,
                                  coh_profile **out_profile)
{
    *out_profile = NULL;
    const coh_disk alone = { .folder = options->disk_folder, .bytes = UINT64_MAX };
    coh_measure_options all = *options;
    if (options->disk_folder != NULL && options->disk_count == 0) {
        all.disks = &alone;
        all.disk_count = 1;
    }
    COH_TRY(check(&all, device, known));
    job j = { .m = { .options = &all, .effort = options->quick ? quick : full },
              .device = device,
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

coh_status coh_profile_measure(const coh_measure_options *options, const coh_profile *known,
                               coh_profile **out_profile)
{
    COH_NEED(out_profile);
    coh_engine_device device;
    coh_measure_options known_options;
    *out_profile = NULL;
    COH_NEED_STRUCT(coh_measure_options, options);
    coh_measure_options_init(&known_options);
    coh_struct_read(options, &known_options, sizeof(known_options));
    COH_TRY(check_options(&known_options));
    COH_TRY(coh_device_find(known_options.device, &device));
    return coh_profile_measure_on(&known_options, &device, known, out_profile);
}
