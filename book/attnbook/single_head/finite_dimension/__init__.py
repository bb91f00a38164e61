"""Page `08_finite_dimension`: two steps at finite d, with every constant."""
