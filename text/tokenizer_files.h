/* tokenizer_files.h - reads tokenizers from files. Files are read strictly: an accepted file
 * defines every id; for a refused one the message says what is wrong and where.
 *
 * Each reader fills `tokenizer` (pipeline and the rest), which is zeroed except for begin_of_text
 * and end_of_text (-1). On failure the caller closes it. */
#ifndef COH_TEXT_TOKENIZER_FILES_H
#define COH_TEXT_TOKENIZER_FILES_H

#include <jansson.h>

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

#endif
