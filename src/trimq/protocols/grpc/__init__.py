"""HTTP/2 and gRPC without IO, for any service."""
