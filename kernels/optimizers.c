/* The library's optimizers, each a table and a host update, and the list of all optimizers of the
 * process. To add one: its update in cpu/isa/ if it needs registers, a table here, and its CUDA
 * kernel in cuda/optimizer.cu or adamw8.cu. Next: cohobate/optimizer.h. */
#include "cohobate/optimizer.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/check.h"
#include "base/struct_bytes.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/quantise.h"

/* The largest float below 1. */
#define BELOW_1 (1.0f - FLT_EPSILON / 2)

/* The loops of the processor's instruction set. */
#define UPDATE(name)                                                                               \
    static void update_##name(const coh_update_call *call)                                         \
    {                                                                                              \
        coh_rows_get()->name(call);                                                                \
    }
UPDATE(adamw)
UPDATE(adamw8)
UPDATE(lion)
UPDATE(sgd)

enum { ADAMW_BETA1, ADAMW_BETA2, ADAMW_EPSILON };

#define ADAMW_NUMBERS                                                                              \
    .hyperparameter_count = 3,                                                                     \
    .hyperparameters = { [ADAMW_BETA1] = { "beta1", 0.9f, 0, BELOW_1 },                            \
                         [ADAMW_BETA2] = { "beta2", 0.95f, 0, BELOW_1 },                           \
                         [ADAMW_EPSILON] = { "epsilon", 1e-8f, FLT_TRUE_MIN, FLT_MAX } },          \
    .scalar_count = 2, .scalars = { ADAMW_BETA1, ADAMW_BETA2 }

static const coh_optimizer adamw = {
    .struct_bytes = sizeof(adamw),
    .name = "adamw",
    .revision = 1,
    .stream_count = 2,
    .streams = { { "m", 4, 1, 1 }, { "v", 4, 1, 1 } },
    ADAMW_NUMBERS,
    .update = update_adamw,
    .takes_bf16 = 1,
    .cuda_kernel = "adamw",
};

/* Of both forms of adamw8. Its CUDA kernel rounds the work if there is no `low`. */
#define ADAMW8_TABLE                                                                               \
    ADAMW_NUMBERS, .stream_count = 4,                                                              \
                   .streams = { { "m_code", 1, 1, 0 },                                             \
                                { "m_scale", 4, COH_QUANTISE_BLOCK, 1 },                           \
                                { "v_code", 1, 1, 0 },                                             \
                                { "v_scale", 4, COH_QUANTISE_BLOCK, 1 } },                         \
                   .update = update_adamw8, .cuda_kernel = "adamw8"

static const coh_optimizer adamw8 = {
    .struct_bytes = sizeof(adamw8),
    .name = "adamw8",
    .revision = 1,
    ADAMW8_TABLE,
    .flops = 190, /* three divisions, a root and two roundings to codes; benchmarks/adamw.c */
    .takes_bf16 = 1,
};

/* adamw8 without a master: rounds its work to bf16. */
static const coh_optimizer adamw8sr = {
    .struct_bytes = sizeof(adamw8sr),
    .name = "adamw8sr",
    .revision = 1,
    ADAMW8_TABLE,
    .flops = 215, /* the rounding of the work in addition, no low half: 1.14 of the time */
    .takes_bf16 = 1,
    .rounds_work = 1,
};

static const coh_optimizer lion = {
    .struct_bytes = sizeof(lion),
    .name = "lion",
    .revision = 1,
    .stream_count = 1,
    .streams = { { "m", 4, 1, 1 } },
    .hyperparameter_count = 2,
    .hyperparameters = { { "beta1", 0.9f, 0, BELOW_1 }, { "beta2", 0.99f, 0, BELOW_1 } },
    .update = update_lion,
    .takes_bf16 = 1,
    .cuda_kernel = "lion",
};

static const coh_optimizer sgd = {
    .struct_bytes = sizeof(sgd),
    .name = "sgd",
    .revision = 1,
    .stream_count = 1,
    .streams = { { "momentum", 4, 1, 1 } },
    .hyperparameter_count = 2,
    /* nesterov: on from 0.5 on */
    .hyperparameters = { { "momentum", 0.9f, 0, BELOW_1 }, { "nesterov", 0, 0, 1 } },
    .update = update_sgd,
    .takes_bf16 = 1,
    .cuda_kernel = "sgd",
};

/* ---- the list ---- */

enum { LIST_MOST = 64 };
#define FLOPS_MOST 1e6 /* of one element */
static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static const coh_optimizer *list[LIST_MOST] = { &adamw, &adamw8, &adamw8sr, &lion, &sgd };
static int32_t list_count = 5;

static int is_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    const size_t length = name != NULL ? strnlen(name, COH_OPTIMIZER_NAME_BYTES) : 0;
    return length > 0 && length < COH_OPTIMIZER_NAME_BYTES && strspn(name, allowed) == length;
}

static coh_status check_own_name(const coh_optimizer *optimizer)
{
    if (is_name(optimizer->name))
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "an optimizer is called '%.40s': a name has 1 to %d characters, each a-z, 0-9 "
                    "or _: rename it",
                    optimizer->name != NULL ? optimizer->name : "", COH_OPTIMIZER_NAME_BYTES - 1);
}

/* Checks the name of number `index` of its streams or hyperparameters. */
static coh_status check_name(const coh_optimizer *optimizer, const char *what, int32_t index,
                             const char *name)
{
    if (is_name(name))
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "optimizer %s: %s %" PRId32 " is called '%.40s': a name has 1 to %d "
                    "characters, each a-z, 0-9 or _: rename it",
                    optimizer->name, what, index, name != NULL ? name : "",
                    COH_OPTIMIZER_NAME_BYTES - 1);
}

static coh_status refuse(const coh_optimizer *optimizer, const char *what)
{
    return coh_fail(COH_ERR_ARGUMENT, "optimizer %s: %s", optimizer->name, what);
}

static coh_status check_streams(const coh_optimizer *optimizer)
{
    if (optimizer->stream_count < 0 || optimizer->stream_count > COH_OPTIMIZER_STREAMS)
        return refuse(optimizer, "it has fewer than 0 or more than 8 streams");
    for (int32_t i = 0; i < optimizer->stream_count; i++) {
        const coh_state_stream *stream = &optimizer->streams[i];
        const uint32_t elements = stream->elements_per_block;
        COH_TRY(check_name(optimizer, "stream", i, stream->name));
        for (int32_t other = 0; other < i; other++)
            if (strcmp(stream->name, optimizer->streams[other].name) == 0)
                return refuse(optimizer, "two of its streams have one name");
        if (strcmp(stream->name, "work") == 0 || strcmp(stream->name, "grad") == 0 ||
            strcmp(stream->name, "low") == 0 || strcmp(stream->name, "hashes") == 0 ||
            strcmp(stream->name, "manifest") == 0)
            return refuse(optimizer, "a stream has the name of another file or stream: not work, "
                                     "grad, low, hashes or manifest");
        if (elements < 1 || elements > 1024 || (elements & (elements - 1)) != 0)
            return refuse(optimizer, "a block's elements are a power of two from 1 to 1024");
        if (stream->bytes_per_block < 1 || stream->bytes_per_block > 4096)
            return refuse(optimizer, "a block has 1 to 4096 bytes");
        if (stream->is_f32 != 0 && stream->bytes_per_block % sizeof(float) != 0)
            return refuse(optimizer, "a block of f32 numbers has a multiple of 4 bytes");
    }
    return COH_OK;
}

static coh_status check_numbers(const coh_optimizer *optimizer)
{
    if (optimizer->hyperparameter_count < 0 ||
        optimizer->hyperparameter_count > COH_OPTIMIZER_NUMBERS)
        return refuse(optimizer, "it has fewer than 0 or more than 8 hyperparameters");
    for (int32_t i = 0; i < optimizer->hyperparameter_count; i++) {
        const coh_hyperparameter *number = &optimizer->hyperparameters[i];
        COH_TRY(check_name(optimizer, "hyperparameter", i, number->name));
        if (!(isfinite(number->least) && isfinite(number->most) &&
              number->least <= number->initial && number->initial <= number->most))
            return refuse(optimizer, "a hyperparameter's default is outside its range");
        for (int32_t other = 0; other < i; other++)
            if (strcmp(number->name, optimizer->hyperparameters[other].name) == 0)
                return refuse(optimizer, "two of its hyperparameters have one name");
    }
    if (optimizer->scalar_count < 0 || optimizer->scalar_count > COH_OPTIMIZER_SCALARS)
        return refuse(optimizer, "it has fewer than 0 or more than 4 scalars");
    for (int32_t i = 0; i < optimizer->scalar_count; i++)
        if (optimizer->scalars[i] < 0 || optimizer->scalars[i] >= optimizer->hyperparameter_count)
            return refuse(optimizer, "a scalar names no hyperparameter");
    return COH_OK;
}

/* Adds an optimizer; of one that was compiled with an older header its copy with all members. Under
 * the mutex. */
static coh_status add(const coh_optimizer *given, const coh_optimizer *known)
{
    static const coh_optimizer *originals[LIST_MOST];
    static coh_optimizer copies[LIST_MOST];
    for (int32_t i = 0; i < list_count; i++)
        if (strcmp(list[i]->name, known->name) == 0)
            return list[i] == given || originals[i] == given
                       ? COH_OK
                       : refuse(known, "another optimizer has this name: rename one");
    if (list_count == LIST_MOST)
        return refuse(known, "64 optimizers are registered already");
    originals[list_count] = given;
    copies[list_count] = *known;
    list[list_count] = given->struct_bytes < sizeof(*given) ? &copies[list_count] : given;
    list_count++;
    return COH_OK;
}

coh_status coh_optimizer_register(const coh_optimizer *optimizer)
{
    COH_NEED_STRUCT(coh_optimizer, optimizer);
    coh_optimizer known = { 0 };
    coh_struct_read(optimizer, &known, sizeof(known));
    COH_TRY(check_own_name(&known));
    COH_TRY(check_streams(&known));
    COH_TRY(check_numbers(&known));
    if (known.update == NULL)
        return refuse(&known, "it has no update");
    if (!(known.flops >= 0 && known.flops <= FLOPS_MOST))
        return refuse(&known, "flops is not from 0 to 1e6");
    if (known.cuda_kernel != NULL)
        return refuse(&known, "cuda_kernel is for the library's own: leave it NULL");
    pthread_mutex_lock(&list_mutex);
    const coh_status status = add(optimizer, &known);
    pthread_mutex_unlock(&list_mutex);
    return status;
}

const coh_optimizer *coh_optimizer_find(const char *name)
{
    const coh_optimizer *found = NULL;
    pthread_mutex_lock(&list_mutex);
    for (int32_t i = 0; name != NULL && i < list_count && found == NULL; i++)
        if (strcmp(list[i]->name, name) == 0)
            found = list[i];
    pthread_mutex_unlock(&list_mutex);
    return found;
}

int32_t coh_optimizer_count(void)
{
    pthread_mutex_lock(&list_mutex);
    const int32_t count = list_count;
    pthread_mutex_unlock(&list_mutex);
    return count;
}

const coh_optimizer *coh_optimizer_at(int32_t index)
{
    pthread_mutex_lock(&list_mutex);
    const coh_optimizer *found = index >= 0 && index < list_count ? list[index] : NULL;
    pthread_mutex_unlock(&list_mutex);
    return found;
}
