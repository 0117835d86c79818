"""Decodes records, which are bytes, to rows: as text, bytes, JSON, CSV, MessagePack, or by your own function.

Decoders do no I/O.
"""

from headwater.decode.tables import Decoder, decoder

__all__ = ["Decoder", "decoder"]
