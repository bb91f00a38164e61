"""What the explorers of the book need from the mathematics: their data, and reference values for their tests."""
