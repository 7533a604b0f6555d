/* Every mesh of up to 64 ranks, with all its levels and groups, against tables that are filled by
 * counting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "memory/mesh.h"
#include "tests/length.h"

enum { RANKS = 64 };

typedef struct table {
    int32_t coordinates[RANKS][COH_AXES_MOST];
    int32_t places[RANKS][COH_LEVEL_COUNT]; /* the block of the rank, by level */
} table;

static coh_axis axis_of(int index, int32_t rank_count)
{
    coh_axis axis = { .rank_count = rank_count };
    (void)snprintf(axis.name, sizeof(axis.name), "a%d", index);
    return axis;
}

static coh_levels levels_of(int32_t pair, int32_t node, int32_t world)
{
    return (coh_levels){ .rank_count = { 1, pair, node, world } };
}

/* Counts through all coordinates like an odometer. */
static void fill(table *made, const coh_axis *axes, int axis_count, const coh_levels *levels)
{
    int32_t at[COH_AXES_MOST] = { 0 };
    for (int32_t rank = 0; rank < levels->rank_count[COH_LEVEL_WORLD]; rank++) {
        memcpy(made->coordinates[rank], at, sizeof(at));
        for (int level = 0; level < COH_LEVEL_COUNT; level++)
            made->places[rank][level] = rank / levels->rank_count[level];
        for (int i = 0; i < axis_count && ++at[i] == axes[i].rank_count; i++)
            at[i] = 0;
    }
}

/* Returns whether the ranks of each block of a level are all combinations of one interval per
 * axis. */
static int are_boxes(const table *made, int axis_count, int level, const coh_levels *levels)
{
    const int32_t size = levels->rank_count[level];
    for (int32_t first = 0; first < levels->rank_count[COH_LEVEL_WORLD]; first += size) {
        int32_t product = 1;
        for (int i = 0; i < axis_count; i++) {
            int32_t least = INT32_MAX, most = 0;
            for (int32_t rank = first; rank < first + size; rank++) {
                const int32_t at = made->coordinates[rank][i];
                least = at < least ? at : least;
                most = at > most ? at : most;
            }
            product *= most - least + 1;
        }
        if (product != size)
            return 0;
    }
    return 1;
}

static int is_in_group(const table *made, int axis_count, coh_axis_set axes, int32_t a, int32_t b)
{
    for (int i = 0; i < axis_count; i++)
        if (!(axes >> i & 1) && made->coordinates[a][i] != made->coordinates[b][i])
            return 0;
    return 1;
}

static int link_of(const table *made, int32_t a, int32_t b)
{
    int level = 0;
    while (made->places[a][level] != made->places[b][level])
        level++;
    return level;
}

/* Compares all groups of a set of axes. */
static void check_groups(const coh_mesh *mesh, const table *made, coh_axis_set axes)
{
    for (int32_t rank = 0; rank < coh_mesh_rank_count(mesh); rank++) {
        int32_t members[RANKS], size = 0, index = -1;
        int level = COH_LEVEL_SELF;
        for (int32_t other = 0; other < coh_mesh_rank_count(mesh); other++)
            if (is_in_group(made, mesh->axis_count, axes, rank, other)) {
                index = other == rank ? size : index;
                members[size++] = other;
            }
        assert_int_equal(coh_mesh_group_size(mesh, axes), size);
        assert_int_equal(coh_mesh_group_index(mesh, axes, rank), index);
        for (int32_t i = 0; i < size; i++) {
            assert_int_equal(coh_mesh_group_member(mesh, axes, rank, i), members[i]);
            for (int32_t j = 0; j < i && index == 0; j++) {
                const int link = link_of(made, members[i], members[j]);
                level = link > level ? link : level;
            }
        }
        if (index == 0)
            assert_int_equal(coh_mesh_group_level(mesh, axes), level);
    }
}

static int accepted_count, refused_count;

static void check_mesh(const coh_axis *axes, int axis_count, const coh_levels *levels)
{
    coh_mesh mesh;
    table made;
    fill(&made, axes, axis_count, levels);
    const int nests = are_boxes(&made, axis_count, COH_LEVEL_PAIR, levels) &&
                      are_boxes(&made, axis_count, COH_LEVEL_NODE, levels);
    const coh_status status = coh_mesh_init(&mesh, axes, axis_count, levels);
    assert_int_equal(status, nests ? COH_OK : COH_ERR_ARGUMENT);
    *(nests ? &accepted_count : &refused_count) += 1;
    if (!nests) {
        assert_non_null(strstr(coh_last_error(), "does not nest"));
        return;
    }
    for (int32_t rank = 0; rank < coh_mesh_rank_count(&mesh); rank++) {
        int32_t at[COH_AXES_MOST];
        coh_mesh_coordinates(&mesh, rank, at);
        assert_memory_equal(at, made.coordinates[rank], (size_t)axis_count * sizeof(*at));
        assert_int_equal(coh_mesh_rank(&mesh, at), rank);
        for (int32_t other = 0; other < coh_mesh_rank_count(&mesh); other++)
            assert_int_equal(coh_levels_link(levels, rank, other), link_of(&made, rank, other));
    }
    for (coh_axis_set set = 0; set < UINT32_C(1) << axis_count; set++)
        check_groups(&mesh, &made, set);
}

/* Tries all levels of `world` ranks: each pair that divides a node that divides the world. */
static void check_levels(const coh_axis *axes, int axis_count, int32_t world)
{
    for (int32_t node = 1; node <= world; node++)
        for (int32_t pair = 1; pair <= node && world % node == 0; pair++)
            if (node % pair == 0) {
                const coh_levels levels = levels_of(pair, node, world);
                check_mesh(axes, axis_count, &levels);
            }
}

/* Completes a list of axes in all ways to a product of `world`. Each list is tried once more with
 * an axis of one rank in the middle. */
static void check_factors(coh_axis *axes, int axis_count, int32_t product, int32_t world)
{
    if (product == world) {
        coh_axis longer[COH_AXES_MOST];
        const int middle = axis_count / 2;
        check_levels(axes, axis_count, world);
        for (int i = 0; i <= axis_count; i++)
            longer[i] = i == middle ? axis_of(i, 1) : axis_of(i, axes[i - (i > middle)].rank_count);
        check_levels(longer, axis_count + 1, world);
    }
    for (int32_t factor = 2; factor <= world / product; factor++)
        if (world % (product * factor) == 0) {
            axes[axis_count] = axis_of(axis_count, factor);
            check_factors(axes, axis_count + 1, product * factor, world);
        }
}

static void every_mesh_of_up_to_64_ranks_is_as_counted(void **state)
{
    (void)state;
    for (int32_t world = 1; world <= (test_is_brief() ? RANKS / 2 : RANKS); world++) {
        coh_axis axes[COH_AXES_MOST] = { 0 };
        check_factors(axes, 0, 1, world);
    }
    print_message("%d meshes accepted, %d refused\n", accepted_count, refused_count);
    assert_true(accepted_count > 0 && refused_count > 0);
}

static void a_mesh_that_is_not_the_world_is_refused(void **state)
{
    (void)state;
    static const struct {
        coh_axis axes[3];
        int axis_count;
        const char *sentence;
    } cases[] = {
        { { { "data", 4 } }, 1, "the mesh has 4 ranks and the world 8" },
        { { { "data", 4 }, { "pipe", 4 } }, 2, "the mesh has 16 ranks and the world 8" },
        { { { "data", 0 } }, 1, "axis data of the mesh has 0 ranks" },
        { { { "data", -8 }, { "pipe", -1 } }, 2, "axis data of the mesh has -8 ranks" },
        { { { "data", 2 }, { "data", 4 } }, 2, "two axes named data" },
        { { { "", 8 } }, 1, "no valid name" },
        { { { "Data", 8 } }, 1, "no valid name" },
        { { { "a=b", 8 } }, 1, "no valid name" },
        { { { "abcdefghijklmnop", 8 } }, 1, "no valid name" }, /* without its end */
        { { { "a", 1 << 20 }, { "b", 1 << 20 }, { "c", 1 << 20 } }, 3, "at least 1099511627776" },
        { { { "a", INT32_MAX }, { "b", INT32_MAX } }, 2, "at least 2147483647" },
        { { { "a", 8 } }, COH_AXES_MOST + 1, "the number of axes of the mesh" },
        { { { "a", 8 } }, -1, "the number of axes of the mesh" },
    };
    const coh_levels levels = levels_of(2, 4, 8);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        coh_mesh mesh;
        assert_int_equal(coh_mesh_init(&mesh, cases[i].axes, cases[i].axis_count, &levels),
                         COH_ERR_ARGUMENT);
        if (strstr(coh_last_error(), cases[i].sentence) == NULL)
            fail_msg("case %zu: %s", i, coh_last_error());
    }
}

static void axes_are_found_by_name(void **state)
{
    (void)state;
    const coh_axis axes[] = { { "data", 4 }, { "pipe", 2 } };
    const coh_levels levels = levels_of(2, 4, 8);
    coh_mesh mesh;
    assert_int_equal(coh_mesh_init(&mesh, axes, 2, &levels), COH_OK);
    assert_int_equal(coh_mesh_find_axis(&mesh, "data"), 0);
    assert_int_equal(coh_mesh_find_axis(&mesh, "pipe"), 1);
    assert_int_equal(coh_mesh_find_axis(&mesh, "pip"), -1);
}

/* ---- levels from places ---- */

static void levels_are_found_from_where_ranks_lie(void **state)
{
    (void)state;
    for (int32_t world = 1; world <= RANKS; world++)
        for (int32_t node = 1; node <= world; node++)
            for (int32_t pair = 1; pair <= node && world % node == 0; pair++) {
                coh_place places[RANKS];
                coh_levels levels;
                for (int32_t rank = 0; rank < world; rank++)
                    places[rank] = (coh_place){ rank / node, rank % node / pair };
                const coh_levels expected = levels_of(pair, node, world);
                assert_int_equal(coh_levels_find(places, world, &levels),
                                 node % pair == 0 ? COH_OK : COH_ERR_ARGUMENT);
                if (node % pair == 0)
                    assert_memory_equal(&levels, &expected, sizeof(levels));
            }
}

static void a_world_with_a_hole_is_refused(void **state)
{
    (void)state;
    static const struct {
        coh_place places[8];
        int32_t rank_count;
        const char *sentence;
    } cases[] = {
        { { { 0, 0 }, { 0, 0 }, { 1, 0 } }, 3, "3 ranks do not fill nodes of 2" },
        { { { 0, 0 }, { 0, 0 }, { 2, 0 }, { 2, 0 } }, 4, "rank 2 is on node 2, pair 0" },
        { { { 0, 0 }, { 1, 0 }, { 0, 0 }, { 1, 0 } }, 4, "rank 2 is on node 0, pair 0" },
        { { { 0, 0 }, { 0, 0 }, { 1, 0 }, { 1, 0 }, { 1, 0 }, { 1, 0 } },
          6,
          "rank 4 is on node 1" },
        { { { 0, 0 }, { 0, 0 }, { 0, 1 }, { 1, 0 }, { 1, 0 }, { 1, 1 } }, 6, "pairs of 2" },
        { { { 0, 0 }, { 0, 2 }, { 1, 0 }, { 1, 2 } }, 4, "rank 1 is on node 0, pair 2" },
        { { { 1, 0 }, { 1, 0 } }, 2, "rank 0 is on node 1" },
        { { { 0, 0 } }, 0, "the number of ranks" },
        { { { 0, 0 } }, COH_RANKS_MOST + 1, "the number of ranks" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        coh_levels levels;
        assert_int_equal(coh_levels_find(cases[i].places, cases[i].rank_count, &levels),
                         COH_ERR_ARGUMENT);
        if (strstr(coh_last_error(), cases[i].sentence) == NULL)
            fail_msg("case %zu: %s", i, coh_last_error());
    }
}

static void levels_have_names(void **state)
{
    (void)state;
    static const char *const names[] = { "self", "pair", "node", "world", "unknown" };
    for (int level = 0; level <= COH_LEVEL_COUNT; level++)
        assert_string_equal(coh_link_level_name((coh_link_level)level), names[level]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mesh_of_up_to_64_ranks_is_as_counted),
        cmocka_unit_test(a_mesh_that_is_not_the_world_is_refused),
        cmocka_unit_test(axes_are_found_by_name),
        cmocka_unit_test(levels_are_found_from_where_ranks_lie),
        cmocka_unit_test(a_world_with_a_hole_is_refused),
        cmocka_unit_test(levels_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
