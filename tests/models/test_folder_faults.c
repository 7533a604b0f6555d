/* A folder is written completely or not at all, whatever fails and whenever the power is lost. */
#include "cohobate/folder.h"
#include "tests/models/folder_fixture.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/file_ops.h"
#include "cohobate/adapters.h"
#include "tests/faults/alloc_faults.h"
#include "tests/faults/file_faults.h"

/* A small GPT-2 in shards, with files that are copied along and one that is not. */
static json_t *root, *tensors;
static coh_model model;
static coh_folder *folder;

static const char *const companions[] = { "tokenizer.json",
                                          "chat_template.jinja",
                                          "additional_chat_templates/tool_use.jinja",
                                          "README.md",
                                          "LICENSE",
                                          "notice.txt" };
enum { COMPANIONS = 6, SHARD_BYTES = 5000 }; /* two shards */
static const char *const others[] = { "training_args.bin", "additional_chat_templates/x.bin",
                                      "a-license" };
enum { OTHERS = 3 };

static int set_up(void **state)
{
    char name[64], text[64];
    if (folder_create(state) != 0)
        return -1;
    root = recorded_load(FIXTURES, recorded_files[1]);
    json_t *one = json_array_get(json_object_get(root, "cases"), 0);
    assert_string_equal(recorded_text(one, "case"), "gpt2");
    tensors = json_object_get(one, "tensors");
    model =
        made_resolve(made_folder("in", json_object_get(one, "config"), tensors, COH_DTYPE_BF16, 0));
    if (mkdir(folder_file("in/additional_chat_templates"), 0777) != 0 ||
        mkdir(folder_file("in/licenses"), 0777) != 0)
        return -1;
    for (int i = 0; i < COMPANIONS; i++) {
        snprintf(name, sizeof(name), "in/%s", companions[i]);
        snprintf(text, sizeof(text), "what %s holds", companions[i]);
        folder_write(name, text, strlen(text));
    }
    for (int i = 0; i < OTHERS; i++) {
        snprintf(name, sizeof(name), "in/%s", others[i]);
        folder_write(name, "no", 2);
    }
    return coh_folder_open(&model, &folder) == COH_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    coh_folder_close(folder);
    json_decref(root);
    return folder_remove(state);
}

static coh_status numbers(void *context, const char *name, uint64_t begin, uint64_t count,
                          float *values)
{
    return coh_folder_numbers(context, COH_PARAMETER_NEW, name, begin, count, values);
}

static coh_status write_out(coh_dtype dtype)
{
    const coh_folder_write_options options = { .struct_bytes = sizeof(options),
                                               .dtype = dtype,
                                               .shard_bytes = SHARD_BYTES,
                                               .files_from = model.folder,
                                               .notices_from = model.folder };
    return coh_folder_write(&model, &options, folder_file("out"), numbers, folder);
}

static void assert_out_is_whole(void)
{
    char name[64], text[64];
    size_t i, bytes;
    json_t *pair;
    coh_safetensors *files;
    const coh_model again = made_resolve(folder_file("out"));
    assert_int_equal(again.stored, COH_DTYPE_BF16);
    if (coh_safetensors_open(folder_file("out"), &files) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_true(coh_safetensors_file_count(files) > 1);
    json_array_foreach(tensors, i, pair)
    {
        const char *published = json_string_value(json_array_get(pair, 0));
        const coh_safetensors_tensor *tensor = coh_safetensors_find(files, published);
        assert_non_null(tensor);
        void *is = malloc(tensor->bytes);
        void *must = made_data(published, coh_safetensors_elements(tensor), COH_DTYPE_BF16);
        assert_int_equal(coh_safetensors_read(files, tensor, 0, tensor->bytes, is), COH_OK);
        assert_memory_equal(is, must, tensor->bytes);
        free(must);
        free(is);
    }
    coh_safetensors_close(files);
    for (i = 0; i < COMPANIONS; i++) {
        snprintf(name, sizeof(name), "out/%s", companions[i]);
        snprintf(text, sizeof(text), "what %s holds", companions[i]);
        char *copy = folder_read(folder_file(name), &bytes);
        assert_int_equal(bytes, strlen(text));
        assert_string_equal(copy, text);
        free(copy);
    }
    for (i = 0; i < OTHERS; i++) {
        snprintf(name, sizeof(name), "out/%s", others[i]);
        assert_int_not_equal(access(folder_file(name), F_OK), 0);
    }
    assert_int_not_equal(access(folder_file("out/licenses"), F_OK), 0);
}

/* The bytes of a folder's files and folders, in whole pages. */
static uint64_t bytes_seen;
static int add_bytes(const char *path, const struct stat *facts, int type, struct FTW *place)
{
    (void)path, (void)place;
    bytes_seen += type == FTW_D ? 4096 : ((uint64_t)facts->st_size + 4095) / 4096 * 4096;
    return 0;
}

static uint64_t bytes_on_disk(const char *path)
{
    bytes_seen = 0;
    assert_int_equal(nftw(path, add_bytes, 16, FTW_PHYS), 0);
    return bytes_seen;
}

static int remove_out(void)
{
    return temporary_remove(folder_file("out"));
}

static void files_of_tokenizer_generation_and_terms_go_along_and_no_others(void **state)
{
    (void)state;
    if (write_out(COH_DTYPE_BF16) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_out_is_whole();
}

static void one_tokenizer_file_of_any_name_is_called_as_its_kind_is(void **state)
{
    (void)state;
    static const char *const texts[] = { "{}", "\x0a\x07" };
    static const char *const names[] = { "out/tokenizer.json", "out/tokenizer.model" };
    for (int i = 0; i < 2; i++) {
        folder_write("mine", texts[i], 2);
        const coh_folder_write_options options = { .struct_bytes = sizeof(options),
                                                   .dtype = COH_DTYPE_F32,
                                                   .files_from = folder_file("mine") };
        assert_int_equal(coh_folder_write(&model, &options, folder_file("out"), numbers, folder),
                         COH_OK);
        char *copy = folder_read(folder_file(names[i]), NULL);
        assert_string_equal(copy, texts[i]);
        free(copy);
        assert_int_equal(remove_out(), 0);
    }
}

static coh_status large(void *context, const char *name, uint64_t begin, uint64_t count,
                        float *values)
{
    (void)context;
    for (uint64_t i = 0; i < count; i++)
        values[i] = strcmp(name, "h.1.mlp.c_fc.weight") == 0 && begin + i == 100 ? 65520 : 65519;
    return COH_OK;
}

static void what_a_folder_takes_is_known_to_the_page(void **state)
{
    (void)state;
    static const uint64_t shard_bytes[] = { 0, SHARD_BYTES, 1 };
    for (size_t i = 0; i < sizeof(shard_bytes) / sizeof(shard_bytes[0]); i++)
        for (int tokenizer = 0; tokenizer < 2; tokenizer++) {
            uint64_t bytes;
            const coh_folder_write_options options = { .struct_bytes = sizeof(options),
                                                       .dtype = COH_DTYPE_F32,
                                                       .shard_bytes = shard_bytes[i],
                                                       .files_from =
                                                           tokenizer ? model.folder : NULL,
                                                       .notices_from =
                                                           tokenizer ? NULL : model.folder };
            assert_int_equal(coh_folder_write_bytes(&model, &options, &bytes), COH_OK);
            assert_int_equal(
                coh_folder_write(&model, &options, folder_file("out"), numbers, folder), COH_OK);
            assert_int_equal(bytes, bytes_on_disk(folder_file("out")));
            assert_int_equal(remove_out(), 0);
        }
}

static void what_adapters_take_is_known_to_the_page(void **state)
{
    (void)state;
    coh_model beside = model;
    const coh_adapters adapters = { .rank = 3 };
    assert_int_equal(coh_model_adapters_set(&beside, &adapters), COH_OK);
    for (int tokenizer = 0; tokenizer < 2; tokenizer++) {
        uint64_t bytes;
        const coh_adapters_write_options options = { .struct_bytes = sizeof(options),
                                                     .dtype = COH_DTYPE_BF16,
                                                     .base = "a model",
                                                     .files_from =
                                                         tokenizer ? model.folder : NULL };
        assert_int_equal(coh_adapters_write_bytes(&beside, &options, &bytes), COH_OK);
        assert_int_equal(coh_adapters_write(&beside, &options, folder_file("out"), large, NULL),
                         COH_OK);
        assert_int_equal(bytes, bytes_on_disk(folder_file("out")));
        assert_int_equal(remove_out(), 0);
    }
}

/* The existing folder is left unchanged. */
static void what_exists_is_refused(void **state)
{
    (void)state;
    folder_write("out", "mine", 4);
    const int before = folder_count();
    assert_int_equal(write_out(COH_DTYPE_BF16), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "exists"));
    assert_int_equal(folder_count(), before);
    assert_int_equal(remove(folder_file("out")), 0);
    assert_int_equal(symlink("nowhere", folder_file("out")), 0);
    assert_int_equal(write_out(COH_DTYPE_BF16), COH_ERR_ARGUMENT);
    assert_int_equal(folder_count(), before);
}

static void a_number_that_f16_has_no_room_for_is_refused_with_its_place(void **state)
{
    (void)state;
    const int before = folder_count();
    coh_folder_write_options options = { .struct_bytes = sizeof(options), .dtype = COH_DTYPE_F16 };
    assert_int_equal(coh_folder_write(&model, &options, folder_file("out"), large, NULL),
                     COH_ERR_NUMBER);
    assert_non_null(strstr(coh_last_error(), "h.1.mlp.c_fc.weight holds 65520"));
    assert_int_equal(folder_count(), before);
    options.dtype = COH_DTYPE_BF16;
    assert_int_equal(coh_folder_write(&model, &options, folder_file("out"), large, NULL), COH_OK);
}

static coh_status broken(void *context, const char *name, uint64_t begin, uint64_t count,
                         float *values)
{
    if (strcmp(name, "ln_f.bias") == 0)
        return coh_fail(COH_ERR_CORRUPT, "the source broke");
    return numbers(context, name, begin, count, values);
}

static void a_source_that_fails_leaves_nothing(void **state)
{
    (void)state;
    const int before = folder_count();
    const coh_folder_write_options options = { .struct_bytes = sizeof(options),
                                               .dtype = COH_DTYPE_F32,
                                               .shard_bytes = SHARD_BYTES };
    assert_int_equal(coh_folder_write(&model, &options, folder_file("out"), broken, folder),
                     COH_ERR_CORRUPT);
    assert_string_equal(coh_last_error(), "the source broke");
    assert_int_equal(folder_count(), before);
}

/* Writes the first half in a process that is then killed. */
static void write_and_be_killed(void)
{
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("COH_TEST_SIGNAL_AT", "17:9", 1); /* by then a folder exists */
        _exit(write_out(COH_DTYPE_BF16));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void what_killed_processes_left_goes_with_the_next_write(void **state)
{
    (void)state;
    const int before = folder_count();
    write_and_be_killed();
    write_and_be_killed();
    assert_true(folder_count() > before + 2);
    /* Names that our writer never makes, and a file. */
    static const char *const names[] = { "out.partial",     "out.partial-1",   "out.partial-1-",
                                         "out.partial-1-x", "out.partial-x-1", "in.partial-1-0" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(mkdir(folder_file(names[i]), 0700), 0);
    folder_write("out.partial-1-0", "a file", 6);
    assert_int_equal(write_out(COH_DTYPE_BF16), COH_OK);
    assert_out_is_whole();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(rmdir(folder_file(names[i])), 0);
    assert_int_equal(remove(folder_file("out.partial-1-0")), 0);
    assert_int_equal(remove_out(), 0);
    assert_int_equal(folder_count(), before);
}

static void rests_can_be_removed_before_room_is_asked_for(void **state)
{
    (void)state;
    const int before = folder_count();
    write_and_be_killed();
    assert_true(folder_count() > before);
    assert_int_equal(coh_folder_clear(folder_file("out")), COH_OK);
    assert_int_equal(folder_count(), before);
    folder_write("out", "mine", 4);
    assert_int_equal(coh_folder_clear(folder_file("out")), COH_ERR_ARGUMENT);
}

static void what_is_another_users_stays(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* only root can give a folder away */
    assert_int_equal(mkdir(folder_file("out.partial-1-0"), 0777), 0);
    folder_write("out.partial-1-0/theirs", "theirs", 6);
    assert_int_equal(chown(folder_file("out.partial-1-0"), 65534, 65534), 0);
    assert_int_equal(coh_folder_clear(folder_file("out")), COH_OK);
    assert_int_equal(access(folder_file("out.partial-1-0/theirs"), F_OK), 0);
    assert_int_equal(chown(folder_file("out.partial-1-0"), 0, 0), 0);
    assert_int_equal(coh_folder_clear(folder_file("out")), COH_OK);
    assert_int_not_equal(access(folder_file("out.partial-1-0"), F_OK), 0);
}

/* Replaces the temporary folder by a link to another folder, then the source fails. */
static coh_status swapped(void *context, const char *name, uint64_t begin, uint64_t count,
                          float *values)
{
    char partial[64];
    (void)context, (void)name, (void)begin, (void)count, (void)values;
    snprintf(partial, sizeof(partial), "out.partial-%ld-0", (long)getpid());
    char *from = strdup(folder_file(partial));
    assert_int_equal(rename(from, folder_file("moved")), 0);
    assert_int_equal(symlink("theirs", from), 0);
    free(from);
    return coh_fail(COH_ERR_CORRUPT, "the source broke");
}

static void a_link_in_the_place_of_the_temporary_folder_is_not_followed(void **state)
{
    (void)state;
    const coh_folder_write_options options = { .struct_bytes = sizeof(options),
                                               .dtype = COH_DTYPE_F32,
                                               .shard_bytes = SHARD_BYTES };
    assert_int_equal(mkdir(folder_file("theirs"), 0777), 0);
    folder_write("theirs/kept", "kept", 4);
    assert_int_equal(coh_folder_write(&model, &options, folder_file("out"), swapped, NULL),
                     COH_ERR_CORRUPT);
    assert_int_equal(access(folder_file("theirs/kept"), F_OK), 0);
    assert_int_equal(rmdir(folder_file("moved")), 0); /* emptied through the descriptor */
}

/* Another process writes the same folder completely during this write. */
static coh_status overtaken(void *context, const char *name, uint64_t begin, uint64_t count,
                            float *values)
{
    if (strcmp(name, "ln_f.bias") == 0)
        assert_int_equal(write_out(COH_DTYPE_BF16), COH_OK);
    return numbers(context, name, begin, count, values);
}

static void what_another_is_writing_stays(void **state)
{
    (void)state;
    const int before = folder_count();
    const coh_folder_write_options options = { .struct_bytes = sizeof(options),
                                               .dtype = COH_DTYPE_F32 };
    /* The write finishes, and finds that the name is taken. */
    assert_int_equal(coh_folder_write(&model, &options, folder_file("out"), overtaken, folder),
                     COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "exists"));
    assert_out_is_whole();
    assert_int_equal(remove_out(), 0);
    assert_int_equal(folder_count(), before);
}

/* Every file operation fails once, in each of several ways. */
static void whatever_operation_fails_nothing_is_left(void **state)
{
    (void)state;
    static const char *const ways[] = { "", ":28", ":short" };
    enum { OPERATIONS_MOST = 160 };
    const int before = folder_count();
    for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
        /* A short write is continued: only writes can be short, and none causes a failure. */
        const int is_short = strcmp(ways[w], ":short") == 0;
        int n = 1, is_over = 0;
        for (; !is_over && n < OPERATIONS_MOST; n += is_short ? 7 : 1) {
            char at[32];
            snprintf(at, sizeof(at), "%d%s", n, ways[w]);
            setenv("COH_TEST_FAIL_AT", at, 1);
            const coh_status status = write_out(COH_DTYPE_BF16);
            unsetenv("COH_TEST_FAIL_AT");
            is_over = status == COH_OK && !is_short;
            if (status == COH_OK) {
                assert_out_is_whole();
                assert_int_equal(remove_out(), 0);
                continue;
            }
            assert_true(status == COH_ERR_IO || status == COH_ERR_FULL);
            assert_true(coh_last_error()[0] != '\0');
            if (folder_count() != before)
                fail_msg("operation %s: %d entries, not %d (%s)", at, folder_count(), before,
                         coh_last_error());
        }
        assert_true(n > 25);
        assert_true(is_over != is_short);
    }
}

static void whatever_allocation_fails_nothing_is_left(void **state)
{
    (void)state;
    const int before = folder_count();
    for (uint64_t n = 1;; n++) {
        alloc_fail_nth(n);
        const coh_status status = write_out(COH_DTYPE_BF16);
        const int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        if (!was_hit) {
            assert_int_equal(status, COH_OK);
            assert_true(n > 5);
            break;
        }
        assert_int_equal(status, COH_ERR_MEMORY);
        assert_int_equal(folder_count(), before);
    }
    for (uint64_t n = 1;; n++) {
        coh_folder *again;
        alloc_fail_nth(n);
        const coh_status status = coh_folder_open(&model, &again);
        const int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        if (!was_hit) {
            assert_int_equal(status, COH_OK);
            coh_folder_close(again);
            break;
        }
        assert_int_equal(status, COH_ERR_MEMORY);
        assert_null(again);
    }
}

/* Writes the folder in a process that loses power at operation `n`, which includes one operation
 * after the folder exists. Returns its exit code, and whether success had been reported by then. */
static int write_in_the_dark(int n, int seed, int *out_promised)
{
    int status;
    int *promised =
        mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(promised != MAP_FAILED);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char at[32];
        coh_file_ops later;
        snprintf(at, sizeof(at), "%d:%d", n, seed);
        setenv("COH_TEST_POWER_CUT_AT", at, 1);
        coh_file_ops_init(&later);
        *promised = write_out(COH_DTYPE_BF16) == COH_OK;
        _exit(coh_file_rmdir(&later, folder_file("nothing")) == -ENOENT && *promised ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    *out_promised = *promised;
    munmap(promised, sizeof(int));
    return WEXITSTATUS(status);
}

static void whenever_the_power_goes_the_folder_is_whole_or_not_there(void **state)
{
    (void)state;
    for (int seed = 0; seed < 2; seed++) {
        int code = FILE_FAULTS_EXIT_CODE, n = 1;
        for (; code == FILE_FAULTS_EXIT_CODE; n++) {
            int promised;
            code = write_in_the_dark(n, seed, &promised);
            assert_true(code == 0 || code == FILE_FAULTS_EXIT_CODE);
            if (access(folder_file("out"), F_OK) == 0) {
                assert_out_is_whole();
                assert_int_equal(remove_out(), 0);
            } else
                assert_false(promised);
        }
        assert_true(n > 25);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(files_of_tokenizer_generation_and_terms_go_along_and_no_others),
        CASE(one_tokenizer_file_of_any_name_is_called_as_its_kind_is),
        CASE(what_a_folder_takes_is_known_to_the_page),
        CASE(what_adapters_take_is_known_to_the_page),
        CASE(what_exists_is_refused),
        CASE(a_number_that_f16_has_no_room_for_is_refused_with_its_place),
        CASE(a_source_that_fails_leaves_nothing),
        CASE(what_killed_processes_left_goes_with_the_next_write),
        CASE(rests_can_be_removed_before_room_is_asked_for),
        CASE(what_is_another_users_stays),
        CASE(a_link_in_the_place_of_the_temporary_folder_is_not_followed),
        CASE(what_another_is_writing_stays),
        CASE(whatever_operation_fails_nothing_is_left),
        CASE(whatever_allocation_fails_nothing_is_left),
        CASE(whenever_the_power_goes_the_folder_is_whole_or_not_there),
    };
    return cmocka_run_group_tests_name("folder_faults", tests, NULL, NULL);
}
