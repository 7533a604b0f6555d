#include "cli/data.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Text holds no NUL byte; the header of a token file does (its version and counts are small numbers
 * in wide fields). So a damaged token file is never taken for text. */
enum { SNIFF_BYTES = 64 };

static coh_status cannot_read(const char *flag, const char *path)
{
    return cli_fail(COH_ERR_IO, "--%s %s cannot be read: %s: see to its rights, or give another",
                    flag, path, strerror(errno));
}

static coh_status looks_binary(const char *flag, const char *path, int *out_binary)
{
    struct stat facts;
    unsigned char head[SNIFF_BYTES];
    *out_binary = 0;
    if (stat(path, &facts) != 0)
        return cannot_read(flag, path);
    if (S_ISDIR(facts.st_mode))
        return COH_OK;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return cannot_read(flag, path);
    ssize_t got = read(descriptor, head, sizeof(head));
    close(descriptor);
    if (got < 0)
        return cannot_read(flag, path);
    *out_binary = memchr(head, 0, (size_t)got) != NULL;
    return COH_OK;
}

/* Into a fresh folder under TMPDIR; file and folder are unnamed as soon as the file is open. */
static coh_status build_unnamed(coh_tokenizer *tokenizer, const char *what,
                                coh_token_file **out_file)
{
    char folder[CLI_PATH_BYTES / 2], path[CLI_PATH_BYTES];
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/cohobate-XXXXXX", base && base[0] ? base : "/tmp");
    if (!mkdtemp(folder))
        return cli_fail(COH_ERR_IO,
                        "cannot make the folder %s for the tokens: %s: set TMPDIR to a"
                        " folder that can be written to, or run cohobate tokenize"
                        " first",
                        folder, strerror(errno));
    snprintf(path, sizeof(path), "%s/data.tokens", folder);
    uint64_t token_count;
    coh_status status = coh_token_file_build(tokenizer, what, path, 0, NULL, &token_count);
    if (status == COH_OK)
        status = coh_token_file_open(path, out_file);
    (void)unlink(path);
    (void)rmdir(folder);
    return status;
}

static coh_status build_named(coh_tokenizer *tokenizer, const char *what, const char *cache_path,
                              coh_token_file **out_file)
{
    uint64_t token_count;
    CLI_TRY(coh_token_file_build(tokenizer, what, cache_path, 0, NULL, &token_count));
    return coh_token_file_open(cache_path, out_file);
}

/* Read once from end to end: a flipped bit is found before the first step, not never. */
static coh_status open_whole(const char *path, coh_token_file **out_file)
{
    CLI_TRY(coh_token_file_open(path, out_file));
    return coh_token_file_check(*out_file);
}

static coh_status check_facts(const coh_tokenizer *tokenizer, int64_t vocabulary, const char *flag,
                              const char *what, const coh_token_file_facts *facts)
{
    if (facts->tokenizer_identity != coh_tokenizer_identity(tokenizer))
        return cli_fail(COH_ERR_CORRUPT,
                        "--%s %s was made by another tokenizer (%016" PRIx64
                        ", this one is %016" PRIx64
                        "): give its --tokenizer, or tokenize the text again",
                        flag, what, facts->tokenizer_identity, coh_tokenizer_identity(tokenizer));
    if (facts->vocabulary > vocabulary)
        return cli_fail(COH_ERR_CORRUPT,
                        "--%s %s has a vocabulary of %" PRId64 ", the model one of %" PRId64
                        ": use the model's tokenizer",
                        flag, what, facts->vocabulary, vocabulary);
    return COH_OK;
}

coh_status cli_data_open(coh_tokenizer *tokenizer, int64_t vocabulary, const char *flag,
                         const char *what, const char *cache_path, cli_data *out_data)
{
    int binary = 0;
    const char *named = what;
    coh_status status;
    *out_data = (cli_data){ 0 };
    CLI_TRY(looks_binary(flag, what, &binary));
    if (binary) {
        CLI_TRY_GOTO(status, open_whole(what, &out_data->file), fail);
    } else if (cache_path) {
        CLI_TRY_GOTO(status, build_named(tokenizer, what, cache_path, &out_data->file), fail);
        named = cache_path;
    } else {
        CLI_TRY_GOTO(status, build_unnamed(tokenizer, what, &out_data->file), fail);
        named = NULL;
    }
    CLI_TRY_GOTO(status, coh_token_file_facts_get(out_data->file, &out_data->facts), fail);
    CLI_TRY_GOTO(status, check_facts(tokenizer, vocabulary, flag, what, &out_data->facts), fail);
    char *absolute = named ? realpath(named, NULL) : NULL;
    if (absolute)
        snprintf(out_data->path, sizeof(out_data->path), "%s", absolute);
    free(absolute);
    return COH_OK;
fail:
    cli_data_close(out_data);
    if (status == COH_ERR_IO)
        return cli_blame(status, "--%s", flag);
    return status;
}

void cli_data_close(cli_data *data)
{
    coh_token_file_close(data->file);
    data->file = NULL;
}

coh_status cli_data_fill(const cli_data *data, uint64_t seed, uint64_t first_window,
                         int64_t window_count, int64_t tokens, int32_t *out_tokens,
                         int32_t *out_targets)
{
    for (int64_t w = 0; w < window_count; w++)
        CLI_TRY(coh_token_file_window(data->file, seed, first_window + (uint64_t)w, tokens,
                                      out_tokens + w * tokens, out_targets + w * tokens));
    return COH_OK;
}
