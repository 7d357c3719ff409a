"""A set of labelled images in memory."""

from typing import Any

import pytest
import torch

from helpers.data import mnist
from helpers.images import Images, fake_images


def test_images_come_out_normalized_for_every_kind_of_index() -> None:
    pixels = torch.arange(3 * 2 * 2 * 2, dtype=torch.uint8).view(3, 2, 2, 2) * 10
    kept = pixels.clone()
    images = Images(pixels, torch.tensor([4, 5, 6]), ("a",), "test", (0.5, 0.1), (0.5, 0.2))
    image, label = images[2]
    assert image.dtype == torch.float32
    assert label.item() == 6
    mean, std = torch.tensor([0.5, 0.1]).view(2, 1, 1), torch.tensor([0.5, 0.2]).view(2, 1, 1)
    torch.testing.assert_close(image, (pixels[2] / 255 - mean) / std)
    for index in ([2, 0], torch.tensor([2, 0])):
        batch, labels = images[index]
        torch.testing.assert_close(batch, (pixels[[2, 0]] / 255 - mean) / std)
        assert labels.tolist() == [6, 4]
    assert images[1:][1].tolist() == [5, 6]
    assert torch.equal(images.images, kept)
    assert len(list(images)) == 3  # plain iteration ends


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"images": torch.zeros(2, 1, 3, 3)}, "uint8"),
        ({"images": torch.zeros(2, 3, 3, dtype=torch.uint8)}, "channels"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, "one for each image"),
        ({"labels": torch.zeros(2)}, "int64"),
        ({"mean": (0.1, 0.2)}, "one value for each channel"),
    ],
)
def test_images_refuse_what_does_not_fit_together(change: dict[str, Any], words: str) -> None:
    good = {
        "images": torch.zeros(2, 1, 3, 3, dtype=torch.uint8),
        "labels": torch.zeros(2, dtype=torch.int64),
        "classes": ("a",),
        "source": "test",
        "mean": (0.5,),
        "std": (0.5,),
    }
    Images(**good)
    with pytest.raises(ValueError, match=words):
        Images(**{**good, **change})


def test_a_subset_is_drawn_without_repeats_and_repeats_with_its_seed() -> None:
    train = mnist(full=False)
    some = train.subset(100)
    assert len({image.numpy().tobytes() for image in some.images}) == 100
    assert torch.equal(some.images, train.subset(100).images)
    assert not torch.equal(some.images, train.subset(100, seed=1).images)
    assert some.source == "100 drawn from bundled MNIST sample: 4,000 of 5,000 digits"
    for n in (0, 4001):
        with pytest.raises(ValueError, match="cannot draw"):
            train.subset(n)


def test_grey_images_become_rgb_and_colour_ones_stay() -> None:
    grey = mnist(train=False, full=False)
    colour = grey.as_rgb()
    image, _ = colour[7]
    assert image.shape == (3, 28, 28)
    assert all(torch.equal(channel, grey[7][0][0]) for channel in image)
    assert colour[[1, 2]][0].shape == (2, 3, 28, 28)
    assert colour.as_rgb() is colour
    with pytest.raises(ValueError, match="2 channels"):
        fake_images(1, channels=2, side=4).as_rgb()


def test_fake_images_repeat_with_their_seed() -> None:
    fake = fake_images(6, channels=3, side=8, classes=4)
    assert fake.images.shape == (6, 3, 8, 8)
    assert int(fake.labels.max()) < 4
    assert torch.equal(fake.images, fake_images(6, 3, 8, 4).images)
    assert not torch.equal(fake.images, fake_images(6, 3, 8, 4, seed=1).images)
    assert "random" in fake.source


def test_showing_images_does_not_print_their_pixels() -> None:
    assert repr(mnist(full=False)) == (
        "Images(4,000 of 1×28×28, 10 classes: bundled MNIST sample: 4,000 of 5,000 digits)"
    )
