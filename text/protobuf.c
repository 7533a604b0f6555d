/* Walks protobuf fields. The one idea: every length is checked against the end of the message
 * before it is used. Next: sentencepiece.c, the caller. */
#include "text/protobuf.h"

static int fail(coh_protobuf *message, const char *error)
{
    message->error = error;
    return 0;
}

/* Seven bits per byte, lowest first; at most 64 bits. */
static int read_varint(coh_protobuf *message, uint64_t *out_value)
{
    *out_value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (message->at == message->end)
            return fail(message, "it ends within a number");
        uint8_t byte = *message->at++;
        if (shift == 63 && byte > 1)
            break;
        *out_value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return 1;
    }
    return fail(message, "a number has more than 64 bits");
}

static int read_fixed(coh_protobuf *message, int byte_count, uint64_t *out_value)
{
    *out_value = 0;
    if (message->end - message->at < byte_count)
        return fail(message, "it ends within a number");
    for (int i = 0; i < byte_count; i++)
        *out_value |= (uint64_t)message->at[i] << (8 * i);
    message->at += byte_count;
    return 1;
}

int coh_protobuf_next(coh_protobuf *message, coh_protobuf_field *out_field)
{
    uint64_t key, length;
    *out_field = (coh_protobuf_field){ 0 };
    if (message->error || message->at == message->end || !read_varint(message, &key))
        return 0;
    if (key >> 3 == 0 || key >> 3 > 0x1fffffff)
        return fail(message, "a field has a number that no field may have");
    out_field->number = (uint32_t)(key >> 3);
    switch (key & 7) {
    case COH_PROTOBUF_VARINT:
        out_field->type = COH_PROTOBUF_VARINT;
        return read_varint(message, &out_field->value);
    case COH_PROTOBUF_64:
        out_field->type = COH_PROTOBUF_64;
        return read_fixed(message, 8, &out_field->value);
    case COH_PROTOBUF_32:
        out_field->type = COH_PROTOBUF_32;
        return read_fixed(message, 4, &out_field->value);
    case COH_PROTOBUF_BYTES:
        out_field->type = COH_PROTOBUF_BYTES;
        if (!read_varint(message, &length))
            return 0;
        if (length > (uint64_t)(message->end - message->at))
            return fail(message, "a field is longer than what is left");
        out_field->bytes = (coh_slice){ (const char *)message->at, (size_t)length };
        message->at += length;
        return 1;
    default:
        return fail(message, "a field is of a type that does not exist");
    }
}
