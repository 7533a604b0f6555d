/* Reads generation_config.json. The one idea: each value of the sampler has a flag, whose range and
 * name serve the file, too, and a flag that is given wins. Next: ends.c reads the ids. */
#include "cli/generation_config.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Such a file has less than 1 KB, or some more if it lists suppressed tokens. A note shows
 * SHOWN_BYTES of a value. */
enum { FILE_BYTES_MOST = 4 << 20, SHOWN_BYTES = 60 };

static json_t *read_file(const char *folder, char path[CLI_PATH_BYTES])
{
    struct stat facts;
    json_error_t error = { .text = "" };
    if (snprintf(path, CLI_PATH_BYTES, "%s/generation_config.json", folder) >= CLI_PATH_BYTES ||
        stat(path, &facts) != 0)
        return NULL;
    const int is_small = S_ISREG(facts.st_mode) && facts.st_size <= FILE_BYTES_MOST;
    json_t *root = is_small ? json_load_file(path, 0, &error) : NULL;
    if (json_is_object(root))
        return root;
    json_decref(root);
    cli_note("note: %s is no object of JSON%s%s, so it names no ids that end a text, and no values "
             "of the sampler: correct it, or take a whole copy of the model",
             path, error.text[0] ? ": " : "", error.text);
    return NULL;
}

void cli_generation_config_open(const cli_inference *inference, cli_generation_config *out_config)
{
    const coh_model *model = &inference->model;
    const cli_recipe *recipe = &inference->recipe;
    *out_config = (cli_generation_config){ .folder = cli_recipe_origin(
                                               model->folder[0] ? model->folder : recipe->base,
                                               recipe->tokenizer) };
    if (out_config->folder)
        out_config->root = read_file(out_config->folder, out_config->path);
}

void cli_generation_config_close(cli_generation_config *config)
{
    json_decref(config->root);
    *config = (cli_generation_config){ 0 };
}

/* ---- the sampler ---- */

static void say_out_of_range(const cli_generation_config *config, const char *member,
                             const json_t *value, const cli_flag_row *flag)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    cli_note("note: %s: \"%s\" holds %.*s, which is out of the range of --%s (%g to %g) and not "
             "taken: correct it, or give the flag",
             config->path, member, SHOWN_BYTES, text ? text : "a value", flag->name, flag->least,
             flag->most);
    free(text);
}

/* Takes a member in place of a flag that is not given, and adds it to `line`. */
static void take(const cli_generation_config *config, const cli_options *options, cli_flag flag,
                 const char *member, double *value, cli_line *line)
{
    const json_t *found = json_object_get(config->root, member);
    const cli_flag_row *row = &cli_flag_table[flag];
    const double given = json_number_value(found);
    if (cli_given(options, flag) || !found || json_is_null(found))
        return;
    if (!json_is_number(found) || !(given >= row->least && given <= row->most) ||
        (row->value == CLI_VALUE_INTEGER && given > floor(given))) {
        say_out_of_range(config, member, found, row);
        return;
    }
    if (given < *value || given > *value)
        cli_line_add(line, " --%s %.6g", row->name, given);
    *value = given;
}

/* Does the file ask for the most probable token? A flag that chooses among several says no. */
static int is_greedy(const cli_generation_config *config, const cli_options *options)
{
    static const cli_flag draws[] = { CLI_FLAG_TEMPERATURE, CLI_FLAG_TOP_K, CLI_FLAG_TOP_P,
                                      CLI_FLAG_MIN_P };
    for (size_t i = 0; i < sizeof(draws) / sizeof(draws[0]); i++)
        if (cli_given(options, draws[i]))
            return 0;
    return json_is_false(json_object_get(config->root, "do_sample"));
}

/* Takes the values that choose among several tokens. */
static void take_choice(const cli_generation_config *config, const cli_options *options,
                        cli_sampler *sampler, cli_line *line)
{
    double top_k = (double)sampler->top_k;
    if (is_greedy(config, options)) {
        sampler->temperature = 0;
        cli_line_add(line, " --temperature 0");
        return;
    }
    take(config, options, CLI_FLAG_TEMPERATURE, "temperature", &sampler->temperature, line);
    if (sampler->temperature <= 0)
        return; /* the others have no effect */
    take(config, options, CLI_FLAG_TOP_K, "top_k", &top_k, line);
    take(config, options, CLI_FLAG_TOP_P, "top_p", &sampler->top_p, line);
    take(config, options, CLI_FLAG_MIN_P, "min_p", &sampler->min_p, line);
    sampler->top_k = (int64_t)top_k;
}

/* ---- what is not taken ---- */

/* Members by which transformers writes other text, each with the number that changes nothing, and
 * the flag, if any, that says the same. */
static const struct untaken {
    const char *name;
    double neutral;
    cli_flag flag; /* CLI_FLAG_COUNT: none */
} untaken[] = {
    { "max_new_tokens", 0, CLI_FLAG_TOKENS },
    { "max_length", 20, CLI_FLAG_TOKENS }, /* the default of transformers 4, in old files */
    { "min_new_tokens", 0, CLI_FLAG_COUNT },
    { "min_length", 0, CLI_FLAG_COUNT },
    { "stop_strings", 0, CLI_FLAG_STOP },
    { "num_beams", 1, CLI_FLAG_COUNT },
    { "num_beam_groups", 1, CLI_FLAG_COUNT },
    { "penalty_alpha", 0, CLI_FLAG_COUNT },
    { "dola_layers", 0, CLI_FLAG_COUNT },
    { "top_h", 0, CLI_FLAG_COUNT },
    { "typical_p", 1, CLI_FLAG_COUNT },
    { "epsilon_cutoff", 0, CLI_FLAG_COUNT },
    { "eta_cutoff", 0, CLI_FLAG_COUNT },
    { "no_repeat_ngram_size", 0, CLI_FLAG_COUNT },
    { "encoder_no_repeat_ngram_size", 0, CLI_FLAG_COUNT },
    { "encoder_repetition_penalty", 1, CLI_FLAG_COUNT },
    { "exponential_decay_length_penalty", 0, CLI_FLAG_COUNT },
    { "guidance_scale", 1, CLI_FLAG_COUNT },
    { "bad_words_ids", 0, CLI_FLAG_COUNT },
    { "force_words_ids", 0, CLI_FLAG_COUNT },
    { "forced_bos_token_id", -1, CLI_FLAG_COUNT },
    { "forced_eos_token_id", -1, CLI_FLAG_COUNT },
    { "suppress_tokens", 0, CLI_FLAG_COUNT },
    { "begin_suppress_tokens", 0, CLI_FLAG_COUNT },
    { "sequence_bias", 0, CLI_FLAG_COUNT },
    { "watermarking_config", 0, CLI_FLAG_COUNT },
};

/* null, false, and empty lists, objects and texts have no effect either. */
static int is_neutral(const json_t *value, double neutral)
{
    const double number = json_number_value(value);
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && number >= neutral && number <= neutral) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

/* Names the members by which other programs write other text than this one. A length of all
 * positions ends no text. */
static void say_untaken(const cli_generation_config *config, const cli_inference *inference)
{
    const double positions = (double)coh_model_size_get(&inference->model).positions;
    cli_line line;
    cli_line_clear(&line);
    for (size_t i = 0; i < sizeof(untaken) / sizeof(untaken[0]); i++) {
        const struct untaken *row = &untaken[i];
        const json_t *value = json_object_get(config->root, row->name);
        const int is_given =
            row->flag != CLI_FLAG_COUNT && cli_given(inference->options, row->flag);
        const int ends_none = row->flag == CLI_FLAG_TOKENS && json_number_value(value) >= positions;
        if (!is_given && !ends_none && !is_neutral(value, row->neutral))
            cli_line_add(&line, "%s%s", line.used ? ", " : "", row->name);
    }
    if (line.used > 0)
        cli_note("note: %s also sets %s, not taken here: transformers may write other text with it",
                 config->path, line.text);
}

void cli_generation_config_sampler(const cli_generation_config *config,
                                   const cli_inference *inference, cli_sampler *out_sampler)
{
    const cli_options *options = inference->options;
    cli_line line;
    *out_sampler = (cli_sampler){ .temperature = options->temperature,
                                  .top_k = options->top_k,
                                  .top_p = options->top_p,
                                  .min_p = options->min_p,
                                  .penalty = options->repetition_penalty,
                                  .seed = (uint64_t)options->seed };
    /* The values are of weights. A tokenizer's folder says nothing of a run from first values. */
    if (!config->root || !(inference->model.folder[0] || inference->recipe.base[0]))
        return;
    cli_line_clear(&line);
    take(config, options, CLI_FLAG_REPETITION_PENALTY, "repetition_penalty", &out_sampler->penalty,
         &line);
    take_choice(config, options, out_sampler, &line);
    if (line.used > 0)
        cli_note(
            "note: %s is taken as if it were flags:%s; a flag that is given replaces its value",
            config->path, line.text);
    say_untaken(config, inference);
}
