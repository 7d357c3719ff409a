"""A set of labelled images in memory."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.data import Dataset


@dataclass(frozen=True, eq=False, repr=False)
class Images(Dataset[tuple[Tensor, Tensor]]):
    """Labelled images, kept as one byte a pixel and normalized when they are taken out.

    ``images`` is uint8 (n, channels, height, width) and ``labels`` int64 (n,). ``mean`` and
    ``std`` have one value a channel, for pixels scaled to 0..1. ``source`` says in words what
    the images are.

    An int takes out one image, float32 (channels, height, width), and its label; a slice, a
    list or a tensor of indices takes out a whole batch of both.
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    source: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise ValueError("images must be uint8 (n, channels, height, width)")
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise ValueError("labels must be int64 (n,), one for each image")
        if not len(self.mean) == len(self.std) == self.images.shape[1]:
            raise ValueError("mean and std need one value for each channel")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int | slice | list[int] | Tensor) -> tuple[Tensor, Tensor]:
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        pixels = self.images[index].to(torch.float32)  # a copy, so the next line may overwrite it
        return pixels.div_(255).sub_(mean).div_(std), self.labels[index]

    def __repr__(self) -> str:
        shape = "×".join(str(length) for length in self.images.shape[1:])
        return f"Images({len(self):,} of {shape}, {len(self.classes)} classes: {self.source})"

    def subset(self, n: int, seed: int = 0) -> "Images":
        """Return ``n`` different images, drawn at random; the same seed draws the same ones."""
        if not 1 <= n <= len(self):
            raise ValueError(f"cannot draw {n} of {len(self)} images")
        chosen = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))[:n]
        source = f"{n:,} drawn from {self.source}"
        return replace(self, images=self.images[chosen], labels=self.labels[chosen], source=source)

    def as_rgb(self) -> "Images":
        """Return grey images as three equal channels (sharing memory), colour ones as they are."""
        channels = self.images.shape[1]
        if channels == 3:
            return self
        if channels != 1:
            raise ValueError(f"images of {channels} channels are neither grey nor colour")
        images = self.images.expand(-1, 3, -1, -1)
        return replace(self, images=images, mean=self.mean * 3, std=self.std * 3)


def fake_images(
    n: int, channels: int = 3, side: int = 224, classes: int = 10, seed: int = 0
) -> Images:
    """Return ``n`` images of random pixels with random labels: for speed, nothing to learn."""
    generator = torch.Generator().manual_seed(seed)
    shape = (n, channels, side, side)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, classes, (n,), generator=generator)
    names = tuple(str(label) for label in range(classes))
    half = (0.5,) * channels
    return Images(images, labels, names, f"{n:,} images of random pixels", half, half)
