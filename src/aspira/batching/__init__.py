"""How requests share a run: the one adapter from a blocking model to an async servable."""
