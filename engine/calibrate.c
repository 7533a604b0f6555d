/* Saves what a run teaches the next plan: measured over predicted times of instructions, by
 * opcode. Next: cohobate/calibration.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "cohobate/calibration.h"
#include "cohobate/machine.h"
#include "engine/engine_state.h"
#include "engine/entry.h"
#include "engine/measure.h"
#include "planner/calibration.h"
#include "planner/profile_file.h"

/* ---- where ---- */

static coh_status make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return COH_OK;
    return coh_fail(COH_ERR_IO, "the folder of calibrations %s cannot be made: %s", path,
                    strerror(errno));
}

coh_status coh_calibration_path(const coh_profile *profile,
                                char out_path[COH_CALIBRATION_PATH_BYTES])
{
    COH_NEED(profile);
    COH_NEED(out_path);
    const size_t room = COH_CALIBRATION_PATH_BYTES;
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    uint64_t hash = 0;
    int used = -1;
    COH_TRY(coh_profile_hash(profile, &hash));
    if (cache != NULL && cache[0] == '/') /* the XDG standard says to ignore relative paths */
        used = snprintf(out_path, room, "%s", cache);
    else if (home != NULL && home[0] == '/')
        used = snprintf(out_path, room, "%s/.cache", home);
    if (used < 0 || (size_t)used + 80 > room)
        return coh_fail(COH_ERR_ARGUMENT, "calibrations have no place: neither XDG_CACHE_HOME nor "
                                          "HOME names a folder");
    COH_TRY(make_folder(out_path));
    used += snprintf(out_path + used, room - (size_t)used, "/cohobate");
    COH_TRY(make_folder(out_path));
    snprintf(out_path + used, room - (size_t)used, "/calibration-%016llx-%016llx.json",
             (unsigned long long)coh_machine_fingerprint(), (unsigned long long)hash);
    return COH_OK;
}

/* ---- what ---- */

typedef struct sums {
    double predicted_s, measured_s;
    int is_link;
} sums;

/* Does this opcode say anything about the machine? Copies over a throttled link do not: they are as
 * fast as its setting. */
static int tells(const coh_plan *plan, coh_opcode opcode)
{
    const int is_copy = opcode == COH_OP_LOAD || opcode == COH_OP_STORE;
    return coh_calibration_of(opcode) != COH_OP_COUNT &&
           !(is_copy && plan->options.link_bytes_per_s > 0);
}

/* Is the kind one of a user's that the profile has not measured? Its price is what its author
 * declares, and how far that is off says nothing of the machine, nor of the library's kinds, which
 * have the same opcodes. */
static int is_only_declared(const coh_plan *plan, const char *kind)
{
    static const char of_library[] = "cohobate.";
    if (kind[0] == '\0' || strncmp(kind, of_library, sizeof(of_library) - 1) == 0)
        return 0;
    for (size_t op = 0; op < plan->graph->op_count; op++)
        if (strcmp(plan->graph->ops[op].kind.name, kind) == 0 &&
            !coh_pricer_is_measured(&plan->pricer, op))
            return 1;
    return 0;
}

/* *out_compute_s: the time of the compute lane, with what is left out of the sums. */
static void sum_instructions(const coh_plan *plan, const coh_instruction_class *classes,
                             uint32_t count, sums by[COH_OP_COUNT], double *out_compute_s)
{
    *out_compute_s = 0;
    for (uint32_t i = 0; i < count; i++)
        for (int op = 0; op < COH_OP_COUNT; op++)
            if (strcmp(classes[i].opcode, coh_price_name((coh_opcode)op)) == 0 &&
                strcmp(classes[i].lane, coh_lane_name(COH_LANE_HOST)) != 0 &&
                tells(plan, (coh_opcode)op)) {
                sums *s = &by[coh_calibration_of((coh_opcode)op)];
                const int is_link = strcmp(classes[i].lane, coh_lane_name(COH_LANE_COMPUTE)) != 0;
                *out_compute_s += is_link ? 0 : classes[i].measured_s;
                if (is_only_declared(plan, classes[i].kind))
                    continue;
                s->predicted_s += classes[i].predicted_s;
                s->measured_s += classes[i].measured_s;
                s->is_link = is_link;
            }
}

static uint32_t compare(const coh_plan *plan, const sums by[COH_OP_COUNT], double compute_s,
                        double out_factors[COH_OP_COUNT], coh_calibration_class *out)
{
    uint32_t count = 0;
    for (int op = 0; op < COH_OP_COUNT && count < COH_CALIBRATION_CLASSES_MOST; op++) {
        const sums *s = &by[op];
        const coh_calibration *was = &plan->profile.calibration[op];
        if (!(s->predicted_s > 0) || !(s->measured_s > 0))
            continue;
        out_factors[op] = s->measured_s / s->predicted_s * (was->runs > 0 ? was->factor : 1);
        out[count++] = (coh_calibration_class){ .opcode = coh_price_name((coh_opcode)op),
                                                .part = s->is_link || !(compute_s > 0)
                                                            ? 1
                                                            : s->measured_s / compute_s,
                                                .factor = out_factors[op],
                                                .error = s->predicted_s / s->measured_s - 1 };
    }
    return count;
}

/* Returns the number of measured steps. */
static uint32_t measured_steps(const coh_instruction_times *times)
{
    return times->samples != NULL && times->instruction_count > 0 ? times->samples[0].count : 0;
}

static coh_status calibrate(coh_engine *engine, const char *path,
                            coh_calibration_class *out_classes, uint32_t *out_count)
{
    enum { STEPS_LEAST = 3 };
    const coh_plan *plan = engine->plan;
    coh_instruction_class instructions[COH_INSTRUCTION_CLASSES_MOST];
    sums by[COH_OP_COUNT] = { 0 };
    double factors[COH_OP_COUNT] = { 0 };
    double compute_s = 0;
    uint32_t count = 0;
    *out_count = 0;
    if (plan->profile.uncalibrated_hash == 0)
        return coh_fail(COH_ERR_ARGUMENT, "the plan's profile was not made ready to be calibrated: "
                                          "call coh_profile_calibrate before planning");
    COH_TRY(coh_engine_list_classes(engine, instructions, &count));
    if (measured_steps(coh_step_times(engine->step)) < STEPS_LEAST)
        return COH_OK;
    sum_instructions(plan, instructions, count, by, &compute_s);
    *out_count = compare(plan, by, compute_s, factors, out_classes);
    return coh_calibrations_add_run(path, plan->profile.uncalibrated_hash, factors);
}

coh_status coh_engine_calibrate(coh_engine *engine, const char *path,
                                coh_calibration_class out_classes[COH_CALIBRATION_CLASSES_MOST],
                                uint32_t *out_count)
{
    COH_NEED(engine);
    COH_NEED_PATH(path);
    COH_NEED(out_classes);
    COH_NEED(out_count);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, calibrate(engine, path, out_classes, out_count));
}

/* ---- the built-in profile ---- */

coh_status coh_profile_builtin_create(int32_t thread_count, coh_profile **out_profile)
{
    COH_NEED(out_profile);
    coh_profile *profile = NULL;
    *out_profile = NULL;
    COH_TRY(COH_ALLOC(1, &profile));
    coh_profile_builtin(thread_count, coh_machine_bf16_is_fast(), 0, profile);
    *out_profile = profile;
    return COH_OK;
}
