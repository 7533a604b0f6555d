/* Checks a command's paths and models before anything is opened. The one idea: a flag's row names
 * its need, and need and kind of file give the exit code; the contents of a folder show what it is,
 * so the message can name what the user probably meant. Next: artefact.c; output.c for files that
 * are replaced. */
#include "cli/input.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cli/artefact.h"
#include "cli/disks.h"
#include "cli/foreign.h"

/* ---- the table ---- */

typedef enum kind {
    READS_FILE,
    READS_TEXT,     /* a pipe or a terminal is allowed, too */
    READS_PLAN,     /* a file; for a folder the message names the plan in it */
    READS_ANY,      /* a file or a folder */
    READS_MODEL,    /* the folder of a checkpoint, a run or a Hugging Face model */
    READS_RUN,      /* a run's folder */
    READS_FOLDER,   /* a folder */
    NAMES_FOLDER,   /* a folder about which something is found out */
    USES_FOLDER,    /* temporary files are made in it */
    KEEPS_FILE,     /* read if it exists, and written */
    WRITES_FILE,    /* replaced as a whole */
    APPENDS_FILE,   /* a pipe or a terminal is allowed, too */
    WRITES_FOLDER,  /* made if it does not exist */
    ADDS_TO_FOLDER, /* likewise; a file is made in it */
    KIND_COUNT
} kind;

typedef enum found { NOTHING, AN_EMPTY_FILE, A_FILE, A_FOLDER, ANOTHER, FOUND_COUNT } found;

typedef enum verdict {
    FINE,
    MISSING,     /* 2 */
    NEEDS_PLACE, /* fine if its parent folder exists; else 2 */
    WRONG        /* 4 */
} verdict;

static const verdict verdicts[KIND_COUNT][FOUND_COUNT] = {
    /*                  NOTHING      EMPTY  A_FILE A_FOLDER ANOTHER: a device, a pipe, a socket */
    [READS_FILE] = { MISSING, WRONG, FINE, WRONG, WRONG },
    [READS_TEXT] = { MISSING, FINE, FINE, WRONG, FINE },
    [READS_PLAN] = { MISSING, WRONG, FINE, WRONG, WRONG },
    [READS_ANY] = { MISSING, FINE, FINE, FINE, WRONG },
    [READS_MODEL] = { MISSING, WRONG, WRONG, FINE, WRONG },
    [READS_RUN] = { MISSING, WRONG, WRONG, FINE, WRONG },
    [READS_FOLDER] = { MISSING, WRONG, WRONG, FINE, WRONG },
    [NAMES_FOLDER] = { MISSING, WRONG, WRONG, FINE, WRONG },
    [USES_FOLDER] = { MISSING, WRONG, WRONG, FINE, WRONG },
    [KEEPS_FILE] = { NEEDS_PLACE, WRONG, FINE, WRONG, WRONG },
    [WRITES_FILE] = { NEEDS_PLACE, FINE, FINE, WRONG, WRONG },
    [APPENDS_FILE] = { NEEDS_PLACE, FINE, FINE, WRONG, FINE },
    [WRITES_FOLDER] = { NEEDS_PLACE, WRONG, WRONG, FINE, WRONG },
    [ADDS_TO_FOLDER] = { NEEDS_PLACE, WRONG, WRONG, FINE, WRONG },
};

static const char *const needs[KIND_COUNT] = {
    [READS_FILE] = "a file",
    [READS_TEXT] = "a file",
    [READS_PLAN] = "a plan file",
    [READS_ANY] = "a file or a folder",
    [READS_MODEL] = "the folder of a checkpoint, a run or a Hugging Face model",
    [READS_RUN] = "a run's folder",
    [READS_FOLDER] = "a folder",
    [NAMES_FOLDER] = "a folder",
    [USES_FOLDER] = "a folder",
    [KEEPS_FILE] = "a file",
    [WRITES_FILE] = "a file",
    [APPENDS_FILE] = "a file",
    [WRITES_FOLDER] = "a folder",
    [ADDS_TO_FOLDER] = "a folder",
};

typedef struct row {
    cli_flag flag;
    kind kind;
    const char *word;   /* a value that is not a path; NULL: none */
    const char *remedy; /* printed if the path does not exist */
} row;

static const row rows[] = {
    { CLI_FLAG_RESUME, READS_MODEL, NULL, "give a run folder or a checkpoint" },
    { CLI_FLAG_ADAPTER, READS_FOLDER, NULL, "give a folder that cohobate export or PEFT wrote" },
    { CLI_FLAG_DATA, READS_ANY, NULL, "give a file or folder that is" },
    { CLI_FLAG_VALIDATION, READS_ANY, "none", "give a file or folder that is" },
    { CLI_FLAG_TOKENIZER, READS_ANY, "bytes",
      "give bytes, or a folder with tokenizer.json, tokenizer.model or vocab.json" },
    { CLI_FLAG_PROMPT_FILE, READS_TEXT, "-", "give a file, or - for standard input" },
    { CLI_FLAG_PROMPTS, READS_TEXT, "-", "give a file, or - for standard input" },
    { CLI_FLAG_MESSAGES, READS_TEXT, "-", "give a file, or - for standard input" },
    { CLI_FLAG_PLAN, READS_PLAN, NULL, "write one with cohobate plan -o" },
    { CLI_FLAG_PINS, READS_FILE, NULL, "give a JSON file of pins (docs/planning.md)" },
    { CLI_FLAG_KERNELS, READS_FILE, NULL, "write one with cohobate tune -o" },
    { CLI_FLAG_PROFILE, READS_FILE, NULL, "give a file, or the name of a shipped profile" },
    { CLI_FLAG_TOPOLOGY, READS_FILE, NULL, "give a file, or the name of a shipped profile" },
    { CLI_FLAG_CALIBRATION, KEEPS_FILE, "none", "" },
    { CLI_FLAG_DISK, USES_FOLDER, NULL, "give a folder that is" },
    { CLI_FLAG_FOLDER, NAMES_FOLDER, NULL, "give a folder that is" },
    { CLI_FLAG_SAVE, WRITES_FOLDER, "none", "" },
    { CLI_FLAG_OUTPUT, WRITES_FILE, NULL, "" },
    { CLI_FLAG_HELD_OUT_FILE, WRITES_FILE, NULL, "" },
    { CLI_FLAG_PROGRAM, WRITES_FILE, NULL, "" },
    { CLI_FLAG_REPORT, WRITES_FILE, NULL, "" },
    { CLI_FLAG_TUNE, WRITES_FILE, NULL, "" },
    { CLI_FLAG_LOGITS, WRITES_FILE, NULL, "" },
    { CLI_FLAG_LOG, APPENDS_FILE, NULL, "" },
    { CLI_FLAG_TENSORBOARD, ADDS_TO_FOLDER, NULL, "" },
};

/* ---- one path ---- */

/* A flag's name followed by a space, or "" for an operand, and its path; `taker` is the flag, or
 * the command of the operand; `name_at` lists the names that may replace the path (NULL: none);
 * `may_be_model`: an operand that takes a model's folder. */
typedef struct named {
    const char *flag, *space, *path, *taker;
    const char *(*name_at)(int32_t index);
    int may_be_model;
} named;

static found look(const char *path, int *out_error)
{
    struct stat facts;
    *out_error = stat(path, &facts) == 0 ? 0 : errno;
    if (*out_error == ENOENT || *out_error == ENOTDIR) {
        *out_error = 0;
        return NOTHING;
    }
    if (*out_error != 0)
        return NOTHING;
    if (S_ISREG(facts.st_mode))
        return facts.st_size == 0 ? AN_EMPTY_FILE : A_FILE;
    return S_ISDIR(facts.st_mode) ? A_FOLDER : ANOTHER;
}

static const char *remedy_of(int error)
{
    return error == EACCES || error == EPERM || error == EMFILE ? cli_open_remedy(error)
                                                                : "give another";
}

static coh_status fault(const named *n, const char *path, const char *verb, int error)
{
    return cli_fail(COH_ERR_IO, "%s%s%s cannot be %s: %s: %s", n->flag, n->space, path, verb,
                    strerror(error), remedy_of(error));
}

static coh_status check_length(const named *n, int error)
{
    if (error != ENAMETOOLONG && strlen(n->path) < CLI_PATH_BYTES)
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "%s%s%.40s... is longer than a path may be (%d bytes, less on some file "
                    "systems): give a shorter one",
                    n->flag, n->space, n->path, CLI_PATH_BYTES - 1);
}

static const char *other_kind(const char *path)
{
    struct stat facts;
    if (stat(path, &facts) != 0)
        return "neither a file nor a folder";
    return S_ISFIFO(facts.st_mode) ? "a pipe" : S_ISSOCK(facts.st_mode) ? "a socket" : "a device";
}

/* A file next to a run.json: the folder of both is meant. */
static coh_status refuse_file_of_run(const named *n)
{
    const char *slash = strrchr(n->path, '/');
    const int length = slash == n->path ? 1 : slash ? (int)(slash - n->path) : 1;
    const char *begin = slash ? n->path : ".";
    char path[CLI_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%.*s/run.json", length, begin);
    if (access(path, F_OK) != 0)
        return COH_OK;
    return cli_fail(COH_ERR_CORRUPT, "%s%s%s is a file, and a run's folder is needed: give %.*s",
                    n->flag, n->space, n->path, length, begin);
}

static coh_status wrong(const named *n, kind needed, found is)
{
    static const char *const names[FOUND_COUNT] = { [NOTHING] = "not there",
                                                    [AN_EMPTY_FILE] = "an empty file",
                                                    [A_FILE] = "a file",
                                                    [A_FOLDER] = "a folder" };
    const char *name = is == ANOTHER ? other_kind(n->path) : names[is];
    if (needed == READS_RUN && is == A_FILE)
        CLI_TRY(refuse_file_of_run(n));
    if (is == ANOTHER && needed <= READS_ANY) /* as in --data <(command) */
        return cli_fail(COH_ERR_CORRUPT,
                        "%s%s%s is %s, and %s is needed, since it is read more than once: write "
                        "what comes through it to a file, and give that",
                        n->flag, n->space, n->path, name, needs[needed]);
    return cli_fail(COH_ERR_CORRUPT, "%s%s%s is %s, and %s is needed: give one", n->flag, n->space,
                    n->path, name, needs[needed]);
}

int cli_input_probe(const char *folder)
{
    char name[CLI_PATH_BYTES + 32];
    int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
        snprintf(name, sizeof(name), "%s/cohobate-probe-XXXXXX", folder);
        const int first = errno;
        fd = mkostemp(name, O_CLOEXEC);
        if (fd >= 0)
            (void)unlink(name);
        else if (errno == ENOENT) /* of the file, as in /proc, and not of the folder */
            errno = first == EISDIR ? EOPNOTSUPP : first;
    }
    if (fd >= 0)
        close(fd);
    return fd >= 0 || errno == ENOSPC || errno == EDQUOT ? 0 : errno;
}

/* Checks that a file can be made in `folder`, which is the path or its parent folder. Else a
 * command that takes minutes would fail at its end. */
static coh_status check_makes(const named *n, const char *folder)
{
    const int error = cli_input_probe(folder);
    if (error == 0)
        return COH_OK;
    if (strcmp(folder, n->path) == 0)
        return cli_fail(COH_ERR_IO, "%s%s%s: no file can be made in it: %s: %s", n->flag, n->space,
                        n->path, strerror(error), remedy_of(error));
    return cli_fail(COH_ERR_IO,
                    "%s%s%s cannot be written: no file can be made in the folder %s: %s: %s",
                    n->flag, n->space, n->path, folder, strerror(error), remedy_of(error));
}

int cli_input_is_file(const char *path, const struct stat *facts)
{
    struct stat other;
    return path && path[0] && stat(path, &other) == 0 && other.st_dev == facts->st_dev &&
           other.st_ino == facts->st_ino;
}

coh_status cli_input_check_disk(const char *folder)
{
    const named n = { "--disk", " ", folder, "--disk", NULL, 0 };
    return check_makes(&n, folder);
}

/* In a sticky folder, as /tmp, only the owner of a file or of the folder, and root, may replace the
 * file. */
static coh_status check_sticky(const named *n, const char *folder)
{
    struct stat above, old;
    const uid_t user = geteuid();
    if (user == 0 || stat(folder, &above) != 0 || lstat(n->path, &old) != 0)
        return COH_OK;
    const int is_kept = (above.st_mode & S_ISVTX) && above.st_uid != user && old.st_uid != user;
    return is_kept ? cli_fail(COH_ERR_IO,
                              "%s%s%s cannot be replaced: it is another user's, and the folder %s "
                              "is sticky: give another",
                              n->flag, n->space, n->path, folder)
                   : COH_OK;
}

/* Checks the parent folder of an output. No command creates it, so that a mistyped path is
 * detected. */
static coh_status check_place(const named *n)
{
    char folder[CLI_PATH_BYTES] = ".";
    size_t length = strlen(n->path);
    int error;
    while (length > 1 && n->path[length - 1] == '/')
        length--;
    while (length > 0 && n->path[length - 1] != '/')
        length--;
    if (length > 0)
        snprintf(folder, sizeof(folder), "%.*s", (int)(length > 1 ? length - 1 : 1), n->path);
    const found is = look(folder, &error);
    if (error != 0)
        return fault(n, folder, "looked at", error);
    if (is == NOTHING)
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s%s%s: the folder %s is not there: make it, or give another", n->flag,
                        n->space, n->path, folder);
    if (is != A_FOLDER)
        return cli_fail(COH_ERR_CORRUPT,
                        "%s%s%s: %s is a file, and a folder is needed: give another", n->flag,
                        n->space, n->path, folder);
    CLI_TRY(check_makes(n, folder));
    return check_sticky(n, folder);
}

/* A finished file takes the place of its name: of a link, as /dev/stdout is one, and not of what
 * the link leads to. */
static coh_status check_link(const named *n, kind needed)
{
    struct stat facts;
    if (needed != WRITES_FILE || lstat(n->path, &facts) != 0 || !S_ISLNK(facts.st_mode))
        return COH_OK;
    return cli_fail(COH_ERR_CORRUPT,
                    "%s%s%s is a link, which the finished file would replace: give the path of a "
                    "file",
                    n->flag, n->space, n->path);
}

/* Checks that a pipe has a reader; else opening it would block the run. */
static coh_status check_reader(const named *n, found is)
{
    const int descriptor =
        is == ANOTHER ? open(n->path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
    if (is == ANOTHER && descriptor < 0)
        return errno == ENXIO ? cli_fail(COH_ERR_IO,
                                         "%s%s%s is a pipe without a reader: start the reader "
                                         "first, or give a file",
                                         n->flag, n->space, n->path)
                              : fault(n, n->path, "written", errno);
    if (descriptor >= 0)
        close(descriptor);
    return COH_OK;
}

/* Refuses the folders in which a kernel shows its state: their files have no fixed content, and
 * most cannot be read. */
static coh_status check_stored(const named *n)
{
    static const unsigned long kernels[] = { PROC_SUPER_MAGIC,   SYSFS_MAGIC,      DEBUGFS_MAGIC,
                                             CGROUP_SUPER_MAGIC, SECURITYFS_MAGIC, TRACEFS_MAGIC,
                                             CGROUP2_SUPER_MAGIC };
    struct statfs facts;
    if (statfs(n->path, &facts) != 0)
        return COH_OK;
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
        if ((unsigned long)facts.f_type == kernels[i])
            return cli_fail(
                COH_ERR_CORRUPT,
                "%s%s%s is a folder of the kernel's, as /proc and /sys are, which holds "
                "no stored files: give another",
                n->flag, n->space, n->path);
    return COH_OK;
}

static coh_status check_rights(const named *n, kind needed, found is)
{
    if (needed == APPENDS_FILE)
        return check_reader(n, is);
    if (needed == NAMES_FOLDER)
        return access(n->path, X_OK) == 0 ? COH_OK : fault(n, n->path, "used", errno);
    if (needed == ADDS_TO_FOLDER || needed == USES_FOLDER || needed == WRITES_FOLDER)
        return check_makes(n, n->path);
    if (needed == WRITES_FILE) /* replaced by another file */
        return check_place(n);
    if (needed == READS_ANY && is == A_FOLDER)
        CLI_TRY(check_stored(n));
    return access(n->path, is == A_FOLDER ? R_OK | X_OK : R_OK) == 0
               ? COH_OK
               : fault(n, n->path, "read", errno);
}

/* Of --disk DIR:SIZE with a SIZE that does not begin as one, the path has the colon. */
static coh_status missing_disk(const named *n)
{
    const char *colon = strrchr(n->path, ':');
    uint64_t bytes;
    if (strcmp(n->flag, "--disk") != 0 || !colon || strchr(colon, '/'))
        return COH_OK;
    if (colon[1] == '\0')
        return cli_fail(COH_ERR_ARGUMENT,
                        "--disk %s: the size after the colon is missing: give DIR or DIR:SIZE, for "
                        "example --disk /var/tmp:40GB",
                        n->path);
    if (coh_size_parse(colon + 1, &bytes) == COH_OK) /* a further size was cut off */
        return cli_fail(COH_ERR_ARGUMENT,
                        "--disk %s: there is no such folder, and the part after the colon is a "
                        "size: give one size, for example --disk %.*s:%s",
                        n->path, (int)(colon - n->path), n->path, colon + 1);
    return cli_fail(COH_ERR_ARGUMENT,
                    "--disk %s: there is no such folder, and '%s' after the colon is not a size: "
                    "give DIR or DIR:SIZE, for example --disk /var/tmp:40GB",
                    n->path, colon + 1);
}

/* A preset's name where the command takes something that a preset does not have. */
static coh_status refuse_preset(const named *n, kind needed)
{
    if (needed == READS_PLAN)
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s is a preset, and %s takes a plan file: write one with cohobate plan %s "
                        "-o plan.json",
                        n->path, n->taker, n->path);
    if (needed == READS_RUN)
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s is a preset, and %s takes the folder of a run, as train makes it",
                        n->path, n->taker);
    return cli_fail(COH_ERR_ARGUMENT,
                    "%s is a preset, which has no weights: give the folder of a run, a "
                    "checkpoint or a Hugging Face model",
                    n->path);
}

/* The model's part of ORG/NAME, as the Hugging Face Hub names models; NULL: it is no such name, a
 * path below a folder that exists, or a checkpoint of a run. */
static const char *hub_model(const char *path)
{
    static const char signs[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    char owner[CLI_PATH_BYTES];
    struct stat facts;
    const size_t length = strspn(path, signs);
    const char *model = path + length + 1;
    if (length == 0 || strchr("-.", path[0]) || path[length] != '/' || strchr("-.", model[0]) ||
        model[strspn(model, signs)] != '\0' || length >= sizeof(owner) ||
        strcmp(model, "best") == 0 || cli_artefact_is_step(model))
        return NULL;
    snprintf(owner, sizeof(owner), "%.*s", (int)length, path);
    return stat(owner, &facts) == 0 ? NULL : model;
}

/* The download comes first: a preset of nearly the same name has none of the model's weights. */
static coh_status missing_hub_model(const named *n, const char *model, const char *meant,
                                    const char *remedy)
{
    return cli_fail(
        COH_ERR_ARGUMENT,
        "%s is not there: bring a model of the Hugging Face Hub with hf download %s "
        "--local-dir %s and give ./%s, or %s%s%s",
        n->path, n->path, model, model, meant[0] ? "is " : "", meant[0] ? meant : remedy,
        meant[0] ? " meant? A preset begins with first values, not with trained weights" : "");
}

static coh_status missing(const named *n, kind needed, const char *remedy)
{
    char meant[CLI_MEANT_BYTES] = "";
    CLI_TRY(missing_disk(n));
    if (n->name_at)
        cli_artefact_meant(n->path, n->name_at, meant);
    if (n->flag[0] == '\0' && cli_artefact_is_preset(n->path))
        return refuse_preset(n, needed);
    const char *model = n->may_be_model ? hub_model(n->path) : NULL;
    if (model && (!meant[0] || n->name_at == coh_model_preset_name))
        return missing_hub_model(n, model, meant, remedy);
    if (meant[0])
        return cli_fail(COH_ERR_ARGUMENT, "%s%s%s is not there: is %s meant? Or %s", n->flag,
                        n->space, n->path, meant, remedy);
    return cli_fail(COH_ERR_ARGUMENT, "%s%s%s is not there: %s", n->flag, n->space, n->path,
                    remedy);
}

static coh_status check_path(const named *n, kind needed, const char *remedy)
{
    int error;
    const found is = look(n->path, &error);
    CLI_TRY(check_length(n, error));
    if (error != 0)
        return fault(n, n->path, needed >= WRITES_FILE ? "written" : "read", error);
    CLI_TRY(check_link(n, needed));
    switch (verdicts[needed][is]) {
    case FINE:
        return check_rights(n, needed, is);
    case MISSING:
        return missing(n, needed, remedy);
    case NEEDS_PLACE:
        return check_place(n);
    case WRONG:
        if (needed == READS_PLAN)
            CLI_TRY(cli_artefact_refuse_run(n->path, n->taker));
        return wrong(n, needed, is);
    }
    return COH_OK;
}

/* ---- a command's paths ---- */

/* Nothing exists at this path, so it may be a name; the code that resolves names decides. */
static int is_name(const char *path)
{
    struct stat facts;
    return !strchr(path, '/') && stat(path, &facts) != 0 &&
           (errno == ENOENT || errno == ENAMETOOLONG);
}

static const char *profile_at(int32_t index)
{
    return coh_profile_shipped((size_t)index);
}

static coh_status check_value(const cli_options *options, const row *r, const char *path)
{
    const cli_flag_row *flag = &cli_flag_table[r->flag];
    char name[40], profile[CLI_PATH_BYTES];
    const int is_profile = r->flag == CLI_FLAG_PROFILE || r->flag == CLI_FLAG_TOPOLOGY;
    named n = { name, " ", path, name, is_profile ? profile_at : NULL };
    if (flag->short_name)
        snprintf(name, sizeof(name), "-%c", flag->short_name);
    else
        snprintf(name, sizeof(name), "--%s", flag->name);
    if ((r->word && strcmp(n.path, r->word) == 0) ||
        (r->flag == CLI_FLAG_TOKENIZER && strcmp(n.path, "none") == 0))
        return COH_OK;
    if (is_profile) { /* NAME|FILE[,ENTRY=VALUE...] */
        snprintf(profile, sizeof(profile), "%.*s", (int)strcspn(n.path, ","), n.path);
        if (cli_artefact_is_profile_name(n.path) || is_name(profile))
            return COH_OK;
        n.path = profile;
    }
    const int is_export = r->flag == CLI_FLAG_OUTPUT && options->command == CLI_EXPORT;
    const int is_named = r->flag == CLI_FLAG_DISK && options->command == CLI_PLAN;
    return check_path(&n, is_export ? WRITES_FOLDER : is_named ? NAMES_FOLDER : r->kind, r->remedy);
}

static coh_status check_flag(const cli_options *options, const row *r)
{
    const cli_flag_row *flag = &cli_flag_table[r->flag];
    const void *field = (const char *)options + flag->offset;
    if (!options->given[r->flag])
        return COH_OK;
    if (flag->value != CLI_VALUE_DISK)
        return check_value(options, r, *(const char *const *)field);
    for (int32_t i = 0; i < options->disk_count; i++)
        CLI_TRY(check_value(options, r, options->disk[i].folder));
    return COH_OK;
}

static int may_be_model(cli_operand operand)
{
    return operand == CLI_OPERAND_MODEL || operand == CLI_OPERAND_CHECKPOINT ||
           operand == CLI_OPERAND_PATH;
}

coh_status cli_input_read_part(const char *operand, char *out_path, double *out_times)
{
    const named n = { "", "", out_path, cli_command_name(CLI_MIX), NULL, 0 };
    const char *colon = strrchr(operand, ':');
    size_t length = strlen(operand);
    *out_times = 1;
    if (colon && access(operand, F_OK) != 0) {
        char *end;
        *out_times = strtod(colon + 1, &end);
        if (end == colon + 1 || *end != '\0' || !(*out_times > 0) ||
            *out_times > COH_TOKEN_MIX_TIMES)
            return cli_fail(COH_ERR_ARGUMENT,
                            "%s: there is no such file, and '%s' is not how often one is read in a "
                            "pass: a number above 0, at most %d",
                            operand, colon + 1, COH_TOKEN_MIX_TIMES);
        length = (size_t)(colon - operand);
    }
    snprintf(out_path, CLI_PATH_BYTES, "%.*s", (int)length, operand);
    if (length >= CLI_PATH_BYTES)
        return check_length(&n, ENAMETOOLONG);
    return check_path(&n, READS_FILE, "give a token file that is");
}

static coh_status check_parts(const cli_options *options)
{
    char path[CLI_PATH_BYTES];
    double times;
    for (int i = 0; i < options->operand_count; i++)
        CLI_TRY(cli_input_read_part(options->operands[i], path, &times));
    return COH_OK;
}

static coh_status check_operand(const cli_options *options)
{
    static const char remedy[] = "give a file or folder that is";
    const cli_operand operand = cli_command_operand(options->command);
    const named n = { "",
                      "",
                      options->operand,
                      cli_command_name(options->command),
                      operand == CLI_OPERAND_MODEL  ? coh_model_preset_name
                      : operand == CLI_OPERAND_PATH ? profile_at
                                                    : NULL,
                      may_be_model(operand) };
    if (!n.path)
        return COH_OK;
    switch (operand) {
    case CLI_OPERAND_NONE:
    case CLI_OPERAND_KIND: /* cmd_check_kind.c takes it apart */
        return COH_OK;
    case CLI_OPERAND_TOKENS:
        return check_parts(options);
    case CLI_OPERAND_MODEL:
        return cli_artefact_is_preset(n.path) || is_name(n.path)
                   ? COH_OK
                   : check_path(&n, READS_MODEL, "give a model's folder, or a preset (--help)");
    case CLI_OPERAND_CHECKPOINT:
        return check_path(&n, READS_MODEL, remedy);
    case CLI_OPERAND_IN:
        return check_path(&n, READS_ANY, remedy);
    case CLI_OPERAND_PATH:
        return cli_artefact_is_profile_name(n.path) ? COH_OK : check_path(&n, READS_ANY, remedy);
    case CLI_OPERAND_PLAN:
        return check_path(&n, READS_PLAN, remedy);
    case CLI_OPERAND_RUN:
        return check_path(&n, READS_RUN, "give a run's folder");
    }
    return COH_OK;
}

/* ---- models ---- */

/* Contents that distinguish folders. */
typedef struct content {
    int has_config, has_checkpoint, has_weights;
    int has_adapters;  /* the configuration of adapters */
    int has_others;    /* that are neither weights nor is_of_model */
    int has_lines;     /* JSON lines */
    char tensors[256]; /* the name of one safetensors file; "": none */
} content;

static int ends_in(const char *name, const char *end)
{
    const size_t length = strlen(name), end_length = strlen(end);
    return length >= end_length && strcmp(name + length - end_length, end) == 0;
}

static int is_weights(const char *name)
{
    const int is_torch =
        strncmp(name, "pytorch_model", 13) == 0 || strncmp(name, "adapter_model", 13) == 0;
    return ends_in(name, ".safetensors") || ends_in(name, ".safetensors.index.json") ||
           (is_torch && (ends_in(name, ".bin") || ends_in(name, ".bin.index.json")));
}

/* Is it one of the small files that come with a model's weights? Hidden files are never read. */
static int is_of_model(const char *name)
{
    static const char names[] = " config.json generation_config.json preprocessor_config.json "
                                "tokenizer.json tokenizer.model tokenizer_config.json vocab.json "
                                "merges.txt added_tokens.json special_tokens_map.json README.md "
                                "chat_template.jinja chat_template.json LICENSE LICENSE.txt ";
    char word[64];
    const int length = snprintf(word, sizeof(word), " %s ", name);
    return name[0] == '.' ||
           (length < (int)sizeof(word) && strchr(name, ' ') == NULL && strstr(names, word) != NULL);
}

static content look_into(const char *path)
{
    content held = { 0 };
    DIR *listing = opendir(path);
    const struct dirent *entry;
    while (listing && (entry = readdir(listing))) {
        const char *name = entry->d_name;
        held.has_config |= strcmp(name, "config.json") == 0;
        held.has_checkpoint |= strcmp(name, "manifest.json") == 0 || strncmp(name, "step-", 5) == 0;
        held.has_adapters |= strcmp(name, "adapter_config.json") == 0;
        held.has_weights |= is_weights(name);
        held.has_others |= !is_weights(name) && !is_of_model(name);
        held.has_lines |= cli_foreign_has_ending(name, ".jsonl") ||
                          cli_foreign_has_ending(name, ".ndjson") ||
                          cli_foreign_has_ending(name, ".jl");
        if (ends_in(name, ".safetensors") && !held.tensors[0])
            snprintf(held.tensors, sizeof(held.tensors), "%s", name);
    }
    if (listing)
        closedir(listing);
    return held;
}

int cli_input_has_tensors(const char *path)
{
    return look_into(path).tensors[0] != '\0';
}

/* Refuses folders that look like a model: adapters alone, tensors without a config.json. */
static coh_status check_has_config(const char *path)
{
    CLI_TRY(cli_artefact_refuse_adapters(path));
    CLI_TRY(cli_artefact_refuse_cache(path));
    const content held = look_into(path);
    if (!held.tensors[0] || held.has_config || held.has_checkpoint)
        return COH_OK;
    return cli_fail(COH_ERR_CORRUPT,
                    "%s holds %s but no config.json, which says what model the tensors are of: put "
                    "the model's config.json next to them",
                    path, held.tensors);
}

/* ---- folders of text ---- */

static int holds(const char *folder, const char *name)
{
    char path[CLI_PATH_BYTES];
    return snprintf(path, sizeof(path), "%s/%s", folder, name) < CLI_PATH_BYTES &&
           access(path, F_OK) == 0;
}

/* Refuses the folders of a run and of a checkpoint: their text files are its record. */
static coh_status refuse_record(const char *flag, const char *path)
{
    const int is_run = holds(path, "run.json") && holds(path, "plan.json");
    const int is_checkpoint =
        holds(path, "manifest.json") && holds(path, "hashes.bin") && holds(path, "work.bin");
    if (!is_run && !is_checkpoint)
        return COH_OK;
    if (is_run && holds(path, "data.tokens"))
        return cli_fail(COH_ERR_CORRUPT,
                        "%s%s is a run's folder, whose text files are the record of the run: give "
                        "%s%sdata.tokens for the tokens that it trained on, or a folder of texts",
                        flag, path, path, path[strlen(path) - 1] == '/' ? "" : "/");
    return cli_fail(COH_ERR_CORRUPT,
                    "%s%s is the folder of a %s, whose text files are no texts to train on: give "
                    "a file or a folder of texts",
                    flag, path, is_run ? "run" : "checkpoint");
}

/* Refuses a folder of which each file is read as text, if it is that of a model or of adapters: the
 * texts would be its config.json, tokenizer.json and so on. Without weights, other files in it are
 * meant. */
static coh_status check_texts(const cli_options *options, const char *flag, const char *path)
{
    struct stat facts;
    const int is_of_lines = cli_given(options, CLI_FLAG_FIELD) || cli_given(options, CLI_FLAG_CHAT);
    if (!path || is_of_lines || stat(path, &facts) != 0 || !S_ISDIR(facts.st_mode))
        return COH_OK;
    CLI_TRY(refuse_record(flag, path));
    const content held = look_into(path);
    const int is_model =
        held.has_config &&
        (held.has_weights || (!held.has_others && cli_artefact_has_tokenizer(path)));
    const int is_adapters = held.has_adapters && held.has_weights;
    if ((!is_model && !is_adapters) || options->resume)
        return COH_OK;
    return cli_fail(COH_ERR_CORRUPT,
                    "%s%s is %s, whose text files are its configuration and its tokenizer: give a "
                    "file of text, or a folder that holds nothing but texts%s",
                    flag, path, is_model ? "a Hugging Face model's folder" : "a folder of adapters",
                    held.has_lines ? "; --field NAME or --chat reads the lines of its *.jsonl, "
                                     "*.ndjson and *.jl"
                                   : "");
}

/* ---- runs ---- */

/* Checks that --resume names something that a run saved. */
static coh_status check_resume(const char *path)
{
    const content held = look_into(path);
    cli_line word;
    CLI_TRY(check_has_config(path));
    if (!held.has_config || held.has_checkpoint)
        return COH_OK;
    cli_line_clear(&word);
    cli_line_add_word(&word, path);
    return cli_fail(COH_ERR_CORRUPT,
                    "--resume %s: a Hugging Face model's folder, and not that of a run: a run that "
                    "begins with its weights is cohobate train %s --data FILE",
                    path, word.text);
}

coh_status cli_input_check(const cli_options *options)
{
    const cli_operand operand = cli_command_operand(options->command);
    CLI_TRY(check_operand(options));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        CLI_TRY(check_flag(options, &rows[i]));
    CLI_TRY(check_texts(options, "--data ", options->data));
    CLI_TRY(check_texts(options, "--validation ", options->validation));
    if (options->command == CLI_TOKENIZE)
        CLI_TRY(check_texts(options, "", options->operand));
    if (options->resume)
        CLI_TRY(check_resume(options->resume));
    if (!options->operand || !may_be_model(operand) ||
        (operand == CLI_OPERAND_MODEL && cli_artefact_is_preset(options->operand)))
        return COH_OK;
    return check_has_config(options->operand);
}
