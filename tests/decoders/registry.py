"""All decoders by name."""

from typing import Final

from tests.decoders import answers, files, kubernetes_objects, messages, programs, reports
from tests.decoders.decoder import Decoder

ALL: Final[tuple[Decoder, ...]] = (
    *messages.DECODERS,
    *kubernetes_objects.DECODERS,
    *reports.DECODERS,
    *programs.DECODERS,
    *files.DECODERS,
    *answers.DECODERS,
)
BY_NAME: Final = {decoder.name: decoder for decoder in ALL}
