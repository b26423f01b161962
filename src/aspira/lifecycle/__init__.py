"""Which versions live: sources say what ought to be loaded, the manager makes it so."""
