/* protobuf.h - walks the fields of one protobuf message strictly: every field must have a number, a
 * current type, and all the bytes it declares. Supports wire types 0, 1, 2 and 5 of
 * https://protobuf.dev/programming-guides/encoding.
 *
 *     coh_protobuf message = { .at = bytes, .end = bytes + count };
 *     coh_protobuf_field field;
 *     while (coh_protobuf_next(&message, &field)) ...
 *     if (message.error) ... */
#ifndef COH_TEXT_PROTOBUF_H
#define COH_TEXT_PROTOBUF_H

#include "text/lists.h"

typedef struct coh_protobuf {
    const uint8_t *at, *end;
    const char *error; /* the error at `at`; NULL: none so far */
} coh_protobuf;

typedef enum coh_protobuf_type {
    COH_PROTOBUF_VARINT = 0,
    COH_PROTOBUF_64 = 1,
    COH_PROTOBUF_BYTES = 2,
    COH_PROTOBUF_32 = 5,
} coh_protobuf_type;

typedef struct coh_protobuf_field {
    uint32_t number;
    coh_protobuf_type type;
    uint64_t value;  /* of types varint, 64 and 32 */
    coh_slice bytes; /* of type bytes */
} coh_protobuf_field;

/* Returns 0 at the end of the message or at an error. */
int coh_protobuf_next(coh_protobuf *message, coh_protobuf_field *out_field);

#endif
