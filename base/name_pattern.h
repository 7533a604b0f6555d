/* name_pattern.h - which operators and parameters a list of patterns names: shell globs separated
 * by commas. A glob matches a whole name, or the rest of a name behind one of its dots, so that
 * "attn.c_proj" and "h.0.*" both match "h.0.attn.c_proj". */
#ifndef COH_BASE_NAME_PATTERN_H
#define COH_BASE_NAME_PATTERN_H

#include "cohobate/models.h"

/* Takes the next glob of *list into `out_pattern`, without blanks around it, and moves *list behind
 * it. Returns 0 at the list's end. A glob that is too long is cut. */
int coh_pattern_next(const char **list, char out_pattern[COH_PATTERN_BYTES]);

/* Does one glob match the name? */
int coh_pattern_matches_one(const char *pattern, const char *name);

/* Does one glob of the list match the name? */
int coh_pattern_matches(const char *patterns, const char *name);

#endif
