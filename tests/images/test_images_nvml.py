"""The simulated NVML answers what its state file says, and never anything else. Asked through pynvml."""

import random
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from images.store import Builder, BuildError
from images.vendor.nvml import SOURCE, functions

NOT_SUPPORTED, NOT_FOUND, DRIVER_NOT_LOADED, TIMEOUT, LOST, MISMATCH, UNKNOWN = (
    f"error {code}" for code in (3, 6, 9, 10, 15, 18, 999)
)
MIB = 1 << 20

# function, its arguments, the key whose absence makes it unsupported, its answer on a healthy GPU 3
GETTERS: list[tuple[str, tuple[Any, ...], str, Any]] = [
    ("nvmlDeviceGetName", (), "name", "NVIDIA H100 80GB HBM3"),
    ("nvmlDeviceGetMinorNumber", (), "minor", 3),
    ("nvmlDeviceGetArchitecture", (), "architecture", 9),
    ("nvmlDeviceGetNumGpuCores", (), "cores", 16896),
    ("nvmlDeviceGetCudaComputeCapability", (), "compute_capability.major", [9, 0]),
    ("nvmlDeviceGetCurrPcieLinkGeneration", (), "pcie.generation", 5),
    ("nvmlDeviceGetMaxPcieLinkGeneration", (), "pcie.max_generation", 5),
    ("nvmlDeviceGetCurrPcieLinkWidth", (), "pcie.width", 16),
    ("nvmlDeviceGetMaxPcieLinkWidth", (), "pcie.max_width", 16),
    ("nvmlDeviceGetPcieReplayCounter", (), "pcie.replays", 0),
    ("nvmlDeviceGetTemperature", (0,), "temperature_c", 31),
    ("nvmlDeviceGetTemperatureV", (0,), "temperature_c", 31),
    ("nvmlDeviceGetTemperatureThreshold", (0,), "temperature_shutdown_c", 92),
    ("nvmlDeviceGetTemperatureThreshold", (1,), "temperature_slowdown_c", 89),
    ("nvmlDeviceGetPowerUsage", (), "power_mw", 71_000),
    ("nvmlDeviceGetPowerManagementLimit", (), "power_limit_mw", 700_000),
    ("nvmlDeviceGetEnforcedPowerLimit", (), "power_limit_mw", 700_000),
    ("nvmlDeviceGetPowerManagementDefaultLimit", (), "power_default_limit_mw", 700_000),
    ("nvmlDeviceGetPowerManagementLimitConstraints", (), "power_min_limit_mw", [200_000, 700_000]),
    ("nvmlDeviceGetTotalEnergyConsumption", (), "energy_mj", 0),
    ("nvmlDeviceGetPerformanceState", (), "performance_state", 0),
    ("nvmlDeviceGetCurrentClocksThrottleReasons", (), "throttle_reasons", 1),
    ("nvmlDeviceGetCurrentClocksEventReasons", (), "throttle_reasons", 1),
    ("nvmlDeviceGetClockInfo", (1,), "clocks.sm_mhz", 345),
    ("nvmlDeviceGetMaxClockInfo", (2,), "clocks.max_memory_mhz", 2619),
    ("nvmlDeviceGetMemoryInfo", (), "memory.total_mib",
     {"total": 81559 * MIB, "free": 81029 * MIB, "used": 530 * MIB}),
    ("nvmlDeviceGetMemoryInfo", (0x02000028,), "memory.reserved_mib",
     {"version": 0x02000028, "total": 81559 * MIB, "reserved": 530 * MIB, "free": 81029 * MIB, "used": 0}),
    ("nvmlDeviceGetEccMode", (), "ecc.mode", [1, 1]),
    ("nvmlDeviceGetDefaultEccMode", (), "ecc.default_mode", [1]),
    ("nvmlDeviceGetTotalEccErrors", (0, 0), "ecc.volatile_corrected", 0),
    ("nvmlDeviceGetTotalEccErrors", (1, 0), "ecc.volatile_uncorrected", 0),
    ("nvmlDeviceGetTotalEccErrors", (0, 1), "ecc.aggregate_corrected", 0),
    ("nvmlDeviceGetTotalEccErrors", (1, 1), "ecc.aggregate_uncorrected", 0),
    ("nvmlDeviceGetTotalEccErrors", (1, 0), "ecc.mode", 0),
    ("nvmlDeviceGetMemoryErrorCounter", (1, 0, 2), "ecc.volatile_uncorrected", 0),
    ("nvmlDeviceGetRemappedRows", (), "remapped.failure", [0, 0, 0, 0]),
    ("nvmlDeviceGetRowRemapperHistogram", (), "remapped.banks_max",
     {"max": 2560, "high": 0, "partial": 0, "low": 0, "none": 0}),
    ("nvmlDeviceGetPersistenceMode", (), "persistence", 0),
    ("nvmlDeviceGetComputeMode", (), "compute_mode", 0),
    ("nvmlDeviceGetMigMode", (), "mig.mode", [0, 0]),
    ("nvmlDeviceGetUtilizationRates", (), "utilisation.gpu", {"gpu": 0, "memory": 0}),
    ("nvmlDeviceGetNvLinkState", (17,), "nvlink.state", 1),
    ("nvmlDeviceGetNvLinkState", (17,), "nvlink.count", 1),
    ("nvmlDeviceGetNvLinkVersion", (0,), "nvlink.version", 4),
    ("nvmlDeviceGetNvLinkErrorCounter", (0, 0), "nvlink.replay_errors", 0),
    ("nvmlDeviceGetNvLinkErrorCounter", (0, 3), "nvlink.crc_data_errors", 0),
    ("nvmlDeviceGetNvLinkRemoteDeviceType", (0,), "nvlink.remote_type", 2),
]  # fmt: skip


def without(text: str, key: str) -> str:
    """The state file without a key, in every section."""
    found, times = re.subn(rf"^{re.escape(key)} = .*\n", "", text, flags=re.MULTILINE)
    assert times, f"no {key} in the state file"
    return found


def with_fault(text: str, gpu: int, **facts: Any) -> str:
    """The state file with facts of one GPU changed; `__` in a name is a dot."""
    return text.replace(
        f"[gpu {gpu}]\n", f"[gpu {gpu}]\n" + "".join(f"{key.replace('__', '.')} = {facts[key]}\n" for key in facts)
    )


@pytest.mark.parametrize(("name", "arguments", "key", "answer"), GETTERS)
def test_a_getter_gives_the_fact_and_without_the_fact_it_is_unsupported(nvml, healthy, name, arguments, key, answer):
    assert nvml.ask(name, *arguments, gpu=3) == answer
    nvml.write(without(healthy, key))
    assert nvml.ask(name, *arguments, gpu=3) == NOT_SUPPORTED


def test_a_fact_that_is_no_number_is_an_error_and_not_a_number(nvml, healthy):
    for value in ("banana", "-1", "1.5", "12 apples", "0x", "99999999999999999999999", str(1 << 32), "@/etc", "@"):
        nvml.write(without(healthy, "power_mw").replace("[gpu]\n", f"[gpu]\npower_mw = {value}\n"))
        assert nvml.ask("nvmlDeviceGetPowerUsage", gpu=0) == UNKNOWN, value


def test_the_versions_are_those_of_the_installed_library(nvml):
    assert nvml.ask("nvmlSystemGetDriverVersion") == "580.95.05"
    assert nvml.ask("nvmlSystemGetNVMLVersion") == "13.580.95.05"
    assert nvml.ask("nvmlSystemGetCudaDriverVersion") == 13000
    assert nvml.ask("nvmlSystemGetCudaDriverVersion_v2") == 13000


def test_the_library_says_that_it_is_simulated(nvml):
    assert nvml.ask("musterSimulated") == 1


def test_every_function_of_the_header_is_exported_and_so_are_the_old_names(nvml, nvml_header):
    names = functions((nvml_header / "nvml.h").read_text())
    assert len(names) > 400
    assert nvml.ask("exported", *names) == names
    assert nvml.ask("exported", "nvmlErrorString", "nvmlInternalGetExportTable") == ["nvmlErrorString"]


def test_what_is_not_simulated_is_unsupported(nvml):
    assert nvml.ask("nvmlDeviceGetFanSpeed", gpu=0) == NOT_SUPPORTED
    assert nvml.ask("nvmlDeviceGetEncoderUtilization", gpu=0) == NOT_SUPPORTED
    assert nvml.ask("nvmlDeviceSetPersistenceMode", 1, gpu=0) == NOT_SUPPORTED


def test_each_gpu_has_an_identity_and_is_found_by_it(nvml):
    assert nvml.ask("nvmlDeviceGetCount") == 8
    seen = set()
    for gpu in range(8):
        uuid = nvml.ask("nvmlDeviceGetUUID", gpu=gpu)
        serial = nvml.ask("nvmlDeviceGetSerial", gpu=gpu)
        pci = nvml.ask("nvmlDeviceGetPciInfo", gpu=gpu)
        assert nvml.ask("nvmlDeviceGetIndex", gpu=gpu) == gpu
        assert pci["pciDeviceId"] == 0x233010DE
        assert pci["busId"] == f"00000000:{pci['bus']:02X}:00.0"
        assert pci["busIdLegacy"] == f"0000:{pci['bus']:02X}:00.0"
        seen |= {uuid, serial, pci["busId"]}
        for name, by in (("UUID", uuid), ("Serial", serial), ("PciBusId", pci["busId"].lower())):
            assert "error" not in str(nvml.ask(f"nvmlDeviceGetHandleBy{name}", by))
    assert len(seen) == 24
    assert nvml.ask("nvmlDeviceGetHandleByUUID", "GPU-00000000-0000-4000-8000-000000000000") == NOT_FOUND
    assert nvml.ask("nvmlDeviceGetHandleByIndex", 8) == "error 2"


def test_a_fault_appears_on_its_gpu_only_and_on_the_next_call(nvml, healthy):
    nvml.write(with_fault(healthy, 5, ecc__volatile_uncorrected=2, remapped__pending=1, throttle_reasons="0x48"))
    errors = [nvml.ask("nvmlDeviceGetTotalEccErrors", 1, 0, gpu=gpu) for gpu in range(8)]
    assert errors == [0, 0, 0, 0, 0, 2, 0, 0]
    assert nvml.ask("nvmlDeviceGetRemappedRows", gpu=5) == [0, 0, 1, 0]
    assert nvml.ask("nvmlDeviceGetCurrentClocksEventReasons", gpu=5) == 0x48
    nvml.write(healthy)
    assert nvml.ask("nvmlDeviceGetTotalEccErrors", 1, 0, gpu=5) == 0


def test_counters_of_a_gpu_without_ecc_are_unsupported_and_not_zero(nvml, healthy):
    nvml.write(with_fault(healthy, 2, ecc__mode=0))
    assert nvml.ask("nvmlDeviceGetEccMode", gpu=2) == [0, 1]
    assert nvml.ask("nvmlDeviceGetTotalEccErrors", 1, 0, gpu=2) == NOT_SUPPORTED
    assert nvml.ask("nvmlDeviceGetTotalEccErrors", 1, 0, gpu=1) == 0


def test_one_link_can_fail_alone(nvml, healthy):
    nvml.write(with_fault(healthy, 0, nvlink__7__state=0, nvlink__7__crc_flit_errors=41))
    assert [nvml.ask("nvmlDeviceGetNvLinkState", link, gpu=0) for link in range(18)].count(1) == 17
    assert nvml.ask("nvmlDeviceGetNvLinkState", 7, gpu=0) == 0
    assert nvml.ask("nvmlDeviceGetNvLinkErrorCounter", 7, 2, gpu=0) == 41
    assert nvml.ask("nvmlDeviceGetNvLinkState", 18, gpu=0) == "error 2"
    assert nvml.ask("nvmlDeviceGetNvLinkRemotePciInfo", 7, gpu=0)["busId"] == "00000000:05:00.0"


def test_a_lost_gpu_and_one_that_is_gone_answer_nothing(nvml, healthy):
    nvml.write(with_fault(healthy, 4, lost=1))
    for name, arguments, _, _ in GETTERS:
        assert nvml.ask(name, *arguments, gpu=4) == LOST
    assert nvml.ask("nvmlDeviceGetName", gpu=3) == "NVIDIA H100 80GB HBM3"
    nvml.write(healthy.replace("gpus = 8", "gpus = 7"))
    assert nvml.ask("nvmlDeviceGetCount") == 7
    assert nvml.ask("nvmlDeviceGetName", gpu=7) == "error 2"


def test_a_daemon_brings_a_fact_about_by_its_file(nvml, healthy, tmp_path):
    name = tmp_path / "pid"
    nvml.write(without(healthy, "persistence").replace("[gpu]\n", f"[gpu]\npersistence = @{name} 1 0\n"))
    assert nvml.ask("nvmlDeviceGetPersistenceMode", gpu=0) == 0
    name.touch()
    assert nvml.ask("nvmlDeviceGetPersistenceMode", gpu=0) == 1


def test_the_fabric_is_told_in_all_versions(nvml, healthy):
    nvml.write(without(healthy, "fabric.state").replace("[gpu]\n", "[gpu]\nfabric.state = 3\n"))
    first, second, third = (nvml.ask(f"nvmlDeviceGetGpuFabricInfo{each}", gpu=0) for each in ("", "V2", "V3"))
    for each in (first, second, third):
        assert (each["state"], each["status"], each["cliqueId"]) == (3, 0, 0)
    assert third["healthSummary"] == 1
    nvml.write(without(healthy, "fabric.cluster"))
    for each in ("", "V2", "V3"):
        assert nvml.ask(f"nvmlDeviceGetGpuFabricInfo{each}", gpu=0) == NOT_SUPPORTED


def test_an_xid_is_reported_once_and_again_when_it_comes_again(nvml, healthy):
    nvml.ask("watch")
    try:
        assert nvml.ask("wait", 0) == TIMEOUT
        nvml.write(with_fault(healthy, 6, xid=79))
        assert nvml.ask("wait", 1000) == [6, 8, 79]
        assert nvml.ask("wait", 0) == TIMEOUT
        nvml.write(with_fault(healthy, 6, xid=79, xid__sequence=1))
        assert nvml.ask("wait", 1000) == [6, 8, 79]
        nvml.write(healthy)
        assert nvml.ask("wait", 20) == TIMEOUT
    finally:
        nvml.ask("unwatch")


def test_fields_that_monitoring_reads_agree_with_the_getters(nvml, healthy):
    nvml.write(
        with_fault(healthy, 1, ecc__volatile_uncorrected=3, nvlink__2__replay_errors=4, nvlink__9__replay_errors=5)
    )
    wanted = [4, 143, 190, 91, (165, 17), (161, 2), 52, 230, 82, 9999]
    found = {each["fieldId"]: each for each in nvml.ask("nvmlDeviceGetFieldValues", wanted, gpu=1)}
    values = {key: each["value"] for key, each in found.items() if each["nvmlReturn"] == 0}
    assert values == {4: 3, 143: 0, 190: 700_000, 91: 18, 165: 1, 161: 4, 52: 9, 230: 0, 82: 34}
    assert found[9999]["nvmlReturn"] == 3
    nvml.write(without(healthy, "recovery_action"))
    assert nvml.ask("nvmlDeviceGetFieldValues", [230], gpu=1)[0]["nvmlReturn"] == 3


def test_retired_pages_are_counted_by_cause_and_nobody_computes(nvml, healthy):
    assert nvml.ask("nvmlDeviceGetRetiredPages", 1, gpu=0) == NOT_SUPPORTED
    nvml.write(with_fault(healthy, 0, retired__double_bit=3, retired__single_bit=0, retired__pending=1))
    assert len(nvml.ask("nvmlDeviceGetRetiredPages", 1, gpu=0)) == 3
    assert nvml.ask("nvmlDeviceGetRetiredPages", 0, gpu=0) == []
    assert nvml.ask("nvmlDeviceGetRetiredPagesPendingStatus", gpu=0) == 1
    assert nvml.ask("nvmlDeviceGetComputeRunningProcesses", gpu=0) == []


@pytest.mark.parametrize(
    "text",
    ["gpus = 8\n", "[system]\ngpus\n", "[system\ngpus = 8\n", "[gpu x]\n", "[gpu -1]\n", "[gpu 64]\n", "[disk]\n",
     "[system]\n= 8\n", "[system]\ngpus =\n", "[system]\ngpus = 8\ngpus = 8\n", "[system]\ngpus = 8\0\n",
     "[system]\ngpus = 8\n" + "#" * (1 << 20)],
)  # fmt: skip
def test_a_broken_state_file_fails_every_call_until_it_is_mended(nvml, healthy, text):
    nvml.write(text)
    assert nvml.ask("nvmlDeviceGetCount") == UNKNOWN
    assert nvml.ask("nvmlDeviceGetName", gpu=0) == UNKNOWN
    nvml.write(healthy)
    assert nvml.ask("nvmlDeviceGetCount") == 8


def test_without_a_state_file_no_driver_is_loaded(nvml, healthy):
    nvml.state.unlink()
    assert nvml.ask("nvmlDeviceGetCount") == DRIVER_NOT_LOADED
    assert nvml.ask("nvmlInit") == DRIVER_NOT_LOADED
    nvml.state.mkdir()
    assert nvml.ask("nvmlDeviceGetCount") == UNKNOWN
    nvml.state.rmdir()


def test_after_the_last_shutdown_nothing_is_answered(nvml):
    assert nvml.ask("nvmlInit") is None
    assert nvml.ask("nvmlShutdown") is None
    assert nvml.ask("nvmlDeviceGetCount") == 8
    assert nvml.ask("nvmlShutdown") is None
    assert nvml.ask("nvmlDeviceGetCount") == "error 1"
    assert nvml.ask("nvmlShutdown") == "error 1"
    assert nvml.ask("nvmlInit") is None


def test_a_module_of_another_version_than_the_library_is_a_mismatch(nvml, healthy):
    nvml.write(healthy.replace("[system]\n", "[system]\nkernel_module = 580.82.07\n"))
    assert nvml.ask("nvmlDeviceGetCount") == MISMATCH
    nvml.write(healthy.replace("[system]\n", "[system]\nkernel_module = 580.95.05\n"))
    assert nvml.ask("nvmlDeviceGetCount") == 8


def test_comments_spaces_and_line_ends_do_not_matter(nvml, healthy):
    nvml.write("; a comment\r\n[system]\r\n  gpus  =  1 \r\n\r\n[ gpu 0 ]\nname = A name, with = in it  \n# end")
    assert nvml.ask("nvmlDeviceGetCount") == 1
    assert nvml.ask("nvmlDeviceGetName", gpu=0) == "A name, with = in it"


def test_readers_never_see_half_of_a_change(nvml_library, healthy, tmp_path):
    """Threads read four facts that are always equal, while the file is replaced under them."""
    script = tmp_path / "readers.py"
    script.write_text(
        textwrap.dedent(
            """
            import pathlib, sys, threading, pynvml
            state, healthy = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).read_text()
            keys = "correctable", "uncorrectable", "pending", "failure"
            def write(n):
                new = state.with_suffix(".new")
                facts = "".join(f"remapped.{key} = {n}\\n" for key in keys)
                new.write_text(healthy.replace("[gpu 0]\\n", "[gpu 0]\\n" + facts))
                new.replace(state)
            write(0)
            pynvml.nvmlInit()
            gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
            torn, seen, done = [], set(), threading.Event()
            def read():
                while not done.is_set():
                    rows = pynvml.nvmlDeviceGetRemappedRows(gpu)
                    seen.add(rows[0])
                    if len(set(rows)) != 1:
                        torn.append(list(rows))
            readers = [threading.Thread(target=read) for _ in range(3)]
            for each in readers: each.start()
            for n in range(1, 150): write(n)
            done.set()
            for each in readers: each.join()
            assert not torn, torn[:3]
            assert len(seen) > 5, seen
            """
        )
    )
    (tmp_path / "healthy").write_text(healthy)
    state = tmp_path / "gpus.ini"
    subprocess.run(
        [sys.executable, str(script), str(state), str(tmp_path / "healthy")],
        env={"LD_LIBRARY_PATH": str(nvml_library), "MUSTER_SIMULATED_GPUS": str(state), "PATH": "/usr/bin:/bin"},
        check=True, timeout=60,
    )  # fmt: skip


def test_no_state_file_makes_the_library_touch_memory_it_must_not(nvml_header, builder: Builder, healthy, tmp_path):
    """The library under the address and undefined-behaviour sanitizers, over mangled state files."""
    program = tmp_path / "asked"
    sources = [*sorted(SOURCE.glob("*.c")), Path(__file__).with_name("ask_everything.c")]
    flags = ['-DDRIVER_VERSION="580.95.05"', "-DCUDA_VERSION=13000", f"-I{nvml_header}", f"-I{SOURCE}", "-pthread"]
    sanitize = ["-std=c11", "-g", "-O1", "-Wno-deprecated-declarations", "-fsanitize=address,undefined"]
    try:
        builder.run(["gcc", *sanitize, "-fno-sanitize-recover=all", *flags, *sources, "-o", program])
    except BuildError as error:
        if "asan" in str(error) or "ubsan" in str(error):
            pytest.skip("this compiler has no sanitizers")
        raise
    rng = random.Random(0)  # noqa: S311 - any bytes will do
    files = []
    for number in range(150):
        text = bytearray(healthy.encode())
        for _ in range(rng.choice((1, 3, 30, 300))):
            at = rng.randrange(len(text))
            match rng.randrange(4):
                case 0:
                    text[at] = rng.randrange(256)
                case 1:
                    del text[at : at + rng.randrange(1, 60)]
                case 2:
                    text[at:at] = bytes(rng.choices(b"[]=@#;\r\n\0 0x9a", k=rng.randrange(1, 40)))
                case 3:
                    text[at:at] = text[max(0, at - 50) : at]
            text = text or bytearray(b"\n")
        files.append(tmp_path / f"{number}.ini")
        files[-1].write_bytes(bytes(text))
    (tmp_path / "empty.ini").touch()
    found = subprocess.run(
        [str(program), *map(str, files), str(tmp_path / "empty.ini")],
        env={"MUSTER_SIMULATED_GPUS": str(tmp_path / "now.ini")}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-3000:]
    assert found.stdout == "151 state files\n"
