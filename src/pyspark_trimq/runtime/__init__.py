"""Programs that Spark starts: which Java and which Python it runs, and the launcher scripts for both."""
