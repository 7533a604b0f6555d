/* Finds the kind of a path by its type, its name and its first bytes. The one idea: commands decide
 * by this kind only, and refuse other kinds with a remedy. Next: input.c, and cmd_inspect.c as
 * a caller. */
#include "cli/artefact.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/data.h"
#include "report/run.h"

static coh_status cannot_read(const char *path)
{
    return cli_fail(COH_ERR_IO, "%s cannot be read: %s: %s", path, strerror(errno),
                    cli_open_remedy(errno));
}

static int holds(const char *folder, const char *name)
{
    char path[CLI_PATH_BYTES];
    return snprintf(path, sizeof(path), "%s/%s", folder, name) < CLI_PATH_BYTES &&
           access(path, F_OK) == 0;
}

int cli_artefact_is_folder(const char *path)
{
    return holds(path, "config.json");
}

int cli_artefact_is_preset(const char *name)
{
    coh_model ignored;
    return coh_model_preset(name, 0, &ignored) == COH_OK;
}

int cli_artefact_has_tokenizer(const char *folder)
{
    return holds(folder, "tokenizer.json") || holds(folder, "tokenizer.model") ||
           (holds(folder, "vocab.json") && holds(folder, "merges.txt"));
}

/* No larger file is read as a config.json. */
enum { CONFIG_BYTES_MOST = 1 << 20 };

int cli_artefact_is_of_bytes(const char *folder)
{
    char file[CLI_PATH_BYTES];
    const int length = snprintf(file, sizeof(file), "%s/config.json", folder);
    struct stat facts;
    if (length >= CLI_PATH_BYTES || cli_artefact_has_tokenizer(folder) || stat(file, &facts) != 0 ||
        !S_ISREG(facts.st_mode) || facts.st_size > CONFIG_BYTES_MOST)
        return 0;
    json_t *config = json_load_file(file, 0, NULL);
    const char *tokenizer = json_string_value(json_object_get(config, CLI_BYTES_MEMBER));
    const int is_bytes = tokenizer && strcmp(tokenizer, "bytes") == 0;
    json_decref(config);
    return is_bytes;
}

int cli_artefact_is_step(const char *name)
{
    uint64_t step;
    const char *rest = report_step_of(name, &step);
    return rest && rest[0] == '\0';
}

int cli_artefact_is_within(const char *folder, const char *path)
{
    char outer[PATH_MAX], inner[PATH_MAX];
    if (realpath(folder, outer) == NULL || realpath(path, inner) == NULL)
        return 0;
    const size_t length = strlen(outer);
    return strncmp(inner, outer, length) == 0 && (inner[length] == '/' || inner[length] == '\0');
}

/* Is it "built-in", or "built-in-4" for a number of threads? */
static int is_built_in(const char *name, size_t length)
{
    static const char built_in[] = "built-in";
    const size_t known = sizeof(built_in) - 1;
    if (length < known || strncmp(name, built_in, known) != 0)
        return 0;
    return length == known || (name[known] == '-' && length > known + 1 &&
                               strspn(name + known + 1, "0123456789") == length - known - 1);
}

int cli_artefact_is_profile_name(const char *name)
{
    const char *shipped;
    const size_t length = name ? strcspn(name, ",") : 0;
    if (is_built_in(name, length))
        return 1;
    for (size_t i = 0; (shipped = coh_profile_shipped(i)) != NULL; i++)
        if (strlen(shipped) == length && strncmp(shipped, name, length) == 0)
            return 1;
    return 0;
}

void cli_artefact_meant(const char *path, const char *(*name_at)(int32_t index),
                        char text[CLI_MEANT_BYTES])
{
    const char *name, *slash = strrchr(path, '/');
    coh_nearest nearest = { .word = slash ? slash + 1 : path };
    for (int32_t i = 0; (name = name_at(i)) != NULL; i++)
        coh_nearest_offer(&nearest, name);
    (void)coh_nearest_meant(&nearest, text, CLI_MEANT_BYTES);
}

static const char adapter_config[] = "adapter_config.json";

/* The model that adapters name as theirs; "": none. */
static void read_base(const char *adapters, char out_base[CLI_PATH_BYTES])
{
    char file[CLI_PATH_BYTES];
    struct stat facts;
    const int length = snprintf(file, sizeof(file), "%s/%s", adapters, adapter_config);
    const int is_file =
        length < CLI_PATH_BYTES && stat(file, &facts) == 0 && S_ISREG(facts.st_mode);
    json_t *config = is_file ? json_load_file(file, 0, NULL) : NULL;
    const char *of = json_string_value(json_object_get(config, "base_model_name_or_path"));
    snprintf(out_base, CLI_PATH_BYTES, "%s", of ? of : "");
    json_decref(config);
}

coh_status cli_artefact_refuse_adapters(const char *path)
{
    char base[CLI_PATH_BYTES];
    if (cli_artefact_is_folder(path) || !holds(path, adapter_config))
        return COH_OK;
    read_base(path, base);
    return cli_fail(COH_ERR_CORRUPT,
                    "%s holds adapters%s%.300s (%s), not a model: give their model, and the "
                    "adapters with --adapter %s; of a run, cohobate export RUN -o FOLDER "
                    "--merge-lora writes the model with its adapters merged",
                    path, base[0] ? " of " : "", base, adapter_config, path);
}

coh_status cli_artefact_refuse_cache(const char *path)
{
    char main_branch[CLI_PATH_BYTES], revision[128] = "", snapshot[160];
    if (!holds(path, "snapshots") || !holds(path, "refs") || cli_artefact_is_folder(path))
        return COH_OK;
    snprintf(main_branch, sizeof(main_branch), "%s/refs/main", path);
    FILE *file = fopen(main_branch, "re");
    if (file && fgets(revision, sizeof(revision), file))
        revision[strcspn(revision, "\n")] = '\0';
    if (file)
        fclose(file);
    snprintf(snapshot, sizeof(snapshot), "snapshots/%s", revision);
    const int is_there = revision[0] && holds(path, snapshot);
    return cli_fail(COH_ERR_CORRUPT,
                    "%s is an entry of the Hugging Face Hub's cache, not a model: give the folder "
                    "of a revision in it, %s/snapshots/%s",
                    path, path, is_there ? revision : "REVISION");
}

/* Cuts `path` to the name of a model: its last component. In the cache of the Hugging Face Hub it
 * is NAME of models--OWNER--NAME/snapshots/REVISION. */
static const char *model_name(char *path)
{
    static const char cached[] = "/snapshots";
    for (size_t length = strlen(path); length > 1 && path[length - 1] == '/';)
        path[--length] = '\0';
    char *slash = strrchr(path, '/');
    const size_t above = slash ? (size_t)(slash - path) : 0, tail = sizeof(cached) - 1;
    if (above > tail && memcmp(slash - tail, cached, tail) == 0) {
        slash[-(ptrdiff_t)tail] = '\0';
        for (char *dash = strstr(path, "--"); dash; dash = strstr(path, "--"))
            path = dash + 2;
        slash = strrchr(path, '/');
    }
    return slash ? slash + 1 : path;
}

void cli_artefact_say_other_base(const char *adapters, const char *folder)
{
    char base[CLI_PATH_BYTES], named[CLI_PATH_BYTES], own[CLI_PATH_BYTES];
    char *absolute = realpath(folder, NULL);
    read_base(adapters, base);
    snprintf(named, sizeof(named), "%s", base);
    snprintf(own, sizeof(own), "%s", absolute ? absolute : folder);
    free(absolute);
    if (base[0] && strcmp(model_name(named), model_name(own)) != 0)
        cli_note_choice("note: the adapters of %s were trained on %.300s, and %s has another name: "
                        "on another model they do harm, so check that it is that one",
                        adapters, base, folder);
}

coh_status cli_artefact_refuse_run(const char *path, const char *taker)
{
    struct stat facts;
    if (stat(path, &facts) != 0 || !S_ISDIR(facts.st_mode))
        return COH_OK;
    if (!holds(path, "plan.json"))
        return cli_fail(COH_ERR_CORRUPT,
                        "%s is a folder, and %s takes a plan file: give one that cohobate plan -o "
                        "wrote, or a run's plan.json",
                        path, taker);
    return cli_fail(COH_ERR_CORRUPT, "%s is a folder, and %s takes a plan file: give %s%splan.json",
                    path, taker, path, path[strlen(path) - 1] == '/' ? "" : "/");
}

/* A file that begins like none of ours, as text does. */
static coh_status refuse_unknown(const char *path)
{
    return cli_fail(
        COH_ERR_CORRUPT,
        "%s begins like no file of Cohobate: give the folder of a run, a checkpoint or a "
        "Hugging Face model, a plan, a profile, a kernel table, ids (*.bin), or a token "
        "file, which cohobate tokenize makes of text",
        path);
}

/* A plan of a large model has some MB. */
enum { SORTED_BYTES_MOST = 64 << 20 };

/* Of a file that begins with a brace: by its format, which a tool that sorts members moves from the
 * beginning. Its reader then says that the bytes are others. */
static coh_status find_json(const char *path, const char *head, off_t bytes,
                            cli_artefact *out_artefact)
{
    if (!strstr(head, "\"cohobate ") && bytes > SORTED_BYTES_MOST)
        return refuse_unknown(path);
    json_t *root = strstr(head, "\"cohobate ") ? NULL : json_load_file(path, 0, NULL);
    const char *format = json_string_value(json_object_get(root, "format"));
    const char *text = root ? format ? format : "" : head;
    const int is_ours = strstr(text, "cohobate ") != NULL;
    *out_artefact = strstr(text, "cohobate kernels")   ? CLI_ARTEFACT_KERNELS
                    : strstr(text, "cohobate profile") ? CLI_ARTEFACT_PROFILE
                                                       : CLI_ARTEFACT_PLAN;
    json_decref(root);
    return is_ours ? COH_OK : refuse_unknown(path);
}

static coh_status find(const char *path, cli_artefact *out_artefact)
{
    struct stat facts;
    char head[64];
    *out_artefact = CLI_ARTEFACT_PROFILE;
    if (stat(path, &facts) != 0 && cli_artefact_is_profile_name(path))
        return COH_OK;
    if (stat(path, &facts) != 0)
        return cannot_read(path);
    if (S_ISDIR(facts.st_mode)) {
        *out_artefact =
            cli_artefact_is_folder(path) ? CLI_ARTEFACT_FOLDER : CLI_ARTEFACT_CHECKPOINT;
        return COH_OK;
    }
    if (!S_ISREG(facts.st_mode))
        return cli_fail(COH_ERR_ARGUMENT, "%s is neither a file nor a folder: give one", path);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return cannot_read(path);
    ssize_t got = read(descriptor, head, sizeof(head) - 1);
    close(descriptor);
    head[got > 0 ? got : 0] = '\0';
    if (cli_data_is_raw(path, head, got > 0 ? (size_t)got : 0))
        *out_artefact = CLI_ARTEFACT_IDS;
    else if (strncmp(head, "COHTOKEN", 8) == 0)
        *out_artefact = CLI_ARTEFACT_TOKENS;
    else if (head[0] != '{')
        return refuse_unknown(path);
    else
        return find_json(path, head, facts.st_size, out_artefact);
    return COH_OK;
}

coh_status cli_artefact_find(const cli_options *options, cli_artefact *out_artefact)
{
    const coh_status status = find(options->operand, out_artefact);
    const int is_readable = status == COH_OK || status == COH_ERR_CORRUPT;
    if (!is_readable || !cli_given(options, CLI_FLAG_ID_BYTES) ||
        (status == COH_OK && *out_artefact == CLI_ARTEFACT_IDS))
        return status;
    return cli_fail(COH_ERR_ARGUMENT,
                    "--id-bytes is for ids in a *.bin, and %s is none: leave it out",
                    options->operand);
}

/* Loading the table checks it. */
coh_status cli_artefact_kernels_hash(const char *path, uint64_t *out_hash)
{
    CLI_TRY(coh_kernels_use(path, NULL, 0));
    *out_hash = coh_kernels_hash();
    return COH_OK;
}
