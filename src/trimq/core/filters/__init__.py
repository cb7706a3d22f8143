"""SQL filters over message properties."""
