/* c_locale.h - numbers in files and in arguments have a point, whatever locale a program has set.
 *
 * strtod, printf and jansson follow the locale: in one with a decimal comma "1.5x" is 1, and ".5x".
 * Code that reads or prints a number for a machine uses coh_number_read and coh_number_print
 * (file_text.h), or enters the C locale around what it calls. Sentences for people may follow the
 * locale. Threads: any; only the calling thread's locale changes. Nothing is allocated. */
#ifndef COH_BASE_C_LOCALE_H
#define COH_BASE_C_LOCALE_H

#include <locale.h>

/* The locale that the thread had, and the one that it has until coh_c_locale_leave. */
typedef struct coh_c_locale {
    locale_t before, entered;
} coh_c_locale;

coh_c_locale coh_c_locale_enter(void);
void coh_c_locale_leave(coh_c_locale locale);

/* As strtod in the C locale; errno is strtod's. `out_end` may be NULL. */
double coh_number_read(const char *text, char **out_end);

#endif
