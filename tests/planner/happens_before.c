#include "tests/planner/happens_before.h"

#include <stdlib.h>
#include <string.h>

/* ---- order ---- */

static void set_bit(uint64_t *row, uint32_t bit)
{
    row[bit / 64] |= (uint64_t)1 << (bit % 64);
}

static void or_row(uint64_t *row, const uint64_t *other, size_t words)
{
    for (size_t i = 0; i < words; i++)
        row[i] |= other[i];
}

typedef struct lane_table {
    uint32_t *nodes[COH_LANE_COUNT];
    uint32_t length[COH_LANE_COUNT]; /* of one run */
} lane_table;

static void list_lanes(const coh_program *program, uint32_t run_count, lane_table *table)
{
    memset(table, 0, sizeof(*table));
    for (uint32_t i = 0; i < program->instruction_count; i++)
        table->length[program->instructions[i].lane]++;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        uint32_t count = 0;
        table->nodes[lane] =
            malloc(((size_t)table->length[lane] * run_count + 1) * sizeof(uint32_t));
        for (uint32_t n = 0; n < run_count * program->instruction_count; n++)
            if (program->instructions[n % program->instruction_count].lane == lane)
                table->nodes[lane][count++] = n;
    }
}

static int close_node(const coh_program *program, hb_order *order, const lane_table *lanes,
                      uint32_t node, uint32_t number)
{
    const coh_instruction *instruction = &program->instructions[node % program->instruction_count];
    uint32_t run = node / program->instruction_count;
    uint64_t *row = &order->before[(size_t)node * order->words];
    uint32_t depth = program->lane_depth[instruction->lane];
    if (number > 1) /* issued after its predecessor, whose waits were met */
        or_row(row,
               &order->before[(size_t)lanes->nodes[instruction->lane][number - 2] * order->words],
               order->words);
    if (number > depth && depth > 0)
        or_row(row,
               &order->upto[(size_t)lanes->nodes[instruction->lane][number - depth - 1] *
                            order->words],
               order->words);
    for (uint32_t w = 0; w < instruction->wait_count; w++) {
        const coh_wait *wait = &program->waits[instruction->wait_begin + w];
        if (wait->ordinal == 0 || wait->lane >= COH_LANE_COUNT ||
            wait->ordinal > lanes->length[wait->lane])
            return 0;
        if (wait->carry && order->node_count == order->instruction_count)
            return 0;
        if (wait->carry && run == 0)
            continue;
        uint64_t n =
            (uint64_t)(run - (wait->carry ? 1 : 0)) * lanes->length[wait->lane] + wait->ordinal;
        uint32_t target = lanes->nodes[wait->lane][n - 1];
        if (target >= node)
            return 0;
        or_row(row, &order->upto[(size_t)target * order->words], order->words);
    }
    uint64_t *upto = &order->upto[(size_t)node * order->words];
    or_row(upto, row, order->words);
    if (number > 1)
        or_row(upto,
               &order->upto[(size_t)lanes->nodes[instruction->lane][number - 2] * order->words],
               order->words);
    set_bit(upto, node);
    return 1;
}

int hb_order_build(const coh_program *program, uint32_t run_count, hb_order *out)
{
    lane_table lanes;
    uint32_t numbers[COH_LANE_COUNT] = { 0 };
    int is_legal = 1;
    list_lanes(program, run_count, &lanes);
    out->instruction_count = program->instruction_count;
    out->node_count = run_count * program->instruction_count;
    out->words = (out->node_count + 63) / 64;
    out->before = calloc((size_t)out->node_count * out->words, sizeof(uint64_t));
    out->upto = calloc((size_t)out->node_count * out->words, sizeof(uint64_t));
    for (uint32_t node = 0; is_legal && node < out->node_count; node++) {
        uint8_t lane = program->instructions[node % program->instruction_count].lane;
        is_legal = close_node(program, out, &lanes, node, ++numbers[lane]);
    }
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        free(lanes.nodes[lane]);
    if (!is_legal)
        hb_order_free(out);
    return is_legal;
}

void hb_order_free(hb_order *order)
{
    free(order->before);
    free(order->upto);
    memset(order, 0, sizeof(*order));
}

/* ---- conflicts ---- */

/* The byte range of one operand; the top bits name the tier or the file. */
typedef struct byte_range {
    uint64_t begin, end;
    uint32_t instruction;
    int writes;
} byte_range;

static int by_begin(const void *a, const void *b)
{
    const byte_range *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->instruction < y->instruction ? -1 : x->instruction > y->instruction;
}

static size_t list_ranges(const coh_program *program, byte_range **out)
{
    size_t count = 0;
    *out = malloc((program->operand_count + 1) * sizeof(byte_range));
    for (uint32_t i = 0; i < program->instruction_count; i++)
        for (uint32_t o = 0; o < program->instructions[i].operand_count; o++) {
            const coh_operand *operand =
                &program->operands[program->instructions[i].operand_begin + o];
            uint64_t base = (uint64_t)operand->tier << 60;
            (*out)[count++] =
                (byte_range){ base + operand->offset, base + operand->offset + operand->bytes, i,
                              (operand->access & COH_ACCESS_WRITE) != 0 };
        }
    qsort(*out, count, sizeof(byte_range), by_begin);
    return count;
}

static void add_pair(const coh_program *program, uint32_t run_count, uint32_t x, uint32_t y,
                     hb_conflict **list, size_t *count, size_t *capacity)
{
    uint32_t instructions = program->instruction_count;
    for (uint32_t r = 0; r < run_count; r++)
        for (uint32_t s = 0; s < run_count; s++) {
            uint32_t a = r * instructions + x, b = s * instructions + y;
            if (a >= b)
                continue;
            if (*count == *capacity) {
                *capacity = *capacity * 2 + 64;
                *list = realloc(*list, *capacity * sizeof(hb_conflict));
            }
            (*list)[(*count)++] = (hb_conflict){ a, b };
        }
}

static int by_pair(const void *a, const void *b)
{
    const hb_conflict *x = a, *y = b;
    if (x->b != y->b)
        return x->b < y->b ? -1 : 1;
    return x->a < y->a ? -1 : x->a > y->a;
}

size_t hb_conflicts(const coh_program *program, uint32_t run_count, hb_conflict **out)
{
    byte_range *ranges = NULL;
    size_t range_count = list_ranges(program, &ranges), count = 0, capacity = 0, kept = 0;
    *out = NULL;
    for (size_t i = 0; i < range_count; i++)
        for (size_t j = i; j < range_count && ranges[j].begin < ranges[i].end; j++) {
            if (!ranges[i].writes && !ranges[j].writes)
                continue;
            add_pair(program, run_count, ranges[i].instruction, ranges[j].instruction, out, &count,
                     &capacity);
            if (ranges[i].instruction != ranges[j].instruction)
                add_pair(program, run_count, ranges[j].instruction, ranges[i].instruction, out,
                         &count, &capacity);
        }
    if (count > 0)
        qsort(*out, count, sizeof(hb_conflict), by_pair);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || by_pair(&(*out)[kept - 1], &(*out)[i]) != 0)
            (*out)[kept++] = (*out)[i];
    free(ranges);
    return kept;
}

/* The first unordered pair among all runs of instructions x and y. */
static int pair_races(const hb_order *order, uint32_t run_count, uint32_t x, uint32_t y,
                      hb_conflict *out)
{
    for (uint32_t r = 0; r < run_count; r++)
        for (uint32_t s = 0; s < run_count; s++) {
            uint32_t a = r * order->instruction_count + x, b = s * order->instruction_count + y;
            if (a == b)
                continue;
            *out = a < b ? (hb_conflict){ a, b } : (hb_conflict){ b, a };
            if (!hb_is_before(order, out->a, out->b))
                return 1;
        }
    return 0;
}

int hb_find_race(const coh_program *program, uint32_t run_count, hb_conflict *out)
{
    hb_order order;
    byte_range *ranges = NULL;
    int found = 0;
    *out = (hb_conflict){ UINT32_MAX, UINT32_MAX };
    if (!hb_order_build(program, run_count, &order))
        return 1;
    size_t count = list_ranges(program, &ranges);
    for (size_t i = 0; i < count && !found; i++)
        for (size_t j = i; j < count && ranges[j].begin < ranges[i].end && !found; j++)
            if (ranges[i].writes || ranges[j].writes)
                found = pair_races(&order, run_count, ranges[i].instruction, ranges[j].instruction,
                                   out);
    free(ranges);
    hb_order_free(&order);
    return found;
}
