/* mpi_calls.h - MPI as a table of functions: all that the library knows of it.
 *
 * The one idea: only comm/mpi.c includes MPI's header, and only libcohobate-mpi.so, which is made
 * of that file alone, is linked with MPI. The library opens it when a launcher has started several
 * ranks (launcher.h). So one build runs with and without MPI, and a test can put its own table
 * between the transport and MPI.
 *
 * Functions return 0 or MPI's error code, which `describe` turns into a text. MPI never aborts the
 * process: its errors are returned. Threads: any, at the same time (MPI_THREAD_MULTIPLE). */
#ifndef COH_COMM_MPI_CALLS_H
#define COH_COMM_MPI_CALLS_H

#include <stdint.h>

/* Most bytes of an MPI_Request and of an MPI_Comm: a pointer in Open MPI, an int in MPICH. */
enum { COH_MPI_REQUEST_BYTES_MOST = 8 };

typedef union coh_mpi_communicator {
    void *pointer;
    int number;
} coh_mpi_communicator;

/* How MPI was found when it was to be started. */
typedef enum coh_mpi_beginning {
    COH_MPI_BEGUN,        /* started here: to be ended by `end` */
    COH_MPI_WAS_RUNNING,  /* started by the program, which ends it */
    COH_MPI_WAS_ENDED,    /* MPI starts once in a process */
    COH_MPI_LACKS_THREADS /* no MPI_THREAD_MULTIPLE */
} coh_mpi_beginning;

typedef struct coh_mpi_message {
    coh_mpi_communicator communicator;
    const void *from; /* NULL: a receive */
    void *to;         /* NULL: a send */
    int32_t bytes, peer, tag;
} coh_mpi_message;

enum { COH_MPI_ANY_PEER = -1 }; /* of a receive */

typedef struct coh_mpi_facts {
    int32_t rank, rank_count, tag_most;
} coh_mpi_facts;

/* `request` and `requests`: memory of one or `count` times request_bytes. */
typedef struct coh_mpi_calls {
    uint32_t table_bytes;       /* sizeof(coh_mpi_calls), in its builder's eyes */
    uint32_t request_bytes;     /* of an MPI_Request */
    int32_t message_bytes_most; /* a longer message is sent in pieces */
    int (*begin)(coh_mpi_beginning *out_beginning);
    int (*end)(void);
    void (*describe)(int code, char *out_text, int text_bytes);
    /* Makes and frees a communicator of all ranks. All ranks call them together. */
    int (*open)(coh_mpi_communicator *out_communicator, coh_mpi_facts *out_facts);
    int (*close)(coh_mpi_communicator communicator);
    /* Starts a message, once; or makes a persistent request, which start_all starts, many times. */
    int (*post)(const coh_mpi_message *message, void *out_request);
    int (*prepare)(const coh_mpi_message *message, void *out_request);
    int (*start_all)(int32_t count, void *requests);
    int (*test_all)(int32_t count, void *requests, int *out_are_done);
    /* A cancelled receive is done soon: without a message, or with one that was on its way. */
    int (*cancel)(void *request);
    int (*release)(void *request);
} coh_mpi_calls;

/* The name of the table in the shared object. A table of another form has another name. */
#define COH_MPI_CALLS_SYMBOL "coh_mpi_calls_1"
extern const coh_mpi_calls coh_mpi_calls_1;

#endif
