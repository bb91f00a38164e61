r"""Other coordinates for the same data: rotate a sample, or reduce a dense one to the span of its own vectors.

If $Q$ is orthogonal, gradient descent from $(Qv_0, Qp_0)$ on the tokens $Qx_{it}$ visits $(Qv_t, Qp_t)$: outputs, margins and
attention are the same numbers. Proof: every inner product is kept, and both gradients are combinations of tokens with
coefficients that are functions of inner products. Rules that look at single coordinates (sign descent, Adam) have no such law.
"""

from dataclasses import replace

import torch

from attnlib.single_head.law import Sample


def rotate(sample: Sample, matrix: torch.Tensor) -> Sample:
    """Apply a matrix to every vector of the sample: x -> matrix @ x.

    matrix: (m', m) with orthonormal columns, or orthonormal rows that span the data.
    """
    return replace(
        sample,
        tokens=sample.tokens @ matrix.mT,
        signals=sample.signals @ matrix.mT,
        start_directions=sample.start_directions @ matrix.mT,
        coordinates="reduced" if matrix.shape[0] < matrix.shape[1] else sample.coordinates,
    )


def reduce(sample: Sample) -> Sample:
    """The same data in an orthonormal basis of its own span: m = 2 + n(T-1) + start vectors, at most d.

    One run only (every run has its own basis). A QR decomposition of (2 + n(T-1) + r) x m numbers.
    """
    m = sample.tokens.shape[-1]
    rows = torch.cat([sample.signals[0], sample.noise_tokens()[0].reshape(-1, m), sample.start_directions[0]])
    basis, _ = torch.linalg.qr(rows.mT)  # (m, rank)
    return rotate(sample, basis.mT)
