/* Enters the C locale for one thread. The C library has it as a constant: newlocale returns that,
 * and freelocale leaves it alone. */
#include "base/c_locale.h"

#include <errno.h>
#include <stdlib.h>

coh_c_locale coh_c_locale_enter(void)
{
    const locale_t entered = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return (coh_c_locale){ .before = uselocale(entered), .entered = entered };
}

void coh_c_locale_leave(coh_c_locale locale)
{
    uselocale(locale.before);
    if (locale.entered)
        freelocale(locale.entered);
}

double coh_number_read(const char *text, char **out_end)
{
    const coh_c_locale locale = coh_c_locale_enter();
    const double value = strtod(text, out_end);
    const int reason = errno;
    coh_c_locale_leave(locale);
    errno = reason;
    return value;
}
