/* folder.h - a temporary folder for one test, and small files in it. */
#ifndef COH_TESTS_TEXT_FOLDER_H
#define COH_TESTS_TEXT_FOLDER_H

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/temporary.h"

static char folder_path[PATH_MAX - 256];

static inline int folder_create(void **state)
{
    (void)state;
    return temporary_folder(folder_path, sizeof(folder_path), "text");
}

static inline int folder_remove(void **state)
{
    (void)state;
    return temporary_remove(folder_path);
}

/* Returns the path of `name` in the folder; eight results are valid at a time. */
static inline const char *folder_file(const char *name)
{
    static char paths[8][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, PATH_MAX, "%s/%s", folder_path, name);
    return path;
}

static inline void folder_write(const char *name, const void *bytes, size_t byte_count)
{
    FILE *file = fopen(folder_file(name), "wb");
    if (!file || fwrite(bytes, 1, byte_count, file) != byte_count || fclose(file) != 0)
        abort();
}

/* Reads a whole file and appends a NUL; the caller frees it. */
static inline char *folder_read(const char *path, size_t *out_bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        abort();
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(bytes + 1);
    if (!text || fread(text, 1, bytes, file) != bytes)
        abort();
    fclose(file);
    text[bytes] = '\0';
    if (out_bytes)
        *out_bytes = bytes;
    return text;
}

/* Number of files and folders in the folder, without itself. */
static int folder_entries;
static inline int folder_count_entry(const char *path, const struct stat *facts, int type,
                                     struct FTW *place)
{
    (void)path;
    (void)facts;
    (void)type;
    folder_entries += place->level > 0;
    return 0;
}

static inline int folder_count(void)
{
    folder_entries = 0;
    if (nftw(folder_path, folder_count_entry, 16, FTW_PHYS) != 0)
        abort();
    return folder_entries;
}

#endif
