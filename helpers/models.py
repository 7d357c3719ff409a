"""The networks that the book trains."""

from torch import nn


def mnist_cnn(classes: int = 10) -> nn.Module:
    """Return the CNN of the MNIST article: (batch, 1, 28, 28) images to (batch, classes) logits.

    831,626 parameters for ten classes. Layer by layer as published, weaknesses included: there is
    no activation after either convolution.
    """
    return nn.Sequential(
        nn.Conv2d(1, 64, kernel_size=3),
        nn.MaxPool2d(kernel_size=2),
        nn.Conv2d(64, 512, kernel_size=3),
        nn.MaxPool2d(kernel_size=2),
        nn.Dropout2d(0.1),
        nn.AdaptiveMaxPool2d((1, 1)),
        nn.Flatten(),
        nn.Linear(512, 1024),
        nn.ReLU(),
        nn.Linear(1024, classes),
    )


def resnet18(classes: int = 10, channels: int = 3, small_images: bool = False) -> nn.Module:
    """Return torchvision's untrained ResNet-18: (batch, channels, height, width) to logits.

    With ``small_images`` the stem suits 32x32 pixels: a 3x3 convolution of stride 1 and no
    max-pool, so that the first stage still sees 32x32 positions instead of 8x8 (He et al., 2016,
    section 4.2, begin their CIFAR-10 networks the same way).
    """
    import torchvision  # here, because it takes longer to load than all of helpers

    model: nn.Module = torchvision.models.resnet18(num_classes=classes)
    if small_images:
        model.conv1 = nn.Conv2d(channels, 64, kernel_size=3, stride=1, padding=1, bias=False)
        model.maxpool = nn.Identity()
    elif channels != 3:
        model.conv1 = nn.Conv2d(channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
    return model
