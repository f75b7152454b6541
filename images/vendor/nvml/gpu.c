/* One GPU's facts. Each getter names the key it reads: state.h says what becomes of a missing or broken one. */
#include "state.h"

#include <stdio.h>
#include <string.h>

#define NUMBER(function, key, type)                                                                                    \
    API nvmlReturn_t function(nvmlDevice_t device, type *into)                                                         \
    {                                                                                                                  \
        return READ(device, FACT(key, into));                                                                          \
    }
#define TEXT(function, key)                                                                                            \
    API nvmlReturn_t function(nvmlDevice_t device, char *into, unsigned int length)                                    \
    {                                                                                                                  \
        return read_text(device, key, into, length);                                                                   \
    }
#define PAIR(function, first_key, second_key, type)                                                                    \
    API nvmlReturn_t function(nvmlDevice_t device, type *first, type *second)                                          \
    {                                                                                                                  \
        return READ(device, FACT(first_key, first), FACT(second_key, second));                                         \
    }

/* -- identity ------------------------------------------------------------------------------------------------------ */

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetBoardPartNumber, "board_part_number")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom")
NUMBER(nvmlDeviceGetMinorNumber, "minor", unsigned int)
NUMBER(nvmlDeviceGetArchitecture, "architecture", nvmlDeviceArchitecture_t)
NUMBER(nvmlDeviceGetBrand, "brand", nvmlBrandType_t)
NUMBER(nvmlDeviceGetNumGpuCores, "cores", unsigned int)

API nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *into)
{
    return read_text(device, "gsp_firmware", into, NVML_GSP_FIRMWARE_VERSION_BUF_SIZE);
}

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *into)
{
    int gpu;
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = enter_gpu(device, &gpu);
    if (status != NVML_SUCCESS)
        return status;
    *into = (unsigned int)gpu;
    return leave(NVML_SUCCESS);
}

API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    return READ(device, FACT("compute_capability.major", major), FACT("compute_capability.minor", minor));
}

/* -- PCI Express --------------------------------------------------------------------------------------------------- */

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *into)
{
    int gpu;
    char rest;
    nvmlPciInfo_t found = {0};
    unsigned long long chip, board;
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = enter_gpu(device, &gpu);
    if (status != NVML_SUCCESS)
        return status;
    status = copy(text(gpu, "pci.bus_id"), found.busId, sizeof found.busId);
    if (status == NVML_SUCCESS)
        status = number(gpu, "pci.device_id", &chip);
    if (status == NVML_SUCCESS)
        status = number(gpu, "pci.subsystem_id", &board);
    if (status == NVML_SUCCESS &&
        sscanf(found.busId, "%8x:%2x:%2x.0%c", &found.domain, &found.bus, &found.device, &rest) != 3)
        status = NVML_ERROR_UNKNOWN;
    if (status == NVML_SUCCESS) {
        snprintf(found.busIdLegacy, sizeof found.busIdLegacy, "%04X:%02X:%02X.0", found.domain & 0xffff,
                 found.bus & 0xff, found.device & 0xff);
        found.pciDeviceId = (unsigned int)chip;
        found.pciSubSystemId = (unsigned int)board;
        *into = found;
    }
    return leave(status);
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *into)
{
    return nvmlDeviceGetPciInfo_v3(device, into);
}

API nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *into)
{
    return nvmlDeviceGetPciInfo_v3(device, into);
}

NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.generation", unsigned int)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width", unsigned int)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.max_generation", unsigned int)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie.max_generation", unsigned int)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie.max_width", unsigned int)
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie.replays", unsigned int)

/* -- temperature, power, clocks ------------------------------------------------------------------------------------ */

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *into)
{
    return sensor == NVML_TEMPERATURE_GPU ? READ(device, FACT("temperature_c", into)) : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *into)
{
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (into->version != nvmlTemperature_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return into->sensorType == NVML_TEMPERATURE_GPU ? READ(device, FACT("temperature_c", &into->temperature))
                                                    : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t of,
                                                   unsigned int *into)
{
    switch (of) {
    case NVML_TEMPERATURE_THRESHOLD_SHUTDOWN: return READ(device, FACT("temperature_shutdown_c", into));
    case NVML_TEMPERATURE_THRESHOLD_SLOWDOWN: return READ(device, FACT("temperature_slowdown_c", into));
    case NVML_TEMPERATURE_THRESHOLD_MEM_MAX: return READ(device, FACT("temperature_memory_max_c", into));
    case NVML_TEMPERATURE_THRESHOLD_GPU_MAX: return READ(device, FACT("temperature_max_c", into));
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
}

NUMBER(nvmlDeviceGetPowerUsage, "power_mw", unsigned int)
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit_mw", unsigned int)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw", unsigned int)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_default_limit_mw", unsigned int)
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, "power_min_limit_mw", "power_max_limit_mw", unsigned int)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, "energy_mj", unsigned long long)
NUMBER(nvmlDeviceGetPerformanceState, "performance_state", nvmlPstates_t)
NUMBER(nvmlDeviceGetPowerState, "performance_state", nvmlPstates_t)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, "throttle_reasons", unsigned long long)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, "throttle_reasons", unsigned long long)

static nvmlReturn_t clock_mhz(nvmlDevice_t device, nvmlClockType_t type, const char *const keys[], unsigned int *into)
{
    return (unsigned int)type < NVML_CLOCK_COUNT ? READ(device, FACT(keys[type], into)) : NVML_ERROR_INVALID_ARGUMENT;
}

static const char *const NOW[] = {"clocks.graphics_mhz", "clocks.sm_mhz", "clocks.memory_mhz", "clocks.video_mhz"};
static const char *const MAX[] = {"clocks.max_graphics_mhz", "clocks.max_sm_mhz", "clocks.max_memory_mhz",
                                  "clocks.max_video_mhz"};

API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *into)
{
    return clock_mhz(device, type, NOW, into);
}

API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *into)
{
    return clock_mhz(device, type, MAX, into);
}

/* -- memory and its errors ----------------------------------------------------------------------------------------- */

static nvmlReturn_t memory(nvmlDevice_t device, nvmlMemory_v2_t *into)
{
    unsigned long long total, used, reserved;
    nvmlReturn_t status = READ(device, FACT("memory.total_mib", &total), FACT("memory.used_mib", &used),
                               FACT("memory.reserved_mib", &reserved));
    if (status != NVML_SUCCESS)
        return status;
    if (total > 1 << 30 || used + reserved > total)
        return NVML_ERROR_UNKNOWN;
    into->total = total << 20;
    into->used = used << 20;
    into->reserved = reserved << 20;
    into->free = into->total - into->used - into->reserved;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *into)
{
    nvmlMemory_v2_t found;
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = memory(device, &found);
    if (status == NVML_SUCCESS)
        *into = (nvmlMemory_t){.total = found.total, .free = found.free, .used = found.used + found.reserved};
    return status;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *into)
{
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    return into->version == nvmlMemory_v2 ? memory(device, into) : NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}

PAIR(nvmlDeviceGetEccMode, "ecc.mode", "ecc.pending_mode", nvmlEnableState_t)
NUMBER(nvmlDeviceGetDefaultEccMode, "ecc.default_mode", nvmlEnableState_t)

static const char *ecc_key(nvmlMemoryErrorType_t type, nvmlEccCounterType_t since)
{
    static const char *const keys[2][2] = {{"ecc.volatile_corrected", "ecc.aggregate_corrected"},
                                           {"ecc.volatile_uncorrected", "ecc.aggregate_uncorrected"}};
    return (unsigned int)type < 2 && (unsigned int)since < 2 ? keys[type][since] : NULL;
}

/* Counters exist while ECC is on, as on hardware: off is "not supported", not zero. */
static nvmlReturn_t ecc_errors(nvmlDevice_t device, const char *key, unsigned long long *into)
{
    unsigned int on;
    unsigned long long found;
    if (!key || !into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = READ(device, FACT("ecc.mode", &on), FACT(key, &found));
    if (status == NVML_SUCCESS && !on)
        status = NVML_ERROR_NOT_SUPPORTED;
    if (status == NVML_SUCCESS)
        *into = found;
    return status;
}

API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                             nvmlEccCounterType_t since, unsigned long long *into)
{
    return ecc_errors(device, ecc_key(type, since), into);
}

/* All simulated errors are of the GPU's DRAM. */
API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                                 nvmlEccCounterType_t since, nvmlMemoryLocation_t where,
                                                 unsigned long long *into)
{
    return where == NVML_MEMORY_LOCATION_DRAM ? ecc_errors(device, ecc_key(type, since), into)
                                              : NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable,
                                           unsigned int *pending, unsigned int *failed)
{
    return READ(device, FACT("remapped.correctable", correctable), FACT("remapped.uncorrectable", uncorrectable),
                FACT("remapped.pending", pending), FACT("remapped.failure", failed));
}

API nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *into)
{
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    return READ(device, FACT("remapped.banks_max", &into->max), FACT("remapped.banks_high", &into->high),
                FACT("remapped.banks_partial", &into->partial), FACT("remapped.banks_low", &into->low),
                FACT("remapped.banks_none", &into->none));
}

NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired.pending", nvmlEnableState_t)

/* Retired pages are counted, and have made-up addresses: page N is at N × 64 KiB. */
API nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count,
                                           unsigned long long *addresses)
{
    unsigned int pages;
    if (!count || (unsigned int)cause >= NVML_PAGE_RETIREMENT_CAUSE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = cause == NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR
                              ? READ(device, FACT("retired.double_bit", &pages))
                              : READ(device, FACT("retired.single_bit", &pages));
    if (status != NVML_SUCCESS)
        return status;
    unsigned int room = *count;
    *count = pages;
    if (pages > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; addresses && i < pages; i++)
        addresses[i] = (unsigned long long)i << 16;
    return NVML_SUCCESS;
}

/* -- modes and use ------------------------------------------------------------------------------------------------- */

NUMBER(nvmlDeviceGetPersistenceMode, "persistence", nvmlEnableState_t)
NUMBER(nvmlDeviceGetComputeMode, "compute_mode", nvmlComputeMode_t)
PAIR(nvmlDeviceGetMigMode, "mig.mode", "mig.pending_mode", unsigned int)

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *into)
{
    if (!into)
        return NVML_ERROR_INVALID_ARGUMENT;
    return READ(device, FACT("utilisation.gpu", &into->gpu), FACT("utilisation.memory", &into->memory));
}

/* Nothing can run on a simulated GPU. */
static nvmlReturn_t no_process(nvmlDevice_t device, unsigned int *count)
{
    unsigned int index;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = nvmlDeviceGetIndex(device, &index);
    if (status == NVML_SUCCESS)
        *count = 0;
    return status;
}

#define PROCESSES(function)                                                                                            \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)                      \
    {                                                                                                                  \
        (void)infos;                                                                                                   \
        return no_process(device, count);                                                                              \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)
