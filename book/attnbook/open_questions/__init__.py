"""Part IV: what the three papers leave open, derived and measured on the single head and its relatives."""
