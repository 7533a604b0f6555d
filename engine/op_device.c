/* Runs one call of a trial on a GPU: translates its pointers, launches or records it, and copies
 * the trial's memory there and back. Next: op_device.h; measure_bed.h opens the device. */
#include "engine/op_device.h"

#include "base/bytes.h"
#include "kernels/kernels.h"

enum { IMAGES_MOST = 4 }; /* each begins on a page */

coh_status coh_op_device_open(const coh_engine_device *what, size_t bytes,
                              coh_op_device *out_device)
{
    const coh_measure_options options = { .struct_bytes = sizeof(options), .thread_count = 1 };
    coh_bed *bed = &out_device->bed;
    const size_t page_bytes = coh_bytes_round_page(1);
    char *spare;
    out_device->rehearsed = 0;
    COH_TRY(coh_bed_open(what, NULL, &options, bed));
    COH_TRY(coh_bed_take(bed, bytes + (IMAGES_MOST + 1) * page_bytes));
    COH_TRY(coh_bed_part(bed, sizeof(float), &spare));
    out_device->spare = (float *)(void *)spare;
    return COH_OK;
}

void coh_op_device_close(coh_op_device *device)
{
    coh_bed_close(&device->bed);
}

coh_status coh_op_device_place(coh_op_device *device, coh_op_image *image)
{
    return coh_bed_part(&device->bed, image->bytes, &image->device);
}

coh_status coh_op_device_put(const coh_op_device *device, const coh_op_image *image)
{
    const coh_bed *bed = &device->bed;
    return bed->what->ops->put(bed->device, image->device, image->host, image->bytes);
}

/* ---- the call with the device's addresses ---- */

static void *moved(const coh_op_image *image, const void *host)
{
    return host != NULL ? image->device + ((const char *)host - image->host) : NULL;
}

static void move_views(const coh_op_image *image, coh_view views[COH_PORT_MAX])
{
    for (int port = 0; port < COH_PORT_MAX; port++)
        views[port].data = moved(image, views[port].data);
}

static coh_call moved_call(const coh_op_image *image, const coh_call *host, void *queue)
{
    coh_call call = *host;
    move_views(image, call.input);
    move_views(image, call.output);
    move_views(image, call.parameter);
    move_views(image, call.state);
    move_views(image, call.output_grad);
    move_views(image, call.input_grad);
    move_views(image, call.parameter_grad);
    call.saved = moved(image, call.saved);
    call.workspace = moved(image, call.workspace);
    call.cache = moved(image, call.cache);
    call.random_cell = moved(image, call.random_cell);
    call.loss_factor_cell = moved(image, call.loss_factor_cell);
    call.loss_scale = 1.0f; /* a value of one step, which nothing on a GPU may use */
    call.queue = queue;
    return call;
}

/* ---- running it ---- */

typedef struct job {
    coh_kind_function function;
    coh_call call;
    coh_status status; /* of the kind, and its text */
    char text[COH_ERROR_TEXT_BYTES];
} job;

static coh_status run_job(void *context, uint64_t index)
{
    job *j = context;
    (void)index;
    coh_error_clear();
    j->status = coh_check_status(j->function(&j->call), "its function");
    if (j->status != COH_OK)
        coh_error_save(j->text);
    return j->status;
}

static void record_job(void *context, uint64_t number, uint32_t index)
{
    (void)index;
    (void)run_job(context, number);
}

/* A command of the library that leaves memory as it is. */
static void record_spare(void *context, uint64_t number, uint32_t index)
{
    const coh_op_device *device = context;
    const coh_scale scale = {
        .dtype = COH_DTYPE_F32, .count = 1, .x = device->spare, .y = device->spare, .factor = 1
    };
    (void)number;
    (void)index;
    coh_kernel_scale(device->bed.queue, &scale);
}

/* Records the call. *out_recording NULL: it enqueued nothing. */
static coh_status record(coh_op_device *device, job *j, coh_recording **out_recording)
{
    const coh_device_ops *ops = device->bed.what->ops;
    coh_queue *queue = device->bed.queues[COH_LANE_COMPUTE];
    COH_TRY(ops->record_begin(queue));
    ops->launch(queue, record_spare, device, 0, 0, NULL);
    ops->launch(queue, record_job, j, 0, 0, NULL);
    const coh_status status = ops->record_end(queue, out_recording);
    device->kind_failed = status != COH_OK || j->status != COH_OK;
    if (j->status == COH_OK)
        return status;
    if (status != COH_OK)
        return coh_fail_prefix(status, "the kind reports '%s'", j->text);
    coh_error_restore(j->text);
    return j->status;
}

static coh_status record_and_replay(coh_op_device *device, const coh_op_image *image, job *j)
{
    const coh_device_ops *ops = device->bed.what->ops;
    coh_queue *queue = device->bed.queues[COH_LANE_COMPUTE];
    coh_recording *recording = NULL;
    COH_TRY(record(device, j, &recording));
    COH_TRY(coh_op_device_put(device, image)); /* over what was not recorded */
    if (recording != NULL)
        ops->replay(queue, recording);
    ops->finish(queue);
    return ops->failure(device->bed.device);
}

/* Runs the call, without a look at who failed. */
static coh_status run_call(coh_op_device *device, const coh_op_image *image,
                           const coh_op_device_call *call, job *j)
{
    const coh_bed *bed = &device->bed;
    double seconds;
    if ((device->rehearsed >> call->phase & 1u) == 0) {
        COH_TRY(coh_op_device_put(device, image));
        COH_TRY(coh_bed_rehearse(bed, run_job, j));
        device->rehearsed |= 1u << call->phase;
    }
    COH_TRY(coh_op_device_put(device, image));
    if (call->is_recorded)
        COH_TRY(record_and_replay(device, image, j));
    else
        COH_TRY(coh_bed_time(bed, run_job, j, 0, 1, &seconds));
    return bed->what->ops->get(bed->device, image->host, image->device, image->bytes);
}

coh_status coh_op_device_run(coh_op_device *device, const coh_op_image *image,
                             const coh_op_device_call *call)
{
    const coh_bed *bed = &device->bed;
    job j = { .function = call->function, .call = moved_call(image, call->call, bed->queue) };
    device->kind_failed = 0;
    const coh_status status = run_call(device, image, call, &j);
    device->kind_failed |= j.status != COH_OK;
    if (status == COH_OK || !device->kind_failed)
        return status;
    const coh_status failure = bed->what->ops->failure(bed->device);
    device->kind_failed = failure == COH_OK;
    return failure != COH_OK ? failure : status;
}
