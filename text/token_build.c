/* Makes token files from texts by streaming. A file passes through one buffer of BLOCK_BYTES: text
 * that the tokenizer cannot settle yet (the last word) moves to the front, and more is read after
 * it. The buffer doubles only while a single word fills it, so memory is bounded by the block and
 * the longest word. Files of JSON lines: token_jsonl.c. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/struct_bytes.h"
#include "text/token_build.h"

#define BLOCK_BYTES (1u << 20)
/* A NUL byte among the first PROBE_BYTES marks a file that is not text (the rule of grep and
 * git). */
#define PROBE_BYTES 8192u
#define HASH_BYTES  65536u

static coh_status read_more(int fd, const char *path, uint8_t *bytes, size_t room, size_t *count)
{
    while (*count < room) {
        ssize_t got = read(fd, bytes + *count, room - *count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return coh_fail(COH_ERR_IO, "reading %s failed: %s: copy it elsewhere, or leave it out",
                            path, strerror(errno));
        if (got == 0)
            break;
        *count += (size_t)got;
    }
    return COH_OK;
}

coh_status coh_token_builder_go_on(const coh_token_builder *b)
{
    return b->options->go_on ? b->options->go_on(b->options->go_on_context) : COH_OK;
}

/* `who` names the source of the id in the message. */
static coh_status refuse_added(const coh_token_builder *b, int32_t id, const char *who)
{
    const coh_slice text = coh_token_table_at(&b->tokenizer->pipeline->texts, id);
    return coh_fail(COH_ERR_CORRUPT,
                    "%s \"%.*s\" (id %" PRId32 "), and the model has a vocabulary of %" PRId64
                    ": give the tokenizer that it was trained with, or a model that has it",
                    who, text.count < 100 ? (int)text.count : 100, text.bytes, id,
                    b->options->vocabulary);
}

coh_status coh_token_builder_check(const coh_token_builder *b, const int32_t *ids, size_t count,
                                   uint64_t before)
{
    const int64_t vocabulary = b->options->vocabulary;
    for (size_t i = 0; vocabulary > 0 && i < count; i++) {
        if (ids[i] < vocabulary)
            continue;
        if (b->chat && coh_chat_writes(b->chat, ids[i]))
            return refuse_added(b, ids[i], "the form of conversations writes");
        const coh_slice text = coh_token_table_at(&b->tokenizer->pipeline->texts, ids[i]);
        return coh_fail(COH_ERR_CORRUPT,
                        "token %" PRIu64 " is \"%.*s\" (id %" PRId32
                        "), and the model has a vocabulary of %" PRId64
                        ": take it out of the text, or give a model that has it",
                        before + i + 1, text.count < 100 ? (int)text.count : 100, text.bytes,
                        ids[i], vocabulary);
    }
    return COH_OK;
}

/* Checks ids that the tokenizer puts around a document, for which no text is at fault. */
static coh_status check_around(const coh_token_builder *b, const int32_t *ids, size_t count,
                               const char *who)
{
    for (size_t i = 0; b->options->vocabulary > 0 && i < count; i++)
        if (ids[i] >= b->options->vocabulary)
            return refuse_added(b, ids[i], who);
    return COH_OK;
}

/* Tokenizes the rest of `fd`; the buffer already holds `filled` bytes. */
static coh_status encode_stream(coh_token_builder *b, int fd, const char *path, size_t filled)
{
    uint64_t before = 0;
    for (int is_first = 1, is_last = 0; !is_last; is_first = 0) {
        COH_TRY(coh_token_builder_go_on(b));
        COH_TRY(read_more(fd, path, b->buffer, b->buffer_bytes, &filled));
        is_last = filled < b->buffer_bytes;
        b->ids.count = 0;
        size_t consumed = 0;
        const coh_text_block block = { b->buffer, filled, is_first, is_last };
        COH_TRY(coh_pipeline_encode(b->tokenizer->pipeline, &block, &b->ids, &consumed));
        if (coh_token_builder_check(b, b->ids.ids, b->ids.count, before) != COH_OK)
            return coh_fail_prefix(COH_ERR_CORRUPT, "%s", path);
        before += b->ids.count;
        COH_TRY(coh_documents_add(&b->documents, b->ids.ids, NULL, b->ids.count));
        filled -= consumed;
        memmove(b->buffer, b->buffer + consumed, filled);
        if (consumed == 0 && !is_last)
            COH_TRY(coh_alloc_grow((void **)&b->buffer, &b->buffer_bytes, b->buffer_bytes + 1, 1));
    }
    return COH_OK;
}

static coh_status open_text(const char *path, int *out_fd)
{
    *out_fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (*out_fd < 0)
        return coh_fail(COH_ERR_IO, "cannot open %s: %s: see to its rights, or leave it out", path,
                        strerror(errno));
    return COH_OK;
}

coh_status coh_token_builder_begin(coh_token_builder *b, uint64_t hash)
{
    const coh_id_list *before = &b->tokenizer->before;
    COH_TRY(check_around(b, before->ids, before->count, "the tokenizer begins each document with"));
    COH_TRY(coh_documents_begin(&b->documents, hash));
    return coh_documents_add(&b->documents, before->ids, NULL, before->count);
}

coh_status coh_token_builder_end(coh_token_builder *b)
{
    const int32_t *end = &b->tokenizer->end_of_text;
    if (*end >= 0) {
        COH_TRY(check_around(b, end, 1, "the tokenizer ends each document with"));
        COH_TRY(coh_documents_add(&b->documents, end, NULL, 1));
    }
    return coh_documents_end(&b->documents);
}

/* Adds a whole file's text as one document. */
static coh_status build_file(coh_token_builder *b, const char *path)
{
    int fd;
    COH_TRY(coh_alloc_grow((void **)&b->buffer, &b->buffer_bytes, BLOCK_BYTES, 1));
    COH_TRY(open_text(path, &fd));
    coh_status status = coh_documents_begin(&b->documents, 0);
    if (status == COH_OK)
        status = encode_stream(b, fd, path, 0);
    if (status == COH_OK)
        status = coh_documents_end(&b->documents);
    close(fd);
    return status;
}

/* Hashes the whole file from its start if a share of documents is held out; the offset of `fd` is
 * unchanged. The file is then read twice, since a document's use is decided before its first id. */
static coh_status hash_file(const coh_token_builder *b, int fd, const char *path,
                            uint64_t *out_hash)
{
    uint8_t bytes[HASH_BYTES];
    *out_hash = 0;
    if (!(b->options->validation_split > 0))
        return COH_OK;
    for (off_t at = 0;; at += HASH_BYTES) {
        size_t filled = 0;
        ssize_t got = 1;
        COH_TRY(coh_token_builder_go_on(b));
        while (filled < HASH_BYTES && got != 0) {
            got = pread(fd, bytes + filled, HASH_BYTES - filled, at + (off_t)filled);
            if (got < 0 && errno != EINTR)
                return coh_fail(COH_ERR_IO,
                                "reading %s failed: %s: copy it elsewhere, or leave it out", path,
                                strerror(errno));
            filled += got > 0 ? (size_t)got : 0;
        }
        *out_hash = XXH3_64bits_withSeed(bytes, filled, *out_hash);
        if (filled < HASH_BYTES)
            return COH_OK;
    }
}

static coh_status build_member(coh_token_builder *b, const char *path)
{
    int fd;
    size_t filled = 0;
    uint64_t hash = 0;
    COH_TRY(coh_alloc_grow((void **)&b->buffer, &b->buffer_bytes, BLOCK_BYTES, 1));
    COH_TRY(open_text(path, &fd));
    coh_status status = read_more(fd, path, b->buffer, PROBE_BYTES, &filled);
    if (status == COH_OK && !memchr(b->buffer, '\0', filled)) {
        status = hash_file(b, fd, path, &hash);
        if (status == COH_OK)
            status = coh_token_builder_begin(b, hash);
        if (status == COH_OK)
            status = encode_stream(b, fd, path, filled);
        if (status == COH_OK)
            status = coh_token_builder_end(b);
    }
    close(fd);
    return status;
}

/* ---- checks of options ---- */

static coh_status check_held_out(const coh_token_build_options *options, int is_folder)
{
    const char *path = options->held_out_path;
    int is_split = options->validation_split != 0;
    if (options->held_out < 0 || options->held_out == 1)
        return coh_fail(COH_ERR_ARGUMENT,
                        "holding out every %" PRId32 "th document leaves no text to train on: at "
                        "least 2, or 0 for none",
                        options->held_out);
    if (is_split && !(options->validation_split > 0 && options->validation_split < 1))
        return coh_fail(COH_ERR_ARGUMENT,
                        "a validation split of %g is no share of the documents: more than 0 and "
                        "less than 1",
                        options->validation_split);
    if (options->held_out == 0 && !is_split)
        return COH_OK;
    if (options->held_out && is_split)
        return coh_fail(COH_ERR_ARGUMENT,
                        "hold out every %" PRId32 "th document or a share of %g: not both",
                        options->held_out, options->validation_split);
    if (!is_folder && options->form == COH_DATA_TEXT)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s is one text file, which is one document: to hold some out, give a "
                        "folder of files, or JSON lines",
                        options->in_path);
    if (!path || !path[0] || strcmp(path, options->out_path) == 0)
        return coh_fail(COH_ERR_ARGUMENT, "held-out documents need their own token file");
    return COH_OK;
}

static coh_status check_arguments(const coh_tokenizer *tokenizer,
                                  const coh_token_build_options *options, int *out_is_folder)
{
    const char *in_path = options->in_path;
    if (!tokenizer || !in_path || !in_path[0] || !options->out_path || !options->out_path[0])
        return coh_fail(COH_ERR_ARGUMENT, "a token file needs a tokenizer, a text and a path");
    struct stat facts;
    if (stat(in_path, &facts) != 0)
        return coh_fail(COH_ERR_IO, "cannot look at text %s: %s: see to its rights", in_path,
                        strerror(errno));
    *out_is_folder = S_ISDIR(facts.st_mode);
    if (!*out_is_folder && !S_ISREG(facts.st_mode))
        return coh_fail(COH_ERR_ARGUMENT, "text %s is neither a file nor a folder", in_path);
    if (options->thread_count < 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%" PRId32 " threads cannot tokenize: at least 1, or 0 for one per core",
                        options->thread_count);
    if (options->window < 0 || options->window > COH_TOKEN_WINDOW_MAX)
        return coh_fail(COH_ERR_ARGUMENT,
                        "windows of %" PRId64 " tokens: 0 for packed documents, or 1 to %d",
                        options->window, COH_TOKEN_WINDOW_MAX);
    if (options->vocabulary < 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a vocabulary of %" PRId64 " ids: at least 1, or 0 for the "
                        "tokenizer's",
                        options->vocabulary);
    return check_held_out(options, *out_is_folder);
}

/* The vocabulary of the ids in the files. */
static int64_t vocabulary_of(const coh_token_builder *b)
{
    const int64_t own = b->tokenizer->vocabulary, models = b->options->vocabulary;
    return models > 0 && models < own ? models : own;
}

/* ---- building ---- */

static coh_status build_all(coh_token_builder *b, int is_folder)
{
    const coh_token_build_options *options = b->options;
    if (options->form != COH_DATA_TEXT)
        return coh_token_build_jsonl(b, is_folder);
    if (!is_folder)
        return build_file(b, options->in_path);
    COH_TRY(coh_token_build_folder(b, build_member));
    if (b->documents.count == 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "folder %s holds no text file, which is one that is not hidden and has no "
                        "zero byte in its first 8 KiB: of %zu files none is: give a folder that "
                        "has some",
                        options->in_path, b->list.count);
    return COH_OK;
}

static coh_status check_shares(const coh_token_builder *b)
{
    const coh_documents *d = &b->documents;
    if (!d->writers[1] || (d->counts[0] > 0 && d->counts[1] > 0))
        return COH_OK;
    if (b->options->held_out)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s holds %" PRIu64 " documents, so holding out every %" PRId32 "th leaves "
                        "none to validate with: hold out more often or add some",
                        b->options->in_path, d->count, b->options->held_out);
    return coh_fail(COH_ERR_ARGUMENT,
                    "%s holds %" PRIu64
                    " documents, of which a validation split of %g puts %" PRIu64
                    " aside: both parts need one, so add some, or take another share or seed",
                    b->options->in_path, d->count, b->options->validation_split, d->counts[1]);
}

static coh_status create_writers(coh_token_builder *b)
{
    const coh_token_build_options *options = b->options;
    const coh_tokenizer *tokenizer = b->tokenizer;
    int holds_out = options->held_out > 1 || options->validation_split > 0;
    for (int i = 0; i < 1 + holds_out; i++) {
        COH_TRY(coh_token_writer_create(i ? options->held_out_path : options->out_path,
                                        vocabulary_of(b), tokenizer->identity,
                                        &b->documents.writers[i]));
        if (options->window > 0 || options->form == COH_DATA_CHAT)
            coh_token_writer_mark(b->documents.writers[i], (uint32_t)options->window);
    }
    return COH_OK;
}

static coh_status build(coh_token_builder *b, int is_folder)
{
    const coh_token_build_options *options = b->options;
    coh_documents *d = &b->documents;
    d->held_out = options->held_out;
    d->validation_split = options->validation_split;
    d->seed = options->seed;
    const int32_t end = b->tokenizer->end_of_text;
    d->padding = end >= 0 && end < vocabulary_of(b) ? end : 0;
    COH_TRY(coh_documents_init(d, (size_t)options->window));
    /* Listed before any file is created, since new files may be in the same folder. */
    if (is_folder)
        COH_TRY(coh_file_list_fill(&b->list, options->in_path, options->form != COH_DATA_TEXT));
    if (options->form == COH_DATA_CHAT)
        COH_TRY(coh_chat_open(b->tokenizer, options->chat_folder, options->chat_form, &b->chat));
    COH_TRY(create_writers(b));
    COH_TRY(build_all(b, is_folder));
    COH_TRY(check_shares(b));
    for (int i = 0; i < 2 && d->writers[i]; i++)
        COH_TRY(coh_token_writer_finish(d->writers[i]));
    for (int i = 0; i < 2 && d->writers[i]; i++)
        COH_TRY(coh_token_writer_publish(d->writers[i]));
    return COH_OK;
}

static void tell(const coh_token_builder *b, coh_token_build_facts *out_facts)
{
    const coh_documents *d = &b->documents;
    coh_token_build_facts facts = {
        .token_count = coh_token_writer_count(d->writers[0]),
        .held_out_token_count = d->writers[1] ? coh_token_writer_count(d->writers[1]) : 0,
        .document_count = d->counts[0],
        .held_out_document_count = d->counts[1],
        .empty_window_count = d->empty_window_count,
        .replaced_count = b->replaced_count,
    };
    for (size_t i = 0; b->options->form == COH_DATA_TEXT && i < b->list.count; i++)
        facts.lines_as_text_count += (uint64_t)coh_file_list_is_lines(b->list.paths[i]);
    if (b->chat)
        snprintf(facts.chat_form, sizeof(facts.chat_form), "%s", coh_chat_description(b->chat));
    COH_STRUCT_FILL(facts, out_facts);
}

void coh_token_build_options_init(coh_token_build_options *out_options)
{
    if (out_options == NULL)
        return;
    *out_options = (coh_token_build_options){ .struct_bytes = sizeof(*out_options) };
}

coh_status coh_token_file_make(coh_tokenizer *tokenizer, const coh_token_build_options *options,
                               coh_token_build_facts *out_facts)
{
    COH_NEED(tokenizer);
    COH_NEED_STRUCT(coh_token_build_options, options);
    if (out_facts != NULL)
        COH_NEED_STRUCT(coh_token_build_facts, out_facts);
    int is_folder = 0;
    coh_token_build_options known;
    coh_token_build_options_init(&known);
    coh_struct_read(options, &known, sizeof(known));
    COH_TRY(check_arguments(tokenizer, &known, &is_folder));
    coh_token_builder b = { .tokenizer = tokenizer, .options = &known };
    coh_status status = build(&b, is_folder);
    if (status == COH_OK && out_facts != NULL)
        tell(&b, out_facts);
    for (int i = 1; i >= 0; i--)
        coh_token_writer_destroy(b.documents.writers[i]);
    coh_chat_close(b.chat);
    coh_documents_fini(&b.documents);
    coh_file_list_free(&b.list);
    coh_free(b.targets.bytes);
    coh_free(b.ids.ids);
    coh_free(b.buffer);
    return status;
}

coh_status coh_token_file_build(coh_tokenizer *tokenizer, const char *in_path, const char *out_path,
                                int held_out, const char *held_out_path, uint64_t *out_token_count)
{
    COH_NEED(tokenizer);
    COH_NEED(in_path);
    COH_NEED(out_path);
    coh_token_build_options options;
    coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
    coh_token_build_options_init(&options);
    options.in_path = in_path;
    options.out_path = out_path;
    options.held_out = held_out;
    options.held_out_path = held_out_path;
    COH_TRY(coh_token_file_make(tokenizer, &options, &facts));
    if (out_token_count)
        *out_token_count = facts.token_count;
    return COH_OK;
}
