"""Where Triton programs are tested: compiled on a GPU, interpreted on the CPU."""

import math
import os

import pytest
import torch


@pytest.fixture(scope="session")
def triton_device() -> torch.device:
    """The GPU if there is one, else the CPU with Triton's interpreter (tests/conftest.py)."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def _how_programs_ran(request: pytest.FixtureRequest) -> None:
    """The report of a run says of each test whether its programs were compiled; benchmarks/card.py reads it."""
    if "triton_device" in request.fixturenames:
        on_card = request.getfixturevalue("triton_device").type == "cuda"
        interpreted = os.environ.get("TRITON_INTERPRET") == "1" or not on_card
        request.node.user_properties.append(("triton", "interpreted" if interpreted else "compiled"))


@pytest.fixture
def unwritten_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that nothing was written to holds NaNs: one that is read shows."""
    real = torch.Tensor.new_empty

    def full_of_nan(self, *size, **options):
        blank = real(self, *size, **options)
        return blank.fill_(math.nan) if blank.is_floating_point() else blank

    monkeypatch.setattr(torch.Tensor, "new_empty", full_of_nan)
