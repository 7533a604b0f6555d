/* Tokens that outlive a refused run, and their end. Read kept_tokens.h first; run_data.c says when
 * they are kept. */
#include "cli/kept_tokens.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/input.h"

#define NOTE_NAME ".kept-tokens"
enum { NOTE_BYTES = 256 };

static int name_note(const char *folder, char out_path[CLI_PATH_BYTES])
{
    return folder[0] &&
           snprintf(out_path, CLI_PATH_BYTES, "%s/" NOTE_NAME, folder) < CLI_PATH_BYTES;
}

static void add_file(const char *path, const cli_data *data, cli_line *line)
{
    const char *slash = strrchr(path, '/');
    cli_line_add(line, "%s %016" PRIx64 "\n", slash ? slash + 1 : path, data->facts.hash);
}

void cli_kept_tokens_note(const char *folder, const cli_data *data, const char *held_out_path,
                          const cli_data *held_out)
{
    char path[CLI_PATH_BYTES];
    cli_line line;
    if (!name_note(folder, path))
        return;
    cli_line_clear(&line);
    add_file(data->path, data, &line);
    if (held_out_path[0] && held_out->file)
        add_file(held_out_path, held_out, &line);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    (void)!write(fd, line.text, line.used); /* half a line names no tokens */
    (void)close(fd);
}

static void read_note(const char *path, char out_text[NOTE_BYTES])
{
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const ssize_t got = fd >= 0 ? read(fd, out_text, NOTE_BYTES - 1) : 0;
    out_text[got > 0 ? got : 0] = '\0';
    if (fd >= 0)
        (void)close(fd);
}

static int has_hash(const char *path, uint64_t hash)
{
    coh_token_file *file;
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    if (coh_token_file_open(path, &file) != COH_OK)
        return 0;
    const int has = coh_token_file_facts_get(file, &facts) == COH_OK && facts.hash == hash;
    coh_token_file_close(file);
    return has;
}

static void drop_file(const char *folder, const char *name, uint64_t hash,
                      const cli_options *options)
{
    char path[CLI_PATH_BYTES];
    struct stat facts;
    if (strchr(name, '/') ||
        snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
        return;
    if (lstat(path, &facts) != 0 || !S_ISREG(facts.st_mode) ||
        cli_input_is_file(options->data, &facts) || cli_input_is_file(options->validation, &facts))
        return;
    if (has_hash(path, hash))
        (void)unlink(path);
}

/* Takes a line "data.tokens 0123456789abcdef". */
static void drop_line(const char *folder, char *line, const cli_options *options)
{
    char *space = strchr(line, ' '), *end;
    if (!space)
        return;
    *space = '\0';
    const uint64_t hash = strtoull(space + 1, &end, 16);
    if (*end == '\0')
        drop_file(folder, line, hash, options);
}

static int makes_tokens(const cli_options *options)
{
    int is_text = 0;
    return options->data && cli_data_is_text("data", options->data, &is_text) == COH_OK && is_text;
}

void cli_kept_tokens_drop(const char *folder, const cli_options *options)
{
    char path[CLI_PATH_BYTES], text[NOTE_BYTES], *rest = NULL;
    if (!name_note(folder, path) || access(path, F_OK) != 0 || !makes_tokens(options))
        return;
    read_note(path, text);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        drop_line(folder, line, options);
    (void)unlink(path);
}

void cli_kept_tokens_forget(const char *folder)
{
    char path[CLI_PATH_BYTES];
    if (name_note(folder, path))
        (void)unlink(path);
}
