/* Starting, errors, the node's own facts, and how GPUs are found. */
#include "state.h"

#include <stdio.h>
#include <string.h>

/* What tells our code, and nobody else, that nothing behind this library is hardware. */
API int musterSimulated(void)
{
    return 1;
}

API nvmlReturn_t nvmlInit_v2(void)
{
    return open_state();
}

API nvmlReturn_t nvmlInit(void)
{
    return open_state();
}

API nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return open_state();
}

API nvmlReturn_t nvmlShutdown(void)
{
    return close_state();
}

API const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS: return "Success (simulated)";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}

static nvmlReturn_t version(const char *what, char *into, unsigned int length)
{
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = enter();
    return status != NVML_SUCCESS ? status : leave(copy(what, into, length));
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *into, unsigned int length)
{
    return version(DRIVER_VERSION, into, length);
}

API nvmlReturn_t nvmlSystemGetNVMLVersion(char *into, unsigned int length)
{
    return version(NVML_API_VERSION_STR "." DRIVER_VERSION, into, length);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *into)
{
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    *into = CUDA_VERSION;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *into)
{
    return nvmlSystemGetCudaDriverVersion(into);
}

static nvmlReturn_t counted(unsigned long long *count)
{
    nvmlReturn_t status = number(SYSTEM, "gpus", count);
    return status == NVML_SUCCESS && *count > MOST_GPUS ? NVML_ERROR_UNKNOWN : status;
}

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *into)
{
    unsigned long long count;
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = enter();
    if (status != NVML_SUCCESS)
        return status;
    status = counted(&count);
    if (status == NVML_SUCCESS)
        *into = (unsigned int)count;
    return leave(status);
}

API nvmlReturn_t nvmlDeviceGetCount(unsigned int *into)
{
    return nvmlDeviceGetCount_v2(into);
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *into)
{
    unsigned long long count;
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = enter();
    if (status != NVML_SUCCESS)
        return status;
    status = counted(&count);
    if (status == NVML_SUCCESS && index >= count)
        status = NVML_ERROR_INVALID_ARGUMENT;
    if (status == NVML_SUCCESS)
        *into = handle((int)index);
    return leave(status);
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *into)
{
    return nvmlDeviceGetHandleByIndex_v2(index, into);
}

static nvmlReturn_t handle_by(const char *key, const char *wanted, nvmlDevice_t *into)
{
    unsigned long long count;
    if (!wanted || !into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = enter();
    if (status != NVML_SUCCESS)
        return status;
    status = counted(&count);
    if (status != NVML_SUCCESS)
        return leave(status);
    for (int gpu = 0; gpu < (int)count; gpu++) {
        const char *found = text(gpu, key);
        if (found && strcmp(found, wanted) == 0) {
            *into = handle(gpu);
            return leave(NVML_SUCCESS);
        }
    }
    return leave(NVML_ERROR_NOT_FOUND);
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *into)
{
    return handle_by("uuid", uuid, into);
}

API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *into)
{
    return handle_by("serial", serial, into);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *into)
{
    unsigned int domain, number, device;
    char rest, canonical[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
    if (!bus || sscanf(bus, "%8x:%2x:%2x.0%c", &domain, &number, &device, &rest) != 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(canonical, sizeof canonical, "%08X:%02X:%02X.0", domain, number, device);
    return handle_by("pci.bus_id", canonical, into);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus, nvmlDevice_t *into)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus, into);
}
