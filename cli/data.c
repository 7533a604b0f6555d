/* Opens training and validation data as token files. The one idea: text is tokenised into a token
 * file first, so all readers see one format. Next: text/token_build.c makes the file,
 * text/token_file.c reads it. */
#include "cli/data.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/data_folder.h"
#include "cli/foreign.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/stop.h"

/* Text holds no NUL byte; a binary file, and the header of a damaged token file, do. As many bytes
 * are looked at as of the files of a folder, which is the rule of grep and git. */
enum { SNIFF_BYTES = 8192 };

/* KIND_JSON: text named *.json that begins as JSON; KIND_TABLE: text named *.csv or *.tsv. */
typedef enum data_kind {
    KIND_TEXT,
    KIND_LINES,
    KIND_JSON,
    KIND_TABLE,
    KIND_TOKENS,
    KIND_RAW
} data_kind;

int32_t cli_data_id_bytes(const cli_options *options)
{
    if (!cli_given(options, CLI_FLAG_ID_BYTES))
        return 0;
    return options->id_bytes == 0 ? 2 : 4; /* in the order of the flag's choices */
}

/* The flags' choices have the order of the enums. */
coh_status cli_data_form_override(const cli_options *options, cli_data_form *form)
{
    if (options->field && options->chat)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--chat reads the field \"messages\", so --field %s says "
                        "nothing: leave one of them out",
                        options->field);
    if (cli_given(options, CLI_FLAG_CHAT_FORM) && !options->chat && !form->chat)
        return cli_fail(COH_ERR_ARGUMENT, "--chat-form says how conversations are written: add "
                                          "--chat, or leave it out");
    if (options->field && strlen(options->field) >= sizeof(form->field))
        return cli_fail(COH_ERR_ARGUMENT, "--field takes a name of less than %zu bytes, not %zu",
                        sizeof(form->field), strlen(options->field));
    if (options->field || options->chat) { /* each replaces the other */
        form->chat = options->chat;
        snprintf(form->field, sizeof(form->field), "%s", options->field ? options->field : "");
    }
    if (cli_given(options, CLI_FLAG_CHAT_FORM))
        form->chat_form = options->chat_form;
    if (cli_given(options, CLI_FLAG_DOCUMENTS))
        form->aligned = options->documents;
    if (cli_given(options, CLI_FLAG_VALIDATION_SPLIT))
        form->validation_split = options->validation_split;
    return COH_OK;
}

coh_status cli_data_form_from_options(const cli_options *options, cli_data_form *out_form)
{
    *out_form = (cli_data_form){ .chat_form = options->chat_form,
                                 .aligned = options->documents,
                                 .validation_split = options->validation_split,
                                 .id_bytes = cli_data_id_bytes(options) };
    return cli_data_form_override(options, out_form);
}

/* ---- kind of input ---- */

static coh_status cannot_read(const char *flag, const char *path)
{
    return cli_fail(COH_ERR_IO, "--%s %s cannot be read: %s: %s", flag, path, strerror(errno),
                    cli_open_remedy(errno));
}

int cli_data_is_tokens(const void *head, size_t head_bytes)
{
    return head_bytes >= 8 && memcmp(head, "COHTOKEN", 8) == 0;
}

int cli_data_is_raw(const char *path, const void *head, size_t head_bytes)
{
    return cli_foreign_has_ending(path, ".bin") && !cli_data_is_tokens(head, head_bytes);
}

/* Reads the first bytes of a file into `head`; -1: it cannot be read, and errno says why. */
static ssize_t read_head(const char *path, char head[SNIFF_BYTES])
{
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return -1;
    const ssize_t got = read(descriptor, head, SNIFF_BYTES);
    const int error = errno;
    close(descriptor);
    errno = error;
    return got;
}

/* Sources of Julia are named *.jl, too. */
int cli_data_is_named_lines(const char *path)
{
    char head[SNIFF_BYTES];
    ssize_t got;
    if (cli_foreign_has_ending(path, ".jsonl") || cli_foreign_has_ending(path, ".ndjson"))
        return 1;
    return cli_foreign_has_ending(path, ".jl") && (got = read_head(path, head)) > 0 &&
           cli_foreign_is_object(head, (size_t)got);
}

int cli_data_may_hold_lines(const char *path)
{
    struct stat facts;
    char head[SNIFF_BYTES];
    if (cli_data_is_named_lines(path) || stat(path, &facts) != 0)
        return cli_data_is_named_lines(path);
    if (!S_ISREG(facts.st_mode))
        return S_ISDIR(facts.st_mode);
    const ssize_t got = read_head(path, head);
    return got > 0 && cli_foreign_is_json(path, head, (size_t)got);
}

int cli_data_marks_documents(const char *path)
{
    coh_token_file *file;
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    char head[SNIFF_BYTES];
    struct stat is;
    if (stat(path, &is) != 0 || !S_ISREG(is.st_mode) || read_head(path, head) < 8 ||
        !cli_data_is_tokens(head, sizeof(head)) || coh_token_file_open(path, &file) != COH_OK)
        return -1;
    const coh_status status = coh_token_file_facts_get(file, &facts);
    coh_token_file_close(file);
    return status == COH_OK ? facts.marks_documents : -1;
}

static coh_status find_kind(const char *flag, const char *path, data_kind *out_kind)
{
    struct stat facts;
    char head[SNIFF_BYTES];
    *out_kind = KIND_TEXT;
    if (stat(path, &facts) != 0)
        return cannot_read(flag, path);
    if (S_ISDIR(facts.st_mode))
        return COH_OK;
    if (!S_ISREG(facts.st_mode)) /* a pipe would lose the bytes read to examine it */
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s %s is neither a file nor a folder: write what comes through it to a"
                        " file, and give that",
                        flag, path);
    ssize_t got = read_head(path, head);
    if (got < 0)
        return cannot_read(flag, path);
    const int is_token_file = cli_data_is_tokens(head, (size_t)got);
    if (cli_data_is_raw(path, head, (size_t)got)) {
        *out_kind = KIND_RAW;
        return COH_OK;
    }
    CLI_TRY(cli_foreign_check(flag, path, head, (size_t)got));
    if (is_token_file)
        *out_kind = KIND_TOKENS;
    else if (cli_data_is_named_lines(path))
        *out_kind = KIND_LINES;
    else if (memchr(head, 0, (size_t)got))
        return cli_fail(COH_ERR_CORRUPT,
                        "--%s %s is no text, as it has a NUL byte, and is not a token file: convert"
                        " it to UTF-8, or make it again with cohobate tokenize",
                        flag, path);
    else if (cli_foreign_is_json(path, head, (size_t)got))
        *out_kind = KIND_JSON;
    else if (cli_foreign_is_table(path, head, (size_t)got))
        *out_kind = KIND_TABLE;
    return COH_OK;
}

/* A file of JSON is read as lines or conversations if the form says so; as text only under another
 * name. */
static int is_raw_json(const cli_data_form *form, int is_json)
{
    return is_json && !form->chat && !form->field[0];
}

coh_status cli_data_check_text(const cli_data_form *form, const char *path, int takes_bytes)
{
    struct stat facts;
    char head[SNIFF_BYTES];
    if (stat(path, &facts) != 0 || !S_ISREG(facts.st_mode))
        return COH_OK; /* making the token file reports other errors */
    const ssize_t got = read_head(path, head);
    if (got < 0)
        return COH_OK;
    if (!takes_bytes || form->chat || form->field[0] || cli_data_is_named_lines(path))
        CLI_TRY(cli_foreign_check(NULL, path, head, (size_t)got));
    if (cli_foreign_is_table(path, head, (size_t)got))
        return cli_foreign_refuse_table(NULL, path);
    return is_raw_json(form, cli_foreign_is_json(path, head, (size_t)got))
               ? cli_foreign_refuse_json(NULL, path)
               : COH_OK;
}

static int is_text(data_kind kind)
{
    return kind != KIND_TOKENS && kind != KIND_RAW;
}

coh_status cli_data_check_id_bytes(const cli_options *options)
{
    data_kind kinds[2] = { KIND_TEXT, KIND_TEXT };
    if (!cli_given(options, CLI_FLAG_ID_BYTES))
        return COH_OK;
    if (options->data)
        CLI_TRY(find_kind("data", options->data, &kinds[0]));
    if (options->validation && access(options->validation, F_OK) == 0)
        CLI_TRY(find_kind("validation", options->validation, &kinds[1]));
    if (kinds[0] == KIND_RAW || kinds[1] == KIND_RAW)
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "--id-bytes is for ids in a *.bin, and --data %s is none: leave it out",
                    options->data ? options->data : "");
}

coh_status cli_data_is_text(const char *flag, const char *path, int *out_is_text)
{
    data_kind kind;
    CLI_TRY(find_kind(flag, path, &kind));
    *out_is_text = is_text(kind);
    return COH_OK;
}

coh_status cli_data_open_file(const cli_options *options, int is_raw, coh_token_file **out_file)
{
    if (is_raw)
        return coh_token_file_open_raw(options->operand, 0, cli_data_id_bytes(options), out_file);
    return coh_token_file_open(options->operand, out_file);
}

/* ---- an estimate of tokens ---- */

uint64_t cli_data_token_bytes(const cli_data_source *source, const char *what)
{
    enum { TEXT_BYTES = 4, NARROW_MOST = 1 << 16 }; /* the largest vocabulary of ids of 2 bytes */
    const cli_data_form *form = source->form;
    struct stat facts;
    if (form->chat || form->field[0] || cli_data_is_named_lines(what) || stat(what, &facts) != 0)
        return 0;
    const uint64_t bytes =
        S_ISDIR(facts.st_mode) ? cli_data_folder_text_bytes(what) : (uint64_t)facts.st_size;
    const uint64_t of_token = strcmp(source->tokenizer_path, "bytes") == 0 ? 1 : TEXT_BYTES;
    return bytes / of_token * (source->vocabulary <= NARROW_MOST ? 2 : 4);
}

/* ---- tokenising ---- */

static coh_status go_on(void *context)
{
    (void)context;
    return cli_stop_check("while text was tokenized: nothing of it is kept; the same command begins"
                          " again");
}

/* Are the lines of the data read, by a flag or by their names? A folder that an earlier version
 * would have read is not refused where a run goes on with it. */
static coh_status find_lines(const cli_data_source *source, const char *flag, const char *what,
                             int *out_is_lines)
{
    struct stat facts;
    const int is_asked = source->form->chat || source->form->field[0];
    *out_is_lines = is_asked || cli_data_is_named_lines(what);
    if (stat(what, &facts) != 0 || !S_ISDIR(facts.st_mode))
        return COH_OK;
    const coh_status status = cli_data_folder_look(flag, what, is_asked, out_is_lines);
    return source->takes_json ? COH_OK : status;
}

coh_status cli_data_build_options(const cli_data_source *source, const char *flag, const char *what,
                                  coh_token_build_options *out_options)
{
    const cli_data_form *form = source->form;
    int is_lines;
    CLI_TRY(find_lines(source, flag, what, &is_lines));
    coh_token_build_options_init(out_options);
    out_options->go_on = go_on;
    out_options->in_path = what;
    out_options->form = form->chat ? COH_DATA_CHAT : is_lines ? COH_DATA_JSONL : COH_DATA_TEXT;
    out_options->field = form->field[0] ? form->field : NULL;
    out_options->chat_folder =
        strcmp(source->tokenizer_path, "bytes") == 0 ? NULL : source->tokenizer_path;
    out_options->chat_form = (coh_chat_form)form->chat_form;
    out_options->window = form->aligned ? source->sequence : 0;
    out_options->separate = form->aligned == COH_DOCUMENTS_SEPARATE;
    out_options->fitted = out_options->separate || form->aligned == COH_DOCUMENTS_FITTED;
    out_options->sequence = source->sequence;
    out_options->skip_bad = source->skips_bad;
    out_options->seed = source->seed;
    out_options->thread_count = source->thread_count;
    out_options->vocabulary = source->vocabulary;
    return COH_OK;
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* The length that cuts fewer documents, or that there is none. */
static void find_length(const cli_data_source *source, uint64_t longest, cli_line *out_remedy)
{
    const int64_t most = source->positions;
    cli_line_clear(out_remedy);
    if (source->sequence_is_fixed)
        cli_line_add(out_remedy, "a new run may have a longer --sequence");
    else if (most == 0 || longest - 1 <= (uint64_t)most)
        cli_line_add(out_remedy, "--sequence %" PRIu64 " holds the longest", longest - 1);
    else if (source->sequence < most)
        cli_line_add(out_remedy,
                     "--sequence %" PRId64 ", the most that this model reads, cuts fewer", most);
    else
        cli_line_add(out_remedy,
                     "this model reads no more than %" PRId64 " tokens, so split what is longer",
                     most);
}

/* The end of a conversation, or of a prompt's completion, is lost behind the cut; text is meant to
 * be cut anywhere. */
static void say_cut(const cli_data_source *source, const char *what,
                    const coh_token_build_facts *facts)
{
    const cli_data_form *form = source->form;
    const uint64_t count = facts->document_count + facts->held_out_document_count;
    const uint64_t cut = facts->cut_document_count;
    const int is_pair = strchr(form->field, ',') != NULL;
    cli_line remedy;
    if (cut == 0 || !(form->chat || is_pair))
        return;
    find_length(source, facts->longest_document, &remedy);
    if (!source->sequence_is_fixed && !form->aligned)
        cli_line_add(&remedy, ", and --documents separate keeps those whole that fit");
    cli_note_choice("%s: %" PRIu64 " of %" PRIu64 " %s%s %s longer than --sequence %" PRId64
                    " (the longest has %" PRIu64 " tokens), so %s cut: %s",
                    what, cut, count, form->chat ? "conversation" : "pair", plural(count),
                    cut == 1 ? "is" : "are", source->sequence, facts->longest_document,
                    cut == 1 ? "it is" : "they are", remedy.text);
}

void cli_data_say_build(const cli_data_source *source, const char *what,
                        const coh_token_build_facts *facts)
{
    const uint64_t count = facts->document_count + facts->held_out_document_count;
    if (facts->chat_form[0])
        cli_note_choice("%s: %" PRIu64 " conversation%s, written as %s", what, count, plural(count),
                        facts->chat_form);
    if (facts->skipped_count)
        cli_note_choice("%s: %" PRIu64 " line%s left out as bad: %s; the first: %s", what,
                        facts->skipped_count, plural(facts->skipped_count), facts->skipped_reasons,
                        facts->first_skipped);
    say_cut(source, what, facts);
    if (facts->cut_byte)
        cli_note_choice("%s: cut at a line end behind byte %" PRIu64 " of %" PRIu64
                        ": the last %.3g %% put aside for validation",
                        what, facts->cut_byte, facts->text_bytes,
                        100.0 * (double)(facts->text_bytes - facts->cut_byte) /
                            (double)facts->text_bytes);
    else if (facts->held_out_document_count)
        cli_note_choice("%s: %" PRIu64 " document%s, and %" PRIu64 " put aside for validation",
                        what, facts->document_count, plural(facts->document_count),
                        facts->held_out_document_count);
    if (facts->binary_count)
        cli_note_choice("%s: %" PRIu64 " file%s read as text; %" PRIu64
                        " left out as binary (a NUL byte in the first 8 KiB), the first: %s",
                        what, facts->file_count, plural(facts->file_count), facts->binary_count,
                        facts->first_binary);
    else if (facts->other_count)
        cli_note_choice("%s: %" PRIu64 " file%s read; %" PRIu64
                        " left out: named as a configuration, or neither *.jsonl, *.ndjson or "
                        "*.jl nor a *.json of documents",
                        what, facts->file_count, plural(facts->file_count), facts->other_count);
    else if (facts->file_count)
        cli_note_choice("%s: %" PRIu64 " file%s read", what, facts->file_count,
                        plural(facts->file_count));
    if (facts->lines_as_text_count)
        cli_note_choice("%s: %" PRIu64
                        " file%s *.jsonl, *.ndjson or *.jl: read as text; --field NAME (or "
                        "--chat) reads the lines",
                        what, facts->lines_as_text_count, plural(facts->lines_as_text_count));
    if (facts->replaced_count)
        cli_note_choice("%s: %" PRIu64 " %s of characters (\\ud800 to \\udfff alone): read as "
                        "U+FFFD",
                        what, facts->replaced_count,
                        facts->replaced_count == 1 ? "half" : "halves");
    if (facts->empty_window_count)
        cli_note_choice("%s: %" PRIu64 " window%s left out: nothing in %s counts", what,
                        facts->empty_window_count, plural(facts->empty_window_count),
                        facts->empty_window_count == 1 ? "it" : "them");
}

void cli_data_say_attention(const char *what, int marks, int is_separate)
{
    if (marks != is_separate)
        cli_note_choice(marks
                            ? "note: the documents of %s are separate, but not those of training: "
                              "a token attends over all before it in its sequence"
                            : "note: %s does not mark where its documents begin, so a token "
                              "attends over all before it in its sequence (cohobate tokenize "
                              "--documents separate marks them)",
                        what);
}

/* Some models, such as Gemma, are trained with the token before a text. The note on it names no
 * file, so that it is printed once for data and validation. */
void cli_data_say_stream(const coh_tokenizer *tokenizer, const coh_token_build_options *options)
{
    const int32_t *before, *after;
    size_t before_count, after_count, bytes;
    const char *text;
    struct stat facts;
    if (options->form == COH_DATA_TEXT && options->skip_bad)
        cli_note_choice("note: %s is read as text, and --skip-bad leaves out lines of JSON: it "
                        "changes nothing here (--field NAME or --chat reads lines)",
                        options->in_path);
    coh_tokenizer_around(tokenizer, &before, &before_count, &after, &after_count);
    if (options->form != COH_DATA_TEXT || before_count == 0 ||
        stat(options->in_path, &facts) != 0 || S_ISDIR(facts.st_mode) ||
        coh_tokenizer_piece(tokenizer, before[0], &text, &bytes) != COH_OK)
        return;
    cli_note_choice(
        "note: a text file is read as one stream, without the token that the tokenizer puts before "
        "each text (id %" PRId32 "%s%.*s), so sequences begin without it: if the model needs it, "
        "give lines of JSON (*.jsonl, {\"text\": ...}), a text each",
        before[0], bytes ? ", " : "", bytes < 100 ? (int)bytes : 100, text);
}

static coh_status build(const cli_data_source *source, const char *flag, const char *what,
                        const char *paths[2], cli_data *parts[2])
{
    coh_token_build_options options;
    coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
    CLI_TRY(cli_data_build_options(source, flag, what, &options));
    options.out_path = paths[0];
    if (parts[1]) {
        options.validation_split = source->form->validation_split;
        options.held_out_path = paths[1];
    }
    cli_progress_begin("tokenizing", what, CLI_PROGRESS_FIRST_S);
    const coh_status status = coh_token_file_make(source->tokenizer, &options, &facts);
    cli_progress_end();
    CLI_TRY(status);
    cli_data_say_build(source, what, &facts);
    cli_data_say_stream(source->tokenizer, &options);
    for (int i = 0; i < 2 && parts[i]; i++) {
        parts[i]->learned_count = i ? facts.held_out_target_count : facts.target_count;
        CLI_TRY(coh_token_file_open(paths[i], &parts[i]->file));
    }
    return COH_OK;
}

/* ---- temporary folder ---- */

#define NAME_BEGINS "cohobate-tokens-"
enum { NAME_DRAWN = 6 }; /* number of characters that mkdtemp chooses */

/* Two commands that start together may each take the other's new folder for a leftover. */
enum { TRIES = 100 };

const char *cli_data_temporary(void)
{
    const char *named = getenv("TMPDIR");
    return named && named[0] ? named : "/tmp";
}

/* A folder under TMPDIR for temporary token files. It is locked (flock) by its process; the
 * kernel releases the lock when the process dies, so the next command of the same user
 * recognises and removes the folders of killed processes. Locked folders, those of other users,
 * and other files with similar names stay. On a file system without locks only a process's own
 * folder is removed. */
typedef struct scratch_folder {
    char path[CLI_PATH_BYTES / 2];
    int lock_fd; /* -1: there is none */
} scratch_folder;

/* Opens and locks the folder; -1: another process holds it, or it no longer exists. `is_ours`: just
 * made by this process, so it is held without a lock if the file system has none. */
static int hold(const char *path, int is_ours)
{
    struct stat held, there;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int is_held = flock(fd, LOCK_EX | LOCK_NB) == 0 || (is_ours && errno != EWOULDBLOCK);
    is_held &= fstat(fd, &held) == 0 && lstat(path, &there) == 0 && held.st_dev == there.st_dev &&
               held.st_ino == there.st_ino && held.st_uid == geteuid();
    if (is_held)
        return fd;
    close(fd);
    return -1;
}

/* Removes our files. Any other file in it keeps the folder. */
static void remove_held(const char *path, int fd)
{
    struct dirent *entry;
    const int listed = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = listed < 0 ? NULL : fdopendir(listed);
    while (folder && (entry = readdir(folder)))
        if (strncmp(entry->d_name, "data.tokens", 11) == 0 ||
            strncmp(entry->d_name, "validation.tokens", 17) == 0)
            (void)unlinkat(fd, entry->d_name, 0);
    if (folder)
        closedir(folder);
    else if (listed >= 0)
        close(listed);
    (void)rmdir(path);
}

static void remove_rests(void)
{
    char path[CLI_PATH_BYTES];
    struct dirent *entry;
    DIR *folder = opendir(cli_data_temporary());
    while (folder && (entry = readdir(folder))) {
        if (strncmp(entry->d_name, NAME_BEGINS, strlen(NAME_BEGINS)) != 0 ||
            strlen(entry->d_name) != strlen(NAME_BEGINS) + NAME_DRAWN ||
            snprintf(path, sizeof(path), "%s/%s", cli_data_temporary(), entry->d_name) >=
                (int)sizeof(path))
            continue;
        const int fd = hold(path, 0);
        if (fd < 0)
            continue;
        remove_held(path, fd);
        close(fd);
    }
    if (folder)
        closedir(folder);
}

/* Removes folders of killed processes, then makes a new one for files "data.tokens*" and
 * "validation.tokens*". */
static coh_status create_scratch(scratch_folder *out_scratch)
{
    out_scratch->lock_fd = -1;
    remove_rests();
    for (int i = 0; i < TRIES && out_scratch->lock_fd < 0; i++) {
        if (snprintf(out_scratch->path, sizeof(out_scratch->path), "%s/" NAME_BEGINS "XXXXXX",
                     cli_data_temporary()) >= (int)sizeof(out_scratch->path))
            return cli_fail(COH_ERR_ARGUMENT, "TMPDIR is a path of %zu bytes: set a shorter one",
                            strlen(cli_data_temporary()));
        if (!mkdtemp(out_scratch->path))
            break;
        out_scratch->lock_fd = hold(out_scratch->path, 1);
        if (out_scratch->lock_fd < 0)
            (void)rmdir(out_scratch->path);
    }
    if (out_scratch->lock_fd >= 0)
        return COH_OK;
    return cli_fail(COH_ERR_IO,
                    "cannot make the folder %s for the tokens: %s: set TMPDIR to a folder that can "
                    "be written to, or run cohobate tokenize first",
                    out_scratch->path, strerror(errno));
}

static void destroy_scratch(const scratch_folder *scratch)
{
    remove_held(scratch->path, scratch->lock_fd);
    close(scratch->lock_fd);
}

/* Builds into a folder under TMPDIR; files and folder are unlinked as soon as they are open. */
static coh_status build_unnamed(const cli_data_source *source, const char *flag, const char *what,
                                cli_data *parts[2])
{
    scratch_folder scratch;
    char paths[2][CLI_PATH_BYTES];
    CLI_TRY(create_scratch(&scratch));
    snprintf(paths[0], sizeof(paths[0]), "%s/data.tokens", scratch.path);
    snprintf(paths[1], sizeof(paths[1]), "%s/validation.tokens", scratch.path);
    coh_status status = build(source, flag, what, (const char *[]){ paths[0], paths[1] }, parts);
    destroy_scratch(&scratch);
    if (status != COH_ERR_IO || !strstr(coh_last_error(), "another place"))
        return status;
    char why[1024];
    snprintf(why, sizeof(why), "%s", coh_last_error());
    return cli_fail(status, "%s, with TMPDIR", why);
}

/* ---- existing token files ---- */

static coh_status check_facts(const cli_data_source *source, const char *flag, const char *what,
                              const coh_token_file_facts *facts)
{
    const uint64_t identity = source->tokenizer ? coh_tokenizer_identity(source->tokenizer)
                              : source->tokenizer_identity != 0 ? source->tokenizer_identity
                                                                : facts->tokenizer_identity;
    if (!facts->is_raw && facts->tokenizer_identity != identity)
        return cli_fail(COH_ERR_CORRUPT,
                        "--%s %s was made by another tokenizer (%016" PRIx64
                        ", this one is %016" PRIx64
                        "): give its --tokenizer, or tokenize the text again",
                        flag, what, facts->tokenizer_identity, identity);
    if (facts->window > 0 && facts->window != source->sequence)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s %s has documents in sequences of %" PRId64 " tokens, and these have "
                        "%" PRId64 ": give --sequence %" PRId64 ", or tokenize the text again",
                        flag, what, facts->window, source->sequence, facts->window);
    return COH_OK;
}

/* Does the tokenizer put this id around documents? */
static int is_around(const coh_tokenizer *tokenizer, int32_t id)
{
    const int32_t *ids[2];
    size_t counts[2];
    coh_tokenizer_around(tokenizer, &ids[0], &counts[0], &ids[1], &counts[1]);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < counts[k]; i++)
            if (ids[k][i] == id)
                return 1;
    return id == coh_tokenizer_end_of_text(tokenizer);
}

/* Checks a token file made with the model's tokenizer but without the model: it may hold added
 * tokens beyond the model's vocabulary. */
static coh_status check_below(const cli_data_source *source, const char *flag, const char *what,
                              const cli_data *data)
{
    enum { PASS = 16384 };
    int32_t ids[PASS];
    for (uint64_t begin = 0; begin < data->facts.token_count; begin += PASS) {
        const uint64_t left = data->facts.token_count - begin;
        const size_t count = left < PASS ? (size_t)left : PASS;
        CLI_TRY(coh_token_file_read(data->file, begin, count, ids));
        for (size_t i = 0; i < count; i++) {
            const char *text;
            size_t bytes;
            if (ids[i] < source->vocabulary)
                continue;
            if (!source->tokenizer)
                return cli_fail(COH_ERR_CORRUPT,
                                "--%s %s: token %" PRIu64 " has id %" PRId32
                                ", and the model has a vocabulary of %" PRId64
                                ": give ids made for this model, or a model that has it",
                                flag, what, begin + i + 1, ids[i], source->vocabulary);
            CLI_TRY(coh_tokenizer_piece(source->tokenizer, ids[i], &text, &bytes));
            return cli_fail(COH_ERR_CORRUPT,
                            "--%s %s: token %" PRIu64 " is \"%.*s\" (id %" PRId32
                            "), and the model has a vocabulary of %" PRId64
                            ": %s, or give a model that has it",
                            flag, what, begin + i + 1, bytes < 100 ? (int)bytes : 100, text, ids[i],
                            source->vocabulary,
                            is_around(source->tokenizer, ids[i])
                                ? "the tokenizer puts it around documents, so tokenize the text "
                                  "with the one that the model was trained with"
                                : "take it out of the text");
        }
    }
    return COH_OK;
}

/* Opens a token file and reads all of it once, so that a flipped bit is found before the first
 * step. */
static coh_status open_whole(const cli_data_source *source, const char *flag, const char *what,
                             data_kind kind, cli_data *data)
{
    if (source->is_form_given)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s %s holds ids already: --field, --chat, --chat-form, --documents, "
                        "--validation-split and --skip-bad are for text, so leave them out or give "
                        "them to cohobate tokenize",
                        flag, what);
    if (kind == KIND_TOKENS) {
        CLI_TRY(coh_token_file_open(what, &data->file));
        return coh_token_file_check(data->file);
    }
    CLI_TRY(coh_token_file_open_raw(what, source->vocabulary, (int32_t)source->form->id_bytes,
                                    &data->file));
    cli_note_choice("--%s %s does not say which tokenizer made it: its ids are below %" PRId64
                    ", and nothing else was checked",
                    flag, what, source->vocabulary);
    return COH_OK;
}

/* ---- opening ---- */

static coh_status open_parts(const cli_data_source *source, const char *flag, const char *what,
                             data_kind kind, const char *paths[2], cli_data *parts[2])
{
    const char *named[2] = { paths[0], paths[1] };
    if (kind == KIND_TOKENS || kind == KIND_RAW) {
        CLI_TRY(open_whole(source, flag, what, kind, parts[0]));
        named[0] = what;
        parts[1] = NULL;
    } else if (paths[0]) {
        CLI_TRY(build(source, flag, what, paths, parts));
    } else {
        CLI_TRY(build_unnamed(source, flag, what, parts));
    }
    for (int i = 0; i < 2 && parts[i]; i++) {
        parts[i]->facts.struct_bytes = sizeof(parts[i]->facts);
        CLI_TRY(coh_token_file_facts_get(parts[i]->file, &parts[i]->facts));
        if (parts[i]->learned_count == 0) /* it was made before, and has been read */
            parts[i]->learned_count = parts[i]->facts.target_count;
        CLI_TRY(check_facts(source, flag, what, &parts[i]->facts));
        if (parts[i]->facts.vocabulary > source->vocabulary)
            CLI_TRY(check_below(source, flag, what, parts[i]));
        char *absolute = named[i] ? realpath(named[i], NULL) : NULL;
        if (absolute)
            snprintf(parts[i]->path, sizeof(parts[i]->path), "%s", absolute);
        free(absolute);
    }
    return COH_OK;
}

coh_status cli_data_open(const cli_data_source *source, const char *flag, const char *what,
                         const char *cache_path, const char *held_out_path, cli_data *out_data,
                         cli_data *out_held_out)
{
    cli_data *parts[2] = { out_data, out_held_out };
    const char *paths[2] = { cache_path, held_out_path };
    *out_data = (cli_data){ 0 };
    if (out_held_out)
        *out_held_out = (cli_data){ 0 };
    data_kind kind;
    CLI_TRY(find_kind(flag, what, &kind)); /* its messages name the flag */
    if (!source->takes_json && is_raw_json(source->form, kind == KIND_JSON))
        return cli_foreign_refuse_json(flag, what);
    if (!source->takes_json && kind == KIND_TABLE)
        return cli_foreign_refuse_table(flag, what);
    if (!source->tokenizer && is_text(kind))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s %s is text, and --tokenizer none reads ids only: give --tokenizer "
                        "bytes|PATH, or a token file or *.bin of ids",
                        flag, what);
    coh_status status = open_parts(source, flag, what, kind, paths, parts);
    if (status == COH_OK)
        return COH_OK;
    cli_data_close(out_data);
    if (out_held_out)
        cli_data_close(out_held_out);
    return status == COH_ERR_IO ? cli_blame(status, "--%s", flag) : status;
}

coh_status cli_data_check_windows(const cli_data *data, const char *flag, const char *what,
                                  int64_t sequence, int may_shorten)
{
    const uint64_t count = data->facts.token_count;
    char remedy[64] = "give more";
    if (coh_token_file_window_count(data->file, sequence) > 0)
        return COH_OK;
    if (may_shorten && count >= 2)
        snprintf(remedy, sizeof(remedy), "give more, or --sequence %" PRIu64, count - 1);
    return cli_fail(COH_ERR_CORRUPT,
                    "--%s%s%s holds %" PRIu64 " token%s, and a sequence of %" PRId64
                    " needs %" PRId64 ": %s",
                    flag, what[0] ? " " : "", what, count, count == 1 ? "" : "s", sequence,
                    sequence + 1, remedy);
}

void cli_data_close(cli_data *data)
{
    coh_token_file_close(data->file);
    data->file = NULL;
}

coh_status cli_data_fill(const cli_data *data, uint64_t seed, uint64_t first_window,
                         int64_t window_count, int64_t tokens, const cli_batch *out_batch)
{
    const cli_batch *to = out_batch;
    for (int64_t w = 0, at = 0; w < window_count; w++, at += tokens)
        CLI_TRY(coh_token_file_window_positions(data->file, seed, first_window + (uint64_t)w,
                                                tokens, to->tokens + at, to->targets + at,
                                                to->positions ? to->positions + at : NULL));
    return COH_OK;
}

int64_t cli_data_counted(const int32_t *targets, int64_t count)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < count; i++)
        counted += targets[i] >= 0;
    return counted;
}
