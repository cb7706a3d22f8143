"""RocketMQ front-ends: name server, broker (remoting) and gRPC."""
