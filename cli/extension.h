/* extension.h - shared objects of the user: --kinds LIBRARY, and check-kind LIBRARY:SYMBOL. */
#ifndef COH_CLI_EXTENSION_H
#define COH_CLI_EXTENSION_H

#include "cli/options.h"
#include "cohobate/extension.h"

/* Loads a shared object, which stays loaded. `path` is never looked for elsewhere. Fails:
 * COH_ERR_ARGUMENT (it does not exist), COH_ERR_CORRUPT. */
coh_status cli_shared_object_open(const char *path, void **out_object);

/* Finds and registers the extension that a shared object exports; *out_extension NULL: none.
 * `path` is for texts. Fails: as coh_extension_register; nothing of the extension may be read
 * then. */
coh_status cli_shared_object_extension(void *object, const char *path,
                                       const coh_extension **out_extension);

/* Registers the extension of each --kinds. */
coh_status cli_extensions_load(const cli_options *options);

#endif
