/* artefact.h - what kind of thing a PATH is: a checkpoint (a folder), a plan or a kernel table
 * (files that begin with '{'), or a token file (any other). */
#ifndef COH_CLI_ARTEFACT_H
#define COH_CLI_ARTEFACT_H

#include "cli/say.h"

typedef enum cli_artefact {
    CLI_ARTEFACT_CHECKPOINT,
    CLI_ARTEFACT_PLAN,
    CLI_ARTEFACT_KERNELS,
    CLI_ARTEFACT_TOKENS
} cli_artefact;

/* Fails: COH_ERR_IO when there is no such path. */
coh_status cli_artefact_find(const char *path, cli_artefact *out_artefact);

/* The kernel table at `path`, checked and good for this machine: the hash of its choices. */
coh_status cli_artefact_kernels_hash(const char *path, uint64_t *out_hash);

/* The plan file at `path`, checked: its program hash. */
coh_status cli_artefact_plan_hash(const char *path, uint64_t *out_hash);

#endif
