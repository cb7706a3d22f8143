"""Codec between the layouts: one neutral message, a pair of functions for each layout, and the residue with what no
field of the other layout can hold."""
