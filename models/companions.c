/* Copies the files that accompany a model: tokenizer, generation settings, licence and notices. The
 * one idea: a fixed table of names per kind, and patterns for notices; files that do not exist are
 * skipped. Next: folder_place.c, which holds the new folder. */
#include "models/companions.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "cohobate/folder.h"

/* Files that any version of `transformers` reads for the tokenizer and for generation. */
static const struct companion {
    const char *name;
    coh_companions kind;
} companions[] = {
    { "tokenizer.json", COH_COMPANIONS_TOKENIZER },
    { "tokenizer.model", COH_COMPANIONS_TOKENIZER },
    { "vocab.json", COH_COMPANIONS_TOKENIZER },
    { "merges.txt", COH_COMPANIONS_TOKENIZER },
    { "added_tokens.json", COH_COMPANIONS_TOKENIZER },
    { "tokenizer_config.json", COH_COMPANIONS_TOKENIZER },
    { "special_tokens_map.json", COH_COMPANIONS_TOKENIZER },
    { "chat_template.json", COH_COMPANIONS_TEMPLATE },
    { "chat_template.jinja", COH_COMPANIONS_TEMPLATE },
    { "generation_config.json", COH_COMPANIONS_GENERATION },
    { "README.md", COH_COMPANIONS_NOTICES },
    { "config.json", COH_COMPANIONS_CONFIG },
};
enum { COMPANIONS = sizeof(companions) / sizeof(companions[0]) };

/* A folder of further chat templates by name (for tools, say), next to chat_template.jinja. */
#define MORE_TEMPLATES "additional_chat_templates"

static int is_template(const char *name)
{
    const size_t length = strlen(name);
    return length > 6 && strcmp(name + length - 6, ".jinja") == 0;
}

/* LICENSE, License.txt, LICENSE-APACHE, NOTICE.md: these names vary. */
static int is_notice(const char *name)
{
    static const char *const beginnings[] = { "LICENSE", "LICENCE", "NOTICE" };
    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++)
        if (strncasecmp(name, beginnings[i], strlen(beginnings[i])) == 0)
            return 1;
    return 0;
}

/* Bytes copied at a time. */
#define PIECE_BYTES 32768

static coh_status cannot_read(const char *path)
{
    return coh_fail(COH_ERR_IO, "%.300s cannot be read: %s: see to its rights, or leave it out",
                    path, strerror(errno));
}

/* Copies the open file `from` to file `name`. */
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

/* `name` NULL: a tokenizer's file; its content decides the name. */
static coh_status copy_file(coh_folder_place *place, const char *from_path, const char *name)
{
    char head[256] = { 0 };
    const int from = open(from_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (from < 0)
        return cannot_read(from_path);
    if (!name && pread(from, head, sizeof(head) - 1, 0) >= 0) /* copying reports a failed read */
        name = head[strspn(head, " \t\r\n")] == '{' ? "tokenizer.json" : "tokenizer.model";
    if (!name) {
        close(from);
        return cannot_read(from_path);
    }
    coh_status status = copy_open(place, from, from_path, name);
    close(from);
    return status;
}

/* Copies one file, or adds up its size if `place` is NULL. */
static coh_status take_file(coh_folder_place *place, const char *from_path, const char *name,
                            const struct stat *facts, uint64_t *bytes)
{
    if (place)
        return copy_file(place, from_path, name);
    *bytes += coh_bytes_round_page((uint64_t)facts->st_size);
    return COH_OK;
}

static coh_status path_join(const char *folder, const char *name, char *out_path)
{
    if (snprintf(out_path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "a folder's path of %zu bytes is too long",
                        strlen(folder));
    return COH_OK;
}

/* Copies the file `name` of folder `from` to `to`, if it is a regular file. */
static coh_status take_there(coh_folder_place *place, const char *from, const char *name,
                             const char *to, uint64_t *bytes)
{
    char path[PATH_MAX];
    struct stat facts;
    COH_TRY(path_join(from, name, path));
    if (stat(path, &facts) != 0 || !S_ISREG(facts.st_mode))
        return COH_OK;
    return take_file(place, path, to, &facts, bytes);
}

static coh_status take_notices(coh_folder_place *place, const char *from, uint64_t *bytes)
{
    coh_status status = COH_OK;
    struct dirent *entry;
    DIR *folder = opendir(from);
    if (!folder)
        return cannot_read(from);
    while (status == COH_OK && (entry = readdir(folder)))
        if (is_notice(entry->d_name))
            status = take_there(place, from, entry->d_name, entry->d_name, bytes);
    closedir(folder);
    return status;
}

static coh_status take_templates(coh_folder_place *place, const char *from, uint64_t *bytes)
{
    char path[PATH_MAX], to[sizeof(MORE_TEMPLATES) + 256];
    coh_status status = COH_OK;
    struct dirent *entry;
    int is_made = 0;
    COH_TRY(path_join(from, MORE_TEMPLATES, path));
    DIR *folder = opendir(path);
    if (!folder)
        return errno == ENOENT || errno == ENOTDIR ? COH_OK : cannot_read(path);
    while (status == COH_OK && (entry = readdir(folder))) {
        if (!is_template(entry->d_name))
            continue;
        if (!is_made++ && place)
            status = coh_folder_place_below(place, MORE_TEMPLATES);
        snprintf(to, sizeof(to), "%s/%s", MORE_TEMPLATES, entry->d_name);
        if (status == COH_OK)
            status = take_there(place, path, entry->d_name, to, bytes);
    }
    closedir(folder);
    if (status != COH_OK || !is_made)
        return status;
    if (place)
        return coh_folder_place_flush(place, MORE_TEMPLATES);
    *bytes += COH_PAGE_BYTES;
    return COH_OK;
}

coh_status coh_folder_write_tokenizer(const char *from, const char *path)
{
    coh_folder_place place = { 0 };
    uint64_t bytes = 0;
    COH_NEED_PATH(from);
    COH_NEED_PATH(path);
    COH_TRY(coh_companions_take(NULL, from, COH_COMPANIONS_TOKENIZER, &bytes));
    if (bytes == 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "%.300s holds no tokenizer: give a folder with tokenizer.json, "
                        "tokenizer.model or vocab.json, or such a file",
                        from);
    coh_status status = coh_folder_place_begin(&place, path);
    if (status == COH_OK)
        status = coh_companions_take(&place, from,
                                     COH_COMPANIONS_TOKENIZER | COH_COMPANIONS_TEMPLATE |
                                         COH_COMPANIONS_GENERATION | COH_COMPANIONS_NOTICES |
                                         COH_COMPANIONS_CONFIG,
                                     NULL);
    if (status == COH_OK)
        status = coh_folder_place_publish(&place);
    coh_folder_place_end(&place);
    return status;
}

coh_status coh_companions_take(coh_folder_place *place, const char *from, unsigned which,
                               uint64_t *bytes)
{
    struct stat facts;
    if (!from)
        return COH_OK;
    if (stat(from, &facts) != 0)
        return cannot_read(from);
    if (!S_ISDIR(facts.st_mode) && !S_ISREG(facts.st_mode))
        return coh_fail(COH_ERR_CORRUPT, "%.300s is neither a folder nor a file", from);
    if (!S_ISDIR(facts.st_mode))
        return which & COH_COMPANIONS_TOKENIZER ? take_file(place, from, NULL, &facts, bytes)
                                                : COH_OK;
    for (int i = 0; i < COMPANIONS; i++)
        if (which & companions[i].kind)
            COH_TRY(take_there(place, from, companions[i].name, companions[i].name, bytes));
    if (which & COH_COMPANIONS_TOKENIZER)
        COH_TRY(take_templates(place, from, bytes));
    return which & COH_COMPANIONS_NOTICES ? take_notices(place, from, bytes) : COH_OK;
}
