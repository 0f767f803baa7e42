"""The code around predictors: bytes to pixels, OCR, plain tensors. Runs in worker processes."""
