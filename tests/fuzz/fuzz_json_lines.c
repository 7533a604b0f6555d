/* libFuzzer target: JSON lines as documents and as conversations, packed, aligned, fitted and
 * separate. An accepted file gives a complete token file; any other is refused with one line that
 * names the place. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cohobate/text.h"
#include "cohobate/training_note.h"
#include "tests/temporary.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void check(int holds)
{
    if (!holds)
        abort();
}

static char folder[PATH_MAX - 16], out_path[PATH_MAX];
static coh_tokenizer *tokenizer;

static void remove_folder(void)
{
    (void)rmdir(folder);
    coh_tokenizer_close(tokenizer);
}

static void begin_once(void)
{
    if (tokenizer)
        return;
    /* /dev/shm is a hundred times faster */
    check(temporary_folder(folder, sizeof(folder), "fuzz") == 0 &&
          coh_tokenizer_open("bytes", &tokenizer) == COH_OK);
    snprintf(out_path, sizeof(out_path), "%s/out", folder);
    (void)atexit(remove_folder);
}

static void build(const char *path, coh_data_form form, int64_t window, coh_documents_layout layout)
{
    coh_token_file *file;
    coh_token_build_options options;
    coh_token_build_options_init(&options);
    options.in_path = path;
    options.out_path = out_path;
    options.form = form;
    options.window = window;
    options.separate = layout == COH_DOCUMENTS_SEPARATE;
    options.fitted = options.separate || layout == COH_DOCUMENTS_FITTED;
    coh_status status = coh_token_file_make(tokenizer, &options, NULL);
    if (status == COH_OK) {
        check(coh_token_file_open(out_path, &file) == COH_OK &&
              coh_token_file_check(file) == COH_OK);
        coh_token_file_close(file);
        (void)unlink(out_path);
        return;
    }
    check(status == COH_ERR_CORRUPT || status == COH_ERR_ARGUMENT);
    check(!strchr(coh_last_error(), '\n') && access(out_path, F_OK) != 0);
    check(status != COH_ERR_CORRUPT || strncmp(coh_last_error(), path, strlen(path)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char path[64];
    begin_once();
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    check(fd >= 0 && (count == 0 || write(fd, bytes, count) == (ssize_t)count));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    for (int form = COH_DATA_JSONL; form <= COH_DATA_CHAT; form++)
        for (int layout = COH_DOCUMENTS_PACKED; layout <= COH_DOCUMENTS_SEPARATE; layout++)
            build(path, (coh_data_form)form, layout == COH_DOCUMENTS_PACKED ? 0 : 4,
                  (coh_documents_layout)layout);
    close(fd);
    return 0;
}
