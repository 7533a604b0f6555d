/* A refusal is data: its JSON has the fields of the struct, and other words in the sentence change
 * none of them. The first half draws structs; the second provokes refusals of the planner and
 * applies the change that each puts first. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "cli/refusal.h"

#define MIB ((uint64_t)1 << 20)

/* Other words for every option, also ones that a search for words would trip over. */
static const char *const other_words[COH_TERM_COUNT] = {
    [COH_TERM_DEVICE_MEMORY] = "disk: 77 bytes short; ",
    [COH_TERM_HOST_MEMORY] = "device memory: ",
    [COH_TERM_EMULATED_HOST] = "; raise nothing",
    [COH_TERM_DISK] = "\"},{\"short\": 1",
    [COH_TERM_CHUNK] = "12 bytes short",
};

/* ---- the JSON ---- */

static json_t *parse(const coh_refusal *refusal)
{
    cli_line line;
    json_error_t error;
    cli_line_clear(&line);
    cli_line_add(&line, "{");
    cli_refusal_add_json("refusal", refusal, &line);
    cli_line_add(&line, "}");
    assert_false(line.cut);
    json_t *root = json_loads(line.text, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        fail_msg("%s in %s", error.text, line.text);
    json_t *members = json_incref(json_object_get(root, "refusal"));
    json_decref(root);
    return members;
}

static void check_number(const json_t *root, const char *key, uint64_t value)
{
    const json_t *found = json_object_get(root, key);
    if (!json_is_integer(found) || (uint64_t)json_integer_value(found) != value)
        fail_msg("%s is not %" PRIu64, key, value);
}

static void check_truth(const json_t *root, const char *key, int value)
{
    const json_t *found = json_object_get(root, key);
    if (!json_is_boolean(found) || json_is_true(found) != (value != 0))
        fail_msg("%s is not %d", key, value);
}

/* "" is null. */
static void check_text(const json_t *root, const char *key, const char *value)
{
    const json_t *found = json_object_get(root, key);
    if (value[0] ? !json_is_string(found) || strcmp(json_string_value(found), value) != 0
                 : !json_is_null(found))
        fail_msg("%s is not '%s'", key, value);
}

static const char *tier_of(int32_t tier)
{
    static const char *const names[] = { "", "device", "host", "disk" };
    return names[tier + 1];
}

static void check_changes(const json_t *root, const coh_refusal *r)
{
    const json_t *list = json_object_get(root, "changes");
    assert_int_equal(json_array_size(list), r->change_count);
    for (int32_t i = 0; i < r->change_count; i++) {
        const json_t *one = json_array_get(list, (size_t)i);
        const coh_change *change = &r->changes[i];
        const int has_tier = change->kind == COH_CHANGE_RAISE || change->kind == COH_CHANGE_LOWER ||
                             change->kind == COH_CHANGE_FROZEN_NF4;
        check_text(one, "change", coh_change_kind_name(change->kind));
        check_text(one, "tier", has_tier ? tier_of(change->tier) : "");
        check_number(one, "bytes", change->bytes);
        check_truth(one, "is_least", change->is_least);
        check_number(one, "micro_batch", (uint64_t)change->microbatch);
    }
}

static void check_fields(const json_t *root, const coh_refusal *r)
{
    static const char *const by_hand[] = { "chunk", "recompute", "pins" };
    const json_t *hand = json_object_get(root, "by_hand");
    size_t count = 0;
    check_text(root, "status", coh_status_name(r->status));
    check_text(root, "reason", coh_refusal_reason_name(r->reason));
    check_text(root, "short", tier_of(r->tier));
    check_number(root, "short_bytes", r->short_bytes);
    check_number(root, "given_bytes", r->given_bytes);
    check_number(root, "needed_bytes", r->needed_bytes);
    check_truth(root, "is_least", r->is_least);
    check_truth(root, "is_proven", r->is_proven);
    check_truth(root, "is_gpu", r->is_gpu);
    check_number(root, "count", r->count);
    check_number(root, "count_most", r->count_most);
    check_text(root, "unit", coh_refusal_unit_name(r->unit));
    check_number(root, "chunk_bytes", r->chunk_bytes);
    check_number(root, "micro_batches", (uint64_t)r->microbatch_count);
    check_number(root, "micro_batch", (uint64_t)r->microbatch);
    check_number(root, "largest_micro_batch", (uint64_t)r->largest_microbatch);
    check_truth(root, "is_with_disk", r->is_with_disk);
    check_text(root, "operator", r->operator_name);
    check_text(root, "pin", r->pin);
    check_text(root, "profile", r->profile);
    check_text(root, "path", r->path);
    check_text(root, "items", r->items);
    for (int i = 0; i < 3; i++)
        if (r->by_hand & 1u << i)
            assert_string_equal(json_string_value(json_array_get(hand, count++)), by_hand[i]);
    assert_int_equal(json_array_size(hand), count);
    check_changes(root, r);
}

/* All members equal, except the one that is a text. */
static void check_same_fields(json_t *a, json_t *b)
{
    json_object_del(a, "remedy");
    json_object_del(b, "remedy");
    assert_true(json_equal(a, b));
}

/* ---- drawn ---- */

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* A word with quotes, and what looks like a number of missing bytes. */
static void draw_text(uint64_t *state, char *text, size_t bytes)
{
    static const char *const words[] = {
        "", "h.0.mlp", "a \"quoted\" name", "9 bytes short; raise", "disk: ", "?\\"
    };
    snprintf(text, bytes, "%s", words[draw(state) % (sizeof(words) / sizeof(words[0]))]);
}

static coh_refusal draw_refusal(uint64_t *state, coh_refusal_reason reason)
{
    coh_refusal r = { .struct_bytes = sizeof(r),
                      .status = draw(state) % 2 ? COH_ERR_FULL : COH_ERR_ARGUMENT,
                      .reason = reason,
                      .tier = (int32_t)(draw(state) % 4) - 1,
                      .is_gpu = (int32_t)(draw(state) % 2),
                      .given_bytes = draw(state),
                      .needed_bytes = draw(state) << 20,
                      .short_bytes = draw(state),
                      .is_least = (int32_t)(draw(state) % 2),
                      .is_proven = (int32_t)(draw(state) % 2),
                      .count = draw(state) % 3 * draw(state),
                      .count_most = draw(state),
                      .chunk_bytes = draw(state),
                      .unit = (coh_refusal_unit)(draw(state) % COH_UNITS),
                      .microbatch_count = (int32_t)(draw(state) % 100),
                      .microbatch = (int64_t)(draw(state) % 100),
                      .largest_microbatch = (int64_t)(draw(state) % 100),
                      .is_with_disk = (int32_t)(draw(state) % 2),
                      .by_hand = (uint32_t)(draw(state) % 8),
                      .change_count = (int32_t)(draw(state) % (COH_REFUSAL_CHANGES + 1)) };
    draw_text(state, r.operator_name, sizeof(r.operator_name));
    draw_text(state, r.pin, sizeof(r.pin));
    draw_text(state, r.profile, sizeof(r.profile));
    draw_text(state, r.path, sizeof(r.path));
    draw_text(state, r.items, sizeof(r.items));
    for (int32_t i = 0; i < r.change_count; i++)
        r.changes[i] = (coh_change){ .kind = (coh_change_kind)(draw(state) % COH_CHANGE_KINDS),
                                     .tier = (int32_t)(draw(state) % 3),
                                     .is_least = (int32_t)(draw(state) % 2),
                                     .microbatch = (int64_t)(draw(state) % 9),
                                     .bytes = draw(state) };
    return r;
}

/* Refuses with `words`, and returns the fields that a program then reads. */
static json_t *refused_with(const coh_refusal *refusal, const char *const *words, char *sentence)
{
    coh_refusal read = { .struct_bytes = sizeof(read) };
    assert_int_equal(coh_terms_set(words, COH_TERM_COUNT), COH_OK);
    assert_int_equal(coh_refuse(refusal), refusal->status);
    assert_true(coh_last_refusal(&read));
    assert_memory_equal(&read, refusal, sizeof(read));
    assert_true(coh_last_error()[0] != '\0');
    snprintf(sentence, 1024, "%s", coh_last_error());
    json_t *root = parse(&read);
    check_fields(root, refusal);
    assert_int_equal(coh_terms_set(NULL, 0), COH_OK);
    return root;
}

static void every_reason_has_its_fields_in_any_words(void **state)
{
    (void)state;
    uint64_t seed = 20;
    int changed = 0;
    for (int reason = COH_REFUSAL_NONE + 1; reason < COH_REFUSAL_REASONS; reason++)
        for (int i = 0; i < 50; i++) {
            char ours[1024], theirs[1024];
            const coh_refusal refusal = draw_refusal(&seed, (coh_refusal_reason)reason);
            json_t *a = refused_with(&refusal, NULL, ours);
            json_t *b = refused_with(&refusal, other_words, theirs);
            changed += strcmp(ours, theirs) != 0;
            check_same_fields(a, b);
            json_decref(a);
            json_decref(b);
        }
    assert_true(changed > 500); /* the words do reach the sentences */
}

/* Returns the word after a number 1 if it is a plural; NULL: there is none. */
static const char *plural_of_one(const char *text)
{
    for (const char *at = text; (at = strstr(at, "1 ")) != NULL; at += 2) {
        const size_t length = strspn(at + 2, "abcdefghijklmnopqrstuvwxyz-");
        const int is_number = at == text || at[-1] == ' ' || at[-1] == '(';
        if (is_number && length > 2 && at[1 + length] == 's')
            return at;
    }
    return NULL;
}

static void one_byte_is_no_plural(void **state)
{
    (void)state;
    assert_non_null(plural_of_one("1 bytes short")); /* the search finds one */
    for (int reason = COH_REFUSAL_NONE + 1; reason < COH_REFUSAL_REASONS; reason++)
        for (uint64_t seed = 1; seed <= 20; seed++) {
            uint64_t drawn = seed;
            char text[1024];
            coh_refusal r = draw_refusal(&drawn, (coh_refusal_reason)reason);
            r.given_bytes = r.needed_bytes = r.short_bytes = r.chunk_bytes = 1;
            r.microbatch_count = 1;
            r.largest_microbatch = r.change_count = 0; /* "down to 1 fits" */
            r.count = 2;
            memset(r.path, 0, sizeof(r.path)); /* these texts hold "9 bytes short" */
            const char *found = plural_of_one(coh_refusal_sentence(&r, text, sizeof(text)));
            if (found != NULL)
                fail_msg("%s: in \"%s\"", found, text);
        }
}

/* Bytes of a day are written as a person types them: 10 GB is no 10000 MB. The option takes the
 * text, and no fewer bytes than are meant. */
static void bytes_of_a_day_have_the_largest_unit(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        { 1, "1MB/day" },
        { 999000000, "999MB/day" },
        { 999000001, "1GB/day" },
        { 10000000000, "10GB/day" },
        { 1234500000, "1.235GB/day" },
        { 99999000000, "99.999GB/day" },
        { 100000000001, "101GB/day" },
        { 999000000001, "1TB/day" },
        { 1050000000000, "1.05TB/day" },
        { 197806100000000, "197.807TB/day" },
        { 2000000000000000, "2000TB/day" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[1024], wanted[128], size[32];
        uint64_t bytes;
        const coh_refusal r = { .struct_bytes = sizeof(r),
                                .status = COH_ERR_FULL,
                                .reason = COH_REFUSAL_WRITES,
                                .given_bytes = cases[i].bytes,
                                .needed_bytes = 5000000 };
        (void)coh_refusal_sentence(&r, text, sizeof(text));
        snprintf(wanted, sizeof(wanted), " allows %s", cases[i].text);
        const char *at = strstr(text, " allows ");
        assert_non_null(at);
        assert_string_equal(at, wanted);
        snprintf(size, sizeof(size), "%.*s", (int)strcspn(cases[i].text, "/"), cases[i].text);
        assert_int_equal(coh_size_parse(size, &bytes), COH_OK);
        assert_true(bytes >= cases[i].bytes);
    }
}

/* A size that is enough is typed as it is printed; a lower bound may not be. */
static void a_larger_disk_is_typed_as_it_is_printed_unless_it_is_a_lower_bound(void **state)
{
    (void)state;
    static const char *const names[COH_TERM_COUNT] = {
        [COH_TERM_DISK_LIMIT] = "--disk", [COH_TERM_DISK_RAISED] = "--disk DIR:"
    };
    static const struct {
        coh_change change;
        const char *own, *typed;
    } cases[] = {
        { { .bytes = 1 << 30 }, "raise disk to 1GiB", "give --disk DIR:1GiB" },
        { { .bytes = 1 << 30, .is_least = 1 },
          "raise disk to at least 1GiB",
          "give --disk DIR:SIZE of at least 1GiB" },
        { { 0 }, "raise disk", "raise --disk" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[1024];
        coh_refusal r = { .struct_bytes = sizeof(r),
                          .status = COH_ERR_FULL,
                          .reason = COH_REFUSAL_ALL_TIERS,
                          .tier = -1,
                          .change_count = 1,
                          .changes = { cases[i].change } };
        r.changes[0].kind = COH_CHANGE_RAISE;
        r.changes[0].tier = COH_TIER_DISK;
        assert_string_equal(coh_refusal_remedy(&r, text, sizeof(text)), cases[i].own);
        assert_int_equal(coh_terms_set(names, COH_TERM_COUNT), COH_OK);
        (void)coh_refusal_remedy(&r, text, sizeof(text));
        assert_int_equal(coh_terms_set(NULL, 0), COH_OK);
        assert_string_equal(text, cases[i].typed);
    }
}

/* The tier is the one that is short; -1 is all of them together. */
static void frozen_weights_in_4_bits_name_what_a_plan_takes(void **state)
{
    (void)state;
    static const char *const names[COH_TERM_COUNT] = { [COH_TERM_FROZEN_NF4] = "--frozen nf4" };
    static const struct {
        coh_change change;
        const char *text;
    } cases[] = {
        { { .bytes = 1 << 20 }, ": a plan then takes 1MiB of device memory" },
        { { .bytes = 3 << 20, .tier = COH_TIER_DISK }, ": a plan then takes 3MiB of disk" },
        { { .bytes = 3 << 20, .tier = -1 }, ": a plan then takes 3MiB of all tiers together" },
        { { .bytes = 0 }, "" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[1024], wanted[1024];
        coh_refusal r = { .struct_bytes = sizeof(r),
                          .status = COH_ERR_FULL,
                          .reason = COH_REFUSAL_ALL_TIERS,
                          .tier = -1,
                          .change_count = 1,
                          .changes = { cases[i].change } };
        r.changes[0].kind = COH_CHANGE_FROZEN_NF4;
        snprintf(wanted, sizeof(wanted), "give frozen_nf4, which rounds frozen weights to 4 bits%s",
                 cases[i].text);
        assert_string_equal(coh_refusal_remedy(&r, text, sizeof(text)), wanted);
        assert_int_equal(coh_terms_set(names, COH_TERM_COUNT), COH_OK);
        (void)coh_refusal_remedy(&r, text, sizeof(text));
        assert_int_equal(coh_terms_set(NULL, 0), COH_OK);
        assert_non_null(strstr(text, "give --frozen nf4, "));
    }
}

static void names_are_all_different(void **state)
{
    (void)state;
    for (int a = 0; a < COH_REFUSAL_REASONS; a++)
        for (int b = 0; b < a; b++)
            assert_string_not_equal(coh_refusal_reason_name((coh_refusal_reason)a),
                                    coh_refusal_reason_name((coh_refusal_reason)b));
    for (int a = 0; a < COH_CHANGE_KINDS; a++)
        for (int b = 0; b < a; b++)
            assert_string_not_equal(coh_change_kind_name((coh_change_kind)a),
                                    coh_change_kind_name((coh_change_kind)b));
    assert_string_equal(coh_refusal_reason_name(COH_REFUSAL_FREE_SPACE), "free-space");
    assert_string_equal(coh_change_kind_name(COH_CHANGE_FREE_SPACE), "free-space");
    assert_string_equal(coh_refusal_unit_name(COH_UNIT_BYTES), "bytes");
}

static void another_failure_ends_a_refusal(void **state)
{
    (void)state;
    coh_refusal refusal = { .struct_bytes = sizeof(refusal),
                            .status = COH_ERR_FULL,
                            .reason = COH_REFUSAL_STEP };
    assert_int_equal(coh_refuse(&refusal), COH_ERR_FULL);
    assert_true(coh_last_refusal(&refusal));
    (void)coh_kind_fail(COH_ERR_FULL, "something else");
    assert_false(coh_last_refusal(&refusal));
    /* an older, smaller struct is read as far as it goes */
    refusal.struct_bytes = offsetof(coh_refusal, is_gpu);
    assert_int_equal(coh_refuse(&refusal), COH_ERR_FULL);
    refusal.reason = COH_REFUSAL_NONE;
    refusal.given_bytes = 7;
    assert_true(coh_last_refusal(&refusal));
    assert_int_equal(refusal.reason, COH_REFUSAL_STEP);
    assert_int_equal(refusal.given_bytes, 7);
    /* a newer, larger one if the members that are not known here are 0 */
    struct {
        coh_refusal same;
        uint64_t later;
    } newer = { .same = { .struct_bytes = sizeof(newer),
                          .status = COH_ERR_FULL,
                          .reason = COH_REFUSAL_STEP } };
    assert_int_equal(coh_refuse(&newer.same), COH_ERR_FULL);
    assert_true(coh_last_refusal(&newer.same));
    newer.later = 1;
    assert_int_equal(coh_refuse(&newer.same), COH_ERR_ARGUMENT);
    assert_false(coh_last_refusal(&newer.same));
}

/* Names of files may be no UTF-8, or be cut in a character: they must not spoil the JSON. */
static void texts_are_printable_in_struct_and_json(void **state)
{
    (void)state;
    coh_refusal refusal = { .struct_bytes = sizeof(refusal),
                            .status = COH_ERR_FULL,
                            .reason = COH_REFUSAL_FREE_SPACE,
                            .pin = "\x01[31m",
                            .items = "\xff\xfe" };
    for (size_t i = 0; i + 1 < sizeof(refusal.path); i++)
        refusal.path[i] = i % 2 ? '\xa9' : '\xc3'; /* an odd number of bytes: half a character */
    assert_int_equal(coh_refuse(&refusal), COH_ERR_FULL);
    assert_true(coh_last_refusal(&refusal));
    assert_string_equal(refusal.pin, "?[31m");
    assert_string_equal(refusal.items, "??");
    assert_string_equal(refusal.path + sizeof(refusal.path) - 4, "\xc3\xa9?");
    json_t *root = parse(&refusal);
    check_text(root, "path", refusal.path);
    json_decref(root);
}

static void what_has_no_name_is_no_refusal(void **state)
{
    (void)state;
    const coh_refusal good = { .struct_bytes = sizeof(good),
                               .status = COH_ERR_FULL,
                               .reason = COH_REFUSAL_STEP,
                               .change_count = 1 };
    coh_refusal bad[6] = { good, good, good, good, good, good };
    bad[0].reason = COH_REFUSAL_REASONS;
    bad[1].unit = COH_UNITS;
    bad[2].tier = COH_TIER_COUNT;
    bad[3].changes[0].kind = COH_CHANGE_KINDS;
    bad[4].changes[0].tier = -2;
    bad[5].change_count = COH_REFUSAL_CHANGES + 1;
    assert_int_equal(coh_refuse(&good), COH_ERR_FULL);
    for (int i = 0; i < 6; i++)
        assert_int_equal(coh_refuse(&bad[i]), COH_ERR_ARGUMENT);
}

/* ---- provoked ---- */

typedef struct provoked {
    const char *name;
    coh_refusal_reason reason;
    int32_t tier;
    uint64_t device, host, disk, chunk;
    coh_recompute recompute;
    const char *pin;
    int32_t microbatch_count;
    int works; /* its first change makes a plan */
} provoked;

static const provoked cases[] = {
    { .name = "a step in memory", .reason = COH_REFUSAL_IN_MEMORY, .device = 20, .works = 1 },
    { .name = "a step", .reason = COH_REFUSAL_STEP, .device = 1, .disk = 9999, .works = 1 },
    { .name = "a step with large chunks",
      .reason = COH_REFUSAL_STEP,
      .device = 1,
      .disk = 9999,
      .chunk = 32,
      .works = 1 },
    { .name = "a step that recomputes nothing",
      .reason = COH_REFUSAL_STEP,
      .device = 1,
      .disk = 9999,
      .recompute = COH_RECOMPUTE_NONE,
      .works = 1 },
    { .name = "states on a disk",
      .reason = COH_REFUSAL_STATES,
      .tier = 2,
      .device = 40,
      .disk = 10 },
    { .name = "states in device and host tier",
      .reason = COH_REFUSAL_ALL_TIERS,
      .tier = -1,
      .device = 40,
      .host = 10 },
    { .name = "a pin",
      .reason = COH_REFUSAL_PIN,
      .device = 20,
      .disk = 9999,
      .pin = "blocks.0-5=device",
      .works = 1 },
    { .name = "a program that is too long",
      .reason = COH_REFUSAL_LENGTH,
      .tier = -1,
      .device = 9999,
      .microbatch_count = 65536 },
};

static coh_plan_options options_of(const provoked *p, coh_pin *pin)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    options.thread_count = 2;
    options.search = COH_SEARCH_QUICK;
    options.device_memory_bytes = p->device * MIB;
    options.host_memory_bytes = p->host * MIB;
    options.emulate_host = p->host > 0;
    options.disk_bytes = p->disk * MIB;
    options.chunk_bytes = p->chunk * MIB;
    options.recompute = p->recompute;
    options.microbatch_count = p->microbatch_count > 0 ? p->microbatch_count : 1;
    if (p->pin != NULL) {
        assert_int_equal(coh_pin_parse(p->pin, pin), COH_OK);
        options.pins = pin;
        options.pin_count = 1;
    }
    return options;
}

static coh_graph *make_graph(void)
{
    coh_model model;
    coh_graph *graph = NULL;
    assert_int_equal(coh_model_preset("gpt2-nano", 0, &model), COH_OK);
    assert_int_equal(coh_model_train_graph(&model, 2, 64, &graph), COH_OK);
    return graph;
}

static coh_refusal provoke(const coh_graph *graph, const coh_plan_options *options)
{
    coh_plan *plan = NULL;
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    const coh_status status = coh_plan_create(graph, options, &plan);
    assert_null(plan);
    if (!coh_last_refusal(&refusal))
        fail_msg("no refusal: %s", coh_last_error());
    assert_int_equal(refusal.status, status);
    return refusal;
}

/* Applies the first change, of those that are about bytes. */
static void apply(const coh_change *change, coh_plan_options *options)
{
    if (change->kind == COH_CHANGE_DROP_PIN)
        options->pin_count = 0;
    else if (change->kind == COH_CHANGE_RAISE && change->tier == 0)
        options->device_memory_bytes = change->bytes;
    else
        fail_msg("change %s is not of this test", coh_change_kind_name(change->kind));
}

static void what_the_planner_refuses_is_data(void **state)
{
    (void)state;
    coh_graph *graph = make_graph();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const provoked *p = &cases[i];
        coh_pin pin;
        coh_plan_options options = options_of(p, &pin);
        const coh_refusal refusal = provoke(graph, &options);
        print_message("%s: %s\n", p->name, coh_last_error());
        assert_int_equal(refusal.reason, p->reason);
        assert_int_equal(refusal.tier, p->tier);
        const uint64_t given[] = { options.device_memory_bytes, options.host_memory_bytes,
                                   options.disk_bytes };
        if (p->tier >= 0) {
            assert_int_equal(refusal.given_bytes, given[p->tier]);
            assert_int_equal(refusal.needed_bytes, refusal.given_bytes + refusal.short_bytes);
        }
        assert_true(refusal.change_count > 0);
        assert_int_equal((refusal.by_hand & COH_BY_HAND_CHUNK) != 0, p->chunk > 0);
        assert_int_equal(refusal.operator_name[0] != '\0', p->reason == COH_REFUSAL_STEP);
        json_t *root = parse(&refusal);
        check_fields(root, &refusal);
        assert_int_equal(coh_terms_set(other_words, COH_TERM_COUNT), COH_OK);
        const coh_refusal again = provoke(graph, &options);
        assert_int_equal(coh_terms_set(NULL, 0), COH_OK);
        assert_memory_equal(&again, &refusal, sizeof(again));
        json_decref(root);
        if (p->works) {
            coh_plan *plan = NULL;
            apply(&refusal.changes[0], &options);
            if (coh_plan_create(graph, &options, &plan) != COH_OK)
                fail_msg("%s: %s does not help: %s", p->name,
                         coh_change_kind_name(refusal.changes[0].kind), coh_last_error());
            coh_plan_destroy(plan);
        }
    }
    coh_graph_destroy(graph);
}

/* A plan that needs a far tier of N bytes: N is named, and N are enough, one page less is not. */
static void a_far_tier_is_short_by_what_is_said(void **state)
{
    (void)state;
    coh_graph *graph = make_graph();
    const provoked p = { .device = 100, .disk = 10 };
    coh_plan_options options = options_of(&p, NULL);
    coh_plan *plan = NULL;
    options.device_memory_bytes = 24 * MIB;
    coh_refusal refusal = provoke(graph, &options);
    for (int i = 0; refusal.reason == COH_REFUSAL_STATES && i < 2; i++) {
        options.disk_bytes = refusal.changes[0].bytes;
        refusal = provoke(graph, &options);
    }
    assert_int_equal(refusal.reason, COH_REFUSAL_FAR_TIER);
    assert_int_equal(refusal.tier, 2);
    assert_int_equal(refusal.given_bytes, options.disk_bytes);
    const uint64_t needed = refusal.changes[0].bytes;
    assert_int_equal(needed, refusal.needed_bytes);
    options.disk_bytes = needed - 4096;
    assert_int_equal(provoke(graph, &options).short_bytes, 4096);
    options.disk_bytes = needed;
    if (coh_plan_create(graph, &options, &plan) != COH_OK)
        fail_msg("%s", coh_last_error());
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reason_has_its_fields_in_any_words),
        cmocka_unit_test(one_byte_is_no_plural),
        cmocka_unit_test(bytes_of_a_day_have_the_largest_unit),
        cmocka_unit_test(a_larger_disk_is_typed_as_it_is_printed_unless_it_is_a_lower_bound),
        cmocka_unit_test(frozen_weights_in_4_bits_name_what_a_plan_takes),
        cmocka_unit_test(names_are_all_different),
        cmocka_unit_test(another_failure_ends_a_refusal),
        cmocka_unit_test(texts_are_printable_in_struct_and_json),
        cmocka_unit_test(what_has_no_name_is_no_refusal),
        cmocka_unit_test(what_the_planner_refuses_is_data),
        cmocka_unit_test(a_far_tier_is_short_by_what_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
