/* family.h - the interface of a model family: its check, its graph, and its form in a Hugging Face
 * folder (fields of config.json, names of tensors). Each family is one table; no other code in this
 * folder depends on which family it handles.
 *
 *   gpt2.c opt.c llama.c gemma.c   check, graph, fields and tensors, and the table itself
 *   own.c                          the same for graphs that an extension builds */
#ifndef COH_MODELS_FAMILY_H
#define COH_MODELS_FAMILY_H

#include <jansson.h>

#include "cohobate/models.h"
#include "models/builder.h"
#include "models/config.h"

enum { COH_LAYERS_MOST = 100000 };

/* ---- fields of config.json ---- */

/* Kinds before COH_FIELD_NONE are written as well as read. */
typedef enum coh_field_kind {
    COH_FIELD_COUNT,          /* int64: a whole number from 1 to `most` (0: 2^31 - 1) */
    COH_FIELD_COUNT_MAYBE,    /* the same, or null: 0 */
    COH_FIELD_POSITIVE,       /* float: above 0 and finite */
    COH_FIELD_POSITIVE_MAYBE, /* the same, or null: 0 */
    COH_FIELD_FLAG,           /* int32: true or false */
    COH_FIELD_NOT,            /* int32: the negation of the member */
    COH_FIELD_ID,   /* int64: an id of the vocabulary, counted from its end if negative; null: -1 */
    COH_FIELD_WORD, /* not stored: must be one of `words`; the first is written */
    COH_FIELD_ONLY, /* not stored: must be the boolean given in `words` */
    COH_FIELD_NONE, /* not stored: must be absent, null, false or empty */
    COH_FIELD_OWN,  /* handled by the family's read_own and write_own */
    COH_FIELD_OWN_KEPT, /* read by read_own, and kept */
    COH_FIELD_DROPOUT,  /* kept; noted if not 0 */
    COH_FIELD_KEPT,     /* kept, but not used in computation */
    COH_FIELD_DROPPED   /* not kept: written from the model, or meaningless elsewhere */
} coh_field_kind;

typedef struct coh_config_field {
    const char *name;
    coh_field_kind kind;
    size_t offset; /* in the family's configuration */
    int64_t most;
    const char *words; /* separated by blanks */
    uint32_t types;    /* bit mask of model_types that have it; 0: all. Unknown to others. */
    int alias;         /* alternative name of an earlier field: not written, must agree with it */
} coh_config_field;

/* A model_type of a family. */
typedef struct coh_config_type {
    const char *name;
    const char *architectures;   /* architectures with the same tensors; the first is written */
    const void *defaults;        /* values of members that config.json omits */
    const char *adapter_targets; /* default targets; NULL: the family's */
} coh_config_type;

/* Names for a note: as many as fit, and the number of the others. */
typedef struct coh_config_names {
    char text[200]; /* with commas between */
    int more_count;
} coh_config_names;

typedef struct coh_config_reader {
    json_t *root;
    int type; /* index in the family's types */
    coh_model *model;
    coh_config_names dropouts, unknown, left_out;
} coh_config_reader;

/* Adds a line to the model's notes. */
void coh_config_note(coh_config_reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds a member to the note about those that nothing is computed with. */
void coh_config_unknown(coh_config_reader *reader, const char *name);

/* Returns `status`. If it is COH_ERR_CORRUPT, adds the model's note about a member of config.json
 * whose name seems to be mistyped to the message, as the likely cause. */
coh_status coh_config_blame(const coh_model *model, coh_status status);

/* Fails with `"name" is <value>, and must be <must>`: COH_ERR_CORRUPT. */
coh_status coh_config_refuse(const char *name, const json_t *value, const char *must);
/* Lets compilers see that the function never returns COH_OK (base/check.h). */
#define coh_config_refuse(name, value, must)                                                       \
    __extension__({                                                                                \
        (void)coh_config_refuse((name), (value), (must));                                          \
        COH_ERR_CORRUPT;                                                                           \
    })
/* Read a whole number from 1 to `most`; a number above 0 that a float can hold; true or false.
 * Fail: as coh_config_refuse. */
coh_status coh_config_count(const char *name, const json_t *value, int64_t most,
                            int64_t *out_count);
coh_status coh_config_positive(const char *name, const json_t *value, double *out_number);
coh_status coh_config_flag(const char *name, const json_t *value, int32_t *out_flag);
/* Is `word` one of `words`, which blanks separate? */
int coh_config_is_word(const char *word, const char *words);

/* ---- tensors ---- */

/* The meaning of a tensor's side. */
typedef enum coh_side {
    COH_SIDE_NONE, /* rank 1 */
    COH_SIDE_CHANNELS,
    COH_SIDE_QKV, /* of queries, keys and values together */
    COH_SIDE_INNER,
    COH_SIDE_GATED, /* 2 inner */
    COH_SIDE_VOCABULARY,
    COH_SIDE_POSITIONS, /* rows of the position table */
    COH_SIDE_EMBEDDING, /* width of the token table */
    COH_SIDE_QUERIES,   /* heads x head width */
    COH_SIDE_KEYS,      /* heads of keys and values x head width */
    COH_SIDE_HEAD,      /* head width */
    COH_SIDE_COUNT
} coh_side;

typedef struct coh_tensor_line {
    const char *name; /* without the prefix, and without "<layer><n>." for tensors of layers */
    uint8_t rows, columns;
    uint8_t transposed;
    uint8_t bare;   /* published without the prefix */
    uint32_t needs; /* exists only if all these bits of coh_tensor_sizes.has are set */
} coh_tensor_line;

typedef struct coh_tensor_sizes {
    int64_t side[COH_SIDE_COUNT];
    int64_t layers;
    uint32_t has;
} coh_tensor_sizes;

enum { COH_TENSOR_UNTIED = 1 }; /* a bit of `has` in every family */

/* In the order of the graphs: `begin`, `in_layer` for each layer, `end`. Each ends with a NULL
 * name. */
typedef struct coh_tensor_lines {
    const char *prefix; /* of published names; optional when reading */
    int ours_prefixed;  /* our names have the prefix, too */
    const char *layer;  /* "h.": names of layer n begin with "h.<n>." */
    const coh_tensor_line *begin, *in_layer, *end;
    const char *const *buffers; /* names of layers' non-parameter tensors; ends with NULL */
} coh_tensor_lines;

/* ---- the table ---- */

typedef struct coh_family_table {
    const char *name; /* in notes */
    size_t config_bytes, dtype_offset;
    coh_status (*check)(const void *config);
    int64_t (*positions)(const void *config); /* most tokens in a sequence; NULL: its positions */
    coh_builder_body body;

    const coh_config_type *types;
    int type_count;
    int (*type_of)(const void *config); /* index in types; NULL: 0 */
    const coh_config_field *fields;     /* ends with a NULL name */
    /* Reads fields of kind OWN, fills in defaults that depend on other fields, and checks fields
     * against one another, naming them. Called after all other fields. NULL: nothing to do. */
    coh_status (*read_own)(coh_config_reader *reader, void *config);
    /* Adds the members of kind OWN to `text`, each as `, "name": value`; may be NULL. */
    void (*write_own)(const void *config, coh_text *text);

    const char *adapter_targets; /* default targets, as in PEFT; a type may have its own */
    coh_tensor_lines lines;
    void (*sizes)(const void *config, coh_tensor_sizes *out_sizes);
    int is_own; /* graphs of an extension: no folder, no tensors by line, no adapters */
} coh_family_table;

extern const coh_family_table coh_family_gpt2, coh_family_opt, coh_family_llama, coh_family_gemma,
    coh_family_own;

/* The table of the model's family; NULL for an unknown family. */
const coh_family_table *coh_family_of(const coh_model *model);

/* The configuration of a model of any family. */
static inline const void *coh_family_config(const coh_model *model)
{
    return &model->gpt2;
}

/* The sizes of a configuration: all begin with the same five members. */
coh_model_size coh_family_size(const coh_family_table *family, const void *config);

/* Makes a preset, with its own vocabulary. Returns 0 if none has this name. */
int coh_preset_find(const char *name, coh_model *out_model);
/* Writes " (<names of all presets>)", for a refusal with no name to suggest. */
enum { COH_PRESET_NAMES_BYTES = 1024 };
void coh_preset_names(char names[COH_PRESET_NAMES_BYTES]);
/* Writes ": is X meant?" with the name of a preset or of an extension's model, "" if none is near.
 * Of a path its last name counts, since Hugging Face's names are "facebook/opt-125m". */
enum { COH_PRESET_MEANT_BYTES = 96 };
void coh_preset_meant(const char *word, char text[COH_PRESET_MEANT_BYTES]);

/* ---- shared checks ---- */

/* Checks layers, heads, channels, positions, vocabulary and dtype. `who` is "a GPT-2". Fails:
 * COH_ERR_ARGUMENT or COH_ERR_SHAPE. */
coh_status coh_family_check_size(const char *who, const coh_model_size *size);

/* Check that channels divide evenly into heads, or heads into those of keys and values, and that
 * heads are not too wide for attention. The names are those of config.json. Fail: COH_ERR_SHAPE. */
coh_status coh_family_check_heads(const coh_model_size *size, const char *channels_name,
                                  const char *heads_name);
coh_status coh_family_check_grouped_heads(int64_t heads, int64_t kv_heads, int64_t width);

/* Checks the padding id and init_std. Fails: COH_ERR_ARGUMENT. */
coh_status coh_family_check_init(int64_t vocabulary, int64_t padding, float init_std);

/* Checks that a norm's epsilon is above 0 and below 1. Fails: COH_ERR_ARGUMENT. */
coh_status coh_family_check_epsilon(const char *name, float epsilon);

#endif
