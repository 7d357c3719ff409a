"""The doctor's findings, each on a computer made up for it."""

import json
import subprocess
import sys
from importlib import metadata

import pytest
import torch

from helpers import data, doctor, environment, machine, mps_checks, openmp_check, remedies
from helpers.doctor import diagnose
from tests.helpers.fake_mac import (
    OOM_ONE_GB,
    OOM_ZERO_BYTES,
    WRONG_OS,
    FakeMac,
    intel_mac,
    rosetta,
)


@pytest.fixture(autouse=True)
def clean_setup(monkeypatch, tmp_path):
    """No variable of the reader's, no dataset, the tested torch, and no slow child process."""
    for name in ("BOOK_DEVICE", "KMP_DUPLICATE_LIB_OK", "CONDA_PREFIX", *environment.KNOWN):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BOOK_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr(environment, "ORIGIN", environment.Origin({}, {}, False))
    monkeypatch.setattr(torch, "__version__", "2.14.1")
    versions(monkeypatch)
    child_ends_with(monkeypatch, 0)


def versions(monkeypatch, **changed):
    installed = {"torchvision": "0.29.1", "jupyter_book": "1.0.4.post1", "torch": "2.14.1"}
    installed |= changed

    def version(name):
        found = installed.get(name.replace("-", "_"))
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(doctor.metadata, "version", version)


def child_ends_with(monkeypatch, code, errors=""):
    done = subprocess.CompletedProcess([], code, "", errors)
    monkeypatch.setattr(openmp_check, "import_in_child", lambda: done)


def on_linux(monkeypatch):
    monkeypatch.setattr(doctor.platform, "system", lambda: "Linux")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def rows(diagnosis, name):
    return [check for check in diagnosis if check.name == name]


def row(diagnosis, name):
    (check,) = rows(diagnosis, name)
    return check


def text(check):
    return " ".join((check.found, check.meaning, check.remedy))


def failures(diagnosis):
    return [check.name for check in diagnosis if check.status == "fail"]


# A healthy computer


def test_healthy_mac(monkeypatch):
    FakeMac().install(monkeypatch)
    # pick_device returns mps, whose tensors this fake keeps on the CPU
    diagnosis = diagnose()
    assert failures(diagnosis) == []
    for name in ("Python", "macOS", "MPS built", "MPS available", "MPS computes", "Device"):
        assert row(diagnosis, name).status == "ok", name
    assert diagnosis.verdict.startswith("Device to use: mps - because")


def test_linux_has_no_mps_and_no_failure(monkeypatch):
    on_linux(monkeypatch)
    diagnosis = diagnose()
    for name in ("macOS", "MPS built", "MPS available", "MPS computes"):
        assert row(diagnosis, name) == doctor.Check(name, "info", "not applicable on Linux")
    assert not diagnosis.failed
    assert diagnosis.verdict.startswith("Device to use: cpu - because MPS exists only on Apple")


def test_linux_with_a_cuda_gpu(monkeypatch):
    on_linux(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(doctor.devices, "probe", lambda device: None)
    diagnosis = diagnose()
    assert (row(diagnosis, "CUDA").status, row(diagnosis, "CUDA").found) == ("ok", "NVIDIA H200")
    assert row(diagnosis, "Device").found == "cuda"


def test_cuda_gpu_that_cannot_compute_is_a_warning(monkeypatch):
    on_linux(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")

    def probe(device):
        if torch.device(device).type == "cuda":
            raise RuntimeError("CUDA error: no kernel image is available\nCompile with ...")

    monkeypatch.setattr(doctor.devices, "probe", probe)
    diagnosis = diagnose()
    assert row(diagnosis, "CUDA").status == "warn"
    assert "no kernel image" in row(diagnosis, "CUDA").meaning
    assert row(diagnosis, "Device").found == "cpu"


def test_simulated_mps_is_called_simulated(monkeypatch):
    FakeMac().install(monkeypatch)
    monkeypatch.setattr(doctor.platform, "system", lambda: "Linux")
    assert row(diagnose(), "MPS available").found.startswith("simulated")


# Macs where something is wrong


def test_c01_rosetta_python_fails_and_names_the_cure(monkeypatch):
    rosetta().install(monkeypatch)
    diagnosis = diagnose()
    python = row(diagnosis, "Python")
    assert python.status == "fail"
    assert "Rosetta" in python.meaning
    assert "an arm64 Python/conda" in python.meaning
    assert "/opt/homebrew/bin/python3.13" in python.remedy
    assert diagnosis.failed
    assert diagnosis.verdict.startswith("Device to use: cpu")


def test_c01_real_intel_mac_is_not_told_to_install_arm64(monkeypatch):
    intel_mac().install(monkeypatch)
    diagnosis = diagnose()
    assert "Intel Mac: MPS is not offered by this book" in row(diagnosis, "Python").meaning
    assert not any("arm64" in text(check) for check in diagnosis)
    assert not diagnosis.failed
    assert diagnosis.verdict.startswith("Device to use: cpu")


def test_macos_too_old_for_this_torch(monkeypatch):
    FakeMac(macos="13.6", available=False).install(monkeypatch)
    diagnosis = diagnose()
    assert failures(diagnosis) == ["macOS", "MPS available"]
    assert "torch 2.14.1 needs macOS 14.0" in row(diagnosis, "macOS").meaning
    assert row(diagnosis, "macOS").remedy.startswith("softwareupdate")
    assert "macOS is too old" in diagnosis.verdict


@pytest.mark.parametrize(
    ("version", "macos", "status"),
    [
        ("2.9.1", "14.0", "ok"),
        ("2.9.1", "13.7", "fail"),
        ("2.14.1", "14", "ok"),
        ("2.15.0", "15.0", "ok"),
        ("2.15.0", "14.6", "warn"),
        ("2.16.0", "14.6", "info"),
    ],
)
def test_macos_needed_by_each_torch(monkeypatch, version, macos, status):
    FakeMac(macos=macos).install(monkeypatch)
    monkeypatch.setattr(torch, "__version__", version)
    check = mps_checks.check_macos()
    assert check.status == status
    assert ("unverified" in check.meaning) == (status in ("warn", "info"))


def test_torch_built_without_mps(monkeypatch):
    FakeMac(built=False, available=False).install(monkeypatch)
    diagnosis = diagnose()
    assert failures(diagnosis) == ["MPS built"]
    assert "pip install" in row(diagnosis, "MPS built").remedy
    assert "torch==2.14.1" in row(diagnosis, "MPS built").remedy
    assert "--index-url" not in row(diagnosis, "MPS built").remedy


def test_c04_built_but_unavailable_on_a_new_macos(monkeypatch):
    mac = FakeMac(macos="26.3.1", available=False, first_allocation=RuntimeError(WRONG_OS))
    mac.install(monkeypatch)
    diagnosis = diagnose()
    available = row(diagnosis, "MPS available")
    assert failures(diagnosis) == ["MPS available"]
    for cause in ("irtual machine", "headless", "sandbox", "clean wheel"):
        assert cause in available.meaning
    assert not any("update" in text(check).lower() for check in diagnosis)
    assert diagnosis.failed
    assert diagnosis.verdict.startswith("Device to use: cpu")


@pytest.mark.parametrize("message", [OOM_ZERO_BYTES, OOM_ONE_GB])
def test_c05_available_but_first_allocation_fails(monkeypatch, message):
    FakeMac(first_allocation=RuntimeError(message)).install(monkeypatch)
    diagnosis = diagnose()
    computes = row(diagnosis, "MPS computes")
    assert failures(diagnosis) == ["MPS computes"]
    assert "virtual machine or a hosted runner" in computes.meaning
    assert "out of memory" in computes.found
    for advice in ("batch", "HIGH_WATERMARK", "0.0"):
        assert advice not in str(diagnosis)
    assert diagnosis.verdict.startswith("Device to use: cpu")


def test_c05_explicit_mps_is_refused_without_bad_advice(monkeypatch):
    FakeMac(first_allocation=RuntimeError(OOM_ZERO_BYTES)).install(monkeypatch)
    monkeypatch.setenv("BOOK_DEVICE", "mps")
    device = row(diagnose(), "Device")
    assert (device.status, device.found) == ("fail", "none")
    assert "BOOK_DEVICE" in device.meaning
    assert "HIGH_WATERMARK" not in device.meaning


def test_probe_that_fails_for_a_watermark_points_to_the_variables(monkeypatch):
    error = RuntimeError("invalid low watermark ratio 1.4")
    FakeMac(first_allocation=error).install(monkeypatch)
    check = row(diagnose(), "MPS computes")
    assert "see the rows 'Variables'" in check.meaning
    assert "irtual" not in check.meaning


def test_probe_that_returns_a_wrong_value_fails(monkeypatch):
    FakeMac().install(monkeypatch)
    right = torch.ones
    monkeypatch.setattr(torch, "ones", lambda *size, **options: right(*size, **options) * 2)
    monkeypatch.setattr(doctor.devices, "pick_device", lambda: torch.device("cpu"))
    assert "32.0, not 8.0" in row(diagnose(), "MPS computes").found


def test_c06_mac_has_no_row_for_cuda(monkeypatch):
    FakeMac().install(monkeypatch)
    diagnosis = diagnose()
    assert rows(diagnosis, "CUDA") == []
    assert "cuda" not in str(diagnosis).lower()


@pytest.mark.parametrize("fake", [True, False])
@pytest.mark.parametrize(
    ("owner", "name"),
    [(torch.mps, "is_available"), (torch, "mps"), (torch.backends.mps, "get_name")],
)
def test_c08_missing_parts_of_torch_break_nothing(monkeypatch, fake, owner, name):
    if fake:
        FakeMac().install(monkeypatch)
    monkeypatch.delattr(owner, name)
    assert not diagnose().failed


# The rest of the setup


@pytest.mark.parametrize(
    ("version", "status"),
    [("3.10.4", "fail"), ("3.11.0", "ok"), ("3.13.9", "ok"), ("3.14.0", "warn")],
)
def test_python_release(monkeypatch, version, status):
    on_linux(monkeypatch)
    monkeypatch.setattr(doctor.platform, "python_version", lambda: version)
    assert doctor.check_python().status == status


@pytest.mark.parametrize(
    ("version", "status"),
    [("2.8.0", "fail"), ("2.9.0", "ok"), ("2.14.1+cu130", "ok"), ("2.15.0", "warn")],
)
def test_torch_release(monkeypatch, version, status):
    monkeypatch.setattr(torch, "__version__", version)
    assert doctor.check_torch().status == status


@pytest.mark.parametrize(
    ("version", "needs", "status"),
    [
        ("2.9.1", "torch (==2.9.1)", "ok"),
        ("2.14.1+cu130", "torch (==2.14.1)", "ok"),
        ("2.15.0", "torch (>=2.14.0)", "ok"),
        ("2.14.1", "torch==2.13.0", "fail"),
    ],
)
def test_torchvision_must_accept_this_torch(monkeypatch, version, needs, status):
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: ["numpy", needs])
    check = doctor.check_torchvision()
    assert check.status == status
    if status == "fail":
        assert check.meaning == "It needs torch==2.13.0, and torch 2.14.1 is installed."
        assert check.remedy.endswith("pip install torch==2.14.1 torchvision")


def test_torchvision_missing(monkeypatch):
    versions(monkeypatch, torchvision=None)
    assert doctor.check_torchvision().found == "not installed"


def test_c46_jupyter_book_2_names_the_pin(monkeypatch):
    versions(monkeypatch, jupyter_book="2.1.7")
    on_linux(monkeypatch)
    diagnosis = diagnose()
    check = row(diagnosis, "Jupyter Book")
    assert check.status == "fail"
    assert "jupyter-book>=1.0.4,<2" in check.meaning
    assert '"jupyter-book>=1.0.4,<2"' in check.remedy  # quoted: < and > mean much to a shell
    assert diagnosis.failed


def test_jupyter_book_is_optional(monkeypatch):
    versions(monkeypatch, jupyter_book=None)
    assert doctor.check_jupyter_book().status == "info"


def install_kernel(monkeypatch, folder, executable):
    kernel = folder / "kernels" / "python3"
    kernel.mkdir(parents=True)
    spec = {"argv": [executable, "-m", "ipykernel_launcher"], "display_name": "x", "language": "x"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(folder))


def test_kernel_of_another_interpreter(monkeypatch, tmp_path):
    install_kernel(monkeypatch, tmp_path, "/opt/anaconda3/bin/python")
    check = doctor.check_kernel()
    assert check.status == "warn"
    assert "/opt/anaconda3/bin/python" in check.found
    assert "-m ipykernel install --sys-prefix --name python3" in check.remedy


def test_kernel_of_the_base_of_this_environment_is_another(monkeypatch, tmp_path):
    # A virtual environment's python is a link to the base's: the same file, other packages.
    base = tmp_path / "base" / "python3"
    base.parent.mkdir()
    base.symlink_to(sys.executable)
    install_kernel(monkeypatch, tmp_path, str(base))
    assert doctor.check_kernel().status == "warn"


@pytest.mark.parametrize("executable", [sys.executable, "python", "python3"])
def test_kernel_of_this_interpreter(monkeypatch, tmp_path, executable):
    install_kernel(monkeypatch, tmp_path, executable)
    assert doctor.check_kernel().status == "ok"


def test_damaged_kernel_file_is_a_warning_not_a_crash(monkeypatch, tmp_path):
    install_kernel(monkeypatch, tmp_path, "python")
    (tmp_path / "kernels/python3/kernel.json").write_text("{")
    check = row(diagnose(), "Kernel")
    assert check.status == "warn"
    assert "This check itself failed" in check.meaning


CLASH = (
    "OMP: Error #15: Initializing libiomp5.dylib, but found libomp.dylib already initialized.\n"
    "OMP: Hint This means that multiple copies of the OpenMP runtime have been linked ..."
)


@pytest.mark.parametrize(("code", "errors"), [(-6, CLASH), (134, CLASH), (-11, "")])
def test_c10_crash_at_import_names_openmp(monkeypatch, code, errors):
    child_ends_with(monkeypatch, code, errors)
    check = row(diagnose(), "OpenMP")
    assert check.status == "fail"
    assert "two OpenMP libraries" in check.meaning
    assert "KMP_DUPLICATE_LIB_OK" not in check.remedy


def test_other_failure_at_import_is_not_blamed_on_openmp(monkeypatch):
    child_ends_with(monkeypatch, 1, "Traceback ...\nModuleNotFoundError: No module named 'numpy'")
    check = openmp_check.check_openmp()
    assert check.found == "ModuleNotFoundError: No module named 'numpy'"
    assert "two OpenMP" not in check.meaning


def test_c10_duplicate_openmp_allowed_is_unsafe(monkeypatch):
    monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", "TRUE")
    check = openmp_check.check_openmp()
    assert check.status == "warn"
    assert "Unsafe" in check.meaning
    assert check.remedy == "unset KMP_DUPLICATE_LIB_OK"


def test_c10_conda_mkl_beside_pip_torch_is_flagged(monkeypatch, tmp_path):
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta" / "mkl-2023.1.0-h8e150cf_43560.json").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert "MKL" in openmp_check.check_openmp().meaning


def test_import_that_hangs_is_a_warning(monkeypatch):
    def hang():
        raise subprocess.TimeoutExpired("python", 120)

    monkeypatch.setattr(openmp_check, "import_in_child", hang)
    assert openmp_check.check_openmp().status == "warn"


def test_child_process_imports_without_the_variable_that_hides_a_clash(monkeypatch):
    monkeypatch.undo()  # the real child
    monkeypatch.setattr(openmp_check, "IMPORT", "import os; print(sorted(os.environ))")
    monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", "TRUE")
    child = openmp_check.import_in_child()
    assert child.returncode == 0
    assert "PATH" in child.stdout
    assert "KMP" not in child.stdout


def started_with(monkeypatch, **variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(environment, "ORIGIN", environment.Origin(variables, variables, False))


def test_contradictory_variables(monkeypatch):
    started_with(monkeypatch, PYTORCH_MPS_HIGH_WATERMARK_RATIO="1.0")
    check = row(diagnose(), "Variables")
    assert check.status == "warn"
    assert check.found == "PYTORCH_MPS_HIGH_WATERMARK_RATIO=1.0"
    assert "PYTORCH_MPS_LOW_WATERMARK_RATIO" in check.meaning
    assert check.remedy == "unset PYTORCH_MPS_HIGH_WATERMARK_RATIO"


def test_each_variable_has_its_row(monkeypatch):
    started_with(monkeypatch, PYTORCH_ENABLE_MPS_FALLBACK="1", PYTORCH_MPS_FAST_MATHS="1")
    assert [check.status for check in doctor.check_variables()] == ["info", "warn"]


def test_c16_variable_set_too_late_asks_for_a_restart_not_for_unset(monkeypatch):
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    check = row(diagnose(), "Variables")
    assert "restart the kernel" in check.meaning
    assert check.remedy == ""


def test_data_not_downloaded_is_no_problem():
    assert [check.status for check in doctor.check_data()] == ["ok", "info", "info"]


def test_damaged_bundled_digits_fail(monkeypatch, tmp_path):
    (tmp_path / "mnist-5k.npz").write_bytes(b"half a downl")
    monkeypatch.setattr(data, "BUNDLED", tmp_path / "mnist-5k.npz")
    bundled = doctor.check_data()[0]
    assert bundled.status == "fail"
    assert "checksum" in bundled.meaning
    assert bundled.remedy == "git checkout data/mnist-5k.npz"


def test_damaged_data_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("BOOK_DATA", str(tmp_path))
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    (raw / "train-images-idx3-ubyte").write_bytes(b"<html>")
    _, mnist, cifar10 = doctor.check_data()
    assert (mnist.status, cifar10.status) == ("warn", "info")
    assert mnist.remedy.endswith("-m helpers data mnist")


def test_an_unknown_scale_is_a_failure(monkeypatch):
    monkeypatch.setenv("BOOK_SCALE", "fast")
    diagnosis = diagnose()
    assert failures(diagnosis) == ["Scale"]
    assert "'quick' or 'full'" in row(diagnosis, "Scale").meaning
    assert row(diagnosis, "Scale").remedy == "unset BOOK_SCALE"
    assert "Device to use: " in diagnosis.verdict


def test_explicit_device_is_the_verdict(monkeypatch):
    monkeypatch.setenv("BOOK_DEVICE", "cpu")
    assert (
        diagnose().verdict == "Device to use: cpu - because the variable BOOK_DEVICE asks for it."
    )


def test_misspelt_device_fails(monkeypatch):
    monkeypatch.setenv("BOOK_DEVICE", "gpu")
    diagnosis = diagnose()
    assert failures(diagnosis) == ["Device"]
    assert row(diagnosis, "Device").remedy == "unset BOOK_DEVICE"


def test_check_that_breaks_becomes_a_warning(monkeypatch):
    def broken():
        raise OSError("disk on fire")

    monkeypatch.setattr(machine, "describe_machine", broken)
    check = row(diagnose(), "Machine")
    assert check.status == "warn"
    assert "OSError: disk on fire" in check.meaning


# Remedies


def test_fresh_environment_leaves_conda_first(monkeypatch):
    assert remedies.fresh_environment() == "rm -rf .venv\nmake book"
    monkeypatch.setenv("CONDA_PREFIX", "/opt/conda")
    assert remedies.fresh_environment().startswith("conda deactivate\n")


def test_python_is_this_python(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert remedies.python() == remedies.short(sys.executable)
    (tmp_path / "python").symlink_to(sys.executable)  # another environment's
    (tmp_path / "python").chmod(0o755)
    assert remedies.python() != "python"


def test_short_paths_name_no_user(monkeypatch, tmp_path):
    monkeypatch.setattr(remedies.Path, "home", lambda: tmp_path)
    assert remedies.short(tmp_path / "envs" / "bin") == "~/envs/bin"
    monkeypatch.chdir(tmp_path)
    assert remedies.short(tmp_path / "envs") == "envs"
    assert remedies.short("/opt/bin") == "/opt/bin"
