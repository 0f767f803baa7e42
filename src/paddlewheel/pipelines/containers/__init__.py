"""The outer structure of picture files: what they are, how large, how many pages. Nothing here decodes a pixel.

Readers take untrusted bytes. Running off the end shows as IndexError or struct.error, which the caller translates;
every walk is bounded, so that a file made of a million empty blocks costs milliseconds.
"""
