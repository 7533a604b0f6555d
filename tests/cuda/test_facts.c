/* The GPUs that a driver reports (memory/cuda_facts.h), with a made-up driver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/cuda_driver.h"
#include "memory/cuda_facts.h"
#include "memory/topology.h"
#include "tests/temporary.h"

static struct made_driver {
    int gpu_count, calls, fail_nth;
    int near_node; /* 0: not known; else 1 + its number */
} made;

static CUresult answer(void)
{
    made.calls++;
    return made.calls == made.fail_nth ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

static CUresult made_version(int *version)
{
    *version = 13010;
    return answer();
}

static CUresult made_count(int *count)
{
    *count = made.gpu_count;
    return answer();
}

/* A GPU's handle differs from its number. */
static CUresult made_device(CUdevice *device, int index)
{
    *device = 100 + index;
    return answer();
}

static CUresult made_name(char *name, int bytes, CUdevice device)
{
    snprintf(name, (size_t)bytes, "made %d", device - 100);
    return answer();
}

static CUresult made_memory(size_t *bytes, CUdevice device)
{
    *bytes = ((size_t)80 << 30) + (size_t)(device - 100);
    return answer();
}

static CUresult made_attribute(int *value, CUdevice_attribute name, CUdevice device)
{
    *value = name == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 8 + device - 100
             : name == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 6
             : name == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT     ? 108
             : name == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID             ? made.near_node - 1
             : name == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID            ? 0
             : name == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID               ? 0x1b
             : name == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID            ? 2
                                                                    : -1;
    return answer();
}

static CUresult made_address(char *address, int bytes, CUdevice device)
{
    snprintf(address, (size_t)bytes, "ffff:ff:%02x.0", (unsigned)device - 100);
    return answer();
}

static CUresult made_error_name(CUresult error, const char **name)
{
    *name = error == CUDA_ERROR_NOT_INITIALIZED ? "CUDA_ERROR_NOT_INITIALIZED" : "another";
    return CUDA_SUCCESS;
}

static const coh_cuda_driver driver = {
    .cuDriverGetVersion = made_version,
    .cuDeviceGetCount = made_count,
    .cuDeviceGet = made_device,
    .cuDeviceGetName = made_name,
    .cuDeviceTotalMem = made_memory,
    .cuDeviceGetAttribute = made_attribute,
    .cuDeviceGetPCIBusId = made_address,
    .cuGetErrorName = made_error_name,
    .cuGetErrorString = made_error_name,
};

static void each_gpu_is_described(void **state)
{
    (void)state;
    coh_cuda_facts facts;
    made = (struct made_driver){ .gpu_count = 2 };
    assert_int_equal(coh_cuda_facts_of(&driver, &facts), COH_OK);
    assert_int_equal(facts.driver_version, 13010);
    assert_int_equal(facts.gpu_count, 2);
    assert_string_equal(facts.gpus[1].name, "made 1");
    assert_true(facts.gpus[1].memory_bytes == ((uint64_t)80 << 30) + 1);
    assert_int_equal(facts.gpus[0].major, 8);
    assert_int_equal(facts.gpus[1].major, 9);
    assert_int_equal(facts.gpus[1].minor, 6);
    assert_int_equal(facts.gpus[1].multiprocessors, 108);
}

/* Free memory is read of the GPU that is asked for, and of no other. */
static void only_one_gpu_is_asked_for_its_free_memory(void **state)
{
    (void)state;
    made = (struct made_driver){ .gpu_count = 8 };
    assert_true(coh_cuda_free_bytes_of(&driver, 5) == UINT64_MAX); /* NVML knows no such address */
    assert_int_equal(made.calls, 2);
    made = (struct made_driver){ .gpu_count = 8, .fail_nth = 1 };
    assert_true(coh_cuda_free_bytes_of(&driver, 5) == UINT64_MAX);
    assert_int_equal(made.calls, 1);
}

static void more_gpus_than_there_is_room_for_are_counted(void **state)
{
    (void)state;
    coh_cuda_facts facts;
    made = (struct made_driver){ .gpu_count = COH_CUDA_GPUS_MOST + 4 };
    assert_int_equal(coh_cuda_facts_of(&driver, &facts), COH_OK);
    assert_int_equal(facts.gpu_count, COH_CUDA_GPUS_MOST + 4);
    assert_string_equal(facts.gpus[COH_CUDA_GPUS_MOST - 1].name, "made 15");
}

static void every_failing_call_is_named(void **state)
{
    (void)state;
    coh_cuda_facts facts;
    for (int n = 1;; n++) {
        made = (struct made_driver){ .gpu_count = 2, .fail_nth = n };
        const coh_status status = coh_cuda_facts_of(&driver, &facts);
        if (made.calls < n) {
            assert_int_equal(status, COH_OK);
            assert_int_equal(n, 2 + 2 * 6 + 1);
            break;
        }
        assert_int_equal(status, COH_ERR_DEVICE);
        assert_non_null(strstr(coh_last_error(), "CUDA_ERROR_NOT_INITIALIZED"));
        assert_memory_equal(coh_last_error(), "cuD", 3);
    }
}

/* The driver is asked first; if it does not know or fails, the system is asked. */
static void the_near_node_is_the_drivers_or_that_of_the_pci_address(void **state)
{
    (void)state;
    static const struct {
        int driver_says, fail_nth, node;
    } cases[] = {
        { 3, 0, 3 },                       /* the driver knows */
        { COH_NODE_ANY, 0, 5 },            /* it does not know */
        { 3, 1, 5 },                       /* it fails to answer */
        { COH_NODE_ANY, 3, COH_NODE_ANY }, /* nor does it know the address */
    };
    char root[256], path[320];
    assert_int_equal(temporary_folder(root, sizeof(root), "facts"), 0);
    made = (struct made_driver){ .gpu_count = 1 };
    assert_int_equal(coh_cuda_near_node(&driver, 100, root), COH_NODE_ANY);
    snprintf(path, sizeof(path), "mkdir -p %s/sys/bus/pci/devices/0000:1b:02.0", root);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/0000:1b:02.0/numa_node", root);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("5\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        made = (struct made_driver){ .gpu_count = 1,
                                     .near_node = 1 + cases[i].driver_says,
                                     .fail_nth = cases[i].fail_nth };
        assert_int_equal(coh_cuda_near_node(&driver, 100, root), cases[i].node);
    }
    snprintf(path, sizeof(path), "rm -rf %s", root);
    assert_int_equal(system(path), 0);
}

/* The address is NVML's: in lower case, and with the numbers that the driver gives. */
static void a_gpu_is_placed_by_its_node_and_address(void **state)
{
    (void)state;
    coh_cuda_place place;
    made = (struct made_driver){ .gpu_count = 2, .near_node = 1 + 3 };
    assert_int_equal(coh_cuda_place_of(&driver, 1, &place), COH_OK);
    assert_string_equal(place.address, "0000:1b:02.0");
    assert_int_equal(place.near_node, 3);
    assert_int_equal(place.links.count, 0); /* NVML knows no such address */
    made = (struct made_driver){ .gpu_count = 2, .fail_nth = 1 };
    assert_int_equal(coh_cuda_place_of(&driver, 1, &place), COH_ERR_DEVICE);
    assert_memory_equal(coh_last_error(), "cuDeviceGet of GPU 1", 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_gpu_is_described),
        cmocka_unit_test(only_one_gpu_is_asked_for_its_free_memory),
        cmocka_unit_test(more_gpus_than_there_is_room_for_are_counted),
        cmocka_unit_test(every_failing_call_is_named),
        cmocka_unit_test(the_near_node_is_the_drivers_or_that_of_the_pci_address),
        cmocka_unit_test(a_gpu_is_placed_by_its_node_and_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
