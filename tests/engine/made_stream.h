/* made_stream.h - a small program written by hand: COUNT operators, each with a state that lives
 * far away, streamed through two slots.
 *
 *   compute |feed| stir 0 | stir 1 | stir 2 | ...       state = state / 2 + x; y = x + state / 3
 *   in      |s0  |s1      |s2      |s3 ...    read or h2d
 *   out          |s0      |s1      |s2 ...    write or d2h
 *
 * State i uses slot i % 2; activations alternate between two places; input, output and cells are
 * pinned. The waits are the minimal correct set. An oracle computes the same in plain loops. */
#ifndef COH_TESTS_ENGINE_MADE_STREAM_H
#define COH_TESTS_ENGINE_MADE_STREAM_H

#include "engine/step_state.h"

enum {
    STREAM_COUNT = 6,
    STREAM_ELEMENTS = 3072,
    STREAM_INSTRUCTIONS_MOST = 64,
    STREAM_PROGRAMS = 2
};

typedef enum made_far { MADE_FAR_DISK, MADE_FAR_HOST } made_far;

typedef struct made_tables {
    coh_extent extents[STREAM_INSTRUCTIONS_MOST];
    coh_instruction instructions[STREAM_INSTRUCTIONS_MOST];
    coh_operand operands[4 * STREAM_INSTRUCTIONS_MOST];
    coh_touch touches[4 * STREAM_INSTRUCTIONS_MOST];
    coh_wait waits[4 * STREAM_INSTRUCTIONS_MOST];
    coh_instruction_call calls[STREAM_INSTRUCTIONS_MOST];
    coh_binding bindings[4 * STREAM_INSTRUCTIONS_MOST];
} made_tables;

typedef struct made_stream {
    coh_plan plan; /* programs INIT and BODY */
    coh_graph *graph;
    made_tables tables[STREAM_PROGRAMS];
    coh_object objects[32];
    coh_chunk chunks[32];
    coh_resident residents[STREAM_COUNT];
    int32_t input_objects[1];
    int32_t output_object;
} made_stream;

/* Fills *made (large: make it static). made_stream_fini releases the graph. */
void made_stream_init(made_stream *made, made_far far);
void made_stream_fini(made_stream *made);

/* Called by each stir; set before the step runs. NULL: a stir only computes. */
extern coh_status (*made_stream_hook)(const coh_call *call);

/* The oracle: one step on plain arrays. */
typedef struct stream_oracle {
    float state[STREAM_COUNT][STREAM_ELEMENTS];
    float output[STREAM_ELEMENTS];
} stream_oracle;
void stream_oracle_step(stream_oracle *oracle, const float *input);

/* Returns the body's first instruction of `opcode`, skipping `skip` of them. */
coh_instruction *made_stream_instruction(made_stream *made, coh_opcode opcode, int skip);

#endif
