"""Part VII: one token matters."""
