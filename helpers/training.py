"""One training loop, said once: mixed precision, gradient accumulation, and no hidden waiting.

Losses and counts stay on the device until an epoch ends: reading one with ``.item()`` at every
step would make the CPU wait for the GPU at every step.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm

from helpers.data import to_device
from helpers.device import as_device
from helpers.precision import autocast, make_scaler
from helpers.timing import Stopwatch, timed

if TYPE_CHECKING:
    import pandas as pd

LossFn = Callable[[Tensor, Tensor], Tensor]
Batches = Iterable[tuple[Tensor, Tensor]]

# Steps between two looks at the losses. Each look waits for the device, which on a GPU empties
# its queue; on the CPU there is no queue, so every step is looked at.
LOOK_EVERY = {"cpu": 1}
LOOK_EVERY_ON_GPU = 25


class NonFiniteLossError(RuntimeError):
    """The loss, or the input it was computed from, is infinite or NaN."""


@dataclass(frozen=True)
class Epoch:
    """One pass over the training data: mean loss, share of correct answers, seconds, images."""

    loss: float
    accuracy: float
    seconds: float
    images: int


@dataclass(frozen=True)
class Evaluation:
    """Mean loss and accuracy, with ``predictions`` and ``labels``, both int64 (n,) on the CPU."""

    loss: float
    accuracy: float
    predictions: Tensor
    labels: Tensor


@dataclass
class History:
    """What ``fit`` saw, one entry an epoch, and the device that it trained on."""

    train: list[Epoch] = field(default_factory=list)
    test: list[Evaluation] = field(default_factory=list)
    device: torch.device | str = "cpu"

    def table(self) -> "pd.DataFrame":
        """Return a table with one row an epoch, epochs counted from 1.

        The column "seconds" is that of training; its name says so if they are a simulation's.
        """
        import pandas as pd

        rows = [
            {
                "train loss": train.loss,
                "train accuracy": train.accuracy,
                "test loss": test.loss,
                "test accuracy": test.accuracy,
                timed("seconds", self.device): train.seconds,
            }
            for train, test in zip(self.train, self.test, strict=True)
        ]
        index = pd.RangeIndex(1, len(rows) + 1, name="epoch")
        return pd.DataFrame(rows, index=index)


def train_epoch(
    model: nn.Module,
    batches: Batches,
    optimizer: torch.optim.Optimizer,
    *,
    device: torch.device | str,
    loss_fn: LossFn = F.cross_entropy,
    dtype: torch.dtype | None = None,
    scaler: torch.amp.GradScaler | None = None,
    accumulate: int = 1,
) -> Epoch:
    """Train ``model`` on every batch once and return the ``Epoch``.

    ``batches`` yields (images, labels); ``loss_fn`` must average over the batch. With
    ``accumulate`` above 1, that many batches make one optimizer step, each weighted by its share
    of the group's images, so that the gradient is that of the one large batch (batch
    normalization apart) also in a last, shorter group.

    Raises ``NonFiniteLossError`` naming the first bad step, and ``ValueError`` for no batches.
    """
    device = as_device(device)
    scaler = scaler or torch.amp.GradScaler(device.type, enabled=False)
    ledger = _Ledger(device, dtype)
    model.train()
    with Stopwatch(device) as watch:
        for group in _groups(batches, accumulate):
            optimizer.zero_grad(set_to_none=True)
            group_images = sum(len(labels) for _, labels in group)
            for batch in group:
                images, labels = to_device(batch, device)
                with autocast(device, dtype):
                    logits = model(images)
                    loss = loss_fn(logits, labels)
                ledger.note(images, labels, logits, loss)
                scaler.scale(loss * (len(labels) / group_images)).backward()
            scaler.step(optimizer)
            scaler.update()
        ledger.look()
    return Epoch(*ledger.means(), watch.elapsed_s, ledger.images)


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Batches,
    *,
    device: torch.device | str,
    loss_fn: LossFn = F.cross_entropy,
) -> Evaluation:
    """Return loss, accuracy and predictions of ``model`` on ``batches``; the model is not changed.

    Raises ``ValueError`` for no batches.
    """
    was_training = model.training
    model.eval()
    losses, predictions, truth = [], [], []
    for batch in batches:
        images, labels = to_device(batch, device)
        logits = model(images)
        losses.append(loss_fn(logits, labels) * len(labels))
        predictions.append(logits.argmax(dim=1))
        truth.append(labels)
    model.train(was_training)
    if not losses:
        raise ValueError("there are no batches to evaluate on")
    predicted, labels = torch.cat(predictions).cpu(), torch.cat(truth).cpu()
    return Evaluation(
        loss=torch.stack(losses).sum().item() / len(labels),
        accuracy=(predicted == labels).float().mean().item(),
        predictions=predicted,
        labels=labels,
    )


def fit(
    model: nn.Module,
    train: Batches,
    test: Batches,
    optimizer: torch.optim.Optimizer,
    *,
    device: torch.device | str,
    epochs: int,
    dtype: torch.dtype | None = None,
    accumulate: int = 1,
) -> History:
    """Train for ``epochs`` epochs, evaluating after each, and return the ``History``."""
    scaler = make_scaler(device, dtype) if dtype is not None else None
    history = History(device=device)
    # Said explicitly: tqdm's notebook bar does not read its own variable.
    quiet = os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
    for _ in tqdm(range(epochs), desc="epochs", leave=False, disable=quiet):
        epoch = train_epoch(
            model,
            train,
            optimizer,
            device=device,
            dtype=dtype,
            scaler=scaler,
            accumulate=accumulate,
        )
        history.train.append(epoch)
        history.test.append(evaluate(model, test, device=device))
    return history


class _Ledger:
    """Sums of an epoch, kept on the device, and the watch over non-finite losses."""

    def __init__(self, device: torch.device, dtype: torch.dtype | None) -> None:
        self.device, self.dtype = device, dtype
        self.images = self.steps = 0
        self._loss = torch.zeros((), device=device)
        self._correct = torch.zeros((), device=device, dtype=torch.int64)
        self._finite: list[Tensor] = []  # one (loss, input) pair of flags a step not yet looked at

    def note(self, images: Tensor, labels: Tensor, logits: Tensor, loss: Tensor) -> None:
        """Add one batch."""
        with torch.no_grad():
            self._loss += loss.float() * len(labels)
            self._correct += (logits.argmax(dim=1) == labels).sum()
            self._finite.append(torch.stack([loss.isfinite(), images.isfinite().all()]))
        self.images += len(labels)
        self.steps += 1
        if self.steps % LOOK_EVERY.get(self.device.type, LOOK_EVERY_ON_GPU) == 0:
            self.look()

    def look(self) -> None:
        """Wait for the device and raise ``NonFiniteLossError`` for a bad loss or input."""
        if not self._finite:
            return
        flags = torch.stack(self._finite).cpu()
        first_step = self.steps - len(self._finite) + 1
        self._finite.clear()
        bad = (~flags.all(dim=1)).nonzero().flatten()
        if len(bad) == 0:
            return
        step, (loss_is_finite, input_is_finite) = first_step + int(bad[0]), flags[bad[0]]
        where = f"at step {step} on {self.device.type} ({self.dtype or torch.float32})"
        if not input_is_finite:
            raise NonFiniteLossError(
                f"The input holds infinite or NaN values {where} "
                f"(loss {'still' if loss_is_finite else 'no longer'} finite). Look at the data."
            )
        raise NonFiniteLossError(
            f"The loss stopped being finite {where}. The input was finite, so the computation made "
            "it: run this batch on the CPU in float32, then lower the learning rate."
        )

    def means(self) -> tuple[float, float]:
        """Return mean loss and accuracy over the images seen."""
        if not self.images:
            raise ValueError("there are no batches to train on")
        return self._loss.item() / self.images, self._correct.item() / self.images


def _groups(batches: Batches, size: int) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Yield lists of ``size`` batches, the last one possibly shorter."""
    if size < 1:
        raise ValueError(f"accumulate must be at least 1, not {size}")
    iterator = iter(batches)
    while group := list(islice(iterator, size)):
        yield group
