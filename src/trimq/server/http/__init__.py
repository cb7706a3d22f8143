"""HTTP front-end of the broker: health, metrics and administration in JSON."""
