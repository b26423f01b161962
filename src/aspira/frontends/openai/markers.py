"""Markers in a text that comes in pieces: what could still become one has to be held back."""


def count_overlap(text: str, *, marker: str) -> int:
    """The length of the text's longest end that could be the marker's beginning."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if marker.startswith(text[-length:]):
            return length
    return 0


def split_settled(text: str, *, marker: str) -> tuple[str, str]:
    """What no marker can make its own, to which belongs the white space before it; and the rest."""
    num_kept = count_overlap(text, marker=marker)
    settled = len(text[: len(text) - num_kept].rstrip())
    return text[:settled], text[settled:]
