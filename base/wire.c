/* Names and sizes of wires. The interface is cohobate/wire.h; kernels/wire.h packs. */
#include "cohobate/wire.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "cohobate/terms.h"

static const char *const names[COH_WIRE_COUNT] = { "stored", "bf16", "int8", "int4" };

const char *coh_wire_name(coh_wire wire)
{
    return (unsigned)wire < COH_WIRE_COUNT ? names[wire] : "unknown";
}

static coh_status refuse(const char *text)
{
    return coh_fail(COH_ERR_ARGUMENT,
                    "%s '%.60s' is no wire: give stored, bf16, int8 or int4 for both, or as "
                    "weights=int8,gradients=int4",
                    coh_term_text(COH_TERM_WIRE), text);
}

/* Reads a name that ends at a comma or at the end of the text. Returns the bytes; 0: none. */
static size_t read_name(const char *text, coh_wire *out_wire)
{
    const size_t length = strcspn(text, ",");
    for (int wire = 0; wire < COH_WIRE_COUNT; wire++)
        if (strlen(names[wire]) == length && strncmp(text, names[wire], length) == 0) {
            *out_wire = (coh_wire)wire;
            return length;
        }
    return 0;
}

coh_status coh_wires_parse(const char *text, coh_wires *out_wires)
{
    COH_NEED(text);
    COH_NEED(out_wires);
    coh_wires wires = { 0 };
    const struct {
        const char *prefix;
        coh_wire *wire;
    } streams[] = { { "weights=", &wires.weights }, { "gradients=", &wires.gradients } };
    int is_given[2] = { 0 };
    size_t length = read_name(text, &wires.weights);
    if (length > 0 && text[length] == '\0') {
        *out_wires = (coh_wires){ wires.weights, wires.weights };
        return COH_OK;
    }
    for (const char *at = text;; at += length + 1) {
        int s = 0;
        while (s < 2 && strncmp(at, streams[s].prefix, strlen(streams[s].prefix)) != 0)
            s++;
        if (s == 2 || is_given[s])
            return refuse(text);
        is_given[s] = 1;
        at += strlen(streams[s].prefix);
        length = read_name(at, streams[s].wire);
        if (length == 0)
            return refuse(text);
        if (at[length] == '\0')
            break;
    }
    *out_wires = wires;
    return COH_OK;
}

coh_status coh_wires_write(const coh_wires *wires, char *text)
{
    COH_NEED(wires);
    COH_NEED(text);
    if ((unsigned)wires->weights >= COH_WIRE_COUNT || (unsigned)wires->gradients >= COH_WIRE_COUNT)
        return coh_fail(COH_ERR_ARGUMENT, "wires %d and %d are not 0..%d", (int)wires->weights,
                        (int)wires->gradients, COH_WIRE_COUNT - 1);
    snprintf(text, COH_WIRES_TEXT_BYTES, "weights=%s,gradients=%s", names[wires->weights],
             names[wires->gradients]);
    return COH_OK;
}

uint64_t coh_wire_bytes(coh_wire wire, uint64_t count)
{
    const uint64_t blocks = count / COH_WIRE_BLOCK + (count % COH_WIRE_BLOCK > 0);
    uint64_t bytes = 0;
    switch (wire) {
    case COH_WIRE_BF16:
        bytes = 2 * count;
        break;
    case COH_WIRE_INT8:
        bytes = blocks * sizeof(float) + count;
        break;
    case COH_WIRE_INT4: /* a last block has all its bytes */
        bytes = blocks * (sizeof(float) + COH_WIRE_BLOCK / 2);
        break;
    default:
        break;
    }
    return (bytes + 63) / 64 * 64;
}
