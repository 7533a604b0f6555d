/* pipeline.h - a tokenizer made of parts as in tokenizer.json; the other tokenizer files become
 * one, too:
 *
 *     text --> added tokens of the raw text --> normalize --> added tokens of the normalized text
 *              cut it into segments                           cut those
 *          --> steps that cut pieces, or put a space before them --> byte pairs --> ids
 *
 * A text comes in blocks, so that a file of any size passes through a bounded buffer:
 *
 *      |....... block 1 .......|            not the last: ids of `consumed` bytes are final, or
 *      |..... consumed ...|tail|             the state keeps what is not; the tail is put before
 *                         |tail|... block 2 ...|                              the next bytes
 *
 * Each stage keeps the part of the text whose result could still change and passes on the rest, so
 * memory is bounded by a block and the longest word. The ids do not depend on how a text is cut
 * into blocks.
 *
 * Bytes that are not valid UTF-8 pass through unchanged: each is a separate word with the id of
 * that byte, and patterns see each valid stretch between them as a separate text. Valid text
 * therefore has its usual ids, and any bytes can be decoded again. */
#ifndef COH_TEXT_PIPELINE_H
#define COH_TEXT_PIPELINE_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/normalize.h"
#include "text/split.h"
#include "text/token_table.h"

/* Part of a text; the first block drops the state of an earlier text. */
typedef struct coh_text_block {
    const uint8_t *text;
    size_t byte_count;
    int is_first, is_last;
} coh_text_block;

/* Position of decoding in a text; zero it for a new one. */
typedef struct coh_decode_place {
    int is_begun;          /* the part that only the first token loses is removed */
    size_t stripped_count; /* characters removed from the start so far */
} coh_decode_place;

/* When a piece gets the mark for a space before it, unless it begins with one. */
typedef enum coh_mark_scheme {
    COH_MARK_NEVER,
    COH_MARK_FIRST, /* at the start of the text */
    COH_MARK_ALWAYS,
} coh_mark_scheme;

/* Either cuts pieces (`split`), or writes `mark` for each space and before a piece. A mark that is
 * itself a space is only put before pieces. */
typedef struct coh_pipeline_step {
    coh_split *split;
    coh_byte_list mark;
    coh_mark_scheme scheme;
    coh_byte_list piece; /* the current piece */
} coh_pipeline_step;

#define COH_PIPELINE_STEP_MAX 16

/* The part removed from the start of a decoded text. */
typedef enum coh_decode_begin {
    COH_BEGIN_WHOLE,
    COH_BEGIN_STRIPPED,      /* removes up to strip_count characters `mark` */
    COH_BEGIN_FIRST_TOKEN,   /* removes every `mark` from the first token */
    COH_BEGIN_SENTENCEPIECE, /* removes the first `mark` of the first non-empty token */
} coh_decode_begin;

typedef struct coh_pipeline {
    coh_token_table names; /* as spelled in the file */
    coh_token_table texts; /* as decoded bytes */
    coh_decode_begin decode_begin;
    coh_byte_list decode_mark;
    size_t decode_strip_count;

    coh_added *raw_added, *normalized_added; /* NULL: none */
    coh_normalizer normalizer;
    coh_pipeline_step steps[COH_PIPELINE_STEP_MAX];
    int step_count;
    int is_byte_level;
    coh_bpe *model; /* NULL: ids are bytes, and nothing above applies */
    int is_fork;    /* tables and marks belong to another pipeline */

    /* The current text. */
    coh_byte_list normalized; /* not yet searched for added tokens */
    coh_byte_list waiting;    /* words not settled yet */
    size_t retry_bytes;       /* waiting text is searched again when it has this length */
    int is_at_begin;          /* `waiting` begins at the start of the text */
    int is_piece_begun;       /* the mark of the current segment is decided */
    int is_after_word, is_after_normalized_word; /* of the last searched character */
} coh_pipeline;

/* Makes a second one for another thread over the same tables; the first must outlive it. */
coh_status coh_pipeline_fork(const coh_pipeline *from, coh_pipeline **out_fork);
void coh_pipeline_destroy(coh_pipeline *pipeline); /* accepts NULL */
/* Adds an empty step for the caller to fill. Fails: COH_ERR_CORRUPT, too many. */
coh_status coh_pipeline_add_step(coh_pipeline *pipeline, const char *where,
                                 coh_pipeline_step **out_step);
/* Adds a step that cuts at `pattern` (Oniguruma's). */
coh_status coh_pipeline_add_split(coh_pipeline *pipeline, const char *where, coh_slice pattern,
                                  coh_split_behavior behavior, int is_inverted);

/* Appends ids. Consumes all bytes of the last block; of others *out_consumed, possibly none. Fails:
 * COH_ERR_MEMORY, COH_ERR_FULL (a word too long). After a failure the next block must be a first
 * one. */
coh_status coh_pipeline_encode(coh_pipeline *pipeline, const coh_text_block *block,
                               coh_id_list *list, size_t *out_consumed);
/* Appends an id's bytes, which may differ at the start of a text. */
coh_status coh_pipeline_decode(const coh_pipeline *pipeline, int32_t id, coh_decode_place *place,
                               coh_byte_list *out);

#endif
