/* Reads, writes and averages calibration factors, and applies them to a profile. The idea: one
 * factor per opcode, measured over predicted time, averaged over the runs of one profile. Formats
 * and limits: calibration.h; the public interface: cohobate/calibration.h. */
#include "planner/calibration.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cohobate/calibration.h"
#include "planner/json_read.h"
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
    calibration->factor =
        before == 0 ? factor : calibration->factor + (factor - calibration->factor) * share;
    calibration->runs = before < INT32_MAX ? before + 1 : before;
}

/* ---- text ---- */

coh_status coh_calibrations_add_text(const coh_calibrations *calibrations, coh_text *text)
{
    const char *comma = "";
    COH_TRY(coh_text_add(text,
                         "{\n  \"format\": \"" COH_CALIBRATION_FORMAT "\",\n  \"version\": %d,\n"
                         "  \"profile\": \"%016" PRIx64 "\",\n  \"runs\": %" PRIu32
                         ",\n  \"opcodes\": {",
                         COH_CALIBRATION_VERSION, calibrations->profile_hash, calibrations->runs));
    for (int op = 0; op < COH_OP_COUNT; op++) {
        const coh_calibration *one = &calibrations->opcodes[op];
        if (one->runs == 0)
            continue;
        COH_TRY(coh_text_add(text, "%s\n    \"%s\": {\"factor\": ", comma,
                             coh_opcode_name((coh_opcode)op)));
        COH_TRY(coh_text_add_number(text, one->factor));
        COH_TRY(coh_text_add(text, ", \"runs\": %" PRIu32 "}", one->runs));
        comma = ",";
    }
    COH_TRY(coh_text_add(text, "\n  },\n"));
    return coh_json_add_seal(text);
}

static coh_status get_opcodes(const json_t *opcodes, coh_calibrations *out)
{
    static const char *const known[] = { "factor", "runs", NULL };
    const char *names[COH_OP_COUNT + 1] = { NULL };
    int count = 0;
    for (int op = 0; op < COH_OP_COUNT; op++)
        if (coh_calibration_of((coh_opcode)op) == (coh_opcode)op)
            names[count++] = coh_opcode_name((coh_opcode)op);
    COH_TRY(coh_json_only_known(opcodes, "\"opcodes\"", names));
    for (int op = 0; op < COH_OP_COUNT; op++) {
        const json_t *value = json_object_get(opcodes, coh_opcode_name((coh_opcode)op));
        int64_t runs = 0;
        if (value == NULL)
            continue;
        COH_TRY(coh_json_only_known(value, "a factor of \"opcodes\"", known));
        COH_TRY(coh_json_get_real(value, "factor", COH_CALIBRATION_LEAST, COH_CALIBRATION_MOST,
                                  &out->opcodes[op].factor));
        COH_TRY(coh_json_get_integer(value, "runs", 1, INT32_MAX, &runs));
        out->opcodes[op].runs = (uint32_t)runs;
    }
    return COH_OK;
}

static coh_status parse(const json_t *root, const char *text, size_t bytes, coh_calibrations *out)
{
    static const char *const known[] = { "format",  "version",   "profile", "runs",
                                         "opcodes", "file_hash", NULL };
    int64_t runs = 0;
    COH_TRY(coh_json_check_format(root, "calibration", COH_CALIBRATION_FORMAT,
                                  COH_CALIBRATION_VERSION));
    COH_TRY(coh_json_only_known(root, "the calibration", known));
    COH_TRY(coh_json_get_quoted(root, "profile", 16, &out->profile_hash));
    COH_TRY(coh_json_get_integer(root, "runs", 1, INT32_MAX, &runs));
    out->runs = (uint32_t)runs;
    COH_TRY(get_opcodes(json_object_get(root, "opcodes"), out));
    return coh_json_check_seal(root, text, bytes, "remove it");
}

coh_status coh_calibrations_parse(const char *text, size_t bytes, coh_calibrations *out)
{
    json_t *root = NULL;
    *out = (coh_calibrations){ 0 };
    COH_TRY(coh_json_parse_sealed(text, bytes, &root));
    coh_status status = parse(root, text, bytes, out);
    json_decref(root);
    if (status != COH_OK)
        *out = (coh_calibrations){ 0 };
    return status;
}

/* ---- files ---- */

coh_status coh_calibrations_read(const char *path, coh_calibrations *out)
{
    char *text = NULL;
    size_t bytes = 0;
    *out = (coh_calibrations){ 0 };
    if (access(path, F_OK) != 0)
        return COH_OK;
    coh_status status = coh_file_read_whole(path, COH_CALIBRATION_BYTES, &text, &bytes);
    if (status == COH_OK) {
        status = coh_calibrations_parse(text, bytes, out);
        if (status != COH_OK)
            status = coh_fail_prefix(status, "%s", path);
    }
    coh_free(text);
    return status;
}

coh_status coh_calibrations_write(const coh_calibrations *calibrations, const char *path)
{
    coh_text text = { 0 };
    coh_status status = coh_calibrations_add_text(calibrations, &text);
    if (status == COH_OK)
        status = coh_file_write_whole(path, text.data, text.bytes);
    coh_text_fini(&text);
    return status;
}

/* ---- a profile ---- */

coh_status coh_profile_calibrate(coh_profile *profile, const char *path, uint32_t *out_runs)
{
    COH_NEED(profile);
    COH_NEED(path);
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
