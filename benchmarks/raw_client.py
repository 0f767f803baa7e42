"""A closed loop over raw sockets, light enough to load a server that answers thousands of calls a second.

python raw_client.py URL CLIENTS SECONDS
"""

from __future__ import annotations

import asyncio
import sys
import time

BODY = b'{"inputs":[{"name":"input","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'


async def one(host: str, port: int, end: float, times: list[float]) -> None:
    """Send and wait, over one connection, until `end`."""
    reader, writer = await asyncio.open_connection(host, port)
    request = (
        f"POST /v2/models/ocr/infer HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(BODY)}\r\n\r\n"
    ).encode() + BODY
    while (began := time.perf_counter()) < end:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        times.append(time.perf_counter() - began)
    writer.close()


async def main(url: str, clients: int, seconds: float) -> None:
    """Print calls a second and the median."""
    host, port = url.removeprefix("http://").split(":")
    times: list[float] = []
    end = time.perf_counter() + seconds
    await asyncio.gather(*(one(host, int(port), end, times) for _ in range(clients)))
    times.sort()
    print(f"{len(times) / seconds:.0f} calls/s, p50 {times[len(times) // 2] * 1000:.2f} ms")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
