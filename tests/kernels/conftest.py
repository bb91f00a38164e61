"""Where Triton programs are tested: compiled on a GPU, interpreted on the CPU."""

import math

import pytest
import torch


@pytest.fixture(scope="session")
def triton_device() -> torch.device:
    """The GPU if there is one, else the CPU with Triton's interpreter (tests/conftest.py)."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def unwritten_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that nothing was written to holds NaNs: one that is read shows."""
    real = torch.Tensor.new_empty

    def full_of_nan(self, *size, **options):
        blank = real(self, *size, **options)
        return blank.fill_(math.nan) if blank.is_floating_point() else blank

    monkeypatch.setattr(torch.Tensor, "new_empty", full_of_nan)
