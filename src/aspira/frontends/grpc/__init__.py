"""TensorFlow Serving's gRPC services, and the gRPC protocol itself where the listener has none."""
