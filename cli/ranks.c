/* The threads of ranks. The idea: each rank above 0 has a thread with one slot for work; rank 0
 * fills the slots, does its own work, and waits until all slots are empty. Read ranks.h first. */
#include "cli/ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/launch.h"
#include "cli/say.h"

typedef struct rank {
    cli_ranks *all;
    coh_world *world; /* NULL: the only rank */
    coh_engine *engine;
    int32_t number;
    pthread_t thread;
    int is_started;
    /* under the lock */
    cli_rank_work work; /* NULL: none */
    void *context;
    coh_status status; /* of the work done last */
    char sentence[1024];
} rank;

struct cli_ranks {
    const coh_plan *plan;
    const coh_engine_options *options; /* while the engines are created */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a slot was filled or emptied, or the threads are to end */
    int ends;               /* under the lock */
    coh_world *launched;    /* of processes; NULL: all ranks are here */
    int32_t count, all_count;
    rank of[];
};

/* ---- a rank's thread ---- */

static void *rank_main(void *argument)
{
    rank *self = argument;
    cli_ranks *all = self->all;
    pthread_mutex_lock(&all->lock);
    for (;;) {
        while (self->work == NULL && !all->ends)
            pthread_cond_wait(&all->changed, &all->lock);
        if (self->work == NULL)
            break;
        pthread_mutex_unlock(&all->lock);
        self->status = self->work(self->context, self->engine, self->number);
        if (self->status != COH_OK)
            snprintf(self->sentence, sizeof(self->sentence), "%s", coh_last_error());
        pthread_mutex_lock(&all->lock);
        self->work = NULL;
        pthread_cond_broadcast(&all->changed);
    }
    pthread_mutex_unlock(&all->lock);
    coh_engine_destroy(self->engine);
    return NULL;
}

static void give(rank *to, cli_rank_work work, void *context)
{
    pthread_mutex_lock(&to->all->lock);
    to->work = work;
    to->context = context;
    pthread_cond_broadcast(&to->all->changed);
    pthread_mutex_unlock(&to->all->lock);
}

static void await(rank *of)
{
    pthread_mutex_lock(&of->all->lock);
    while (of->work != NULL)
        pthread_cond_wait(&of->all->changed, &of->all->lock);
    pthread_mutex_unlock(&of->all->lock);
}

/* ---- work ---- */

/* Returns the first failure of the ranks above 0. */
static coh_status first_failure(const cli_ranks *ranks)
{
    for (int32_t i = 1; i < ranks->count; i++)
        if (ranks->of[i].status != COH_OK)
            return cli_fail(ranks->of[i].status, "%s", ranks->of[i].sentence);
    return COH_OK;
}

coh_status cli_ranks_run(cli_ranks *ranks, cli_rank_work work, void *context)
{
    for (int32_t i = 1; i < ranks->count; i++)
        give(&ranks->of[i], work, context);
    const coh_status status = work(context, ranks->of[0].engine, ranks->of[0].number);
    for (int32_t i = 1; i < ranks->count; i++)
        await(&ranks->of[i]);
    return status != COH_OK ? status : first_failure(ranks);
}

coh_status cli_ranks_run_in_turn(cli_ranks *ranks, cli_rank_work work, void *context)
{
    CLI_TRY(work(context, ranks->of[0].engine, ranks->of[0].number));
    for (int32_t i = 1; i < ranks->count; i++) {
        give(&ranks->of[i], work, context);
        await(&ranks->of[i]);
        CLI_TRY(first_failure(ranks));
    }
    return COH_OK;
}

coh_status cli_ranks_gather(cli_ranks *ranks, void *records, size_t bytes)
{
    char own[COH_WORLD_RECORD_BYTES_MOST];
    if (ranks->launched == NULL)
        return COH_OK;
    memcpy(own, (const char *)records + (size_t)ranks->of[0].number * bytes, bytes);
    return coh_world_gather(ranks->launched, own, bytes, records);
}

coh_status cli_ranks_meet(cli_ranks *ranks)
{
    return ranks->launched == NULL ? COH_OK : coh_world_barrier(ranks->launched);
}

int32_t cli_ranks_count(const cli_ranks *ranks)
{
    return ranks->all_count;
}

int cli_ranks_is_first(const cli_ranks *ranks)
{
    return ranks->of[0].number == 0;
}

coh_engine *cli_ranks_engine(const cli_ranks *ranks)
{
    return ranks != NULL ? ranks->of[0].engine : NULL;
}

/* ---- open and close ---- */

/* Returns how many ranks this machine has. */
static int32_t local_count(const cli_ranks *ranks)
{
    return ranks->launched != NULL ? coh_world_level_ranks(ranks->launched, COH_LEVEL_NODE)
                                   : ranks->count;
}

static coh_status create_engine(void *context, coh_engine *engine, int32_t number)
{
    cli_ranks *ranks = context;
    rank *self = &ranks->of[number - ranks->of[0].number];
    coh_engine_options options = *ranks->options;
    char text[CLI_DEVICE_BYTES];
    (void)engine;
    options.world = self->world;
    if (ranks->all_count > 1)
        options.device =
            cli_launch_device(ranks->launched, options.device, number % local_count(ranks), text);
    if (number > 0) { /* what it has to say, rank 0 says, too */
        options.log = NULL;
        options.progress = NULL;
    }
    return coh_engine_create(ranks->plan, &options, &self->engine);
}

static coh_status open_world(cli_ranks *ranks, const coh_plan_options *plan_options)
{
    coh_world *worlds[COH_WORLD_RANKS_MOST];
    const coh_world_options options = { .struct_bytes = sizeof(options),
                                        .rank_count = ranks->count,
                                        .pair_ranks = plan_options->pair_ranks,
                                        .node_ranks = plan_options->node_ranks };
    if (ranks->launched != NULL) {
        ranks->of[0].world = ranks->launched;
        ranks->of[0].number = coh_world_rank(ranks->launched);
        CLI_TRY(coh_world_set_pair_ranks(ranks->launched, plan_options->pair_ranks));
    }
    if (ranks->count == 1)
        return COH_OK;
    CLI_TRY(coh_world_open_threads(&options, worlds));
    for (int32_t i = 0; i < ranks->count; i++)
        ranks->of[i].world = worlds[i];
    return COH_OK;
}

static coh_status start_threads(cli_ranks *ranks)
{
    for (int32_t i = 1; i < ranks->count; i++) {
        rank *of = &ranks->of[i];
        if (pthread_create(&of->thread, NULL, rank_main, of) != 0)
            return cli_fail(COH_ERR_MEMORY, "no thread for rank %d: lower --ranks", (int)i);
        of->is_started = 1;
    }
    return COH_OK;
}

coh_status cli_ranks_open(const coh_plan *plan, const coh_plan_options *plan_options,
                          const coh_engine_options *options, int32_t rank_count,
                          cli_ranks **out_ranks)
{
    *out_ranks = NULL;
    const int32_t local_count = options->world != NULL ? 1 : rank_count;
    cli_ranks *ranks = calloc(1, sizeof(*ranks) + (size_t)local_count * sizeof(rank));
    if (ranks == NULL)
        return cli_fail(COH_ERR_MEMORY, "no memory for the tables of %d ranks", (int)rank_count);
    ranks->plan = plan;
    ranks->options = options;
    ranks->launched = options->world;
    ranks->count = local_count;
    ranks->all_count = rank_count;
    pthread_mutex_init(&ranks->lock, NULL);
    pthread_cond_init(&ranks->changed, NULL);
    for (int32_t i = 0; i < local_count; i++) {
        ranks->of[i].all = ranks;
        ranks->of[i].number = i;
    }
    coh_status status = open_world(ranks, plan_options);
    if (status == COH_OK)
        status = start_threads(ranks);
    if (status == COH_OK)
        status = cli_ranks_run(ranks, create_engine, ranks);
    if (status == COH_OK)
        *out_ranks = ranks;
    else
        cli_ranks_close(ranks);
    return status;
}

void cli_ranks_close(cli_ranks *ranks)
{
    if (ranks == NULL)
        return;
    pthread_mutex_lock(&ranks->lock);
    ranks->ends = 1;
    pthread_cond_broadcast(&ranks->changed);
    pthread_mutex_unlock(&ranks->lock);
    coh_engine_destroy(ranks->of[0].engine); /* while the others do: on GPUs they wait for it */
    for (int32_t i = 1; i < ranks->count; i++)
        if (ranks->of[i].is_started)
            pthread_join(ranks->of[i].thread, NULL);
    for (int32_t i = 0; i < ranks->count && ranks->launched == NULL; i++)
        coh_world_close(ranks->of[i].world);
    pthread_cond_destroy(&ranks->changed);
    pthread_mutex_destroy(&ranks->lock);
    free(ranks);
}
