/* checkpoint_note.h - checks that a text is one JSON object that our strict reader will accept.
 *
 * The caller's note is copied into the manifest unchanged. A note that the reader refuses would
 * make a whole checkpoint unreadable. The reader's library allocates, which a save must not, so a
 * save calls this small checker first. It follows RFC 8259 and is stricter where our reader is: no
 * duplicate keys, no escapes in keys, no \u0000, valid UTF-8, integers below 2^63, finite reals, at
 * most 32 levels. */
#ifndef COH_ENGINE_CHECKPOINT_NOTE_H
#define COH_ENGINE_CHECKPOINT_NOTE_H

#include "base/check.h"

/* Allocates nothing. Compares the members of an object pairwise, in quadratic time. Fails:
 * COH_ERR_ARGUMENT with the byte offset of the first error. */
coh_status coh_checkpoint_note_check(const char *json);

#endif
