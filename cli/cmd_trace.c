/* cohobate trace: writes recorded steps in the JSON form of Chrome's trace events, which Perfetto
 * opens, too. Lanes are tracks of two processes, measured and predicted; a compute instruction that
 * waited has a flow from what ended last before it; tiers are counters. Next: cohobate/trace.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/output.h"

enum {
    MEASURED = 1, /* process numbers */
    PREDICTED = 2,
    LANE_TRACKS = 64, /* tracks of one lane: instructions in flight together */
    PURPOSES_MOST = 64
};

typedef struct output {
    const coh_trace *trace;
    uint64_t first, last; /* steps, from 0 on */
    uint64_t origin_ns;   /* CLOCK_MONOTONIC of time 0 of the file */
    uint64_t free_ns[PREDICTED + 1][COH_LANE_COUNT]
                    [LANE_TRACKS]; /* when a track is free; 0: unused */
    uint32_t *tracks;              /* of each instruction, in the step before and in this one */
    uint64_t flow_count;
    int descriptor;
    cli_line line;
} output;

static coh_status flush_full(output *o)
{
    return o->line.used < sizeof(o->line.text) / 2 ? COH_OK
                                                   : cli_line_write(&o->line, o->descriptor);
}

/* Adds a time as microseconds, exact to the nanosecond. */
static void add_time(output *o, const char *key, uint64_t ns)
{
    cli_line_add(&o->line, ", \"%s\": %" PRIu64 ".%03" PRIu64, key, ns / 1000, ns % 1000);
}

static int track_id(int lane, uint32_t track)
{
    return (int)((uint32_t)lane * LANE_TRACKS + track) + 1;
}

/* ---- instructions ---- */

/* Returns a track of the lane on which nothing else is under way. Beyond LANE_TRACKS the last. */
static uint32_t take_track(output *o, int process, int lane, uint64_t begin_ns, uint64_t end_ns)
{
    uint64_t *free_ns = o->free_ns[process][lane];
    uint32_t track = 0;
    while (track + 1 < LANE_TRACKS && free_ns[track] > begin_ns)
        track++;
    free_ns[track] = end_ns > begin_ns ? end_ns : begin_ns + 1;
    return track;
}

static coh_status add_instruction(output *o, int process, uint64_t step, uint32_t index,
                                  uint64_t begin_ns, uint64_t end_ns, uint32_t *out_track)
{
    const coh_trace_instruction *i = &o->trace->instructions[index];
    const char *opcode = o->trace->opcodes[i->opcode];
    const char *name =
        i->operator_index != COH_TRACE_NONE ? o->trace->operators[i->operator_index].name : "";
    char title[512];
    snprintf(title, sizeof(title), "%s%s%s", opcode, name[0] ? " " : "", name);
    *out_track = take_track(o, process, i->lane, begin_ns, end_ns);
    cli_line_add_json(&o->line, "{'ph': 'X', 'pid': %d, 'tid': %d, 'cat': %s, 'name': %s", process,
                      track_id(i->lane, *out_track), opcode, title);
    add_time(o, "ts", begin_ns);
    add_time(o, "dur", end_ns - begin_ns);
    cli_line_add_json(&o->line,
                      "'args': {'step': %" PRIu64 ", 'instruction': %u, 'bytes': %" PRIu64
                      ", 'flops': %.9g, 'predicted_us': %.3f",
                      step + 1, index, i->bytes, i->flops,
                      (double)(i->predicted_end_ns - i->predicted_begin_ns) * 1e-3);
    if (i->microbatch >= 0)
        cli_line_add_json(&o->line, "'micro_batch': %d", (int)i->microbatch);
    if (i->chunk != COH_TRACE_NONE)
        cli_line_add_json(&o->line, "'chunk': %u, 'stream': %s", i->chunk,
                          i->stream != COH_TRACE_NONE ? o->trace->purposes[i->stream] : NULL);
    if (i->is_shared && process == MEASURED)
        cli_line_add_json(&o->line, "'is_shared': true");
    cli_line_add_json(&o->line, "}}");
    return flush_full(o);
}

/* ---- flows ---- */

/* An instruction of a step, with its times in the file. */
typedef struct place {
    const coh_trace_step *step; /* NULL: none */
    uint32_t index, track;
    uint64_t begin_ns, end_ns;
} place;

static place place_of(const output *o, const coh_trace_step *step, uint32_t index, uint32_t track)
{
    const uint64_t base = step->begin_ns - o->origin_ns;
    return (place){ .step = step,
                    .index = index,
                    .track = track,
                    .begin_ns = base + step->spans[index].begin_ns,
                    .end_ns = base + step->spans[index].end_ns };
}

/* Finds what ended last among all that the instruction waited for. `before`: the step before, or
 * NULL. */
static place find_cause(const output *o, const coh_trace_step *step, const coh_trace_step *before,
                        uint32_t index)
{
    const coh_trace_instruction *i = &o->trace->instructions[index];
    const uint32_t count = o->trace->instruction_count;
    place cause = { 0 };
    for (uint32_t w = 0; w < i->wait_count; w++) {
        const coh_trace_wait *wait = &o->trace->waits[i->wait_begin + w];
        const coh_trace_step *of = wait->carry ? before : step;
        if (of == NULL || o->trace->instructions[wait->instruction].lane == i->lane)
            continue;
        const place one = place_of(o, of, wait->instruction,
                                   o->tracks[(wait->carry ? 0 : count) + wait->instruction]);
        if (cause.step == NULL || one.end_ns > cause.end_ns)
            cause = one;
    }
    return cause;
}

static void add_flow_end(output *o, const char *phase, const place *at, uint64_t ns)
{
    cli_line_add_json(&o->line,
                      "{'ph': %s, 'pid': %d, 'tid': %d, 'cat': 'wait', 'name': 'waited for', "
                      "'id': %" PRIu64,
                      phase, MEASURED, track_id(o->trace->instructions[at->index].lane, at->track),
                      o->flow_count);
    add_time(o, "ts", ns);
    cli_line_add_json(&o->line, phase[0] == 'f' ? "'bp': 'e'}" : "}");
}

/* Draws flows to the compute instructions of a step that waited: the lane was idle before. */
static coh_status add_flows(output *o, const coh_trace_step *step, const coh_trace_step *before)
{
    uint64_t idle_since = 0;
    const uint32_t count = o->trace->instruction_count;
    for (uint32_t i = 0; before != NULL && i < count; i++)
        if (o->trace->instructions[i].lane == COH_LANE_COMPUTE)
            idle_since = place_of(o, before, i, 0).end_ns;
    for (uint32_t i = 0; i < count; i++) {
        if (o->trace->instructions[i].lane != COH_LANE_COMPUTE)
            continue;
        const place waiting = place_of(o, step, i, o->tracks[count + i]);
        const place cause = find_cause(o, step, before, i);
        if (cause.step != NULL && cause.end_ns > idle_since) {
            o->flow_count++;
            /* inside the slice that it starts from */
            add_flow_end(o, "s", &cause,
                         cause.end_ns > cause.begin_ns ? cause.end_ns - 1 : cause.begin_ns);
            add_flow_end(o, "f", &waiting, waiting.begin_ns);
        }
        idle_since = waiting.end_ns;
        CLI_TRY(flush_full(o));
    }
    return COH_OK;
}

/* ---- memory ---- */

/* Bytes of a purpose that appear or disappear in a tier. */
typedef struct change {
    uint64_t when_ns;
    int64_t bytes;
    uint32_t purpose;
    uint8_t tier;
} change;

static int compare_changes(const void *left, const void *right)
{
    const change *a = left, *b = right;
    if (a->when_ns != b->when_ns)
        return (a->when_ns > b->when_ns) - (a->when_ns < b->when_ns);
    return (a->bytes > b->bytes) - (a->bytes < b->bytes); /* bytes are freed first */
}

static coh_status add_counter(output *o, int tier, uint64_t when_ns, const int64_t *bytes)
{
    char name[64];
    snprintf(name, sizeof(name), "%s memory", coh_tier_name((coh_tier)tier));
    cli_line_add_json(&o->line, "{'ph': 'C', 'pid': %d, 'name': %s", MEASURED, name);
    add_time(o, "ts", when_ns);
    cli_line_add_json(&o->line, "'args': {'pinned': %" PRIu64, o->trace->pinned_bytes[tier]);
    for (uint32_t i = 0; i < o->trace->purpose_count && i < PURPOSES_MOST; i++)
        cli_line_add_json(&o->line, "%s: %" PRIu64, o->trace->purposes[i],
                          (uint64_t)(bytes[i] > 0 ? bytes[i] : 0));
    cli_line_add_json(&o->line, "}}");
    return flush_full(o);
}

/* Lists the changes of a step, and the bytes that are there when it begins. */
static size_t list_changes(const output *o, const coh_trace_step *step, change *out,
                           int64_t at_begin[COH_TIER_COUNT][PURPOSES_MOST])
{
    size_t count = 0;
    for (uint32_t i = 0; i < o->trace->extent_count; i++) {
        const coh_trace_extent *e = &o->trace->extents[i];
        if (e->purpose >= PURPOSES_MOST)
            continue;
        if (e->at_begin)
            at_begin[e->tier][e->purpose] += (int64_t)e->bytes;
        else
            out[count++] = (change){ place_of(o, step, e->first, 0).begin_ns, (int64_t)e->bytes,
                                     e->purpose, e->tier };
        if (!e->at_end)
            out[count++] = (change){ place_of(o, step, e->last, 0).end_ns, -(int64_t)e->bytes,
                                     e->purpose, e->tier };
    }
    return count;
}

/* Adds the counters of steps [begin, end), which follow one another. */
static coh_status add_memory(output *o, uint32_t begin, uint32_t end, change *changes)
{
    int64_t bytes[COH_TIER_COUNT][PURPOSES_MOST] = { 0 };
    size_t count = 0;
    for (uint32_t s = begin; s < end; s++) {
        int64_t ignored[COH_TIER_COUNT][PURPOSES_MOST] = { 0 };
        count +=
            list_changes(o, &o->trace->steps[s], changes + count, s == begin ? bytes : ignored);
    }
    qsort(changes, count, sizeof(*changes), compare_changes);
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        if (o->trace->arena_bytes[tier] == 0)
            continue;
        CLI_TRY(add_counter(o, tier, o->trace->steps[begin].begin_ns - o->origin_ns, bytes[tier]));
        for (size_t i = 0; i < count; i++) {
            if (changes[i].tier != tier)
                continue;
            bytes[tier][changes[i].purpose] += changes[i].bytes;
            if (i + 1 == count || changes[i + 1].when_ns != changes[i].when_ns ||
                changes[i + 1].tier != tier)
                CLI_TRY(add_counter(o, tier, changes[i].when_ns, bytes[tier]));
        }
    }
    return COH_OK;
}

/* ---- the file ---- */

/* Names the tracks that were used. Metadata may follow the events. */
static coh_status add_names(output *o)
{
    static const char *const processes[] = { NULL, "measured", "predicted" };
    for (int process = MEASURED; process <= PREDICTED; process++) {
        cli_line_add_json(&o->line,
                          "{'ph': 'M', 'pid': %d, 'name': 'process_name', 'args': {'name': %s}}",
                          process, processes[process]);
        for (int lane = 0; lane < COH_LANE_COUNT; lane++)
            for (uint32_t track = 0; track < LANE_TRACKS; track++) {
                char name[64];
                if (o->free_ns[process][lane][track] == 0)
                    continue;
                snprintf(name, sizeof(name), track > 0 ? "%s %u" : "%s",
                         coh_lane_name((coh_lane)lane), track + 1);
                cli_line_add_json(&o->line,
                                  "{'ph': 'M', 'pid': %d, 'tid': %d, 'name': 'thread_name', "
                                  "'args': {'name': %s}}",
                                  process, track_id(lane, track), name);
                cli_line_add_json(&o->line,
                                  "{'ph': 'M', 'pid': %d, 'tid': %d, 'name': "
                                  "'thread_sort_index', 'args': {'sort_index': %d}}",
                                  process, track_id(lane, track), track_id(lane, track));
                CLI_TRY(flush_full(o));
            }
    }
    return COH_OK;
}

/* Adds step `s`; `group`: the first of the steps that follow one another up to it. */
static coh_status add_step(output *o, uint32_t s, uint32_t group)
{
    const coh_trace *trace = o->trace;
    const coh_trace_step *step = &trace->steps[s];
    const uint32_t count = trace->instruction_count;
    const uint64_t predicted_ns =
        trace->steps[group].begin_ns - o->origin_ns + (s - group) * trace->predicted_step_ns;
    uint32_t ignored;
    memmove(o->tracks, o->tracks + count, count * sizeof(*o->tracks));
    for (uint32_t i = 0; i < count; i++) {
        const place at = place_of(o, step, i, 0);
        CLI_TRY(add_instruction(o, MEASURED, step->step, i, at.begin_ns, at.end_ns,
                                &o->tracks[count + i]));
        CLI_TRY(add_instruction(o, PREDICTED, step->step, i,
                                predicted_ns + trace->instructions[i].predicted_begin_ns,
                                predicted_ns + trace->instructions[i].predicted_end_ns, &ignored));
    }
    return add_flows(o, step, s > group ? step - 1 : NULL);
}

static coh_status add_steps(output *o, change *changes)
{
    const coh_trace *trace = o->trace;
    uint32_t group = 0;
    cli_line_clear(&o->line);
    cli_line_add_json(&o->line, "{'displayTimeUnit': 'ns', 'traceEvents': [");
    for (uint32_t s = 0; s < trace->step_count; s++) {
        if (trace->steps[s].step < o->first || trace->steps[s].step > o->last)
            continue;
        const int follows = s > 0 && trace->steps[s - 1].step >= o->first &&
                            trace->steps[s - 1].step + 1 == trace->steps[s].step;
        group = follows ? group : s;
        CLI_TRY(add_step(o, s, group));
        if (s + 1 == trace->step_count || trace->steps[s + 1].step != trace->steps[s].step + 1 ||
            trace->steps[s + 1].step > o->last)
            CLI_TRY(add_memory(o, group, s + 1, changes));
    }
    CLI_TRY(add_names(o));
    cli_line_add_json(&o->line, "]}\n");
    return cli_line_write(&o->line, o->descriptor);
}

/* Writes under another name first, so that the result is there whole or not at all. */
static coh_status write_file(output *o, const char *path, change *changes)
{
    char fresh[CLI_PATH_BYTES + 16];
    coh_status status = coh_partial_open(path, fresh, sizeof(fresh), &o->descriptor);
    if (status != COH_OK)
        return cli_blame(status, "-o");
    status = add_steps(o, changes);
    if (status == COH_ERR_IO)
        status = cli_blame(status, "-o %s", path);
    if (status == COH_OK && rename(fresh, path) != 0)
        status = cli_fail(COH_ERR_IO, "-o %s cannot be written: %s: give another name", path,
                          strerror(errno));
    if (status != COH_OK)
        (void)unlink(fresh);
    (void)close(o->descriptor);
    return status;
}

/* ---- the command ---- */

/* Parses "A:B", counted from 1. */
static coh_status parse_steps(const char *text, uint64_t *out_first, uint64_t *out_last)
{
    char *end = NULL;
    *out_first = 0;
    *out_last = UINT64_MAX;
    if (!text)
        return COH_OK;
    errno = 0;
    const unsigned long long first = strtoull(text, &end, 10);
    const char *second = *end == ':' ? end + 1 : "";
    const unsigned long long last = strtoull(second, &end, 10);
    if (text[0] < '0' || text[0] > '9' || second[0] < '0' || second[0] > '9' || *end != '\0' ||
        errno || first == 0 || last < first)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--steps takes the first and the last step, from 1 on, not '%s': for "
                        "example --steps 98:100",
                        text);
    *out_first = first - 1;
    *out_last = last - 1;
    return COH_OK;
}

/* Finds the origin of time, and checks that a step is there. */
static coh_status find_origin(const cli_options *options, output *o)
{
    const coh_trace *trace = o->trace;
    o->origin_ns = UINT64_MAX;
    for (uint32_t s = 0; s < trace->step_count; s++)
        if (trace->steps[s].step >= o->first && trace->steps[s].step <= o->last &&
            trace->steps[s].begin_ns < o->origin_ns)
            o->origin_ns = trace->steps[s].begin_ns;
    if (o->origin_ns < UINT64_MAX)
        return COH_OK;
    if (trace->step_count == 0)
        return cli_fail(COH_ERR_CORRUPT, "%s holds no recorded step: let the run make one",
                        options->operand);
    return cli_fail(COH_ERR_ARGUMENT,
                    "--steps %s: %s recorded none of them, but %" PRIu64 " step%s up to %" PRIu64
                    ": give some of these, or leave it out",
                    options->step_range, options->operand, (uint64_t)trace->step_count,
                    trace->step_count == 1 ? "" : "s",
                    trace->steps[trace->step_count - 1].step + 1);
}

static void say_written(const output *o, const char *path)
{
    uint64_t count = 0, last = 0;
    for (uint32_t s = 0; s < o->trace->step_count; s++)
        if (o->trace->steps[s].step >= o->first && o->trace->steps[s].step <= o->last) {
            count++;
            last = o->trace->steps[s].step + 1;
        }
    cli_print("%s: %s, the last is step %" PRIu64
              "; open it at ui.perfetto.dev or chrome://tracing",
              path, cli_count(count, "recorded step").at, last);
}

static coh_status open_trace(const char *folder, coh_trace **out_trace)
{
    char path[CLI_PATH_BYTES + 16];
    uint32_t lost = 0;
    if (snprintf(path, sizeof(path), "%s/trace.bin", folder) >= (int)sizeof(path))
        return cli_fail(COH_ERR_ARGUMENT, "%.64s...: the path is too long", folder);
    if (access(path, F_OK) != 0)
        return cli_fail(COH_ERR_CORRUPT,
                        "%s has no trace.bin: give the folder of a run that recorded steps "
                        "(train --record N)",
                        folder);
    const coh_status status = coh_trace_read(path, out_trace, &lost);
    if (status == COH_ERR_CORRUPT) {
        char why[1024];
        snprintf(why, sizeof(why), "%s", coh_last_error());
        return cli_fail(status, "%s: give a whole copy of the run's folder, or record steps again",
                        why);
    }
    CLI_TRY(status);
    if (lost > 0)
        cli_note("warning: %" PRIu32 " step%s of %s is damaged and left out", lost,
                 lost == 1 ? "" : "s", path);
    return COH_OK;
}

static coh_status write_trace(const cli_options *options, const coh_trace *trace)
{
    output *o = calloc(1, sizeof(*o));
    uint32_t *tracks = calloc(2 * (size_t)trace->instruction_count + 1, sizeof(*tracks));
    change *changes =
        calloc(2 * (size_t)trace->extent_count * trace->step_count + 1, sizeof(*changes));
    coh_status status = COH_ERR_MEMORY;
    if (o && tracks && changes) {
        o->trace = trace;
        o->tracks = tracks;
        status = parse_steps(options->step_range, &o->first, &o->last);
        if (status == COH_OK)
            status = find_origin(options, o);
        if (status == COH_OK)
            status = write_file(o, options->output, changes);
        if (status == COH_OK)
            say_written(o, options->output);
    } else {
        (void)cli_fail(COH_ERR_MEMORY, "no memory for the tables of a trace");
    }
    free(changes);
    free(tracks);
    free(o);
    return status;
}

coh_status cli_trace(const cli_options *options)
{
    coh_trace *trace = NULL;
    if (!options->output)
        return cli_fail(COH_ERR_ARGUMENT, "-o FILE is missing: the trace's name");
    CLI_TRY(cli_output_check(options));
    coh_status status = open_trace(options->operand, &trace);
    if (status == COH_OK && trace)
        status = write_trace(options, trace);
    coh_trace_free(trace);
    return status;
}
