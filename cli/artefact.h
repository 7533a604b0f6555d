/* artefact.h - finds the kind of a PATH: a Hugging Face model (a folder with a config.json), a
 * checkpoint (any other folder), ids of llm.c or nanoGPT (*.bin), a plan, a kernel table or a
 * profile (files that begin with '{'), or a token file (any other). If the path does not exist, it
 * may be the name of a profile. */
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

/* Finds the kind of the operand. Fails: COH_ERR_IO if the path does not exist, COH_ERR_ARGUMENT for
 * --id-bytes if it does not hold ids, COH_ERR_CORRUPT for a file that begins like none of ours. */
coh_status cli_artefact_find(const cli_options *options, cli_artefact *out_artefact);

/* Is `name` (NULL: no) the name of a shipped profile, or built-in, with or without entries? */
int cli_artefact_is_profile_name(const char *name);

/* Writes the name nearest to the last part of a mistyped path, or the two that may be meant; "" if
 * none is near. `name_at` returns NULL beyond the last name. */
enum { CLI_MEANT_BYTES = 96 };
void cli_artefact_meant(const char *path, const char *(*name_at)(int32_t index),
                        char text[CLI_MEANT_BYTES]);

/* Is it the name of a preset? */
int cli_artefact_is_preset(const char *name);

/* Is `path` a Hugging Face model's folder, and does it hold a tokenizer? */
int cli_artefact_is_folder(const char *path);
int cli_artefact_has_tokenizer(const char *folder);

/* The member of an exported config.json that says "bytes" if the ids are bytes, for which there is
 * no tokenizer's file; other programs ignore it. */
#define CLI_BYTES_MEMBER "cohobate_tokenizer"
/* Does the folder of a model hold no tokenizer, and say that its ids are bytes? */
int cli_artefact_is_of_bytes(const char *folder);

/* Is it the name of a checkpoint, "step-<number>"? */
int cli_artefact_is_step(const char *name);

/* Is `path` the folder, or does it lie in it? One of several tokenizers of a folder has its ids. */
int cli_artefact_is_within(const char *folder, const char *path);

/* Fails if `path` is a folder of PEFT adapters, which is not a model by itself: COH_ERR_CORRUPT,
 * naming the base model and the remedy. */
coh_status cli_artefact_refuse_adapters(const char *path);
/* Fails if `path` is an entry of the Hugging Face Hub's cache, whose models are folders in it:
 * COH_ERR_CORRUPT, naming that of its main branch. */
coh_status cli_artefact_refuse_cache(const char *path);
/* Prints a note if the folder `adapters` names a model as its own whose name is not that of the
 * model's `folder`. Names and shapes of tensors fit those of many a model. */
void cli_artefact_say_other_base(const char *adapters, const char *folder);

/* Fails if `path` is a folder (usually a run's) but `taker` takes a plan file: COH_ERR_CORRUPT,
 * naming the plan in the folder. */
coh_status cli_artefact_refuse_run(const char *path, const char *taker);

/* Checks that the kernel table at `path` is valid for this machine, and returns the hash of its
 * choices. */
coh_status cli_artefact_kernels_hash(const char *path, uint64_t *out_hash);

#endif
