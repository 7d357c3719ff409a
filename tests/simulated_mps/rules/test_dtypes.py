import numpy as np
import pytest
import torch

FLOAT64 = "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support"


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(2, dtype=torch.float64, device="mps"),
        lambda: torch.zeros(2, dtype=torch.float64).to("mps"),
        lambda: torch.zeros(2, device="mps").double(),
        lambda: torch.zeros(2, device="mps").to(torch.float64),
        lambda: torch.tensor(np.zeros(3), device="mps"),
        lambda: torch.from_numpy(np.zeros(3)).to("mps"),
        lambda: torch.nn.Linear(2, 2).double().to("mps"),
        lambda: torch.linspace(0, 1, 3, dtype=torch.float64, device="mps"),
        lambda: torch.zeros(2, device="mps").sum(dtype=torch.float64),
    ],
)
def test_float64_raises_the_type_error_of_mps(make):
    with pytest.raises(TypeError, match=FLOAT64):
        make()


def test_complex128_raises_a_type_error():
    with pytest.raises(TypeError, match="Trying to convert ComplexDouble to the MPS backend"):
        torch.zeros(2, dtype=torch.complex128, device="mps")


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.complex64,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    ],
)
def test_other_dtypes_work(dtype):
    x = torch.ones(3, dtype=dtype, device="mps")
    assert x.dtype == dtype
    assert x.cpu().tolist() == torch.ones(3, dtype=dtype).tolist()


def test_numpy_raises_and_says_what_to_do():
    x = torch.ones(2, device="mps")
    for convert in (lambda: x.numpy(), lambda: np.asarray(x)):
        with pytest.raises(TypeError, match=r"can't convert mps:0 .* Use Tensor\.cpu\(\)"):
            convert()
    assert x.cpu().numpy().sum() == 2


def test_more_than_16_dimensions_are_refused():
    with pytest.raises(RuntimeError, match="dimensions <= 16, but got 17"):
        torch.zeros([1] * 17, device="mps")


def test_python_numbers_keep_the_dtype():
    x = torch.ones(2, dtype=torch.float16, device="mps")
    assert (x * 2.5).dtype == torch.float16
    assert (x / 3).dtype == torch.float16
    assert (torch.ones(2, dtype=torch.int64, device="mps") / 2).dtype == torch.float32
