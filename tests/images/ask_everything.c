/* Puts every question to the simulated NVML over each state file that is named: for sanitizers, not for answers. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t, nvmlPageRetirementCause_t, unsigned int *, unsigned long long *);

static void ask(nvmlDevice_t gpu)
{
    char text[96], little[4];
    unsigned int a, b, c, d;
    unsigned long long wide, pages[4];
    nvmlPciInfo_t pci;
    nvmlMemory_t memory;
    nvmlMemory_v2_t memory_v2 = {.version = nvmlMemory_v2};
    nvmlTemperature_t temperature = {.version = nvmlTemperature_v1};
    nvmlGpuFabricInfo_t fabric;
    nvmlGpuFabricInfoV_t fabric_v = {.version = nvmlGpuFabricInfo_v3};
    nvmlRowRemapperHistogramValues_t rows;
    nvmlUtilization_t use;
    nvmlEnableState_t on, pending;
    nvmlIntNvLinkDeviceType_t type;
    nvmlEventSet_t set;
    nvmlEventData_t event;
    nvmlFieldValue_t fields[300] = {0};
    nvmlDeviceGetName(gpu, text, sizeof text);
    nvmlDeviceGetName(gpu, little, sizeof little);
    nvmlDeviceGetName(gpu, NULL, 0);
    nvmlDeviceGetUUID(gpu, text, sizeof text);
    nvmlDeviceGetHandleByUUID(text, &gpu);
    nvmlDeviceGetGspFirmwareVersion(gpu, text);
    nvmlDeviceGetPciInfo_v3(gpu, &pci);
    nvmlDeviceGetMemoryInfo(gpu, &memory);
    nvmlDeviceGetMemoryInfo_v2(gpu, &memory_v2);
    nvmlDeviceGetTemperatureV(gpu, &temperature);
    nvmlDeviceGetEccMode(gpu, &on, &pending);
    nvmlDeviceGetRemappedRows(gpu, &a, &b, &c, &d);
    nvmlDeviceGetRemappedRows(gpu, &a, NULL, &c, &d);
    nvmlDeviceGetRowRemapperHistogram(gpu, &rows);
    nvmlDeviceGetUtilizationRates(gpu, &use);
    nvmlDeviceGetGpuFabricInfo(gpu, &fabric);
    nvmlDeviceGetGpuFabricInfoV(gpu, &fabric_v);
    for (unsigned int i = 0; i < 40; i++) {
        nvmlDeviceGetNvLinkState(gpu, i, &on);
        nvmlDeviceGetNvLinkErrorCounter(gpu, i, i, &wide);
        nvmlDeviceGetNvLinkRemotePciInfo_v2(gpu, i, &pci);
        nvmlDeviceGetNvLinkRemoteDeviceType(gpu, i, &type);
        nvmlDeviceGetClockInfo(gpu, i, &a);
        nvmlDeviceGetTotalEccErrors(gpu, i, i, &wide);
        nvmlDeviceGetTemperatureThreshold(gpu, i, &a);
        a = 4;
        nvmlDeviceGetRetiredPages(gpu, i, &a, pages);
    }
    for (unsigned int i = 0; i < 300; i++)
        fields[i].fieldId = i;
    nvmlDeviceGetFieldValues(gpu, 300, fields);
    if (nvmlEventSetCreate(&set) == NVML_SUCCESS) {
        nvmlDeviceRegisterEvents(gpu, nvmlEventTypeXidCriticalError, set);
        nvmlEventSetWait_v2(set, &event, 0);
        nvmlEventSetFree(set);
    }
}

int main(int argc, char **argv)
{
    const char *now = getenv("MUSTER_SIMULATED_GPUS");
    nvmlDevice_t gpu;
    unsigned int count;
    for (int i = 1; i < argc; i++) {
        unlink(now);
        if (link(argv[i], now) != 0)
            return 2;
        if (nvmlInit_v2() != NVML_SUCCESS)
            continue;
        if (nvmlDeviceGetCount_v2(&count) == NVML_SUCCESS)
            for (unsigned int each = 0; each < count; each++)
                if (nvmlDeviceGetHandleByIndex_v2(each, &gpu) == NVML_SUCCESS)
                    ask(gpu);
        ask(NULL);
        ask((nvmlDevice_t)now);
        nvmlShutdown();
    }
    printf("%d state files\n", argc - 1);
    return 0;
}
