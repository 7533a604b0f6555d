/* Parses a command line by the table of flags. The one idea: getopt_long's tables are built from
 * the rows of the command, and each kind of value has one parser. Next: flags.def for the rows,
 * help.c prints them. */
#include "cli/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/dtype.h"
#include "cli/elsewhere.h"
#include "cli/other_trainers.h"

static const struct {
    const char *name;
    cli_operand operand;
} commands[CLI_COMMAND_COUNT] = {
    [CLI_TRAIN] = { "train", CLI_OPERAND_MODEL },
    [CLI_PLAN] = { "plan", CLI_OPERAND_MODEL },
    [CLI_GENERATE] = { "generate", CLI_OPERAND_CHECKPOINT },
    [CLI_EVAL] = { "eval", CLI_OPERAND_CHECKPOINT },
    [CLI_TOKENIZE] = { "tokenize", CLI_OPERAND_IN },
    [CLI_MIX] = { "mix", CLI_OPERAND_TOKENS },
    [CLI_INSPECT] = { "inspect", CLI_OPERAND_PATH },
    [CLI_EXPORT] = { "export", CLI_OPERAND_CHECKPOINT },
    [CLI_CHECK] = { "check", CLI_OPERAND_PATH },
    [CLI_CHECK_KIND] = { "check-kind", CLI_OPERAND_KIND },
    [CLI_TUNE] = { "tune", CLI_OPERAND_MODEL },
    [CLI_PROFILE] = { "profile", CLI_OPERAND_MODEL },
    [CLI_DOCTOR] = { "doctor", CLI_OPERAND_NONE },
    [CLI_SIMULATE] = { "simulate", CLI_OPERAND_PLAN },
    [CLI_EXPLAIN] = { "explain", CLI_OPERAND_PLAN },
    [CLI_REPORT] = { "report", CLI_OPERAND_RUN },
    [CLI_DIFF] = { "diff", CLI_OPERAND_RUN },
    [CLI_TRACE] = { "trace", CLI_OPERAND_RUN },
    [CLI_WATCH] = { "watch", CLI_OPERAND_RUN },
};

/* The operand in the usage; NULL: there is none. */
static const char *const operand_names[] = { NULL,   "MODEL", "CHECKPOINT",     "IN",  "PATH",
                                             "PLAN", "RUN",   "LIBRARY:SYMBOL", "FILE" };

cli_command cli_command_find(const char *name)
{
    for (int c = 0; c < CLI_COMMAND_COUNT; c++)
        if (strcmp(commands[c].name, name) == 0)
            return (cli_command)c;
    return CLI_COMMAND_COUNT;
}

const char *cli_command_name(cli_command command)
{
    return commands[command].name;
}

cli_operand cli_command_operand(cli_command command)
{
    return commands[command].operand;
}

/* ---- the flags ---- */

/* The commands that have a flag. */
enum {
    TRAIN = 1 << CLI_TRAIN,
    PLAN = 1 << CLI_PLAN,
    GENERATE = 1 << CLI_GENERATE,
    EVAL = 1 << CLI_EVAL,
    TOKENIZE = 1 << CLI_TOKENIZE,
    MIX = 1 << CLI_MIX,
    INSPECT = 1 << CLI_INSPECT,
    EXPORT = 1 << CLI_EXPORT,
    CHECK = 1 << CLI_CHECK,
    CHECK_KIND = 1 << CLI_CHECK_KIND,
    TUNE = 1 << CLI_TUNE,
    PROFILE = 1 << CLI_PROFILE,
    DOCTOR = 1 << CLI_DOCTOR,
    REPORT = 1 << CLI_REPORT,
    DIFF = 1 << CLI_DIFF,
    TRACE = 1 << CLI_TRACE,
    WATCH = 1 << CLI_WATCH,
    REPLAY = 1 << CLI_SIMULATE | 1 << CLI_EXPLAIN, /* commands that analyse a plan file */
    RUNS = TRAIN | PLAN,                           /* commands with the flags of a training run */
    BUDGET = RUNS | GENERATE | EVAL,               /* commands with the flags of placement */
    DATA = RUNS | EVAL | TOKENIZE, /* commands with the flags that turn text into documents */
    /* commands that read a model, or a note or plan file with one */
    ANY_MODEL = BUDGET | EXPORT | INSPECT | CHECK | TUNE | PROFILE | REPLAY | TRACE,
    EVERY = (1 << CLI_COMMAND_COUNT) - 1,
};

/* 2^53: up to here every integer is exact in JSON readers, too. */
#define MOST_INTEGER 9007199254740992.0

#define CLI_FLAG(id, name_, takes_, value_, field_, commands_, example_, ...)                      \
    [CLI_FLAG_##id] = { .name = (name_),                                                           \
                        .takes = (takes_),                                                         \
                        .value = CLI_VALUE_##value_,                                               \
                        .offset = offsetof(cli_options, field_),                                   \
                        .commands = (commands_),                                                   \
                        .example = (example_),                                                     \
                        .help = __VA_ARGS__ },
const cli_flag_row cli_flag_table[CLI_FLAG_COUNT] = {
#include "cli/flags.def"
};
#undef CLI_FLAG

static void set_defaults(cli_command command, cli_options *options)
{
    *options = (cli_options){ .command = command,
                              .tokenizer = "bytes",
                              .device = "host",
                              .batch = 8,
                              .sequence = 256,
                              .steps = 100,
                              .lr = 6e-4,
                              .weight_decay = 0.1,
                              .clip = 1.0,
                              .seed = 1,
                              .keep = 2,
                              .record = 3,
                              .shard_bytes = 5000000000,
                              .tokens = 200,
                              .prefill_chunk = 64,
                              .temperature = 1.0,
                              .top_p = 1.0,
                              .repetition_penalty = 1.0 };
}

/* Returns the word that a flag takes instead of a number or a size, as ", or none" of "SIZE|none";
 * "": none. */
static cli_text alternative(const cli_flag_row *row)
{
    const char *bar = strchr(row->takes, '|');
    cli_text text = { "" };
    if (bar)
        snprintf(text.at, sizeof(text.at), ", or %s", bar + 1);
    return text;
}

static coh_status parse_integer(const cli_flag_row *row, const char *text, int64_t *out_value)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno || (double)value < row->least ||
        (double)value > row->most)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s takes a whole number from %.0f to %.0f%s, not '%s': for example %s",
                        row->name, row->least, row->most, alternative(row).at, text, row->example);
    *out_value = value;
    return COH_OK;
}

static coh_status parse_real(const cli_flag_row *row, const char *text, double *out_value)
{
    char *end = NULL, most[32];
    double value = strtod(text, &end);
    snprintf(most, sizeof(most), "%g", row->most);
    if (end == text || *end != '\0' || !(value >= row->least) || !(value <= row->most))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s takes a number from %g to %s%s, not '%s': for example %s", row->name,
                        row->least, strtod(most, NULL) > row->most ? "below " : "", most, text,
                        row->example);
    *out_value = value;
    return COH_OK;
}

static coh_status add_for(const cli_flag_row *row, const char *text, cli_for_list *list)
{
    const char *equals = strrchr(text, '=');
    const size_t length = equals ? (size_t)(equals - text) : 0;
    if (strcmp(text, "none") == 0) {
        list->count = 0;
        return COH_OK;
    }
    if (length == 0 || length >= COH_PATTERN_BYTES)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s takes a pattern of at most %d bytes, \"=\" and a number, or none, "
                        "not '%s': for example %s",
                        row->name, COH_PATTERN_BYTES - 1, text, row->example);
    if (list->count == CLI_FORS_MOST)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s is given more than %d times: join patterns with commas", row->name,
                        CLI_FORS_MOST);
    cli_for *one = &list->at[list->count];
    memcpy(one->pattern, text, length);
    one->pattern[length] = '\0';
    CLI_TRY(parse_real(row, equals + 1, &one->value));
    list->count++;
    return COH_OK;
}

static coh_status add_optimizer_for(const cli_flag_row *row, const char *text,
                                    cli_optimizer_list *list)
{
    const char *equals = strrchr(text, '=');
    const size_t length = equals ? (size_t)(equals - text) : 0;
    const size_t name_length = equals ? strlen(equals + 1) : 0;
    if (strcmp(text, "none") == 0) {
        list->count = 0;
        return COH_OK;
    }
    if (length == 0 || length >= COH_PATTERN_BYTES || name_length == 0 ||
        name_length >= COH_OPTIMIZER_NAME_BYTES)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s takes a pattern of at most %d bytes, \"=\" and an optimizer's name, "
                        "or none, not '%s': for example %s",
                        row->name, COH_PATTERN_BYTES - 1, text, row->example);
    if (list->count == CLI_FORS_MOST)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s is given more than %d times: join patterns with commas", row->name,
                        CLI_FORS_MOST);
    coh_optimizer_choice *one = &list->at[list->count++];
    *one = (coh_optimizer_choice){ 0 };
    memcpy(one->pattern, text, length);
    memcpy(one->optimizer, equals + 1, name_length);
    return COH_OK;
}

/* Parses N or X%. */
static coh_status parse_share(const cli_flag_row *row, const char *text, cli_share *out_share)
{
    char *end = NULL;
    const double percent = strtod(text, &end);
    *out_share = (cli_share){ 0 };
    if (end == text || strcmp(end, "%") != 0)
        return parse_integer(row, text, &out_share->count);
    if (!(percent >= 0) || !(percent <= 100))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s takes a share from 0%% to 100%%, not '%s': for example --%s 5%%",
                        row->name, text, row->name);
    out_share->percent = percent;
    out_share->is_share = 1;
    return COH_OK;
}

/* Parses a size, or a size `per` something ("4GB/s" as well as "4GB"); `per` "": only a size. */
static coh_status parse_size(const cli_flag_row *row, const char *text, const char *per,
                             uint64_t *out_bytes)
{
    char copy[64];
    const size_t per_length = strlen(per);
    size_t length = strlen(text);
    if (length > per_length && strcmp(text + length - per_length, per) == 0)
        length -= per_length;
    if (length < sizeof(copy)) {
        memcpy(copy, text, length);
        copy[length] = '\0';
        if (coh_size_parse(copy, out_bytes) == COH_OK && *out_bytes > 0)
            return COH_OK;
    }
    return cli_fail(
        COH_ERR_ARGUMENT,
        "--%s takes a size above zero with its unit (KiB MiB GiB, kB MB GB)%s%s, not '%s':"
        " for example %s",
        row->name,
        per[0] == '\0'  ? ""
        : per[1] == 's' ? " per second"
                        : " per day",
        alternative(row).at, text, row->example);
}

/* Parses a size. If the row has a range, the size must lie in it. */
static coh_status parse_bounded(const cli_flag_row *row, const char *text, uint64_t *out_bytes)
{
    CLI_TRY(parse_size(row, text, "", out_bytes));
    if (row->most == 0 || ((double)*out_bytes >= row->least && (double)*out_bytes <= row->most))
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT, "--%s takes a size from %s to %s, not '%s': for example %s",
                    row->name, cli_size_whole((uint64_t)row->least).at,
                    cli_size_whole((uint64_t)row->most).at, text, row->example);
}

/* Adds up the limits of the folders. A part of several is whole units. */
static uint64_t disk_limit(const cli_options *options)
{
    uint64_t sum = 0;
    if (options->disk_count == 1)
        return options->disk[0].bytes;
    for (int32_t i = 0; i < options->disk_count; i++) {
        const uint64_t bytes = options->disk[i].bytes;
        if (bytes == UINT64_MAX ||
            __builtin_add_overflow(sum, bytes - bytes % COH_DISK_UNIT_BYTES, &sum))
            return UINT64_MAX;
    }
    return sum;
}

/* Parses DIR[:SIZE]: the part after the last colon is a size if it begins with a digit. "none", of
 * a budget, adds no folder: that the flag is given says it. */
static coh_status add_disk(const cli_flag_row *row, const char *text, cli_options *options)
{
    const int is_none = strstr(row->takes, "|none") && strcmp(text, "none") == 0;
    const char *colon = strchr(row->takes, ':') ? strrchr(text, ':') : NULL;
    size_t length = strlen(text);
    cli_disk *disk = &options->disk[options->disk_count];
    if (options->disk_count == COH_DISKS_MOST)
        return cli_fail(COH_ERR_ARGUMENT, "--%s is given more than %d times: leave out %s",
                        row->name, COH_DISKS_MOST, text);
    if (options->given[CLI_FLAG_DISK] && (is_none || options->disk_count == 0))
        return cli_fail(COH_ERR_ARGUMENT, "--%s none is given beside another: leave one out",
                        row->name);
    if (is_none)
        return COH_OK;
    disk->bytes = UINT64_MAX;
    if (colon && colon[1] >= '0' && colon[1] <= '9' && !strchr(colon, '/')) {
        CLI_TRY(parse_size(row, colon + 1, "", &disk->bytes));
        length = (size_t)(colon - text);
    }
    if (length == 0 || length >= sizeof(disk->folder))
        return cli_fail(COH_ERR_ARGUMENT, "--%s takes %s, not '%s': for example %s", row->name,
                        strchr(row->takes, ':') ? "DIR, DIR:SIZE or none" : row->takes, text,
                        row->example);
    memcpy(disk->folder, text, length);
    disk->folder[length] = '\0';
    options->disk_count++;
    options->disk_bytes = disk_limit(options);
    return COH_OK;
}

/* Names the choice that is nearest to the text, else the example. */
static coh_status refuse_choice(const cli_flag_row *row, const char *text)
{
    char names[256], *rest = NULL;
    coh_nearest nearest = { .word = text };
    snprintf(names, sizeof(names), "%s", row->takes);
    for (char *name = strtok_r(names, "|", &rest); name; name = strtok_r(NULL, "|", &rest))
        coh_nearest_offer(&nearest, name);
    if (nearest.name)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s takes one of %s, not '%s': is %s meant? For example %s", row->name,
                        row->takes, text, nearest.name, row->example);
    return cli_fail(COH_ERR_ARGUMENT, "--%s takes one of %s, not '%s': for example %s", row->name,
                    row->takes, text, row->example);
}

static coh_status parse_choice(const cli_flag_row *row, const char *text, int64_t *out_index)
{
    size_t length = strlen(text);
    int64_t index = 0;
    for (const char *name = row->takes; *name; index++) {
        size_t name_length = strcspn(name, "|");
        if (name_length == length && strncmp(name, text, length) == 0) {
            *out_index = index;
            return COH_OK;
        }
        name += name_length + (name[name_length] == '|');
    }
    return refuse_choice(row, text);
}

static coh_status add_pin(const cli_flag_row *row, const char *text, cli_options *options)
{
    if (options->pin_count == CLI_PINS_MOST)
        return cli_fail(COH_ERR_ARGUMENT, "more than %d --%s: write them to a file, for --pins",
                        CLI_PINS_MOST, row->name);
    options->pin[options->pin_count++] = text;
    return COH_OK;
}

static coh_status refuse_empty(const cli_flag_row *row)
{
    return cli_fail(COH_ERR_ARGUMENT, "--%s takes %s, not an empty text: for example %s", row->name,
                    row->takes, row->example);
}

static coh_status append(const cli_flag_row *row, const char *text, const char **list)
{
    int count = 0;
    while (list[count])
        count++;
    if (text[0] == '\0')
        return refuse_empty(row);
    if (count == CLI_WHAT_IFS)
        return cli_fail(COH_ERR_ARGUMENT, "--%s is given more than %d times: leave out '%s'",
                        row->name, CLI_WHAT_IFS, text);
    list[count] = text;
    return COH_OK;
}

static coh_status parse_value(const cli_flag_row *row, const char *text, cli_options *options)
{
    void *field = (char *)options + row->offset;
    switch (row->value) {
    case CLI_VALUE_NONE:
        *(int64_t *)field = 1;
        return COH_OK;
    case CLI_VALUE_TEXT:
        if (text[0] == '\0')
            return refuse_empty(row);
        *(const char **)field = text;
        return COH_OK;
    case CLI_VALUE_LIST:
        return append(row, text, field);
    case CLI_VALUE_INTEGER:
        return parse_integer(row, text, field);
    case CLI_VALUE_COUNT:
        if (strcmp(text, strchr(row->takes, '|') + 1) != 0)
            return parse_integer(row, text, field);
        *(int64_t *)field = 0;
        return COH_OK;
    case CLI_VALUE_PIN:
        return add_pin(row, text, options);
    case CLI_VALUE_REAL:
        return parse_real(row, text, field);
    case CLI_VALUE_FOR:
        return add_for(row, text, field);
    case CLI_VALUE_OPTIMIZER_FOR:
        return add_optimizer_for(row, text, field);
    case CLI_VALUE_SHARE:
        return parse_share(row, text, field);
    case CLI_VALUE_ROOM:
        if (strcmp(text, "none") != 0)
            return parse_size(row, text, "", field);
        *(uint64_t *)field = 0;
        return COH_OK;
    case CLI_VALUE_SIZE:
        return parse_bounded(row, text, field);
    case CLI_VALUE_RATE:
        return parse_size(row, text, "/s", field);
    case CLI_VALUE_DAILY:
        return parse_size(row, text, "/day", field);
    case CLI_VALUE_DISK:
        return add_disk(row, text, options);
    case CLI_VALUE_CHOICE:
        return parse_choice(row, text, field);
    }
    return COH_OK;
}

/* getopt_long values of long flags; above every character. */
enum { LONG_BASE = 256, LONG_HELP = LONG_BASE + CLI_FLAG_COUNT };

/* Builds the getopt tables of one command. `shorts` has at least 8 + 2 * CLI_FLAG_COUNT bytes. */
static void build_getopt(cli_command command, struct option *longs, char *shorts)
{
    size_t used = 0, written = 0;
    shorts[written++] = ':'; /* makes a missing value ':', and getopt silent */
    shorts[written++] = 'h';
    for (int f = 0; f < CLI_FLAG_COUNT; f++) {
        const cli_flag_row *row = &cli_flag_table[f];
        if (!(row->commands >> command & 1))
            continue;
        longs[used++] = (struct option){
            .name = row->name,
            .has_arg = row->value == CLI_VALUE_NONE ? no_argument : required_argument,
            .val = LONG_BASE + f,
        };
        if (row->short_name) {
            shorts[written++] = row->short_name;
            shorts[written++] = ':';
        }
    }
    longs[used++] = (struct option){ .name = "help", .has_arg = no_argument, .val = LONG_HELP };
    longs[used] = (struct option){ 0 };
    shorts[written] = '\0';
}

static cli_flag flag_of_value(int value)
{
    if (value >= LONG_BASE && value < LONG_HELP)
        return (cli_flag)(value - LONG_BASE);
    for (int f = 0; f < CLI_FLAG_COUNT; f++)
        if (cli_flag_table[f].short_name && cli_flag_table[f].short_name == value)
            return (cli_flag)f;
    return CLI_FLAG_COUNT;
}

/* Is it a flag of the command that its help lists? */
static int is_listed(cli_command command, const cli_flag_row *row)
{
    return !row->hidden && (row->commands >> command & 1);
}

/* Lists the flags of the command that begin as the word "--NAME[=VALUE]", as "--batch, --beta1";
 * "": none. */
static void list_beginning(cli_command command, const char *word, cli_line *out_list)
{
    const size_t length = strcspn(word, "=");
    cli_line_clear(out_list);
    if (length < 3 || strncmp(word, "--", 2) != 0)
        return;
    for (int f = 0; f < CLI_FLAG_COUNT; f++)
        if (is_listed(command, &cli_flag_table[f]) &&
            strncmp(cli_flag_table[f].name, word + 2, length - 2) == 0)
            cli_line_add(out_list, "%s--%s", out_list->used ? ", " : "", cli_flag_table[f].name);
}

/* Returns the command's flag whose name is nearest to the word "--NAME[=VALUE]"; NULL if none is
 * near. */
static const char *nearest_flag(cli_command command, const char *word)
{
    char name[64];
    const char *begin = word + strspn(word, "-");
    coh_nearest nearest = { .word = name };
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(begin, "="), begin);
    for (int f = 0; f < CLI_FLAG_COUNT; f++)
        if (is_listed(command, &cli_flag_table[f]))
            coh_nearest_offer(&nearest, cli_flag_table[f].name);
    coh_nearest_offer(&nearest, "help");
    return nearest.name;
}

const char *cli_command_nearest(const char *word)
{
    coh_nearest nearest = { .word = word };
    for (int c = 0; c < CLI_COMMAND_COUNT; c++)
        coh_nearest_offer(&nearest, commands[c].name);
    return nearest.name;
}

/* The word that getopt refused, where `*at` is what optind pointed to before: getopt skips operands
 * and takes the next word. After it, optind points to that word or to the one behind. */
static const char *refused_word(char *const *at)
{
    while (at[1] != NULL && (at[0][0] != '-' || at[0][1] == '\0'))
        at++;
    return *at;
}

static coh_status unknown_flag(cli_command command, const char *flag, int option)
{
    static cli_line list; /* large, and the stack may be small */
    if (option == ':') {
        cli_flag missing = flag_of_value(optopt);
        return cli_fail(COH_ERR_ARGUMENT, "%s needs a value: for example %s", flag,
                        missing < CLI_FLAG_COUNT ? cli_flag_table[missing].example : flag);
    }
    if (optopt >= LONG_BASE)
        return cli_fail(COH_ERR_ARGUMENT, "%s takes no value: write it alone", flag);
    if (cli_elsewhere_find(command, flag) != NULL)
        return cli_elsewhere_refuse(command, cli_elsewhere_find(command, flag));
    const char *name = cli_command_name(command);
    const char *instead = cli_other_trainers_find(command, flag);
    if (instead != NULL)
        return cli_fail(COH_ERR_ARGUMENT, "'%s' is not a flag of cohobate %s: %s", flag, name,
                        instead);
    list_beginning(command, flag, &list);
    if (strchr(list.text, ',') != NULL)
        return cli_fail(COH_ERR_ARGUMENT,
                        "'%s' is short for more than one flag of cohobate %s: give one of %s", flag,
                        name, list.text);
    /* one that begins so is short for hidden flags, too */
    const char *nearest = list.used > 0      ? list.text + 2
                          : strlen(flag) > 2 ? nearest_flag(command, flag)
                                             : NULL;
    return cli_fail(COH_ERR_ARGUMENT,
                    "'%s' is not a flag of cohobate %s: %s%s%s cohobate %s --help", flag, name,
                    nearest ? "is --" : "", nearest ? nearest : "", nearest ? " meant? See" : "see",
                    name);
}

/* Is the word exactly "--NAME" or "--NAME=VALUE" of a flag of the command? */
static int is_flag_of(cli_command command, const char *word)
{
    const size_t length = strncmp(word, "--", 2) == 0 ? strcspn(word + 2, "=") : 0;
    for (int f = 0; length > 0 && f < CLI_FLAG_COUNT; f++)
        if (cli_flag_table[f].commands >> command & 1 && strlen(cli_flag_table[f].name) == length &&
            strncmp(cli_flag_table[f].name, word + 2, length) == 0)
            return 1;
    return 0;
}

/* explain and diff take two operands. Without its second one explain fails later, with a name from
 * the plan. */
static coh_status check_second(cli_options *options, int operand_count, char **arguments)
{
    const int is_diff = options->command == CLI_DIFF;
    if (operand_count == 2)
        options->second_operand = arguments[optind + 1];
    else if (operand_count == 0 || is_diff)
        return cli_fail(COH_ERR_ARGUMENT, "%s is missing: see cohobate %s --help",
                        operand_count ? "the second RUN"
                        : is_diff     ? "RUN"
                                      : "PLAN",
                        cli_command_name(options->command));
    return COH_OK;
}

static coh_status check_operand(cli_options *options, int argument_count, char **arguments)
{
    const char *name = operand_names[cli_command_operand(options->command)];
    const char *command = cli_command_name(options->command);
    int operand_count = argument_count - optind;
    const int takes_two = options->command == CLI_EXPLAIN || options->command == CLI_DIFF;
    const int most = options->command == CLI_REPORT ? CLI_RUNS_MOST
                     : options->command == CLI_MIX  ? CLI_MIX_MOST
                     : takes_two                    ? 2
                     : name                         ? 1
                                                    : 0;
    if (operand_count > most)
        return cli_fail(COH_ERR_ARGUMENT,
                        "'%s' is one operand too many: cohobate %s takes %s (see cohobate %s"
                        " --help)",
                        arguments[optind + most], command,
                        options->command == CLI_EXPLAIN  ? "PLAN and OPERATOR"
                        : options->command == CLI_DIFF   ? "two RUNs"
                        : options->command == CLI_REPORT ? "up to eight RUNs"
                        : options->command == CLI_MIX    ? "up to 64 FILEs"
                        : name                           ? name
                                                         : "flags only",
                        command);
    if (operand_count >= 1)
        options->operand = arguments[optind];
    options->operands = arguments + optind;
    options->operand_count = operand_count;
    if (takes_two)
        return check_second(options, operand_count, arguments);
    if (operand_count == 0 && name && !options->resume && !options->max &&
        options->command != CLI_PROFILE)
        return cli_fail(COH_ERR_ARGUMENT, "%s is missing: see cohobate %s --help", name, command);
    return COH_OK;
}

/* Replaces --state by the flags that it is short for. */
static coh_status expand_state(cli_options *options)
{
    static const struct {
        const char *name, *optimizer;
        coh_dtype dtype;
    } forms[] = { { "f32", "adamw", COH_DTYPE_F32 },
                  { "split", "adamw", COH_DTYPE_BF16 },
                  { "lean", "adamw8", COH_DTYPE_BF16 },
                  { "sr", "adamw8sr", COH_DTYPE_BF16 } };
    if (!cli_given(options, CLI_FLAG_STATE))
        return COH_OK;
    const int form = (int)options->state;
    const coh_dtype dtype = forms[form].dtype;
    if (cli_given(options, CLI_FLAG_OPTIMIZER) || cli_dtype_keep(options, dtype) != dtype)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--state %s is short for --dtype %s --optimizer %s: leave --state out, or "
                        "the other --dtype and --optimizer",
                        forms[form].name, cli_dtype_name(dtype), forms[form].optimizer);
    options->dtype = dtype;
    options->optimizer = forms[form].optimizer;
    options->given[CLI_FLAG_DTYPE] = options->given[CLI_FLAG_OPTIMIZER] = 1;
    return COH_OK;
}

/* Stores one flag's value. Refuses a second value that would replace the first one. */
static coh_status take_flag(cli_flag flag, const char *text, cli_options *options)
{
    const cli_flag_row *row = &cli_flag_table[flag];
    const int is_appended = row->value == CLI_VALUE_LIST || row->value == CLI_VALUE_PIN ||
                            row->value == CLI_VALUE_FOR || row->value == CLI_VALUE_OPTIMIZER_FOR ||
                            row->value == CLI_VALUE_DISK;
    if (options->given[flag] && !is_appended)
        return cli_fail(COH_ERR_ARGUMENT, "--%s is given twice: leave one out%s", row->name,
                        flag == CLI_FLAG_DATA ? ", or give a folder that holds the files, or what "
                                                "cohobate mix makes of token files (docs/data.md)"
                        : flag == CLI_FLAG_VALIDATION
                            ? ", or give a folder that holds the files (docs/data.md)"
                            : "");
    CLI_TRY(parse_value(row, text, options));
    options->given[flag] = 1;
    options->written[flag] = text;
    return COH_OK;
}

coh_status cli_options_parse(cli_command command, int argument_count, char **arguments,
                             cli_options *out_options, int *out_help)
{
    struct option longs[CLI_FLAG_COUNT + 2];
    char shorts[8 + 2 * CLI_FLAG_COUNT];
    build_getopt(command, longs, shorts);
    set_defaults(command, out_options);
    out_options->arguments = arguments;
    out_options->argument_count = argument_count;
    *out_help = 0;
    opterr = 0;
    optind = 1;
    for (;;) {
        const int before = optind;
        int option = getopt_long(argument_count, arguments, shorts, longs, NULL);
        if (option == -1)
            break;
        if (option == 'h' || option == LONG_HELP) {
            *out_help = 1;
            return COH_OK;
        }
        if (option == '?' || option == ':')
            return unknown_flag(command, refused_word(arguments + before), option);
        cli_flag flag = flag_of_value(option);
        /* the flag's word: before its value, or joined with it */
        const char *word =
            arguments[optind - 1] == optarg ? arguments[optind - 2] : arguments[optind - 1];
        const cli_flag_row *elsewhere = cli_elsewhere_find(command, word);
        if (elsewhere != NULL)
            return cli_elsewhere_refuse(command, elsewhere);
        if (optarg && optarg != word && arguments[optind - 1] == optarg &&
            is_flag_of(command, optarg))
            return cli_fail(COH_ERR_ARGUMENT,
                            "--%s needs a value, and %s is the next flag: for example %s",
                            cli_flag_table[flag].name, optarg, cli_flag_table[flag].example);
        CLI_TRY(take_flag(flag, optarg, out_options));
    }
    CLI_TRY(expand_state(out_options));
    return check_operand(out_options, argument_count, arguments);
}

/* ---- going on ---- */

static void add_disks(const cli_options *options, int is_here, cli_line *line)
{
    for (int32_t i = 0; i < options->disk_count; i++) {
        const cli_disk *disk = &options->disk[i];
        char *absolute = is_here ? realpath(disk->folder, NULL) : NULL;
        cli_line_add(line, " --disk ");
        cli_line_add_word(line, absolute ? absolute : disk->folder);
        free(absolute);
        if (disk->bytes != UINT64_MAX)
            cli_line_add(line, ":%s", cli_size_whole(disk->bytes).at);
    }
}

static void add_texts(const char *name, const char *const *texts, int32_t count, cli_line *line)
{
    for (int32_t i = 0; i < count && texts[i]; i++) {
        cli_line_add(line, " --%s ", name);
        cli_line_add_word(line, texts[i]);
    }
}

void cli_options_add_again(const cli_options *options, int is_here, cli_line *line)
{
    for (int f = 0; f < CLI_FLAG_COUNT; f++) {
        const cli_flag_row *row = &cli_flag_table[f];
        if (!row->again || !options->given[f])
            continue;
        if (row->value == CLI_VALUE_DISK)
            add_disks(options, is_here, line);
        else if (row->value == CLI_VALUE_NONE)
            cli_line_add(line, " --%s", row->name);
        else if (row->value == CLI_VALUE_PIN)
            add_texts(row->name, options->pin, options->pin_count, line);
        else if (row->value == CLI_VALUE_LIST)
            add_texts(row->name, (const char *const *)((const char *)options + row->offset),
                      CLI_WHAT_IFS, line);
        else
            add_texts(row->name, &options->written[f], 1, line);
    }
}
