/* Reads a GPU's clock, power, free memory and links. The types are NVML's ABI, which is stable: a
 * handle is a pointer, a result an int with 0 for success. Read nvml.h first; device_cuda.c owns
 * the meter. */
#include "memory/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "memory/cuda_library.h"

/* NVML_CLOCK_SM of nvmlClockType_t. */
#define CLOCK_OF_MULTIPROCESSORS 1

typedef struct handle *nvml_device;

/* nvmlMemory_t. */
typedef struct memory_info {
    unsigned long long total, free, used;
} memory_info;

/* nvmlPciInfo_t. */
typedef struct pci_info {
    char legacy_address[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char address[32];
} pci_info;

/* In the order of function_names. */
typedef struct functions {
    int (*init)(void);
    int (*shutdown)(void);
    int (*find)(const char *pci_address, nvml_device *out_device);
    int (*clock)(nvml_device device, int type, unsigned *out_mhz);
    int (*power)(nvml_device device, unsigned *out_milliwatts);
    int (*memory)(nvml_device device, memory_info *out_memory);
} functions;

/* In the order of link_function_names; libraries of GPUs without NVLink may lack them. */
typedef struct link_functions {
    int (*state)(nvml_device device, unsigned link, unsigned *out_is_active);
    int (*peer)(nvml_device device, unsigned link, pci_info *out_peer);
} link_functions;

static const char *const function_names[] = { "nvmlInit_v2",
                                              "nvmlShutdown",
                                              "nvmlDeviceGetHandleByPciBusId_v2",
                                              "nvmlDeviceGetClockInfo",
                                              "nvmlDeviceGetPowerUsage",
                                              "nvmlDeviceGetMemoryInfo" };

static const char *const link_function_names[] = { "nvmlDeviceGetNvLinkState",
                                                   "nvmlDeviceGetNvLinkRemotePciInfo_v2" };

struct coh_nvml {
    functions call;
    link_functions links; /* zeroed: not there */
    nvml_device device;
    uint64_t read_ns; /* 0: never */
    coh_device_meter last;
};

static const coh_cuda_library_name library_name = { .file = "libnvidia-ml.so.1",
                                                    .product = "NVML",
                                                    .package = "nvidia-ml-py" };

static coh_status find_device(coh_nvml *nvml, const char *pci_address)
{
    const int error = nvml->call.init();
    if (error != 0)
        return coh_fail(COH_ERR_DEVICE, "NVML does not start: error %d", error);
    const int missing = nvml->call.find(pci_address, &nvml->device);
    if (missing == 0)
        return COH_OK;
    (void)nvml->call.shutdown();
    return coh_fail(COH_ERR_DEVICE, "NVML does not know the GPU %s: error %d", pci_address,
                    missing);
}

static void find_link_functions(coh_nvml *nvml, void *library)
{
    if (coh_cuda_library_bind(library, &library_name, link_function_names,
                              sizeof(link_function_names) / sizeof(link_function_names[0]),
                              &nvml->links) != COH_OK)
        nvml->links = (link_functions){ 0 };
}

coh_status coh_nvml_open(const char *pci_address, coh_nvml **out_nvml)
{
    coh_nvml *nvml;
    *out_nvml = NULL;
    void *library = dlopen(library_name.file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL)
        return coh_fail(COH_ERR_DEVICE, "NVML (%s) is not on this machine", library_name.file);
    COH_TRY(COH_ALLOC(1, &nvml));
    coh_status status =
        coh_cuda_library_bind(library, &library_name, function_names,
                              sizeof(function_names) / sizeof(function_names[0]), &nvml->call);
    if (status == COH_OK)
        status = find_device(nvml, pci_address);
    if (status == COH_OK)
        find_link_functions(nvml, library);
    if (status != COH_OK) {
        coh_free(nvml);
        return status;
    }
    *out_nvml = nvml;
    return COH_OK;
}

void coh_nvml_close(coh_nvml *nvml)
{
    if (nvml == NULL)
        return;
    (void)nvml->call.shutdown();
    coh_free(nvml);
}

void coh_nvml_read(coh_nvml *nvml, uint64_t now_ns, coh_device_meter *out_meter)
{
    unsigned mhz, milliwatts;
    if (nvml->read_ns == 0 || now_ns - nvml->read_ns >= COH_NVML_PAUSE_NS) {
        const int has_clock = nvml->call.clock(nvml->device, CLOCK_OF_MULTIPROCESSORS, &mhz) == 0;
        const int has_power = nvml->call.power(nvml->device, &milliwatts) == 0;
        nvml->read_ns = now_ns;
        nvml->last =
            (coh_device_meter){ .clock_hz = has_clock ? (uint64_t)mhz * 1000000 : UINT64_MAX,
                                .power_mw = has_power ? milliwatts : UINT64_MAX };
    }
    *out_meter = nvml->last;
}

uint64_t coh_nvml_free_bytes(coh_nvml *nvml)
{
    memory_info memory = { 0 };
    return nvml->call.memory(nvml->device, &memory) == 0 ? memory.free : UINT64_MAX;
}

/* Writes the address as the driver writes it: four digits of a domain, where NVML has eight. */
static void write_address(const pci_info *peer, char *out_address)
{
    snprintf(out_address, COH_NVML_ADDRESS_BYTES, "%04x:%02x:%02x.0", peer->domain & 0xffffu,
             peer->bus & 0xffu, peer->device & 0xffu);
}

void coh_nvml_list_links(coh_nvml *nvml, coh_nvml_links *out_links)
{
    *out_links = (coh_nvml_links){ 0 };
    for (unsigned link = 0; link < COH_NVML_LINKS_MOST && nvml->links.state != NULL; link++) {
        unsigned is_active = 0;
        pci_info peer = { .domain = 0 };
        if (nvml->links.state(nvml->device, link, &is_active) != 0 || !is_active)
            continue;
        if (nvml->links.peer(nvml->device, link, &peer) != 0)
            memset(&peer, 0xff, sizeof(peer)); /* a link all the same, with no known GPU */
        write_address(&peer, out_links->at[out_links->count++]);
    }
}
