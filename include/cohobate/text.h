/* text.h - turns text into token ids, stores them in token files, and cuts those into the windows
 * that training steps read.
 *
 *     text ──> coh_tokenizer_encode ──> ids          (a prompt, a conversation)
 *     files ──> coh_token_file_make ──> token file ──> coh_token_file_window ──> tokens, targets
 *
 * A tokenizer maps text to ids and back. A token file is built once and read by all runs.
 * Threads: a tokenizer, a chat and a token file are used by one thread at a time. */
#ifndef COHOBATE_TEXT_H
#define COHOBATE_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tokenizers ---- */

/* An open tokenizer. */
typedef struct coh_tokenizer coh_tokenizer;

/* Opens a tokenizer. `what` is "bytes" (ids 0..255 are the bytes, 256 ends a text), a Hugging Face
 * folder, or one file. In a folder, the first of these that exists is read:
 *
 *   tokenizer.json            byte pair encoding, on bytes (GPT-2, OPT, Llama 3, Qwen) or on
 *                             characters with bytes for the rest (Llama 2)
 *   tokenizer.model           SentencePiece's byte pair encoding, with bytes for the rest
 *   vocab.json, merges.txt    GPT-2's byte pair encoding
 *
 * The ids that begin and end a text come from tokenizer_config.json, special_tokens_map.json and
 * (if no other file defines the end) eos_token_id of config.json. Ids and texts are those of
 * Hugging Face's tokenizers 0.23, without what its post-processor adds (coh_tokenizer_around), and
 * of sentencepiece. Added tokens in a text become their ids. Without a tokenizer.json, only those
 * after the vocabulary do: the vocabulary's own special tokens are plain text then, although
 * transformers makes them tokens.
 * Fails: COH_ERR_IO (missing), COH_ERR_CORRUPT (what is wrong and where, or which part of the file
 * would change ids and is not supported). */
COH_API coh_status coh_tokenizer_open(const char *what, coh_tokenizer **out_tokenizer);
/* Accepts NULL. */
COH_API void coh_tokenizer_close(coh_tokenizer *tokenizer);
/* Returns the number of ids, which are 0 .. vocabulary - 1. */
COH_API int64_t coh_tokenizer_vocabulary(const coh_tokenizer *tokenizer);
/* Returns the first of the ids, up to the vocabulary, that are tokens added to the tokenizer. A
 * model's table may be too short for some of these, as long as no text contains one. */
COH_API int64_t coh_tokenizer_own_vocabulary(const coh_tokenizer *tokenizer);
/* Returns the id that ends a text; -1: none. */
COH_API int32_t coh_tokenizer_end_of_text(const coh_tokenizer *tokenizer);
/* Returns the id that begins a text; -1: none. coh_tokenizer_around tells whether texts get it. */
COH_API int32_t coh_tokenizer_begin_of_text(const coh_tokenizer *tokenizer);
/* Returns the id of a token by its spelling in the file ("<|im_end|>"), special or not; -1: no such
 * token. */
COH_API int32_t coh_tokenizer_token_id(const coh_tokenizer *tokenizer, const char *token);
/* Returns the ids that the file's post-processor (or, without a tokenizer.json, add_bos_token and
 * add_eos_token) puts before and after a text, such as Llama's begin_of_text. encode does not add
 * them. The arrays belong to the tokenizer. A tokenizer.model puts the id that begins a text in
 * front unless that is switched off. */
COH_API void coh_tokenizer_around(const coh_tokenizer *tokenizer, const int32_t **out_before,
                                  size_t *out_before_count, const int32_t **out_after,
                                  size_t *out_after_count);
/* Returns the XXH3 hash of everything that determines ids; stored in a token file's header. */
COH_API uint64_t coh_tokenizer_identity(const coh_tokenizer *tokenizer);

/* Encodes any bytes, UTF-8 or not: decode(encode(x)) == x, except for changes by the tokenizer's
 * own normalizer (Unicode composition, a space put in front) and added tokens that strip spaces. A
 * byte outside valid UTF-8 is one id. One thread at a time per tokenizer.
 * Owns: the caller frees *out_ids with coh_text_free.
 * Fails: COH_ERR_MEMORY, COH_ERR_ARGUMENT (NULL). */
COH_API coh_status coh_tokenizer_encode(coh_tokenizer *tokenizer, const char *text,
                                        size_t text_bytes, int32_t **out_ids, size_t *out_count);
/* Decodes ids to *out_bytes bytes of text; a NUL follows them for convenience.
 * Owns: the caller frees *out_text with coh_text_free.
 * Fails: COH_ERR_CORRUPT for an id outside the vocabulary. */
COH_API coh_status coh_tokenizer_decode(const coh_tokenizer *tokenizer, const int32_t *ids,
                                        size_t count, char **out_text, size_t *out_bytes);
/* Returns the bytes that one id adds in the middle of a text, for showing a text while it is
 * generated. They belong to the tokenizer. Fails: COH_ERR_CORRUPT as above. */
COH_API coh_status coh_tokenizer_piece(const coh_tokenizer *tokenizer, int32_t id,
                                       const char **out_text, size_t *out_bytes);
/* Frees the results of encode and decode. Accepts NULL. */
COH_API void coh_text_free(void *memory);

/* ---- conversations ---- */

/* Formats of conversations (docs/data.md). CHATML, LLAMA3, LLAMA2, PLAIN, GEMMA and QWEN3 are
 * described there. */
typedef enum coh_chat_form {
    COH_CHAT_FORM_AUTO, /* by the tokenizer's chat template, else by its special tokens */
    COH_CHAT_FORM_CHATML,
    COH_CHAT_FORM_LLAMA3,
    COH_CHAT_FORM_LLAMA2,
    COH_CHAT_FORM_PLAIN,
    COH_CHAT_FORM_GEMMA,
    COH_CHAT_FORM_QWEN3,
} coh_chat_form;

/* Authors of turns: SYSTEM, USER, ASSISTANT. */
typedef enum coh_chat_role { COH_CHAT_SYSTEM, COH_CHAT_USER, COH_CHAT_ASSISTANT } coh_chat_role;

/* A turn of a conversation, by its `role`. `text_bytes` are without an end. */
typedef struct coh_chat_turn {
    coh_chat_role role;
    const char *text; /* UTF-8, owned by the caller */
    size_t text_bytes;
} coh_chat_turn;

/* A tokenizer and the format in which it writes conversations. One thread at a time. */
typedef struct coh_chat coh_chat;

/* Opens a chat in format `form` with this tokenizer. `folder` (may be NULL) holds
 * chat_template.jinja or tokenizer_config.json, if any; a file's path stands for its folder. AUTO
 * runs the chat template there. The tokenizer must outlive the chat.
 * Fails: COH_ERR_IO, COH_ERR_CORRUPT (a malformed tokenizer_config.json, a template that cannot be
 * run), COH_ERR_ARGUMENT (NULL, or the vocabulary lacks tokens that `form` writes). */
COH_API coh_status coh_chat_open(coh_tokenizer *tokenizer, const char *folder, coh_chat_form form,
                                 coh_chat **out_chat);
/* Accepts NULL. */
COH_API void coh_chat_close(coh_chat *chat);
/* Describes the format in a few words, for people. The text belongs to the chat. */
COH_API const char *coh_chat_description(const coh_chat *chat);
/* Encodes a conversation that the assistant is to answer: the ids of apply_chat_template with
 * add_generation_prompt. Owns: the caller frees *out_ids with coh_text_free.
 * Fails: COH_ERR_ARGUMENT (NULL), COH_ERR_CORRUPT (no turns; the last one is not the user's; an
 * order of roles that the format does not allow), COH_ERR_MEMORY. */
COH_API coh_status coh_chat_prompt(coh_chat *chat, const coh_chat_turn *turns, size_t count,
                                   int32_t **out_ids, size_t *out_count);
/* Likewise a conversation of `json`: an object in one of the forms that data sets have
 * (docs/data.md), or an array of messages. `system` (may be NULL) is put before it as its system
 * prompt. The assistant's turns at its end are left out; *out_left_out is their number.
 * Fails: as above, COH_ERR_ARGUMENT also if the conversation has a system prompt and `system` is
 * another, COH_ERR_CORRUPT also if it is no JSON, or has a member whose text would be lost. */
COH_API coh_status coh_chat_prompt_json(coh_chat *chat, const char *json, const char *system,
                                        int32_t **out_ids, size_t *out_count, size_t *out_left_out);
/* Returns the chat template that makes other programs write conversations as this chat does, in
 * Jinja; NULL: they do by the tokenizer's own, or no template can (form PLAIN of a tokenizer that
 * puts other tokens than bos_token before each text). Static storage. */
COH_API const char *coh_chat_template_text(const coh_chat *chat);
/* Returns the id that ends the assistant's turn; -1: none. */
COH_API int32_t coh_chat_end_of_turn(const coh_chat *chat);
/* Returns text that the model writes before each answer and that is not part of it: " " in the
 * formats Llama 2 and plain, else "". Static storage. */
COH_API const char *coh_chat_answer_prefix(const coh_chat *chat);

/* ---- token files ---- */

/* A token file is a header (magic, version, id width 2 or 4 bytes, count, vocabulary, tokenizer
 * identity, XXH3 of the ids) and little-endian ids. Written under a temporary name, flushed and
 * renamed.
 *
 * A file holds documents in one of three layouts:
 *
 *   packed    | document 1 |end| document 2 |end| ...      one stream, cut into windows anywhere
 *   aligned   | document 1 |end|pad.. | document 2 .... |  a window holds one document only
 *   fitted    | document 1 |end| document 3 |end|pad |     whole documents share a window; may be
 *                                                          marked where they begin
 *
 * Only a document longer than a window is cut in the last two.
 * A file of conversations, of aligned or of fitted documents also marks which ids count as targets:
 * padding and text not written by the assistant do not. */

/* Forms of text. */
typedef enum coh_data_form {
    COH_DATA_TEXT,  /* one document per file; for a folder, per text file */
    COH_DATA_JSONL, /* one JSON object per line, or one array of objects; a text field of each is a
                     * document */
    COH_DATA_CHAT,  /* one document per line: {"messages": [{"role": ..., "content": ...}, ...]}, or
                     * another form of conversations (docs/data.md) */
} coh_data_form;

/* Options of coh_token_file_make; `struct_bytes` is sizeof(coh_token_build_options). `in_path`, of
 * `form`, is read, `out_path` is written; `go_on_context` is passed to `go_on`. */
typedef struct coh_token_build_options {
    uint32_t struct_bytes;
    coh_data_form form;
    const char *in_path, *out_path;
    /* For COH_DATA_JSONL; NULL: "text". "PROMPT,NAME": the texts of both fields, of which the
     * prompt's does not count. */
    const char *field;
    /* For COH_DATA_CHAT: the tokenizer's folder, whose chat template determines the format and
     * whether a conversation without a system prompt gets a default one. NULL: no template. */
    const char *chat_folder;
    /* For COH_DATA_CHAT: a format to use instead of the template's. */
    coh_chat_form chat_form;
    int64_t window; /* 0: packed; else aligned or fitted, with this many tokens per window */
    /* Documents for validation: the last of each `held_out` (> 1) documents, or those that a hash
     * of `seed` and their bytes puts into the share `validation_split`. Of a single text file, the
     * last part: a `held_out`th of its bytes or that share, from a line end on. All 0 or NULL:
     * none. */
    int32_t held_out;
    double validation_split;   /* 0 to 1 */
    uint64_t seed;             /* of the hash */
    const char *held_out_path; /* receives them */
    /* Threads, which read files of a folder and parts of long files of JSON lines in parallel;
     * affects only the time. 0: one per core. */
    int32_t thread_count;
    /* Vocabulary of the model that will read the ids: a text with a larger token is refused. 0: the
     * tokenizer's. */
    int64_t vocabulary;
    /* Called before each block of text or line, on any reading thread; a failure cancels the build,
     * which then leaves nothing behind. NULL: not called. */
    coh_status (*go_on)(void *go_on_context);
    void *go_on_context;
    /* 1, with a window: fitted. A window that is full enough is written before later documents are
     * seen, so the order of the documents decides which of them share one. Memory: at most 32 MiB
     * for each file. */
    int32_t fitted;
    /* Tokens of the windows in which a packed file will be read, for cut_document_count; an aligned
     * file has its own. 0: not known. */
    int64_t sequence;
    /* 1: lines of JSON that are no documents are left out and counted. 0: the first of them is
     * refused, and names the others of its file, of which 1,000 are looked for if none is good. */
    int32_t skip_bad;
    /* 1, fitted: the file also marks where its documents begin, for graphs in which a token attends
     * over its own document only (coh_model's separate_documents). */
    int32_t separate;
} coh_token_build_options;
/* As coh_token_build_options_init; `bytes` is the size that the caller was compiled with. */
COH_API void coh_token_build_options_init_sized(coh_token_build_options *out_options, size_t bytes);
/* Sets struct_bytes and zeroes everything else: whole text files, packed. */
static inline void coh_token_build_options_init(coh_token_build_options *out_options)
{
    coh_token_build_options_init_sized(out_options, sizeof(*out_options));
}

/* Facts about a token file that was made. `document_count`, `held_out_document_count`: documents of
 * the two files. */
typedef struct coh_token_build_facts {
    uint32_t struct_bytes;
    uint64_t token_count, held_out_token_count; /* ids in the files, padding included */
    uint64_t document_count, held_out_document_count;
    /* Aligned, fitted: windows, or parts of them, omitted because no target in them counts. */
    uint64_t empty_window_count;
    uint64_t lines_as_text_count; /* files of JSON lines in a folder, read as plain text */
    uint64_t replaced_count;      /* JSON escapes of half a surrogate pair, replaced by U+FFFD */
    char chat_form[160];          /* format of conversations, for people; "": there were none */
    uint64_t file_count;          /* of a folder: files that were read, as text or as JSON lines */
    /* Of a folder of text: files left out, since they have a NUL in their first 8 KiB. */
    uint64_t binary_count;
    /* The first of them in the order of paths; of a path that is too long "..." and its end. */
    char first_binary[160];
    /* Of a folder of JSON lines: files left out, since they are none by their names, nor arrays or
     * objects named *.json that are read (below). */
    uint64_t other_count;
    /* Of a single text file with a part for validation: bytes before that part, and of the file. */
    uint64_t cut_byte, text_bytes;
    /* Documents with more ids than a window and its last target, held out ones too, so that no
     * window holds them whole; ids of the longest document. */
    uint64_t cut_document_count, longest_document;
    uint64_t skipped_count;    /* lines of JSON left out by skip_bad */
    char skipped_reasons[256]; /* how many of them for which reason, for people */
    char first_skipped[512];   /* the message of the first of them; "": there is none */
    /* Ids in the files that count as targets: not padding, nor what is not learned. */
    uint64_t target_count, held_out_target_count;
} coh_token_build_facts;

/* Has the file a name, in letters of any case, by which it says something about a data set or a
 * model: README*, LICENSE*, and names of Hugging Face's libraries (dataset_info.json, config.json,
 * tokenizer.json, ...)? An object of JSON in it is no document. */
COH_API int coh_text_is_about_data(const char *name);

/* Tokenizes options->in_path, a file or a folder, as a stream. Memory: a block of 1 MiB and the
 * longest word; for JSONL, the longest line (at most 256 MiB); for a folder and for JSONL, that
 * much per thread and 32 MiB of ids waiting to be written in order.
 *
 * Text: a file gives the ids of its whole text and nothing more. A folder gives every regular file
 * under it, in byte order of their paths, except hidden files and files with a NUL in their first
 * 8 KiB. JSONL: the lines of a file, or of every *.jsonl, *.ndjson and *.jl in a folder (of *.jl
 * that begin with an object), and of every *.json there that is an array of objects; of a folder
 * without any of these, every *.json of objects that is not named as a configuration. The case of
 * endings does not matter, and empty lines are skipped. In a folder, links to files
 * are followed, and links to folders are not; a link to nothing fails, unless its name is left out.
 * Except for a single text file, a document becomes the ids that the tokenizer puts before a text
 * (coh_tokenizer_around), its own ids, and the id that ends a text. A conversation becomes what its
 * format defines (docs/data.md) and nothing more.
 *
 * *out_facts may be NULL. Existing token files and empty files are replaced once the new ones are
 * complete, else left alone.
 * Fails: COH_ERR_ARGUMENT (nothing held out; a chat format that the vocabulary cannot write; an
 * output is the text itself, or another file that is no token file),
 * COH_ERR_IO, COH_ERR_CORRUPT (no text; "FILE:LINE:" and the problem of a line, unless skip_bad
 * leaves it out; a token outside
 * options->vocabulary, with its place; a chat template that cannot be run; a single text that has
 * no line end to be cut at, or only one that holds out more than twice as much), or with the status
 * of options->go_on. */
COH_API coh_status coh_token_file_make(coh_tokenizer *tokenizer,
                                       const coh_token_build_options *options,
                                       coh_token_build_facts *out_facts);

/* As coh_token_file_make, for text, packed. *out_token_count (may be NULL) counts the tokens in
 * `out_path`. */
COH_API coh_status coh_token_file_build(coh_tokenizer *tokenizer, const char *in_path,
                                        const char *out_path, int held_out,
                                        const char *held_out_path, uint64_t *out_token_count);

/* An open token file. */
typedef struct coh_token_file coh_token_file;

/* Opens a token file: reads the header and checks the file's size against it. Data are read by
 * window with pread, never mapped. Fails: COH_ERR_CORRUPT for a truncated or foreign file. */
COH_API coh_status coh_token_file_open(const char *path, coh_token_file **out_file);
/* Opens another program's .bin of ids, to be read in place:
 *
 *   llm.c     256 int32 (20240520, 1, count, ...), then ids of 2 bytes; (20240801, 7, ...) of 4
 *   nanoGPT   nothing but ids: of 2 bytes, or of 4 if `vocabulary` is above 65536
 *
 * Such a file does not name its tokenizer. It is read once from end to end, to check that all ids
 * are below `vocabulary` and to compute its hash. `vocabulary` 0: uses the smallest that holds all
 * ids, and takes ids without a header as 4 bytes if they look so, else as 2. `id_bytes`: size of
 * ids without a header, whatever they look like; 0: as above.
 * Fails: COH_ERR_CORRUPT (a header or size that does not match, an id too large; without header and
 * `id_bytes`: content that looks like text, or like 4-byte ids where 2-byte ids are expected),
 * COH_ERR_IO, COH_ERR_ARGUMENT (`id_bytes` is not 0, 2 or 4, or contradicts the header; a token
 * file, which coh_token_file_open opens). */
COH_API coh_status coh_token_file_open_raw(const char *path, int64_t vocabulary, int32_t id_bytes,
                                           coh_token_file **out_file);
/* Accepts NULL. */
COH_API void coh_token_file_close(coh_token_file *file);

/* Facts about a token file: `token_count` ids below `vocabulary`. `is_raw` is 1 if
 * coh_token_file_open_raw opened it. */
typedef struct coh_token_file_facts {
    uint32_t struct_bytes;
    uint64_t token_count;
    int64_t vocabulary;
    uint64_t tokenizer_identity; /* 0 for a raw file: unknown */
    /* Hash of the ids, of which of them count, and of the alignment: identifies the data in
     * checkpoints. */
    uint64_t hash;
    int64_t window;   /* > 0: aligned or fitted, only for windows of this many tokens */
    int32_t has_mask; /* 1: not every id counts as a target */
    int32_t is_raw;
    int32_t is_llmc;  /* 1: a raw file with llm.c's header */
    int32_t id_bytes; /* 2 or 4 */
    /* Ids that count as targets: not padding, nor what is not learned. 0 of a file with a mask that
     * coh_token_file_check has not read. */
    uint64_t target_count;
    int32_t marks_documents; /* 1: it marks where documents begin in its windows */
} coh_token_file_facts;
/* Reads the facts from the header; reads no ids. Fails: COH_ERR_ARGUMENT (NULL, struct_bytes). */
COH_API coh_status coh_token_file_facts_get(const coh_token_file *file,
                                            coh_token_file_facts *out_facts);
/* Reads the whole file and compares the hash. Fails: COH_ERR_CORRUPT (another hash), COH_ERR_IO. */
COH_API coh_status coh_token_file_check(coh_token_file *file);
/* Reads ids [begin, begin + count) into the caller's `ids`.
 * Fails: COH_ERR_ARGUMENT (beyond the end), COH_ERR_IO, COH_ERR_CORRUPT (a truncated file, an id
 * outside the vocabulary). */
COH_API coh_status coh_token_file_read(coh_token_file *file, uint64_t begin, size_t count,
                                       int32_t *ids);
/* Computes the entropy of single counted tokens, in nats: the best loss without context.
 * Fails: as coh_token_file_read; COH_ERR_MEMORY. */
COH_API coh_status coh_token_file_unigram_entropy(coh_token_file *file, double *out_nats);

/* ---- mixtures ---- */

/* Most times that a mixture has a file. */
#define COH_TOKEN_MIX_TIMES 1000

/* Options of coh_token_file_mix; `struct_bytes` is sizeof(coh_token_mix_options). `out_path` is
 * written; `go_on_context` is passed to `go_on`. */
typedef struct coh_token_mix_options {
    uint32_t struct_bytes;
    const char *out_path;
    uint64_t seed; /* chooses the parts of files that are taken in part */
    /* Called before each window or piece; a failure cancels the mixture, which then leaves nothing
     * behind. NULL: not called. */
    coh_status (*go_on)(void *go_on_context);
    void *go_on_context;
} coh_token_mix_options;
/* As coh_token_mix_options_init; `bytes` is the size that the caller was compiled with. */
COH_API void coh_token_mix_options_init_sized(coh_token_mix_options *out_options, size_t bytes);
/* Sets struct_bytes and zeroes everything else. */
static inline void coh_token_mix_options_init(coh_token_mix_options *out_options)
{
    coh_token_mix_options_init_sized(out_options, sizeof(*out_options));
}

/* Writes one token file in which file i stands times[i] times: 3 is three copies, 0.25 a quarter,
 * 1.5 a copy and a half. A pass over the mixture then reads each file that often. A part of a file
 * is a choice by options->seed: of whole windows of an aligned or fitted file, else of pieces of
 * up to 65,536 ids of a packed one; a smaller part is contained in a larger one.
 *
 * If a file is aligned or fitted, the mixture is, too, with the same windows. Packed files are then
 * cut into windows as a run cuts them; their last ids, fewer than a window, are left out. If a file
 * marks where documents begin, each window of a file that does not is one document.
 *
 * Reads each file twice, and first of all compares its hash. out_counts[i] (may be NULL) is the
 * number of ids that file i has in the mixture. An existing token file or empty file is replaced
 * once the new one is complete.
 * Fails: COH_ERR_ARGUMENT (no file; times[i] not above 0, or above COH_TOKEN_MIX_TIMES; ids of
 * another program; the output is one of the files, or another file that is no token file),
 * COH_ERR_CORRUPT (another tokenizer, or windows of another length, than the files before; a
 * damaged file; a part that holds nothing), COH_ERR_IO, or with the status of options->go_on. */
COH_API coh_status coh_token_file_mix(coh_token_file *const *files, const double *times,
                                      int32_t count, const coh_token_mix_options *options,
                                      uint64_t *out_counts);

/* ---- windows ---- */

/* Reads one window. A packed file has floor((count - 1) / tokens) windows of tokens + 1 ids;
 * neighbours share one id. In an aligned file each stretch of tokens + 1 ids is a window. Window
 * number n of a run is in pass n / windows over the data. Each pass has its own seeded permutation,
 * a keyed bijection: nothing is stored and any n is found at once, so a resumed run needs only the
 * number. Writes `tokens` tokens and as many targets (shifted by one; -1 where a target does not
 * count). Allocates nothing. Fails: COH_ERR_ARGUMENT if the file has no window of that length. */
COH_API coh_status coh_token_file_window(coh_token_file *file, uint64_t seed,
                                         uint64_t window_number, int64_t tokens,
                                         int32_t *out_tokens, int32_t *out_targets);
/* As above, and writes the position of each token in its document, from 0 on and from the begin of
 * the window: the input "positions" of coh_model's graphs with separate documents. A file that
 * does not mark where documents begin gives 0, 1, 2, .... Padding is at position 0. `out_positions`
 * may be NULL. Fails: as above. */
COH_API coh_status coh_token_file_window_positions(coh_token_file *file, uint64_t seed,
                                                   uint64_t window_number, int64_t tokens,
                                                   int32_t *out_tokens, int32_t *out_targets,
                                                   int32_t *out_positions);
/* Returns the number of windows of `tokens` tokens; 0: it has none, or is aligned for another
 * length. */
COH_API uint64_t coh_token_file_window_count(const coh_token_file *file, int64_t tokens);
/* Reads ids [begin, begin + tokens) and the target after each, in file order: for a loss over a
 * whole text, whose stretches may overlap and whose last one may be short. A target that does not
 * count is -1. Past the end of the file, tokens are 0 and targets -1. Writes `tokens` of each;
 * allocates nothing.
 * Fails: COH_ERR_ARGUMENT (no id has index `begin`, or `tokens` is below 1), COH_ERR_IO,
 * COH_ERR_CORRUPT. */
COH_API coh_status coh_token_file_stretch(coh_token_file *file, uint64_t begin, int64_t tokens,
                                          int32_t *out_tokens, int32_t *out_targets);
/* As above, with positions as coh_token_file_window_positions writes them; past the end of the file
 * 0. Fails: as above. */
COH_API coh_status coh_token_file_stretch_positions(coh_token_file *file, uint64_t begin,
                                                    int64_t tokens, int32_t *out_tokens,
                                                    int32_t *out_targets, int32_t *out_positions);

#ifdef __cplusplus
}
#endif
#endif
