/* world_threads.h - runs a body on each rank of a world of threads, and keeps how each ended. */
#ifndef COH_TESTS_COMM_WORLD_THREADS_H
#define COH_TESTS_COMM_WORLD_THREADS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>

#include "cohobate/world.h"

enum { WORLD_RANKS_MOST = 8 };

/* A rank, and how its body ended. */
typedef struct world_end {
    pthread_t thread;
    coh_world *world;
    coh_status (*body)(coh_world *world);
    coh_status status;
    char sentence[256];
} world_end;

static inline void *world_run_one(void *argument)
{
    world_end *self = argument;
    self->status = self->body(self->world);
    if (self->status != COH_OK)
        (void)snprintf(self->sentence, sizeof(self->sentence), "%s", coh_last_error());
    coh_world_close(self->world);
    return NULL;
}

/* Runs the body on a thread for each rank of a world of at most WORLD_RANKS_MOST. */
static inline void world_run(const coh_world_options *options, coh_status (*body)(coh_world *world),
                             world_end *out_ends)
{
    coh_world *worlds[WORLD_RANKS_MOST];
    assert_int_equal(coh_world_open_threads(options, worlds), COH_OK);
    for (int32_t i = 0; i < options->rank_count; i++) {
        out_ends[i] = (world_end){ .world = worlds[i], .body = body };
        assert_int_equal(pthread_create(&out_ends[i].thread, NULL, world_run_one, &out_ends[i]), 0);
    }
    for (int32_t i = 0; i < options->rank_count; i++)
        assert_int_equal(pthread_join(out_ends[i].thread, NULL), 0);
}

#endif
