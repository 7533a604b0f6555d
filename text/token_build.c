/* From text to token files, streaming. A file passes through one buffer of BLOCK_BYTES: what the
 * tokenizer cannot settle yet (the last word) moves to its front and more is read behind it. The
 * buffer doubles only while a single word fills it, so memory is bounded by the block and the
 * longest word. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "text/token_file.h"
#include "text/tokenizer.h"

#define BLOCK_BYTES (1u << 20)
/* A NUL byte in so many first bytes marks what is not text (the rule of grep and git). */
#define PROBE_BYTES 8192u

/* Everything that one build holds. */
typedef struct builder {
    coh_tokenizer *tokenizer;
    uint8_t *buffer;
    size_t buffer_bytes; /* capacity */
    coh_id_list ids;
} builder;

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

/* Tokenizes what follows in `fd`, of which the buffer holds `filled` bytes already. */
static coh_status encode_stream(builder *b, int fd, const char *path, size_t filled,
                                coh_token_writer *writer)
{
    for (int is_first = 1, is_last = 0; !is_last; is_first = 0) {
        COH_TRY(read_more(fd, path, b->buffer, b->buffer_bytes, &filled));
        is_last = filled < b->buffer_bytes;
        b->ids.count = 0;
        size_t consumed = 0;
        const coh_text_block block = { b->buffer, filled, is_first, is_last };
        COH_TRY(b->tokenizer->ops->encode(b->tokenizer->state, &block, &b->ids, &consumed));
        COH_TRY(coh_token_writer_add(writer, b->ids.ids, b->ids.count));
        filled -= consumed;
        memmove(b->buffer, b->buffer + consumed, filled);
        if (consumed == 0 && !is_last)
            COH_TRY(coh_alloc_grow((void **)&b->buffer, &b->buffer_bytes, b->buffer_bytes + 1, 1));
    }
    return COH_OK;
}

static coh_status open_text(const char *path, int *out_fd)
{
    *out_fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (*out_fd < 0)
        return coh_fail(COH_ERR_IO, "cannot open %s: %s: see to its rights, or leave it out", path,
                        strerror(errno));
    return COH_OK;
}

static coh_status build_file(builder *b, const char *path, coh_token_writer *writer)
{
    int fd;
    COH_TRY(open_text(path, &fd));
    coh_status status = encode_stream(b, fd, path, 0, writer);
    close(fd);
    return status;
}

/* One file of a folder: `text_index` counts those that are text; every `held_out`-th of them goes
 * to the second writer. */
static coh_status build_member(builder *b, const char *path, int held_out, uint64_t *text_index,
                               coh_token_writer *const writers[2])
{
    int fd;
    size_t filled = 0;
    COH_TRY(open_text(path, &fd));
    coh_status status = read_more(fd, path, b->buffer, PROBE_BYTES, &filled);
    if (status == COH_OK && !memchr(b->buffer, '\0', filled)) {
        uint64_t index = (*text_index)++;
        int is_held_out = held_out > 1 && index % (uint64_t)held_out == (uint64_t)held_out - 1;
        coh_token_writer *writer = writers[is_held_out];
        status = encode_stream(b, fd, path, filled, writer);
        if (status == COH_OK && b->tokenizer->end_of_text >= 0)
            status = coh_token_writer_add(writer, &b->tokenizer->end_of_text, 1);
    }
    close(fd);
    return status;
}

static coh_status build_folder(builder *b, const char *folder, int held_out,
                               coh_token_writer *const writers[2], const coh_file_list *list)
{
    uint64_t text_count = 0;
    for (size_t i = 0; i < list->count; i++)
        COH_TRY(build_member(b, list->paths[i], held_out, &text_count, writers));
    if (text_count == 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "folder %s holds no text: %zu files that are not hidden, none without NUL "
                        "bytes",
                        folder, list->count);
    if (held_out > 1 && text_count < (uint64_t)held_out)
        return coh_fail(COH_ERR_ARGUMENT,
                        "folder %s holds %" PRIu64 " text files, so holding out every %dth leaves "
                        "none to validate with: hold out more often or add files",
                        folder, text_count, held_out);
    return COH_OK;
}

static coh_status check_arguments(const coh_tokenizer *tokenizer, const char *in_path,
                                  const char *out_path, int held_out, const char *held_out_path,
                                  int *out_is_folder)
{
    if (!tokenizer || !in_path || !in_path[0] || !out_path || !out_path[0])
        return coh_fail(COH_ERR_ARGUMENT, "a token file needs a tokenizer, a text and a path");
    struct stat facts;
    if (stat(in_path, &facts) != 0)
        return coh_fail(COH_ERR_IO, "cannot look at text %s: %s: see to its rights", in_path,
                        strerror(errno));
    *out_is_folder = S_ISDIR(facts.st_mode);
    if (!*out_is_folder && !S_ISREG(facts.st_mode))
        return coh_fail(COH_ERR_ARGUMENT, "text %s is neither a file nor a folder", in_path);
    if (held_out < 0 || held_out == 1)
        return coh_fail(COH_ERR_ARGUMENT,
                        "holding out every %dth file leaves no text to train on: at least 2, or 0 "
                        "for none",
                        held_out);
    if (held_out == 0)
        return COH_OK;
    if (!*out_is_folder)
        return coh_fail(COH_ERR_ARGUMENT, "held-out files need a folder of files, %s is one file",
                        in_path);
    if (!held_out_path || !held_out_path[0] || strcmp(held_out_path, out_path) == 0)
        return coh_fail(COH_ERR_ARGUMENT, "held-out files need a token file of their own");
    return COH_OK;
}

static coh_status build(builder *b, const char *in_path, int is_folder, int held_out,
                        coh_token_writer *const writers[2], const coh_file_list *list)
{
    COH_TRY(coh_alloc_grow((void **)&b->buffer, &b->buffer_bytes, BLOCK_BYTES, 1));
    if (is_folder)
        COH_TRY(build_folder(b, in_path, held_out, writers, list));
    else
        COH_TRY(build_file(b, in_path, writers[0]));
    for (int i = 0; i < 2 && writers[i]; i++)
        COH_TRY(coh_token_writer_finish(writers[i]));
    for (int i = 0; i < 2 && writers[i]; i++)
        COH_TRY(coh_token_writer_publish(writers[i]));
    return COH_OK;
}

coh_status coh_token_file_build(coh_tokenizer *tokenizer, const char *in_path, const char *out_path,
                                int held_out, const char *held_out_path, uint64_t *out_token_count)
{
    int is_folder = 0;
    COH_TRY(check_arguments(tokenizer, in_path, out_path, held_out, held_out_path, &is_folder));
    builder b = { .tokenizer = tokenizer };
    coh_token_writer *writers[2] = { NULL, NULL };
    coh_file_list list = { 0 };
    coh_status status = COH_OK;
    /* Listed before anything is created, which may lie in the same folder. */
    if (is_folder)
        COH_TRY_GOTO(status, coh_file_list_fill(&list, in_path), done);
    COH_TRY_GOTO(
        status,
        coh_token_writer_create(out_path, tokenizer->vocabulary, tokenizer->identity, &writers[0]),
        done);
    if (held_out)
        COH_TRY_GOTO(status,
                     coh_token_writer_create(held_out_path, tokenizer->vocabulary,
                                             tokenizer->identity, &writers[1]),
                     done);
    COH_TRY_GOTO(status, build(&b, in_path, is_folder, held_out, writers, &list), done);
    if (out_token_count)
        *out_token_count = coh_token_writer_count(writers[0]);
done:
    coh_token_writer_destroy(writers[1]);
    coh_token_writer_destroy(writers[0]);
    coh_file_list_free(&list);
    coh_free(b.ids.ids);
    coh_free(b.buffer);
    return status;
}
