"""A self-hosted inference server for Paddle and ONNX models."""

from importlib.metadata import version

__version__ = version("paddlewheel")
