r"""Other coordinates for the same data: rotate a sample, or reduce a dense one to the span of its own vectors.

If $Q$ is orthogonal, gradient descent from $(Qv_0, Qp_0)$ on the tokens $Qx_{it}$ visits $(Qv_t, Qp_t)$: outputs, margins and
attention are the same numbers. Proof: every inner product is kept, and both gradients are combinations of tokens with
coefficients that are functions of inner products. Rules that look at single coordinates (sign descent, Adam) have no such law.
"""

from dataclasses import replace

import torch

from attnlib import checks
from attnlib.single_head.law import Sample


def rotate(sample: Sample, matrix: torch.Tensor) -> Sample:
    """Apply a matrix to every vector of the sample: x -> matrix @ x.

    matrix: (m', m) with orthonormal columns, or orthonormal rows that span the data. Raises ValueError unless one of its Gram
    matrices is the identity to 1e-10.
    """
    checks.tensor("matrix", matrix, ("m'", sample.tokens.shape[-1]), like=sample.tokens)
    gram = matrix.mT @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.mT
    gap = (gram - torch.eye(gram.shape[0], dtype=gram.dtype, device=gram.device)).abs().max().item()
    if gap > 1e-10:
        raise ValueError(f"matrix must be orthogonal; got one that is off by {gap:.2g}: take Q of a QR decomposition")
    return replace(
        sample,
        tokens=sample.tokens @ matrix.mT,
        signals=sample.signals @ matrix.mT,
        start_directions=sample.start_directions @ matrix.mT,
        coordinates="reduced" if matrix.shape[0] < matrix.shape[1] else sample.coordinates,
    )


def reduce(sample: Sample) -> Sample:
    """The same data in an orthonormal basis of its own span: m = 2 + n(T-1) + start vectors, at most d.

    One run only (every run has its own basis). A QR decomposition of (2 + n(T-1) + r) x m numbers; raises ValueError for R > 1.
    """
    if sample.runs != 1:
        raise ValueError(f"sample must hold one run; got {sample.runs}: use sample.run(r)")
    m = sample.tokens.shape[-1]
    rows = torch.cat([sample.signals[0], sample.noise_tokens()[0].reshape(-1, m), sample.start_directions[0]])
    basis, _ = torch.linalg.qr(rows.mT)  # (m, rank)
    return rotate(sample, basis.mT)
