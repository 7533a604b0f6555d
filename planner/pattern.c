/* The patterns: how an operator's parameters are partitioned and how a call becomes instructions.
 * The idea: a table of functions per pattern; all share the life of a group (pattern_life.c). The
 * interface is pattern.h; instructions of calls are written by lower_call.c. */
#include "planner/pattern.h"
#include "planner/row_unit.h"

#include "base/bytes.h"
#include "planner/pattern_life.h"

/* ---- the parameters of an operator ---- */

/* Bytes of WORK that an instruction needs: of a parameter that the shard splits its rows in one
 * part, of others their whole group. */
static uint64_t part_bytes(const coh_pattern_scene *scene, int32_t op, const coh_shard *shard)
{
    const coh_graph_op_entry *entry = &scene->graph->ops[op];
    const int64_t rows =
        shard->rows_per_part < shard->row_count ? shard->rows_per_part : shard->row_count;
    uint64_t bytes = 0;
    for (int32_t port = 0; port < entry->kind.parameter_count; port++) {
        if (entry->parameter[port] < 0)
            continue;
        const int32_t group = scene->map->group_of_parameter[entry->parameter[port]];
        int seen = 0; /* all parameters of a group are one window */
        for (int32_t other = 0; other < port; other++)
            seen |= entry->parameter[other] >= 0 &&
                    scene->map->group_of_parameter[entry->parameter[other]] == group;
        const coh_shape *shape = &scene->graph->parameters[entry->parameter[port]].facts.shape;
        if (port == shard->port)
            bytes += coh_bytes_round_page(coh_shape_bytes(shape) / (uint64_t)shape->dim[0] *
                                          (uint64_t)rows);
        else if (!seen)
            bytes += scene->layout->objects[scene->layout->groups[group].work].bytes;
    }
    return bytes;
}

/* ---- replicate ---- */

static coh_shard shard_whole(const coh_pattern_scene *scene, int32_t op)
{
    (void)scene;
    (void)op;
    return (coh_shard){ .parts = 1, .port = -1 };
}

static coh_status expand_whole(coh_lower_writer *w, coh_opcode opcode, int32_t op,
                               int32_t microbatch, int final)
{
    return coh_lower_range(w, opcode, op, microbatch, final, (coh_row_range){ 0 });
}

static uint64_t memory_whole(const coh_pattern_scene *scene, int32_t op)
{
    const coh_shard shard = shard_whole(scene, op);
    return part_bytes(scene, op, &shard);
}

/* ---- slice ---- */

/* Returns the partition of the parameter at a port; row_count 0 if it cannot be split. Ranges are
 * whole blocks of the kind that reads them, even for a parameter that another kind introduced. */
static coh_shard shard_port(const coh_pattern_scene *scene, int32_t op, int32_t port)
{
    const coh_graph_op_entry *entry = &scene->graph->ops[op];
    const int32_t parameter = entry->parameter[port];
    const coh_shard whole = shard_whole(scene, op);
    if (parameter < 0 || !((entry->kind.row_split_parameters >> port) & 1) ||
        scene->map->parameter_scratch[coh_port_index(op, port)] >= 0)
        return whole;
    const int64_t unit = scene->map->row_unit[parameter];
    const int64_t block =
        coh_row_block(&entry->kind, &entry->facts.parameter[port], scene->map->device);
    const int64_t rows = scene->graph->parameters[parameter].facts.shape.dim[0];
    if (unit == 0 || block == 0 || (unit < rows && unit % block != 0))
        return whole;
    const int64_t most = entry->kind.column_slices ? scene->map->slices : scene->map->row_passes;
    const int64_t units = (rows + unit - 1) / unit;
    const int64_t passes = most < 1 ? 1 : most < units ? most : units;
    const int64_t step = (units + passes - 1) / passes * unit;
    return (coh_shard){ .parts = (int32_t)((rows + step - 1) / step),
                        .rows_per_part = step,
                        .row_count = rows,
                        .port = port };
}

/* Splits the rows of one parameter into whole units, in at most as many ranges as the decisions
 * allow. A table has row ranges even if there is only one: its instructions give the rows that they
 * cover. */
static coh_shard shard_rows(const coh_pattern_scene *scene, int32_t op)
{
    const coh_graph_op_entry *entry = &scene->graph->ops[op];
    for (int32_t port = 0; port < entry->kind.parameter_count; port++) {
        const coh_shard shard = shard_port(scene, op, port);
        if (shard.row_count == 0)
            continue;
        return shard.parts > 1 || !entry->kind.column_slices ? shard : shard_whole(scene, op);
    }
    return shard_whole(scene, op);
}

/* Returns where the range after `rows` begins if only the first two ranges and the last one are
 * written. */
static int64_t last_of_few(const coh_row_range *rows, int64_t rows_per_part)
{
    const int64_t last = (rows->count - 1) / rows_per_part * rows_per_part;
    return rows->end <= rows_per_part || rows->end > last ? rows->end : last;
}

static coh_status expand_rows(coh_lower_writer *w, coh_opcode opcode, int32_t op,
                              int32_t microbatch, int final)
{
    const coh_pattern_scene scene = { w->graph, w->layout, w->map };
    const coh_shard shard = shard_rows(&scene, op);
    coh_row_range rows = { .count = shard.row_count };
    do {
        rows.end = rows.begin + shard.rows_per_part < rows.count ? rows.begin + shard.rows_per_part
                                                                 : rows.count;
        COH_TRY(coh_lower_range(w, opcode, op, microbatch, final, rows));
        rows.begin = rows.end;
        if (w->map->is_for_memory && rows.begin < rows.count)
            rows.begin = last_of_few(&rows, shard.rows_per_part);
    } while (rows.begin < rows.count);
    return COH_OK;
}

static uint64_t memory_rows(const coh_pattern_scene *scene, int32_t op)
{
    const coh_shard shard = shard_rows(scene, op);
    return part_bytes(scene, op, &shard);
}

/* ---- the tables ---- */

/* The life of a group. */
#define LIFE                                                                                       \
    .owner = coh_life_owner, .prepare = coh_life_prepare, .gather = coh_life_gather,               \
    .contribute = coh_life_contribute, .finish = coh_life_finish, .complete = coh_life_complete,   \
    .update = coh_life_update, .drain = coh_life_drain, .visit = coh_life_visit,                   \
    .volume = coh_life_volume

static const coh_pattern replicate = { .name = "replicate",
                                       .classes = (1u << COH_CLASS_COUNT) - 1,
                                       .shard = shard_whole,
                                       .expand = expand_whole,
                                       .memory = memory_whole,
                                       LIFE };

static const coh_pattern slice = { .name = "slice",
                                   .classes = 1u << COH_CLASS_TABLE | 1u << COH_CLASS_PRODUCT,
                                   .shard = shard_rows,
                                   .expand = expand_rows,
                                   .memory = memory_rows,
                                   LIFE };

const coh_pattern *const coh_pattern_rows[COH_PATTERN_COUNT] = {
    [COH_PATTERN_REPLICATE] = &replicate,
    [COH_PATTERN_SLICE] = &slice,
};

coh_status coh_pattern_settle(coh_lower_writer *w)
{
    const int32_t group = w->summed_group;
    w->summed_group = -1;
    if (group < 0)
        return COH_OK;
    return coh_pattern_of_group(w->layout, group)
        ->complete(w, group, w->summed_begin, w->summed_end);
}

const coh_pattern *coh_pattern_of(const coh_pattern_scene *scene, int32_t op)
{
    const coh_op_kind *kind = &scene->graph->ops[op].kind;
    const coh_group_class group_class = kind->column_slices               ? COH_CLASS_PRODUCT
                                        : kind->row_split_parameters != 0 ? COH_CLASS_TABLE
                                                                          : COH_CLASS_PLAIN;
    return coh_pattern_rows[scene->map->patterns.of[group_class]];
}
