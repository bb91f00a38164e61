"""Part VI: a staircase of plateaus."""
