/* kernel_session.h - a device over the stub driver with its compute queue, as it is given its
 * kernels (kernels/cuda/device_kernels.h). cuBLASLt and cuDNN are fakes, absent, or broken: here
 * are the functions that open them. */
#ifndef COH_TESTS_CUDA_KERNEL_SESSION_H
#define COH_TESTS_CUDA_KERNEL_SESSION_H

#include <stdint.h>

#include <cublasLt.h>

#include "kernels/cuda/device_kernels.h"
#include "memory/cuda_queue.h"

/* Of this machine. */
typedef struct session_libraries {
    coh_status cublaslt, cudnn; /* COH_OK: it is here; else why not */
    int open_count;             /* of both, that were not closed */
    int handle_count;           /* of cuDNN */
    int calls, fail_nth;        /* of cuDNN's handle */
    cudaStream_t stream;
} session_libraries;
extern session_libraries here;

/* Own kernels that multiplied. */
extern int session_products;

enum { OFFSET = 4096, TENSOR_BYTES = 1 << 18, NUMBER = 8, INDEX = 21 };

typedef struct session {
    coh_device *device;
    coh_queue *queue;
    coh_counter done;
    uint64_t signalled;
    coh_recording *recording; /* of the line; NULL: it is launched */
    char *arena;
    char *tensors; /* behind the workspace, all zeros */
    uint64_t failed_number;
    uint32_t failed_index;
    int sentence_count;
    char sentence[512]; /* the first one that was said */
} session;

/* As a process begins, with these libraries. */
void session_begin(coh_status cublaslt, coh_status cudnn);
coh_status session_open(session *s, const coh_device_kernels *kernels);
/* Asserts that nothing is left. */
void session_close(session *s);
coh_cuda_queue *session_queue(const session *s);

/* A line: a product with its gelu, attention with and without dropout, and back with dq in the
 * place of dy, a check. */
void session_work(void *context, uint64_t number, uint32_t index);
/* From then on the line is a recording. */
coh_status session_record(session *s);
/* Enqueues the line, the n-th as number NUMBER + n, and what tells of its begin and end. */
void session_enqueue(session *s);
/* The stub driver executes; returns whether the line's end was told. */
int session_finish(session *s);

/* One pass through everything. */
coh_status session_live_once(void);
/* Whether `hit`, and then as it must be. */
int session_failed_well(coh_status status, int hit, const char *what, uint64_t n);

#endif
