/* The program, extended by a command that writes a datasheet's figures as if they were measured
 * here:
 *
 *     as_measured measured PROFILE GPU FILE      GPU: the name that the driver reports
 *     as_measured train ...                      as the program does
 *
 * Measuring a played GPU would take hours, and a profile belongs to the program that measured
 * it. */
#include <stdio.h>
#include <string.h>

#include "cohobate/profile.h"
#include "engine/measure.h"

int cohobate_main(int argument_count, char **arguments); /* cli/main.c */

static coh_status write_measured(const char *from, const char *gpu, const char *path)
{
    coh_profile *profile;
    coh_status status = coh_profile_read(from, &profile);
    if (status != COH_OK)
        return status;
    profile->source = COH_PROFILE_MEASURED;
    profile->threads = 2;
    profile->origin_count = 0; /* the origins name a datasheet, and mark times as a what-if */
    snprintf(profile->machine, sizeof(profile->machine), "%.60s; this host", gpu);
    profile->fingerprint = coh_machine_fingerprint_of(profile);
    status = coh_profile_write(profile, path);
    coh_profile_destroy(profile);
    return status;
}

int main(int argument_count, char **arguments)
{
    if (argument_count != 5 || strcmp(arguments[1], "measured") != 0)
        return cohobate_main(argument_count, arguments);
    if (write_measured(arguments[2], arguments[3], arguments[4]) == COH_OK)
        return 0;
    fprintf(stderr, "as_measured: %s\n", coh_last_error());
    return 1;
}
