#include "cli/artefact.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

coh_status cli_artefact_find(const char *path, cli_artefact *out_artefact)
{
    struct stat facts;
    char head[64];
    if (stat(path, &facts) != 0)
        return cli_fail(COH_ERR_IO, "%s cannot be read: %s: see to its rights, or give another",
                        path, strerror(errno));
    if (S_ISDIR(facts.st_mode)) {
        *out_artefact = CLI_ARTEFACT_CHECKPOINT;
        return COH_OK;
    }
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return cli_fail(COH_ERR_IO, "%s cannot be read: %s: see to its rights, or give another",
                        path, strerror(errno));
    ssize_t got = read(descriptor, head, sizeof(head) - 1);
    close(descriptor);
    head[got > 0 ? got : 0] = '\0';
    if (head[0] != '{')
        *out_artefact = CLI_ARTEFACT_TOKENS;
    else
        *out_artefact =
            strstr(head, "\"cohobate kernels\"") ? CLI_ARTEFACT_KERNELS : CLI_ARTEFACT_PLAN;
    return COH_OK;
}

/* Using it is the check; the path of kernels then ends with the hash. */
coh_status cli_artefact_kernels_hash(const char *path, uint64_t *out_hash)
{
    static const char mark[] = "+table-";
    CLI_TRY(coh_kernels_use(path, NULL, 0));
    const char *found = strstr(coh_kernel_path(), mark);
    *out_hash = found ? strtoull(found + sizeof(mark) - 1, NULL, 16) : 0;
    return COH_OK;
}

coh_status cli_artefact_plan_hash(const char *path, uint64_t *out_hash)
{
    json_error_t error;
    CLI_TRY(coh_plan_check_file(path));
    json_t *plan = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const char *hash = json_string_value(json_object_get(plan, "program_hash"));
    coh_status status = COH_OK;
    if (hash)
        *out_hash = strtoull(hash, NULL, 16);
    else
        status = cli_fail(COH_ERR_CORRUPT, "%s holds no program hash: write the plan again", path);
    json_decref(plan);
    return status;
}
