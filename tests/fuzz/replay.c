/* Runs a fuzz target without a fuzzer: on every file of a folder. */
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Allocates exactly the file's size, so that a sanitizer detects accesses past it. */
static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        return 0;
    long size = ftell(file);
    rewind(file);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    int is_read = data && size >= 0 && fread(data, 1, (size_t)size, file) == (size_t)size;
    fclose(file);
    if (is_read)
        (void)LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return is_read;
}

int main(int argc, char **argv)
{
    int count = 0;
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) {
        fprintf(stderr, "name the folder of a corpus\n");
        return 2;
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[PATH_MAX];
        if (entry->d_name[0] == '.')
            continue;
        if (snprintf(path, sizeof(path), "%s/%s", argv[1], entry->d_name) >= (int)sizeof(path) ||
            !replay(path)) {
            fprintf(stderr, "cannot read %s\n", path);
            return 1;
        }
        count++;
    }
    closedir(folder);
    printf("%d inputs\n", count);
    return count > 0 ? 0 : 1;
}
