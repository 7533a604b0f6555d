/* checkpoint_note.h - is this text one JSON object that our strict reader will accept?
 *
 * The caller's note goes into the manifest as it is. A note that the reader refuses would make a
 * whole checkpoint unreadable, and the reader's library allocates, which a save must not. So a save
 * asks this small checker first: RFC 8259, and stricter where our reader is: no duplicate keys, no
 * escapes in keys, no \u0000, valid UTF-8, integers below 2^63, finite reals, at most 32 levels. */
#ifndef COH_ENGINE_CHECKPOINT_NOTE_H
#define COH_ENGINE_CHECKPOINT_NOTE_H

#include "base/check.h"

/* Allocates nothing. Time: members of an object are compared pairwise. Fails: COH_ERR_ARGUMENT with
 * the byte at which the text went wrong. */
coh_status coh_checkpoint_note_check(const char *json);

#endif
