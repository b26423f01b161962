"""One file per framework: each makes a Servable of what that framework writes to disk."""
