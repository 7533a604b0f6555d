/* name_pattern.h - matches names of operators and parameters against a list of patterns: shell
 * globs separated by commas. A glob matches a whole name, or the part after one of its dots, so
 * both "attn.c_proj" and "h.0.*" match "h.0.attn.c_proj". */
#ifndef COH_BASE_NAME_PATTERN_H
#define COH_BASE_NAME_PATTERN_H

#include "cohobate/models.h"

/* Copies the next glob of *list to `out_pattern`, without surrounding blanks, and moves *list past
 * it. Returns 0 at the list's end. A glob that is too long is cut. */
int coh_pattern_next(const char **list, char out_pattern[COH_PATTERN_BYTES]);

/* Returns 1 if the glob matches the name. */
int coh_pattern_matches_one(const char *pattern, const char *name);

/* Returns 1 if one glob of the list matches the name. */
int coh_pattern_matches(const char *patterns, const char *name);

#endif
