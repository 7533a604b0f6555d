/* Recognises compressed files, Parquet and Arrow by their first bytes, and tables by their names.
 * The one idea: a table of formats, each with the command that makes a text of it. Next: data.c and
 * data_folder.c, the callers. */
#include "cli/foreign.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cli/say.h"
#include "cohobate/text.h"

typedef struct known {
    const char *magic;
    size_t magic_bytes;
    const char *name, *ending;    /* of files: what the converted file is named without */
    const char *added;            /* what it is named with */
    const char *before, *between; /* the command, around the two names */
    const char *remedy;           /* what to do with the converted file */
} known;

#define UNPACKED "give what it writes"
#define AS_LINES "give the lines that it writes, with --field NAME or --chat"

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
      " ", AS_LINES },
    { "ARROW1", 6, "an Arrow file", ".arrow", ".jsonl",
      "python3 -c 'import pandas, sys; pandas.read_feather(sys.argv[1]).to_json(sys.argv[2], "
      "orient=\"records\", lines=True)' ",
      " ", AS_LINES },
    { "\xff\xff\xff\xff", 4, "an Arrow stream", ".arrow", ".jsonl",
      "python3 -c 'import datasets, sys; "
      "datasets.Dataset.from_file(sys.argv[1]).to_json(sys.argv[2])' ",
      " ", AS_LINES },
    { "PK\x03\x04", 4, "a zip archive", ".zip", "", "unzip ", " -d ",
      "give a file or the folder that it makes" },
};

/* Read and written by Python's own modules; a field of a table may be as long as a text. */
#define TABLE_TO_LINES(reader)                                                                     \
    "python3 -c 'import csv, json, sys; csv.field_size_limit(1 << 30); "                           \
    "open(sys.argv[2], \"w\").writelines(json.dumps(row) + \"\\n\" for row in csv.DictReader("     \
    "open(sys.argv[1], newline=\"\", encoding=\"utf-8-sig\")" reader "))' "

static const known tables[] = {
    { "", 0, "a table", ".csv", ".jsonl", TABLE_TO_LINES(""), " ", "" },
    { "", 0, "a table", ".tsv", ".jsonl", TABLE_TO_LINES(", delimiter=\"\\t\""), " ", "" },
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

int cli_foreign_has_ending(const char *path, const char *ending)
{
    const size_t bytes = strlen(path), ending_bytes = strlen(ending);
    return bytes > ending_bytes && strcasecmp(path + bytes - ending_bytes, ending) == 0;
}

/* Returns the ending by which a file is read as lines or refused as JSON; NULL: it has another. */
static const char *json_ending(const char *path)
{
    static const char *const endings[] = { ".jsonl", ".ndjson", ".json", ".jl" };
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        if (cli_foreign_has_ending(path, endings[i]))
            return endings[i];
    return NULL;
}

/* Names the folder of an archive with an ending of its own, as d for d.npz. */
static void name_folder(const char *path, char out_path[CLI_PATH_BYTES])
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    const int has_ending = dot != NULL && dot > name;
    snprintf(out_path, CLI_PATH_BYTES, "%.*s%s", (int)(has_ending ? dot - path : CLI_PATH_BYTES),
             path, has_ending ? "" : ".unpacked");
}

/* Names the converted file: without the format's ending, else with another one. Unpacked lines stay
 * lines by their name. */
static void name_converted(const known *format, const char *path, char out_path[CLI_PATH_BYTES])
{
    const size_t bytes = strlen(path), ending = strlen(format->ending);
    const int has_ending = cli_foreign_has_ending(path, format->ending);
    const char *lines = has_ending || format->added[0] ? NULL : json_ending(path);
    if (!has_ending && strcmp(format->ending, ".zip") == 0)
        name_folder(path, out_path);
    else if (lines)
        snprintf(out_path, CLI_PATH_BYTES, "%.*s.unpacked%s", (int)(bytes - strlen(lines)), path,
                 lines);
    else
        snprintf(out_path, CLI_PATH_BYTES, "%.*s%s", (int)(has_ending ? bytes - ending : bytes),
                 path, has_ending || format->added[0] ? format->added : ".txt");
}

/* A name that is there gets a number before its ending, as t.2.txt: a shell's ">" would replace the
 * user's file. */
static void name_free(char path[CLI_PATH_BYTES])
{
    enum { NUMBERS_MOST = 99 };
    char given[CLI_PATH_BYTES];
    snprintf(given, sizeof(given), "%s", path);
    const char *slash = strrchr(given, '/'), *dot = strrchr(slash ? slash : given, '.');
    const char *ending = dot ? dot : given + strlen(given);
    for (int n = 2; n <= NUMBERS_MOST && access(path, F_OK) == 0; n++)
        snprintf(path, CLI_PATH_BYTES, "%.*s.%d%s", (int)(ending - given), given, n, ending);
}

static const char *dashes(const char *flag)
{
    return flag ? "--" : "";
}

/* The command that converts the file. */
static void add_command(const known *format, const char *path, cli_line *out_command)
{
    char converted[CLI_PATH_BYTES];
    name_converted(format, path, converted);
    name_free(converted);
    cli_line_clear(out_command);
    cli_line_add(out_command, "%s", format->before);
    cli_line_add_word(out_command, path);
    cli_line_add(out_command, "%s", format->between);
    cli_line_add_word(out_command, converted);
}

coh_status cli_foreign_check(const char *flag, const char *path, const void *head,
                             size_t head_bytes)
{
    cli_line command;
    const known *found = find_format(head, head_bytes);
    if (!found)
        return COH_OK;
    add_command(found, path, &command);
    return cli_fail(COH_ERR_CORRUPT, "%s%s%s%s is %s, not a text: convert it with %s, and %s",
                    dashes(flag), flag ? flag : "", flag ? " " : "", path, found->name,
                    command.text, found->remedy);
}

/* ---- folders ---- */

int cli_foreign_is_known(const char *path, const void *head, size_t head_bytes)
{
    const known *found = find_format(head, head_bytes);
    return found &&
           (strcmp(found->ending, ".zip") != 0 || cli_foreign_has_ending(path, found->ending));
}

#define ALONE(which, names)                                                                        \
    ", or move " which " out of the folder (or give " which " " names ") to read the texts alone"

coh_status cli_foreign_refuse_folder(const char *flag, const char *folder, const char *first,
                                     uint64_t count, int has_texts, const void *head,
                                     size_t head_bytes)
{
    const int is_one = count == 1;
    const char *more = !has_texts ? ""
                       : is_one   ? ALONE("it", "a hidden name")
                                  : ALONE("them", "hidden names");
    const known *found = find_format(head, head_bytes);
    char files[64] = "a file", place[CLI_PATH_BYTES + 64];
    cli_line command;
    if (!is_one)
        snprintf(files, sizeof(files), "%" PRIu64 " files", count);
    snprintf(place, sizeof(place), "%s%s%s%.*s holds its data in %s", dashes(flag),
             flag ? flag : "", flag ? " " : "", CLI_PATH_BYTES - 1, folder, files);
    if (!found)
        return cli_fail(COH_ERR_CORRUPT,
                        "%s of ids, which %s no text and would be left out: give %s%s in place of "
                        "the folder%s",
                        place, is_one ? "is" : "are", first, is_one ? "" : ", or another of them,",
                        more);
    add_command(found, first, &command);
    return cli_fail(COH_ERR_CORRUPT,
                    "%s that %s no text and would be left out; %s%s%s %s: convert %s with %s, and "
                    "%s%s",
                    place, is_one ? "is" : "are", is_one ? "" : "the first, ", first,
                    is_one ? " is" : ", is", found->name, is_one ? "it" : "each", command.text,
                    found->remedy, more);
}

/* ---- shards ---- */

int cli_foreign_is_converted(const char *path, const void *head, size_t head_bytes)
{
    char converted[CLI_PATH_BYTES];
    name_converted(find_format(head, head_bytes), path, converted);
    return access(converted, F_OK) == 0;
}

int cli_foreign_is_shard(const char *path, const void *head, size_t head_bytes)
{
    char converted[CLI_PATH_BYTES];
    name_converted(find_format(head, head_bytes), path, converted);
    const char *slash = strrchr(converted, '/');
    return json_ending(converted) && !coh_text_is_about_data(slash ? slash + 1 : converted);
}

/* Writes "2 files; the first, F/b.gz, is compressed by gzip", or "F/b.gz, which is ...". */
static void add_files(const char *first, uint64_t count, const known *format, cli_line *line)
{
    if (count > 1)
        cli_line_add(line, "%" PRIu64 " files; the first, ", count);
    cli_line_add(line, "%s%s is %s", first, count > 1 ? "," : ", which", format->name);
}

coh_status cli_foreign_refuse_shards(const char *flag, const char *folder, const char *first,
                                     uint64_t count, int has_objects, const void *head,
                                     size_t head_bytes)
{
    const known *found = find_format(head, head_bytes);
    char converted[CLI_PATH_BYTES];
    const char *move = count > 1 ? "move them out of the folder (or give them hidden names)"
                                 : "move it out of the folder (or give it a hidden name)";
    cli_line files, command;
    cli_line_clear(&files);
    add_files(first, count, found, &files);
    add_command(found, first, &command);
    name_converted(found, first, converted);
    if (has_objects && !cli_foreign_has_ending(converted, ".json"))
        return cli_fail(COH_ERR_CORRUPT,
                        "%s%s%s%s would be read without %s, and lines are not read together with "
                        "objects of *.json files: %s, or put each object on a line of a *.jsonl "
                        "first",
                        dashes(flag), flag ? flag : "", flag ? " " : "", folder, files.text, move);
    return cli_fail(COH_ERR_CORRUPT,
                    "%s%s%s%s would be read without %s: if the folder holds the texts already, %s; "
                    "else convert %s with %s, and give the folder again",
                    dashes(flag), flag ? flag : "", flag ? " " : "", folder, files.text, move,
                    count > 1 ? "each" : "it", command.text);
}

void cli_foreign_note_objects(const char *folder, const char *first, uint64_t count)
{
    char files[64] = "";
    if (count > 1)
        snprintf(files, sizeof(files), "%" PRIu64 " *.json of objects; the first, ", count);
    cli_note_choice("note: %s is read without %s%s%s: next to lines and arrays an object says "
                    "something about the data; if it is a document, put it on a line of a *.jsonl",
                    folder, files, first, count > 1 ? "" : ", an object of JSON");
}

void cli_foreign_note_left_out(const char *folder, const char *first, uint64_t count,
                               const void *head, size_t head_bytes)
{
    const known *found = find_format(head, head_bytes);
    cli_line files, command;
    cli_line_clear(&files);
    add_files(first, count, found, &files);
    add_command(found, first, &command);
    cli_note_choice("note: %s is read without %s: if %s texts of the data, convert %s with %s, and "
                    "give the folder again",
                    folder, files.text, count > 1 ? "they are" : "it holds",
                    count > 1 ? "each" : "it", command.text);
}

/* ---- JSON ---- */

/* Returns the first byte from `at` on that is no white space; `end`: there is none. */
static const char *skip_white(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n'))
        at++;
    return at;
}

static const char *first_sign(const void *head, size_t head_bytes)
{
    const char *at = head, *end = at + head_bytes;
    if (head_bytes >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0)
        at += 3;
    return skip_white(at, end);
}

int cli_foreign_is_object(const void *head, size_t head_bytes)
{
    const char *at = first_sign(head, head_bytes);
    return at < (const char *)head + head_bytes && *at == '{';
}

int cli_foreign_is_json(const char *path, const void *head, size_t head_bytes)
{
    const char *end = (const char *)head + head_bytes, *at = first_sign(head, head_bytes);
    return cli_foreign_has_ending(path, ".json") && at < end && (*at == '[' || *at == '{');
}

int cli_foreign_is_array(const char *path, const void *head, size_t head_bytes)
{
    const char *end = (const char *)head + head_bytes, *at = first_sign(head, head_bytes);
    if (!cli_foreign_has_ending(path, ".json") || at == end || *at != '[')
        return 0;
    at = skip_white(at + 1, end);
    return at < end && *at == '{';
}

coh_status cli_foreign_refuse_json(const char *flag, const char *path)
{
    return cli_fail(COH_ERR_CORRUPT,
                    "%s%s%s%s is JSON, and would be learned as it is, brackets and quotes included:"
                    " add --field NAME for a text of each object, or --chat for conversations (or "
                    "name the file *.txt to learn the JSON)",
                    dashes(flag), flag ? flag : "", flag ? " " : "", path);
}

/* ---- tables ---- */

static const known *find_table(const char *path)
{
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        if (cli_foreign_has_ending(path, tables[i].ending))
            return &tables[i];
    return NULL;
}

int cli_foreign_is_table(const char *path, const void *head, size_t head_bytes)
{
    const char *end = (const char *)head + head_bytes, *at = first_sign(head, head_bytes);
    return find_table(path) != NULL && at < end && *at != '{' && *at != '[';
}

coh_status cli_foreign_refuse_table(const char *flag, const char *path)
{
    cli_line command;
    add_command(find_table(path), path, &command);
    return cli_fail(COH_ERR_CORRUPT,
                    "%s%s%s%s is a table, and would be learned as it is, separators and quotes "
                    "included: make lines of its rows with %s, and give these with --field NAME or "
                    "--chat (or name the file *.txt to learn the table)",
                    dashes(flag), flag ? flag : "", flag ? " " : "", path, command.text);
}
