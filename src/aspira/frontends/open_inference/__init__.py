"""The Open Inference Protocol, as Triton and KServe serve it, over HTTP and gRPC."""
