/* libFuzzer target: profiles. An accepted file is written in canonical form and read again with the
 * same result; any other is bad data with a message. */
#include "planner/profile_file.h"
#include "tests/fuzz/fuzz_sealed.h"

static void write_again(const coh_profile *profile)
{
    coh_text once = { 0 }, twice = { 0 };
    coh_profile again;
    check(coh_profile_add_text(profile, &once) == COH_OK);
    check(coh_profile_parse(once.data, once.bytes, &again) == COH_OK);
    check(coh_profile_add_text(&again, &twice) == COH_OK);
    check(once.bytes == twice.bytes && memcmp(once.data, twice.data, once.bytes) == 0);
    coh_profile_fini(&again);
    coh_text_fini(&once);
    coh_text_fini(&twice);
}

static void read_profile(const char *text, size_t bytes)
{
    coh_profile profile;
    const coh_status status = coh_profile_parse(text, bytes, &profile);
    check(status == COH_OK || (status == COH_ERR_CORRUPT && coh_last_error()[0]));
    if (status == COH_OK)
        write_again(&profile);
    coh_profile_fini(&profile);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_both(data, size, read_profile);
    return 0;
}
