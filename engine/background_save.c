/* The thread coh-save: waits for a checkpoint whose numbers are written, and finishes it. Read
 * background_save.h first; persist.c is its only caller. */
#include "engine/background_save.h"

#include <stdio.h>
#include <string.h>

#include "base/thread.h"

static void *save_main(void *argument)
{
    coh_background_save *save = argument;
    pthread_setname_np(pthread_self(), "coh-save");
    for (uint64_t number = 1; coh_counter_wait(&save->asked, number); number++) {
        save->status = coh_checkpoint_writer_finish(save->writer, &save->seal, NULL);
        if (save->status != COH_OK)
            coh_error_save(save->text);
        coh_counter_raise(&save->finished, number);
    }
    return NULL;
}

coh_status coh_background_save_init(coh_background_save *out_save, coh_checkpoint_writer *writer)
{
    *out_save = (coh_background_save){ .writer = writer };
    COH_TRY(coh_counter_init(&out_save->asked));
    coh_status status = coh_counter_init(&out_save->finished);
    if (status != COH_OK) {
        coh_counter_fini(&out_save->asked);
        return status;
    }
    const int error = coh_thread_start(&out_save->thread, save_main, out_save);
    out_save->is_started = error == 0;
    if (error == 0)
        return COH_OK;
    coh_counter_fini(&out_save->finished);
    coh_counter_fini(&out_save->asked);
    return coh_fail(COH_ERR_MEMORY, "no thread to finish saves: %s", strerror(error));
}

/* Nobody asked for the outcome, and nobody can any more. */
static void tell_failure(const coh_engine_options *options)
{
    char text[COH_ERROR_TEXT_BYTES + 64];
    if (options->log == NULL)
        return;
    snprintf(text, sizeof(text), "the save that was under way failed: %s", coh_last_error());
    options->log(options->log_context, text);
}

void coh_background_save_fini(coh_background_save *save, const coh_engine_options *options)
{
    if (!save->is_started)
        return;
    if (coh_background_save_take(save) != COH_OK)
        tell_failure(options);
    coh_counter_close(&save->asked);
    pthread_join(save->thread, NULL);
    coh_counter_fini(&save->finished);
    coh_counter_fini(&save->asked);
    save->is_started = 0;
}

void coh_background_save_start(coh_background_save *save, const coh_checkpoint_seal *seal)
{
    save->seal = *seal;
    save->is_under_way = 1;
    coh_counter_raise(&save->asked, ++save->count);
}

int coh_background_save_is_done(const coh_background_save *save)
{
    return coh_counter_read(&save->finished) >= coh_counter_read(&save->asked);
}

coh_status coh_background_save_take(coh_background_save *save)
{
    if (!save->is_under_way)
        return COH_OK;
    (void)coh_counter_wait(&save->finished, save->count);
    save->is_under_way = 0;
    if (save->status != COH_OK)
        coh_error_restore(save->text);
    return save->status;
}
