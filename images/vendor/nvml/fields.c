/* Field values: what monitoring reads many of in one call. */
#include "state.h"

#include <string.h>
#include <time.h>

enum scope { GPU, LINK, ALL_LINKS };

static const struct field {
    unsigned int id;
    enum scope scope; /* LINK: the field's scope is a link; ALL_LINKS: the sum over them */
    nvmlValueType_t type;
    const char *key;
} FIELDS[] = {
    {NVML_FI_DEV_ECC_CURRENT, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "ecc.mode"},
    {NVML_FI_DEV_ECC_PENDING, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "ecc.pending_mode"},
    {NVML_FI_DEV_ECC_SBE_VOL_TOTAL, GPU, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "ecc.volatile_corrected"},
    {NVML_FI_DEV_ECC_DBE_VOL_TOTAL, GPU, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "ecc.volatile_uncorrected"},
    {NVML_FI_DEV_ECC_SBE_AGG_TOTAL, GPU, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "ecc.aggregate_corrected"},
    {NVML_FI_DEV_ECC_DBE_AGG_TOTAL, GPU, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "ecc.aggregate_uncorrected"},
    {NVML_FI_DEV_RETIRED_SBE, GPU, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "retired.single_bit"},
    {NVML_FI_DEV_RETIRED_DBE, GPU, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "retired.double_bit"},
    {NVML_FI_DEV_RETIRED_PENDING, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "retired.pending"},
    {NVML_FI_DEV_REMAPPED_COR, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "remapped.correctable"},
    {NVML_FI_DEV_REMAPPED_UNC, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "remapped.uncorrectable"},
    {NVML_FI_DEV_REMAPPED_PENDING, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "remapped.pending"},
    {NVML_FI_DEV_REMAPPED_FAILURE, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "remapped.failure"},
    {NVML_FI_DEV_MEMORY_TEMP, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "memory.temperature_c"},
    {NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, GPU, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "energy_mj"},
    {NVML_FI_DEV_POWER_AVERAGE, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "power_mw"},
    {NVML_FI_DEV_POWER_INSTANT, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "power_mw"},
    {NVML_FI_DEV_POWER_MIN_LIMIT, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "power_min_limit_mw"},
    {NVML_FI_DEV_POWER_MAX_LIMIT, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "power_max_limit_mw"},
    {NVML_FI_DEV_POWER_DEFAULT_LIMIT, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "power_default_limit_mw"},
    {NVML_FI_DEV_POWER_CURRENT_LIMIT, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "power_limit_mw"},
    {NVML_FI_DEV_PCIE_REPLAY_COUNTER, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "pcie.replays"},
    {NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "recovery_action"},
    {NVML_FI_DEV_NVLINK_LINK_COUNT, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "nvlink.count"},
    {NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, GPU, NVML_VALUE_TYPE_UNSIGNED_INT, "nvlink.speed_mbps"},
    {NVML_FI_DEV_NVLINK_GET_STATE, LINK, NVML_VALUE_TYPE_UNSIGNED_INT, "state"},
    {NVML_FI_DEV_NVLINK_GET_SPEED, LINK, NVML_VALUE_TYPE_UNSIGNED_INT, "speed_mbps"},
    {NVML_FI_DEV_NVLINK_GET_VERSION, LINK, NVML_VALUE_TYPE_UNSIGNED_INT, "version"},
    {NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, LINK, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "replay_errors"},
    {NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY, LINK, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "recovery_errors"},
    {NVML_FI_DEV_NVLINK_ERROR_DL_CRC, LINK, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "crc_data_errors"},
    {NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, ALL_LINKS, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "crc_flit_errors"},
    {NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL, ALL_LINKS, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "crc_data_errors"},
    {NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, ALL_LINKS, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "replay_errors"},
    {NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, ALL_LINKS, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "recovery_errors"},
    {NVML_FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL, ALL_LINKS, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "ecc_data_errors"},
};

static nvmlReturn_t sum_of_links(int gpu, const char *key, unsigned long long *into)
{
    unsigned long long count, each;
    nvmlReturn_t status = number(gpu, "nvlink.count", &count);
    *into = 0;
    if (status == NVML_SUCCESS && count > NVML_NVLINK_MAX_LINKS)
        status = NVML_ERROR_UNKNOWN;
    for (unsigned int link = 0; status == NVML_SUCCESS && link < count; link++) {
        status = link_number(gpu, link, key, &each);
        *into += status == NVML_SUCCESS ? each : 0;
    }
    return status;
}

static nvmlReturn_t field(int gpu, nvmlFieldValue_t *value)
{
    unsigned long long found = 0;
    nvmlReturn_t status = NVML_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        const struct field *each = &FIELDS[i];
        if (each->id != value->fieldId)
            continue;
        value->valueType = each->type;
        switch (each->scope) {
        case GPU: status = number(gpu, each->key, &found); break;
        case LINK: status = link_number(gpu, value->scopeId, each->key, &found); break;
        case ALL_LINKS: status = sum_of_links(gpu, each->key, &found); break;
        }
        if (status == NVML_SUCCESS && each->type == NVML_VALUE_TYPE_UNSIGNED_INT && found > 0xffffffffULL)
            status = NVML_ERROR_UNKNOWN;
        break;
    }
    memset(&value->value, 0, sizeof value->value);
    if (status == NVML_SUCCESS)
        value->value.ullVal = found; /* the narrower members share its low bytes */
    return status;
}

API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    int gpu;
    struct timespec now;
    if (!values || count < 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = enter_gpu(device, &gpu);
    if (status != NVML_SUCCESS)
        return status;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; i++) {
        values[i].timestamp = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
        values[i].latencyUsec = 0;
        values[i].nvmlReturn = field(gpu, &values[i]);
    }
    return leave(NVML_SUCCESS);
}
