/* libFuzzer target: a file of pins. A refused file is bad data with a message; an accepted one
 * gives the same pins as coh_pin_parse, line by line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/pins.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts on a violated guarantee. */
static void check(int holds)
{
    if (!holds)
        abort();
}

static void check_pin(const coh_pin *pin)
{
    char text[COH_PIN_TARGET_BYTES + COH_RANK_PATTERN_BYTES];
    coh_pin again;
    snprintf(text, sizeof(text), "%s=%s", pin->target, coh_pin_decision(pin));
    check(coh_pin_parse(text, &again) == COH_OK && again.place == pin->place &&
          strcmp(again.target, pin->target) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    coh_pin *pins = NULL;
    int32_t count = 0;
    char *text = NULL; /* with a NUL after its end, as from coh_file_read_whole */
    check(coh_alloc(size + 1, 1, (void **)&text) == COH_OK);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    const coh_status status = coh_pins_parse(text, size, &pins, &count);
    check(status == COH_OK || (status == COH_ERR_CORRUPT && coh_last_error()[0]));
    check(count >= 0 && count <= COH_PINS_MOST && (status == COH_OK || !pins));
    for (int32_t i = 0; i < count; i++)
        check_pin(&pins[i]);
    coh_pins_free(pins);
    coh_free(text);
    return 0;
}
