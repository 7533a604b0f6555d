/* random.h - random words by Philox 4x32-10, a counter-based generator (Salmon, Moraes, Dror and
 * Shaw 2011): ten rounds of two multiplications each turn a counter of 128 bits into four words of
 * 32, under a key of 64. A word is a function of its number alone: nothing is stored, and words do
 * not depend on the order of requests.
 *
 *    counter (step, operator, micro-batch), key seed  ->  block A, of the call
 *    counter (number, A[2], A[3]), key (A[0], A[1])   ->  words, of elements
 *
 * Under one key Philox maps no two counters to one block, so two calls of a run never share a
 * stream.
 *
 * Words are numbered in groups of 64, so that a group is four registers of sixteen lanes: word 64 g
 * + 16 w + l is word w of the block with counter 16 g + l. Attention numbers them differently
 * (kernels.h).
 *
 * Users of 16 bits take halves of words, in groups of 128: half n belongs to word 64 (n / 128) + n
 * % 64. It is the lower 16 bits if n % 128 < 64, else the upper ones. */
#ifndef COH_KERNELS_RANDOM_H
#define COH_KERNELS_RANDOM_H

#include <stdint.h>

#include "cohobate/model.h"

/* A call's stream: the key of its blocks and the upper half of their counters. */
typedef struct coh_random {
    uint32_t key[2], high[2];
} coh_random;

#define COH_RANDOM_GROUP  64 /* words that are made at a time */
#define COH_RANDOM_HALVES (2 * COH_RANDOM_GROUP)

#define COH_PHILOX_ROUNDS 10
#define COH_PHILOX_M0     0xd2511f53u
#define COH_PHILOX_M1     0xcd9e8d57u
#define COH_PHILOX_W0     0x9e3779b9u /* added to the key from round to round */
#define COH_PHILOX_W1     0xbb67ae85u

/* Numbers of operators that no graph has, for calls of coh_op_check without a random_cell: their
 * words are zeros (both even numbers) or ones, so that a kind that uses them shows. In other calls
 * without a random_cell coh_random_words writes nothing. */
enum {
    COH_RANDOM_ZEROS = INT32_MAX - 3,
    COH_RANDOM_ONES = INT32_MAX - 2,
    COH_RANDOM_ZEROS_TOO = INT32_MAX - 1
};

/* One block: block[4] = Philox of counter[4] under key[2]. */
void coh_philox(uint32_t block[4], const uint32_t counter[4], const uint32_t key[2]);

/* Returns the stream of an operator's call on a micro-batch, in the cell's current step. */
coh_random coh_random_of(const coh_random_cell *cell, int32_t operator_index, int32_t microbatch);

/* Cost of a word, in operations as kinds count them: ten rounds of two products of 64 bits make
 * four words at a time. */
#define COH_RANDOM_FLOPS 40.0

/* Parameters of dropout (Srivastava et al. 2014): an element whose word is below `threshold`
 * becomes zero, the others are multiplied by `scale`, 1 / (1 - probability). Threshold 0: nothing
 * is dropped, and `scale` is 1. The cell is in the memory of the computing device, and read only
 * there: the words are those of coh_random_of with these three. */
typedef struct coh_drop {
    const coh_random_cell *cell;
    int32_t operator_index, microbatch;
    uint32_t threshold;
    float scale;
} coh_drop;

/* Returns the dropout of a call with this probability, 0 <= probability < 1, rounded down to a
 * multiple of 2^-32. A call without randomness (evaluation) drops nothing. */
coh_drop coh_drop_of(const coh_call *call, double probability);

/* Fails: COH_ERR_SHAPE if the attribute is not such a probability. */
coh_status coh_check_probability(double probability);

/* Likewise for attention over T tokens in `heads` heads of all sequences: also checks that its
 * words can be numbered, and adds their cost to the facts. */
coh_status coh_check_attention_dropout(int64_t heads, int64_t T, double probability,
                                       coh_op_facts *facts);

#endif
