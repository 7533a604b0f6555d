/* Recognises a chat template without running it. The one idea: literal parts of its text identify
 * the form, and anything unfamiliar means that the form is unknown. Next: chat.c, the caller. */
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_text.h"
#include "base/utf8.h"
#include "text/chat.h"
#include "text/json_fields.h"

#define TEMPLATE_BYTES_MAX (4u << 20)

/* ---- white space ---- */

/* As Python's str.isspace: bidirectional types WS, B, S and category Zs (Unicode 15). */
static int is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

/* The character at text[0..count), of `length` bytes. */
static uint32_t character_at(const uint8_t *text, size_t length)
{
    if (length <= 1)
        return text[0];
    uint32_t c = text[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++)
        c = c << 6 | (text[i] & 0x3f);
    return c;
}

coh_slice coh_chat_strip(coh_slice text)
{
    const uint8_t *bytes = (const uint8_t *)text.bytes;
    size_t begin = 0, end = text.count;
    while (begin < end) {
        size_t length = coh_utf8_character(bytes + begin, end - begin);
        if (length == 0 || !is_space(character_at(bytes + begin, length)))
            break;
        begin += length;
    }
    while (end > begin) {
        size_t last = end - 1;
        while (last > begin && (bytes[last] & 0xc0) == 0x80)
            last--;
        if (coh_utf8_character(bytes + last, end - last) != end - last ||
            !is_space(character_at(bytes + last, end - last)))
            break;
        end = last;
    }
    return (coh_slice){ text.bytes + begin, end - begin };
}

/* ---- the template's text ---- */

static coh_status template_of_config(const char *path, const json_t *root, char **out_template)
{
    if (!json_is_object(root))
        return coh_fail(COH_ERR_CORRUPT, "%s: expected an object", path);
    const json_t *value = json_object_get(root, "chat_template");
    if (json_is_array(value)) { /* several templates, by name */
        size_t index;
        json_t *entry;
        const json_t *all = value;
        value = NULL;
        json_array_foreach((json_t *)all, index, entry)
        {
            const char *name = json_string_value(json_object_get(entry, "name"));
            if (name && strcmp(name, "default") == 0)
                value = json_object_get(entry, "template");
        }
    }
    if (!json_is_string(value))
        return COH_OK;
    return coh_alloc_text(json_string_value(value), out_template);
}

static coh_status read_config(const char *path, char **out_template)
{
    char *text;
    size_t text_bytes;
    json_t *root = NULL;
    COH_TRY(coh_file_read_whole(path, TEMPLATE_BYTES_MAX, &text, &text_bytes));
    coh_status status = coh_json_parse(path, text, text_bytes, &root);
    if (status == COH_OK)
        status = template_of_config(path, root, out_template);
    json_decref(root);
    coh_free(text);
    return status;
}

coh_status coh_chat_template_read(const char *folder, char *out_path, char **out_template)
{
    struct stat facts;
    size_t folder_bytes = strlen(folder), text_bytes;
    *out_template = NULL;
    if (stat(folder, &facts) == 0 && !S_ISDIR(facts.st_mode)) { /* a file: use its folder */
        const char *slash = strrchr(folder, '/');
        folder_bytes = slash ? (size_t)(slash - folder) : 1;
        folder = slash ? folder : ".";
    }
    if (snprintf(out_path, PATH_MAX, "%.*s/tokenizer_config.json", (int)folder_bytes, folder) >=
        PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "a tokenizer's path of %zu bytes is too long",
                        folder_bytes);
    snprintf(out_path, PATH_MAX, "%.*s/chat_template.jinja", (int)folder_bytes, folder);
    if (access(out_path, F_OK) == 0)
        return coh_file_read_whole(out_path, TEMPLATE_BYTES_MAX, out_template, &text_bytes);
    snprintf(out_path, PATH_MAX, "%.*s/tokenizer_config.json", (int)folder_bytes, folder);
    return access(out_path, F_OK) == 0 ? read_config(out_path, out_template) : COH_OK;
}

/* ---- ChatML ---- */

/* Is "<|im_start|>" followed by an expression for the role, and a line end? */
static int is_role_line(const char *at)
{
    static const char name_signs[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.0123456789";
    at += strspn(at, "'\"+-{} ");
    size_t name = strspn(at, name_signs);
    const char *role = at + name;
    if (*role == '[')
        role += strspn(role, "['\"");
    else
        role = name >= 4 ? at + name - 4 : at;
    if (strncmp(role, "role", 4) != 0)
        return 0;
    role += 4 + strspn(role + 4, "'\"]+-{} ");
    return role[0] == '\n' || (role[0] == '\\' && role[1] == 'n');
}

int coh_chat_template_is_chatml(const char *template_text, int *out_has_begin)
{
    static const char opening[] = "<|im_start|>";
    /* Each of these would change the text of the same messages. */
    static const char *const others[] = { "<|im_sep|>", "think", "trim", "strip(" };
    const char *begin = strstr(template_text, "bos_token");
    const char *first = strstr(template_text, opening);
    int has_role = 0;
    *out_has_begin = begin && first && begin < first;
    for (const char *at = first; at; at = strstr(at, opening)) {
        at += sizeof(opening) - 1;
        has_role |= is_role_line(at);
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        has_role &= strstr(template_text, others[i]) == NULL;
    return has_role && strstr(template_text, "<|im_end|>");
}

/* ---- Llama 3 ---- */

int coh_chat_template_is_llama3(const char *template_text)
{
    return strstr(template_text, "<|start_header_id|>") &&
           strstr(template_text, "<|end_header_id|>") && strstr(template_text, "<|eot_id|>") &&
           (strstr(template_text, "trim") || strstr(template_text, "strip("));
}

/* ---- the default system prompt ---- */

/* The length of the text from `at` to <|im_end|> if it is plain text and not code; else 0. */
static size_t plain_text(const char *at)
{
    const char *end = strstr(at, "<|im_end|>");
    size_t count = strcspn(at, "'\"{}%+");
    return end && (size_t)(end - at) <= count ? (size_t)(end - at) : 0;
}

/* Turns "\\n" inside a string of Jinja's into a line end. */
static void unescape(char *text)
{
    char *to = text;
    for (; *text; text++) {
        if (text[0] == '\\' && text[1] == 'n') {
            *to++ = '\n';
            text++;
        } else {
            *to++ = *text;
        }
    }
    *to = '\0';
}

coh_status coh_chat_default_system(const char *template_text, char **out_system)
{
    static const char opening[] = "<|im_start|>system";
    *out_system = NULL;
    for (const char *at = template_text; (at = strstr(at, opening)) != NULL;) {
        at += sizeof(opening) - 1;
        if (at[0] == '\n')
            at += 1;
        else if (at[0] == '\\' && at[1] == 'n')
            at += 2;
        else
            continue;
        size_t count = plain_text(at);
        if (count == 0)
            continue;
        COH_TRY(coh_alloc(count + 1, 1, (void **)out_system));
        memcpy(*out_system, at, count);
        unescape(*out_system);
        return COH_OK;
    }
    return COH_OK;
}
