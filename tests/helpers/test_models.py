"""The networks have the published shapes."""

import pytest
import torch

from helpers.models import mnist_cnn, resnet18


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_mnist_cnn_is_the_published_one():
    model = mnist_cnn()
    assert count(model) == 831_626
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize(
    ("channels", "small", "side"), [(3, False, 64), (3, True, 32), (1, False, 64)]
)
def test_resnet18_takes_its_images(channels, small, side):
    model = resnet18(channels=channels, small_images=small).eval()
    assert model(torch.zeros(1, channels, side, side)).shape == (1, 10)


def test_small_stem_keeps_the_resolution():
    images = torch.zeros(1, 3, 32, 32)
    seen = {}
    for small in (False, True):
        model = resnet18(small_images=small).eval()
        model.layer1.register_forward_hook(
            lambda _, __, out, small=small: seen.update({small: out.shape[-1]})
        )
        model(images)
    assert seen == {False: 8, True: 32}
