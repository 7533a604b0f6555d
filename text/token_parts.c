/* Adds files to a token file by several threads. The files of a folder are processed several at a
 * time, and a long file of JSON lines in parts that begin at line ends: each thread has a separate
 * builder, which records its documents; the records are replayed in the order of the parts. Next:
 * turns.c for the order, documents.c for the records, lines.c for the lines of a part. */
#include <sys/stat.h>

#include "base/alloc.h"
#include "cohobate/machine.h"
#include "text/lines.h"
#include "text/token_build.h"

#define THREADS_MOST       64
#define WAITING_BYTES_MOST (32u << 20)

/* A file of JSON lines is cut into this many parts a thread, so that no thread waits long for the
 * last one; but not into smaller parts, whose beginnings cost, nor larger ones, whose ids wait. */
#define PARTS_PER_THREAD 4
#define PART_BYTES_LEAST (64u << 10)
#define PART_BYTES_MOST  (1u << 20)

typedef struct parts_job {
    coh_token_builder *out;
    char *const *paths;
    coh_token_add *add;
    coh_token_part *parts;
    size_t part_count, capacity;
    int thread_count;
    coh_token_builder *workers;
    int worker_count;
} parts_job;

void coh_token_builder_add_binaries(coh_token_builder *b, uint64_t count, size_t first)
{
    if (count > 0 && (b->binary_count == 0 || first < b->first_binary))
        b->first_binary = first;
    b->binary_count += count;
}

/* ---- parts ---- */

/* Returns the bytes of a part of the file; 0: it is one part. */
static uint64_t part_bytes_for(const char *path, const struct stat *facts, int thread_count)
{
    if (facts->st_size < 2 * (off_t)PART_BYTES_LEAST || !coh_lines_are_lines(path))
        return 0;
    const uint64_t share = (uint64_t)facts->st_size / (uint64_t)(thread_count * PARTS_PER_THREAD);
    return share < PART_BYTES_LEAST  ? PART_BYTES_LEAST
           : share > PART_BYTES_MOST ? PART_BYTES_MOST
                                     : share;
}

/* Each part opens the file for itself, and knows which one it was when it was cut. */
static coh_status cut(parts_job *job, size_t file, int may_cut)
{
    struct stat facts = { 0 };
    may_cut = may_cut && stat(job->paths[file], &facts) == 0;
    const uint64_t part_bytes =
        may_cut ? part_bytes_for(job->paths[file], &facts, job->thread_count) : 0;
    const size_t count = part_bytes ? (size_t)((uint64_t)facts.st_size / part_bytes) : 1;
    COH_TRY(COH_GROW(&job->parts, &job->capacity, job->part_count + count));
    for (size_t i = 0; i < count; i++)
        job->parts[job->part_count++] =
            (coh_token_part){ .file = file,
                              .begin = i * part_bytes,
                              .end = i + 1 < count ? (i + 1) * part_bytes : UINT64_MAX,
                              .is_cut = part_bytes > 0,
                              .device = facts.st_dev,
                              .inode = facts.st_ino,
                              .file_bytes = (uint64_t)facts.st_size };
    return COH_OK;
}

coh_status coh_token_part_check(const coh_token_part *part, int fd, const char *path)
{
    struct stat facts;
    if (!part->is_cut)
        return COH_OK;
    if (fstat(fd, &facts) == 0 && facts.st_dev == part->device && facts.st_ino == part->inode &&
        (uint64_t)facts.st_size == part->file_bytes)
        return COH_OK;
    return coh_fail(COH_ERR_IO,
                    "%s was replaced or changed while it was read: give the command again", path);
}

static int thread_count_for(const coh_token_build_options *options)
{
    const int count = options->thread_count ? options->thread_count : coh_machine_core_count();
    return count < THREADS_MOST ? count : THREADS_MOST;
}

/* ---- threads ---- */

static coh_status add_part(const parts_job *job, coh_token_builder *b, size_t index)
{
    const coh_token_part *part = &job->parts[index];
    b->part = index;
    return job->add(b, job->paths[part->file], part);
}

static coh_status make(void *context, int thread, size_t index, coh_turn *turn)
{
    const parts_job *job = context;
    coh_token_builder *worker = &job->workers[thread];
    worker->documents.turn = turn;
    return add_part(job, worker, index);
}

static coh_status take(void *context, size_t index, const void *bytes, size_t byte_count,
                       int is_end)
{
    (void)index;
    (void)is_end;
    const parts_job *job = context;
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

static void fini_workers(const parts_job *job)
{
    for (int i = 0; i < job->worker_count; i++) {
        coh_token_builder *worker = &job->workers[i];
        job->out->replaced_count += worker->replaced_count;
        coh_token_builder_add_binaries(job->out, worker->binary_count, worker->first_binary);
        coh_bad_lines_join(&job->out->bad, &worker->bad);
        if (i > 0) {
            coh_chat_close(worker->chat);
            coh_tokenizer_close(worker->tokenizer);
        }
        coh_documents_fini(&worker->documents);
        coh_conversation_fini(&worker->conversation);
        coh_free(worker->targets.bytes);
        coh_free(worker->ids.ids);
        coh_free(worker->buffer);
    }
    coh_free(job->workers);
}

/* Puts the place before the message of the first line that was left out, if its part did not. */
static coh_status place_first(const parts_job *job)
{
    coh_bad_lines *bad = &job->out->bad;
    if (bad->first_begin == 0)
        return COH_OK;
    const coh_token_part *part = &job->parts[bad->first_part];
    const char *path = job->paths[part->file];
    coh_lines lines;
    coh_status status = coh_lines_open(path, &lines);
    if (status == COH_OK)
        status = coh_token_part_check(part, lines.fd, path);
    if (status == COH_OK) {
        lines.first = bad->first_begin;
        lines.number = bad->first_number;
        lines.is_relative = 1;
        coh_error_restore(bad->first);
        status = coh_lines_place(&lines);
    }
    if (status == COH_ERR_CORRUPT) {
        coh_error_save(bad->first);
        status = COH_OK;
    }
    coh_lines_close(&lines);
    return status;
}

static coh_status run(parts_job *job)
{
    coh_status status = COH_OK;
    if ((size_t)job->thread_count > job->part_count)
        job->thread_count = (int)job->part_count;
    if (job->thread_count <= 1) {
        for (size_t i = 0; status == COH_OK && i < job->part_count; i++)
            status = add_part(job, job->out, i);
        return status;
    }
    status = COH_ALLOC(job->thread_count, &job->workers);
    for (int i = 0; status == COH_OK && i < job->thread_count; i++) {
        job->worker_count++; /* released even after a partial fill */
        status = fill_worker(job->out, i, &job->workers[i]);
    }
    if (status == COH_OK) {
        const coh_turns_job turns = { .context = job,
                                      .part_count = job->part_count,
                                      .make = make,
                                      .take = take,
                                      .thread_count = job->thread_count,
                                      .most_bytes = WAITING_BYTES_MOST };
        status = coh_turns_run(&turns);
    }
    fini_workers(job);
    return status == COH_OK ? place_first(job) : status;
}

coh_status coh_token_build_parts(coh_token_builder *builder, char *const *paths, size_t count,
                                 coh_token_add *add, int has_lines)
{
    parts_job job = { .out = builder,
                      .paths = paths,
                      .add = add,
                      .thread_count = thread_count_for(builder->options) };
    const int cuts = has_lines && job.thread_count > 1;
    coh_status status = COH_OK;
    for (size_t i = 0; status == COH_OK && i < count; i++)
        status = cut(&job, i, cuts);
    if (status == COH_OK)
        status = run(&job);
    coh_free(job.parts);
    return status;
}
