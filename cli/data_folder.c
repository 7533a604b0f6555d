/* Looks at the files of a folder of data. The one idea: each file is of one kind by its name and
 * first bytes, and the kinds that are there decide. Next: foreign.c knows the formats, data.c is
 * the caller. */
#include "cli/data_folder.h"

#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/data.h"
#include "cli/foreign.h"
#include "cohobate/text.h"

/* As many bytes as are looked at for a NUL when the folder is read. */
enum { HEAD_BYTES = 8192 };

/* Files of one kind: the first of them in the order of names. */
typedef struct found {
    uint64_t count;
    char first[CLI_PATH_BYTES];
} found;

typedef struct content {
    found texts, lines, arrays, objects, tables, foreign;
    found about;  /* JSON that says something about the data or a model, by its name */
    found packed; /* of `foreign`: in a format that a command converts, and not converted yet */
    found shards; /* of `packed`: JSON lines, as their names say */
    uint64_t text_bytes; /* of all of these but `foreign` */
    uint64_t foreign_bytes;
    uint64_t about_bytes; /* of files about the data, which are read next to texts */
    uint64_t file_count;
} content;

static void add(found *files, const char *path)
{
    if (files->count++ == 0)
        snprintf(files->first, sizeof(files->first), "%s", path);
}

static size_t read_head(const char *path, char head[HEAD_BYTES])
{
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t got = descriptor < 0 ? 0 : read(descriptor, head, HEAD_BYTES);
    if (descriptor >= 0)
        close(descriptor);
    return got > 0 ? (size_t)got : 0;
}

static uint32_t id_at(const char *head, size_t index, size_t id_bytes)
{
    const unsigned char *at = (const unsigned char *)head + index * id_bytes;
    uint32_t id = 0;
    for (size_t i = 0; i < id_bytes; i++)
        id |= (uint32_t)at[i] << (8 * i);
    return id;
}

static int is_printable(uint32_t sign)
{
    return sign >= ' ' && sign <= '~';
}

/* Could they be ids of tokens: of several, at most half of them 0, half of them two letters, and
 * one in a hundred from `most` on? */
static int are_ids(const char *head, size_t head_bytes, size_t id_bytes, uint32_t most)
{
    const size_t count = head_bytes / id_bytes;
    size_t others = 0, zeros = 0, letters = 0, above = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t id = id_at(head, i, id_bytes);
        others += id != id_at(head, 0, id_bytes);
        zeros += id == 0;
        letters += is_printable(id >> 8) && is_printable(id & 0xff);
        above += id >= most;
    }
    return others > 0 && 2 * zeros <= count && 2 * letters <= count && 100 * above <= count;
}

/* The names of firmware and weights (a zip, or numbers) end in .bin, too. Code and numbers have
 * many large pairs of bytes; among ids of 2 bytes those are rare, as tokenizers with so many tokens
 * give the rare ones the largest ids. In doubt they are ids, so that no data is left out. */
static int is_ids(const char *path, const char *head, size_t head_bytes, uint64_t file_bytes)
{
    enum { LLMC_NARROW = 20240520, LLMC_WIDE = 20240801, ZIP = 0x04034b50 };
    enum { NARROW_MOST = 50257, WIDE_MOST = 1 << 20 };
    const uint32_t first = head_bytes >= 4 ? id_at(head, 0, 4) : 0;
    if (!cli_data_is_raw(path, head, head_bytes) || !memchr(head, 0, head_bytes) ||
        file_bytes % 2 != 0 || first == ZIP)
        return 0;
    if (first == LLMC_NARROW || first == LLMC_WIDE)
        return 1;
    return are_ids(head, head_bytes, 2, NARROW_MOST) || are_ids(head, head_bytes, 4, WIDE_MOST);
}

/* A file next to what was made of it is no other data. */
static void take_foreign(const char *path, const char *head, size_t head_bytes, uint64_t file_bytes,
                         content *out)
{
    const int is_known = cli_foreign_is_known(path, head, head_bytes);
    if (is_known && cli_foreign_is_converted(path, head, head_bytes))
        return;
    add(&out->foreign, path);
    out->foreign_bytes += file_bytes;
    if (!is_known)
        return;
    add(&out->packed, path);
    if (cli_foreign_is_shard(path, head, head_bytes))
        add(&out->shards, path);
}

static void take(const char *path, const char *name, uint64_t file_bytes, content *out)
{
    char head[HEAD_BYTES];
    const size_t got = read_head(path, head);
    found *of = &out->texts;
    out->file_count++;
    if (got == 0)
        return;
    if (cli_data_is_tokens(head, got)) {
        add(&out->foreign, path);
        out->foreign_bytes++; /* texts may lie next to the tokens that were made of them */
        return;
    }
    if (cli_foreign_is_known(path, head, got) || is_ids(path, head, got, file_bytes)) {
        take_foreign(path, head, got, file_bytes, out);
        return;
    }
    if (cli_data_is_named_lines(path))
        of = &out->lines;
    else if (memchr(head, 0, got))
        return;
    else if (coh_text_is_about_data(name))
        of = cli_foreign_is_json(path, head, got) ? &out->about : NULL;
    else if (cli_foreign_is_table(path, head, got))
        of = &out->tables;
    else if (cli_foreign_is_array(path, head, got))
        of = &out->arrays;
    else if (cli_foreign_is_json(path, head, got))
        of = &out->objects;
    if (of)
        add(of, path);
    *(of && of != &out->about ? &out->text_bytes : &out->about_bytes) += file_bytes;
}

static int compare_names(const FTSENT **left, const FTSENT **right)
{
    return strcmp((*left)->fts_name, (*right)->fts_name);
}

/* Takes the files that are read of a folder, at most `files_most`: links to files, too, and no
 * hidden ones. */
static void walk(const char *folder, uint64_t files_most, content *out)
{
    char *const roots[] = { (char *)folder, NULL };
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, compare_names);
    FTSENT *entry;
    struct stat facts;
    while (tree && out->file_count < files_most && (entry = fts_read(tree))) {
        if (entry->fts_level > FTS_ROOTLEVEL && entry->fts_name[0] == '.')
            (void)fts_set(tree, entry, FTS_SKIP);
        else if ((entry->fts_info == FTS_F || entry->fts_info == FTS_SL) &&
                 stat(entry->fts_path, &facts) == 0 && S_ISREG(facts.st_mode))
            take(entry->fts_path, entry->fts_name, (uint64_t)facts.st_size, out);
    }
    if (tree)
        (void)fts_close(tree);
}

/* Are its lines read without a flag? Objects of JSON next to lines say something about them. */
static int are_lines(const content *held)
{
    return held->texts.count + held->tables.count == 0 && held->lines.count > 0;
}

/* Are its objects of JSON read with a flag, one a file or several? */
static int are_objects(const content *held)
{
    return held->lines.count + held->arrays.count == 0 && held->objects.count > 0;
}

/* Is what is no text the data, next to texts that say something about it? */
static int is_foreign(const content *held)
{
    enum { FEW_BYTES = 64 << 10, FEW_FILES = 8 };
    const uint64_t texts = held->texts.count + held->lines.count + held->arrays.count +
                           held->objects.count + held->tables.count;
    return held->foreign_bytes > held->text_bytes && held->text_bytes <= FEW_BYTES &&
           texts <= FEW_FILES;
}

static coh_status refuse_foreign(const char *flag, const char *folder, int takes_lines,
                                 const content *held)
{
    const found *foreign = &held->foreign;
    const int has_texts =
        takes_lines ? are_objects(held) : held->texts.count + held->lines.count > 0;
    char head[HEAD_BYTES];
    const size_t got = read_head(foreign->first, head);
    return cli_foreign_refuse_folder(flag, folder, foreign->first, foreign->count, has_texts, head,
                                     got);
}

/* What is left out next to what is read: a part of the data set, or not the data at all. */
static coh_status check_left_out(const char *flag, const char *folder, int is_lines,
                                 const content *held)
{
    const found *files = is_lines && held->shards.count > 0 ? &held->shards : &held->packed;
    char head[HEAD_BYTES];
    if (is_lines && held->objects.count > 0 && !are_objects(held))
        cli_foreign_note_objects(folder, held->objects.first, held->objects.count);
    if (files->count == 0)
        return COH_OK;
    const size_t got = read_head(files->first, head);
    if (files == &held->shards)
        return cli_foreign_refuse_shards(flag, folder, files->first, files->count,
                                         are_objects(held), head, got);
    cli_foreign_note_left_out(folder, files->first, files->count, head, got);
    return COH_OK;
}

coh_status cli_data_folder_look(const char *flag, const char *folder, int takes_lines,
                                int *out_is_lines)
{
    content held = { 0 };
    *out_is_lines = takes_lines;
    walk(folder, UINT64_MAX, &held);
    const int is_none = takes_lines ? held.lines.count + held.arrays.count + held.objects.count == 0
                                    : held.lines.count + held.texts.count == 0;
    /* objects next to an archive are the data; next to compressed lines they may be about these */
    const int may_be_foreign = !takes_lines || (held.lines.count + held.arrays.count == 0 &&
                                                (!are_objects(&held) || held.shards.count > 0));
    if (held.foreign.count > 0 &&
        ((takes_lines && is_none) || (may_be_foreign && is_foreign(&held))))
        return refuse_foreign(flag, folder, takes_lines, &held);
    if (is_none && held.tables.count > 0)
        return cli_foreign_refuse_table(NULL, held.tables.first);
    const found *json = held.arrays.count > 0    ? &held.arrays
                        : held.objects.count > 0 ? &held.objects
                                                 : &held.about;
    if (is_none && !takes_lines && json->count > 0)
        return cli_foreign_refuse_json(NULL, json->first);
    *out_is_lines |= are_lines(&held);
    return is_none ? COH_OK : check_left_out(flag, folder, *out_is_lines, &held);
}

uint64_t cli_data_folder_text_bytes(const char *folder)
{
    enum { FILES_MOST = 4096 };
    content held = { 0 };
    walk(folder, FILES_MOST, &held);
    return are_lines(&held) ? 0 : held.text_bytes + held.about_bytes;
}
