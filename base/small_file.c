/* Reads a small file with open and read, and finds numbers in it. Read small_file.h first;
 * memory/available.c and cgroup.c use it. */
#include "base/small_file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int coh_small_file_read(const char *root, const char *path, const char *leaf, char *text,
                        size_t text_bytes)
{
    text[0] = '\0';
    char full[2 * PATH_MAX];
    int length = snprintf(full, sizeof(full), "%s%s%s", root, path, leaf);
    if (length < 0 || (size_t)length >= sizeof(full))
        return 0;
    int fd = open(full, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    size_t used = 0;
    while (used < text_bytes - 1) {
        ssize_t got = read(fd, text + used, text_bytes - 1 - used);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    text[used] = '\0';
    close(fd);
    return used > 0;
}

int coh_small_file_number(const char *text, const char *key, uint64_t *out_number)
{
    size_t key_length = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, key, key_length) == 0) {
            char *end = NULL;
            unsigned long long number = strtoull(line + key_length, &end, 10);
            if (end == line + key_length)
                return 0;
            *out_number = number;
            return 1;
        }
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return 0;
}
