/* token_build.h - internals of coh_token_file_make: the state of one build, shared by its kinds of
 * input.
 *
 *   token_build.c   text files and folders, streamed; checks of options; output files
 *   token_parts.c   several files, or parts of one, at a time
 *   token_jsonl.c   JSON lines: a field, or a conversation
 *   conversations.h the forms of conversations
 *   documents.h     documents to windows and files */
#ifndef COH_TEXT_TOKEN_BUILD_H
#define COH_TEXT_TOKEN_BUILD_H

#include <sys/types.h>

#include "text/bad_lines.h"
#include "text/chat.h"
#include "text/conversations.h"
#include "text/documents.h"
#include "text/tokenizer.h"

/* The regular files under a folder as "<folder>/<path>", sorted by the bytes of <path>, without
 * links to folders and names beginning with ".". */
typedef struct coh_file_list {
    char **paths;
    size_t count, capacity;
    int is_lines;         /* only files of JSON lines, and arrays of JSON */
    int takes_objects;    /* of these there are none, so objects of JSON are read */
    uint64_t other_count; /* regular files that this leaves out */
} coh_file_list;

typedef struct coh_token_builder {
    coh_tokenizer *tokenizer;
    const coh_token_build_options *options;
    coh_documents documents;
    coh_file_list list;  /* files of a folder */
    coh_chat *chat;      /* NULL unless conversations are built */
    uint8_t *buffer;     /* for text */
    size_t buffer_bytes; /* capacity */
    coh_id_list ids;
    coh_byte_list targets;         /* 1 for each of `ids` that counts */
    coh_conversation conversation; /* the one that is added */
    uint64_t replaced_count;       /* coh_lines */
    size_t part;                   /* index of the part that is being added */
    uint64_t binary_count;         /* files of the list that are no text */
    uint64_t cut_byte, text_bytes; /* of a text that is cut for validation; 0: none is */
    size_t first_binary;           /* the least index of them, if there are any */
    coh_bad_line at_fault;         /* why a failure is the line's; NONE: it is not */
    coh_bad_lines bad;             /* lines left out */
} coh_token_builder;

/* Called before each piece of text that is read. Fails: as options->go_on does. */
coh_status coh_token_builder_go_on(const coh_token_builder *builder);

/* Checks that each id is below the model's vocabulary. `before`: number of earlier ids of the same
 * text. Fails: COH_ERR_CORRUPT, naming the token but not the file. */
coh_status coh_token_builder_check(const coh_token_builder *builder, const int32_t *ids,
                                   size_t count, uint64_t before);

/* Begin and end a document, with the tokens that the tokenizer puts there. `hash` is of its bytes;
 * `counts` 0: the tokens before it are no targets. */
coh_status coh_token_builder_begin(coh_token_builder *builder, uint64_t hash, int counts);
coh_status coh_token_builder_end(coh_token_builder *builder);

/* Does the field name a prompt, too, which does not count? */
int coh_token_build_has_prompt(const coh_token_build_options *options);

/* Adds all lines of options->in_path, or of the files in `list`. */
coh_status coh_token_build_jsonl(coh_token_builder *builder, int is_folder);

/* Counts `count` files of the list as no text, the first of them with this index. */
void coh_token_builder_add_binaries(coh_token_builder *builder, uint64_t count, size_t first);

/* A file, or the lines of it that begin at a byte of [begin, end). */
typedef struct coh_token_part {
    size_t file;
    uint64_t begin, end;
    int is_cut; /* the file is read in parts: it must stay the one with these facts */
    dev_t device;
    ino_t inode;
    uint64_t file_bytes;
} coh_token_part;

/* Fails with COH_ERR_IO if `fd` is another file than the one that was cut, or has other bytes: then
 * the parts would be a mixture of both. */
coh_status coh_token_part_check(const coh_token_part *part, int fd, const char *path);

/* Adds the documents of a part of a file to any builder. */
typedef coh_status coh_token_add(coh_token_builder *builder, const char *path,
                                 const coh_token_part *part);

/* Adds these files by options->thread_count threads, with the same result as one after the other.
 * `has_lines`: they are JSON lines, and long ones are cut into parts; else each is a part. */
coh_status coh_token_build_parts(coh_token_builder *builder, char *const *paths, size_t count,
                                 coh_token_add *add, int has_lines);

#endif
