/* pattern.h - the regular expressions of tokenizer files, for PCRE2.
 *
 * The files' patterns are written for Oniguruma. What both libraries read alike is passed on;
 * classes of characters are written out or completed, so that they are those of Unicode 16 (what
 * Hugging Face's tokenizers 0.22 and 0.23 have) with a PCRE2 whose tables are older; what means
 * different things to the two is refused. Understood are: characters and their escapes, ., \s \S \d
 * and \p{..} of general categories, classes, groups (also (?i:..) around letters), | and greedy,
 * lazy and possessive quantifiers, look-ahead. Refused: anchors, look-behind, back references,
 * scripts, \w, nested classes. */
#ifndef COH_TEXT_PATTERN_H
#define COH_TEXT_PATTERN_H

#include "text/lists.h"

/* Appends the PCRE2 form of `pattern`. Fails: COH_ERR_CORRUPT, which begins with `where`. */
coh_status coh_pattern_translate(const char *where, coh_slice pattern, coh_byte_list *out);
/* Appends a pattern that matches these bytes, valid UTF-8, and nothing else. */
coh_status coh_pattern_quote(coh_slice literal, coh_byte_list *out);

/* Patterns of one character, for PCRE2: what Rust calls numeric (Digits); punctuation of ASCII and
 * of Unicode 8 (Punctuation); letters, marks, digits and connectors, as Rust's \w. */
extern const char coh_pattern_numeric[];
extern const char coh_pattern_punctuation[];
extern const char coh_pattern_word_character[];

/* Characters that Unicode 15, 15.1 and 16 gave to a general category, as the inside of a PCRE2
 * class; NULL: no such category. */
const char *coh_pattern_added(const char *category);

#endif
