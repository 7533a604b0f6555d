/* Chooses the working store's backend: io_uring, else posix. Read backends.h first; store.h
 * describes the backends. */
#include "offload/backends.h"

#include <stdio.h>

#include "offload/store_base.h"

coh_status coh_store_open_first(const coh_store_config *config,
                                const coh_store_ops *const *backends, uint32_t backend_count,
                                const coh_store_ops **out_ops, coh_store **out_store)
{
    char denied[COH_STORE_REASON_BYTES] = "";
    *out_ops = NULL;
    *out_store = NULL;
    for (uint32_t i = 0; i < backend_count; i++) {
        const coh_store_ops *backend = backends[i];
        coh_status status =
            backend->open != NULL
                ? backend->open(config, out_store)
                : coh_fail(COH_ERR_DEVICE, "%s was not built into this library", backend->name);
        if (status == COH_OK) {
            if (denied[0] != '\0')
                coh_store_base_say(*out_store, "%s, so the %s store is used", denied,
                                   backend->name);
            *out_ops = backend;
            return COH_OK;
        }
        if (status != COH_ERR_DEVICE)
            return status;
        snprintf(denied, sizeof(denied), "%.*s", (int)sizeof(denied) - 1, coh_last_error());
    }
    return coh_fail(COH_ERR_DEVICE, "no kind of working store can be had here: %s", denied);
}

coh_status coh_store_open(const coh_store_config *config, const coh_store_ops *wanted,
                          const coh_store_ops **out_ops, coh_store **out_store)
{
    static const coh_store_ops *const ladder[] = { &coh_store_uring, &coh_store_posix };
    if (wanted != NULL)
        return coh_store_open_first(config, &wanted, 1, out_ops, out_store);
    return coh_store_open_first(config, ladder, 2, out_ops, out_store);
}
