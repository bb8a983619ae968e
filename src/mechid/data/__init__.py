"""What was measured: logs of named channels over time, their units, filters, readers and writers."""
