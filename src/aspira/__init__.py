"""Aspira: a model server in Python, compatible with TensorFlow Serving."""

__version__ = "0.1.0"
