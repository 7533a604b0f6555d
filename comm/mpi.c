/* The shared object libcohobate-mpi.so: MPI behind a table, one function of MPI to each of its
 * functions. It uses nothing of the library, so that it can be opened by any program. Read
 * mpi_calls.h first; the transport that calls the table is mpi_transport.c. */
#include "comm/mpi_calls.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= COH_MPI_REQUEST_BYTES_MOST, "a request has room");
_Static_assert(sizeof(MPI_Comm) <= sizeof(coh_mpi_communicator), "a communicator has room");

#define TRY_MPI(call)                                                                              \
    do {                                                                                           \
        const int code_ = (call);                                                                  \
        if (code_ != MPI_SUCCESS)                                                                  \
            return code_;                                                                          \
    } while (0)

/* ---- begin and end ---- */

static int begin(coh_mpi_beginning *out_beginning)
{
    int is_running = 0, is_ended = 0, level = MPI_THREAD_SINGLE;
    TRY_MPI(MPI_Initialized(&is_running));
    TRY_MPI(MPI_Finalized(&is_ended));
    if (is_ended) {
        *out_beginning = COH_MPI_WAS_ENDED;
        return MPI_SUCCESS;
    }
    if (is_running)
        TRY_MPI(MPI_Query_thread(&level));
    else
        TRY_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level));
    *out_beginning = is_running ? COH_MPI_WAS_RUNNING : COH_MPI_BEGUN;
    if (level != MPI_THREAD_MULTIPLE)
        *out_beginning = COH_MPI_LACKS_THREADS;
    if (is_running)
        return MPI_SUCCESS;
    if (level != MPI_THREAD_MULTIPLE)
        return MPI_Finalize();
    /* Else MPI prints and ends the process. A program that runs MPI itself keeps its handler. */
    TRY_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    return MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

static int end(void)
{
    return MPI_Finalize();
}

static void describe(int code, char *out_text, int text_bytes)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        (void)snprintf(text, sizeof(text), "error %d", code);
    (void)snprintf(out_text, (size_t)text_bytes, "%s", text);
}

/* ---- communicators ---- */

static MPI_Comm native(coh_mpi_communicator communicator)
{
    MPI_Comm found;
    memcpy(&found, &communicator, sizeof(found));
    return found;
}

static int read_facts(MPI_Comm communicator, coh_mpi_facts *out_facts)
{
    int rank, rank_count, has_limit = 0;
    int *limit = NULL;
    TRY_MPI(MPI_Comm_rank(communicator, &rank));
    TRY_MPI(MPI_Comm_size(communicator, &rank_count));
    TRY_MPI(MPI_Comm_get_attr(communicator, MPI_TAG_UB, (void *)&limit, &has_limit));
    *out_facts = (coh_mpi_facts){ rank, rank_count, has_limit ? *limit : 32767 };
    return MPI_SUCCESS;
}

/* The ranks have their own communicator, so that no message of the program's own can meet ours. */
static int open_communicator(coh_mpi_communicator *out_communicator, coh_mpi_facts *out_facts)
{
    MPI_Comm made;
    *out_communicator = (coh_mpi_communicator){ 0 };
    TRY_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &made));
    TRY_MPI(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN));
    memcpy(out_communicator, &made, sizeof(made));
    return read_facts(made, out_facts);
}

static int close_communicator(coh_mpi_communicator communicator)
{
    MPI_Comm freed = native(communicator);
    return MPI_Comm_free(&freed);
}

/* ---- messages ---- */

static int peer_of(const coh_mpi_message *message)
{
    return message->peer == COH_MPI_ANY_PEER ? MPI_ANY_SOURCE : message->peer;
}

static int post(const coh_mpi_message *message, void *out_request)
{
    const MPI_Comm communicator = native(message->communicator);
    return message->from != NULL
               ? MPI_Isend(message->from, message->bytes, MPI_BYTE, message->peer, message->tag,
                           communicator, out_request)
               : MPI_Irecv(message->to, message->bytes, MPI_BYTE, peer_of(message), message->tag,
                           communicator, out_request);
}

static int prepare(const coh_mpi_message *message, void *out_request)
{
    const MPI_Comm communicator = native(message->communicator);
    return message->from != NULL
               ? MPI_Send_init(message->from, message->bytes, MPI_BYTE, message->peer, message->tag,
                               communicator, out_request)
               : MPI_Recv_init(message->to, message->bytes, MPI_BYTE, peer_of(message),
                               message->tag, communicator, out_request);
}

static int start_all(int32_t count, void *requests)
{
    return MPI_Startall(count, requests);
}

static int test_all(int32_t count, void *requests, int *out_are_done)
{
    return MPI_Testall(count, requests, out_are_done, MPI_STATUSES_IGNORE);
}

static int cancel(void *request)
{
    return MPI_Cancel(request);
}

static int release(void *request)
{
    return *(MPI_Request *)request == MPI_REQUEST_NULL ? MPI_SUCCESS : MPI_Request_free(request);
}

__attribute__((visibility("default"))) const coh_mpi_calls coh_mpi_calls_1 = {
    .table_bytes = sizeof(coh_mpi_calls),
    .request_bytes = sizeof(MPI_Request),
    .message_bytes_most = INT_MAX / 2 + 1, /* 1 GiB: MPI counts in int */
    .begin = begin,
    .end = end,
    .describe = describe,
    .open = open_communicator,
    .close = close_communicator,
    .post = post,
    .prepare = prepare,
    .start_all = start_all,
    .test_all = test_all,
    .cancel = cancel,
    .release = release,
};
