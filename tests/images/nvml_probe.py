"""Answers questions put to pynvml, one JSON line each: run as a process of its own, so that a crash is only its own."""

import ctypes
import json
import sys
from typing import Any

import pynvml

FABRIC_INFO = {
    "nvmlDeviceGetGpuFabricInfo": pynvml.c_nvmlGpuFabricInfo_t,
    "nvmlDeviceGetGpuFabricInfoV2": pynvml.c_nvmlGpuFabricInfo_v2_t,
    "nvmlDeviceGetGpuFabricInfoV3": pynvml.c_nvmlGpuFabricInfo_v3_t,
}
event_set: Any = None


def plain(value: Any) -> Any:
    """What JSON can carry."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, ctypes.Union):
        return value.ullVal
    if isinstance(value, ctypes.Structure):
        return {field[0]: plain(getattr(value, field[0])) for field in value._fields_}
    if isinstance(value, ctypes.Array):
        return [plain(each) for each in value]
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, ctypes._Pointer):
        return None
    return value


def answer(name: str, gpu: int | None, arguments: list[Any]) -> Any:
    """Calls one function."""
    global event_set
    if name == "watch":
        event_set = pynvml.nvmlEventSetCreate()
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, event_set)
        return None
    if name == "wait":
        event = pynvml.nvmlEventSetWait_v2(event_set, arguments[0])
        return [pynvml.nvmlDeviceGetIndex(event.device), event.eventType, event.eventData]
    if name == "unwatch":
        return pynvml.nvmlEventSetFree(event_set)
    if name == "musterSimulated":
        return pynvml.nvmlLib.musterSimulated()
    if name == "exported":
        return [each for each in arguments if hasattr(pynvml.nvmlLib, each)]
    if gpu is not None:
        arguments = [pynvml.nvmlDeviceGetHandleByIndex(gpu), *arguments]
    if name in FABRIC_INFO:
        found = FABRIC_INFO[name]()
        getattr(pynvml, name.rstrip("23"))(*arguments, ctypes.byref(found))
        return found
    return getattr(pynvml, name)(*arguments)


for line in sys.stdin:
    question = json.loads(line)
    try:
        reply = {"value": plain(answer(question["name"], question["gpu"], question["arguments"]))}
    except pynvml.NVMLError as error:
        reply = {"error": error.value}
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
