/* extension.h - shared objects of the user: --kinds LIBRARY, and check-kind LIBRARY:SYMBOL. */
#ifndef COH_CLI_EXTENSION_H
#define COH_CLI_EXTENSION_H

#include "cli/options.h"
#include "cohobate/extension.h"

/* Loads a shared object, which stays loaded. `path` is never looked for elsewhere. Fails:
 * COH_ERR_ARGUMENT (it does not exist), COH_ERR_CORRUPT. */
coh_status cli_shared_object_open(const char *path, void **out_object);

/* Returns the extension that a shared object exports, or NULL. */
const coh_extension *cli_shared_object_extension(void *object);

/* Registers the extension of each --kinds. */
coh_status cli_extensions_load(const cli_options *options);

#endif
