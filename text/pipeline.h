/* pipeline.h - a tokenizer made of parts as in tokenizer.json; the other tokenizer files become
 * one, too:
 *
 *     text --> added tokens of the raw text --> normalize --> added tokens of the normalized text
 *              cut it into segments                           cut those
 *          --> steps that cut pieces, or put a space before them --> byte pairs --> ids
 *
 * A text comes in blocks. Each stage keeps the part of the text whose result could still change and
 * passes on the rest, so memory is bounded by a block and the longest word.
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
#include "text/tokenizer.h"

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
    coh_bpe *model;
    int is_fork; /* tables and marks belong to another pipeline */

    /* The current text. */
    coh_byte_list normalized; /* not yet searched for added tokens */
    coh_byte_list waiting;    /* words not settled yet */
    size_t retry_bytes;       /* waiting text is searched again when it has this length */
    int is_at_begin;          /* `waiting` begins at the start of the text */
    int is_piece_begun;       /* the mark of the current segment is decided */
    int is_after_word, is_after_normalized_word; /* of the last searched character */
} coh_pipeline;

extern const coh_tokenizer_ops coh_pipeline_ops;

/* Accepts NULL. */
void coh_pipeline_destroy(void *pipeline);
/* Adds an empty step for the caller to fill. Fails: COH_ERR_CORRUPT, too many. */
coh_status coh_pipeline_add_step(coh_pipeline *pipeline, const char *where,
                                 coh_pipeline_step **out_step);
/* Adds a step that cuts at `pattern` (Oniguruma's). */
coh_status coh_pipeline_add_split(coh_pipeline *pipeline, const char *where, coh_slice pattern,
                                  coh_split_behavior behavior, int is_inverted);

#endif
