"""The command `trimq`: starts the broker, administers a running one and inspects the folder of a stopped one."""
