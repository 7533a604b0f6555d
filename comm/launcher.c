/* The launcher's variables, and the module that is linked with MPI. Read launcher.h first. */
#include "comm/launcher.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory/mesh.h"

#define MODULE "libcohobate-mpi.so"

/* In this order: the first one that is set counts. */
static const struct {
    const char *name;
    int is_size; /* its value is the number of ranks */
} variables[] = {
    { "OMPI_COMM_WORLD_SIZE", 1 }, /* Open MPI's mpirun */
    { "PMI_SIZE", 1 },             /* mpirun of MPICH and of Intel, srun by PMI-2 */
    { "PMIX_RANK", 0 },            /* srun by PMIx */
};
enum { VARIABLES = sizeof(variables) / sizeof(variables[0]) };

static coh_status read_size(const char *name, const char *value, int32_t *out_rank_count)
{
    char *end;
    errno = 0;
    const long count = strtol(value, &end, 10);
    if (errno != 0 || end == value || *end != '\0' || count < 1 || count > COH_RANKS_MOST)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s is '%s' and not a number of ranks from 1 to %d: unset it, or start the "
                        "program by mpirun or srun",
                        name, value, (int)COH_RANKS_MOST);
    *out_rank_count = (int32_t)count;
    return COH_OK;
}

/* Slurm sets PMIX_RANK for every step if PMIx is its default, also for srun -n1 of a program that
 * knows no MPI. */
static int is_step_of_one(void)
{
    const char *count = getenv("SLURM_STEP_NUM_TASKS");
    return count != NULL && strcmp(count, "1") == 0;
}

coh_status coh_launcher_find(coh_launcher *out_launcher)
{
    *out_launcher = (coh_launcher){ .rank_count = 1 };
    for (int i = 0; i < VARIABLES; i++) {
        const char *value = getenv(variables[i].name);
        if (value == NULL)
            continue;
        *out_launcher = (coh_launcher){ .variable = variables[i].name };
        if (variables[i].is_size)
            return read_size(variables[i].name, value, &out_launcher->rank_count);
        out_launcher->rank_count = is_step_of_one() ? 1 : 0;
        return COH_OK;
    }
    return COH_OK;
}

/* ---- the module ---- */

/* Writes the module's path next to the object that contains this function. Returns 0 if it has no
 * known folder. */
static int path_beside(char *out_path, size_t bytes)
{
    Dl_info own;
    if (dladdr((void *)(uintptr_t)variables, &own) == 0 || own.dli_fname == NULL)
        return 0;
    const char *slash = strrchr(own.dli_fname, '/');
    if (slash == NULL)
        return 0;
    const int folder_bytes = (int)(slash + 1 - own.dli_fname);
    const int length = snprintf(out_path, bytes, "%.*s" MODULE, folder_bytes, own.dli_fname);
    return length > 0 && (size_t)length < bytes;
}

static void *open_module(void)
{
    char path[4096];
    const char *found = path_beside(path, sizeof(path)) && access(path, F_OK) == 0 ? path : MODULE;
    return dlopen(found, RTLD_NOW | RTLD_LOCAL);
}

coh_status coh_launcher_open_mpi(const coh_mpi_calls **out_calls)
{
    void *module = open_module();
    if (module == NULL)
        return coh_fail(COH_ERR_DEVICE,
                        MODULE " cannot be opened (%s): build it with -Dmpi=enabled, and install "
                               "it next to libcohobate.so or name its folder in LD_LIBRARY_PATH",
                        dlerror());
    const coh_mpi_calls *calls = dlsym(module, COH_MPI_CALLS_SYMBOL);
    if (calls == NULL || calls->table_bytes != sizeof(coh_mpi_calls))
        return coh_fail(COH_ERR_DEVICE,
                        MODULE " is of another version than this library: install both from one "
                               "build");
    *out_calls = calls;
    return COH_OK;
}
