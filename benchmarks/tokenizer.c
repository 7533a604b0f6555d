/* A worker that encodes texts: `tokenizer WHAT FILE...` reads the files once. Each run encodes all
 * of them, each as a whole, on one thread. benchmarks/tokenizers alternates it with the Python
 * libraries. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "benchmarks/measure.h"
#include "cohobate/text.h"

enum { FILES_MOST = 256 };

typedef struct job {
    coh_tokenizer *tokenizer;
    char *texts[FILES_MOST];
    size_t text_bytes[FILES_MOST], total_bytes;
    int text_count;
    size_t id_count;
} job;

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int read_text(job *j, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || j->text_count == FILES_MOST || fseek(file, 0, SEEK_END) != 0)
        return 1;
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(bytes + 1);
    int failed = !text || fread(text, 1, bytes, file) != bytes;
    fclose(file);
    j->texts[j->text_count] = text;
    j->text_bytes[j->text_count++] = bytes;
    j->total_bytes += bytes;
    return failed;
}

static int encode_all(job *j)
{
    j->id_count = 0;
    for (int i = 0; i < j->text_count; i++) {
        int32_t *ids;
        size_t count;
        if (coh_tokenizer_encode(j->tokenizer, j->texts[i], j->text_bytes[i], &ids, &count) !=
            COH_OK)
            return 1;
        j->id_count += count;
        coh_text_free(ids);
    }
    return 0;
}

static int run(void *argument, int count)
{
    job *j = argument;
    printf("{\"seconds\": [");
    for (int i = 0; i < count; i++) {
        double begin_s = now_s();
        if (encode_all(j) != 0)
            return 1;
        printf("%s%.9g", i ? ", " : "", now_s() - begin_s);
    }
    printf("], \"ids\": %zu}\n", j->id_count);
    return 0;
}

int main(int argc, char **argv)
{
    job j = { 0 };
    int status = argc < 3 || coh_tokenizer_open(argv[1], &j.tokenizer) != COH_OK;
    if (status)
        fprintf(stderr, "tokenizer: %s\n", argc < 3 ? "WHAT FILE..." : coh_last_error());
    for (int i = 2; i < argc && !status; i++)
        status = read_text(&j, argv[i]);
    if (!status) {
        printf("{\"unit\": \"s\", \"bytes\": %zu}\n", j.total_bytes);
        fflush(stdout);
        status = measure_serve(run, &j);
    }
    for (int i = 0; i < j.text_count; i++)
        free(j.texts[i]);
    coh_tokenizer_close(j.tokenizer);
    return status;
}
