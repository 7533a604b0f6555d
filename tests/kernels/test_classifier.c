/* A plan decides whether the classifier keeps its logits. That changes no bit: with a cache and
 * without, it multiplies in the same forms, for each of which a device has one algorithm.
 * Vocabularies as GPT-2's end in a tile whose rows are no multiple of 16 bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "kernels/algorithm.h"
#include "kernels/classifier.h"
#include "kernels/table.h"

enum { N = 24, C = 16, V = COH_ROW_BLOCK + 81, CHUNK = 16, FORMS_MOST = 64 };

typedef struct forms {
    coh_product_form all[FORMS_MOST];
    int count;
} forms;

static forms *recorded;

static void record(void *queue, const coh_matmul *matmul)
{
    (void)queue;
    assert_true(recorded->count < FORMS_MOST);
    recorded->all[recorded->count++] = coh_product_form_of(matmul);
}

static void round_nothing(void *queue, coh_dtype dtype, void *to, const float *from, int64_t count,
                          int adds)
{
    (void)queue, (void)dtype, (void)to, (void)from, (void)count, (void)adds;
}

static void leave_tile(void *queue, const coh_logit_tile *tile)
{
    (void)queue, (void)tile;
}

/* Records the products of forward and backward; nothing is computed. */
static void record_both(coh_dtype dtype, int is_cached, forms *forward, forms *backward)
{
    static const coh_kernel_table table = { .matmul = record, .round = round_nothing };
    static char memory[8][4 * N * (V + 8)] __attribute__((aligned(256)));
    coh_queue_head queue = { &table };
    const coh_classifier classifier = { .N = N,
                                        .C = C,
                                        .V = V,
                                        .row_end = V,
                                        .dtype = dtype,
                                        .x = memory[0],
                                        .weight = memory[1],
                                        .logits = memory[2],
                                        .cache = is_cached ? memory[3] : NULL,
                                        .dx = memory[4],
                                        .dweight = memory[5],
                                        .dx_sum = dtype == COH_DTYPE_BF16
                                                      ? (float *)(void *)memory[6]
                                                      : NULL };
    const coh_classifier_device device = { .rows = COH_ROW_BLOCK,
                                           .chunk = CHUNK,
                                           .dweight_sum = (float *)(void *)memory[7],
                                           .take = leave_tile,
                                           .gradient = leave_tile };
    *forward = *backward = (forms){ 0 };
    recorded = forward;
    coh_classifier_forward(&queue, &classifier, &device);
    recorded = backward;
    coh_classifier_backward(&queue, &classifier, &device);
}

/* Moves the products that make logits from `all` to `logits`. */
static void take_logits(forms *all, forms *logits)
{
    forms rest = { 0 };
    *logits = (forms){ 0 };
    for (int i = 0; i < all->count; i++) {
        forms *to = all->all[i].layout == COH_MATMUL_NT ? logits : &rest;
        to->all[to->count++] = all->all[i];
    }
    *all = rest;
}

static void assert_same(const forms *a, const forms *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->all, b->all, (size_t)a->count * sizeof(*a->all));
}

static void a_cache_changes_no_form_of_a_product(void **state)
{
    (void)state;
    static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
    for (int d = 0; d < 2; d++) {
        static forms forward[2], backward[2], logits[2];
        for (int is_cached = 0; is_cached < 2; is_cached++) {
            record_both(dtypes[d], is_cached, &forward[is_cached], &backward[is_cached]);
            take_logits(&backward[is_cached], &logits[is_cached]);
        }
        assert_int_equal(forward[0].count, 4); /* tiles */
        assert_same(&forward[0], &forward[1]);
        assert_same(&forward[0], &logits[0]); /* made again */
        assert_int_equal(logits[1].count, 0);
        assert_int_equal(backward[0].count, 8);
        assert_same(&backward[0], &backward[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cache_changes_no_form_of_a_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
