/* A program outside the repository: check_install.sh builds it against the installed library
 * only. */
#include <cohobate/cohobate.h>

#include <dirent.h>
#include <stdio.h>

/* Counts entries of /proc/self/task except "." and "..". */
static int thread_count(void)
{
    int count = -2;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks != NULL && readdir(tasks) != NULL)
        count++;
    if (tasks != NULL)
        closedir(tasks);
    return count;
}

int main(void)
{
    uint64_t bytes = 0;
    if (thread_count() != 1) {
        fprintf(stderr, "loading the library started %d threads\n", thread_count() - 1);
        return 1;
    }
    if (coh_size_parse("64MiB", &bytes) != COH_OK || bytes != 64u << 20)
        return 1;
    if (coh_size_parse("64", &bytes) == COH_OK || coh_last_error()[0] == '\0')
        return 1;
    /* Reaches the kernels of every instruction set: the archive must contain all of them. */
    printf("%s, kernel path %s; told: %s\n", coh_version(), coh_kernel_path(), coh_last_error());
    if (thread_count() != 1) {
        fprintf(stderr, "choosing the kernels left %d threads behind\n", thread_count() - 1);
        return 1;
    }
    return 0;
}
