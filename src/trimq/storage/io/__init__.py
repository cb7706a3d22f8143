"""Owns every file-system call, its memory double, locks, atomic files and the page cache."""
