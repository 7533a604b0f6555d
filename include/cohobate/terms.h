/* terms.h - the words by which messages call the caller's options, and the name that a mistyped
 * word means.
 *
 * The library's messages say "raise device memory". A program whose users know an option by another
 * name, such as a flag, gives that name once:
 *
 *     static const char *const names[COH_TERM_COUNT] = { [COH_TERM_DEVICE_MEMORY] = "--ram" };
 *     coh_terms_set(names, COH_TERM_COUNT);                          // "raise --ram"
 * Threads: any, after coh_terms_set. */
#ifndef COHOBATE_TERMS_H
#define COHOBATE_TERMS_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Options, with the words that the library uses for them. DEVICE, THREADS, RECOMPUTE, SWEEP_ORDER,
 * BATCH, MICRO_BATCH, DTYPE, GRADIENTS, REPLICAS, ATOMICS, DROPOUT, PROFILE, FIELD, CHAT and
 * CHAT_FORM are called by these words. */
typedef enum coh_term {
    COH_TERM_DEVICE_MEMORY, /* "device memory" */
    COH_TERM_HOST_MEMORY,   /* "host memory": pinned, next to a GPU */
    COH_TERM_EMULATED_HOST, /* "emulated host memory": next to the host device */
    COH_TERM_DISK,          /* "disk" */
    COH_TERM_DISK_LIMIT,    /* "disk": as the budget of all folders together */
    COH_TERM_A_DISK,        /* "a disk": with what a user has to add to the option */
    COH_TERM_DISK_SIZE,     /* " of ": between COH_TERM_A_DISK and its size */
    COH_TERM_WRITE_LIMIT,   /* "the limit of disk writes" */
    COH_TERM_DEVICE,
    COH_TERM_THREADS,
    COH_TERM_CHUNK, /* "chunk size" */
    COH_TERM_RECOMPUTE,
    COH_TERM_SWEEP_ORDER,
    COH_TERM_BATCH,
    COH_TERM_MICRO_BATCH,
    COH_TERM_SEQUENCE, /* "sequence length" */
    COH_TERM_DTYPE,
    COH_TERM_GRADIENTS,
    COH_TERM_ATOMICS,
    COH_TERM_DROPOUT,
    COH_TERM_PROFILE,
    COH_TERM_MEASURE,       /* "measuring the machine" */
    COH_TERM_MEASURE_DRIVE, /* "measuring the drive" */
    COH_TERM_QUICK,         /* "the quick measurement" */
    COH_TERM_ID_BYTES,      /* "bytes of an id" */
    COH_TERM_FIELD,
    COH_TERM_CHAT,
    COH_TERM_CHAT_FORM,
    COH_TERM_KINDS, /* "coh_extension_register" */
    COH_TERM_REPLICAS,
    COH_TERM_WIRE,         /* "wire" */
    COH_TERM_CLIP_MODE,    /* "clip mode" */
    COH_TERM_REDUCE,       /* "reduce" */
    COH_TERM_DISK_RAISED,  /* "": before the size of a larger disk, as a user types it, such as
                           * "--disk DIR:"; "": the message is "raise disk to 1GiB" */
    COH_TERM_CHAT_TEXT,    /* "field": takes conversations that were written out as texts */
    COH_TERM_ADAPTER,      /* "coh_adapters_open": takes a folder of adapters over a model */
    COH_TERM_SKIP_BAD,     /* "skip_bad": leaves out lines of JSON that are no documents */
    COH_TERM_FROZEN_NF4,   /* "frozen_nf4": stores frozen weights of linears in 4 bits */
    COH_TERM_LORA_DROPOUT, /* "lora_dropout": of the inputs of adapters */
    COH_TERM_WEIGHTS,      /* "coh_engine_load_weights": loads without optimizer states */
    COH_TERM_COUNT
} coh_term;

/* Returns the words for an option: the program's, or the library's own. Never NULL. */
COH_API const char *coh_term_text(coh_term term);

/* Sets the words of this process. texts[i] is for coh_term i; NULL keeps the library's own, as does
 * `texts` NULL for all. The texts must live as long as the process. Call it before all others.
 * Fails: COH_ERR_ARGUMENT: `count` is not 0 to COH_TERM_COUNT. */
COH_API coh_status coh_terms_set(const char *const *texts, int32_t count);

/* Returns how many edits make a mistyped word the name, whatever the case of its letters and its
 * separators ("-", ".", "_" and " "): to insert, remove or replace a character, or to exchange two
 * neighbours (optimal string alignment); -1 if these are too many for the word to mean the name, or
 * a text is NULL. A word that begins with the name is at most 1 away; so is the name's beginning,
 * its end, and a name without one part of its middle ("llama-8b" of llama-3.1-8b). */
COH_API int32_t coh_name_edits(const char *word, const char *name);

/* The search for the name that a mistyped word means. Begins as { .word = word }. */
typedef struct coh_nearest {
    const char *word;
    const char *name;     /* the nearest of those offered; NULL: none is near */
    int32_t edits;        /* its coh_name_edits */
    const char *second;   /* the nearest of the others; NULL: none is near */
    int32_t second_edits; /* likewise */
} coh_nearest;

/* Takes `name` if it is nearer to the word than all that were offered before, and as the second if
 * it is nearer than all but one. Of two names as near it takes the one with the word's first
 * letter, then the one whose size differs in its unit alone (125b, 125m), then the one whose size
 * is nearer, then the one of which a part is left out, then the one that is nearer with separators.
 * `nearest` NULL: does nothing. */
COH_API void coh_nearest_offer(coh_nearest *nearest, const char *name);

/* Writes what the word may mean: "opt-13b", the name; "opt-125m or opt-66b", the name and the
 * second one, if the word differs from the name only in the unit of its size (opt-125b); "" if
 * there is none. Returns `text`, cut to `text_bytes` with its NUL; "" if an argument is NULL or
 * `text_bytes` is 0. */
COH_API const char *coh_nearest_meant(const coh_nearest *nearest, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
