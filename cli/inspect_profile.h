/* inspect_profile.h - a profile's figures, for people and machines, and where they come from. */
#ifndef COH_CLI_INSPECT_PROFILE_H
#define COH_CLI_INSPECT_PROFILE_H

#include "cli/options.h"

/* To standard output. Fails: COH_ERR_MEMORY. */
coh_status cli_inspect_profile(const cli_options *options, const coh_profile *profile);

#endif
