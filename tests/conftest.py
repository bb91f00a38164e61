"""Before anything imports Triton: without a GPU its programs run in the interpreter, on tensors of the CPU."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
