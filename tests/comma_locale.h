/* comma_locale.h - a locale with another decimal sign, as a program around the library may have set
 * one: one that the machine has, else one that localedef makes. */
#ifndef COH_TESTS_COMMA_LOCALE_H
#define COH_TESTS_COMMA_LOCALE_H

#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/temporary.h"

/* Makes one in a folder of its own, and sets it; the folder is not needed after that. */
static inline int comma_locale_make(const char *source, const char *name)
{
    char folder[PATH_MAX - 64], command[PATH_MAX];
    if (temporary_folder(folder, sizeof(folder), "locale") != 0)
        return 0;
    snprintf(command, sizeof(command), "localedef -i %s -f UTF-8 %s/%s >/dev/null 2>&1", source,
             folder, name);
    const int is_set = system(command) == 0 && setenv("LOCPATH", folder, 1) == 0 &&
                       setlocale(LC_ALL, name) != NULL;
    unsetenv("LOCPATH");
    temporary_remove(folder);
    return is_set;
}

/* Sets it; the caller sets "C" again. Returns 0 where there is none: the test skips. */
static inline int comma_locale_set(void)
{
    static const char *const names[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (setlocale(LC_ALL, names[i]) != NULL)
            return 1;
    if (comma_locale_make("de_DE", names[0]))
        return 1;
    printf("no locale with a decimal comma on this machine\n");
    return 0;
}

/* One whose decimal sign has two bytes, U+066B. */
static inline int two_byte_locale_set(void)
{
    if (setlocale(LC_ALL, "ps_AF.UTF-8") || comma_locale_make("ps_AF", "ps_AF.UTF-8"))
        return 1;
    printf("no locale with a decimal sign of two bytes on this machine\n");
    return 0;
}

#endif
