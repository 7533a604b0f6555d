/* background_save.h - finishes a checkpoint during the next steps.
 *
 *   caller     begin, put, put ...   start ... next steps ... is_done ... take
 *   coh-save                              finish: fsync, manifest, fsync, rename
 *
 * The one idea: a checkpoint is of one step because its numbers are read at a quiet point. Making
 * them durable takes longest, on most drives, and needs no number of the engine.
 *
 * The thread is started with the engine, so that a save allocates nothing. Between start and take
 * the writer belongs to the thread.
 *
 * Threads: the engine's caller; is_done: any. */
#ifndef COH_ENGINE_BACKGROUND_SAVE_H
#define COH_ENGINE_BACKGROUND_SAVE_H

#include <pthread.h>

#include "cohobate/engine.h"
#include "engine/checkpoint_writer.h"
#include "memory/counter.h"

typedef struct coh_background_save {
    coh_checkpoint_writer *writer;
    pthread_t thread;
    int is_started;              /* the thread */
    int is_under_way;            /* started and not taken */
    uint64_t count;              /* of saves started */
    coh_counter asked, finished; /* of the same */
    coh_checkpoint_seal seal;    /* caller to thread */
    coh_status status;           /* thread to caller, with its text */
    char text[COH_ERROR_TEXT_BYTES];
} coh_background_save;

/* Starts the thread. Fails: COH_ERR_MEMORY; *out_save can then be ended. */
coh_status coh_background_save_init(coh_background_save *out_save, coh_checkpoint_writer *writer);
/* Waits for a save that is under way, and ends the thread. If that save failed, options->log gets
 * its sentence. Accepts a zeroed one. */
void coh_background_save_fini(coh_background_save *save, const coh_engine_options *options);

/* Finishes the writer's checkpoint on the thread. None may be under way. */
void coh_background_save_start(coh_background_save *save, const coh_checkpoint_seal *seal);
/* Returns 1 if take would not wait. */
int coh_background_save_is_done(const coh_background_save *save);
/* Waits for the save that is under way; COH_OK if there is none. Fails: as
 * coh_checkpoint_writer_finish. */
coh_status coh_background_save_take(coh_background_save *save);

#endif
