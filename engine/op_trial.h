/* op_trial.h - calls of one operator in guarded memory: the ground on which op_check.c compares.
 *
 * Every buffer of a call lies between two guards (guard.h). Before a phase all of its buffers get
 * known contents; after it guards and read-only buffers are compared with what they were. A
 * coh_trial_way says what differs from the plain call. Next: op_check.c. */
#ifndef COH_ENGINE_OP_TRIAL_H
#define COH_ENGINE_OP_TRIAL_H

#include "engine/guard.h"
#include "engine/op_device.h"
#include "planner/graph.h"

typedef enum coh_trial_role {
    COH_TRIAL_INPUT,
    COH_TRIAL_PARAMETER,
    COH_TRIAL_STATE,
    COH_TRIAL_OUTPUT,
    COH_TRIAL_OUTPUT_GRAD,
    COH_TRIAL_INPUT_GRAD,
    COH_TRIAL_PARAMETER_GRAD,
    COH_TRIAL_SAVED,
    COH_TRIAL_WORKSPACE,
    COH_TRIAL_CACHE,
    COH_TRIAL_RANDOM_CELL,
    COH_TRIAL_LOSS_FACTOR_CELL,
    COH_TRIAL_ATTRIBUTES,
    COH_TRIAL_ROLES
} coh_trial_role;

/* One buffer. `values`: its contents before a phase that reads it (inputs, parameters, states,
 * output gradients), or a copy from after forward (outputs, saved). */
typedef struct coh_trial_buffer {
    char *data; /* NULL: absent */
    char *values;
    size_t bytes;
    coh_shape shape; /* rank 0: bytes without elements */
} coh_trial_buffer;

/* How backward finds ports that backward_reads does not name. */
typedef enum coh_trial_hidden {
    COH_TRIAL_HIDDEN_ZERO,  /* zeros, with a shape */
    COH_TRIAL_HIDDEN_NAN,   /* NaN, with a shape: role and port below */
    COH_TRIAL_HIDDEN_ABSENT /* as the engine: neither data nor shape */
} coh_trial_hidden;

/* Bytes that fill memory: NaN of every dtype, and a small number (0.0115 in f32). */
#define COH_TRIAL_NAN_BYTE   0xff
#define COH_TRIAL_SMALL_BYTE 0x3c

#define COH_TRIAL_EVERY (-1)
#define COH_TRIAL_NONE  (-2)

typedef struct coh_trial_way {
    void *queue;
    /* Its contents before they are written are this byte; those of the others are 0. */
    int32_t fill_role, fill_byte;
    int32_t guard_role, guard_port; /* its guards are NaN; else a small number */
    coh_trial_hidden hidden;
    int32_t hidden_role, hidden_port; /* HIDDEN_NAN: which one */
    coh_port_mask adds, skips;        /* gradients that are added to, or left out */
    uint32_t zero_output_grads;       /* bit i: output_grad[i] is zeros */
    uint32_t absent_output_grads;     /* bit i: it has neither data nor shape */
    int32_t in_place; /* 1 + index of the pair of each phase that shares memory; 0: none */
    int32_t in_ranges, has_cache, is_frozen;
    int32_t is_recorded; /* on a GPU: as a replayed CUDA graph */
    int32_t microbatch;
    int32_t is_evaluation; /* without a random_cell */
    int32_t has_cell;      /* with one, although the kind does not draw */
    int32_t words;         /* COH_RANDOM_ZEROS and so on (kernels/random.h); 0: none */
    float loss_scale;
} coh_trial_way;

#define COH_TRIAL_PLAIN                                                                            \
    ((coh_trial_way){                                                                              \
        .fill_role = COH_TRIAL_NONE, .guard_role = COH_TRIAL_NONE, .loss_scale = 1.0f })

/* A place in a call: what a finding names. */
typedef struct coh_trial_place {
    coh_phase phase;
    coh_trial_role role;
    int32_t port;
    int64_t element;
    double expected, got;
} coh_trial_place;

typedef struct coh_trial {
    const coh_graph_op_entry *op;
    coh_trial_buffer buffer[COH_TRIAL_ROLES][COH_PORT_MAX];
    coh_guarded_memory memory;
    char *values;
    /* Of all buffers, by ascending addresses. `byte` -1: what they hold is not known. */
    coh_guarded guarded[COH_TRIAL_ROLES * COH_PORT_MAX];
    struct {
        coh_trial_role role;
        int32_t port;
    } guarded_of[COH_TRIAL_ROLES * COH_PORT_MAX];
    size_t guarded_count;
    coh_device_kind on;    /* whose functions of the kind run */
    coh_op_device *device; /* NULL: the host */
    coh_op_image image;    /* of `memory` without the attributes, which stay on the host */
    coh_phase phase;       /* the last one */
    coh_call call;         /* its call */
} coh_trial;

/* A trial's values and memory. `shift` moves all addresses by 64 bytes times shift. Gradients of
 * parameters in the mask `widens` are f32. */
typedef struct coh_trial_form {
    uint64_t seed;
    int shift;
    uint32_t widens;
} coh_trial_form;

/* Makes the buffers of an operator of a graph, with random values, for the kind's functions of
 * device kind `on`. Fails: COH_ERR_MEMORY, COH_ERR_ARGUMENT (more than 256 MiB). */
coh_status coh_trial_create(const coh_graph *graph, coh_device_kind on, coh_trial_form form,
                            coh_trial *out_trial);
/* Moves the calls of a trial to a GPU, which must outlive it. Fails: COH_ERR_MEMORY. */
coh_status coh_trial_attach(coh_trial *trial, coh_op_device *device);
void coh_trial_destroy(coh_trial *trial);

/* Runs a phase. Fails: as the kind. */
coh_status coh_trial_forward(coh_trial *trial, const coh_trial_way *way);
coh_status coh_trial_backward(coh_trial *trial, const coh_trial_way *way);

/* Copies what forward left in `from` to `to`, then fills all of `from` with NaN: as if the planner
 * had moved it between two calls. Fails: COH_ERR_DEVICE, never on the host. */
coh_status coh_trial_move(coh_trial *from, coh_trial *to);

/* Finds an element outside a buffer, or in one that the last phase may not write, that changed.
 * Returns 1 and the place if there is one. */
int coh_trial_outside(coh_trial *trial, coh_trial_place *out_place);
int coh_trial_spoilt(const coh_trial *trial, const coh_trial_way *way, coh_trial_place *out_place);

/* Results of forward and backward: outputs, states, gradients. Copies share the order of a trial's
 * buffers. */
size_t coh_trial_result_bytes(const coh_trial *trial);
void coh_trial_results(const coh_trial *trial, char *out_results);
/* Compares two copies; returns 1 and the first place that differs. Gradients in `skips` do not
 * count. */
int coh_trial_differ(const coh_trial *trial, const char *expected, const char *got,
                     coh_port_mask skips, coh_trial_place *out_place);

/* Returns 1 if a role is a result. */
int coh_trial_is_result(coh_trial_role role);
/* Returns an element as a number: of the shape's dtype, or a byte if it has none, or is NF4. */
double coh_trial_number(const coh_trial_buffer *buffer, const char *data, int64_t element);
/* Returns the number of elements, or of bytes. */
int64_t coh_trial_count(const coh_trial_buffer *buffer);

#endif
