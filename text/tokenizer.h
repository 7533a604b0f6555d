/* tokenizer.h - internals of a coh_tokenizer: its pipeline, and the ids around a text. */
#ifndef COH_TEXT_TOKENIZER_H
#define COH_TEXT_TOKENIZER_H

#include "cohobate/text.h"
#include "text/pipeline.h"

struct coh_tokenizer {
    coh_pipeline *pipeline;
    int64_t vocabulary;
    int64_t own_vocabulary;             /* without added tokens */
    int32_t begin_of_text, end_of_text; /* -1: none */
    uint64_t identity;
    /* Ids that encoding "with special tokens" puts around a text. */
    coh_id_list before, after;
};

/* Makes a second tokenizer with the same ids for another thread. `tokenizer` must outlive it;
 * neither sees a text begun with the other. Close both. */
coh_status coh_tokenizer_fork(const coh_tokenizer *tokenizer, coh_tokenizer **out_fork);

/* Appends the ids of a whole text; of an empty one none. */
coh_status coh_tokenizer_encode_whole(coh_tokenizer *tokenizer, coh_slice text, coh_id_list *ids);

#endif
