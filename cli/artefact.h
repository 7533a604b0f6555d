/* artefact.h - what kind of thing a PATH is: a Hugging Face model (a folder with a config.json), a
 * checkpoint (any other folder), ids of llm.c or nanoGPT (*.bin), a plan, a kernel table or a
 * profile (files that begin with '{'), or a token file (any other). The name of a shipped profile
 * stands for it where there is no such path. */
#ifndef COH_CLI_ARTEFACT_H
#define COH_CLI_ARTEFACT_H

#include "cli/options.h"

typedef enum cli_artefact {
    CLI_ARTEFACT_CHECKPOINT,
    CLI_ARTEFACT_FOLDER,
    CLI_ARTEFACT_PLAN,
    CLI_ARTEFACT_KERNELS,
    CLI_ARTEFACT_PROFILE,
    CLI_ARTEFACT_TOKENS,
    CLI_ARTEFACT_IDS
} cli_artefact;

/* Of the operand. Fails: COH_ERR_IO when there is no such path, COH_ERR_ARGUMENT for --id-bytes
 * where there are no ids. */
coh_status cli_artefact_find(const cli_options *options, cli_artefact *out_artefact);

/* Is `name` (NULL: no) that of a shipped profile, with entries or without? */
int cli_artefact_is_shipped_profile(const char *name);

/* Is `path` a Hugging Face model's folder, and does it hold a tokenizer? */
int cli_artefact_is_folder(const char *path);
int cli_artefact_has_tokenizer(const char *folder);

/* Fails where `path` is a folder of adapters that PEFT wrote, which is no model by itself:
 * COH_ERR_CORRUPT, naming the model they belong to and what to do. */
coh_status cli_artefact_refuse_adapters(const char *path);

/* Fails where `path` is a folder, a run's as a rule, and `taker` takes a plan file:
 * COH_ERR_CORRUPT, naming the plan in it. */
coh_status cli_artefact_refuse_run(const char *path, const char *taker);

/* The kernel table at `path`, checked and good for this machine: the hash of its choices. */
coh_status cli_artefact_kernels_hash(const char *path, uint64_t *out_hash);

#endif
