/* kernel_session.h - a device over the stub driver with its compute queue and kernels
 * (kernels/cuda/device_kernels.h). cuBLASLt and cuDNN are fakes, absent, or broken: this file has
 * the functions that open them. */
#ifndef COH_TESTS_CUDA_KERNEL_SESSION_H
#define COH_TESTS_CUDA_KERNEL_SESSION_H

#include <stdint.h>

#include <cublasLt.h>

#include "kernels/cuda/device_kernels.h"
#include "memory/cuda_queue.h"

/* The state of the machine's libraries. */
typedef struct session_libraries {
    coh_status cublaslt, cudnn; /* COH_OK: present; else the reason why not */
    int open_count;             /* libraries opened and not closed */
    int handle_count;           /* open cuDNN handles */
    int calls, fail_nth;        /* calls on cuDNN's handle */
    cudaStream_t stream;
} session_libraries;
extern session_libraries here;

/* Number of products by the project's own kernels. */
extern int session_products;

enum { OFFSET = 4096, TENSOR_BYTES = 1 << 18, NUMBER = 8, INDEX = 21 };

typedef struct session {
    coh_device *device;
    coh_queue *queue;
    coh_counter done;
    uint64_t signalled;
    coh_recording *recording; /* of the line; NULL: it is launched */
    char *arena;
    char *tensors; /* after the workspace, all zeros */
    uint64_t failed_number;
    uint32_t failed_index;
    int sentence_count;
    char sentence[512]; /* the first message */
} session;

/* Resets to the state of a new process, with these libraries. */
void session_begin(coh_status cublaslt, coh_status cudnn);
coh_status session_open(session *s, const coh_device_kernels *kernels);
/* Asserts that nothing is left allocated. */
void session_close(session *s);
coh_cuda_queue *session_queue(const session *s);

/* Does a line's work: a product with gelu, attention with and without dropout, its backward with dq
 * over dy, an index check. */
void session_work(void *context, uint64_t number, uint32_t index);
/* Records the line; later enqueues replay the recording. */
coh_status session_record(session *s);
/* Enqueues the line, the n-th as number NUMBER + n, and the signals of its begin and end. */
void session_enqueue(session *s);
/* Lets the stub driver execute; returns 1 if the line's end was reported. */
int session_finish(session *s);

/* Passes through everything once. */
coh_status session_live_once(void);
/* Returns `hit`; the status must be an error with a message exactly if it is set. */
int session_failed_well(coh_status status, int hit, const char *what, uint64_t n);

#endif
