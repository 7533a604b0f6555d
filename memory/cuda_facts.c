/* Reads names, sizes and the nearest memory node of all GPUs from the driver, without a context.
 * Read cuda_facts.h first; topology.h for memory nodes. */
#include "memory/cuda_facts.h"

#include <stdio.h>

#include "memory/cuda_driver.h"
#include "memory/nvml.h"
#include "memory/topology.h"

static coh_status read_gpu(const coh_cuda_driver *driver, int index, coh_cuda_gpu *out_gpu)
{
    CUdevice device;
    size_t bytes;
    int major, minor, multiprocessors;
    const struct {
        CUdevice_attribute name;
        int *value;
    } attributes[] = {
        { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major },
        { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor },
        { CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &multiprocessors },
    };
    COH_TRY(coh_cuda_check(driver, driver->cuDeviceGet(&device, index), "cuDeviceGet of GPU %d",
                           index));
    COH_TRY(coh_cuda_check(
        driver, driver->cuDeviceGetName(out_gpu->name, (int)sizeof(out_gpu->name), device),
        "cuDeviceGetName of GPU %d", index));
    COH_TRY(coh_cuda_check(driver, driver->cuDeviceTotalMem(&bytes, device),
                           "cuDeviceTotalMem of GPU %d", index));
    for (int i = 0; i < 3; i++)
        COH_TRY(coh_cuda_check(
            driver, driver->cuDeviceGetAttribute(attributes[i].value, attributes[i].name, device),
            "cuDeviceGetAttribute of GPU %d", index));
    out_gpu->memory_bytes = bytes;
    out_gpu->major = major;
    out_gpu->minor = minor;
    out_gpu->multiprocessors = multiprocessors;
    out_gpu->near_node = COH_NODE_ANY;
    return COH_OK;
}

coh_status coh_cuda_facts_of(const coh_cuda_driver *driver, coh_cuda_facts *out_facts)
{
    int version, count;
    *out_facts = (coh_cuda_facts){ 0 };
    COH_TRY(coh_cuda_check(driver, driver->cuDriverGetVersion(&version), "cuDriverGetVersion"));
    COH_TRY(coh_cuda_check(driver, driver->cuDeviceGetCount(&count), "cuDeviceGetCount"));
    out_facts->driver_version = version;
    out_facts->gpu_count = count;
    for (int i = 0; i < count && i < COH_CUDA_GPUS_MOST; i++)
        COH_TRY(read_gpu(driver, i, &out_facts->gpus[i]));
    return COH_OK;
}

/* Writes the GPU's PCI address, in lower case; the driver's own text is in upper case. */
static int find_address(const coh_cuda_driver *driver, int gpu, char *out_address)
{
    static const CUdevice_attribute names[] = { CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
                                                CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
                                                CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID };
    int numbers[3];
    for (int i = 0; i < 3; i++)
        if (driver->cuDeviceGetAttribute(&numbers[i], names[i], gpu) != CUDA_SUCCESS)
            return 0;
    snprintf(out_address, COH_NVML_ADDRESS_BYTES, "%04x:%02x:%02x.0", numbers[0] & 0xffffu,
             numbers[1] & 0xffu, numbers[2] & 0xffu);
    return 1;
}

int coh_cuda_near_node(const coh_cuda_driver *driver, int gpu, const char *root)
{
    char address[COH_NVML_ADDRESS_BYTES];
    int node = COH_NODE_ANY;
    if (driver->cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, gpu) ==
            CUDA_SUCCESS &&
        node >= 0)
        return node;
    return find_address(driver, gpu, address) ? coh_node_of_pci(root, address) : COH_NODE_ANY;
}

/* Sets near_node of each GPU. With a single memory node there is nothing to choose. */
static void find_near_nodes(const coh_cuda_driver *driver, coh_cuda_facts *facts)
{
    CUdevice gpu;
    coh_topology topology;
    if (coh_topology_read(&topology) != COH_OK || topology.node_count == 1)
        return;
    for (int i = 0; i < facts->gpu_count && i < COH_CUDA_GPUS_MOST; i++)
        if (driver->cuDeviceGet(&gpu, i) == CUDA_SUCCESS)
            facts->gpus[i].near_node = coh_cuda_near_node(driver, gpu, "");
}

uint64_t coh_cuda_free_bytes_of(const coh_cuda_driver *driver, int index)
{
    char address[32];
    CUdevice gpu;
    coh_nvml *nvml;
    if (driver->cuDeviceGet(&gpu, index) != CUDA_SUCCESS ||
        driver->cuDeviceGetPCIBusId(address, sizeof(address), gpu) != CUDA_SUCCESS ||
        coh_nvml_open(address, &nvml) != COH_OK)
        return UINT64_MAX;
    const uint64_t bytes = coh_nvml_free_bytes(nvml);
    coh_nvml_close(nvml);
    return bytes;
}

static void list_links(const char *address, coh_nvml_links *out_links)
{
    coh_nvml *nvml;
    if (coh_nvml_open(address, &nvml) != COH_OK)
        return;
    coh_nvml_list_links(nvml, out_links);
    coh_nvml_close(nvml);
}

coh_status coh_cuda_place_of(const coh_cuda_driver *driver, int index, coh_cuda_place *out_place)
{
    CUdevice gpu;
    *out_place = (coh_cuda_place){ .near_node = COH_NODE_ANY };
    COH_TRY(
        coh_cuda_check(driver, driver->cuDeviceGet(&gpu, index), "cuDeviceGet of GPU %d", index));
    out_place->near_node = coh_cuda_near_node(driver, gpu, "");
    if (find_address(driver, gpu, out_place->address))
        list_links(out_place->address, &out_place->links);
    return COH_OK;
}

coh_status coh_cuda_place_read(int index, coh_cuda_place *out_place)
{
    coh_cuda_driver *driver;
    COH_TRY(coh_cuda_driver_open(&driver));
    const coh_status status = coh_cuda_place_of(driver, index, out_place);
    coh_cuda_driver_close(driver);
    return status;
}

uint64_t coh_cuda_free_bytes(int index)
{
    coh_cuda_driver *driver;
    if (coh_cuda_driver_open(&driver) != COH_OK)
        return UINT64_MAX;
    const uint64_t bytes = coh_cuda_free_bytes_of(driver, index);
    coh_cuda_driver_close(driver);
    return bytes;
}

coh_status coh_cuda_facts_read(coh_cuda_facts *out_facts)
{
    coh_cuda_driver *driver;
    *out_facts = (coh_cuda_facts){ 0 };
    COH_TRY(coh_cuda_driver_open(&driver));
    const coh_status status = coh_cuda_facts_of(driver, out_facts);
    if (status == COH_OK)
        find_near_nodes(driver, out_facts);
    coh_cuda_driver_close(driver);
    return status;
}
