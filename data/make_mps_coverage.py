"""Makes mps_coverage.json from the official macOS wheels of PyTorch, 1.12 to 2.15.

The book ships the result, so nobody needs to run this; it is kept to show where the table comes
from. It downloads one wheel at a time with pip (about 1.4 GB in all, any operating system), reads
native_functions.yaml in it, and deletes it. It runs nothing of the wheels. To check the file::

    python data/make_mps_coverage.py

Give a folder of files 2.14.1.yaml, ... to read those instead of the wheels.
"""

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F

TARGET = Path(__file__).with_name("mps_coverage.json")
MEMBER = "torchgen/packaged/ATen/native/native_functions.yaml"
# One wheel of each minor release. Python and macOS only pick a wheel: all carry the same file.
# fmt: off
RELEASES = [
    "1.12.1", "1.13.1", "2.0.1", "2.1.2", "2.2.2", "2.3.1", "2.4.1", "2.5.1", "2.6.0", "2.7.1",
    "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0",
]
# fmt: on
KERNEL, COMPOSED, MISSING, ABSENT = "kcm-"
KERNELS = {"CPU", "CUDA", "MPS"}  # what has none of these is made of other operators

# Functions whose kernels have names of their own: kernel of the forward, of the backward.
INNER = {
    "torch.cdist": ("_cdist_forward", "_cdist_backward"),
    "torch.cholesky_solve": ("_cholesky_solve_helper", ""),
    "torch.cummax": ("_cummax_helper", ""),
    "torch.cummin": ("_cummin_helper", ""),
    "torch.logcumsumexp": ("_logcumsumexp", ""),
    "torch.histogramdd": ("_histogramdd_from_bin_cts", ""),
    "torch.segment_reduce": ("segment_reduce", "_segment_reduce_backward"),
    "torch.unique": ("_unique2", ""),
    "torch.unique (dim=...)": ("unique_dim", ""),
    "torch.fft.fft": ("_fft_c2c", ""),
    "torch.fft.rfft": ("_fft_r2c", ""),
    "torch.fft.irfft": ("_fft_c2r", ""),
    "torch.linalg.det": ("_linalg_det", ""),
    "torch.linalg.slogdet": ("_linalg_slogdet", ""),
    "torch.linalg.eigh": ("_linalg_eigh", ""),
    "torch.linalg.svd": ("_linalg_svd", ""),
    "torch.linalg.solve": ("_linalg_solve_ex", ""),
    "torch.Tensor.index_put_": ("_index_put_impl_", ""),
    "torch.Tensor.unfold": ("unfold", "unfold_backward"),
    "F.adaptive_avg_pool2d": ("_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward"),
    "F.adaptive_avg_pool3d": ("_adaptive_avg_pool3d", "_adaptive_avg_pool3d_backward"),
    "F.batch_norm": ("native_batch_norm", "native_batch_norm_backward"),
    "F.conv2d": ("_mps_convolution", "mps_convolution_backward"),
    "F.conv_transpose2d": ("_mps_convolution_transpose", "mps_convolution_transpose_backward"),
    "F.ctc_loss": ("_ctc_loss", "_ctc_loss_backward"),
    "F.embedding": ("index_select", "embedding_dense_backward"),
    "F.embedding_bag": ("_embedding_bag", "_embedding_bag_dense_backward"),
    "F.fold": ("col2im", "im2col"),
    "F.unfold": ("im2col", "col2im"),
    "F.grid_sample (images)": ("grid_sampler_2d", "grid_sampler_2d_backward"),
    "F.grid_sample (volumes)": ("grid_sampler_3d", "grid_sampler_3d_backward"),
    "F.group_norm": ("native_group_norm", "native_group_norm_backward"),
    "F.layer_norm": ("native_layer_norm", "native_layer_norm_backward"),
    "F.log_softmax": ("_log_softmax", "_log_softmax_backward_data"),
    "F.logsigmoid": ("log_sigmoid_forward", "log_sigmoid_backward"),
    "F.max_pool3d": ("max_pool3d_with_indices", "max_pool3d_with_indices_backward"),
    "F.multilabel_margin_loss": (
        "multilabel_margin_loss_forward",
        "multilabel_margin_loss_backward",
    ),
    "F.nll_loss": ("nll_loss_forward", "nll_loss_backward"),
    "F.nll_loss (images)": ("nll_loss2d_forward", "nll_loss2d_backward"),
    "F.pad (constant)": ("constant_pad_nd", ""),
    "F.pdist": ("_pdist_forward", "_pdist_backward"),
    "F.prelu": ("_prelu_kernel", "_prelu_kernel_backward"),
    "F.rrelu": ("rrelu_with_noise", ""),
    "F.softmax": ("_softmax", "_softmax_backward_data"),
    "torch.nn.LSTM": ("_lstm_mps", "lstm_mps_backward"),
    "torch.optim.Adam (fused=True)": ("_fused_adam_", ""),
    "torch.optim.AdamW (fused=True)": ("_fused_adamw_", ""),
    "torch.optim.SGD (fused=True)": ("_fused_sgd_", ""),
    "torch.optim.Adagrad (fused=True)": ("_fused_adagrad_", ""),
    "torch.amp.GradScaler": ("_amp_foreach_non_finite_check_and_unscale_", ""),
    "torch.distributions.Gamma": ("_standard_gamma", "_standard_gamma_grad"),
    "torch.distributions.Dirichlet": ("_sample_dirichlet", "_dirichlet_grad"),
    "torch.nn.utils.parametrizations.weight_norm": (
        "_weight_norm_interface",
        "_weight_norm_interface_backward",
    ),
}
for _mode, _kernel in {
    "nearest, 1-d": "upsample_nearest1d",
    "nearest, 2-d": "upsample_nearest2d",
    "nearest, 3-d": "upsample_nearest3d",
    "linear": "upsample_linear1d",
    "bilinear": "upsample_bilinear2d",
    "bilinear, antialias": "_upsample_bilinear2d_aa",
    "bicubic": "upsample_bicubic2d",
    "bicubic, antialias": "_upsample_bicubic2d_aa",
    "trilinear": "upsample_trilinear3d",
}.items():
    INNER[f"F.interpolate ({_mode})"] = (_kernel, f"{_kernel}_backward")
for _mode, _kernel in {"reflect": "reflection_pad", "replicate": "replication_pad"}.items():
    for _n in "123":
        INNER[f"F.pad ({_mode}, {_n}-d)"] = (f"{_kernel}{_n}d", f"{_kernel}{_n}d_backward")
# Not what a reader calls: other libraries' kernels, and parts of functions that have a row.
NOT_PUBLIC = re.compile(
    r"_|cudnn_|miopen_|mkldnn_|native_|batch_norm_|grid_sampler_|slow_conv|conv_depthwise|"
    r"linalg__|(index|is_set_to|from_file|record_stream|set_|constant_pad_nd|rsub|to_mkldnn|"
    r"max_pool\dd_with_indices|adaptive_avg_pool\dd|embedding_renorm_|unfold|"
    r"fill_|zero_|resize_|empty|empty_strided|as_strided|view|channel_shuffle|equal)$"
)
_RENAMED = {"channel_shuffle": "F.channel_shuffle"}
# F and torch both have these; F's is out of date.
_NOT_IN_F = {"tanh", "sigmoid"}


@dataclass
class Operator:
    """What native_functions.yaml says about one operator."""

    keys: set[str] = field(default_factory=set)  # dispatch keys it has kernels for
    delegate: str = ""
    module: str = ""

    @property
    def status(self) -> str:
        """Return what happens on MPS; an operator without any kernel is made of others."""
        if "MPS" in self.keys:
            return KERNEL
        composed = not self.keys or any(key.startswith("Composite") for key in self.keys)
        return COMPOSED if composed else MISSING


def parse(text: str) -> dict[str, Operator]:
    """Return the operators of a native_functions.yaml, ``add.out`` say, with their dispatch keys.

    A structured operator needs one kernel, that of its ``out`` form, for all its forms. Read line
    by line, because the format of old files differs from what today's torchgen parses.
    """
    operators: dict[str, Operator] = {}
    now = Operator()
    for line in text.splitlines():
        if func := re.match(r"- func: ([\w.]+)\(", line):
            now = operators[func[1]] = Operator()
        elif delegate := re.match(r"  structured_delegate: ([\w.]+)", line):
            now.delegate = delegate[1]
        elif module := re.match(r"  python_module: (\w+)", line):
            now.module = module[1]
        elif keys := re.match(r"    ([\w, ]+): \w", line):
            now.keys |= set(keys[1].replace(" ", "").split(","))
    for operator in operators.values():
        if operator.delegate:
            operator.keys = operators[operator.delegate].keys
    return operators


def count(text: str) -> int:
    """Return how many entries of the file name a kernel for MPS themselves."""
    return len(re.findall(r"^    (?:[\w, ]+, )?MPS(?:, [\w, ]+)?: \w", text, re.MULTILINE))


def public_name(base: str, module: str) -> str:
    """Return how a reader calls an operator, ``torch.linalg.eig`` say; empty if in no way."""
    if NOT_PUBLIC.match(base):
        return _RENAMED.get(base, "")
    if module in ("linalg", "fft", "special"):
        name = base.removeprefix(f"{module}_")
        return f"torch.{module}.{name}" if hasattr(getattr(torch, module), name) else ""
    if base in dir(F) and base not in _NOT_IN_F:
        return f"F.{base}"
    if module:
        return ""
    if hasattr(torch, base):
        return f"torch.{base}"
    return f"torch.Tensor.{base}" if hasattr(torch.Tensor, base) else ""


def best(forms: list[Operator]) -> str:
    """Return the status of an operator: of the form that does best; empty if none has a kernel."""
    order = KERNEL + COMPOSED + MISSING
    return min((each.status for each in forms if each.keys & KERNELS), key=order.index, default="")


def functions(newest: dict[str, Operator]) -> dict[str, list[str]]:
    """Return for each public function its forward operator and its backward's, without overload.

    Only functions that need a kernel of their own in the newest release. ``x.add_`` is in the row
    of ``torch.add``.
    """
    bases: dict[str, list[Operator]] = {}
    for name, operator in newest.items():
        bases.setdefault(name.split(".")[0], []).append(operator)
    needy = {base for base, forms in bases.items() if best(forms) in (KERNEL, MISSING)}
    found: dict[str, list[str]] = {}
    for base in needy:
        module = next((each.module for each in bases[base] if each.module), "")
        name = public_name(base, module)
        if name and not (base.endswith("_") and base[:-1] in needy):
            backward = f"{base}_backward"
            found[name] = [base, backward if backward in needy else ""]
    return dict(sorted((found | {name: list(pair) for name, pair in INNER.items()}).items()))


def texts(folder: Path | None) -> dict[str, str]:
    """Return native_functions.yaml of every release, from the folder or from the wheels."""
    if folder:
        return {release: (folder / f"{release}.yaml").read_text() for release in RELEASES}
    return {release: from_wheel(release) for release in RELEASES}


def from_wheel(release: str) -> str:
    """Download the wheel of a release for a Mac, and return the file in it."""
    at = RELEASES.index(release)
    platform = "macosx_14_0_arm64" if at >= RELEASES.index("2.12.1") else "macosx_11_0_arm64"
    python = "3.11" if at >= RELEASES.index("2.2.2") else "3.10"
    print(f"torch {release}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-cache-dir"]
        command += ["--no-deps", "--only-binary=:all:", "--platform", platform]
        command += ["--python-version", python, "--dest", folder, f"torch=={release}"]
        subprocess.run(command, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as files:
            return files.read(MEMBER).decode()


def make(files: dict[str, str]) -> str:
    """Return the content of mps_coverage.json, a line for each release, operator and function."""
    tables = {release: parse(text) for release, text in files.items()}
    names = {
        name
        for table in tables.values()
        for name, operator in table.items()
        if operator.keys & KERNELS
    }
    statuses = {
        name: "".join(table[name].status if name in table else ABSENT for table in tables.values())
        for name in sorted(names)
    }
    parts = {
        "releases": {release: count(text) for release, text in files.items()},
        "functions": functions(tables[RELEASES[-1]]),
        "operators": statuses,
    }
    about = "MPS kernels by release of PyTorch. See data/README.md."
    lines = [f'"about": {json.dumps(about)}']
    for part, content in parts.items():
        rows = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items()]
        lines.append(f'"{part}": {{\n' + ",\n".join(rows) + "\n}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Write the file beside this script."""
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1]) if len(sys.argv) == 2 else None
    TARGET.write_text(make(texts(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
