/* Loads shared objects of the user, and registers the extensions that they export. The one idea: a
 * model or an optimizer of an extension is then found by name, so no command knows of extensions.
 * Next: cohobate/extension.h. */
#include "cli/extension.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "cli/say.h"

coh_status cli_shared_object_open(const char *path, void **out_object)
{
    char whole[PATH_MAX];
    struct stat found;
    if (stat(path, &found) != 0 || realpath(path, whole) == NULL)
        return cli_fail(COH_ERR_ARGUMENT, "%s does not exist: build it first", path);
    *out_object = dlopen(whole, RTLD_NOW | RTLD_LOCAL);
    if (*out_object == NULL)
        return cli_fail(COH_ERR_CORRUPT, "%s is no library that can be loaded: %s", path,
                        dlerror());
    return COH_OK;
}

coh_status cli_shared_object_extension(void *object, const char *path,
                                       const coh_extension **out_extension)
{
    void *address = dlsym(object, COH_EXTENSION_SYMBOL);
    coh_extension_function *function;
    *out_extension = NULL;
    if (address == NULL)
        return COH_OK;
    *(void **)&function = address; /* POSIX's way from an object's address to a function's */
    const coh_extension *extension = function();
    if (extension == NULL)
        return COH_OK;
    const coh_status status = coh_extension_register(extension);
    if (status != COH_OK)
        return cli_fail(status, "%s: %s", path, coh_last_error());
    *out_extension = extension;
    return COH_OK;
}

static coh_status load(const char *path)
{
    void *object;
    const coh_extension *extension;
    CLI_TRY(cli_shared_object_open(path, &object));
    CLI_TRY(cli_shared_object_extension(object, path, &extension));
    if (extension == NULL)
        return cli_fail(COH_ERR_CORRUPT,
                        "%s exports no extension: define one with COH_EXTENSION "
                        "(cohobate/extension.h)",
                        path);
    return COH_OK;
}

coh_status cli_extensions_load(const cli_options *options)
{
    for (int i = 0; options->kinds[i] != NULL; i++)
        CLI_TRY(load(options->kinds[i]));
    return COH_OK;
}
