"""Decoders as SavedModels: what they compute in TensorFlow, how one is written and opened again."""
