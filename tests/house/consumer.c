/* A program outside the tree: built by check_install.sh against the installed library alone. */
#include <cohobate/cohobate.h>

#include <stdio.h>

int main(void)
{
    uint64_t bytes = 0;
    if (coh_size_parse("64MiB", &bytes) != COH_OK || bytes != 64u << 20)
        return 1;
    if (coh_size_parse("64", &bytes) == COH_OK || coh_last_error()[0] == '\0')
        return 1;
    printf("a program of its own reads 64MiB and is told: %s\n", coh_last_error());
    return 0;
}
