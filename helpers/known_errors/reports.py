"""The list: errors that people reported, each with its issue, its versions and its probe."""

import torch

from helpers.device import pick_device
from helpers.known_errors import probes
from helpers.known_errors.verdicts import KnownError, Verdicts, check


def check_known_errors(device: torch.device | str) -> Verdicts:
    """Run every probe on ``device``: a second or two, less than 200 MB.

    Raises ValueError for what is no device, DeviceUnavailableError for one that is not here.
    """
    here = pick_device(device)
    return Verdicts(check(error, here) for error in KNOWN_ERRORS)


_ASSERTS = {"cuda": "a bad index on CUDA stops all further work in the process"}
_NO_COPY = {"cpu": "nothing is copied on the CPU"}


KNOWN_ERRORS = [
    KnownError(
        "F.linear with bias, 3-D input",
        192934,
        "2.13.0, M1 virtual machine",
        "open",
        probes.linear_3d,
    ),
    KnownError(
        "F.linear with bias, one row", 188438, "2.14 dev, macOS 26", "closed", probes.linear_vector
    ),
    KnownError(
        "F.linear with bias, batch of 65,537",
        189495,
        "2.12.0 to 2.14 dev",
        "closed",
        probes.linear_large_batch,
    ),
    KnownError(
        "F.linear, strided weight", 162730, "2.8.0", "fixed on main", probes.linear_strided_weight
    ),
    KnownError("F.linear in bfloat16, twice", 180776, "2026-04", "open", probes.linear_twice),
    KnownError(
        "bmm over 32,769 terms", 195163, "M1 and M2, up to 2.15 dev", "open", probes.long_bmm
    ),
    KnownError(
        "conv2d, strided weight",
        192212,
        "2026-08, macOS 15 and newer",
        "closed",
        probes.conv2d_strided_weight,
    ),
    KnownError(
        "adaptive max pool, 5 x 5 to 3 x 3", 190064, "2.13.0", "closed", probes.adaptive_max_pool
    ),
    KnownError(
        "softplus and ELU, transposed input",
        131736,
        "2024-07, macOS before 15",
        "closed",
        probes.activations_strided,
    ),
    KnownError(
        "where, transposed condition", 150967, "2.8 dev, macOS 13", "closed", probes.where_strided
    ),
    KnownError(
        "addcdiv_ (Adam's step), transposed", 118115, "up to 2.2", "closed", probes.addcdiv_strided
    ),
    KnownError(
        "assignment to single elements",
        122016,
        "2.2.0 and 2.2.1, macOS 14.4",
        "closed",
        probes.slice_assignment,
    ),
    KnownError("many sums at once", 178497, "2026-03", "open", probes.many_sums),
    KnownError(
        "GradScaler, bfloat16 gradients",
        184286,
        "2.8 to 2.12",
        "a repair, closed",
        probes.scaled_bfloat16,
    ),
    KnownError(
        "embedding, index out of range",
        154235,
        "2.1.1 (#144824), 2.3.0",
        "open",
        probes.embedding_out_of_range,
        _ASSERTS,
    ),
    KnownError(
        "index_copy_, index out of range",
        189968,
        "2.13.0 and 2.14 dev",
        "open",
        probes.index_copy_out_of_range,
        _ASSERTS,
    ),
    KnownError(
        "copy to the device, non_blocking",
        189690,
        "2.5.1 (#139550) to 2.13",
        "open",
        probes.unwaited_copies,
        _NO_COPY,
    ),
    KnownError(
        "copy back, every second element",
        189961,
        "2.13.0",
        "closed",
        probes.strided_copy_back,
        _NO_COPY,
    ),
    KnownError(
        "copy back into float16",
        189563,
        "nightly of 2026-07",
        "closed",
        probes.narrowing_copy_back,
        _NO_COPY,
    ),
    KnownError(
        "randn: repeats by seed, else moves on",
        84288,
        "1.12 and 1.13 dev",
        "closed",
        probes.random_stream,
    ),
]
