"""What operators see: metrics and log lines, made from events of the floors below."""
