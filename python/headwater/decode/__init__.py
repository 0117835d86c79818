"""Decodes records, which are bytes, to rows: `text`, `binary`, `json` with a schema, or your own function.

Decoders do no I/O.
"""

from headwater.decode.tables import Decoder, decoder

__all__ = ["Decoder", "decoder"]
