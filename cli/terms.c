/* Gives the library the flags' names for its messages (cohobate/terms.h). Next: options.h, the
 * flags. */
#include "cli/terms.h"

#include "cohobate/cohobate.h"

static const char *const flags[COH_TERM_COUNT] = {
    [COH_TERM_DEVICE_MEMORY] = "--device-memory",
    [COH_TERM_HOST_MEMORY] = "--host-memory",
    [COH_TERM_EMULATED_HOST] = "--emulate-host",
    [COH_TERM_DISK] = "--disk",
    [COH_TERM_A_DISK] = "--disk DIR",
    [COH_TERM_DISK_SIZE] = ":",
    [COH_TERM_WRITE_LIMIT] = "--disk-write-limit",
    [COH_TERM_DEVICE] = "--device",
    [COH_TERM_THREADS] = "--threads",
    [COH_TERM_CHUNK] = "--chunk",
    [COH_TERM_RECOMPUTE] = "--recompute",
    [COH_TERM_SWEEP_ORDER] = "--sweep-order",
    [COH_TERM_BATCH] = "--batch",
    [COH_TERM_MICRO_BATCH] = "--micro-batch",
    [COH_TERM_SEQUENCE] = "--sequence",
    [COH_TERM_DTYPE] = "--dtype",
    [COH_TERM_GRADIENTS] = "--gradients",
    [COH_TERM_ATOMICS] = "--atomics",
    [COH_TERM_DROPOUT] = "--dropout",
    [COH_TERM_PROFILE] = "--profile",
    [COH_TERM_MEASURE] = "cohobate profile -o FILE",
    [COH_TERM_MEASURE_DRIVE] = "cohobate profile --disk DIR -o FILE",
    [COH_TERM_QUICK] = "--quick",
    [COH_TERM_ID_BYTES] = "--id-bytes",
    [COH_TERM_FIELD] = "--field",
    [COH_TERM_CHAT] = "--chat",
    [COH_TERM_CHAT_FORM] = "--chat-form",
};

void cli_terms_set(void)
{
    (void)coh_terms_set(flags, COH_TERM_COUNT); /* COH_TERM_COUNT is never refused */
}
