"""Which operators have an MPS kernel in the installed PyTorch.

Every wheel ships `native_functions.yaml`, the table from which PyTorch generates its registrations,
and the table is the same on Linux and macOS. `hand_registered.json` adds what is registered
elsewhere. This module never guesses: an operator that neither names has no MPS kernel.
"""

import hashlib
import json
import os
from enum import IntEnum
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from .build import CACHE

HERE = Path(__file__).resolve().parent


class Kind(IntEnum):
    """How the simulated device runs an operator; the numbers are those of simulated_mps.cpp."""

    MISSING = 0
    KERNEL = 1
    METADATA = 2
    COPY = 3
    INDEX = 4
    FALLBACK = 5


class Op(NamedTuple):
    """An operator, and whether its MPS kernel has to be set rather than met by the fallback."""

    name: str  # "aten::add.Tensor"
    kind: Kind
    registered: bool


# They touch only sizes, strides and storage, so that the CPU's kernel can have the MPS tensor.
METADATA = [
    *("view", "as_strided", "_reshape_alias", "unfold", "view_as_real", "view_as_complex"),
    *("resize_", "_resize_output_", "set_", "set_.source_Tensor", "set_.source_Storage"),
    "set_.source_Storage_storage_offset",
]
COPIES = ["copy_", "_copy_from", "_copy_from_and_resize"]
INDEXED = ["index.Tensor", "index.Tensor_out", "_index_put_impl_", "_unsafe_index.Tensor"]
# On a Mac their composite kernels end in MPS operators that this build lacks.
COMPOSITES = ["convolution", "convolution_backward"]
# The library implements them itself.
FACTORIES = ["empty.memory_format", "empty_strided"]


def table() -> list[Op]:
    """Return every operator that the simulated device runs, for the installed releases."""
    kinds = {
        **dict.fromkeys(METADATA, Kind.METADATA),
        **dict.fromkeys(COPIES, Kind.COPY),
        **dict.fromkeys(INDEXED, Kind.INDEX),
    }
    in_yaml = {name: has_cpu for name, has_cpu in mps_kernels().items() if name not in FACTORIES}
    ops = [
        Op(f"aten::{name}", kinds.get(name, Kind.KERNEL), has_cpu)
        for name, has_cpu in in_yaml.items()
    ]
    ops += [
        Op(f"aten::{name}", kind, name == "copy_")
        for name, kind in kinds.items()
        if name not in in_yaml
    ]
    ops += [Op(f"aten::{name}", Kind.KERNEL, True) for name in COMPOSITES]
    return ops + hand_registered()


def hand_registered() -> list[Op]:
    """Return the operators of `hand_registered.json` that hold for the installed releases."""
    data = json.loads((HERE / "hand_registered.json").read_text())
    ops = [
        # A composite operator never reaches the fallback by itself; embedding_renorm_ is none.
        Op(entry["name"], Kind.FALLBACK, "linalg_svd" in entry["name"])
        for entry in data["fallback"]
        if _holds(entry, _minor("torch"))
    ]
    return ops + [
        Op(entry["name"], Kind.KERNEL, False)
        for entry in data["torchvision"]
        if _holds(entry, _minor("torchvision"))
    ]


def mps_kernels() -> dict[str, bool]:
    """Return the aten operators with an MPS kernel ("add.Tensor") and whether the CPU has one too.

    Reading the table takes seconds, so that what was found is kept beside the compiled library.
    """
    version = metadata.version("torch")
    source = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    kept = CACHE / f"mps-kernels-{version}-{source}.json"
    if kept.exists():
        found: dict[str, bool] = json.loads(kept.read_text())
        return found
    found = _read_yaml()
    CACHE.mkdir(parents=True, exist_ok=True)
    unfinished = kept.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps(found, indent=0))
    unfinished.replace(kept)
    return found


def _read_yaml() -> dict[str, bool]:
    import torchgen
    from torchgen.gen import parse_native_yaml
    from torchgen.model import BackendIndex, DispatchKey, NativeFunction

    folder = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
    mps, cpu = (parsed.backend_indices[key] for key in (DispatchKey.MPS, DispatchKey.CPU))

    def has_kernel(index: BackendIndex, function: NativeFunction) -> bool:
        # A structured operator has one kernel, that of its out= form; the others are generated.
        return index.has_kernel(function) or function.structured_delegate in index.index

    return {
        str(function.func.name): has_kernel(cpu, function)
        for function in parsed.native_functions
        if has_kernel(mps, function)
    }


def _minor(package: str) -> tuple[int, int] | None:
    try:
        major, minor = metadata.version(package).split(".")[:2]
    except metadata.PackageNotFoundError:
        return None
    return int(major), int(minor)


def _holds(entry: dict[str, str], installed: tuple[int, int] | None) -> bool:
    def bound(name: str, otherwise: tuple[int, int]) -> tuple[int, int]:
        text = entry.get(name)
        return tuple(int(part) for part in text.split(".")) if text else otherwise  # type: ignore

    return installed is not None and bound("since", (0, 0)) <= installed < bound("before", (9, 9))
