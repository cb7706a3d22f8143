"""Pure codecs of stored bytes: no IO, no clock, no logging."""
