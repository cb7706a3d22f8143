"""The broker as a process: listeners and connections, the HTTP front-end, start and stop, and offline inspection."""
