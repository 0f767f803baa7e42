"""The gRPC edge: the Open Inference Protocol, ModelService, health and reflection."""
