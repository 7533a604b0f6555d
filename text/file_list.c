/* Lists the files under a folder in an order that does not depend on the file system. The one idea:
 * all paths are collected, then sorted by their bytes. Next: token_build.c, the caller. */
#include "text/token_file.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"

/* Deeper than any source tree; stops recursion in a file system with loops. */
#define DEPTH_MAX 64

/* The list to fill, and the kind of files to list. */
typedef struct listing {
    coh_file_list *list;
    int is_lines;
} listing;

static coh_status list_folder(const listing *l, const char *folder, int depth);

static int ends_with(const char *name, const char *ending)
{
    size_t count = strlen(name), ending_count = strlen(ending);
    return count >= ending_count && strcmp(name + count - ending_count, ending) == 0;
}

int coh_file_list_is_lines(const char *name)
{
    return ends_with(name, ".jsonl") || ends_with(name, ".ndjson");
}

static coh_status list_entry(const listing *l, const char *folder, const char *name, int depth)
{
    coh_file_list *list = l->list;
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
        return coh_fail(COH_ERR_ARGUMENT, "a path under %.200s is longer than %d bytes", folder,
                        PATH_MAX - 1);
    struct stat facts;
    if (lstat(path, &facts) != 0)
        return coh_fail(COH_ERR_IO, "cannot look at %s: %s", path, strerror(errno));
    if (S_ISDIR(facts.st_mode))
        return list_folder(l, path, depth + 1);
    /* Links to files are followed; links to folders are not, since they may form a loop. */
    if (S_ISLNK(facts.st_mode) && stat(path, &facts) != 0)
        return coh_fail(COH_ERR_IO, "cannot follow the link %s: %s: mend it, or take it away", path,
                        strerror(errno));
    if (!S_ISREG(facts.st_mode) || (l->is_lines && !coh_file_list_is_lines(name)))
        return COH_OK;
    COH_TRY(COH_GROW(&list->paths, &list->capacity, list->count + 1));
    COH_TRY(coh_alloc_text(path, &list->paths[list->count]));
    list->count++;
    return COH_OK;
}

static coh_status list_folder(const listing *l, const char *folder, int depth)
{
    if (depth > DEPTH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "%.200s lies deeper than %d folders", folder, DEPTH_MAX);
    DIR *directory = opendir(folder);
    if (!directory)
        return coh_fail(COH_ERR_IO, "cannot open folder %s: %s: see to its rights, or leave it out",
                        folder, strerror(errno));
    coh_status status = COH_OK;
    while (status == COH_OK) {
        errno = 0;
        struct dirent *entry = readdir(directory);
        if (!entry && errno != 0)
            status = coh_fail(COH_ERR_IO, "reading folder %s failed: %s", folder, strerror(errno));
        if (!entry)
            break;
        if (entry->d_name[0] != '.')
            status = list_entry(l, folder, entry->d_name, depth);
    }
    closedir(directory);
    return status;
}

static int compare_paths(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

coh_status coh_file_list_fill(coh_file_list *list, const char *folder, int is_lines)
{
    const listing l = { list, is_lines };
    /* All paths begin with "<folder>/", so comparing whole paths compares the rest. */
    COH_TRY(list_folder(&l, folder, 0));
    if (list->count > 1)
        qsort(list->paths, list->count, sizeof(*list->paths), compare_paths);
    return COH_OK;
}

void coh_file_list_free(coh_file_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        coh_free(list->paths[i]);
    coh_free(list->paths);
    *list = (coh_file_list){ 0 };
}
