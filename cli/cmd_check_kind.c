/* cohobate check-kind: loads an operator kind from a shared library and prints what coh_op_check
 * finds. The one idea: the library's symbols are the arguments, and their sizes come from its
 * symbol table; a kind that its extension lists is found by its own name, too. Next:
 * cohobate/op_check.h. */
#include <dlfcn.h>
#include <inttypes.h>
#include <link.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/extension.h"

/* ---- shapes: "f32:4,6,8" ---- */

static const char *const dtypes[] = {
    [COH_DTYPE_F32] = "f32", [COH_DTYPE_BF16] = "bf16", [COH_DTYPE_I32] = "i32"
};

static coh_status parse_shape(const char *text, coh_shape *out_shape)
{
    const char *at = strchr(text, ':');
    const size_t name_bytes = at != NULL ? (size_t)(at - text) : 0;
    int dtype = -1;
    *out_shape = (coh_shape){ 0 };
    for (int i = 0; i < (int)(sizeof(dtypes) / sizeof(dtypes[0])); i++)
        if (dtypes[i] != NULL && strlen(dtypes[i]) == name_bytes &&
            strncmp(dtypes[i], text, name_bytes) == 0)
            dtype = i;
    while (dtype >= 0 && out_shape->rank < COH_RANK_MAX && *at != '\0') {
        char *end;
        const long long dim = strtoll(at + 1, &end, 10);
        if (end == at + 1 || dim < 1 || (*end != ',' && *end != '\0'))
            break;
        out_shape->dim[out_shape->rank++] = dim;
        at = end;
    }
    if (dtype < 0 || out_shape->rank == 0 || *at != '\0')
        return cli_fail(
            COH_ERR_ARGUMENT,
            "--input takes DTYPE:DIMENSIONS, f32, bf16 or i32 and up to %d of them from "
            "1 on, not '%s': for example --input f32:4,6,8",
            COH_RANK_MAX, text);
    out_shape->dtype = (coh_dtype)dtype;
    return COH_OK;
}

/* Without --input every input is f32 [4,6,8]. */
static coh_status find_shapes(const cli_options *options, int32_t input_count,
                              coh_shape shapes[COH_PORT_MAX])
{
    int32_t given = 0;
    while (options->input[given] != NULL)
        given++;
    if (given != 0 && given != input_count)
        return cli_fail(COH_ERR_ARGUMENT, "--input is given %d times, and the kind has %d inputs",
                        given, input_count);
    for (int32_t i = 0; i < input_count && i < COH_PORT_MAX; i++)
        CLI_TRY(parse_shape(given > 0 ? options->input[i] : "f32:4,6,8", &shapes[i]));
    return COH_OK;
}

/* ---- the library ---- */

/* Finds a symbol and its size. */
static coh_status find_symbol(void *library, const char *path, const char *name,
                              const void **out_data, size_t *out_bytes)
{
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    const void *data = dlsym(library, name);
    if (data == NULL)
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s has no symbol '%s': it must not be static, nor hidden; nm -D %s lists "
                        "those that it has",
                        path, name, path);
    *out_data = data;
    *out_bytes = dladdr1(data, &info, (void **)&symbol, RTLD_DL_SYMENT) != 0 && symbol != NULL
                     ? (size_t)symbol->st_size
                     : 0;
    return COH_OK;
}

/* Splits LIBRARY:SYMBOL at its last colon. */
static coh_status split(const char *operand, char path[CLI_PATH_BYTES], const char **out_symbol)
{
    const char *colon = strrchr(operand, ':');
    if (colon == NULL || colon == operand || colon[1] == '\0' ||
        (size_t)(colon - operand) >= CLI_PATH_BYTES)
        return cli_fail(COH_ERR_ARGUMENT,
                        "'%s' is not LIBRARY:SYMBOL: for example ./libmine.so:gate", operand);
    snprintf(path, CLI_PATH_BYTES, "%.*s", (int)(colon - operand), operand);
    *out_symbol = colon + 1;
    return COH_OK;
}

/* Finds a kind by its own name in the library's extension; *out_kind NULL: there is none. */
static coh_status find_listed(void *library, const char *path, const char *name,
                              const coh_op_kind **out_kind)
{
    const coh_extension *extension;
    *out_kind = NULL;
    CLI_TRY(cli_shared_object_extension(library, path, &extension));
    if (extension == NULL || extension->struct_bytes < offsetof(coh_extension, optimizers))
        return COH_OK;
    for (int32_t i = 0; i < extension->kind_count && *out_kind == NULL; i++)
        if (extension->kinds[i]->name != NULL && strcmp(extension->kinds[i]->name, name) == 0)
            *out_kind = extension->kinds[i];
    return COH_OK;
}

static coh_status find_kind(void *library, const char *path, const char *name,
                            const coh_op_kind **out_kind)
{
    size_t bytes = 0;
    const void *data = NULL;
    CLI_TRY(find_listed(library, path, name, out_kind));
    if (*out_kind != NULL)
        return COH_OK;
    CLI_TRY(find_symbol(library, path, name, &data, &bytes));
    *out_kind = data;
    if (bytes < sizeof(coh_op_kind))
        return cli_fail(COH_ERR_CORRUPT,
                        "symbol '%s' of %s has %zu bytes, and a coh_op_kind has %zu: name the kind "
                        "itself, and compile it with this version's headers",
                        name, path, bytes, sizeof(coh_op_kind));
    return COH_OK;
}

/* ---- results ---- */

typedef struct output {
    int is_json;
    int count;
    cli_line line;
} output;

static void print_finding(void *context, const coh_op_finding *finding)
{
    output *to = context;
    if (!to->is_json) {
        cli_print("%s", finding->sentence);
        return;
    }
    cli_line_add_json(&to->line, "{'fault': %s, 'phase': %s, 'port': %s, 'sentence': %s",
                      coh_op_fault_name(finding->fault),
                      finding->phase == COH_PHASE_FORWARD ? "forward" : "backward", finding->port,
                      finding->sentence);
    if (finding->element != INT64_MIN)
        cli_line_add_json(&to->line, "'element': %" PRId64 ", 'expected': %.17g, 'got': %.17g",
                          finding->element, finding->expected, finding->got);
    cli_line_add_json(&to->line, "}");
    cli_line_flush(&to->line);
}

/* ---- a call that does not return ---- */

enum { NAMED_AFTER_S = 5 };

static char still[256]; /* the handler reads it */

static void say_still(int signal)
{
    (void)signal;
    (void)!write(STDERR_FILENO, still, strlen(still));
}

/* A function of the kind may never return, and only a user knows how long it may take. */
static coh_status check_named(const coh_op_kind *kind, const coh_op_check_options *options,
                              coh_op_report *report)
{
    snprintf(
        still, sizeof(still),
        "cohobate check-kind: still calls functions of %.128s: if one never returns, stop this "
        "with Ctrl-C\n",
        kind->name != NULL ? kind->name : "the kind");
    signal(SIGALRM, say_still);
    alarm(NAMED_AFTER_S);
    const coh_status status = coh_op_check(kind, options, report);
    alarm(0);
    return status;
}

static coh_status check(const cli_options *options, const coh_op_kind *kind, const void *attributes,
                        size_t attribute_bytes)
{
    static output to;
    coh_shape shapes[COH_PORT_MAX];
    coh_op_report report = { .struct_bytes = sizeof(report) };
    to.is_json = (int)options->json;
    cli_line_clear(&to.line);
    CLI_TRY(find_shapes(options, kind->input_count, shapes));
    const coh_op_check_options with = { .struct_bytes = sizeof(with),
                                        .attributes = attributes,
                                        .attribute_bytes = attribute_bytes,
                                        .inputs = shapes,
                                        .seed = (uint64_t)options->seed,
                                        .found = print_finding,
                                        .context = &to,
                                        .device = options->device };
    if (to.is_json)
        cli_line_add_json(&to.line, "{'kind': %s, 'findings': [", kind->name);
    CLI_TRY(check_named(kind, &with, &report));
    if (to.is_json) {
        cli_line_add_json(&to.line, "], 'gradients': %" PRId32 "}", report.gradient_count);
        cli_print("%s", to.line.text);
    } else if (report.finding_count == 0) {
        cli_print("%s: nothing found; gradients compared: %" PRId32, kind->name,
                  report.gradient_count);
    }
    if (report.finding_count > 0)
        return cli_fail(COH_ERR_NUMBER, "%" PRId32 " finding%s: docs/library.md explains them",
                        report.finding_count, report.finding_count == 1 ? "" : "s");
    return COH_OK;
}

coh_status cli_check_kind(const cli_options *options)
{
    char path[CLI_PATH_BYTES];
    const char *symbol = "";
    void *library;
    const coh_op_kind *kind = NULL;
    const void *attributes = NULL;
    size_t attribute_bytes = 0;
    CLI_TRY(split(options->operand, path, &symbol));
    CLI_TRY(cli_shared_object_open(path, &library));
    coh_status status = find_kind(library, path, symbol, &kind);
    if (status == COH_OK && options->attributes == NULL && kind->abi_version == COH_KIND_ABI &&
        kind->attribute_bytes > 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "kind '%s' takes %" PRIu32 " bytes of attributes: give --attributes "
                        "SYMBOL, a variable of %s that has them",
                        kind->name != NULL ? kind->name : symbol, kind->attribute_bytes, path);
    if (status == COH_OK && options->attributes != NULL)
        status = find_symbol(library, path, options->attributes, &attributes, &attribute_bytes);
    if (status == COH_OK)
        status = check(options, kind, attributes, attribute_bytes);
    return status;
}
