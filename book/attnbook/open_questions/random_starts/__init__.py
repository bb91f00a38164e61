"""IV.6: heads that start apart, as vectors and as products of matrices."""
