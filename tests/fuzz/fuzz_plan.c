/* libFuzzer's way into plan.json. What is refused is bad data with a sentence. */
#include "planner/plan_make.h"
#include "tests/fuzz/fuzz_sealed.h"

static void read_plan(const char *text, size_t bytes)
{
    const coh_status status = coh_plan_check_text(text, bytes);
    check(status == COH_OK || (status == COH_ERR_CORRUPT && coh_last_error()[0]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_both(data, size, read_plan);
    return 0;
}
