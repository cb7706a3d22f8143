"""Topics of every layout for clients of every protocol: names, and streams that are read as neutral messages."""
