/* token_build.h - the inside of coh_token_file_make: what one build holds, shared by its kinds of
 * input.
 *
 *   token_build.c   text files and folders, streamed; what was asked for; the files written
 *   token_jsonl.c   JSON lines: a field, or a conversation
 *   token_folder.c  several files at a time
 *   documents.h     documents into windows and files */
#ifndef COH_TEXT_TOKEN_BUILD_H
#define COH_TEXT_TOKEN_BUILD_H

#include "text/chat.h"
#include "text/documents.h"
#include "text/tokenizer.h"

typedef struct coh_token_builder {
    coh_tokenizer *tokenizer;
    const coh_token_build_options *options;
    coh_documents documents;
    coh_file_list list;  /* of a folder */
    coh_chat *chat;      /* NULL unless conversations are built */
    uint8_t *buffer;     /* of text */
    size_t buffer_bytes; /* capacity */
    coh_id_list ids;
    coh_byte_list targets;   /* 1 for each of `ids` that counts */
    uint64_t replaced_count; /* coh_lines */
} coh_token_builder;

/* Asked before each piece of text that is read. Fails: as options->go_on does. */
coh_status coh_token_builder_go_on(const coh_token_builder *builder);

/* Is each id below the model's vocabulary? `before`: ids of the same text that came before these.
 * Fails: COH_ERR_CORRUPT, with the token but without its file. */
coh_status coh_token_builder_check(const coh_token_builder *builder, const int32_t *ids,
                                   size_t count, uint64_t before);

/* A document's begin and end, with what the tokenizer puts there. `hash`: of its bytes. */
coh_status coh_token_builder_begin(coh_token_builder *builder, uint64_t hash);
coh_status coh_token_builder_end(coh_token_builder *builder);

/* All lines of options->in_path, or of the files in `list`. */
coh_status coh_token_build_jsonl(coh_token_builder *builder, int is_folder);

/* All files in `list`, several at a time, with the same result as one after the other. `member`
 * adds one file's documents to any builder. */
typedef coh_status (*coh_token_member)(coh_token_builder *builder, const char *path);
coh_status coh_token_build_folder(coh_token_builder *builder, coh_token_member member);

#endif
