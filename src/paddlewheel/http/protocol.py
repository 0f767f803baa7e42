"""uvicorn's HTTP protocol, made to notice at once that a client has hung up.

uvicorn stops reading a connection on which a second request arrived before the first was answered, so it does not
see the client leave until then, and it tells only the newest request. Here a few such requests are read ahead, and
every one of them hears of the end of the connection.
"""

from __future__ import annotations

from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

LEAVING: Final = "paddlewheel.leaving"
"""Where the scope of a request has the callbacks that are called when its client hangs up before it is answered."""
ARRIVED: Final = "paddlewheel.arrived"
"""Where it has the function that tells whether a part of the body is there already."""
_MOST_READ_AHEAD = 8


class WatchfulProtocol(HttpToolsProtocol):
    """One connection."""

    _open: tuple[RequestResponseCycle, ...] = ()

    def on_headers_complete(self) -> None:
        """Begin a request; keep reading while only a few wait behind it."""
        super().on_headers_complete()
        scope: dict[str, object] = self.cycle.scope  # type: ignore[assignment]  # scopes are open for extensions
        scope[LEAVING], scope[ARRIVED] = set(), self.cycle.message_event.is_set
        self._open = (*(cycle for cycle in self._open if not cycle.response_complete), self.cycle)
        if 0 < len(self.pipeline) <= _MOST_READ_AHEAD:
            self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every request of this connection that its client has gone."""
        self.pipeline.clear()
        for cycle in self._open:
            if not cycle.response_complete:
                cycle.disconnected = True
                for leave in tuple(cycle.scope[LEAVING]):  # type: ignore[typeddict-item]  # likewise
                    leave()
            cycle.message_event.set()
        super().connection_lost(exc)
