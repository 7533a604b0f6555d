/* Reads vocab.json and merges.txt strictly: an accepted file defines every id; a refused one is
 * reported with the line of the error. The one idea: both become one coh_bpe of ids and ranks.
 * Next: bpe.c uses it, tokenizer_config.c finds the class. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "base/file_text.h"
#include "text/tokenizer_files.h"

const char coh_end_of_text_name[] = "<|endoftext|>";

/* ---- vocab.json ---- */

/* Sorts the tokens by id; ids must be 0..count-1, each once. */
static coh_status order_names(const char *path, json_t *root, coh_slice *names)
{
    size_t count = json_object_size(root);
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value)
    {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || (uint64_t)id >= count)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: the id of token \"%.100s\" is not an integer in 0..%zu, as the "
                            "number of tokens asks",
                            path, name, count - 1);
        if (names[id].bytes)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: tokens \"%.100s\" and \"%.100s\" have one id, %lld", path,
                            names[id].bytes, name, (long long)id);
        names[id] = (coh_slice){ name, strlen(name) };
    }
    return COH_OK;
}

/* Decodes the bytes of every token; `room` is a buffer. */
static coh_status decode_names(const char *path, coh_pipeline *pipeline, coh_byte_list *room)
{
    coh_alphabet alphabet;
    coh_alphabet_fill(&alphabet);
    memset(pipeline->model->byte_id, -1, sizeof(pipeline->model->byte_id));
    for (int32_t id = 0; id < pipeline->names.count; id++) {
        coh_slice name = coh_token_table_at(&pipeline->names, id);
        COH_TRY(COH_GROW(&room->bytes, &room->capacity, name.count));
        ptrdiff_t bytes = coh_alphabet_decode(&alphabet, name, room->bytes);
        if (bytes < 1)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: token \"%.*s\" with id %" PRId32 " is not made of the 256 "
                            "characters that represent bytes",
                            path, (int)(name.count < 100 ? name.count : 100), name.bytes, id);
        if (bytes == 1)
            pipeline->model->byte_id[room->bytes[0]] = id;
        COH_TRY(coh_token_table_add(&pipeline->texts,
                                    (coh_slice){ (const char *)room->bytes, (size_t)bytes }));
    }
    return coh_tokenizer_check_bytes(path, pipeline->model);
}

static coh_status fill_tokens(const char *path, json_t *root, coh_pipeline *pipeline)
{
    coh_status status;
    coh_slice *names = NULL;
    coh_byte_list room = { 0 };
    int64_t count = (int64_t)json_object_size(root);
    if (count == 0)
        return coh_fail(COH_ERR_CORRUPT, "%s is not an object of tokens with ids", path);
    if (count > INT32_MAX)
        return coh_fail(COH_ERR_CORRUPT, "%s has %" PRId64 " tokens, more than ids of 31 bits",
                        path, count);
    COH_TRY_GOTO(status, COH_ALLOC(count, &names), done);
    COH_TRY_GOTO(status, order_names(path, root, names), done);
    for (int64_t id = 0; id < count; id++)
        COH_TRY_GOTO(status, coh_token_table_add(&pipeline->names, names[id]), done);
    COH_TRY_GOTO(status, coh_token_table_index(&pipeline->names), done);
    status = decode_names(path, pipeline, &room);
done:
    coh_free(room.bytes);
    coh_free(names);
    return status;
}

/* ---- merges.txt ---- */

/* The position in the file, for messages. */
typedef struct merge_reader {
    const char *path;
    int64_t line;
    coh_pipeline *pipeline;
    int32_t end_of_text;
    coh_byte_list joined;
} merge_reader;

/* `line` ends with a NUL instead of its line feed. */
static coh_status read_merge(merge_reader *reader, const char *line)
{
    const char *space = strchr(line, ' ');
    if (!space || space == line || !space[1] || strchr(space + 1, ' '))
        return coh_fail(COH_ERR_CORRUPT,
                        "%s line %" PRId64 ": \"%.100s\" is not two tokens with one space between",
                        reader->path, reader->line, line);
    const coh_slice left = { line, (size_t)(space - line) },
                    right = { space + 1, strlen(space + 1) };
    int32_t result = -1;
    int is_new = 0;
    coh_status status = coh_tokenizer_add_merge(reader->pipeline, NULL, left, right,
                                                &reader->joined, &result, &is_new);
    if (status == COH_ERR_CORRUPT)
        return coh_fail_prefix(status, "%s line %" PRId64, reader->path, reader->line);
    COH_TRY(status);
    if (result == reader->end_of_text)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s line %" PRId64 " makes %s, which must never come from text",
                        reader->path, reader->line, coh_end_of_text_name);
    if (!is_new)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s line %" PRId64 ": the pair \"%.*s\" \"%.100s\" occurs there a second "
                        "time",
                        reader->path, reader->line, left.count < 100 ? (int)left.count : 100, line,
                        right.bytes);
    return COH_OK;
}

static coh_status read_lines(merge_reader *reader, char *text, size_t text_bytes)
{
    for (char *line = text, *next; line < text + text_bytes; line = next) {
        reader->line++;
        char *end = memchr(line, '\n', text_bytes - (size_t)(line - text));
        next = end ? end + 1 : text + text_bytes;
        if (!end)
            end = text + text_bytes;
        if (memchr(line, '\0', (size_t)(end - line)))
            return coh_fail(COH_ERR_CORRUPT, "%s line %" PRId64 " has a NUL byte: not text",
                            reader->path, reader->line);
        if (end > line && end[-1] == '\r')
            end--;
        *end = '\0';
        if (reader->line == 1 && strncmp(line, "#version", 8) == 0)
            continue;
        COH_TRY(read_merge(reader, line));
    }
    return COH_OK;
}

static coh_status read_merges(const char *path, int32_t end_of_text, coh_pipeline *pipeline)
{
    char *text;
    size_t text_bytes;
    COH_TRY(coh_file_read_whole(path, COH_TOKENIZER_FILE_BYTES_MAX, &text, &text_bytes));
    merge_reader reader = { .path = path, .pipeline = pipeline, .end_of_text = end_of_text };
    coh_status status = read_lines(&reader, text, text_bytes);
    coh_free(reader.joined.bytes);
    coh_free(text);
    return status;
}

/* ---- both files ---- */

/* Hashes tokens and merges in order, regardless of the files' formatting, and the class. */
static coh_status fill_identity(const coh_pipeline *pipeline, const coh_byte_pair_class *class,
                                uint64_t *out_identity)
{
    coh_identity identity;
    coh_identity_begin(&identity, class->is_qwen2     ? "cohobate byte pairs qwen2 1"
                                  : class->has_prefix ? "cohobate byte pairs prefixed 1"
                                                      : "cohobate byte pairs 1");
    coh_identity_add_tokens(&identity, &pipeline->texts);
    COH_TRY(coh_identity_add_merges(&identity, pipeline->model));
    *out_identity = coh_identity_end(&identity);
    return COH_OK;
}

static coh_status read_vocabulary(const char *path, coh_pipeline *pipeline)
{
    json_t *root;
    coh_status status = coh_json_read_text(path, COH_TOKENIZER_FILE_BYTES_MAX, &root);
    if (status == COH_ERR_IO)
        return coh_fail_prefix(status, "a tokenizer is a folder with tokenizer.json, "
                                       "tokenizer.model or vocab.json and merges.txt");
    if (status == COH_OK)
        status = fill_tokens(path, root, pipeline);
    json_decref(root);
    return status;
}

/* Qwen2's words: contractions in either case, letters after at most one other sign, single digits,
 * other signs with line ends after them, and white space separated at line ends. */
static const char qwen2_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static coh_status add_steps(const coh_byte_pair_class *class, coh_pipeline *pipeline)
{
    const char *pattern = class->is_qwen2 ? qwen2_pattern : coh_split_gpt2;
    if (class->is_qwen2)
        COH_TRY(coh_normalizer_add_nfc(&pipeline->normalizer));
    if (class->has_prefix) {
        coh_pipeline_step *step;
        COH_TRY(coh_pipeline_add_step(pipeline, "add_prefix_space", &step));
        step->scheme = COH_MARK_ALWAYS;
        COH_TRY(coh_byte_list_add(&step->mark, " ", 1));
    }
    return coh_pipeline_add_split(pipeline, class->is_qwen2 ? "Qwen2's pattern" : "GPT-2's pattern",
                                  (coh_slice){ pattern, strlen(pattern) }, COH_SPLIT_ISOLATED, 0);
}

coh_status coh_tokenizer_read_merges(const char *folder, coh_tokenizer *tokenizer)
{
    char vocabulary_path[PATH_MAX], merges_path[PATH_MAX];
    coh_pipeline *pipeline;
    coh_byte_pair_class class;
    int exists;
    COH_TRY(coh_tokenizer_find_file(folder, "vocab.json", vocabulary_path, &exists));
    COH_TRY(coh_tokenizer_find_file(folder, "merges.txt", merges_path, &exists));
    COH_TRY(coh_tokenizer_begin_pipeline(tokenizer, &pipeline));
    COH_TRY(coh_tokenizer_read_class(folder, &class));
    pipeline->is_byte_level = pipeline->model->is_byte_level = 1;
    COH_TRY(read_vocabulary(vocabulary_path, pipeline));
    tokenizer->begin_of_text = tokenizer->end_of_text =
        coh_token_table_find(&pipeline->names, coh_end_of_text_name, strlen(coh_end_of_text_name));
    COH_TRY(read_merges(merges_path, tokenizer->end_of_text, pipeline));
    if (class.is_qwen2)
        tokenizer->begin_of_text = -1;
    COH_TRY(add_steps(&class, pipeline));
    COH_TRY(fill_identity(pipeline, &class, &tokenizer->identity));
    return coh_tokenizer_finish_pipeline(tokenizer);
}
