"""What is wrong with this setup, and the command that mends it."""

import os
import platform
import warnings
from collections.abc import Callable
from functools import partial
from importlib import metadata

import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from helpers import device as devices
from helpers import environment, machine, mps_checks, openmp_check, remedies
from helpers.diagnosis import Check, Diagnosis
from helpers.environment import minor_version

TESTED_TORCH = (2, 9), (2, 14)  # first and last minor release
TESTED_PYTHON = (3, 11), (3, 13)


def diagnose() -> Diagnosis:
    """Look at everything that the book needs, and return each finding with what it means.

    Takes a few seconds: a child process imports PyTorch, to see whether it survives that. Raises
    nothing: a check that breaks becomes a warning.
    """
    mps = mps_checks.read_mps()
    checks: dict[str, Callable[[], Check | list[Check]]] = {
        "Machine": check_machine,
        "Python": check_python,
        "macOS": mps_checks.check_macos,
        "PyTorch": check_torch,
        "torchvision": check_torchvision,
        "MPS built": partial(mps_checks.check_built, mps),
        "MPS available": partial(mps_checks.check_available, mps),
        "MPS computes": partial(mps_checks.check_computes, mps),
        "CUDA": check_cuda,
        "OpenMP": openmp_check.check_openmp,
        "Variables": check_variables,
        "Jupyter Book": check_jupyter_book,
        "Kernel": check_kernel,
        "Data": check_data,
    }
    rows = [row for name, check in checks.items() for row in _guarded(name, check)]
    device = _guarded("Device", partial(check_device, mps))[0]
    rows += _guarded("Scale", check_scale)
    return Diagnosis([*rows, device], f"Device to use: {device.found} - because {device.meaning}")


def check_machine() -> Check:
    """Describe the computer."""
    here = machine.describe_machine()
    facts = [
        here.chip or "unknown chip",
        here.cpu_cores and f"{here.cpu_cores} CPU cores",
        here.gpu_cores and f"{here.gpu_cores} GPU cores",
        here.memory_bytes and f"{here.memory_bytes / 2**30:.0f} GiB of memory",
        here.os,
        here.power and f"power: {here.power}",
    ]
    return Check("Machine", "info", ", ".join(fact for fact in facts if fact))


def check_python() -> Check:
    """Judge the version of Python, and whether it is built for this chip."""
    kind, version = mps_checks.mac_kind(), platform.python_version()
    found = f"{version} for {platform.machine()}"
    if kind == "rosetta":
        meaning = (
            "This is an Intel Python, which Rosetta translates on an Apple chip; it cannot use "
            "MPS. Install an arm64 Python/conda (python.org, Homebrew in /opt/homebrew, or "
            "Miniforge for arm64) and build the environment anew with it."
        )
        return Check("Python", "fail", found, meaning, remedies.arm64_environment())
    if kind == "intel":
        return Check("Python", "warn", found, "Intel Mac: MPS is not offered by this book.")
    return _judge_release("Python", found, version, TESTED_PYTHON, remedies.fresh_environment())


def check_torch() -> Check:
    """Compare PyTorch with the releases that the book was tested on."""
    version = str(torch.__version__)
    remedy = remedies.install_tested_pair()
    return _judge_release("PyTorch", version, version, TESTED_TORCH, remedy)


def check_torchvision() -> Check:
    """See whether torchvision accepts this PyTorch; its own metadata says which it needs."""
    remedy = remedies.install_matching_torchvision()
    found = _installed("torchvision")
    if found is None:
        return Check("torchvision", "fail", "not installed", "The chapters need it.", remedy)
    needs = [Requirement(line) for line in metadata.requires("torchvision") or ()]
    needed = next((str(need.specifier) for need in needs if need.name == "torch"), "")
    release = remedies.torch_release()
    if SpecifierSet(needed).contains(release, prereleases=True):
        return Check("torchvision", "ok", found)
    meaning = f"It needs torch{needed}, and torch {release} is installed."
    return Check("torchvision", "fail", found, meaning, remedy)


def check_cuda() -> list[Check]:
    """Describe the CUDA GPU. No Apple chip has one, so a Mac gets no row."""
    if platform.system() == "Darwin":
        return []
    if not torch.cuda.is_available():
        return [Check("CUDA", "info", "no GPU that this PyTorch can use")]
    name = torch.cuda.get_device_name(0)
    try:
        devices.probe("cuda")
    except Exception as error:
        first_line = devices.first_line(str(error))
        return [Check("CUDA", "warn", name, f"It is there, but cannot compute: {first_line}")]
    return [Check("CUDA", "ok", name)]


def check_variables() -> list[Check]:
    """List the MPS variables that are set, and what is wrong with them."""
    rows = []
    for variable in environment.mps_variables():
        removed = variable.value is None
        found = f"{variable.name} (removed)" if removed else f"{variable.name}={variable.value}"
        if variable.problem is None:
            rows.append(Check("Variables", "info", found, variable.meaning))
            continue
        # The shell cannot unset what this process has set, or lost, by itself.
        changed_here = variable.value != variable.at_start
        remedy = "" if changed_here else f"unset {variable.name}"
        rows.append(Check("Variables", "warn", found, variable.problem, remedy))
    return rows or [Check("Variables", "ok", "no MPS variable is set")]


def check_jupyter_book() -> Check:
    """See that Jupyter Book is of version 1: version 2 is another engine."""
    found = _installed("jupyter-book")
    if found is None:
        meaning = "Only building the book needs it; notebooks and helpers run without."
        return Check("Jupyter Book", "info", "not installed", meaning)
    if (1, 0) <= minor_version(found) < (2, 0):
        return Check("Jupyter Book", "ok", found)
    meaning = f"Another engine, which cannot build this book: pin {remedies.BOOK_PIN}."
    return Check("Jupyter Book", "fail", found, meaning, remedies.install_jupyter_book())


def check_kernel() -> Check:
    """See that the Jupyter kernel ``python3``, which every notebook names, is this Python."""
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    except ImportError:
        return Check("Kernel", "info", "Jupyter is not installed", "Only notebooks need it.")
    remedy = remedies.install_kernel()
    try:
        executable = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        return Check("Kernel", "warn", "no Jupyter kernel is called python3", "", remedy)
    if remedies.is_this_python(executable):
        return Check("Kernel", "ok", "python3 is this Python")
    meaning = "Notebooks run in another Python than this one, with other packages or none."
    return Check("Kernel", "warn", f"python3 is {remedies.short(executable)}", meaning, remedy)


def check_data() -> list[Check]:
    """Look at the digits that ship with the book, and say which full datasets are on disk."""
    from helpers.data import DataError, mnist
    from helpers.on_disk import MISSING, check_files, data_root

    try:
        mnist(full=False)
        rows = [Check("Data", "ok", "the bundled digits are intact")]
    except DataError as error:
        remedy = "git checkout data/mnist-5k.npz"
        rows = [Check("Data", "fail", "the bundled digits", str(error), remedy)]
    root = data_root()
    for name in ("mnist", "cifar10"):
        faults = [fault for fault in check_files(name, root).values() if fault]
        if not faults:
            rows.append(Check("Data", "info", f"{name}: complete in {remedies.short(root)}"))
        elif set(faults) == {MISSING}:
            found = f"{name}: not downloaded"
            rows.append(Check("Data", "info", found, "`make data` fetches it; you can do without."))
        else:
            meaning = f"{len(faults)} of its files are damaged or missing: fetch them again."
            remedy = f"{remedies.python()} -m helpers data {name}"
            rows.append(Check("Data", "warn", f"{name}: not intact", meaning, remedy))
    return rows


def check_scale() -> list[Check]:
    """See that BOOK_SCALE is one that there is, if it is set."""
    if not os.environ.get("BOOK_SCALE", "").strip():
        return []
    try:
        scale = devices.pick_scale("cpu")  # set, it is the same for every device
    except ValueError as error:
        asked = os.environ["BOOK_SCALE"]
        return [Check("Scale", "fail", f"BOOK_SCALE={asked}", str(error), "unset BOOK_SCALE")]
    return [Check("Scale", "info", f"{scale}, as the variable BOOK_SCALE asks")]


def check_device(mps: mps_checks.Mps) -> Check:
    """Say which device the book uses here, and why."""
    asked = os.environ.get("BOOK_DEVICE", "auto")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the rows above say it already
            device = devices.pick_device()
    except (ValueError, devices.DeviceUnavailableError) as error:
        meaning = devices.first_line(str(error))
        return Check("Device", "fail", "none", meaning, "unset BOOK_DEVICE")
    if asked.strip().lower() != "auto":
        reason = "the variable BOOK_DEVICE asks for it."
    elif device.type == "cpu":
        reason = f"{mps_checks.why_no_mps(mps)}."
    else:
        reason = "it computed a small product correctly."
    return Check("Device", "ok", str(device), reason)


def _guarded(name: str, check: Callable[[], Check | list[Check]]) -> list[Check]:
    """Run one check; if it breaks, the break is what was found."""
    try:
        rows = check()
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        return [Check(name, "warn", "not known", f"This check itself failed. {problem}")]
    return rows if isinstance(rows, list) else [rows]


def _judge_release(
    name: str,
    found: str,
    version: str,
    tested: tuple[tuple[int, int], tuple[int, int]],
    remedy: str,
) -> Check:
    span = f"{name} {_dotted(tested[0])} to {_dotted(tested[1])}"
    if minor_version(version) < tested[0]:
        return Check(name, "fail", found, f"Too old: the book needs {span}.", remedy)
    if minor_version(version) > tested[1]:
        return Check(name, "warn", found, f"Untested: the book was tested on {span}.")
    return Check(name, "ok", found)


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
