"""Predictors: one protocol over Paddle Inference, OpenVINO, ONNX Runtime and an echo for tests."""
