#include "tests/planner/mutations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/rng.h"
#include "tests/planner/happens_before.h"
#include "tests/planner/mutate.h"
#include "tests/planner/poison_run.h"

/* ---- harm ---- */

/* The bytes of a chunk of states of this many elements: the low half of a split master, and a block
 * of each stream per so many elements, each at a multiple of 64; in whole pages. */
static uint64_t state_bytes(const coh_optimizer *optimizer, int is_cut, uint64_t elements)
{
    uint64_t bytes = is_cut ? 2 * elements : 0;
    for (int32_t i = 0; i < optimizer->stream_count; i++) {
        for (; bytes % 64 != 0; bytes++)
            continue;
        for (uint64_t at = 0; at < elements; at += optimizer->streams[i].elements_per_block)
            bytes += optimizer->streams[i].bytes_per_block;
    }
    return (bytes + 4095) / 4096 * 4096;
}

/* Returns the elements of the largest part of a chunk that is divided over so many axes: the first
 * member of each axis gets a grain more where they do not come out even. */
static uint64_t part_elements(const coh_layout *layout, int axes, uint64_t elements)
{
    uint64_t grains = (elements + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS;
    for (int axis = 0; axis < axes; axis++) {
        const uint64_t members = (uint64_t)layout->mesh.axes[axis].rank_count;
        grains = grains / members + (grains % members > 0);
    }
    return grains * COH_GRAIN_ELEMENTS < elements ? grains * COH_GRAIN_ELEMENTS : elements;
}

/* Checks that the states of trained groups have room for what the optimizer keeps of each work
 * element. */
static int states_fit(const coh_layout *layout)
{
    for (uint32_t i = 0; i < layout->group_count; i++) {
        const coh_group_layout *group = &layout->groups[i];
        const coh_object *work = &layout->objects[group->work];
        const int is_cut = group->dtype == COH_DTYPE_BF16;
        for (uint32_t c = 0; c < work->chunk_count && group->optimizer >= 0; c++) {
            const coh_chunk *chunk = &layout->chunks[work->chunk_begin + c];
            const uint64_t elements = chunk->bytes / (is_cut ? 2 : 4);
            const uint64_t wanted = state_bytes(
                layout->optimizers[group->optimizer], is_cut,
                chunk->is_divided ? part_elements(layout, group->axes.state, elements) : elements);
            if (wanted !=
                (group->state < 0
                     ? 0
                     : layout->chunks[layout->objects[group->state].chunk_begin + c].bytes))
                return 0;
        }
    }
    return 1;
}

static int is_same_work(const coh_program *p, const coh_instruction *a, const coh_instruction *b)
{
    const coh_instruction_call *x = &p->calls[a->call], *y = &p->calls[b->call];
    return a->opcode == b->opcode && a->opcode != COH_OP_RECOMPUTE &&
           x->operator_index == y->operator_index && x->microbatch == y->microbatch;
}

/* Do the ranges of rows of each call run in ascending order? A kind may add to a sum range by
 * range, in which another order rounds otherwise. Rows are recomputed several times. */
static int rows_ascend(const coh_program *p)
{
    for (uint32_t i = 0; i < p->instruction_count; i++)
        for (uint32_t k = i + 1; p->instructions[i].call >= 0 && k < p->instruction_count; k++)
            if (p->instructions[k].call >= 0 &&
                is_same_work(p, &p->instructions[i], &p->instructions[k]) &&
                p->calls[p->instructions[k].call].row_begin <
                    p->calls[p->instructions[i].call].row_begin)
                return 0;
    return 1;
}

/* Returns why this program must not run, or NULL. */
static const char *find_harm(const mutant *m, const poison_result *original, char *text,
                             size_t text_bytes)
{
    uint32_t run_count = m->program.kind == COH_PROGRAM_BODY ? 3 : 1;
    hb_conflict race;
    poison_result found;
    if (hb_find_race(&m->program, run_count, &race)) {
        snprintf(text, text_bytes,
                 "instructions %u and %u are not ordered (or a wait is never met)", race.a, race.b);
        return text;
    }
    if (!states_fit(&m->layout))
        return "states of another size than the parameters want";
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (m->program.lane_length[lane] > 0 && m->program.lane_depth[lane] == 0)
            return "a lane of depth 0";
    poison_run(&m->layout, &m->program, run_count, NULL, &found);
    if (found.is_faulty) {
        snprintf(text, text_bytes, "%s", found.fault);
        return text;
    }
    if (found.hash != original->hash)
        return "it leaves other values";
    if (!rows_ascend(&m->program))
        return "it takes rows in another order, which may round otherwise";
    for (int tier = COH_TIER_DEVICE; tier <= COH_TIER_HOST; tier++)
        if (found.peak_bytes[tier] != m->program.peak_bytes[tier] ||
            found.peak_bytes[tier] > m->options.budget_bytes[tier])
            return "it takes more or less room than it says or has";
    if (m->layout.file_bytes > m->options.budget_bytes[COH_TIER_DISK])
        return "the store is larger than the disk budget";
    if (m->options.wear_bytes > 0 && found.wear_bytes > m->options.wear_bytes)
        return "it writes more than the limit";
    return NULL;
}

/* ---- one mutation ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return coh_rng_mix(hash ^ value) + 0x9e3779b97f4a7c15u;
}

/* Hashes what a rank exchanges with others, in order. */
static uint64_t hash_exchanges(const coh_program *p)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < p->instruction_count; i++) {
        const coh_instruction *instruction = &p->instructions[i];
        if (instruction->comm == 0)
            continue;
        const coh_comm_call *comm = &p->comms[instruction->comm - 1];
        hash = mix(mix(hash, instruction->opcode), instruction->lane);
        hash = mix(mix(hash, comm->axes), comm->part_bytes);
        hash = mix(mix(mix(hash, comm->wire), comm->dtype), (uint32_t)comm->root);
        for (uint32_t o = 0; o < instruction->operand_count; o++) {
            const coh_operand *operand = &p->operands[instruction->operand_begin + o];
            for (uint32_t k = 0; k < operand->touch_count; k++) {
                const coh_touch *touch = &p->touches[operand->touch_begin + k];
                hash = mix(mix(hash, touch->chunk), (uint32_t)touch->version);
            }
        }
    }
    return hash;
}

/* The program that was broken. */
typedef struct unbroken {
    poison_result run;
    uint64_t hash, exchanges;
} unbroken;

static void compare_exchanges(const mutant *m, const unbroken *original,
                              coh_mutation_report *report)
{
    if (hash_exchanges(&m->program) == original->exchanges)
        return;
    report->unlike++;
    report->unnoticed += coh_program_hash(&m->layout, &m->program) == original->hash;
}

static void judge(const mutant *m, const mutation *what, const unbroken *original,
                  coh_mutation_report *report)
{
    char text[256];
    const char *harm = find_harm(m, &original->run, text, sizeof(text));
    coh_verify_result result;
    coh_status status = coh_verify(&m->layout, &m->program, &m->options, &result);
    report->total++;
    report->harmful += harm != NULL;
    report->benign += harm == NULL;
    report->kind_harmful[what->kind] += harm != NULL;
    report->kind_benign[what->kind] += harm == NULL;
    if (harm != NULL && status == COH_OK && report->missed++ == 0)
        snprintf(report->first_missed, sizeof(report->first_missed), "%s %u (%d): %s",
                 mutation_name(what->kind), what->index, what->amount, harm);
    if (harm == NULL && status != COH_OK && report->false_alarms++ == 0)
        snprintf(report->first_false_alarm, sizeof(report->first_false_alarm), "%s %u (%d): %s",
                 mutation_name(what->kind), what->index, what->amount, coh_last_error());
    if (status == COH_OK)
        compare_exchanges(m, original, report);
    if (harm == NULL || status == COH_OK)
        return;
    report->caught++;
    report->rule_caught[result.rule]++;
    coh_verify_options without = m->options;
    without.rules_off |= 1u << result.rule;
    if (coh_verify(&m->layout, &m->program, &without, NULL) == COH_OK)
        report->rule_escapes[result.rule]++;
}

/* Rare kinds are always made; dropped waits are drawn four times as often as the others. */
static int is_drawn(mutation_kind kind, uint64_t seed, size_t i, size_t count, uint32_t most)
{
    if (most == 0 || kind == MUTATE_RETARGET || kind == MUTATE_RESIDENT || kind == MUTATE_PEAK ||
        kind == MUTATE_BUDGET || kind == MUTATE_WEAR || kind == MUTATE_DEPTH)
        return 1;
    uint64_t draw = coh_rng_below(seed, 1, i, count);
    return draw < (kind == MUTATE_DROP_WAIT ? 4 * (uint64_t)most : most);
}

coh_mutation_report run_mutations(const coh_layout *layout, const coh_program *program,
                                  const coh_verify_options *options, uint64_t seed, uint32_t most)
{
    coh_mutation_report report = { 0 };
    unbroken original = { .hash = coh_program_hash(layout, program),
                          .exchanges = hash_exchanges(program) };
    uint32_t run_count = program->kind == COH_PROGRAM_BODY ? 3 : 1;
    poison_run(layout, program, run_count, NULL, &original.run);
    coh_status status = coh_verify(layout, program, options, NULL);
    if (status != COH_OK || original.run.is_faulty || !rows_ascend(program)) {
        report.false_alarms = 1;
        snprintf(report.first_false_alarm, sizeof(report.first_false_alarm),
                 "the original: %s / %s%s", status != COH_OK ? coh_last_error() : "accepted",
                 original.run.is_faulty ? original.run.fault : "runs",
                 rows_ascend(program) ? "" : ", rows in another order");
        return report;
    }
    mutation *list = NULL;
    size_t count = list_mutations(layout, program, &list);
    for (size_t i = 0; i < count; i++) {
        if (!is_drawn(list[i].kind, seed, i, count, most))
            continue;
        mutant m;
        copy_mutant(layout, program, options, &m);
        if (apply_mutation(&m, &list[i], seed + i))
            judge(&m, &list[i], &original, &report);
        free_mutant(&m);
    }
    free(list);
    return report;
}

/* ---- reports ---- */

void add_report(coh_mutation_report *sum, const coh_mutation_report *report)
{
    sum->total += report->total;
    sum->harmful += report->harmful;
    sum->benign += report->benign;
    sum->caught += report->caught;
    if (sum->missed == 0)
        memcpy(sum->first_missed, report->first_missed, sizeof(sum->first_missed));
    if (sum->false_alarms == 0)
        memcpy(sum->first_false_alarm, report->first_false_alarm, sizeof(sum->first_false_alarm));
    sum->unlike += report->unlike;
    sum->unnoticed += report->unnoticed;
    sum->missed += report->missed;
    sum->false_alarms += report->false_alarms;
    for (int i = 0; i < MUTATE_KIND_COUNT; i++) {
        sum->kind_harmful[i] += report->kind_harmful[i];
        sum->kind_benign[i] += report->kind_benign[i];
    }
    for (int i = 0; i < COH_RULE_COUNT; i++) {
        sum->rule_caught[i] += report->rule_caught[i];
        sum->rule_escapes[i] += report->rule_escapes[i];
    }
}

void print_report(const char *name, const coh_mutation_report *report)
{
    printf(
        "%s: %u mutations, %u harmful, %u benign; %u harmful caught, %u missed, %u false alarms\n",
        name, report->total, report->harmful, report->benign, report->caught, report->missed,
        report->false_alarms);
    if (report->missed > 0)
        printf("  missed: %s\n", report->first_missed);
    if (report->false_alarms > 0)
        printf("  false alarm: %s\n", report->first_false_alarm);
}
