"""A self-hosted inference server for Paddle and ONNX models."""

__version__ = "0.1.0"
