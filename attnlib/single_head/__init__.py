"""Part I: benign overfitting in a single softmax head (arXiv 2410.07746)."""
