/* Pins in a file:
 *
 *     {"format": "cohobate pins", "version": 1,
 *      "pins": [{"target": "blocks.0-3", "parameters": "device", "activations": "recompute"}, ...]}
 *
 * An entry has a target and one or both of the others. Written by people: no seal. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/json.h"
#include "planner/pins.h"

#define FILE_BYTES_MOST ((uint64_t)16 << 20)

typedef struct pin_entry {
    char target[COH_PIN_TARGET_BYTES];
    uint32_t parameters, activations; /* indices below; 0: not given */
} pin_entry;

typedef struct pin_list {
    pin_entry *entries;
    uint32_t count;
} pin_list;

static const char *const parameter_places[] = { "", "device", "host", "disk", NULL };
static const char *const activation_places[] = { "", "keep", "recompute", "offload", NULL };

static coh_status check_entry(const coh_json_place *at, void *object)
{
    const pin_entry *entry = object;
    return entry->parameters > 0 || entry->activations > 0
               ? COH_OK
               : coh_json_fail(at, "it has neither \"parameters\" nor \"activations\"");
}

static const coh_json_field entry_fields[] = {
    { "target", COH_JSON_TEXT, COH_JSON_AT(pin_entry, target) },
    { "parameters", COH_JSON_CHOICE, COH_JSON_AT(pin_entry, parameters), .rule = COH_JSON_MAY_LACK,
      .names = parameter_places },
    { "activations", COH_JSON_CHOICE, COH_JSON_AT(pin_entry, activations),
      .rule = COH_JSON_MAY_LACK, .names = activation_places },
    { 0 },
};

static const coh_json_field list_fields[] = {
    { "pins", COH_JSON_ARRAY, COH_JSON_AT_ARRAY(pin_list, entries, count), .most = COH_PINS_MOST,
      .fields = entry_fields, .check = check_entry },
    { 0 },
};

static const coh_json_file pins_file = {
    .what = "list of pins", .format = "cohobate pins", .version = 1, .fields = list_fields
};

/* Adds the pins of an entry: one or two. */
static coh_status add_pins(const pin_entry *entry, coh_pin *pins, int32_t *count)
{
    const char *const places[] = { parameter_places[entry->parameters],
                                   activation_places[entry->activations] };
    for (size_t i = 0; i < 2; i++) {
        char text[COH_PIN_TARGET_BYTES + 16];
        if (places[i][0] == '\0')
            continue;
        if (*count >= COH_PINS_MOST)
            return coh_fail(COH_ERR_CORRUPT, "more than %d pins", COH_PINS_MOST);
        snprintf(text, sizeof(text), "%s=%s", entry->target, places[i]);
        COH_TRY(coh_pin_parse(text, &pins[(*count)++]));
    }
    return COH_OK;
}

static coh_status make_pins(const pin_list *list, coh_pin **out_pins, int32_t *out_count)
{
    COH_TRY(COH_ALLOC(2 * (size_t)list->count + 1, out_pins));
    for (uint32_t i = 0; i < list->count; i++)
        if (add_pins(&list->entries[i], *out_pins, out_count) != COH_OK)
            return coh_fail_prefix(COH_ERR_CORRUPT, "entry pins[%u]", i);
    return COH_OK;
}

coh_status coh_pins_parse(const char *text, size_t bytes, coh_pin **out_pins, int32_t *out_count)
{
    pin_list list = { 0 };
    *out_pins = NULL;
    *out_count = 0;
    coh_status status = coh_json_file_parse(&pins_file, text, bytes, &list);
    if (status == COH_OK)
        status = make_pins(&list, out_pins, out_count);
    coh_free(list.entries);
    if (status != COH_OK) {
        coh_free(*out_pins);
        *out_pins = NULL;
        *out_count = 0;
    }
    return status;
}

coh_status coh_pins_read(const char *path, coh_pin **out_pins, int32_t *out_count)
{
    COH_NEED(path);
    COH_NEED(out_pins);
    COH_NEED(out_count);
    char *text = NULL;
    size_t bytes = 0;
    *out_pins = NULL;
    *out_count = 0;
    COH_TRY(coh_file_read_whole(path, FILE_BYTES_MOST, &text, &bytes));
    coh_status status = coh_pins_parse(text, bytes, out_pins, out_count);
    coh_free(text);
    return status == COH_OK ? COH_OK : coh_fail_prefix(status, "%s", path);
}

void coh_pins_free(coh_pin *pins)
{
    coh_free(pins);
}
