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
    char first = 0;
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
    ssize_t got = read(descriptor, &first, 1);
    close(descriptor);
    *out_artefact = got == 1 && first == '{' ? CLI_ARTEFACT_PLAN : CLI_ARTEFACT_TOKENS;
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
