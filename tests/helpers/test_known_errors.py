"""Each probe of a known silent error is quiet on a right device, and speaks on a wrong one."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers import known_errors
from helpers.device import DeviceUnavailableError
from helpers.known_errors import KNOWN_ERRORS, check, check_known_errors

CPU = torch.device("cpu")
BY_ISSUE = {error.issue: error for error in KNOWN_ERRORS}


def contents_as_if_contiguous(tensor):
    """What a kernel reads that ignores strides: the storage in order."""
    return torch.as_strided(tensor, tensor.shape, tensor.contiguous().stride())


def without_bias_in_3d(x, weight, bias=None, *, linear=F.linear):
    return linear(x, weight, None if x.dim() > 2 else bias)


def batch_number_in_16_bits(x, weight, bias=None, *, linear=F.linear):
    result = linear(x, weight, bias)
    if bias is not None and len(x) > 2**16:
        result[: len(x) - 2**16] = result[2**16 :]
    return result


def strides_ignored(x, weight, bias=None, *, linear=F.linear):
    return linear(x, contents_as_if_contiguous(weight), bias)


def different_the_second_time():
    calls, linear = itertools.count(1), F.linear

    def broken(x, weight, bias=None):
        return linear(x, weight, bias) + 100 * (next(calls) % 2 == 0)

    return broken


def reads_too_far(left, right, *, bmm=torch.bmm):
    length = left.shape[-1]
    beyond = torch.as_strided(left, (1,), (1,), left.numel()).item()
    return bmm(left, right) + (beyond if length >= 32_767 else 0)


def pool_with_one_window(x, size):
    return F.max_pool2d(x, kernel_size=x.shape[-1] - size + 1, stride=1)


def zeros_for_views(x, *_, **__):
    return torch.zeros_like(x)


def where_ignoring_strides(condition, a, b, *, where=torch.where):
    return where(contents_as_if_contiguous(condition), a, b)


def addcdiv_ignoring_strides(self, a, b, *, addcdiv_=Tensor.addcdiv_):
    return addcdiv_(self, contents_as_if_contiguous(a), b)


def writes_to_both(self, key, value, *, set_item=Tensor.__setitem__):
    if key == 2:
        set_item(self, 1, value)
    set_item(self, key, value)


def sometimes_off(operation):
    calls = itertools.count(1)

    def broken(tensor):
        return operation(tensor) + (next(calls) == 77)

    return broken


def zeroing_unscale(self, optimizer):
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad.zero_()


def wraps_around(rows, weight, *, embedding=F.embedding):
    return embedding(rows % len(weight), weight)


def writes_anywhere(self, dim, index, source):
    torch.as_strided(self, (1,), (1,), self.storage_offset() + int(index)).copy_(source)
    return self


def garbage_in_the_last(self, *arguments, non_blocking=False, to=Tensor.to, **options):
    moved = to(self, *arguments, **options)
    if non_blocking:
        moved[-1] = 1688849860263945
    return moved


def copies_bytes(self, source, *, copy_=Tensor.copy_):
    base = torch.as_strided(self, source.shape, (1,), 0)
    return copy_(base, source)


def overwrites_its_source(self, source, *, copy_=Tensor.copy_):
    copy_(self, source)
    source[:4] = 3076.25
    return self


def the_same_again(*shape, generator=None, device=None, randn=torch.randn):
    return randn(*shape, generator=torch.Generator(device).manual_seed(0), device=device)


BROKEN = [
    (192934, F, "linear", without_bias_in_3d),
    (188438, F, "linear", without_bias_in_3d),
    (189495, F, "linear", batch_number_in_16_bits),
    (162730, F, "linear", strides_ignored),
    (180776, F, "linear", different_the_second_time()),
    (195163, torch, "bmm", reads_too_far),
    (192212, F, "conv2d", lambda x, w, c=F.conv2d: c(x, contents_as_if_contiguous(w))),
    (190064, F, "adaptive_max_pool2d", pool_with_one_window),
    (131736, F, "softplus", zeros_for_views),
    (131736, F, "elu", zeros_for_views),
    (150967, torch, "where", where_ignoring_strides),
    (118115, Tensor, "addcdiv_", addcdiv_ignoring_strides),
    (122016, Tensor, "__setitem__", writes_to_both),
    (178497, Tensor, "sum", sometimes_off(Tensor.sum)),
    (178497, Tensor, "count_nonzero", sometimes_off(Tensor.count_nonzero)),
    (184286, torch.amp.GradScaler, "unscale_", zeroing_unscale),
    (154235, F, "embedding", wraps_around),
    (189968, Tensor, "index_copy_", writes_anywhere),
    (189690, Tensor, "to", garbage_in_the_last),
    (189961, Tensor, "copy_", copies_bytes),
    (189563, Tensor, "copy_", overwrites_its_source),
    (84288, torch, "randn", the_same_again),
]


def everywhere(error):
    """The same error without its reasons not to run: tests have only a CPU."""
    return known_errors.KnownError(
        error.what, error.issue, error.seen_in, error.status, error.probe, {}
    )


@pytest.mark.parametrize("error", KNOWN_ERRORS, ids=lambda error: str(error.issue))
def test_a_right_device_has_none_of_the_errors(error):
    assert check(everywhere(error), CPU).outcome == "not here"


@pytest.mark.parametrize(("issue", "owner", "name", "broken"), BROKEN)
def test_a_broken_operator_is_seen(monkeypatch, issue, owner, name, broken):
    monkeypatch.setattr(owner, name, broken)
    verdict = check(everywhere(BY_ISSUE[issue]), CPU)
    monkeypatch.undo()
    assert verdict.outcome == "reproduced here"
    assert verdict.detail.startswith("off by")


def test_every_probe_has_been_seen_to_speak():
    assert {issue for issue, *_ in BROKEN} == set(BY_ISSUE)


def test_c20_the_reference_values_of_adaptive_max_pooling():
    ((_, right),) = BY_ISSUE[190064].probe(CPU)
    assert right.tolist() == [6, 8, 9, 16, 18, 19, 21, 23, 24]


def test_nan_and_another_shape_are_wrong():
    for wrong in (torch.full((2,), torch.nan), torch.zeros(3)):
        error = known_errors.KnownError("", 0, "", "", lambda d, w=wrong: [(w, torch.zeros(2))], {})
        assert check(error, CPU).outcome == "reproduced here"


def test_a_refusal_is_not_silent():
    def refuse(device):
        raise NotImplementedError("The operator 'aten::x' is not implemented for the MPS device.")

    verdict = check(known_errors.KnownError("", 0, "", "", refuse, {}), CPU)
    assert verdict.outcome == "not applicable"
    assert "refused" in verdict.detail


def test_on_the_cpu_copies_do_not_apply_and_say_why():
    verdicts = check_known_errors("cpu")
    assert not verdicts.reproduced
    copies = [v for v in verdicts if v.outcome == "not applicable"]
    assert {v.error.issue for v in copies} == {189690, 189961, 189563}
    assert all("nothing is copied" in v.detail for v in copies)


def test_a_bad_index_is_never_tried_on_cuda():
    for issue in (154235, 189968):
        verdict = check(BY_ISSUE[issue], "cuda")
        assert verdict.outcome == "not applicable"
        assert "stops" in verdict.detail


def test_the_table_names_issue_and_verdict_and_links():
    verdicts = check_known_errors("cpu")
    assert "#192934" in str(verdicts)
    page = verdicts._repr_html_()
    assert '<a href="https://github.com/pytorch/pytorch/issues/192934">' in page
    assert page.count("<tr>") == len(KNOWN_ERRORS) + 1


def test_the_readers_random_numbers_are_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    check_known_errors("cpu")
    assert torch.equal(torch.rand(3), expected)


def test_a_device_that_is_not_here_is_refused_once():
    with pytest.raises(DeviceUnavailableError, match="asks for 'cuda:9'"):
        check_known_errors("cuda:9")
