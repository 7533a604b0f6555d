/* Opens, reads and closes the note of bad indices, and launches the check kernel. The note is
 * pinned memory, so the host reads it without a copy. Next: index_check.h; embedding.cu has the
 * kernel. */
#include "kernels/cuda/index_check.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/table.h"

coh_status coh_cuda_index_checks_open(coh_cuda_queue *queue, coh_cuda_index_checks *checks)
{
    const coh_cuda_driver *driver = queue->driver;
    void *note = NULL;
    CUdeviceptr there = 0;
    COH_TRY(coh_cuda_check(driver, driver->cuMemAllocHost(&note, sizeof(*checks->note)),
                           "cuMemAllocHost of %zu bytes", sizeof(*checks->note)));
    checks->note = note;
    memset(note, 0, sizeof(*checks->note));
    COH_TRY(coh_cuda_check(driver, driver->cuMemHostGetDevicePointer(&there, note, 0),
                           "cuMemHostGetDevicePointer of a note"));
    checks->there = (coh_cuda_index_note *)(uintptr_t)there;
    return COH_OK;
}

void coh_cuda_index_checks_close(coh_cuda_queue *queue, coh_cuda_index_checks *checks)
{
    if (checks->note != NULL)
        (void)queue->driver->cuMemFreeHost(checks->note);
    checks->note = checks->there = NULL;
}

coh_status coh_cuda_index_checks_look(coh_cuda_index_checks *checks)
{
    const coh_cuda_index_note *note = checks->note;
    if (checks->is_told ||
        !atomic_load_explicit((const _Atomic int64_t *)&note->is_there, memory_order_acquire))
        return COH_OK;
    checks->is_told = 1;
    return coh_fail(COH_ERR_CORRUPT,
                    "%s %" PRId32 " at place %" PRId64 " is outside %" PRId64 "..%" PRId64 ": %s",
                    note->what, note->index, note->place, note->least, note->most, note->remedy);
}

coh_status coh_cuda_check_indices(void *queue, const coh_index_check *check)
{
    const coh_cuda_queue *q = queue;
    const coh_cuda_grid one = { .x = 1, .y = 1, .z = 1, .threads = COH_CUDA_CHECK_THREADS };
    const coh_cuda_index_check_arguments arguments = {
        .indices = check->indices,
        .count = check->count,
        .found = { .what = check->what,
                   .remedy = check->remedy,
                   .least = check->least,
                   .most = check->most,
                   .instruction_index = q->instruction_index },
        .note = coh_cuda_queue_index_checks(queue)->there,
    };
    coh_cuda_launch(queue, COH_CUDA_CHECK_INDICES, &one, &arguments);
    return COH_OK;
}
