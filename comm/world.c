/* The public handle of a world: checks the caller's arguments and passes calls on to the rank's
 * transport. Read cohobate/world.h first, then transport.h. */
#include "comm/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/struct_bytes.h"
#include "comm/launcher.h"
#include "comm/threads.h"

_Static_assert(COH_WORLD_RANKS_MOST == COH_THREADS_RANKS_MOST, "threads have as many ranks");

/* ---- levels ---- */

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

void coh_world_places(char (*hosts)[COH_HOST_BYTES], int32_t rank_count, int32_t pair_ranks,
                      coh_place *out_places)
{
    int32_t node_count = 0;
    int32_t on_node[COH_WORLD_RANKS_MOST], first[COH_WORLD_RANKS_MOST]; /* by node */
    for (int32_t rank = 0; rank < rank_count; rank++) {
        int32_t node = 0;
        while (node < node_count && strcmp(hosts[first[node]], hosts[rank]) != 0)
            node++;
        if (node == node_count) {
            first[node] = rank;
            on_node[node_count++] = 0;
        }
        out_places[rank] = (coh_place){ .node = node, .pair = on_node[node]++ / pair_ranks };
    }
}

/* Gathers where all ranks are. */
static coh_status find_levels_by_host(coh_transport *transport, int32_t pair_ranks,
                                      coh_levels *out_levels)
{
    char own[COH_HOST_BYTES] = "", (*hosts)[COH_HOST_BYTES];
    coh_place places[COH_WORLD_RANKS_MOST];
    COH_TRY(coh_check_integer("pair_ranks", pair_ranks, 0, transport->rank_count));
    COH_TRY(COH_ALLOC(transport->rank_count, &hosts));
    (void)gethostname(own, sizeof(own) - 1);
    coh_status status = coh_transport_gather(transport, own, sizeof(own), hosts);
    if (status == COH_OK) {
        coh_world_places(hosts, transport->rank_count, pair_ranks > 0 ? pair_ranks : 1, places);
        status = coh_levels_find(places, transport->rank_count, out_levels);
    }
    coh_free(hosts);
    return status;
}

/* ---- open and close ---- */

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

/* Checks the number of ranks and finds their levels. */
static coh_status meet_first(coh_world *world, const coh_launcher *launcher,
                             const coh_world_options *options)
{
    const int32_t count = world->transport->rank_count;
    coh_world_options found = *options;
    found.rank_count = count;
    if (launcher->rank_count != 0 && launcher->rank_count != count)
        return coh_fail(COH_ERR_DEVICE,
                        "%s says %" PRId32 " ranks and MPI connects %" PRId32
                        ": start the program by the mpirun of the MPI that libcohobate-mpi.so is "
                        "linked with",
                        launcher->variable, launcher->rank_count, count);
    if (options->rank_count != 0 && options->rank_count != count)
        return coh_fail(COH_ERR_ARGUMENT,
                        "rank_count is %" PRId32 " and the launcher has started %" PRId32
                        " ranks: give 0 to take all",
                        options->rank_count, count);
    COH_TRY(coh_check_integer("the number of ranks", count, 1, COH_WORLD_RANKS_MOST));
    return options->node_ranks > 0
               ? find_levels(&found, &world->levels)
               : find_levels_by_host(world->transport, options->pair_ranks, &world->levels);
}

static coh_status open_processes(const coh_launcher *launcher, const coh_world_options *options,
                                 coh_world **out_world)
{
    const coh_mpi_calls *calls;
    coh_world *world;
    COH_TRY(coh_launcher_open_mpi(&calls));
    COH_TRY(COH_ALLOC(1, &world));
    coh_status status = coh_mpi_start(calls, &world->mpi);
    if (status == COH_OK)
        status = coh_mpi_open(&world->mpi, &world->transport);
    if (status == COH_OK)
        status = coh_transport_end(world->transport, meet_first(world, launcher, options));
    if (status == COH_OK)
        *out_world = world;
    else
        coh_world_close(world);
    return status;
}

coh_status coh_world_open(const coh_world_options *options, coh_world **out_world)
{
    coh_world_options known = { .struct_bytes = sizeof(known) };
    coh_launcher launcher;
    COH_NEED_STRUCT(coh_world_options, options);
    COH_NEED(out_world);
    *out_world = NULL;
    coh_struct_read(options, &known, sizeof(known));
    COH_TRY(coh_launcher_find(&launcher));
    if (launcher.rank_count != 1)
        return open_processes(&launcher, &known, out_world);
    if (known.rank_count > 1)
        return coh_fail(COH_ERR_ARGUMENT,
                        "rank_count is %" PRId32 " and this process was started alone: start it by "
                        "mpirun -n %" PRId32 ", or open ranks that are threads",
                        known.rank_count, known.rank_count);
    known.rank_count = known.rank_count == 0 ? 1 : known.rank_count;
    return coh_world_open_threads(&known, out_world);
}

void coh_world_close(coh_world *world)
{
    if (world == NULL)
        return;
    coh_transport_close(world->transport);
    coh_mpi_end(&world->mpi);
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

coh_status coh_world_set_pair_ranks(coh_world *world, int32_t pair_ranks)
{
    COH_NEED(world);
    const int32_t node = world->levels.rank_count[COH_LEVEL_NODE];
    COH_TRY(coh_check_integer("pair_ranks", pair_ranks, 0, node));
    const int32_t pair = pair_ranks > 0 ? pair_ranks : 1;
    if (node % pair != 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "pair_ranks is %" PRId32 " and a node has %" PRId32
                        " ranks: give a divisor of them",
                        pair, node);
    world->levels.rank_count[COH_LEVEL_PAIR] = pair;
    return COH_OK;
}

/* ---- meetings ---- */

/* Allocates the room for a shared text. The others wait for it, so that a failure stops them. */
static coh_status make_room(coh_world *world, size_t bytes)
{
    return coh_transport_end(world->transport, coh_alloc(bytes, 1, (void **)&world->text));
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
