"""Helpers of the book *PyTorch on Apple Silicon*: what every notebook imports.

Drawing lives in ``helpers.figures`` and the set-up checks in ``helpers.doctor``; they are imported
where they are used, so that ``import helpers`` stays quick.
"""

# First, because it remembers the variables that torch started with.
from helpers import environment as environment
from helpers.agreement import Agreement, compare_with_cpu
from helpers.data import (
    DataError,
    Images,
    cifar10,
    data_root,
    download,
    fake_images,
    has_cifar10,
    loader,
    mnist,
    to_device,
)
from helpers.device import (
    DeviceUnavailableError,
    is_simulated,
    pick_device,
    pick_scale,
    probe,
    seed_everything,
    synchronize,
)
from helpers.footprint import saved_for_backward, tensor_bytes
from helpers.known_errors import check_known_errors
from helpers.learning import check_learning
from helpers.machine import Machine, describe_machine, stamp
from helpers.memory import MemoryReport, PeakMemory, format_bytes, memory_report, release
from helpers.models import mnist_cnn, resnet18
from helpers.out_of_memory import BatchDoesNotFitError, find_batch_size, is_out_of_memory
from helpers.precision import autocast, autocast_dtype, make_scaler
from helpers.timing import Stopwatch, Timing, crossover, format_seconds, measure, timed
from helpers.training import (
    Epoch,
    Evaluation,
    History,
    NonFiniteLossError,
    evaluate,
    fit,
    train_epoch,
)

__all__ = [
    "Agreement",
    "BatchDoesNotFitError",
    "DataError",
    "DeviceUnavailableError",
    "Epoch",
    "Evaluation",
    "History",
    "Images",
    "Machine",
    "MemoryReport",
    "NonFiniteLossError",
    "PeakMemory",
    "Stopwatch",
    "Timing",
    "autocast",
    "autocast_dtype",
    "check_known_errors",
    "check_learning",
    "cifar10",
    "compare_with_cpu",
    "crossover",
    "data_root",
    "describe_machine",
    "download",
    "evaluate",
    "fake_images",
    "find_batch_size",
    "fit",
    "format_bytes",
    "format_seconds",
    "has_cifar10",
    "is_out_of_memory",
    "is_simulated",
    "loader",
    "make_scaler",
    "measure",
    "memory_report",
    "mnist",
    "mnist_cnn",
    "pick_device",
    "pick_scale",
    "probe",
    "release",
    "resnet18",
    "saved_for_backward",
    "seed_everything",
    "stamp",
    "synchronize",
    "tensor_bytes",
    "timed",
    "to_device",
    "train_epoch",
]
