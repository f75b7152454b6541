/* Xid events. A GPU's `xid` is an event that has happened once: a set reports it once, and again when `xid` or
 * `xid.sequence` changes. */
#include "state.h"

#include <stdlib.h>
#include <time.h>

struct nvmlEventSet_st {
    struct watched {
        unsigned long long types, xid, sequence;
    } gpus[MOST_GPUS];
};

enum { POLL_MS = 10 };

API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *into)
{
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = enter();
    if (status != NVML_SUCCESS)
        return status;
    *into = calloc(1, sizeof **into);
    return leave(*into ? NVML_SUCCESS : NVML_ERROR_MEMORY);
}

API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    free(set);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *into)
{
    int gpu;
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = enter_gpu(device, &gpu);
    if (status != NVML_SUCCESS)
        return status;
    *into = nvmlEventTypeXidCriticalError;
    return leave(NVML_SUCCESS);
}

API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
    int gpu;
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = enter_gpu(device, &gpu);
    if (status != NVML_SUCCESS)
        return status;
    if (types & ~(unsigned long long)nvmlEventTypeXidCriticalError)
        return leave(NVML_ERROR_NOT_SUPPORTED);
    set->gpus[gpu].types |= types;
    return leave(NVML_SUCCESS);
}

/* NVML_ERROR_TIMEOUT where nothing new has happened. A GPU that was lost still tells its last Xid. */
static nvmlReturn_t pending(nvmlEventSet_t set, nvmlEventData_t *data)
{
    nvmlReturn_t status = enter();
    if (status != NVML_SUCCESS)
        return status;
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) {
        struct watched *each = &set->gpus[gpu];
        unsigned long long xid, sequence = 0;
        if (!each->types)
            continue;
        status = number(gpu, "xid", &xid);
        if (status == NVML_ERROR_NOT_SUPPORTED)
            continue;
        if (status == NVML_SUCCESS)
            status = number(gpu, "xid.sequence", &sequence);
        if (status != NVML_SUCCESS && status != NVML_ERROR_NOT_SUPPORTED)
            return leave(status);
        if (xid == each->xid && sequence == each->sequence)
            continue;
        each->xid = xid;
        each->sequence = sequence;
        if (!xid)
            continue;
        *data = (nvmlEventData_t){handle(gpu), nvmlEventTypeXidCriticalError, xid, 0xffffffff, 0xffffffff};
        return leave(NVML_SUCCESS);
    }
    return leave(NVML_ERROR_TIMEOUT);
}

API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    if (!set || !data)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int waited = 0;; waited += POLL_MS) {
        nvmlReturn_t status = pending(set, data);
        if (status != NVML_ERROR_TIMEOUT || waited >= timeout_ms)
            return status;
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    }
}

API nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    return nvmlEventSetWait_v2(set, data, timeout_ms);
}
