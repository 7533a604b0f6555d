/* Holds the words by which messages call options: cohobate/terms.h. The idea: a message takes the
 * word when it is written, so no message is searched for words afterwards. cli/main.c has the
 * names of the flags. */
#include "cohobate/terms.h"

#include <stddef.h>

#include "base/check.h"

static const char *const own[COH_TERM_COUNT] = {
    [COH_TERM_DEVICE_MEMORY] = "device memory",
    [COH_TERM_HOST_MEMORY] = "host memory",
    [COH_TERM_EMULATED_HOST] = "emulated host memory",
    [COH_TERM_DISK] = "disk",
    [COH_TERM_DISK_LIMIT] = "disk",
    [COH_TERM_A_DISK] = "a disk",
    [COH_TERM_DISK_SIZE] = " of ",
    [COH_TERM_WRITE_LIMIT] = "the limit of disk writes",
    [COH_TERM_DEVICE] = "device",
    [COH_TERM_THREADS] = "threads",
    [COH_TERM_CHUNK] = "chunk size",
    [COH_TERM_RECOMPUTE] = "recompute",
    [COH_TERM_SWEEP_ORDER] = "sweep order",
    [COH_TERM_BATCH] = "batch",
    [COH_TERM_MICRO_BATCH] = "micro-batch",
    [COH_TERM_SEQUENCE] = "sequence length",
    [COH_TERM_DTYPE] = "dtype",
    [COH_TERM_GRADIENTS] = "gradients",
    [COH_TERM_ATOMICS] = "atomics",
    [COH_TERM_DROPOUT] = "dropout",
    [COH_TERM_PROFILE] = "profile",
    [COH_TERM_MEASURE] = "measuring the machine",
    [COH_TERM_MEASURE_DRIVE] = "measuring the drive",
    [COH_TERM_QUICK] = "the quick measurement",
    [COH_TERM_ID_BYTES] = "bytes of an id",
    [COH_TERM_FIELD] = "field",
    [COH_TERM_CHAT] = "chat",
    [COH_TERM_CHAT_FORM] = "chat form",
    [COH_TERM_KINDS] = "coh_extension_register",
    [COH_TERM_REPLICAS] = "replicas",
    [COH_TERM_WIRE] = "wire",
    [COH_TERM_CLIP_MODE] = "clip mode",
    [COH_TERM_REDUCE] = "reduce",
    [COH_TERM_DISK_RAISED] = "",
    [COH_TERM_CHAT_TEXT] = "field",
    [COH_TERM_ADAPTER] = "coh_adapters_open",
    [COH_TERM_SKIP_BAD] = "skip_bad",
    [COH_TERM_FROZEN_NF4] = "frozen_nf4",
    [COH_TERM_LORA_DROPOUT] = "lora_dropout",
    [COH_TERM_WEIGHTS] = "coh_engine_load_weights",
};

static const char *const *given; /* set once, before threads start */
static int32_t given_count;

const char *coh_term_text(coh_term term)
{
    if ((unsigned)term >= COH_TERM_COUNT)
        return "unknown option";
    return (int32_t)term < given_count && given[term] != NULL ? given[term] : own[term];
}

coh_status coh_terms_set(const char *const *texts, int32_t count)
{
    COH_TRY(coh_check_integer("count", count, 0, COH_TERM_COUNT));
    given = texts;
    given_count = texts != NULL ? count : 0;
    return COH_OK;
}
