"""Where Triton programs are tested: compiled on a GPU, interpreted on the CPU."""

import pytest
import torch


@pytest.fixture(scope="session")
def triton_device() -> torch.device:
    """The GPU if there is one, else the CPU with Triton's interpreter (tests/conftest.py)."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
