/* data.h - opens the text of a run as token files that are read in windows.
 *
 * The input is one of these, recognised by name and first bytes:
 *
 *   token file                        made by cohobate tokenize: read where it is
 *   *.bin                             ids as llm.c and nanoGPT write them: read where it is
 *   *.jsonl, *.ndjson, *.jl; whatever JSON lines: turned into a token file first
 *     --field or --chat is given for
 *   any other file, a folder          text: likewise; not *.json, *.csv, compressed files, Parquet
 *                                     and Arrow; a folder of *.jsonl and *.ndjson: JSON lines */
#ifndef COH_CLI_DATA_H
#define COH_CLI_DATA_H

#include "cli/say.h"
#include "cohobate/training_note.h"

struct cli_options;

/* How text becomes documents: from the flags, or from a checkpoint's note. */
typedef coh_text_form cli_data_form;

/* The value of --id-bytes: 2 or 4, 0 if not given. */
int32_t cli_data_id_bytes(const struct cli_options *options);
/* Fails: COH_ERR_ARGUMENT if it is given but neither --data nor --validation is such a file. */
coh_status cli_data_check_id_bytes(const struct cli_options *options);
/* Do these bytes begin a token file? */
int cli_data_is_tokens(const void *head, size_t head_bytes);
/* Does a file with this name and these first bytes hold ids as llm.c and nanoGPT write them? */
int cli_data_is_raw(const char *path, const void *head, size_t head_bytes);

/* Opens the operand, a token file, or if `is_raw` ids of any vocabulary. Fails: as opening does. */
coh_status cli_data_open_file(const struct cli_options *options, int is_raw,
                              coh_token_file **out_file);

/* Makes the form from flags and their defaults. Fails: COH_ERR_ARGUMENT for flags that contradict
 * one another. */
coh_status cli_data_form_from_options(const struct cli_options *options, cli_data_form *out_form);
/* Replaces the fields of *form whose flags are given, except id_bytes. Fails: as above. */
coh_status cli_data_form_override(const struct cli_options *options, cli_data_form *form);
/* Does the token file `path` mark where its documents begin? -1: it is none, or cannot be read. */
int cli_data_marks_documents(const char *path);
/* Is it a file of JSON lines by its name? A *.jl is one if it begins with an object. */
int cli_data_is_named_lines(const char *path);
/* Is `path` a folder, a file named like JSON lines, or one of JSON (*.json)? */
int cli_data_may_hold_lines(const char *path);

/* Everything that determines the ids of a text. */
typedef struct cli_data_source {
    coh_tokenizer *tokenizer;    /* NULL: "none", and only ids are read */
    uint64_t tokenizer_identity; /* of token files without `tokenizer`; 0: any */
    const char *tokenizer_path;  /* "bytes", "none", a folder or a file */
    int64_t vocabulary;          /* of the model: ids must be below it */
    int64_t sequence;            /* tokens of a window */
    int64_t positions;           /* of the model, the most that `sequence` can be; 0: no limit */
    uint64_t seed;
    const cli_data_form *form;
    int32_t thread_count; /* threads that read files and parts of them */
    int is_form_given;    /* by flags of this command; a note says that a token file ignores them */
    /* JSON and tables are text, as earlier versions read them: the run's note names the file. */
    int takes_json;
    int sequence_is_fixed; /* of a resumed run: no flag changes it */
    int skips_bad;         /* leaves out lines of JSON that are no documents */
} cli_data_source;

/* Is a path text (1) or ids (0)? `flag` is for messages. Fails: COH_ERR_IO, COH_ERR_ARGUMENT
 * (neither a file nor a folder). */
coh_status cli_data_is_text(const char *flag, const char *path, int *out_is_text);

/* Refuses an operand of tokenize that is compressed, Parquet, or JSON or a table that would be read
 * as text. `takes_bytes`: the user asked for the bytes of any file; JSON and tables are refused all
 * the same, since they are a data set more often than bytes. Fails: COH_ERR_CORRUPT. */
coh_status cli_data_check_text(const cli_data_form *form, const char *path, int takes_bytes);

/* Sets the options of coh_token_file_make for text `what`, except for output paths and held-out
 * documents. `flag`: as in cli_data_folder_look, as are failures. */
coh_status cli_data_build_options(const cli_data_source *source, const char *flag, const char *what,
                                  coh_token_build_options *out_options);
/* Prints notes about a build that its result does not show. */
void cli_data_say_build(const cli_data_source *source, const char *what,
                        const coh_token_build_facts *facts);
/* Says that the loss of `what`, whose documents the token file marks or does not, is taken as the
 * steps of training are: `is_separate`. Says nothing if the two agree. */
void cli_data_say_attention(const char *what, int marks, int is_separate);
/* Prints notes about text: that it has no bad lines to leave out, and that a single file is read
 * without the token that the tokenizer puts before a text, if it puts one. */
void cli_data_say_stream(const coh_tokenizer *tokenizer, const coh_token_build_options *options);

/* Estimates the bytes of the token file of a text, rather too few than too many: 4 bytes of text a
 * token (of the tokenizer "bytes" one), and of a folder the first 4,096 files. 0 for JSON lines,
 * which may hold much that is not read, and for what cannot be read. */
uint64_t cli_data_token_bytes(const cli_data_source *source, const char *what);
/* The folder for token files that no run keeps: TMPDIR, or /tmp. */
const char *cli_data_temporary(void);

typedef struct cli_data {
    coh_token_file *file; /* NULL: none */
    coh_token_file_facts facts;
    char path[CLI_PATH_BYTES]; /* of the token file, absolute; "": it has been unlinked */
    uint64_t learned_count;    /* its ids that count as targets */
} cli_data;

/* Opens `what`, the value of flag `flag` in messages. Text is tokenised into `cache_path`; if that
 * is NULL, into a temporary file that is removed with the process. With a validation split,
 * held-out documents go to `out_held_out` and to the file `held_out_path`; both NULL: no split,
 * whatever the form says. A token file is read in full to check its hash. Fails: COH_ERR_CORRUPT
 * (damaged or foreign token file, other tokenizer), COH_ERR_ARGUMENT (a split of a token file,
 * windows that do not suit this sequence length), COH_ERR_IO. */
coh_status cli_data_open(const cli_data_source *source, const char *flag, const char *what,
                         const char *cache_path, const char *held_out_path, cli_data *out_data,
                         cli_data *out_held_out);
void cli_data_close(cli_data *data); /* accepts one that is not open */

/* Checks that the data holds at least one sequence. `what` is the value of `flag`, for the message;
 * `may_shorten`: --sequence may be lowered. Fails: COH_ERR_CORRUPT. */
coh_status cli_data_check_windows(const cli_data *data, const char *flag, const char *what,
                                  int64_t sequence, int may_shorten);

/* Arrays of a batch: ids, the target after each, and, unless it is NULL, the position of each in
 * its document. */
typedef struct cli_batch {
    int32_t *tokens, *targets, *positions;
} cli_batch;

/* Reads `window_count` windows of `tokens` each, from number `first_window` on, in the order of
 * `seed`. Allocates nothing. */
coh_status cli_data_fill(const cli_data *data, uint64_t seed, uint64_t first_window,
                         int64_t window_count, int64_t tokens, const cli_batch *out_batch);

/* The number of targets that count. */
int64_t cli_data_counted(const int32_t *targets, int64_t count);

#endif
