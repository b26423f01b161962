"""TensorFlow's protobuf messages as contracts and back: shared by gRPC and by warm-up files."""
