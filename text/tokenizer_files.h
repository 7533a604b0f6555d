/* tokenizer_files.h - from files to tokenizers. Files are read strictly: one that is accepted
 * defines every id, and of one that is not it is said what and where.
 *
 * Each reader fills `tokenizer`, zeroed but for begin_of_text and end_of_text (-1): ops, state and
 * the rest. On failure the caller closes it. */
#ifndef COH_TEXT_TOKENIZER_FILES_H
#define COH_TEXT_TOKENIZER_FILES_H

#include <jansson.h>

#include "text/pipeline.h"

/* Large vocabularies have 20 MB; what is far beyond is something else. */
#define COH_TOKENIZER_FILE_BYTES_MAX (256u << 20)

/* A folder or a file. */
coh_status coh_tokenizer_read(const char *what, coh_tokenizer *tokenizer);

coh_status coh_tokenizer_read_json(const char *path, const char *text, size_t text_bytes,
                                   coh_tokenizer *tokenizer);
coh_status coh_tokenizer_read_sentencepiece(const char *path, const char *model, size_t model_bytes,
                                            coh_tokenizer *tokenizer);
/* vocab.json and merges.txt of a folder. */
coh_status coh_tokenizer_read_merges(const char *folder, coh_tokenizer *tokenizer);
/* Which words vocab.json and merges.txt make byte pairs of; zeroed: GPT-2's. */
typedef struct coh_byte_pair_class {
    int is_qwen2;   /* its pattern, behind composition */
    int has_prefix; /* a space goes before each text */
} coh_byte_pair_class;

/* As the tokenizer_class of a folder's tokenizer_config.json or config.json says, or the type of
 * its model. Fails: COH_ERR_CORRUPT (another class). */
coh_status coh_tokenizer_read_class(const char *folder, coh_byte_pair_class *out_class);
/* What a folder's other files say of a tokenizer that was read from it, as Hugging Face takes it:
 * tokenizer_config.json, special_tokens_map.json, and config.json if nothing else ends a text.
 * `has_own_around`: the tokenizer's own file says what goes around a text, not add_bos_token and
 * add_eos_token. Each file may be missing. */
coh_status coh_tokenizer_read_config(const char *folder, int has_own_around,
                                     coh_tokenizer *tokenizer);
/* Where special tokens of a vocabulary are named: "eos_token" and all others of such keys in a
 * tokenizer_config.json, or NULL; over it goes a special_tokens_map.json, or NULL. */
typedef struct coh_special_names {
    const char *config_path, *map_path;
    const json_t *config, *map;
    const char *const *defaulted; /* keys, NULL behind them, that are <|endoftext|> if not given */
} coh_special_names;

extern const char coh_end_of_text_name[];

/* Adds the tokens that `tokens` of the file `path` names and the vocabulary does not have, behind
 * its own: {"token": id} of an added_tokens.json, or an "added_tokens_decoder"; NULL: there are
 * none. `special` NULL: those that it does have stay text where a text spells them; else they are
 * found in texts, and those that are special too, under another identity. */
coh_status coh_tokenizer_add_tokens(const char *path, const json_t *tokens, int is_decoder,
                                    const coh_special_names *special, coh_tokenizer *tokenizer);
/* Joins into path[PATH_MAX]; *out_exists says whether a file is there. */
coh_status coh_tokenizer_find_file(const char *folder, const char *name, char *path,
                                   int *out_exists);

/* A pipeline and its model, in `tokenizer` from the begin so that closing it releases them. */
coh_status coh_tokenizer_begin_pipeline(coh_tokenizer *tokenizer, coh_pipeline **out_pipeline);
/* The last step: what encoding needs to have at hand, and the vocabulary's size. */
coh_status coh_tokenizer_finish_pipeline(coh_tokenizer *tokenizer);
/* Names "<0x00>" to "<0xFF>" are the model's ids of single bytes. Fails: COH_ERR_CORRUPT if one is
 * missing. */
coh_status coh_tokenizer_find_byte_tokens(const char *where, coh_pipeline *pipeline);
/* The byte that a token "<0x41>" stands for; -1: it is none. */
int coh_tokenizer_byte_of(coh_slice name);

#endif
