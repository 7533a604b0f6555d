/* Times algorithms of a GPU's products whenever measuring makes their plans, and keeps them in a
 * kernel table. Next: measure.h, kernel_table.h. */
#include <inttypes.h>
#include <sys/stat.h>

#include "base/check.h"
#include "engine/kernel_table.h"
#include "engine/measure.h"

/* Replaces the table in use by the file's. Without a file the table in use stays and is
 * extended. */
static coh_status take_file(const char *path)
{
    coh_kernel_list list = { 0 };
    coh_status status = COH_OK;
    struct stat facts;
    if (stat(path, &facts) != 0 || facts.st_size == 0)
        return COH_OK;
    COH_TRY(coh_kernel_table_read(path, &list));
    if (list.choice_count > 0)
        status = coh_fail(COH_ERR_ARGUMENT,
                          "kernel table %s names products of a processor, which a measurement of a "
                          "GPU would not keep: name another file",
                          path);
    else {
        coh_algorithms_take(list.algorithms, list.algorithm_count);
        list.algorithms = NULL;
    }
    coh_kernel_list_fini(&list);
    return status;
}

coh_status coh_measure_products_begin(coh_measure *m)
{
    const char *path = m->options->kernel_table;
    if (path == NULL)
        return COH_OK;
    if (m->bed->is_host)
        return coh_fail(COH_ERR_ARGUMENT,
                        "algorithms of products are those of a GPU: name one, or measure the "
                        "processor's products with cohobate tune");
    COH_TRY(take_file(path));
    (void)coh_algorithms_all(&m->algorithm_count);
    coh_algorithms_measure(1);
    return COH_OK;
}

void coh_measure_products_end(void)
{
    coh_algorithms_measure(0);
}

/* After a failed measurement: saves the algorithms timed so far, which took minutes, so that they
 * need not be timed again. */
static coh_status rescue(const coh_measure *m, const coh_kernel_list *list, coh_status status)
{
    const char *path = m->options->kernel_table;
    const int32_t count = list->algorithm_count - m->algorithm_count;
    char why[COH_ERROR_TEXT_BYTES];
    if (count <= 0)
        return status;
    coh_error_save(why);
    if (coh_kernel_table_write(list, path) == COH_OK)
        coh_measure_say(m,
                        "the algorithms that were timed until the measurement failed (%" PRId32
                        ") are in %s: measuring with it again continues from there",
                        count, path);
    else
        coh_measure_say(m, "the algorithms that were timed (%" PRId32 ") are lost: %s", count,
                        coh_last_error());
    coh_error_restore(why);
    return status;
}

coh_status coh_measure_products_write(const coh_measure *m, coh_status status)
{
    const char *path = m->options->kernel_table;
    coh_kernel_list list = { 0 };
    if (path == NULL)
        return status;
    list.algorithms = (coh_algorithm *)(uintptr_t)coh_algorithms_all(&list.algorithm_count);
    if (!coh_algorithms_has_room())
        coh_measure_say(m,
                        "%s is full with its %d algorithms: products of forms that it does not "
                        "name were not timed, and run by cuBLASLt's first proposal",
                        path, COH_ALGORITHMS_MAX);
    if (status != COH_OK)
        return rescue(m, &list, status);
    if (list.algorithm_count == 0) {
        coh_measure_say(m, "%s is not written: no product was made by cuBLASLt", path);
        return COH_OK;
    }
    return coh_kernel_table_write(&list, path);
}
