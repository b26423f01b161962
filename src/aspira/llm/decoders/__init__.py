"""What a decoder of each family computes: one short file per family."""
