/* A statvfs that takes the place of the system's: with COH_TEST_FREE_BYTES=<n> every file system
 * has at most that much free, and with COH_TEST_FREE_FILES=<n> room for that many files. Read
 * file_faults.h first. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

int statvfs(const char *path, struct statvfs *out_space)
{
    const char *told = getenv("COH_TEST_FREE_BYTES"), *files = getenv("COH_TEST_FREE_FILES");
    const int descriptor = open(path, O_PATH | O_CLOEXEC);
    if (descriptor < 0)
        return -1;
    const int result = fstatvfs(descriptor, out_space);
    const int error = errno;
    close(descriptor);
    errno = error;
    if (result == 0 && files != NULL) {
        out_space->f_files = UINT32_MAX;
        out_space->f_ffree = out_space->f_favail = strtoull(files, NULL, 10);
    }
    if (result != 0 || told == NULL || out_space->f_frsize == 0)
        return result;
    const uint64_t blocks = strtoull(told, NULL, 10) / out_space->f_frsize;
    if (blocks < out_space->f_bavail)
        out_space->f_bavail = blocks;
    return 0;
}
