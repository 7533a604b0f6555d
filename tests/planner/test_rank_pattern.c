/* Rank patterns by name and numbers: what is divided over how many ranks, and which texts, levels
 * and pins are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "planner/plan_make.h"
#include "planner/rank_axes.h"
#include "tests/planner/toy_graph.h"

static const coh_rank_levels eight = { 2, 4, 8 };

static void a_pattern_divides_as_its_table_says(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        coh_rank_parts parts;
    } rows[] = { { "", { 1, 1, 1 } },      { "replicate", { 1, 1, 1 } }, { "zero1", { 1, 1, 8 } },
                 { "zero2", { 1, 8, 8 } }, { "zero3", { 8, 8, 8 } },     { "levels", { 2, 4, 8 } },
                 { "1/2/8", { 1, 2, 8 } }, { "2/2/2", { 2, 2, 2 } } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        coh_rank_parts parts = { 0 };
        assert_int_equal(coh_rank_parts_find(rows[i].pattern, &eight, &parts), COH_OK);
        assert_memory_equal(&parts, &rows[i].parts, sizeof(parts));
    }
}

static void other_texts_and_numbers_are_refused(void **state)
{
    (void)state;
    static const char *const texts[][2] = { { "zero4", "no rank pattern is called 'zero4'" },
                                            { "2/4", "no rank pattern" },
                                            { "2/4/8/", "no rank pattern" },
                                            { "8/8/8/2/2", "no rank pattern" },
                                            { "8/8/8/1", "a whole copy of the weights" },
                                            { "4/8/8/8", "a copy of the weights over 8" },
                                            { "1/8/8/2", "a copy of the weights over 2" },
                                            { "0/4/8", "no rank pattern" },
                                            { "+2/4/8", "no rank pattern" },
                                            { "2/4/99999999999999999999", "no rank pattern" },
                                            { "4/2/8", "each divides the next" },
                                            { "1/3/8", "each divides the next" },
                                            { "2/4/16", "each divides the next" } };
    coh_rank_parts parts;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(coh_rank_parts_find(texts[i][0], &eight, &parts), COH_ERR_ARGUMENT);
        assert_non_null(strstr(coh_last_error(), texts[i][1]));
    }
    const coh_rank_levels none[] = { { 0, 1, 1 }, { 2, 1, 8 }, { 2, 4, 3 } };
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        assert_int_equal(coh_rank_parts_find("zero1", &none[i], &parts), COH_ERR_ARGUMENT);
}

/* A copy that is divided as the weights are is none. */
static void a_copy_is_divided_over_fewer_ranks_than_the_weights(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        int32_t copy;
    } rows[] = { { "zeropp", 4 },  { "8/8/8/2", 2 }, { "4/8/8/2", 2 },
                 { "8/8/8/8", 0 }, { "8/8/8", 0 },   { "zero3", 0 } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int32_t copy = -1;
        assert_int_equal(coh_rank_copy_find(rows[i].pattern, &eight, &copy), COH_OK);
        assert_int_equal(copy, rows[i].copy);
    }
}

static coh_rank_parts in_a_node(const coh_rank_levels *levels)
{
    return (coh_rank_parts){ 1, 1, levels->node };
}

static coh_rank_parts in_no_way(const coh_rank_levels *levels)
{
    (void)levels;
    return (coh_rank_parts){ 3, 1, 0 };
}

static void a_registered_pattern_is_found_by_name(void **state)
{
    (void)state;
    const coh_rank_pattern mine = { sizeof(mine), "in_node", in_a_node };
    const coh_rank_pattern again = { sizeof(mine), "in_node", in_no_way };
    const coh_rank_pattern broken = { sizeof(mine), "in_no_way", in_no_way };
    const coh_rank_pattern bad[] = { { sizeof(mine), "In", in_a_node },
                                     { sizeof(mine), "2/4/8", in_a_node },
                                     { sizeof(mine), "_in", in_a_node },
                                     { sizeof(mine), "", in_a_node },
                                     { sizeof(mine), NULL, in_a_node },
                                     { sizeof(mine), "a_name_of_thirty_two_characters__",
                                       in_a_node },
                                     { sizeof(mine), "none", NULL },
                                     { sizeof(mine) - 16, "short", in_a_node } };
    const coh_rank_pattern older = { sizeof(mine) - 8, "older", in_a_node }; /* without `copy` */
    const int32_t before = coh_rank_pattern_count();
    coh_rank_parts parts;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(coh_rank_pattern_register(&bad[i]), COH_ERR_ARGUMENT);
    assert_int_equal(coh_rank_pattern_register(&mine), COH_OK);
    assert_int_equal(coh_rank_pattern_register(&mine), COH_OK);
    assert_int_equal(coh_rank_pattern_register(&again), COH_ERR_ARGUMENT);
    assert_int_equal(coh_rank_pattern_register(&broken), COH_OK);
    assert_int_equal(coh_rank_pattern_register(&older), COH_OK);
    assert_int_equal(coh_rank_pattern_count(), before + 3);
    assert_string_equal(coh_rank_pattern_at(before)->name, "in_node");
    assert_null(coh_rank_pattern_at(before + 3));
    assert_int_equal(coh_rank_parts_find("in_node", &eight, &parts), COH_OK);
    assert_int_equal(parts.state, 4);
    assert_int_equal(coh_rank_parts_find("in_no_way", &eight, &parts), COH_ERR_ARGUMENT);
}

static coh_plan_options options_of(const coh_pin *pins, int32_t pin_count)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    options.ranks = (coh_fold_shape){ { 2, 2 } };
    options.pins = pins;
    options.pin_count = pin_count;
    return options;
}

/* Returns the plan's parts of the operator's first parameter, as its report has them. */
static const char *pattern_of(const coh_plan *plan, const char *name)
{
    coh_plan_operator op = { .struct_bytes = sizeof(op) };
    for (int32_t i = 0; i < coh_plan_operator_count(plan); i++) {
        assert_int_equal(coh_plan_operator_at(plan, i, &op), COH_OK);
        if (strcmp(op.name, name) == 0)
            return op.pattern;
    }
    fail_msg("no operator %s", name);
    return NULL;
}

static void pins_give_operators_patterns_of_their_own(void **state)
{
    (void)state;
    const toy_options toy = { .layers = 2, .width = 256, .vocabulary = 300, .rows = 20 };
    coh_graph *graph = NULL;
    coh_plan *plan = NULL;
    coh_pin pins[2];
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    assert_int_equal(coh_pin_parse("mix0=zero3", &pins[0]), COH_OK);
    assert_int_equal(coh_pin_parse("mix1=1/2/4", &pins[1]), COH_OK);
    assert_string_equal(coh_pin_decision(&pins[1]), "1/2/4");
    coh_plan_options options = options_of(pins, 2);
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
    assert_string_equal(pattern_of(plan, "mix0"), "4/4/4");
    assert_string_equal(pattern_of(plan, "mix1"), "1/2/4");
    assert_null(strchr(pattern_of(plan, "embed"), '/'));
    assert_int_equal(coh_plan_summarize(plan, &summary), COH_OK);
    assert_int_equal(summary.rank_parts.work, 4);
    coh_plan_destroy(plan);

    assert_int_equal(coh_pin_parse("mix0=zero1", &pins[1]), COH_OK);
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "contradict"));
    assert_int_equal(coh_pin_parse("*=1/1/3", &pins[0]), COH_OK);
    options.pin_count = 1;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "1/1/3"));
    assert_int_equal(coh_pin_parse("*=zero1", &pins[0]), COH_OK);
    options.ranks = (coh_fold_shape){ 0 };
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "several ranks"));
    coh_graph_destroy(graph);
}

/* Sums are made in the ranks' shape, so a stream is divided over products of its inner factors. */
static void numbers_between_the_factors_are_refused(void **state)
{
    (void)state;
    coh_plan_options options = options_of(NULL, 0);
    coh_rank_axes axes;
    options.ranks = (coh_fold_shape){ { 4, 2 } };
    assert_int_equal(coh_rank_axes_find(&options, "1/4/8", &axes), COH_OK);
    assert_int_equal(axes.grad, 1);
    assert_int_equal(axes.state, 2);
    assert_int_equal(coh_rank_axes_find(&options, "2/4/8", &axes), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "over 2 ranks, which is no product"));
    memset(options.rank_pattern, 'a', sizeof(options.rank_pattern));
    assert_int_equal(coh_plan_check_options(&options), COH_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pattern_divides_as_its_table_says),
        cmocka_unit_test(other_texts_and_numbers_are_refused),
        cmocka_unit_test(a_copy_is_divided_over_fewer_ranks_than_the_weights),
        cmocka_unit_test(a_registered_pattern_is_found_by_name),
        cmocka_unit_test(pins_give_operators_patterns_of_their_own),
        cmocka_unit_test(numbers_between_the_factors_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
