/* Finds NVIDIA's libraries: walks the folders listed in cuda_library.h as glob patterns, in order,
 * and calls a visitor for each file until one ends the walk. Opening and finding differ only in
 * that visitor. Read cuda_library.h first. */
#include "memory/cuda_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const coh_cuda_library_name coh_cuda_library_cublaslt = { .file = "libcublasLt.so.13",
                                                          .product = "cuBLASLt",
                                                          .package = "nvidia-cublas",
                                                          .version = "cublasLtGetVersion" };
/* Before 9.15.1 a graph's attention backward may read out of bounds if tokens are not a multiple of
 * 128 (release notes of cudnn-frontend 1.16.0); before 9.18 its bits are not reproducible. */
const coh_cuda_library_name coh_cuda_library_cudnn = {
    .file = "libcudnn.so.9",
    .product = "cuDNN",
    .package = "nvidia-cudnn-cu13",
    .version = "cudnnGetVersion",
    .least = 91801,
    .flaw = "attention's backward pass may read what it may not, or make other bits each time"
};
const coh_cuda_library_name coh_cuda_library_nccl = { .file = "libnccl.so.2",
                                                      .product = "NCCL",
                                                      .package = "nvidia-nccl-cu13",
                                                      .version = "ncclGetVersion",
                                                      .least = 21800,
                                                      .flaw = "its blocks cannot be limited" };

/* Returns 1 to end the walk. */
typedef int visit_file(void *context, const char *path);

typedef struct walk {
    const char *root, *file;
    visit_file *visit;
    void *context;
} walk;

/* Visits every file that matches <root><folder><inner>/<file>, in alphabetical order. */
static int visit_pattern(const walk *w, const char *folder, size_t folder_length, const char *inner)
{
    char pattern[COH_CUDA_LIBRARY_PATH_BYTES];
    glob_t found;
    int ended = 0;
    const int length = snprintf(pattern, sizeof(pattern), "%s%.*s%s/%s", w->root,
                                (int)folder_length, folder, inner, w->file);
    if (folder_length == 0 || length < 0 || (size_t)length >= sizeof(pattern))
        return 0;
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && !ended; i++)
            ended = w->visit(w->context, found.gl_pathv[i]);
    globfree(&found);
    return ended;
}

/* Visits one folder with each of the suffixes `forms`. */
static int visit_forms(const walk *w, const char *folder, size_t folder_length,
                       const char *const *forms)
{
    int ended = 0;
    for (; *forms != NULL && !ended; forms++)
        ended = visit_pattern(w, folder, folder_length, *forms);
    return ended;
}

static const char *const as_it_is[] = { "", NULL };
static const char *const of_a_tree[] = { "/lib64", "/lib", "/targets/*-linux/lib", NULL };
static const char *const of_packages[] = { "/nvidia/*/lib", NULL };
static const char *const of_a_prefix[] = { "/lib", "/lib/python3*/site-packages/nvidia/*/lib",
                                           "/lib/python3*/dist-packages/nvidia/*/lib", NULL };

/* Visits the folders listed in a variable, with `suffix` cut off; folders without it are
 * skipped. */
static int visit_variable(const walk *w, const char *variable, const char *suffix,
                          const char *const *forms)
{
    const char *rest = getenv(variable);
    int ended = 0;
    while (rest != NULL && *rest != '\0' && !ended) {
        size_t length = strcspn(rest, ":");
        const char *next = rest + length + (rest[length] == ':');
        while (length > 1 && rest[length - 1] == '/')
            length--;
        const size_t cut = strlen(suffix);
        if (length >= cut && memcmp(rest + length - cut, suffix, cut) == 0)
            ended = visit_forms(w, rest, length - cut, forms);
        rest = next;
    }
    return ended;
}

static int visit_folder(const walk *w, const char *folder, const char *const *forms)
{
    return visit_forms(w, folder, strlen(folder), forms);
}

static int visit_home(const walk *w)
{
    char local[COH_CUDA_LIBRARY_PATH_BYTES];
    const char *home = getenv("HOME");
    const int length = home == NULL ? -1 : snprintf(local, sizeof(local), "%s/.local", home);
    return length > 0 && (size_t)length < sizeof(local) && visit_folder(w, local, of_a_prefix);
}

/* COH_CUDA_LIBRARIES=none: act as if this machine had none of those that our kernels replace. */
static int is_none_named(void)
{
    const char *folders = getenv("COH_CUDA_LIBRARIES");
    return folders != NULL && strcmp(folders, "none") == 0;
}

static int is_left_out(const char *file)
{
    return is_none_named() && strcmp(file, coh_cuda_library_nccl.file) != 0;
}

static int visit_all(const walk *w)
{
    if (is_left_out(w->file))
        return 0;
    return (!is_none_named() && visit_variable(w, "COH_CUDA_LIBRARIES", "", as_it_is)) ||
           visit_variable(w, "CUDA_HOME", "", of_a_tree) ||
           visit_variable(w, "CUDA_PATH", "", of_a_tree) ||
           visit_folder(w, "/usr/local/cuda", of_a_tree) ||
           visit_variable(w, "VIRTUAL_ENV", "", of_a_prefix) ||
           visit_variable(w, "CONDA_PREFIX", "", of_a_prefix) ||
           visit_variable(w, "PYTHONPATH", "", of_packages) ||
           visit_variable(w, "PATH", "/bin", of_a_prefix) || visit_home(w) ||
           visit_folder(w, "/usr/local", of_a_prefix) || visit_folder(w, "/usr", of_a_prefix);
}

static int take_path(void *context, const char *path)
{
    return snprintf(context, COH_CUDA_LIBRARY_PATH_BYTES, "%s", path) < COH_CUDA_LIBRARY_PATH_BYTES;
}

int coh_cuda_library_find(const char *root, const coh_cuda_library_name *name,
                          char out_path[COH_CUDA_LIBRARY_PATH_BYTES])
{
    const walk w = { root, name->file, take_path, out_path };
    if (visit_all(&w))
        return 1;
    out_path[0] = '\0';
    return 0;
}

typedef struct opening {
    void *library;
    char *path;
    char reason[512]; /* why the first file found could not be opened */
} opening;

static int open_path(void *context, const char *path)
{
    opening *o = context;
    o->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *reason = o->library == NULL ? dlerror() : NULL;
    if (reason != NULL && o->reason[0] == '\0')
        snprintf(o->reason, sizeof(o->reason), "%s", reason);
    return o->library != NULL && take_path(o->path, path);
}

/* Opens the library by its bare name, in the loader's usual places. */
static void open_by_loader(opening *o, const coh_cuda_library_name *name)
{
    struct link_map *map = NULL;
    o->library = dlopen(name->file, RTLD_NOW | RTLD_LOCAL);
    if (o->library == NULL)
        return;
    if (dlinfo(o->library, RTLD_DI_LINKMAP, &map) != 0 || map == NULL ||
        !take_path(o->path, map->l_name))
        (void)take_path(o->path, name->file);
}

coh_status coh_cuda_library_open(const char *root, const coh_cuda_library_name *name,
                                 void **out_library, char out_path[COH_CUDA_LIBRARY_PATH_BYTES])
{
    opening o = { .path = out_path };
    const walk w = { root, name->file, open_path, &o };
    *out_library = NULL;
    out_path[0] = '\0';
    if (!visit_all(&w) && root[0] == '\0' && !is_left_out(name->file))
        open_by_loader(&o, name);
    *out_library = o.library;
    if (o.library != NULL)
        return COH_OK;
    if (o.reason[0] != '\0')
        return coh_fail(COH_ERR_IO,
                        "%s was found and cannot be opened (%s): install it again, or name another "
                        "folder in COH_CUDA_LIBRARIES",
                        name->product, o.reason);
    if (is_left_out(name->file))
        return coh_fail(COH_ERR_DEVICE, "%s (%s) is left out by COH_CUDA_LIBRARIES=none",
                        name->product, name->file);
    return coh_fail(COH_ERR_DEVICE,
                    "%s (%s) is not on this machine: install the CUDA toolkit 13 or the Python "
                    "package %s, or name its folder in COH_CUDA_LIBRARIES",
                    name->product, name->file, name->package);
}

/* All three libraries encode their versions this way. */
static void print_version(int32_t version, char out_text[COH_CUDA_VERSION_BYTES])
{
    if (version > 0)
        snprintf(out_text, COH_CUDA_VERSION_BYTES, "%d.%d.%d", version / 10000, version / 100 % 100,
                 version % 100);
    else
        snprintf(out_text, COH_CUDA_VERSION_BYTES, "of unknown version");
}

int32_t coh_cuda_library_version(void *library, const coh_cuda_library_name *name,
                                 char out_text[COH_CUDA_VERSION_BYTES])
{
    size_t (*version_of)(void) = NULL;
    int (*write_version)(int *) = NULL; /* NCCL's signature: 0 is success */
    void *address = dlsym(library, name->version);
    int version = 0;
    if (address != NULL && name == &coh_cuda_library_nccl) {
        memcpy(&write_version, &address, sizeof(address));
        if (write_version(&version) != 0)
            version = 0;
    } else if (address != NULL) {
        memcpy(&version_of, &address, sizeof(address));
        version = (int)version_of();
    }
    print_version(version, out_text);
    return version > 0 ? version : 0;
}

coh_status coh_cuda_library_accept(const coh_cuda_library_name *name, int32_t version)
{
    char is[COH_CUDA_VERSION_BYTES], least[COH_CUDA_VERSION_BYTES];
    if (version >= name->least)
        return COH_OK;
    print_version(version, is);
    print_version(name->least, least);
    return coh_fail(COH_ERR_DEVICE,
                    "%s %s is not used: before %s %s; install a newer Python package %s, or name "
                    "another folder in COH_CUDA_LIBRARIES",
                    name->product, is, least, name->flaw, name->package);
}

coh_status coh_cuda_library_bind(void *library, const coh_cuda_library_name *name,
                                 const char *const *functions, size_t count, void *table)
{
    for (size_t i = 0; i < count; i++) {
        void *function = dlsym(library, functions[i]);
        if (function == NULL)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s has no function %s: it is not the %s that this program knows; "
                            "install the Python package %s",
                            name->product, functions[i], name->file, name->package);
        memcpy((char *)table + i * sizeof(function), &function, sizeof(function));
    }
    return COH_OK;
}
