/* Makes token files from texts by streaming. A file passes through one buffer of BLOCK_BYTES: text
 * that the tokenizer cannot settle yet (the last word) moves to the front, and more is read after
 * it. The buffer doubles only while a single word fills it, so memory is bounded by the block and
 * the longest word. Next: token_parts.c for several threads, documents.c for the ids,
 * token_jsonl.c for JSON lines. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/file_ops.h"
#include "base/plural.h"
#include "base/struct_bytes.h"
#include "text/lines.h"
#include "text/token_build.h"

#define BLOCK_BYTES (1u << 20)
/* A NUL byte among the first PROBE_BYTES marks a file that is not text (the rule of grep and
 * git). */
#define PROBE_BYTES 8192u
#define HASH_BYTES  65536u

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

/* Tokenizes the next `most_bytes` of `fd`, or its rest, as a whole text. */
static coh_status encode_stream(coh_token_builder *b, int fd, const char *path, uint64_t most_bytes)
{
    uint64_t before = 0;
    size_t filled = 0;
    for (int is_first = 1, is_last = 0; !is_last; is_first = 0) {
        const size_t free_bytes = b->buffer_bytes - filled, kept = filled;
        const size_t room = filled + (most_bytes < free_bytes ? (size_t)most_bytes : free_bytes);
        COH_TRY(coh_token_builder_go_on(b));
        COH_TRY(coh_file_read_more(fd, path, b->buffer, room, &filled));
        most_bytes -= filled - kept;
        is_last = filled < room || most_bytes == 0;
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

coh_status coh_token_builder_begin(coh_token_builder *b, uint64_t hash, int counts)
{
    static const uint8_t uncounted[] = { 0 };
    const coh_id_list *before = &b->tokenizer->before;
    COH_TRY(check_around(b, before->ids, before->count, "the tokenizer begins each document with"));
    COH_TRY(coh_documents_begin(&b->documents, hash));
    for (size_t i = 0; i < before->count; i++)
        COH_TRY(coh_documents_add(&b->documents, &before->ids[i], counts ? NULL : uncounted, 1));
    return COH_OK;
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

/* Hashes the whole file if a share of documents is held out. The file is then read twice, since a
 * document's use is decided before its first id. */
static coh_status hash_file(const coh_token_builder *b, int fd, const char *path,
                            uint64_t *out_hash)
{
    uint8_t bytes[HASH_BYTES];
    *out_hash = 0;
    if (!(b->options->validation_split > 0))
        return COH_OK;
    for (size_t filled = HASH_BYTES; filled == HASH_BYTES;) {
        filled = 0;
        COH_TRY(coh_token_builder_go_on(b));
        COH_TRY(coh_file_read_more(fd, path, bytes, HASH_BYTES, &filled));
        *out_hash = XXH3_64bits_withSeed(bytes, filled, *out_hash);
    }
    lseek(fd, 0, SEEK_SET);
    return COH_OK;
}

/* Adds a text of a folder as a document, with the tokens that the tokenizer puts around one. */
static coh_status add_member(coh_token_builder *b, int fd, const char *path)
{
    size_t filled = 0;
    uint64_t hash;
    COH_TRY(coh_file_read_more(fd, path, b->buffer, PROBE_BYTES, &filled));
    if (memchr(b->buffer, '\0', filled)) {
        coh_token_builder_add_binaries(b, 1, b->part);
        return COH_OK;
    }
    lseek(fd, 0, SEEK_SET);
    COH_TRY(hash_file(b, fd, path, &hash));
    COH_TRY(coh_token_builder_begin(b, hash, 1));
    COH_TRY(encode_stream(b, fd, path, UINT64_MAX));
    return coh_token_builder_end(b);
}

/* ---- one text, whole or cut ---- */

/* Returns how many bytes of a text are held out, rounded up. */
static uint64_t held_out_bytes(const coh_token_build_options *options, uint64_t text_bytes)
{
    const uint64_t every = (uint64_t)options->held_out;
    return every > 1 ? text_bytes / every + (text_bytes % every != 0)
                     : (uint64_t)ceil(options->validation_split * (double)text_bytes);
}

/* A long line before the share would be held out with it, and little be left to learn. */
static coh_status check_cut(const coh_token_builder *b, const char *path, uint64_t share)
{
    const uint64_t held_out = b->text_bytes - b->cut_byte;
    if (held_out <= 2 * share)
        return COH_OK;
    return coh_fail(COH_ERR_CORRUPT,
                    "%s would be cut for validation behind byte %" PRIu64
                    ", the last line end before the share: %" PRIu64 " of %" PRIu64
                    " bytes put aside where %" PRIu64 " were asked for: give shorter lines, or a "
                    "text to validate with as another file",
                    path, b->cut_byte, held_out, b->text_bytes, share);
}

/* Finds where a text is cut: behind the last line end before the share that is held out. */
static coh_status find_cut(coh_token_builder *b, int fd, const char *path)
{
    struct stat facts;
    if (fstat(fd, &facts) != 0)
        return coh_fail(COH_ERR_IO, "cannot look at %s: %s", path, strerror(errno));
    b->text_bytes = (uint64_t)facts.st_size;
    const uint64_t share = held_out_bytes(b->options, b->text_bytes);
    uint64_t at = share < b->text_bytes ? b->text_bytes - share : 0;
    while (at > 0) {
        uint8_t bytes[HASH_BYTES];
        const size_t room = at < HASH_BYTES ? (size_t)at : HASH_BYTES;
        size_t filled = 0;
        at -= room;
        if (lseek(fd, (off_t)at, SEEK_SET) < 0)
            return coh_fail(COH_ERR_IO, "reading %s failed: %s", path, strerror(errno));
        COH_TRY(coh_file_read_more(fd, path, bytes, room, &filled));
        const uint8_t *found = memrchr(bytes, '\n', filled);
        if (found) {
            b->cut_byte = at + (uint64_t)(found - bytes) + 1;
            lseek(fd, 0, SEEK_SET);
            return check_cut(b, path, share);
        }
    }
    return coh_fail(COH_ERR_CORRUPT,
                    "%s has no line end in its first %" PRIu64 " bytes, where it would be cut for "
                    "validation: give lines, or a text to validate with as another file",
                    path, b->text_bytes - (share < b->text_bytes ? share : b->text_bytes));
}

static coh_status add_part(coh_token_builder *b, int fd, const char *path, uint64_t most_bytes)
{
    COH_TRY(coh_documents_begin(&b->documents, 0));
    COH_TRY(encode_stream(b, fd, path, most_bytes));
    return coh_documents_end(&b->documents);
}

/* Adds a whole file's text as the only document; with a part held out, as two of them: each has the
 * ids that it would have as a file of its own. */
static coh_status add_single(coh_token_builder *b, int fd, const char *path)
{
    if (!b->documents.writers[1])
        return add_part(b, fd, path, UINT64_MAX);
    b->documents.is_cut = 1;
    COH_TRY(find_cut(b, fd, path));
    COH_TRY(add_part(b, fd, path, b->cut_byte));
    return add_part(b, fd, path, UINT64_MAX);
}

static coh_status build_file(coh_token_builder *b, const char *path,
                             coh_status (*add)(coh_token_builder *b, int fd, const char *path))
{
    int fd;
    COH_TRY(coh_alloc_grow((void **)&b->buffer, &b->buffer_bytes, BLOCK_BYTES, 1));
    COH_TRY(coh_file_open_text(path, &fd));
    coh_status status = add(b, fd, path);
    close(fd);
    return status;
}

static coh_status build_member(coh_token_builder *b, const char *path, const coh_token_part *part)
{
    (void)part; /* the whole file */
    return build_file(b, path, add_member);
}

/* ---- folders ---- */

/* Deeper than any source tree; stops recursion in a file system with loops. */
#define DEPTH_MAX 64

static coh_status list_folder(coh_file_list *list, const char *folder, int depth);

int coh_text_is_about_data(const char *name)
{
    static const char about[] =
        " dataset_info.json dataset_infos.json dataset_dict.json state.json config.json "
        "generation_config.json preprocessor_config.json tokenizer.json tokenizer_config.json "
        "special_tokens_map.json added_tokens.json vocab.json adapter_config.json "
        "model.safetensors.index.json trainer_state.json ";
    char word[40];
    const int length = name ? snprintf(word, sizeof(word), " %s ", name) : 0;
    if (length == 0)
        return 0;
    return strncasecmp(name, "readme", 6) == 0 || strncasecmp(name, "license", 7) == 0 ||
           (length < (int)sizeof(word) && !strchr(name, ' ') && strcasestr(about, word));
}

/* Next to lines, other objects of JSON describe the data, or are a tokenizer's; without lines they
 * may be the documents, except those with names of the former. */
static int holds_objects(const coh_file_list *list, const char *path, const char *name)
{
    if (coh_lines_is_named(path))
        return 1;
    return coh_lines_has_ending(path, ".json") &&
           (coh_lines_is_array(path) ||
            (list->takes_objects && coh_lines_is_object(path) && !coh_text_is_about_data(name)));
}

/* Do only the first bytes of the file say what it is, so that it would be missed? */
static int needs_bytes(const coh_file_list *list, const char *name)
{
    return list->is_lines && !coh_text_is_about_data(name) &&
           (coh_lines_has_ending(name, ".json") || coh_lines_has_ending(name, ".jl"));
}

static coh_status check_opens(const char *path)
{
    int fd;
    COH_TRY(coh_file_open_text(path, &fd));
    close(fd);
    return COH_OK;
}

static coh_status list_entry(coh_file_list *list, const char *folder, const char *name, int depth)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
        return coh_fail(COH_ERR_ARGUMENT, "a path under %.200s is longer than %d bytes", folder,
                        PATH_MAX - 1);
    struct stat facts;
    if (lstat(path, &facts) != 0)
        return coh_fail(COH_ERR_IO, "cannot look at %s: %s", path, strerror(errno));
    if (S_ISDIR(facts.st_mode))
        return list_folder(list, path, depth + 1);
    /* Links to files are followed; links to folders are not, since they may form a loop. A link to
     * nothing fails, unless the file would be left out by its name. */
    const int is_other = list->is_lines && !holds_objects(list, path, name);
    const int is_missed = !is_other || needs_bytes(list, name);
    if (S_ISLNK(facts.st_mode) && stat(path, &facts) != 0 && is_missed)
        return coh_fail(COH_ERR_IO, "cannot follow the link %s: %s: mend it, or take it away", path,
                        strerror(errno));
    if (S_ISREG(facts.st_mode) && is_other && is_missed)
        COH_TRY(check_opens(path));
    list->other_count += is_other && S_ISREG(facts.st_mode);
    if (!S_ISREG(facts.st_mode) || is_other)
        return COH_OK;
    COH_TRY(COH_GROW(&list->paths, &list->capacity, list->count + 1));
    COH_TRY(coh_alloc_text(path, &list->paths[list->count]));
    list->count++;
    return COH_OK;
}

static coh_status list_folder(coh_file_list *list, const char *folder, int depth)
{
    if (depth > DEPTH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "%.200s lies deeper than %d folders", folder, DEPTH_MAX);
    DIR *directory = opendir(folder);
    if (!directory)
        return coh_fail(COH_ERR_IO, "cannot open folder %s: %s: %s", folder, strerror(errno),
                        coh_file_open_remedy(-errno, "see to its rights, or leave it out"));
    coh_status status = COH_OK;
    while (status == COH_OK) {
        errno = 0;
        struct dirent *entry = readdir(directory);
        if (!entry && errno != 0)
            status = coh_fail(COH_ERR_IO, "reading folder %s failed: %s", folder, strerror(errno));
        if (!entry)
            break;
        if (entry->d_name[0] != '.')
            status = list_entry(list, folder, entry->d_name, depth);
    }
    closedir(directory);
    return status;
}

static int compare_paths(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static coh_status list_fill(coh_file_list *list, const char *folder, int is_lines)
{
    list->is_lines = is_lines;
    /* All paths begin with "<folder>/", so comparing whole paths compares the rest. */
    COH_TRY(list_folder(list, folder, 0));
    if (is_lines && list->count == 0) {
        list->takes_objects = 1;
        list->other_count = 0;
        COH_TRY(list_folder(list, folder, 0));
    }
    if (list->count > 1)
        qsort(list->paths, list->count, sizeof(*list->paths), compare_paths);
    return COH_OK;
}

static void list_free(coh_file_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        coh_free(list->paths[i]);
    coh_free(list->paths);
}

/* ---- checks of options ---- */

static coh_status check_held_out(const coh_token_build_options *options, const struct stat *in)
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
    if (!path || !path[0] || strcmp(path, options->out_path) == 0)
        return coh_fail(COH_ERR_ARGUMENT, "held-out documents need their own token file");
    return coh_token_output_check(path, options->in_path, in);
}

static coh_status check_arguments(const coh_tokenizer *tokenizer,
                                  const coh_token_build_options *options, int *out_is_folder)
{
    const char *in_path = options->in_path;
    if (!tokenizer || !in_path || !in_path[0] || !options->out_path || !options->out_path[0])
        return coh_fail(COH_ERR_ARGUMENT, "a token file needs a tokenizer, a text and a path");
    COH_TRY(
        coh_check_path("coh_token_file_make", "options->held_out_path", options->held_out_path));
    COH_TRY(coh_check_path("coh_token_file_make", "options->chat_folder", options->chat_folder));
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
    if (options->fitted && options->window == 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "documents are fitted into windows: give the tokens of one");
    if (options->separate && !options->fitted)
        return coh_fail(COH_ERR_ARGUMENT,
                        "only documents that are fitted into windows are marked to be separate");
    if (options->separate && tokenizer->vocabulary > INT32_C(1) << 30)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a vocabulary of %" PRId64 " ids leaves no room for marks of documents",
                        (int64_t)tokenizer->vocabulary);
    if (options->sequence < 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "sequences of %" PRId64 " tokens: at least 1, or 0 to count no documents "
                        "that are longer",
                        options->sequence);
    if (options->vocabulary < 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a vocabulary of %" PRId64 " ids: at least 1, or 0 for the "
                        "tokenizer's",
                        options->vocabulary);
    COH_TRY(coh_token_output_check(options->out_path, in_path, &facts));
    return check_held_out(options, &facts);
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
        return build_file(b, options->in_path, add_single);
    COH_TRY(coh_token_build_parts(b, b->list.paths, b->list.count, build_member, 0));
    if (b->list.count == 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "folder %s holds no file (hidden ones do not count): give a"
                        " folder that has text files",
                        options->in_path);
    if (b->documents.count == 0)
        return coh_fail(
            COH_ERR_CORRUPT,
            "folder %s holds no text file: of its %zu file%s none is text (not hidden, and "
            "no zero byte in the first 8 KiB): give a folder that has some",
            options->in_path, b->list.count, COH_PLURAL_S(b->list.count));
    return COH_OK;
}

static coh_status check_shares(const coh_token_builder *b)
{
    const coh_documents *d = &b->documents;
    if (!d->writers[1] || (d->counts[0] > 0 && d->counts[1] > 0))
        return COH_OK;
    if (b->options->held_out)
        return coh_fail(
            COH_ERR_ARGUMENT,
            "%s holds %" PRIu64 " document%s, so holding out every %" PRId32 "th leaves "
            "none to validate with: hold out more often or add some",
            b->options->in_path, d->count, COH_PLURAL_S(d->count), b->options->held_out);
    if (d->count < 2)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s holds %" PRIu64 " document%s, and the two parts of a validation split "
                        "need one each: add some",
                        b->options->in_path, d->count, COH_PLURAL_S(d->count));
    const double one = 1 / (double)d->count, share = b->options->validation_split;
    char least[64] = "";
    if (share < one)
        snprintf(least, sizeof(least), " (one document is a share of %.3g)", one);
    return coh_fail(COH_ERR_ARGUMENT,
                    "%s holds %" PRIu64
                    " documents, of which a validation split of %g puts %" PRIu64
                    " aside%s: both parts need one, so take another share or seed, or add some",
                    b->options->in_path, d->count, share, d->counts[1], least);
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
        if (options->window > 0 || options->form == COH_DATA_CHAT ||
            coh_token_build_has_prompt(options))
            coh_token_writer_mark(b->documents.writers[i], (uint32_t)options->window);
        if (options->separate)
            coh_token_writer_mark_documents(b->documents.writers[i]);
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
    const int64_t tokens = options->window > 0 ? options->window : options->sequence;
    d->most_ids = tokens > 0 ? (uint64_t)tokens + 1 : 0; /* the last is a target only */
    const int32_t end = b->tokenizer->end_of_text;
    d->padding = end >= 0 && end < vocabulary_of(b) ? end : 0;
    d->is_fitted = options->fitted != 0;
    d->is_separate = options->separate != 0;
    COH_TRY(coh_documents_init(d, (size_t)options->window));
    /* Listed before any file is created, since new files may be in the same folder. */
    if (is_folder)
        COH_TRY(list_fill(&b->list, options->in_path, options->form != COH_DATA_TEXT));
    if (options->form == COH_DATA_CHAT)
        COH_TRY(coh_chat_open(b->tokenizer, options->chat_folder, options->chat_form, &b->chat));
    COH_TRY(create_writers(b));
    COH_TRY(build_all(b, is_folder));
    COH_TRY(check_shares(b));
    COH_TRY(coh_documents_finish(d));
    for (int i = 0; i < 2 && d->writers[i]; i++)
        COH_TRY(coh_token_writer_finish(d->writers[i]));
    for (int i = 0; i < 2 && d->writers[i]; i++)
        COH_TRY(coh_token_writer_publish(d->writers[i]));
    return COH_OK;
}

/* Writes the path, or "..." and as much of its end as fits from the beginning of a character. */
static void show_path(const char *path, char *out_text, size_t text_bytes)
{
    const size_t bytes = strlen(path);
    if (bytes < text_bytes) {
        snprintf(out_text, text_bytes, "%s", path);
        return;
    }
    const char *end = path + bytes - (text_bytes - sizeof("..."));
    while (((uint8_t)*end & 0xc0) == 0x80)
        end++;
    snprintf(out_text, text_bytes, "...%s", end);
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
        .file_count = b->list.count - b->binary_count,
        .binary_count = b->binary_count,
        .other_count = b->list.other_count,
        .cut_byte = b->cut_byte,
        .text_bytes = b->text_bytes,
        .cut_document_count = d->cut_count,
        .longest_document = d->longest,
        .skipped_count = coh_bad_lines_count(&b->bad),
        .target_count = coh_token_writer_target_count(d->writers[0]),
        .held_out_target_count = d->writers[1] ? coh_token_writer_target_count(d->writers[1]) : 0,
    };
    coh_bad_lines_describe(&b->bad, b->options->field, facts.skipped_reasons,
                           sizeof(facts.skipped_reasons));
    snprintf(facts.first_skipped, sizeof(facts.first_skipped), "%.*s",
             (int)sizeof(facts.first_skipped) - 1, b->bad.first);
    for (size_t i = 0; b->options->form == COH_DATA_TEXT && i < b->list.count; i++)
        facts.lines_as_text_count += (uint64_t)coh_lines_is_named(b->list.paths[i]);
    if (b->binary_count > 0)
        show_path(b->list.paths[b->first_binary], facts.first_binary, sizeof(facts.first_binary));
    if (b->chat)
        snprintf(facts.chat_form, sizeof(facts.chat_form), "%s", coh_chat_description(b->chat));
    COH_STRUCT_FILL(facts, out_facts);
}

void coh_token_build_options_init_sized(coh_token_build_options *out_options, size_t bytes)
{
    const coh_token_build_options defaults = { 0 };
    coh_struct_init(&defaults, sizeof(defaults), out_options, bytes);
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
    list_free(&b.list);
    coh_conversation_fini(&b.conversation);
    coh_free(b.targets.bytes);
    coh_free(b.ids.ids);
    coh_free(b.buffer);
    return status;
}

coh_status coh_token_file_build(coh_tokenizer *tokenizer, const char *in_path, const char *out_path,
                                int held_out, const char *held_out_path, uint64_t *out_token_count)
{
    COH_NEED(tokenizer);
    COH_NEED_PATH(in_path);
    COH_NEED_PATH(out_path);
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
