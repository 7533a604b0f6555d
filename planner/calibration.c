/* Reads, writes and averages calibration factors, and applies them to a profile. The idea: one
 * factor per opcode, measured over predicted time, averaged over the runs of one profile. Formats
 * and limits: calibration.h; the public interface: cohobate/calibration.h. */
#include "planner/calibration.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file_lock.h"
#include "base/json.h"
#include "cohobate/calibration.h"
#include "planner/opcodes.h"
#include "planner/profile_file.h"

/* Runs with equal weight in the mean; from then on each new run has weight 1 over this number. */
enum { RUNS_IN_MEAN = 8 };

coh_opcode coh_calibration_of(coh_opcode opcode)
{
    const uint8_t as = (unsigned)opcode < COH_OP_COUNT ? coh_opcode_rows[opcode].calibrated_as : 0;
    return as > 0 ? (coh_opcode)(as - 1) : COH_OP_COUNT;
}

void coh_calibration_join(coh_calibration *calibration, double factor)
{
    const uint32_t before = calibration->runs;
    const double share = 1.0 / (before < RUNS_IN_MEAN ? before + 1 : RUNS_IN_MEAN);
    if (factor < COH_CALIBRATION_LEAST)
        factor = COH_CALIBRATION_LEAST;
    if (factor > COH_CALIBRATION_MOST)
        factor = COH_CALIBRATION_MOST;
    const double away = before == 0 ? 0 : factor - calibration->factor;
    const double variance = calibration->deviation * calibration->deviation + share * away * away;
    calibration->factor = before == 0 ? factor : calibration->factor + away * share;
    calibration->deviation = before == 0 ? 0 : sqrt((1 - share) * variance);
    calibration->runs = before < INT32_MAX ? before + 1 : before;
}

double coh_calibration_uncertainty(const coh_calibration *calibration)
{
    const double runs = calibration->runs < RUNS_IN_MEAN ? calibration->runs : RUNS_IN_MEAN;
    return runs < 2 ? 0
                    : calibration->deviation * sqrt((runs + 1) / (runs - 1)) / calibration->factor;
}

/* ---- text ---- */

int coh_calibration_is_set(const void *calibration)
{
    return ((const coh_calibration *)calibration)->runs > 0;
}

/* The name of an opcode that is calibrated for itself. */
static const char *name_of(int op)
{
    return coh_calibration_of((coh_opcode)op) == (coh_opcode)op ? coh_opcode_name((coh_opcode)op)
                                                                : NULL;
}

static const coh_json_field factor_fields[] = {
    { "factor", COH_JSON_REAL, COH_JSON_AT(coh_calibration, factor), .least = COH_CALIBRATION_LEAST,
      .most = COH_CALIBRATION_MOST },
    { "runs", COH_JSON_WHOLE, COH_JSON_AT(coh_calibration, runs), .least = 1, .most = INT32_MAX },
    { "deviation", COH_JSON_REAL, COH_JSON_AT(coh_calibration, deviation),
      .most = COH_CALIBRATION_MOST, .rule = COH_JSON_UNLESS_ZERO },
    { 0 },
};

static const coh_json_field fields[] = {
    { "profile", COH_JSON_HEX, COH_JSON_AT(coh_calibrations, profile_hash) },
    { "runs", COH_JSON_WHOLE, COH_JSON_AT(coh_calibrations, runs), .least = 1, .most = INT32_MAX },
    { "opcodes", COH_JSON_MAP, COH_JSON_AT(coh_calibrations, opcodes),
      .item_bytes = sizeof(coh_calibration), .fields = factor_fields, .name_of = name_of,
      .is_set = coh_calibration_is_set },
    { 0 },
};

static const coh_json_file calibrations_file = { .what = "calibration",
                                                 .format = COH_CALIBRATION_FORMAT,
                                                 .version = COH_CALIBRATION_VERSION,
                                                 .fields = fields,
                                                 .remedy = "remove it" };

coh_status coh_calibrations_add_text(const coh_calibrations *calibrations, coh_text *text)
{
    return coh_json_file_add(&calibrations_file, calibrations, text);
}

coh_status coh_calibrations_parse(const char *text, size_t bytes, coh_calibrations *out)
{
    *out = (coh_calibrations){ 0 };
    coh_status status = coh_json_file_parse(&calibrations_file, text, bytes, out);
    if (status != COH_OK)
        *out = (coh_calibrations){ 0 };
    return status;
}

/* ---- files ---- */

coh_status coh_calibrations_read(const char *path, coh_calibrations *out)
{
    *out = (coh_calibrations){ 0 };
    if (access(path, F_OK) != 0)
        return COH_OK;
    coh_status status = coh_json_file_read(&calibrations_file, path, COH_CALIBRATION_BYTES, out);
    if (status != COH_OK)
        *out = (coh_calibrations){ 0 };
    return status;
}

coh_status coh_calibrations_write(const coh_calibrations *calibrations, const char *path)
{
    coh_text text = { 0 };
    coh_status status = coh_json_file_add(&calibrations_file, calibrations, &text);
    if (status == COH_OK) /* a damaged one is replaced, too */
        status = coh_file_write_whole(path, text.data, text.bytes);
    coh_text_fini(&text);
    return status;
}

#define LOCK_WAIT_NS UINT64_C(3000000000)

static coh_status add_run(const char *path, uint64_t profile_hash,
                          const double factors[COH_OP_COUNT])
{
    coh_calibrations all;
    const coh_status status = coh_calibrations_read(path, &all);
    if (status != COH_OK && status != COH_ERR_CORRUPT)
        return status;
    if (all.profile_hash != profile_hash)
        all = (coh_calibrations){ .profile_hash = profile_hash };
    for (int op = 0; op < COH_OP_COUNT; op++)
        if (factors[op] > 0)
            coh_calibration_join(&all.opcodes[op], factors[op]);
    all.runs++;
    return coh_calibrations_write(&all, path);
}

coh_status coh_calibrations_add_run(const char *path, uint64_t profile_hash,
                                    const double factors[COH_OP_COUNT])
{
    char lock[PATH_MAX];
    /* Without the lock, the run of another process may be lost, which is no reason to lose this
     * one, nor to wait for a process that is suspended while it holds it: another's hold is two
     * short files long. */
    const int is_named = snprintf(lock, sizeof(lock), "%s.lock", path) < (int)sizeof(lock);
    const int fd = is_named ? coh_file_lock_wait(lock, LOCK_WAIT_NS) : -1;
    const coh_status status = add_run(path, profile_hash, factors);
    coh_file_lock_end(fd, lock);
    return status;
}

/* ---- a profile ---- */

coh_status coh_profile_calibrate(coh_profile *profile, const char *path, uint32_t *out_runs)
{
    COH_NEED(profile);
    COH_NEED_PATH(path);
    COH_NEED(out_runs);
    coh_calibrations found;
    *out_runs = 0;
    if (profile->uncalibrated_hash != 0)
        return coh_fail(COH_ERR_ARGUMENT, "the profile %s is calibrated already", profile->name);
    COH_TRY(coh_profile_hash(profile, &profile->uncalibrated_hash));
    memcpy(profile->uncalibrated, profile->calibration, sizeof(profile->uncalibrated));
    COH_TRY(coh_calibrations_read(path, &found));
    if (found.runs == 0 || found.profile_hash != profile->uncalibrated_hash)
        return COH_OK;
    for (int op = 0; op < COH_OP_COUNT; op++) {
        const coh_opcode by = coh_calibration_of((coh_opcode)op);
        if (by != COH_OP_COUNT && found.opcodes[by].runs > 0)
            profile->calibration[op] = found.opcodes[by];
    }
    profile->calibrated_runs = *out_runs = found.runs;
    return COH_OK;
}
