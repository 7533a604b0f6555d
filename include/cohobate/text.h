/* text.h - from text to token ids, token files, and the windows that a
 * training step is fed with. */
#ifndef COHOBATE_TEXT_H
#define COHOBATE_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tokenizers ---- */

typedef struct coh_tokenizer coh_tokenizer;

/* `what`: "bytes" (ids 0..255 are the bytes, 256 ends a text), a folder as Hugging Face has it, or
 * one file. Of a folder the first that is there is read:
 *
 *   tokenizer.json            byte pair encoding, on bytes (GPT-2, OPT, Llama 3, Qwen) or on
 *                             characters with bytes for the rest (Llama 2)
 *   tokenizer.model           SentencePiece's byte pair encoding, with bytes for the rest
 *   vocab.json, merges.txt    GPT-2's byte pair encoding
 *
 * and, for what begins and ends a text, tokenizer_config.json, special_tokens_map.json and (if no
 * other file says what ends one) eos_token_id of config.json. Ids and texts are those of Hugging
 * Face's tokenizers 0.23, without what its post-processor adds (coh_tokenizer_around), and of
 * sentencepiece. Added tokens that stand in a text become their ids; without a tokenizer.json
 * only those behind the vocabulary: its own special tokens are plain text there, which transformers
 * makes tokens.
 * Fails: COH_ERR_IO (missing), COH_ERR_CORRUPT (what is wrong and where, or which part of the file
 * would change ids and is not supported). */
COH_API coh_status coh_tokenizer_open(const char *what, coh_tokenizer **out_tokenizer);
/* Accepts NULL. */
COH_API void coh_tokenizer_close(coh_tokenizer *tokenizer);
/* Number of ids: they are 0 .. vocabulary - 1. */
COH_API int64_t coh_tokenizer_vocabulary(const coh_tokenizer *tokenizer);
/* All ids from here on, up to the vocabulary, are tokens that were added to the tokenizer. A
 * model's table may be too short for some of them, as long as no text holds one. */
COH_API int64_t coh_tokenizer_own_vocabulary(const coh_tokenizer *tokenizer);
/* The id that ends a text; -1: none. */
COH_API int32_t coh_tokenizer_end_of_text(const coh_tokenizer *tokenizer);
/* The id that begins a text; -1: none. Whether texts get it is for coh_tokenizer_around to say. */
COH_API int32_t coh_tokenizer_begin_of_text(const coh_tokenizer *tokenizer);
/* The id of a token by how the file spells it ("<|im_end|>"), special or not; -1: no such token. */
COH_API int32_t coh_tokenizer_token_id(const coh_tokenizer *tokenizer, const char *token);
/* The ids that the file's post-processor (or, without a tokenizer.json, add_bos_token and
 * add_eos_token) puts before and after a text: Llama's begin_of_text, say. They are the
 * tokenizer's; encode does not add them. A tokenizer.model adds what begins a text unless that is
 * switched off. */
COH_API void coh_tokenizer_around(const coh_tokenizer *tokenizer, const int32_t **out_before,
                                  size_t *out_before_count, const int32_t **out_after,
                                  size_t *out_after_count);
/* XXH3 of what decides ids: part of a token file's header. */
COH_API uint64_t coh_tokenizer_identity(const coh_tokenizer *tokenizer);

/* Any bytes, UTF-8 or not, come back: decode(encode(x)) == x, but for what the tokenizer's own
 * normalizer changes (Unicode composition, a space put before) and added tokens that strip
 * spaces.
 * A byte outside valid UTF-8 is one id. *out_ids is the library's, release with coh_text_free. Not
 * thread safe on one tokenizer. */
COH_API coh_status coh_tokenizer_encode(coh_tokenizer *tokenizer, const char *text,
                                        size_t text_bytes, int32_t **out_ids, size_t *out_count);
/* Not NUL-terminated beyond *out_bytes (one is added after it for convenience). Fails:
 * COH_ERR_CORRUPT for an id outside the vocabulary. */
COH_API coh_status coh_tokenizer_decode(const coh_tokenizer *tokenizer, const int32_t *ids,
                                        size_t count, char **out_text, size_t *out_bytes);
/* The bytes of one id in the midst of a text, in the tokenizer's memory: what each id adds to a
 * text that is being written. Fails: COH_ERR_CORRUPT as above. */
COH_API coh_status coh_tokenizer_piece(const coh_tokenizer *tokenizer, int32_t id,
                                       const char **out_text, size_t *out_bytes);
/* Releases what encode and decode gave. Accepts NULL. */
COH_API void coh_text_free(void *memory);

/* ---- conversations ---- */

/* How conversations are written (docs/data.md). */
typedef enum coh_chat_form {
    COH_CHAT_FORM_AUTO, /* as the tokenizer's chat template says, else its special tokens */
    COH_CHAT_FORM_CHATML,
    COH_CHAT_FORM_LLAMA3,
    COH_CHAT_FORM_LLAMA2,
    COH_CHAT_FORM_PLAIN,
} coh_chat_form;

typedef enum coh_chat_role { COH_CHAT_SYSTEM, COH_CHAT_USER, COH_CHAT_ASSISTANT } coh_chat_role;

typedef struct coh_chat_turn {
    coh_chat_role role;
    const char *text; /* UTF-8, the caller's */
    size_t text_bytes;
} coh_chat_turn;

/* A tokenizer and the form in which it writes conversations. Not thread safe: one thread at a
 * time. */
typedef struct coh_chat coh_chat;

/* Opens `form` with this tokenizer. `folder` (may be NULL) holds chat_template.jinja or
 * tokenizer_config.json, if any; a file stands for its folder. The tokenizer must outlive the chat.
 * Fails: COH_ERR_IO, COH_ERR_CORRUPT (a tokenizer_config.json that is none, a template of no known
 * form), COH_ERR_ARGUMENT (NULL, or the vocabulary lacks what `form` writes). */
COH_API coh_status coh_chat_open(coh_tokenizer *tokenizer, const char *folder, coh_chat_form form,
                                 coh_chat **out_chat);
/* Accepts NULL. */
COH_API void coh_chat_close(coh_chat *chat);
/* The form in a few words, for people. */
COH_API const char *coh_chat_description(const coh_chat *chat);
/* Encodes a conversation that the assistant is to answer: the ids of apply_chat_template with
 * add_generation_prompt. *out_ids is the library's, release with coh_text_free. Fails:
 * COH_ERR_ARGUMENT (NULL), COH_ERR_CORRUPT (no turns; the last one is not the user's; roles in an
 * order that the form cannot write), COH_ERR_MEMORY. */
COH_API coh_status coh_chat_prompt(coh_chat *chat, const coh_chat_turn *turns, size_t count,
                                   int32_t **out_ids, size_t *out_count);
/* The id that ends the assistant's turn; -1: none. */
COH_API int32_t coh_chat_end_of_turn(const coh_chat *chat);
/* Text that the model writes before each answer and that is no part of it: " " in the forms Llama 2
 * and plain, else "". */
COH_API const char *coh_chat_answer_prefix(const coh_chat *chat);

/* ---- token files ---- */

/* Header (magic, version, id width 2 or 4 bytes, count, vocabulary, tokenizer identity, XXH3 of the
 * ids), then little-endian ids. Written under a temporary name, flushed, renamed.
 *
 * What a file is made of are documents, in one of two ways:
 *
 *   packed    | document 1 |end| document 2 |end| ...      one stream, cut into windows anywhere
 *   aligned   | document 1 |end|pad.. | document 2 .... |  a window holds one document only
 *
 * A file of conversations or of aligned documents also says of each id whether it counts as a
 * target: padding and what the assistant did not say do not. */

typedef enum coh_data_form {
    COH_DATA_TEXT,  /* a file is a document; of a folder, each text file is */
    COH_DATA_JSONL, /* a line is an object, and the text in one of its fields is a document */
    COH_DATA_CHAT,  /* a line is {"messages": [{"role": ..., "content": ...}, ...]}: a document */
} coh_data_form;

typedef struct coh_token_build_options {
    uint32_t struct_bytes;
    coh_data_form form;
    const char *in_path, *out_path;
    const char *field; /* of COH_DATA_JSONL; NULL: "text" */
    /* Of COH_DATA_CHAT: the tokenizer's folder, whose chat template says which form it is, and
     * whether a conversation without a system prompt gets one. NULL: there is no template. */
    const char *chat_folder;
    /* Of COH_DATA_CHAT: a form that is taken whatever the template says. */
    coh_chat_form chat_form;
    int64_t window; /* 0: packed; else aligned: tokens of a window */
    /* Documents for validation go to `held_out_path`: of each `held_out` (> 1) the last, or those
     * that a hash of `seed` and their bytes puts into the share `validation_split` (0 to
     * 1). All of these 0 or NULL: none. */
    int32_t held_out;
    double validation_split;
    uint64_t seed;
    const char *held_out_path;
    /* Of a folder so many files are read at a time, which changes nothing but the time it takes; 0:
     * one per core. */
    int32_t thread_count;
    /* Of the model that is to read the ids: a text that holds a token beyond it is refused. 0: that
     * of the tokenizer. */
    int64_t vocabulary;
    /* Asked before each block of text or line, by any thread that reads: what it fails with ends
     * the build, which then leaves nothing. NULL: nobody is asked. */
    coh_status (*go_on)(void *go_on_context);
    void *go_on_context;
} coh_token_build_options;
/* Sets struct_bytes; all else is 0 or NULL: whole files of text, packed. */
COH_API void coh_token_build_options_init(coh_token_build_options *out_options);

typedef struct coh_token_build_facts {
    uint64_t token_count, held_out_token_count; /* of the files: padding counts */
    uint64_t document_count, held_out_document_count;
    uint64_t empty_window_count;  /* aligned: left out, for none of their targets counts */
    uint64_t lines_as_text_count; /* files *.jsonl and *.ndjson of a folder of text */
    uint64_t replaced_count;      /* of JSON: escapes of half a character, each now U+FFFD */
    char chat_form[160]; /* how conversations were written, for people; "": there were none */
} coh_token_build_facts;

/* Tokenizes options->in_path, a file or a folder, streaming: memory is a block of 1 MiB and what
 * the longest word needs; with JSONL, the longest line (at most 256 MiB); for a folder so much per
 * thread, and 32 MiB of ids that wait for their place.
 *
 * Text: a file gives the ids of its whole text and nothing more. A folder gives every regular file
 * under it in byte order of their paths; links, what is hidden, and what is not text by a NUL in
 * its first 8 KiB are left out. JSONL: a file's lines, or those of every *.jsonl and
 * *.ndjson of a folder; empty
 * lines are passed over. But for the single text file, a document is what the tokenizer puts before
 * a text (coh_tokenizer_around), its ids, and the id that ends a text. Conversations are what their
 * form gives (docs/data.md) and nothing more.
 *
 * *out_facts may be NULL. Existing files are replaced when the new ones are whole, else left alone.
 * Fails: COH_ERR_ARGUMENT (nothing held out; a form of conversations that the vocabulary cannot
 * write), COH_ERR_IO, COH_ERR_CORRUPT (no text; "FILE:LINE:" and what is wrong with a line; a token
 * beyond options->vocabulary, with its place; a chat template of no known form), or what
 * options->go_on said. */
COH_API coh_status coh_token_file_make(coh_tokenizer *tokenizer,
                                       const coh_token_build_options *options,
                                       coh_token_build_facts *out_facts);

/* The same for text, packed. `held_out` needs a folder. *out_token_count (may be NULL) counts those
 * of `out_path`. */
COH_API coh_status coh_token_file_build(coh_tokenizer *tokenizer, const char *in_path,
                                        const char *out_path, int held_out,
                                        const char *held_out_path, uint64_t *out_token_count);

typedef struct coh_token_file coh_token_file;

/* Opens by header; the size must agree. Read by windows with pread, never mapped.
 * Fails: COH_ERR_CORRUPT for a truncated or foreign file. */
COH_API coh_status coh_token_file_open(const char *path, coh_token_file **out_file);
/* Opens a .bin of ids as others write them, to be read in place:
 *
 *   llm.c     256 int32 (20240520, 1, count, ...), then ids of 2 bytes; (20240801, 7, ...) of 4
 *   nanoGPT   nothing but ids: of 2 bytes, or of 4 if `vocabulary` is above 65536
 *
 * Which tokenizer made it no such file says. It is read once from end to end: all ids are below
 * `vocabulary` then, and its hash is known. `vocabulary` 0: it becomes the least that holds all
 * ids, and those without a header have 4 bytes if they look so, else 2.
 * `id_bytes`: of ids without a header, whatever they look like; 0: as above.
 * Fails: COH_ERR_CORRUPT (a header or size that does not fit, an id too large; without a header and
 * `id_bytes`, what looks like text, or like ids of 4 bytes where they have 2), COH_ERR_IO,
 * COH_ERR_ARGUMENT (`id_bytes` is neither 0, 2 nor 4, or not what the header says). */
COH_API coh_status coh_token_file_open_raw(const char *path, int64_t vocabulary, int32_t id_bytes,
                                           coh_token_file **out_file);
/* Accepts NULL. */
COH_API void coh_token_file_close(coh_token_file *file);

typedef struct coh_token_file_facts {
    uint64_t token_count;
    int64_t vocabulary;
    uint64_t tokenizer_identity; /* 0 of a raw file: it says none */
    /* Of the ids, which of them count and how they are aligned: the data's identity in
     * checkpoints. */
    uint64_t hash;
    int64_t window;   /* > 0: aligned, for windows of so many tokens and no others */
    int32_t has_mask; /* 1: not every id counts as a target */
    int32_t is_raw;
    int32_t is_llmc;  /* of a raw file: llm.c's header stands in front */
    int32_t id_bytes; /* 2 or 4 */
} coh_token_file_facts;
/* From the header: reads no ids. */
COH_API coh_status coh_token_file_facts_get(const coh_token_file *file,
                                            coh_token_file_facts *out_facts);
/* Reads all and compares the hash. */
COH_API coh_status coh_token_file_check(coh_token_file *file);
/* Ids [begin, begin + count) into `ids`, the caller's.
 * Fails: COH_ERR_ARGUMENT (beyond the end), COH_ERR_IO, COH_ERR_CORRUPT (a file cut short, an id
 * outside the vocabulary). */
COH_API coh_status coh_token_file_read(coh_token_file *file, uint64_t begin, size_t count,
                                       int32_t *ids);
/* Entropy of single tokens that count, in nats: the loss of the best model without context. */
COH_API coh_status coh_token_file_unigram_entropy(coh_token_file *file, double *out_nats);

/* ---- windows ---- */

/* The windows of a packed file are its floor((count - 1) / tokens) disjoint stretches of tokens + 1
 * ids, of which neighbours share one; those of an aligned file, its stretches of tokens + 1 ids.
 * Window number n of a run: pass n / windows through the data, a seeded permutation per pass (a
 * keyed bijection: nothing is stored, any n is found at once, so a resumed run needs only the
 * number). Writes tokens and targets (shifted by one; -1 where a target does not count), `tokens`
 * each. Allocates nothing.
 * Fails: COH_ERR_ARGUMENT when the file holds no window of that length. */
COH_API coh_status coh_token_file_window(coh_token_file *file, uint64_t seed,
                                         uint64_t window_number, int64_t tokens,
                                         int32_t *out_tokens, int32_t *out_targets);
/* Windows of `tokens` ids and their targets in the file; 0: it holds none, or is aligned for
 * windows of another length. */
COH_API uint64_t coh_token_file_window_count(const coh_token_file *file, int64_t tokens);
/* Reads ids [begin, begin + tokens) and the target behind each, in the order of the file: for a
 * loss over a whole text, whose stretches may overlap and whose last one may be short. A target
 * that does not count is -1. Past the end of the file tokens are 0 and targets -1. Writes `tokens`
 * each. Allocates nothing. Fails: COH_ERR_ARGUMENT (no id has index `begin`, or `tokens` is below
 * 1), COH_ERR_IO, COH_ERR_CORRUPT. */
COH_API coh_status coh_token_file_stretch(coh_token_file *file, uint64_t begin, int64_t tokens,
                                          int32_t *out_tokens, int32_t *out_targets);

#ifdef __cplusplus
}
#endif
#endif
