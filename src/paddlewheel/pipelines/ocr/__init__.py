"""OCR: detection, orientation, recognition, reading order.

Nothing is imported here: the front process needs :mod:`.parameters` alone, and must not load OpenCV for it.
"""
