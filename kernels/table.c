/* Calls of the kernel interface: each function looks up the queue's table and passes its arguments
 * on. One list in table.h generates them. Next: table.h. */
#include "kernels/table.h"

#define CPU_FIELD(name, parameters, arguments) .name = coh_cpu_##name,
const coh_kernel_table coh_kernel_table_cpu = { .check_indices = coh_cpu_check_indices,
                                                COH_KERNEL_LIST(CPU_FIELD) };

/* The one branch that a call costs. Only this function looks at the device of a queue. */
static const coh_kernel_table *table_of(const void *queue)
{
    const coh_queue_head *head = queue;
    return head == NULL || head->kernels == NULL ? &coh_kernel_table_cpu : head->kernels;
}

int64_t coh_kernel_row_blocks(const void *queue)
{
    return table_of(queue) == &coh_kernel_table_cpu ? 1 : COH_GPU_ROW_BLOCKS;
}

#define DISPATCH(name, parameters, arguments)                                                      \
    void coh_kernel_##name parameters                                                              \
    {                                                                                              \
        table_of(queue)->name arguments;                                                           \
    }
COH_KERNEL_LIST(DISPATCH)

coh_status coh_kernel_check_indices(void *queue, const coh_index_check *check)
{
    return table_of(queue)->check_indices(queue, check);
}
