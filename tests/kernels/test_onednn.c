/* Refusals by oneDNN that are remembered: this program's entries replace the library's and fail on
 * request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coh_config.h"
#include "kernels/cpu/dispatch.h"

#if COH_HAVE_ONEDNN
#include <dlfcn.h>
#include <dnnl.h>
#include <stdlib.h>

static dnnl_status_t description_status, code_status; /* dnnl_success: calls the library */
static int descriptions, codes;                       /* number of calls */

static void *library_entry(const char *name)
{
    void *entry = dlsym(RTLD_NEXT, name);
    if (entry == NULL)
        abort();
    return entry;
}

dnnl_status_t dnnl_primitive_desc_create(dnnl_primitive_desc_t *out, const_dnnl_op_desc_t op,
                                         const_dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                                         const_dnnl_primitive_desc_t hint)
{
    dnnl_status_t (*own)(dnnl_primitive_desc_t *, const_dnnl_op_desc_t, const_dnnl_primitive_attr_t,
                         dnnl_engine_t, const_dnnl_primitive_desc_t);
    *(void **)&own = library_entry("dnnl_primitive_desc_create");
    descriptions++;
    return description_status != dnnl_success ? description_status
                                              : own(out, op, attr, engine, hint);
}

dnnl_status_t dnnl_primitive_create(dnnl_primitive_t *out, const_dnnl_primitive_desc_t description)
{
    dnnl_status_t (*own)(dnnl_primitive_t *, const_dnnl_primitive_desc_t);
    *(void **)&own = library_entry("dnnl_primitive_create");
    codes++;
    return code_status != dnnl_success ? code_status : own(out, description);
}

static int run(int64_t depth)
{
    static const float a[8 * 64], b[8 * 64];
    static float c[8 * 8];
    const coh_tile tile = { .rows = 8,
                            .columns = 8,
                            .depth = depth,
                            .a = a,
                            .b = b,
                            .c = c,
                            .a_stride = 64,
                            .b_stride = 8,
                            .c_stride = 8 };
    return coh_onednn_run(&tile);
}

static void what_failed_for_memory_is_tried_again(void **state)
{
    (void)state;
    code_status = dnnl_out_of_memory;
    assert_false(run(33));
    code_status = dnnl_success;
    description_status = dnnl_out_of_memory;
    assert_false(run(33));
    description_status = dnnl_success;
    assert_true(run(33));
    descriptions = codes = 0;
    assert_true(run(33)); /* and the object was kept */
    assert_int_equal(descriptions + codes, 0);
}

static void what_the_shape_decides_is_asked_once(void **state)
{
    (void)state;
    description_status = dnnl_unimplemented;
    descriptions = 0;
    assert_false(run(34));
    description_status = dnnl_success;
    assert_false(run(34));
    assert_int_equal(descriptions, 1);
}
#endif

int main(void)
{
#if COH_HAVE_ONEDNN
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_failed_for_memory_is_tried_again),
        cmocka_unit_test(what_the_shape_decides_is_asked_once),
    };
    if (coh_onednn_available())
        return cmocka_run_group_tests(tests, NULL, NULL);
#endif
    print_message("skipped: this build has no oneDNN\n");
    return 77;
}
