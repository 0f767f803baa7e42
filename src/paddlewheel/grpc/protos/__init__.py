"""The messages of the gRPC edge; ``scripts/protos`` makes the ``*_pb2`` modules of the ``*.proto`` files."""
