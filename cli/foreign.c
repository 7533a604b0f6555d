/* Recognises compressed files and Parquet by their first bytes. The one idea: a table of formats,
 * each with the command that makes a text of it. Next: data.c, the caller. */
#include "cli/foreign.h"

#include <stdio.h>
#include <string.h>

#include "cli/say.h"

typedef struct known {
    const char *magic;
    size_t magic_bytes;
    const char *name, *ending;    /* of files: what the converted file is named without */
    const char *added;            /* what it is named with */
    const char *before, *between; /* the command, around the two names */
    const char *remedy;           /* what to do with the converted file */
} known;

#define UNPACKED "give what it writes"

static const known formats[] = {
    { "\x1f\x8b\x08", 3, "compressed by gzip", ".gz", "", "gunzip -c ", " > ", UNPACKED },
    { "\x28\xb5\x2f\xfd", 4, "compressed by zstd", ".zst", "", "zstd -dc ", " > ", UNPACKED },
    { "\xfd"
      "7zXZ",
      6, "compressed by xz", ".xz", "", "xz -dc ", " > ", UNPACKED },
    { "BZh", 3, "compressed by bzip2", ".bz2", "", "bunzip2 -c ", " > ", UNPACKED },
    { "PAR1", 4, "a Parquet file", ".parquet", ".jsonl",
      "python3 -c 'import pandas, sys; pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], "
      "orient=\"records\", lines=True)' ",
      " ", "give the lines that it writes, with --field NAME or --chat" },
};

/* Could these be the first bytes of a text, although they are those of the format, too? */
static int may_be_text(const known *format, const unsigned char *head, size_t head_bytes)
{
    if ((format->magic[0] & 0x80) != 0 || (unsigned char)format->magic[0] < ' ')
        return 0;
    for (size_t i = 0; i < head_bytes; i++)
        if (head[i] < '\t')
            return 0;
    return 1;
}

static const known *find_format(const void *head, size_t head_bytes)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (head_bytes >= formats[i].magic_bytes &&
            memcmp(head, formats[i].magic, formats[i].magic_bytes) == 0 &&
            !may_be_text(&formats[i], head, head_bytes))
            return &formats[i];
    return NULL;
}

/* Returns the ending by which a file is read as lines or refused as JSON; NULL: it has another. */
static const char *json_ending(const char *path)
{
    static const char *const endings[] = { ".jsonl", ".ndjson", ".json" };
    const size_t bytes = strlen(path);
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        const size_t ending = strlen(endings[i]);
        if (bytes > ending && strcmp(path + bytes - ending, endings[i]) == 0)
            return endings[i];
    }
    return NULL;
}

/* Names the converted file: without the format's ending, else with another one. Unpacked lines stay
 * lines by their name. */
static void name_converted(const known *format, const char *path, char out_path[CLI_PATH_BYTES])
{
    const size_t bytes = strlen(path), ending = strlen(format->ending);
    const int has_ending = bytes > ending && strcmp(path + bytes - ending, format->ending) == 0;
    const char *lines = has_ending || format->added[0] ? NULL : json_ending(path);
    if (lines)
        snprintf(out_path, CLI_PATH_BYTES, "%.*s.unpacked%s", (int)(bytes - strlen(lines)), path,
                 lines);
    else
        snprintf(out_path, CLI_PATH_BYTES, "%.*s%s", (int)(has_ending ? bytes - ending : bytes),
                 path, has_ending || format->added[0] ? format->added : ".txt");
}

static const char *dashes(const char *flag)
{
    return flag ? "--" : "";
}

coh_status cli_foreign_check(const char *flag, const char *path, const void *head,
                             size_t head_bytes)
{
    char converted[CLI_PATH_BYTES];
    cli_line command;
    const known *found = find_format(head, head_bytes);
    if (!found)
        return COH_OK;
    name_converted(found, path, converted);
    cli_line_clear(&command);
    cli_line_add(&command, "%s", found->before);
    cli_line_add_word(&command, path);
    cli_line_add(&command, "%s", found->between);
    cli_line_add_word(&command, converted);
    return cli_fail(COH_ERR_CORRUPT, "%s%s%s%s is %s, not a text: convert it with %s, and %s",
                    dashes(flag), flag ? flag : "", flag ? " " : "", path, found->name,
                    command.text, found->remedy);
}

int cli_foreign_is_json(const char *path, const void *head, size_t head_bytes)
{
    const char *at = head, *end = at + head_bytes;
    const size_t bytes = strlen(path);
    if (bytes < 5 || strcmp(path + bytes - 5, ".json") != 0)
        return 0;
    if (head_bytes >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0)
        at += 3;
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n'))
        at++;
    return at < end && (*at == '[' || *at == '{');
}

coh_status cli_foreign_refuse_json(const char *flag, const char *path)
{
    return cli_fail(COH_ERR_CORRUPT,
                    "%s%s%s%s is JSON, and would be learned as it is, brackets and quotes included:"
                    " add --field NAME for a text of each object, or --chat for conversations (or "
                    "name the file *.txt to learn the JSON)",
                    dashes(flag), flag ? flag : "", flag ? " " : "", path);
}
