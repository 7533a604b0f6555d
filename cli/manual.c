/* Writes the man pages and the completions of shells, when the project is built. The one idea: they
 * are made from the texts and the rows that --help prints, so they cannot differ from it. It is no
 * part of the program. Next: help.h for the texts, completions.c for the shells. */
#include "cli/manual.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/help.h"
#include "cohobate/cohobate.h"

/* ---- roff ---- */

/* Escapes one character of plain text. Each hyphen is written as the ASCII one, so that flags can
 * be copied from the page. */
static void put_character(char character)
{
    switch (character) {
    case '\\':
        fputs("\\e", stdout);
        break;
    case '-':
        fputs("\\-", stdout);
        break;
    case '\'':
        fputs("\\(aq", stdout);
        break;
    case '`':
        fputs("\\(ga", stdout);
        break;
    case '^':
        fputs("\\(ha", stdout);
        break;
    case '~':
        fputs("\\(ti", stdout);
        break;
    default:
        putchar(character);
        break;
    }
}

static void put_bytes(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        put_character(text[i]);
}

static void put(const char *text)
{
    put_bytes(text, strlen(text));
}

/* Writes one line of input; a dot at its start would be a request. */
static void put_line(const char *line, size_t bytes)
{
    if (bytes > 0 && line[0] == '.')
        fputs("\\&", stdout);
    put_bytes(line, bytes);
    putchar('\n');
}

static void section(const char *name)
{
    printf(".SH %s\n", name);
}

/* Writes paragraphs that are filled, and tables (lines that begin with a space) that are not. */
static void put_paragraphs(const char *text)
{
    int is_table = 0;
    while (*text) {
        const size_t bytes = strcspn(text, "\n");
        const int was_table = is_table;
        is_table = bytes > 0 && text[0] == ' ';
        if (is_table != was_table)
            puts(is_table ? ".PP\n.nf" : ".fi\n.PP");
        if (bytes > 0)
            put_line(text, bytes);
        else if (!is_table && text[1] != ' ' && !was_table)
            puts(".PP");
        text += bytes + (text[bytes] == '\n');
    }
    if (is_table)
        puts(".fi");
}

/* Writes lines as they are, without their first `indent` characters. */
static void put_lines(const char *text, size_t indent)
{
    puts(".nf");
    while (*text) {
        const size_t bytes = strcspn(text, "\n"), spaces = strspn(text, " ");
        const size_t skipped = spaces < indent ? spaces : indent;
        put_line(text + skipped, bytes - skipped);
        text += bytes + (text[bytes] == '\n');
    }
    puts(".fi");
}

static void title(const char *name)
{
    fputs(".TH ", stdout);
    for (const char *at = name; *at; at++)
        put_character(*at >= 'a' && *at <= 'z' ? (char)(*at - 'a' + 'A') : *at);
    printf(" 1 \"\" \"cohobate %s\" \"User commands\"\n", coh_version());
    section("NAME");
    put(name);
}

/* ---- pages ---- */

static void put_flag(const cli_flag_row *row)
{
    puts(".TP");
    if (row->short_name)
        printf("\\fB\\-%c\\fR, ", row->short_name);
    fputs("\\fB\\-\\-", stdout);
    put(row->name);
    fputs("\\fR", stdout);
    if (row->takes) {
        fputs(" \\fI", stdout);
        put(row->takes);
        fputs("\\fR", stdout);
    }
    putchar('\n');
    put_line(row->help, strlen(row->help));
}

static void put_flags(cli_command command)
{
    section("OPTIONS");
    for (int f = 0; f < CLI_FLAG_COUNT; f++)
        if (!cli_flag_table[f].hidden && (cli_flag_table[f].commands >> command & 1))
            put_flag(&cli_flag_table[f]);
    puts(".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nprints these flags and ends.");
}

static void put_presets(void)
{
    const char *name;
    section("MODELS");
    puts("The presets are");
    for (int32_t i = 0; (name = coh_model_preset_name(i)) != NULL; i++) {
        put(name);
        puts(coh_model_preset_name(i + 1) != NULL ? "," : ".");
    }
}

static void page_of_command(cli_command command)
{
    char name[64];
    snprintf(name, sizeof(name), "cohobate-%s", cli_command_name(command));
    title(name);
    fputs(" \\- ", stdout);
    put(cli_help_summaries[command]);
    putchar('\n');
    section("SYNOPSIS");
    put_lines(cli_help_usages[command], strlen("usage: "));
    section("DESCRIPTION");
    put_paragraphs(cli_help_details[command]);
    if (cli_command_operand(command) == CLI_OPERAND_MODEL)
        put_presets();
    put_flags(command);
    section("EXAMPLES");
    put_lines(cli_help_examples[command], 0);
    section("EXIT STATUS");
    puts("As in \\fBcohobate\\fR(1).");
    section("SEE ALSO");
    puts("\\fBcohobate\\fR(1), \\fBlibcohobate\\fR(7)");
}

static void page_of_program(void)
{
    title("cohobate");
    puts(" \\- trains models larger than the memory they are given");
    section("SYNOPSIS");
    puts("\\fBcohobate\\fR \\fICOMMAND\\fR ...\n.br\n\\fBcohobate \\-\\-version\\fR");
    section("DESCRIPTION");
    puts("Weights, gradients, optimizer states and activations stream between the device, main "
         "memory\nand a drive during each step. The step is planned before it runs, so its memory "
         "is known to\nthe byte, and the budget does not change the result.");
    section("COMMANDS");
    for (int c = 0; c < CLI_COMMAND_COUNT; c++) {
        fputs(".TP\n\\fBcohobate\\-", stdout);
        put(cli_command_name((cli_command)c));
        puts("\\fR(1)");
        put_line(cli_help_summaries[c], strlen(cli_help_summaries[c]));
    }
    section("FLAGS");
    put_paragraphs(cli_help_short);
    section("SIZES");
    put_paragraphs(cli_help_sizes);
    section("EXIT STATUS");
    put_paragraphs(cli_help_exit_codes);
    section("SEE ALSO");
    puts("\\fBlibcohobate\\fR(7)");
}

int main(int argument_count, char **arguments)
{
    const char *form = argument_count > 1 ? arguments[1] : "";
    const cli_command command = cli_command_find(argument_count > 2 ? arguments[2] : "");
    if (strcmp(form, "man") == 0 && argument_count == 2)
        page_of_program();
    else if (strcmp(form, "man") == 0 && command != CLI_COMMAND_COUNT)
        page_of_command(command);
    else if (!cli_completions(form))
        return 2;
    return fflush(stdout) != 0 || ferror(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
