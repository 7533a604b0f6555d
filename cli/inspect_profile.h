/* inspect_profile.h - prints a profile's figures and their origin, as text or JSON. */
#ifndef COH_CLI_INSPECT_PROFILE_H
#define COH_CLI_INSPECT_PROFILE_H

#include "cli/options.h"

/* Prints to standard output. Fails: COH_ERR_MEMORY. */
coh_status cli_inspect_profile(const cli_options *options, const coh_profile *profile);

#endif
