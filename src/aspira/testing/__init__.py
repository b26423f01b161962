"""Public fakes and toys for tests and benchmarks, whose answers can be worked out by hand."""
