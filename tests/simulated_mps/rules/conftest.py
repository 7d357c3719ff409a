"""These tests run inside the simulation only: there `test_rules.py` collects them."""

import pytest

from tests.simulated_mps import is_simulated

collect_ignore_glob = [] if is_simulated() else ["test_*.py"]


@pytest.fixture
def mps():
    import torch

    return torch.device("mps")
