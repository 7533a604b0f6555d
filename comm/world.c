/* The public handle of a world: checks the caller's arguments and passes calls on to the rank's
 * transport. Read cohobate/world.h first, then transport.h. */
#include "comm/world.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_bytes.h"
#include "comm/threads.h"

_Static_assert(COH_WORLD_RANKS_MOST == COH_THREADS_RANKS_MOST, "threads have as many ranks");

/* ---- open and close ---- */

/* Finds the levels as for a world whose ranks report where they are. */
static coh_status find_levels(const coh_world_options *options, coh_levels *out_levels)
{
    coh_place places[COH_WORLD_RANKS_MOST];
    const int32_t count = options->rank_count;
    COH_TRY(coh_check_integer("rank_count", count, 1, COH_WORLD_RANKS_MOST));
    COH_TRY(coh_check_integer("node_ranks", options->node_ranks, 0, count));
    const int32_t node = options->node_ranks > 0 ? options->node_ranks : count;
    COH_TRY(coh_check_integer("pair_ranks", options->pair_ranks, 0, node));
    const int32_t pair = options->pair_ranks > 0 ? options->pair_ranks : 1;
    for (int32_t rank = 0; rank < count; rank++)
        places[rank] = (coh_place){ .node = rank / node, .pair = rank % node / pair };
    return coh_levels_find(places, count, out_levels);
}

static coh_status make_handle(coh_transport *transport, const coh_levels *levels,
                              coh_world **out_world)
{
    COH_TRY(COH_ALLOC(1, out_world));
    **out_world = (coh_world){ .transport = transport, .levels = *levels };
    return COH_OK;
}

coh_status coh_world_open_threads(const coh_world_options *options, coh_world **out_worlds)
{
    coh_transport *transports[COH_WORLD_RANKS_MOST];
    coh_world_options known = { .struct_bytes = sizeof(known) };
    coh_levels levels;
    coh_status status = COH_OK;
    int32_t made = 0;
    COH_NEED_STRUCT(coh_world_options, options);
    COH_NEED(out_worlds);
    coh_struct_read(options, &known, sizeof(known));
    COH_TRY(find_levels(&known, &levels));
    memset(out_worlds, 0, (size_t)known.rank_count * sizeof(*out_worlds));
    COH_TRY(coh_threads_open(known.rank_count, transports));
    while (made < known.rank_count && status == COH_OK) {
        status = make_handle(transports[made], &levels, &out_worlds[made]);
        made += status == COH_OK;
    }
    for (int32_t i = 0; i < known.rank_count && status != COH_OK; i++) {
        if (i >= made)
            coh_transport_close(transports[i]);
        coh_world_close(out_worlds[i]);
        out_worlds[i] = NULL;
    }
    return status;
}

void coh_world_close(coh_world *world)
{
    if (world == NULL)
        return;
    coh_transport_close(world->transport);
    coh_free(world->text);
    coh_free(world);
}

/* ---- facts ---- */

int32_t coh_world_rank(const coh_world *world)
{
    return world == NULL ? -1 : world->transport->rank;
}

int32_t coh_world_size(const coh_world *world)
{
    return world == NULL ? 0 : world->transport->rank_count;
}

int32_t coh_world_level_ranks(const coh_world *world, coh_link_level level)
{
    return world == NULL || (unsigned)level >= COH_LEVEL_COUNT ? 0
                                                               : world->levels.rank_count[level];
}

/* ---- meetings ---- */

/* Allocates the room for a shared text. The others wait for it, so that a failure stops them. */
static coh_status make_room(coh_world *world, size_t bytes)
{
    const coh_status status = coh_alloc(bytes, 1, (void **)&world->text);
    return status == COH_OK ? COH_OK
                            : coh_transport_stop(world->transport, status, coh_last_error());
}

coh_status coh_world_share_text(coh_world *world, const char *text, const char **out_text)
{
    COH_NEED(world);
    COH_NEED(text);
    COH_NEED(out_text);
    uint64_t bytes = strlen(text) + 1;
    COH_TRY(coh_transport_share(world->transport, &bytes, sizeof(bytes)));
    char *previous = world->text; /* `text` may be the text that was shared last */
    world->text = NULL;
    coh_status status = make_room(world, bytes);
    if (status == COH_OK && coh_world_rank(world) == 0)
        memcpy(world->text, text, bytes);
    if (status == COH_OK)
        status = coh_transport_share(world->transport, world->text, bytes);
    coh_free(previous);
    if (status == COH_OK)
        *out_text = world->text;
    return status;
}

coh_status coh_world_gather(coh_world *world, const void *record, size_t bytes, void *out_records)
{
    COH_NEED(world);
    COH_NEED(record);
    COH_NEED(out_records);
    if (bytes > COH_WORLD_RECORD_BYTES_MOST)
        return coh_fail(COH_ERR_ARGUMENT, "a record of %zu bytes: gather at most %d", bytes,
                        COH_WORLD_RECORD_BYTES_MOST);
    return coh_transport_gather(world->transport, record, bytes, out_records);
}

coh_status coh_world_barrier(coh_world *world)
{
    COH_NEED(world);
    return coh_transport_gather(world->transport, NULL, 0, NULL);
}

coh_status coh_world_stop(coh_world *world, coh_status status, const char *sentence)
{
    char printable[COH_ERROR_TEXT_BYTES];
    COH_NEED(world);
    COH_NEED(sentence);
    if (status <= COH_OK || status > COH_ERR_INTERNAL || sentence[0] == '\0')
        return coh_fail(
            COH_ERR_ARGUMENT,
            "a stop needs a failure as its status and a sentence; these are %d and '%s'",
            (int)status, sentence);
    (void)snprintf(printable, sizeof(printable), "%s", sentence);
    coh_text_make_printable(printable);
    (void)coh_transport_stop(world->transport, status, printable);
    return COH_OK;
}
