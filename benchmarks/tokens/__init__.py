"""The benchmark of token services: `scripts/bench tokens`."""
