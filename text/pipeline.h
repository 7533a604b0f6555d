/* pipeline.h - a tokenizer made of parts, as tokenizer.json describes it, and the others as well:
 *
 *     text --> added tokens of the raw text --> normalize --> added tokens of the normalized text
 *              cut it into segments                           cut those
 *          --> steps that cut pieces, or put a space before them --> byte pairs --> ids
 *
 * A text comes in blocks. Each stage keeps what more text could still change; whatever it settles
 * goes on, so memory is a block and the longest word.
 *
 * Bytes that are not valid UTF-8 pass through all of it untouched: each is a word of its own with
 * the id of that byte, and patterns see the valid stretches between them as texts of their own. So
 * valid text has its usual ids, and any bytes come back. */
#ifndef COH_TEXT_PIPELINE_H
#define COH_TEXT_PIPELINE_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/normalize.h"
#include "text/split.h"
#include "text/tokenizer.h"

/* When a piece gets the mark that stands for a space before it, unless it begins with one. */
typedef enum coh_mark_scheme {
    COH_MARK_NEVER,
    COH_MARK_FIRST, /* at the begin of the text */
    COH_MARK_ALWAYS,
} coh_mark_scheme;

/* Either cuts pieces (`split`), or writes `mark` for each space and before a piece. A mark that is
 * a space only goes before. */
typedef struct coh_pipeline_step {
    coh_split *split;
    coh_byte_list mark;
    coh_mark_scheme scheme;
    coh_byte_list piece; /* the one at hand */
} coh_pipeline_step;

#define COH_PIPELINE_STEP_MAX 16

/* What a text's begin loses in decoding. */
typedef enum coh_decode_begin {
    COH_BEGIN_WHOLE,
    COH_BEGIN_STRIPPED,      /* up to strip_count of the character `mark` */
    COH_BEGIN_FIRST_TOKEN,   /* the first token loses every `mark` */
    COH_BEGIN_SENTENCEPIECE, /* the first that is not empty its first `mark` */
} coh_decode_begin;

typedef struct coh_pipeline {
    coh_token_table names; /* as the file spells them */
    coh_token_table texts; /* the bytes they stand for */
    coh_decode_begin decode_begin;
    coh_byte_list decode_mark;
    size_t decode_strip_count;

    coh_added *raw_added, *normalized_added; /* NULL: none */
    coh_normalizer normalizer;
    coh_pipeline_step steps[COH_PIPELINE_STEP_MAX];
    int step_count;
    int is_byte_level;
    coh_bpe *model;
    int is_fork; /* tables and marks are another's */

    /* The text at hand. */
    coh_byte_list normalized; /* not yet searched for added tokens */
    coh_byte_list waiting;    /* not yet settled words */
    size_t retry_bytes;       /* waiting text is looked at again when it is that long */
    int is_at_begin;          /* nothing of the text came before what is waiting */
    int is_piece_begun;       /* what came between two added tokens has got its mark, or not */
    int is_after_word, is_after_normalized_word; /* of the last character that was searched */
} coh_pipeline;

extern const coh_tokenizer_ops coh_pipeline_ops;

/* Accepts NULL. */
void coh_pipeline_destroy(void *pipeline);
/* Adds a step that is yet to be filled. Fails: COH_ERR_CORRUPT, too many. */
coh_status coh_pipeline_add_step(coh_pipeline *pipeline, const char *where,
                                 coh_pipeline_step **out_step);
/* Adds the cut that `pattern` (Oniguruma's) makes. */
coh_status coh_pipeline_add_split(coh_pipeline *pipeline, const char *where, coh_slice pattern,
                                  coh_split_behavior behavior, int is_inverted);

#endif
