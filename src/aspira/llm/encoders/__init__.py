"""Encoders: models that make one vector of a text. Found on disk, built, batched as others are."""
