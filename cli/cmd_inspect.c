/* cohobate inspect: prints what an artefact holds. The one idea: the kind of the path chooses the
 * printer; larger ones have separate files. Next: inspect_folder.c, inspect_plan.c,
 * inspect_profile.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/artefact.h"
#include "cli/commands.h"
#include "cli/data.h"
#include "cli/inspect_folder.h"
#include "cli/inspect_plan.h"
#include "cli/inspect_profile.h"
#include "cli/parameter_groups.h"
#include "cli/weights.h"

/* ---- a checkpoint ---- */

/* Adds the names of the checkpoint's optimizers, in the order in which tensors name them:
 * `before` NAME `after`, with ", " between two. */
static coh_status add_optimizers(const coh_checkpoint *checkpoint,
                                 const coh_checkpoint_facts *facts, const char *before,
                                 const char *after, cli_line *line)
{
    const char *names[COH_OPTIMIZER_CHOICES_MOST + 1]; /* no plan has more */
    int count = 0;
    for (int32_t i = 0; i < facts->tensor_count; i++) {
        coh_checkpoint_tensor tensor;
        CLI_TRY(coh_checkpoint_tensor_at(checkpoint, i, &tensor));
        int is_known = tensor.optimizer == NULL || count > COH_OPTIMIZER_CHOICES_MOST;
        for (int k = 0; k < count && !is_known; k++)
            is_known = strcmp(names[k], tensor.optimizer) == 0;
        if (is_known)
            continue;
        cli_line_add(line, "%s%s%s%s", count > 0 ? ", " : "", before, tensor.optimizer, after);
        names[count++] = tensor.optimizer;
    }
    return COH_OK;
}

static coh_status checkpoint_json(const coh_checkpoint *checkpoint,
                                  const coh_checkpoint_facts *facts, uint64_t hash)
{
    cli_line line, optimizers;
    cli_line_clear(&line);
    cli_line_clear(&optimizers);
    cli_line_add_json_string(&line, facts->path);
    CLI_TRY(add_optimizers(checkpoint, facts, "\"", "\"", &optimizers));
    printf("{\"type\": \"checkpoint\", \"path\": %s, \"step\": %" PRIu64
           ", \"applied_count\": %" PRIu64 ", \"parameters\": %" PRIu64 ", \"tensors\": %d"
           ", \"bytes\": %" PRIu64 ", \"has_states\": %s, \"optimizers\": [%s]"
           ", \"numeric_fingerprint\": \"%016" PRIx64 "\", \"hash\": \"%016" PRIx64
           "\", \"note\": %s}\n",
           line.text, facts->step, facts->applied_count, facts->parameter_count,
           facts->tensor_count, facts->bytes, facts->stream_count > 0 ? "true" : "false",
           optimizers.text, facts->numeric_fingerprint, hash, facts->note_json);
    return COH_OK;
}

/* Prints the groups of parameters if the note is one of train's. */
static void print_groups(const char *note_json)
{
    cli_recipe recipe;
    cli_line line;
    if (cli_recipe_from_note(note_json, &recipe) != COH_OK)
        return;
    cli_line_clear(&line);
    cli_parameter_groups_describe(&recipe, NULL, &line);
    printf("%s", line.text);
}

static coh_status checkpoint_text(const coh_checkpoint *checkpoint,
                                  const coh_checkpoint_facts *facts)
{
    char bytes[32];
    cli_line optimizers;
    cli_line_clear(&optimizers);
    CLI_TRY(add_optimizers(checkpoint, facts, "", "", &optimizers));
    printf("checkpoint %s\n  step %" PRIu64 ", %" PRIu64 " updates applied, %" PRIu64
           " parameters in %d tensors, %s%s%s%s\n  numeric plan %016" PRIx64 "\n  hash %016" PRIx64
           " (as saved; --hash reads every byte)\n  note %s\n",
           facts->path, facts->step, facts->applied_count, facts->parameter_count,
           facts->tensor_count, coh_size_format(facts->bytes, bytes, sizeof(bytes)),
           facts->stream_count > 0 ? ", with optimizer states" : "",
           facts->is_trained ? ", trained by " : "", optimizers.text, facts->numeric_fingerprint,
           facts->hash, facts->note_json);
    print_groups(facts->note_json);
    for (int32_t i = 0; i < facts->tensor_count; i++) {
        coh_checkpoint_tensor tensor;
        CLI_TRY(coh_checkpoint_tensor_at(checkpoint, i, &tensor));
        printf("  %-40s", tensor.name);
        for (int32_t d = 0; d < tensor.shape.rank; d++)
            printf("%s%" PRId64, d ? " x " : "", tensor.shape.dim[d]);
        printf("\n");
    }
    return COH_OK;
}

static coh_status inspect_open_checkpoint(const cli_options *options, coh_checkpoint *checkpoint,
                                          const coh_checkpoint_facts *facts)
{
    uint64_t hash = facts->hash;
    if (options->hash)
        CLI_TRY(coh_checkpoint_check(checkpoint, &hash));
    if (options->json)
        return checkpoint_json(checkpoint, facts, hash);
    if (!options->hash)
        return checkpoint_text(checkpoint, facts);
    printf("%016" PRIx64 "\n", hash);
    return COH_OK;
}

static coh_status inspect_checkpoint(const cli_options *options)
{
    cli_weights weights;
    CLI_TRY(cli_weights_open_checkpoint(options->operand, &weights));
    const coh_status status = inspect_open_checkpoint(options, weights.checkpoint, &weights.facts);
    cli_weights_close(&weights);
    return status;
}

/* ---- a token file ---- */

static coh_status inspect_open_tokens(const cli_options *options, coh_token_file *file)
{
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    double entropy;
    char kind[96] = "";
    CLI_TRY(coh_token_file_facts_get(file, &facts));
    if (facts.window > 0)
        snprintf(kind, sizeof(kind), "  documents aligned for sequences of %" PRId64 " tokens\n",
                 facts.window);
    else if (facts.has_mask)
        snprintf(kind, sizeof(kind), "  conversations: only what the assistant says counts\n");
    if (options->hash)
        CLI_TRY(coh_token_file_check(file));
    CLI_TRY(coh_token_file_unigram_entropy(file, &entropy));
    if (options->json)
        printf("{\"type\": \"tokens\", \"tokens\": %" PRIu64 ", \"vocabulary\": %" PRId64
               ", \"tokenizer_identity\": \"%016" PRIx64 "\", \"hash\": \"%016" PRIx64
               "\", \"unigram_entropy\": %.17g, \"has_mask\": %s, \"window\": %" PRId64 "}\n",
               facts.token_count, facts.vocabulary, facts.tokenizer_identity, facts.hash, entropy,
               facts.has_mask ? "true" : "false", facts.window);
    else if (options->hash)
        printf("%016" PRIx64 "\n", facts.hash);
    else
        printf("token file %s\n  %" PRIu64 " tokens of a vocabulary of %" PRId64
               " (tokenizer %016" PRIx64 ")\n  unigram entropy %.4f nats: the loss without any"
               " context\n%s  hash %016" PRIx64 "\n",
               options->operand, facts.token_count, facts.vocabulary, facts.tokenizer_identity,
               entropy, kind, facts.hash);
    return COH_OK;
}

static coh_status inspect_tokens(const cli_options *options)
{
    coh_token_file *file;
    CLI_TRY(coh_token_file_open(options->operand, &file));
    coh_status status = inspect_open_tokens(options, file);
    coh_token_file_close(file);
    return status;
}

/* Files of other programs name neither vocabulary nor tokenizer: finds the smallest possible
 * vocabulary. */
static coh_status inspect_open_ids(const cli_options *options, coh_token_file *file)
{
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    double entropy;
    CLI_TRY(coh_token_file_facts_get(file, &facts));
    CLI_TRY(coh_token_file_unigram_entropy(file, &entropy));
    if (options->json)
        printf("{\"type\": \"ids\", \"form\": \"%s\", \"tokens\": %" PRIu64
               ", \"id_bytes\": %" PRId32 ", \"vocabulary\": %" PRId64 ", \"hash\": \"%016" PRIx64
               "\", \"unigram_entropy\": %.17g}\n",
               facts.is_llmc ? "llm.c" : "nanoGPT", facts.token_count, facts.id_bytes,
               facts.vocabulary, facts.hash, entropy);
    else if (options->hash)
        printf("%016" PRIx64 "\n", facts.hash);
    else
        printf("id file %s\n  %" PRIu64 " tokens of %" PRId32
               " bytes, %s\n  needs a vocabulary of %" PRId64
               " at least; which tokenizer made it, it does not say\n  unigram entropy %.4f nats: "
               "the loss without any context\n  hash %016" PRIx64 "\n",
               options->operand, facts.token_count, facts.id_bytes,
               facts.is_llmc ? "behind llm.c's header"
                             : "without a header, as nanoGPT writes them (--id-bytes if not)",
               facts.vocabulary, entropy, facts.hash);
    return COH_OK;
}

static coh_status inspect_ids(const cli_options *options)
{
    coh_token_file *file;
    CLI_TRY(coh_token_file_open_raw(options->operand, 0, cli_data_id_bytes(options), &file));
    const coh_status status = inspect_open_ids(options, file);
    coh_token_file_close(file);
    return status;
}

static coh_status inspect_kernels(const cli_options *options)
{
    uint64_t hash;
    CLI_TRY(cli_artefact_kernels_hash(options->operand, &hash));
    if (options->json)
        printf("{\"type\": \"kernels\", \"hash\": \"%016" PRIx64 "\"}\n", hash);
    else if (options->hash)
        printf("%016" PRIx64 "\n", hash);
    else
        printf("kernel table %s\n  hash %016" PRIx64 " (the file is JSON for people, too)\n",
               options->operand, hash);
    return COH_OK;
}

static coh_status inspect_profile(const cli_options *options)
{
    coh_profile *profile;
    CLI_TRY(coh_profile_read(options->operand, &profile));
    coh_status status = cli_inspect_profile(options, profile);
    coh_profile_destroy(profile);
    return status;
}

coh_status cli_inspect(const cli_options *options)
{
    cli_artefact artefact;
    CLI_TRY(cli_artefact_find(options, &artefact));
    switch (artefact) {
    case CLI_ARTEFACT_CHECKPOINT:
        return inspect_checkpoint(options);
    case CLI_ARTEFACT_FOLDER:
        return cli_inspect_folder(options);
    case CLI_ARTEFACT_PLAN:
        return cli_inspect_plan(options);
    case CLI_ARTEFACT_KERNELS:
        return inspect_kernels(options);
    case CLI_ARTEFACT_PROFILE:
        return inspect_profile(options);
    case CLI_ARTEFACT_TOKENS:
        return inspect_tokens(options);
    case CLI_ARTEFACT_IDS:
        return inspect_ids(options);
    }
    return COH_OK;
}
