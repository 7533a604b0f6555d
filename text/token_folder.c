/* Processes the files of a folder, several at a time. The one idea: each thread has a separate
 * builder, which records its documents; the records are replayed in the order of the files. Next:
 * turns.c for the order, documents.c for the records. */
#include "cohobate/machine.h"
#include "text/token_build.h"

#define THREADS_MOST       64
#define WAITING_BYTES_MOST (32u << 20)

typedef struct folder_job {
    coh_token_builder *out;
    coh_token_builder *workers;
    int worker_count;
    coh_token_member member;
} folder_job;

static coh_status make(void *context, int thread, size_t index, coh_turn *turn)
{
    folder_job *job = context;
    coh_token_builder *worker = &job->workers[thread];
    worker->documents.turn = turn;
    return job->member(worker, job->out->list.paths[index]);
}

static coh_status take(void *context, size_t index, const void *bytes, size_t byte_count,
                       int is_end)
{
    (void)index;
    (void)is_end;
    folder_job *job = context;
    return coh_documents_replay(&job->out->documents, bytes, byte_count);
}

/* The caller's thread uses the existing objects, other threads use forks. */
static coh_status fill_worker(const coh_token_builder *out, int number, coh_token_builder *worker)
{
    worker->options = out->options;
    if (number == 0) {
        worker->tokenizer = out->tokenizer;
        worker->chat = out->chat;
        return COH_OK;
    }
    COH_TRY(coh_tokenizer_fork(out->tokenizer, &worker->tokenizer));
    if (out->chat)
        COH_TRY(coh_chat_open(worker->tokenizer, out->options->chat_folder, out->options->chat_form,
                              &worker->chat));
    return COH_OK;
}

static void fini_workers(const folder_job *job)
{
    for (int i = 0; i < job->worker_count; i++) {
        coh_token_builder *worker = &job->workers[i];
        job->out->replaced_count += worker->replaced_count;
        if (i > 0) {
            coh_chat_close(worker->chat);
            coh_tokenizer_close(worker->tokenizer);
        }
        coh_documents_fini(&worker->documents);
        coh_free(worker->targets.bytes);
        coh_free(worker->ids.ids);
        coh_free(worker->buffer);
    }
    coh_free(job->workers);
}

static int thread_count_for(const coh_token_builder *builder)
{
    int count = builder->options->thread_count;
    if (count == 0)
        count = coh_machine_core_count();
    if (count > THREADS_MOST)
        count = THREADS_MOST;
    if ((size_t)count > builder->list.count)
        count = (int)builder->list.count;
    return count;
}

coh_status coh_token_build_folder(coh_token_builder *builder, coh_token_member member)
{
    folder_job job = { .out = builder, .member = member };
    int thread_count = thread_count_for(builder);
    if (thread_count <= 1) {
        for (size_t i = 0; i < builder->list.count; i++)
            COH_TRY(member(builder, builder->list.paths[i]));
        return COH_OK;
    }
    coh_status status = COH_ALLOC(thread_count, &job.workers);
    for (int i = 0; status == COH_OK && i < thread_count; i++) {
        job.worker_count++; /* released even after a partial fill */
        status = fill_worker(builder, i, &job.workers[i]);
    }
    if (status == COH_OK) {
        const coh_turns_job turns = { .context = &job,
                                      .part_count = builder->list.count,
                                      .make = make,
                                      .take = take,
                                      .thread_count = thread_count,
                                      .most_bytes = WAITING_BYTES_MOST };
        status = coh_turns_run(&turns);
    }
    fini_workers(&job);
    return status;
}
