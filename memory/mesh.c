/* Ranks as numbers in mixed radix, and the levels of links that are cut from them. Read mesh.h
 * first. */
#include "memory/mesh.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* ---- levels ---- */

/* Returns how many of the first `rank_count` ranks share a node (or pair) with the first. */
static int32_t first_block(const coh_place *places, int32_t rank_count, coh_link_level level)
{
    int32_t count = 1;
    while (count < rank_count && places[count].node == places[0].node &&
           (level == COH_LEVEL_NODE || places[count].pair == places[0].pair))
        count++;
    return count;
}

static coh_status refuse_place(const coh_place *places, int32_t rank, int32_t node, int32_t pair)
{
    return coh_fail(
        COH_ERR_ARGUMENT,
        "rank %" PRId32 " is on node %" PRId32 ", pair %" PRId32 ", and would be on node %" PRId32
        ", pair %" PRId32
        " if all had as many ranks as the first: number the ranks node by node, and give "
        "each node and each pair the same number",
        rank, places[rank].node, places[rank].pair, node, pair);
}

static coh_status check_rank_count(int32_t rank_count)
{
    return coh_check_integer("the number of ranks", rank_count, 1, COH_RANKS_MOST);
}

coh_status coh_levels_find(const coh_place *places, int32_t rank_count, coh_levels *out_levels)
{
    COH_TRY(check_rank_count(rank_count));
    const int32_t pair = first_block(places, rank_count, COH_LEVEL_PAIR);
    const int32_t node = first_block(places, rank_count, COH_LEVEL_NODE);
    for (int32_t rank = 0; rank < rank_count; rank++)
        if (places[rank].node != rank / node || places[rank].pair != rank % node / pair)
            return refuse_place(places, rank, rank / node, rank % node / pair);
    if (node % pair != 0 || rank_count % node != 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%" PRId32 " ranks do not fill nodes of %" PRId32 " and pairs of %" PRId32
                        ": give each node and each pair the same number of ranks",
                        rank_count, node, pair);
    *out_levels = (coh_levels){ .rank_count = { [COH_LEVEL_SELF] = 1,
                                                [COH_LEVEL_PAIR] = pair,
                                                [COH_LEVEL_NODE] = node,
                                                [COH_LEVEL_WORLD] = rank_count } };
    return COH_OK;
}

coh_link_level coh_levels_link(const coh_levels *levels, int32_t rank, int32_t other)
{
    int level = COH_LEVEL_SELF;
    while (rank / levels->rank_count[level] != other / levels->rank_count[level])
        level++;
    return (coh_link_level)level;
}

/* ---- the mesh ---- */

static int is_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    static const char others[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    const size_t length = strnlen(name, COH_AXIS_NAME_BYTES);
    return length > 0 && length < COH_AXIS_NAME_BYTES && strchr(letters, name[0]) != NULL &&
           strspn(name, others) == length;
}

/* Checks an axis by itself and against those that the mesh has. */
static coh_status check_axis(const coh_mesh *mesh, const coh_axis *axis)
{
    if (!is_name(axis->name))
        return coh_fail(
            COH_ERR_ARGUMENT,
            "axis %d of the mesh has no valid name: use a lower-case letter, then at most "
            "%d letters, digits or _",
            mesh->axis_count, COH_AXIS_NAME_BYTES - 2);
    if (coh_mesh_find_axis(mesh, axis->name) >= 0)
        return coh_fail(COH_ERR_ARGUMENT, "the mesh has two axes named %s: name each one once",
                        axis->name);
    if (axis->rank_count < 1)
        return coh_fail(COH_ERR_ARGUMENT,
                        "axis %s of the mesh has %" PRId32 " ranks: give it 1 or more", axis->name,
                        axis->rank_count);
    return COH_OK;
}

/* Checks that each block of a level is a box of coordinates: the axis lies whole above the block,
 * whole within it, or the block cuts the axis into equal runs. */
static coh_status check_nesting(const coh_axis *axis, int32_t stride, const coh_levels *levels)
{
    for (int level = COH_LEVEL_PAIR; level < COH_LEVEL_WORLD; level++) {
        const int64_t block = levels->rank_count[level];
        const int64_t end = (int64_t)stride * axis->rank_count;
        if (stride % block != 0 && (block % stride != 0 || (end % block != 0 && block % end != 0)))
            return coh_fail(COH_ERR_ARGUMENT,
                            "axis %s=%" PRId32 " of the mesh, whose neighbours are %" PRId32
                            " ranks apart, does not nest with the %ss of %" PRId64
                            " ranks: choose counts of which one divides the other",
                            axis->name, axis->rank_count, stride,
                            coh_link_level_name((coh_link_level)level), block);
    }
    return COH_OK;
}

coh_status coh_mesh_init(coh_mesh *mesh, const coh_axis *axes, int axis_count,
                         const coh_levels *levels)
{
    const int32_t world = levels->rank_count[COH_LEVEL_WORLD];
    int64_t product = 1;
    *mesh = (coh_mesh){ .levels = *levels };
    COH_TRY(coh_check_integer("the number of axes of the mesh", axis_count, 0, COH_AXES_MOST));
    for (int i = 0; i < axis_count; i++) {
        COH_TRY(check_axis(mesh, &axes[i]));
        mesh->axes[i] = axes[i];
        mesh->strides[i] = (int32_t)product;
        mesh->axis_count++;
        product *= axes[i].rank_count;
        if (product > COH_RANKS_MOST)
            break;
    }
    if (product != world)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the mesh has %s%" PRId64 " ranks and the world %" PRId32
                        ": make the product of the axes equal to the world",
                        product > COH_RANKS_MOST ? "at least " : "", product, world);
    for (int i = 0; i < axis_count; i++)
        COH_TRY(check_nesting(&mesh->axes[i], mesh->strides[i], levels));
    return COH_OK;
}

int32_t coh_mesh_rank_count(const coh_mesh *mesh)
{
    return mesh->levels.rank_count[COH_LEVEL_WORLD];
}

int coh_mesh_find_axis(const coh_mesh *mesh, const char *name)
{
    for (int i = 0; i < mesh->axis_count; i++)
        if (strcmp(mesh->axes[i].name, name) == 0)
            return i;
    return -1;
}

static int32_t coordinate(const coh_mesh *mesh, int axis, int32_t rank)
{
    return rank / mesh->strides[axis] % mesh->axes[axis].rank_count;
}

void coh_mesh_coordinates(const coh_mesh *mesh, int32_t rank, int32_t *out_coordinates)
{
    for (int i = 0; i < mesh->axis_count; i++)
        out_coordinates[i] = coordinate(mesh, i, rank);
}

int32_t coh_mesh_rank(const coh_mesh *mesh, const int32_t *coordinates)
{
    int32_t rank = 0;
    for (int i = 0; i < mesh->axis_count; i++)
        rank += coordinates[i] * mesh->strides[i];
    return rank;
}

static int has(const coh_mesh *mesh, coh_axis_set axes, int axis)
{
    assert(axes >> mesh->axis_count == 0);
    (void)mesh; /* without asserts */
    return axes >> axis & 1;
}

int32_t coh_mesh_group_size(const coh_mesh *mesh, coh_axis_set axes)
{
    int32_t size = 1;
    for (int i = 0; i < mesh->axis_count; i++)
        if (has(mesh, axes, i))
            size *= mesh->axes[i].rank_count;
    return size;
}

int32_t coh_mesh_group_index(const coh_mesh *mesh, coh_axis_set axes, int32_t rank)
{
    int32_t index = 0, stride = 1;
    for (int i = 0; i < mesh->axis_count; i++)
        if (has(mesh, axes, i)) {
            index += coordinate(mesh, i, rank) * stride;
            stride *= mesh->axes[i].rank_count;
        }
    return index;
}

int32_t coh_mesh_group_member(const coh_mesh *mesh, coh_axis_set axes, int32_t rank, int32_t index)
{
    for (int i = 0; i < mesh->axis_count; i++)
        if (has(mesh, axes, i)) {
            const int32_t count = mesh->axes[i].rank_count;
            rank += (index % count - coordinate(mesh, i, rank)) * mesh->strides[i];
            index /= count;
        }
    return rank;
}

/* Blocks of a level are runs of ranks, so the first and the last member are as far apart as any
 * two. */
coh_link_level coh_mesh_group_level(const coh_mesh *mesh, coh_axis_set axes)
{
    const int32_t last = coh_mesh_group_size(mesh, axes) - 1;
    return coh_levels_link(&mesh->levels, 0, coh_mesh_group_member(mesh, axes, 0, last));
}
