/* Pins in a file:
 *
 *     {"format": "cohobate pins", "version": 1,
 *      "pins": [{"target": "blocks.0-3", "parameters": "device", "activations": "recompute"}, ...]}
 *
 * An entry has a target and one or both of the others. Written by people: no seal. */
#include <string.h>

#include "base/alloc.h"
#include "planner/json_read.h"
#include "planner/pins.h"

#define FORMAT_NAME     "cohobate pins"
#define FORMAT_VERSION  1
#define FILE_BYTES_MOST ((uint64_t)16 << 20)

typedef struct pin_list {
    coh_pin *pins;
    int32_t count;
    size_t capacity;
} pin_list;

/* Adds TARGET=PLACE if the entry has the member; its place must be in [first, last]. */
static coh_status add_member(pin_list *list, const json_t *entry, const char *member,
                             coh_pin_place first, coh_pin_place last)
{
    char target[COH_PIN_TARGET_BYTES], text[COH_PIN_TARGET_BYTES + 64];
    const json_t *place = json_object_get(entry, member);
    const char *names[COH_PIN_PLACE_COUNT + 1] = { 0 };
    int32_t index = 0;
    if (place == NULL)
        return COH_OK;
    for (int32_t i = first; i <= (int32_t)last; i++)
        names[i - (int32_t)first] = coh_pin_place_name((coh_pin_place)i);
    COH_TRY(coh_json_get_choice(entry, member, names, &index));
    COH_TRY(coh_json_get_text(entry, "target", target, sizeof(target)));
    if (list->count >= COH_PINS_MOST)
        return coh_fail(COH_ERR_CORRUPT, "more than %d pins", COH_PINS_MOST);
    COH_TRY(COH_GROW(&list->pins, &list->capacity, (size_t)list->count + 1));
    snprintf(text, sizeof(text), "%s=%s", target, names[index]);
    return coh_pin_parse(text, &list->pins[list->count++]);
}

static coh_status parse_entry(pin_list *list, const json_t *entry)
{
    static const char *const known[] = { "target", "parameters", "activations", NULL };
    const int32_t before = list->count;
    COH_TRY(coh_json_only_known(entry, "it", known));
    COH_TRY(add_member(list, entry, "parameters", COH_PIN_DEVICE, COH_PIN_DISK));
    COH_TRY(add_member(list, entry, "activations", COH_PIN_KEEP, COH_PIN_OFFLOAD));
    if (list->count == before)
        return coh_fail(COH_ERR_CORRUPT, "it has neither \"parameters\" nor \"activations\"");
    return COH_OK;
}

static coh_status parse(const json_t *root, pin_list *list)
{
    static const char *const known[] = { "format", "version", "pins", NULL };
    const json_t *entries = json_object_get(root, "pins");
    COH_TRY(coh_json_check_format(root, "list of pins", FORMAT_NAME, FORMAT_VERSION));
    COH_TRY(coh_json_only_known(root, "the file", known));
    if (!json_is_array(entries))
        return coh_fail(COH_ERR_CORRUPT, "\"pins\" is missing or not a list");
    for (size_t i = 0; i < json_array_size(entries); i++) {
        coh_status status = parse_entry(list, json_array_get(entries, i));
        if (status != COH_OK)
            return coh_fail_prefix(status == COH_ERR_ARGUMENT ? COH_ERR_CORRUPT : status,
                                   "entry %zu of \"pins\"", i);
    }
    return COH_OK;
}

coh_status coh_pins_parse(const char *text, size_t bytes, coh_pin **out_pins, int32_t *out_count)
{
    pin_list list = { 0 };
    json_t *root = NULL;
    *out_pins = NULL;
    *out_count = 0;
    COH_TRY(coh_json_parse_sealed(text, bytes, &root));
    coh_status status = parse(root, &list);
    json_decref(root);
    if (status != COH_OK) {
        coh_free(list.pins);
        return status;
    }
    *out_pins = list.pins;
    *out_count = list.count;
    return COH_OK;
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
