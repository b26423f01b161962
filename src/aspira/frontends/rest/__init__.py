"""The REST protocol of TensorFlow Serving: JSON over HTTP."""
