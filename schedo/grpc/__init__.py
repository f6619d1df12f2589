"""The gRPC interface: another way to the operations of the HTTP API. It needs the extra `grpc`."""
