"""What a mechanism is: parts, the builder, addresses and free parameters."""
