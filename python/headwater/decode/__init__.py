"""Records as bytes → rows: `text`, `binary`, `json` to a schema, or a function of one's own. No I/O."""

from headwater.decode.decoder import Decoder, decoder

__all__ = ["Decoder", "decoder"]
