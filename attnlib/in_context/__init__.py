"""In-context linear regression with multi-head softmax attention (arXiv 2503.12734): data, training, circuits, exact risks, claims."""
