/* nfc_tables.h - the data of canonical normalization (scripts/nfc-tables writes it). */
#ifndef COH_TEXT_NFC_TABLES_H
#define COH_TEXT_NFC_TABLES_H

#include <stddef.h>
#include <stdint.h>

/* Characters first..last have a combining class other than 0. Sorted. */
typedef struct coh_nfc_class {
    uint32_t first, last;
    uint8_t combining;
} coh_nfc_class;

/* `code` decomposes into two characters; is_composed: NFC makes it of them again. Sorted by
 * code. */
typedef struct coh_nfc_pair {
    uint32_t code, first, second;
    int is_composed;
} coh_nfc_pair;

/* `code` is another spelling of `other`. Sorted by code. */
typedef struct coh_nfc_single {
    uint32_t code, other;
} coh_nfc_single;

extern const coh_nfc_class coh_nfc_classes[];
extern const size_t coh_nfc_class_count;
extern const coh_nfc_pair coh_nfc_pairs[];
extern const size_t coh_nfc_pair_count;
extern const coh_nfc_single coh_nfc_singles[];
extern const size_t coh_nfc_single_count;
/* Indices of the composed pairs, sorted by (first, second). */
extern const uint16_t coh_nfc_composing[];
extern const size_t coh_nfc_composing_count;

#endif
