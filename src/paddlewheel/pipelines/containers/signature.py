"""Tell what a file is from its first bytes; names and content types play no part."""

from __future__ import annotations

from paddlewheel.inference import Buffer

ALLOWED = ("JPEG", "PNG", "GIF", "BMP", "WebP", "TIFF", "AVIF")

_MAGIC = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "TIFF"),
    (b"MM\0+", "TIFF"),
    (b"%PDF-", "PDF"),
    (b"%!PS", "PostScript"),
    (b"\xc5\xd0\xd3\xc6", "PostScript"),
    (b"8BPS", "PSD"),
    (b"\0\0\x01\0", "ICO"),
    (b"icns", "ICNS"),
    (b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\0\0\0\x0cJXL ", "JPEG XL"),
    (b"II\xbc\x01", "JPEG XR"),
    (b"\xd7\xcd\xc6\x9a", "WMF"),
    (b"AT&TFORM", "DjVu"),
    (b"PK\x03\x04", "ZIP"),
    (b"\x1f\x8b", "gzip"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!", "RAR"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "Microsoft Office"),
)
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
_BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")
_TEXT_PROBE = 4096


def name_format(data: Buffer) -> str:
    """Return one of :data:`ALLOWED`, or what else the bytes look like ("HEIC", "SVG", "text", "unknown data", …)."""
    head = bytes(data[:_TEXT_PROBE])
    if head[:4] == b"RIFF":
        return "WebP" if head[8:12] == b"WEBP" else "RIFF"
    if head[4:8] == b"ftyp":
        return _name_iso_media(head)
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    return _name_text(head)


def _name_iso_media(head: bytes) -> str:
    """Name a file of the ISO base media family by its brands: the major one, then the compatible ones."""
    end = min(int.from_bytes(head[:4], "big"), len(head))
    brands = {head[8:12], *(head[at : at + 4] for at in range(16, end, 4))}
    if brands & {b"avif", b"avis"}:
        return "AVIF"
    return "HEIC" if brands & _HEIC_BRANDS else "MP4"


def _name_text(head: bytes) -> str:
    if head.startswith(_BYTE_ORDER_MARKS):
        return "text"
    # The probe may end within a character: up to three bytes of it are ignored.
    text = head.decode("utf-8", "ignore").lstrip("\ufeff")
    if len(head) - len(text.encode()) > 6 or any(ord(char) < 32 and char not in "\t\n\f\r\x1b" for char in text):
        return "unknown data"
    lowered = text.lower()
    if "<svg" in lowered:
        return "SVG"
    if lowered.lstrip().startswith(("<!doctype html", "<html")):
        return "HTML"
    return "text"
