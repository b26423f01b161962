"""The `Priority` header of RFC 9218: how urgent a request is among those that wait with it.

Urgency runs from 0, the most urgent, to 7; 3 is the default. The header's other parameters, and
what cannot be understood, are ignored, as the RFC asks.
"""

import re

PRIORITY_HEADER = b"priority"

_DEFAULT_URGENCY = 3
_URGENCY = re.compile(rb"(?:^|[,\s])u\s*=\s*([0-7])(?=$|[,;\s])")


def parse_priority(value: bytes) -> int:
    """How many steps more urgent than the default: 3 to -4."""
    found = _URGENCY.search(value[:256])
    return _DEFAULT_URGENCY - int(found[1]) if found else 0
