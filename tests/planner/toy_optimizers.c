#include "tests/planner/toy_optimizers.h"

static void update_nothing(const coh_update_call *call)
{
    (void)call;
}

#define HEAD(optimizer_name)                                                                       \
    .struct_bytes = sizeof(coh_optimizer), .name = optimizer_name, .revision = 1,                  \
    .update = update_nothing

static const coh_optimizer optimizers[] = {
    { HEAD("toy_one"), .stream_count = 1, .streams = { { "velocity", 4, 1, 1 } } },
    { HEAD("toy_none") },
    { HEAD("toy_blocks"), .stream_count = 2,
      .streams = { { "code", 1, 1, 0 }, { "scale", 4, 128, 1 } } },
    { HEAD("toy_slow"), .stream_count = 1, .streams = { { "velocity", 4, 1, 1 } }, .flops = 1e5 },
    { HEAD("toy_rounds"), .stream_count = 1, .streams = { { "code", 1, 1, 0 } }, .rounds_work = 1 },
    { HEAD("toy_bare"), .rounds_work = 1 },
    { HEAD("toy_clash"), .stream_count = 1, .streams = { { "m", 1, 1, 0 } } },
};

coh_status toy_optimizers_register(void)
{
    coh_status status = COH_OK;
    for (size_t i = 0; i < sizeof(optimizers) / sizeof(optimizers[0]) && status == COH_OK; i++)
        status = coh_optimizer_register(&optimizers[i]);
    return status;
}
