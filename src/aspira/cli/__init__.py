"""Command lines. Nothing heavy is imported here: help must come at once."""
