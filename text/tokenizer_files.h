/* tokenizer_files.h - reads tokenizers from files. Files are read strictly: an accepted file
 * defines every id; for a refused one the message says what is wrong and where.
 *
 * Each reader fills `tokenizer` (pipeline and the rest), which is zeroed except for begin_of_text
 * and end_of_text (-1). On failure the caller closes it. */
#ifndef COH_TEXT_TOKENIZER_FILES_H
#define COH_TEXT_TOKENIZER_FILES_H

#define XXH_STATIC_LINKING_ONLY /* a hash state that needs no allocation */
#include <xxhash.h>

#include "text/json_fields.h"
#include "text/tokenizer.h"

/* Large vocabularies have 20 MB; a file far larger is something else. */
#define COH_TOKENIZER_FILE_BYTES_MAX (256u << 20)

/* Reads the tokenizer of a folder or a file. */
coh_status coh_tokenizer_read(const char *what, coh_tokenizer *tokenizer);

coh_status coh_tokenizer_read_json(const char *path, const char *text, size_t text_bytes,
                                   coh_tokenizer *tokenizer);
coh_status coh_tokenizer_read_sentencepiece(const char *path, const char *model, size_t model_bytes,
                                            coh_tokenizer *tokenizer);
/* Reads vocab.json and merges.txt of a folder. */
coh_status coh_tokenizer_read_merges(const char *folder, coh_tokenizer *tokenizer);
/* How text is cut into words for vocab.json and merges.txt; zeroed: as GPT-2. */
typedef struct coh_byte_pair_class {
    int is_qwen2;   /* its pattern, after NFC */
    int has_prefix; /* a space goes before each text */
} coh_byte_pair_class;

/* Reads the class from the tokenizer_class of a folder's tokenizer_config.json or config.json, or
 * the type of its model. Fails: COH_ERR_CORRUPT (another class). */
coh_status coh_tokenizer_read_class(const char *folder, coh_byte_pair_class *out_class);
/* Applies a folder's other files to the tokenizer read from it, as Hugging Face does:
 * tokenizer_config.json, special_tokens_map.json, and config.json if nothing else names the end of
 * text. `has_own_around`: the tokenizer's own file determines the tokens around a text, not
 * add_bos_token and add_eos_token. Each file may be missing. */
coh_status coh_tokenizer_read_config(const char *folder, int has_own_around,
                                     coh_tokenizer *tokenizer);
extern const char coh_end_of_text_name[];

/* Joins the path into path[PATH_MAX]; *out_exists: the file exists. */
coh_status coh_tokenizer_find_file(const char *folder, const char *name, char *path,
                                   int *out_exists);

/* Creates a pipeline and its model in `tokenizer`, so that closing the tokenizer releases them. */
coh_status coh_tokenizer_begin_pipeline(coh_tokenizer *tokenizer, coh_pipeline **out_pipeline);
/* The last step: prepares encoding and sets the vocabulary's size. */
coh_status coh_tokenizer_finish_pipeline(coh_tokenizer *tokenizer);
/* The printable characters with which GPT-2's files write bytes ("Ġ" is the space): printable bytes
 * are written as themselves, the other 68 as U+0100 and following, in order. */
#define COH_ALPHABET_END (256 + 68)

typedef struct coh_alphabet {
    int16_t byte_of[COH_ALPHABET_END]; /* -1: not in the alphabet */
} coh_alphabet;

void coh_alphabet_fill(coh_alphabet *alphabet);
/* Decodes `name` to at most name.count bytes; -1 if a character is not in the alphabet. */
ptrdiff_t coh_alphabet_decode(const coh_alphabet *alphabet, coh_slice name, uint8_t *out_bytes);

/* Checks that every byte has an id. Fails: COH_ERR_CORRUPT. */
coh_status coh_tokenizer_check_bytes(const char *where, const coh_bpe *model);
/* Adds the merge of two tokens by their names, with the next rank. `is_own`: marks the ids that may
 * be merged; NULL: all. `joined` is a buffer. *out_is_new 0: the pair had a merge, which is kept.
 * Fails: COH_ERR_CORRUPT without a place, if one of the three is not in the vocabulary. */
coh_status coh_tokenizer_add_merge(coh_pipeline *pipeline, const uint8_t *is_own, coh_slice left,
                                   coh_slice right, coh_byte_list *joined, int32_t *out_result,
                                   int *out_is_new);
/* Finds the model's ids of single bytes by their names, "<0x00>" to "<0xFF>". Fails:
 * COH_ERR_CORRUPT if one is missing. */
coh_status coh_tokenizer_find_byte_tokens(const char *where, coh_pipeline *pipeline);
/* The byte of a token such as "<0x41>"; -1 if it is not such a token. */
int coh_tokenizer_byte_of(coh_slice name);

/* ---- parts of tokenizer.json (tokenizer_parts.c) ---- */

/* Each reads one member of `root`, the object of file `path`. An unknown part or field is refused
 * by name. */
coh_status coh_json_read_normalizer(const char *path, const json_t *root, coh_tokenizer *tokenizer);
/* Also sets is_byte_level. */
coh_status coh_json_read_pre_tokenizer(const char *path, const json_t *root,
                                       coh_tokenizer *tokenizer);
/* Fills `before` and `after`; call it when the names are known, as the next one. */
coh_status coh_json_read_post_processor(const char *path, const json_t *root,
                                        coh_tokenizer *tokenizer);
/* Fills `texts` with decoded tokens. spelled[id] replaces the name: the normalized form of some
 * added tokens (NULL bytes: use the name). */
coh_status coh_json_read_decoder(const char *path, const json_t *root, const coh_slice *spelled,
                                 coh_tokenizer *tokenizer);

/* ---- identity ---- */

/* A hash of everything that determines a tokenizer's ids, field by field, with the same result on
 * every machine. */
typedef XXH3_state_t coh_identity;

/* `scheme` names the hashed fields and their order; raise its number when ids change for the same
 * file. */
static inline void coh_identity_begin(coh_identity *identity, const char *scheme)
{
    XXH3_64bits_reset(identity);
    XXH3_64bits_update(identity, scheme, strlen(scheme));
}

static inline void coh_identity_add_u32(coh_identity *identity, uint32_t value)
{
    uint8_t bytes[4] = { (uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16),
                         (uint8_t)(value >> 24) };
    XXH3_64bits_update(identity, bytes, sizeof(bytes));
}

static inline void coh_identity_add_bytes(coh_identity *identity, const void *bytes, size_t count)
{
    coh_identity_add_u32(identity, (uint32_t)count);
    if (count)
        XXH3_64bits_update(identity, bytes, count);
}

static inline void coh_identity_add_ids(coh_identity *identity, const coh_id_list *list)
{
    coh_identity_add_u32(identity, (uint32_t)list->count);
    for (size_t i = 0; i < list->count; i++)
        coh_identity_add_u32(identity, (uint32_t)list->ids[i]);
}

static inline uint64_t coh_identity_end(const coh_identity *identity)
{
    return XXH3_64bits_digest(identity);
}

/* Adds the number of tokens, and the bytes of each. */
void coh_identity_add_tokens(coh_identity *identity, const coh_token_table *table);
/* Adds the pairs in the order of their ranks, which are 0..count-1. */
coh_status coh_identity_add_merges(coh_identity *identity, const coh_bpe *bpe);

#endif
