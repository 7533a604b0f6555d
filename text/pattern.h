/* pattern.h - translates the regular expressions of tokenizer files for PCRE2.
 *
 * The files' patterns are written for Oniguruma. Syntax with the same meaning in both libraries is
 * copied. Character classes are written out or completed, so that a PCRE2 with older tables matches
 * Unicode 16 (as Hugging Face's tokenizers 0.22 and 0.23 do). Syntax whose meaning differs is
 * refused. Supported: characters and their escapes, ., \s \S \d and \p{..} of general categories,
 * classes, groups (also (?i:..) around letters), |, quantifiers (greedy, lazy and possessive),
 * look-ahead. Refused: anchors, look-behind, back references, scripts, \w, nested classes. */
#ifndef COH_TEXT_PATTERN_H
#define COH_TEXT_PATTERN_H

#include "text/lists.h"

/* Appends the PCRE2 form of `pattern`. Fails: COH_ERR_CORRUPT, with a message that begins with
 * `where`. */
coh_status coh_pattern_translate(const char *where, coh_slice pattern, coh_byte_list *out);
/* Appends a pattern that matches only these bytes, which are valid UTF-8. */
coh_status coh_pattern_quote(coh_slice literal, coh_byte_list *out);

/* PCRE2 patterns of one character: numeric as in Rust (Digits); punctuation of ASCII and of Unicode
 * 8 (Punctuation); letters, marks, digits and connectors, as Rust's \w. */
extern const char coh_pattern_numeric[];
extern const char coh_pattern_punctuation[];
extern const char coh_pattern_word_character[];

#endif
