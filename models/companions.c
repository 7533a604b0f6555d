#include "models/companions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"

/* What tokenizers and generation are read from, by whatever version of `transformers`. */
static const struct companion {
    const char *name;
    coh_companions least; /* of the choices that it belongs to, the one with fewest files */
} companions[] = {
    { "tokenizer.json", COH_COMPANIONS_TOKENIZER },
    { "tokenizer.model", COH_COMPANIONS_TOKENIZER },
    { "vocab.json", COH_COMPANIONS_TOKENIZER },
    { "merges.txt", COH_COMPANIONS_TOKENIZER },
    { "added_tokens.json", COH_COMPANIONS_TOKENIZER },
    { "tokenizer_config.json", COH_COMPANIONS_TOKENIZER },
    { "special_tokens_map.json", COH_COMPANIONS_TOKENIZER },
    { "chat_template.json", COH_COMPANIONS_TOKENIZER },
    { "chat_template.jinja", COH_COMPANIONS_TOKENIZER },
    { "generation_config.json", COH_COMPANIONS_ALL },
};
enum { COMPANIONS = sizeof(companions) / sizeof(companions[0]) };

/* Read and written at a time. */
#define PIECE_BYTES 32768

static coh_status cannot_read(const char *path)
{
    return coh_fail(COH_ERR_IO, "%.300s cannot be read: %s: see to its rights, or leave it out",
                    path, strerror(errno));
}

/* What `from` holds becomes file `name`. */
static coh_status copy_open(coh_folder_place *place, int from, const char *from_path,
                            const char *name)
{
    char path[PATH_MAX];
    uint8_t piece[PIECE_BYTES];
    uint64_t offset = 0;
    int fd, error = 0;
    ssize_t got;
    COH_TRY(coh_folder_place_create(place, name, path, &fd));
    do {
        got = read(from, piece, sizeof(piece));
        if (got > 0)
            error = coh_file_write(&place->ops, fd, piece, (uint64_t)got, offset);
        offset += got > 0 ? (uint64_t)got : 0;
    } while (error == 0 && (got > 0 || (got < 0 && errno == EINTR)));
    if (got < 0) {
        const coh_status status = cannot_read(from_path);
        (void)coh_file_close(&place->ops, fd);
        return status;
    }
    return coh_folder_place_close(place, fd, error, path);
}

/* `name` NULL: a tokenizer's file of any name. */
static coh_status copy_file(coh_folder_place *place, const char *from_path, const char *name)
{
    char head[256] = { 0 };
    const int from = open(from_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (from < 0)
        return cannot_read(from_path);
    if (!name && pread(from, head, sizeof(head) - 1, 0) >= 0) /* told as it is where it is read */
        name = head[strspn(head, " \t\r\n")] == '{' ? "tokenizer.json" : "tokenizer.model";
    if (!name) {
        close(from);
        return cannot_read(from_path);
    }
    coh_status status = copy_open(place, from, from_path, name);
    close(from);
    return status;
}

/* Copies one file, or adds up what it would take where `place` is NULL. */
static coh_status take_file(coh_folder_place *place, const char *from_path, const char *name,
                            const struct stat *facts, uint64_t *bytes)
{
    if (place)
        return copy_file(place, from_path, name);
    *bytes += coh_bytes_round_page((uint64_t)facts->st_size);
    return COH_OK;
}

static coh_status take_all(coh_folder_place *place, const char *from, coh_companions which,
                           uint64_t *bytes)
{
    char path[PATH_MAX];
    struct stat facts;
    if (!from)
        return COH_OK;
    if (stat(from, &facts) != 0)
        return cannot_read(from);
    if (!S_ISDIR(facts.st_mode) && !S_ISREG(facts.st_mode))
        return coh_fail(COH_ERR_CORRUPT, "%.300s is neither a folder nor a file", from);
    if (!S_ISDIR(facts.st_mode))
        return take_file(place, from, NULL, &facts, bytes);
    for (int i = 0; i < COMPANIONS; i++) {
        if (companions[i].least < which)
            continue;
        if (snprintf(path, sizeof(path), "%s/%s", from, companions[i].name) >= (int)sizeof(path))
            return coh_fail(COH_ERR_ARGUMENT, "a folder's path of %zu bytes is too long",
                            strlen(from));
        if (stat(path, &facts) == 0 && S_ISREG(facts.st_mode))
            COH_TRY(take_file(place, path, companions[i].name, &facts, bytes));
    }
    return COH_OK;
}

coh_status coh_companions_copy(coh_folder_place *place, const char *from, coh_companions which)
{
    return take_all(place, from, which, NULL);
}

coh_status coh_companions_bytes(const char *from, coh_companions which, uint64_t *out_bytes)
{
    *out_bytes = 0;
    return take_all(NULL, from, which, out_bytes);
}
