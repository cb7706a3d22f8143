"""gRPC transport over HTTP/2: frames, HPACK, flow control and calls. Carries calls to a front-end and knows no
service."""
