"""What the broker costs on this machine, each figure beside a bare loop of the same system calls: `make bench`."""
