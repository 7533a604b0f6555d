/* Models by name, with their published sizes (GPT-2: Radford et al. 2019; OPT: Zhang et al. 2022,
 * table 1; Llama 2: Touvron et al. 2023; Llama 3.1: Grattafiori et al. 2024; Gemma 2 and 3: Gemma
 * Team 2024, 2025; the others: their folders' config.json), and our own gpt2-nano. A graph holds no
 * weights, and at most a few thousand operators, so a preset can be planned without files. */
#include "models/family.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cohobate/terms.h"
#include "models/own.h"

/* Of each series of Llama's family: all but sizes. head_width 0: channels / heads. */
#define TIED   .padding = -1, .init_std = 0.02f
#define SERIES TIED, .untied = 1
static const coh_llama_config llama2 = { SERIES, .rope.theta = 1e4, .rmsnorm_epsilon = 1e-5f };
static const coh_llama_config llama3 = { SERIES,
                                         .rope = { .theta = 5e5,
                                                   .scaling = COH_ROPE_LLAMA3,
                                                   .factor = 8,
                                                   .low_frequency = 1,
                                                   .high_frequency = 4,
                                                   .original_positions = 8192 },
                                         .rmsnorm_epsilon = 1e-5f };
static const coh_llama_config llama32 = { TIED,
                                          .rope = { .theta = 5e5,
                                                    .scaling = COH_ROPE_LLAMA3,
                                                    .factor = 32,
                                                    .low_frequency = 1,
                                                    .high_frequency = 4,
                                                    .original_positions = 8192 },
                                          .rmsnorm_epsilon = 1e-5f };
#define QWEN2 .rope.theta = 1e6, .type = COH_LLAMA_QWEN2, .qkv_biases = 1
static const coh_llama_config qwen2_small = { TIED, QWEN2, .rmsnorm_epsilon = 1e-6f };
static const coh_llama_config qwen2 = { SERIES, QWEN2, .rmsnorm_epsilon = 1e-6f }; /* 7B */
static const coh_llama_config qwen2_large = { SERIES, QWEN2, .rmsnorm_epsilon = 1e-5f };
#define QWEN3                                                                                      \
    .head_width = 128, .rope.theta = 1e6, .rmsnorm_epsilon = 1e-6f, .type = COH_LLAMA_QWEN3
static const coh_llama_config qwen3_small = { TIED, QWEN3 };
static const coh_llama_config qwen3 = { SERIES, QWEN3 };
static const coh_llama_config mistral = { SERIES, .rope.theta = 1e6, .rmsnorm_epsilon = 1e-5f,
                                          .type = COH_LLAMA_MISTRAL };
static const coh_llama_config mistral_small = { SERIES, .head_width = 128, .rope.theta = 1e8,
                                                .rmsnorm_epsilon = 1e-5f,
                                                .type = COH_LLAMA_MISTRAL };
static const coh_llama_config phi3 = { SERIES, .window = 2047, .rope.theta = 1e4,
                                       .rmsnorm_epsilon = 1e-5f, .type = COH_LLAMA_PHI3 };

/* Fields that the sizes of a Gemma share. */
static const coh_gemma_config gemma2 = { .padding = -1,
                                         .window = 4096,
                                         .pattern = 2,
                                         .rope.theta = 1e4,
                                         .local_theta = 1e4,
                                         .score_cap = 50,
                                         .logit_cap = 30,
                                         .rmsnorm_epsilon = 1e-6f,
                                         .init_std = 0.02f,
                                         .type = COH_GEMMA_2 };
static const coh_gemma_config gemma3 = {
    .padding = -1,
    .window = 1024,
    .pattern = 6,
    .rope = { .theta = 1e6, .scaling = COH_ROPE_LINEAR, .factor = 8 },
    .local_theta = 1e4,
    .rmsnorm_epsilon = 1e-6f,
    .init_std = 0.02f,
    .type = COH_GEMMA_3
};

static const struct preset {
    const char *name;
    coh_family family;
    int64_t layers, heads, channels, positions, vocabulary;
    int64_t inner, kv_heads;    /* Llama's and Gemma's */
    int64_t head_width, scalar; /* Gemma's */
    const coh_gemma_config *gemma;
    int64_t embedding; /* OPT's, if it differs from `channels`: norms then come last, too */
    const coh_llama_config *series; /* Llama's */
} presets[] = {
    { "gpt2-pico", COH_FAMILY_GPT2, 3, 3, 96, 1024, 50257 },
    { "gpt2-nano", COH_FAMILY_GPT2, 6, 6, 384, 1024, 50257 },
    { "gpt2", COH_FAMILY_GPT2, 12, 12, 768, 1024, 50257 },
    { "gpt2-medium", COH_FAMILY_GPT2, 24, 16, 1024, 1024, 50257 },
    { "gpt2-large", COH_FAMILY_GPT2, 36, 20, 1280, 1024, 50257 },
    { "gpt2-xl", COH_FAMILY_GPT2, 48, 25, 1600, 1024, 50257 },
    { "opt-125m", COH_FAMILY_OPT, 12, 12, 768, 2048, 50272 },
    { "opt-350m", COH_FAMILY_OPT, 24, 16, 1024, 2048, 50272, .embedding = 512 },
    { "opt-1.3b", COH_FAMILY_OPT, 24, 32, 2048, 2048, 50272 },
    { "opt-2.7b", COH_FAMILY_OPT, 32, 32, 2560, 2048, 50272 },
    { "opt-6.7b", COH_FAMILY_OPT, 32, 32, 4096, 2048, 50272 },
    { "opt-13b", COH_FAMILY_OPT, 40, 40, 5120, 2048, 50272 },
    { "opt-30b", COH_FAMILY_OPT, 48, 56, 7168, 2048, 50272 },
    { "opt-66b", COH_FAMILY_OPT, 64, 72, 9216, 2048, 50272 },
    { "llama-2-7b", COH_FAMILY_LLAMA, 32, 32, 4096, 4096, 32000, 11008, 32, .series = &llama2 },
    { "llama-2-13b", COH_FAMILY_LLAMA, 40, 40, 5120, 4096, 32000, 13824, 40, .series = &llama2 },
    { "llama-2-70b", COH_FAMILY_LLAMA, 80, 64, 8192, 4096, 32000, 28672, 8, .series = &llama2 },
    { "llama-3.1-8b", COH_FAMILY_LLAMA, 32, 32, 4096, 131072, 128256, 14336, 8, .series = &llama3 },
    { "llama-3.1-70b", COH_FAMILY_LLAMA, 80, 64, 8192, 131072, 128256, 28672, 8,
      .series = &llama3 },
    { "llama-3.2-1b", COH_FAMILY_LLAMA, 16, 32, 2048, 131072, 128256, 8192, 8, .series = &llama32 },
    { "llama-3.2-3b", COH_FAMILY_LLAMA, 28, 24, 3072, 131072, 128256, 8192, 8, .series = &llama32 },
    { "qwen2.5-0.5b", COH_FAMILY_LLAMA, 24, 14, 896, 32768, 151936, 4864, 2,
      .series = &qwen2_small },
    { "qwen2.5-1.5b", COH_FAMILY_LLAMA, 28, 12, 1536, 131072, 151936, 8960, 2,
      .series = &qwen2_small },
    { "qwen2.5-3b", COH_FAMILY_LLAMA, 36, 16, 2048, 32768, 151936, 11008, 2,
      .series = &qwen2_small },
    { "qwen2.5-7b", COH_FAMILY_LLAMA, 28, 28, 3584, 131072, 152064, 18944, 4, .series = &qwen2 },
    { "qwen2.5-14b", COH_FAMILY_LLAMA, 48, 40, 5120, 131072, 152064, 13824, 8,
      .series = &qwen2_large },
    { "qwen2.5-32b", COH_FAMILY_LLAMA, 64, 40, 5120, 131072, 152064, 27648, 8,
      .series = &qwen2_large },
    { "qwen3-0.6b", COH_FAMILY_LLAMA, 28, 16, 1024, 40960, 151936, 3072, 8,
      .series = &qwen3_small },
    { "qwen3-1.7b", COH_FAMILY_LLAMA, 28, 16, 2048, 40960, 151936, 6144, 8,
      .series = &qwen3_small },
    { "qwen3-4b", COH_FAMILY_LLAMA, 36, 32, 2560, 40960, 151936, 9728, 8, .series = &qwen3_small },
    { "qwen3-8b", COH_FAMILY_LLAMA, 36, 32, 4096, 40960, 151936, 12288, 8, .series = &qwen3 },
    { "qwen3-14b", COH_FAMILY_LLAMA, 40, 40, 5120, 40960, 151936, 17408, 8, .series = &qwen3 },
    { "qwen3-32b", COH_FAMILY_LLAMA, 64, 64, 5120, 40960, 151936, 25600, 8, .series = &qwen3 },
    { "mistral-7b", COH_FAMILY_LLAMA, 32, 32, 4096, 32768, 32768, 14336, 8, .series = &mistral },
    { "mistral-small-24b", COH_FAMILY_LLAMA, 40, 32, 5120, 32768, 131072, 32768, 8,
      .series = &mistral_small },
    { "phi-3-medium", COH_FAMILY_LLAMA, 40, 40, 5120, 4096, 32064, 17920, 10, .series = &phi3 },
    { "gemma-2-9b", COH_FAMILY_GEMMA, 42, 16, 3584, 8192, 256000, 14336, 8, 256, 256, &gemma2 },
    { "gemma-2-27b", COH_FAMILY_GEMMA, 46, 32, 4608, 8192, 256000, 36864, 16, 128, 144, &gemma2 },
    { "gemma-3-4b", COH_FAMILY_GEMMA, 34, 8, 2560, 131072, 262208, 10240, 4, 256, 256, &gemma3 },
    { "gemma-3-27b", COH_FAMILY_GEMMA, 62, 32, 5376, 131072, 262208, 21504, 16, 128, 168, &gemma3 },
};
enum { PRESET_COUNT = sizeof(presets) / sizeof(presets[0]) };

/* The configuration, except the sizes that all families have. */
static coh_model model_of(const struct preset *p)
{
    coh_model model = { .family = p->family };
    switch (p->family) {
    case COH_FAMILY_GPT2:
        model.gpt2 = (coh_gpt2_config){ .layernorm_epsilon = 1e-5f };
        break;
    case COH_FAMILY_OPT:
        model.opt = (coh_opt_config){ .inner = 4 * p->channels,
                                      .embedding = p->embedding ? p->embedding : p->channels,
                                      .padding = -1,
                                      .init_std = 0.02f,
                                      .norm_before = !p->embedding,
                                      .last_norm = 1,
                                      .biases = 1 };
        break;
    case COH_FAMILY_LLAMA:
        model.llama = *p->series;
        model.llama.kv_heads = p->kv_heads;
        model.llama.inner = p->inner;
        if (model.llama.head_width == 0)
            model.llama.head_width = p->channels / p->heads;
        break;
    case COH_FAMILY_OWN: /* no preset */
        break;
    case COH_FAMILY_GEMMA:
        model.gemma = *p->gemma;
        model.gemma.kv_heads = p->kv_heads;
        model.gemma.head_width = p->head_width;
        model.gemma.inner = p->inner;
        model.gemma.scalar = p->scalar;
        break;
    }
    return model;
}

void coh_preset_names(char names[COH_PRESET_NAMES_BYTES])
{
    for (int i = 0, at = 0; i < PRESET_COUNT; i++)
        at += snprintf(names + at, (size_t)(COH_PRESET_NAMES_BYTES - at), "%s%s%s", i ? ", " : " (",
                       presets[i].name, i + 1 < PRESET_COUNT ? "" : ")");
}

const char *coh_model_preset_name(int32_t index)
{
    return index >= 0 && index < PRESET_COUNT ? presets[index].name : NULL;
}

static const char *name_at(int32_t index)
{
    return index < PRESET_COUNT ? presets[index].name : coh_own_name(index - PRESET_COUNT);
}

void coh_preset_meant(const char *word, char text[COH_PRESET_MEANT_BYTES])
{
    const char *name, *slash = strrchr(word, '/');
    char meant[COH_PRESET_MEANT_BYTES - sizeof(": is  meant?")];
    coh_nearest nearest = { .word = slash != NULL ? slash + 1 : word };
    text[0] = '\0';
    for (int32_t i = 0; (name = name_at(i)) != NULL; i++)
        coh_nearest_offer(&nearest, name);
    if (coh_nearest_meant(&nearest, meant, sizeof(meant))[0])
        snprintf(text, COH_PRESET_MEANT_BYTES, ": is %s meant?", meant);
}

int coh_preset_find(const char *name, coh_model *out_model)
{
    const struct preset *found = presets, *end = presets + PRESET_COUNT;
    while (found < end && strcmp(name, found->name) != 0)
        found++;
    if (found == end)
        return 0;
    *out_model = model_of(found);
    coh_gpt2_config *sizes = &out_model->gpt2; /* every configuration begins with them */
    sizes->layers = found->layers;
    sizes->heads = found->heads;
    sizes->channels = found->channels;
    sizes->positions = found->positions;
    sizes->vocabulary = found->vocabulary;
    snprintf(out_model->name, sizeof(out_model->name), "%s", found->name);
    return 1;
}

coh_status coh_model_preset(const char *name, int64_t vocabulary, coh_model *out_model)
{
    if (!name || !out_model)
        return coh_fail(COH_ERR_ARGUMENT, "a preset needs a name and a place for its model");
    if (vocabulary < 0 || vocabulary > INT32_MAX)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a vocabulary of %" PRId64 " is outside 1..%d (0: the preset's own)",
                        vocabulary, INT32_MAX);
    coh_model model;
    if (coh_own_find(name, vocabulary, out_model))
        return COH_OK;
    if (!coh_preset_find(name, &model)) {
        char names[COH_PRESET_NAMES_BYTES] = "", meant[COH_PRESET_MEANT_BYTES];
        coh_preset_meant(name, meant);
        if (!meant[0])
            coh_preset_names(names);
        return coh_fail(COH_ERR_ARGUMENT, "\"%.200s\" is not a preset%s%s", name, names, meant);
    }
    if (vocabulary > 0)
        model.gpt2.vocabulary = vocabulary; /* every configuration begins with the sizes */
    *out_model = model;
    return COH_OK;
}

coh_status coh_gpt2_preset(const char *name, int64_t vocabulary, coh_gpt2_config *out_config)
{
    coh_model model;
    if (!name || !out_config)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a preset needs a name and a place for its configuration");
    COH_TRY(coh_model_preset(name, vocabulary, &model));
    if (model.family != COH_FAMILY_GPT2)
        return coh_fail(COH_ERR_ARGUMENT, "\"%.200s\" is a preset, but of no GPT-2", name);
    *out_config = model.gpt2;
    return COH_OK;
}
