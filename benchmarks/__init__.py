"""Speed, measured: `make bench`. Every case passes a correctness gate before its time is printed."""
