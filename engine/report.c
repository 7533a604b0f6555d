/* An engine's report about itself: the machine's resources in use, times of instructions by
 * class, and the owners of memory. Next: cohobate/engine.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/struct_bytes.h"
#include "engine/engine_state.h"
#include "engine/entry.h"
#include "engine/step_state.h"
#include "planner/trace_tables.h"

/* ---- facts ---- */

/* Returns the resident bytes of this process; 0 if /proc does not say. */
static uint64_t resident_bytes(void)
{
    char text[128];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t bytes = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (bytes <= 0)
        return 0;
    text[bytes] = '\0';
    const char *second = strchr(text, ' ');
    return second == NULL ? 0 : strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void read_arenas(const coh_step *step, coh_engine_facts *facts)
{
    for (int tier = 0; tier < COH_TIER_DISK; tier++) {
        coh_arena_facts arena;
        step->device_ops->arena_facts(step->device, (coh_tier)tier, &arena);
        facts->arena_huge_pages[tier] = arena.huge_pages;
        facts->arena_node_count[tier] = arena.node_count;
        facts->arena_is_near[tier] = arena.is_near;
        facts->arena_touch_ns[tier] = arena.touch_ns;
    }
}

/* A GPU that has stopped responding leaves them 0: the results so far are still reported. */
static void read_overhead(const coh_step *step, coh_engine_facts *facts)
{
    coh_device_overhead overhead;
    if (step->device_ops->overhead == NULL ||
        step->device_ops->overhead(step->device, &overhead) != COH_OK)
        return;
    facts->device_context_bytes = overhead.context_bytes;
    facts->device_library_bytes = overhead.library_bytes;
    facts->device_free_bytes = overhead.free_bytes;
}

static void read_facts(const coh_engine *engine, coh_engine_facts *out_facts)
{
    coh_engine_facts facts = { .store_backend = "none", .store_direct = -1 };
    uint64_t arenas = 0;
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        facts.arena_bytes[tier] = engine->plan->layout.arena_bytes[tier];
        if (tier != COH_TIER_DISK)
            arenas += facts.arena_bytes[tier];
    }
    facts.arena_bytes[COH_TIER_DISK] = engine->plan->layout.file_bytes;
    read_arenas(engine->step, &facts);
    read_overhead(engine->step, &facts);
    uint64_t resident = resident_bytes();
    facts.overhead_bytes = resident > arenas ? resident - arenas : 0;
    coh_store_facts store;
    if (coh_step_store_facts(engine->step, &store)) {
        facts.store_backend = store.backend;
        facts.store_direct = store.direct;
        facts.store_read_bytes_per_s = store.read_bytes_per_s;
        facts.store_write_bytes_per_s = store.write_bytes_per_s;
    }
    const int is_gpu = engine->plan->profile.device_kind != COH_DEVICE_HOST;
    snprintf(facts.kernel_path, sizeof(facts.kernel_path), "%s",
             is_gpu ? engine->plan->options.kernel_path : coh_kernel_path());
    *out_facts = facts;
}

coh_status coh_engine_facts_get(coh_engine *engine, coh_engine_facts *out_facts)
{
    COH_NEED(engine);
    COH_NEED_STRUCT(coh_engine_facts, out_facts);
    coh_engine_facts facts;
    COH_TRY(coh_engine_enter(engine, __func__));
    read_facts(engine, &facts);
    COH_STRUCT_FILL(facts, out_facts);
    return coh_engine_leave(engine, COH_OK);
}

/* ---- instructions by class ---- */

static const char *kind_of(const coh_plan *plan, const coh_instruction *instruction)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    int32_t op = instruction->call < 0 ? -1 : body->calls[instruction->call].operator_index;
    return op < 0 ? "" : plan->graph->ops[op].kind.name;
}

/* Returns the class of an instruction, adding it if it is new; NULL: the table is full. */
static coh_instruction_class *class_of(const coh_plan *plan, const coh_instruction *instruction,
                                       coh_instruction_class *classes, uint32_t *count)
{
    const char *opcode = coh_price_name((coh_opcode)instruction->opcode);
    const char *lane = coh_lane_name((coh_lane)instruction->lane),
               *kind = kind_of(plan, instruction);
    for (uint32_t i = 0; i < *count; i++)
        if (classes[i].opcode == opcode && classes[i].lane == lane &&
            strcmp(classes[i].kind, kind) == 0)
            return &classes[i];
    if (*count == COH_INSTRUCTION_CLASSES_MOST)
        return NULL;
    classes[*count] = (coh_instruction_class){ .opcode = opcode, .lane = lane, .kind = kind };
    return &classes[(*count)++];
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* All instructions are measured in every run, so sample i of each instruction belongs to run i. */
static void sum_classes(const coh_plan *plan, const coh_instruction_times *times,
                        coh_instruction_class *classes, uint32_t *count)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    double sums[COH_INSTRUCTION_CLASSES_MOST][COH_TIMES_KEPT] = { 0 };
    uint32_t runs[COH_INSTRUCTION_CLASSES_MOST] = { 0 };
    for (uint32_t i = 0; i < times->instruction_count && times->samples != NULL; i++) {
        const coh_instruction_samples *samples = &times->samples[i];
        coh_instruction_class *class =
            samples->count > 0 ? class_of(plan, &body->instructions[i], classes, count) : NULL;
        if (class == NULL)
            continue;
        class->instruction_count++;
        class->predicted_s += (double)times->predicted_s[i];
        runs[class - classes] = samples->count < COH_TIMES_KEPT ? samples->count : COH_TIMES_KEPT;
        for (int run = 0; run < COH_TIMES_KEPT; run++)
            sums[class - classes][run] += (double)samples->seconds[run];
    }
    for (uint32_t i = 0; i < *count; i++) {
        qsort(sums[i], runs[i], sizeof(sums[i][0]), compare);
        classes[i].measured_s = (sums[i][(runs[i] - 1) / 2] + sums[i][runs[i] / 2]) / 2;
    }
}

coh_status coh_engine_list_classes(coh_engine *engine, coh_instruction_class *out_classes,
                                   uint32_t *out_count)
{
    *out_count = 0;
    COH_TRY(coh_engine_check_idle(engine));
    COH_TRY(coh_step_quiet(engine->step));
    sum_classes(engine->plan, coh_step_times(engine->step), out_classes, out_count);
    return COH_OK;
}

coh_status
coh_engine_instruction_classes(coh_engine *engine,
                               coh_instruction_class out_classes[COH_INSTRUCTION_CLASSES_MOST],
                               uint32_t *out_count)
{
    COH_NEED(engine);
    COH_NEED(out_classes);
    COH_NEED(out_count);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, coh_engine_list_classes(engine, out_classes, out_count));
}

/* ---- recorded steps ---- */

coh_status coh_engine_trace(const coh_engine *engine, coh_trace **out_trace)
{
    COH_NEED(engine);
    COH_NEED(out_trace);
    uint8_t *is_shared = NULL;
    *out_trace = NULL;
    COH_TRY(coh_engine_check_process(engine, __func__));
    COH_TRY(COH_ALLOC(engine->plan->programs[COH_PROGRAM_BODY].instruction_count, &is_shared));
    coh_step_shared(engine->step, is_shared);
    const coh_status status = coh_plan_trace_shared(engine->plan, is_shared, out_trace);
    coh_free(is_shared);
    return status;
}

static coh_status find_recorded(coh_engine *engine, uint64_t step, coh_trace_step *out_step)
{
    COH_TRY(coh_engine_check_alive(engine));
    return coh_step_recorded(engine->step, step, out_step);
}

coh_status coh_engine_recorded(coh_engine *engine, uint64_t step, coh_trace_step *out_step)
{
    COH_NEED(engine);
    COH_NEED(out_step);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, find_recorded(engine, step, out_step));
}

coh_status coh_engine_latencies(coh_engine *engine, coh_trace_latency out_latencies[COH_LANE_COUNT])
{
    COH_NEED(engine);
    COH_NEED(out_latencies);
    COH_TRY(coh_engine_check_process(engine, __func__));
    return coh_step_latencies(engine->step, out_latencies);
}

/* ---- ledger ---- */

static void name_streams(const char **names)
{
    for (int stream = 0; stream < COH_STREAM_COUNT; stream++)
        names[stream] = coh_stream_name((coh_stream)stream);
}

int coh_engine_ledger_row_at(const coh_engine *engine, uint32_t index,
                             coh_engine_ledger_row *out_row)
{
    if (engine == NULL || out_row == NULL || coh_engine_check_process(engine, __func__) != COH_OK)
        return 0;
    const char *names[COH_STREAM_COUNT];
    coh_ledger_row row;
    name_streams(names);
    *out_row = (coh_engine_ledger_row){ .tier = "" };
    if (!coh_ledger_row_at(engine->ledger, names, COH_STREAM_COUNT, index, &row))
        return 0;
    out_row->tier = coh_tier_name(row.tier);
    snprintf(out_row->purpose, sizeof(out_row->purpose), "%s", row.purpose);
    snprintf(out_row->owner, sizeof(out_row->owner), "%s", row.owner);
    out_row->bytes = row.bytes;
    out_row->peak_bytes = row.peak_bytes;
    return 1;
}

size_t coh_engine_ledger(const coh_engine *engine, char *text, size_t text_bytes)
{
    if (engine == NULL || coh_engine_check_process(engine, __func__) != COH_OK)
        return 0;
    const char *names[COH_STREAM_COUNT];
    name_streams(names);
    if (text == NULL)
        text_bytes = 0;
    return coh_ledger_print(engine->ledger, names, COH_STREAM_COUNT, text, text_bytes);
}
