"""HTTP streams for sources: connects safely, retries, and can be closed from any thread.

class Lines(hw.Source, name="lines", schema="line BINARY", identity=("url",)):
    def __init__(self, url: str):
        self._http = Http(url)                          # checks the URL, does not connect

    def read(self):
        for connection in self._http.connections():     # one after another, with pauses in between
            for lines in connection.lines():            # all complete lines that have arrived; or chunks()
                yield lines

    def close(self):
        self._http.close()
"""

from headwater.http.client import Http, Request
from headwater.http.connection import Connection
from headwater.http.errors import HttpError

__all__ = ["Connection", "Http", "HttpError", "Request"]
