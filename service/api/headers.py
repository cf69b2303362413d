"""What a caller accepts: JSON, or a page for people (RFC 9110, section 12.5.1)."""

VARY = {"Vary": "Accept"}


def prefers_html(accept: str) -> bool:
    """Tell whether HTML is accepted more than JSON (RFC 9110, section 12.5.1)."""
    return quality(accept, "text/html") > quality(accept, "application/json")


def quality(accept: str, media_type: str) -> float:
    """Return how much a media type is accepted, 0..1: by the most specific range that covers it."""
    ranges = {media_type: 2, media_type.partition("/")[0] + "/*": 1, "*/*": 0}
    best, weight = -1, 0.0
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if ranges.get(name, -1) > best:
            best, weight = ranges[name], _q(parameters)
    return weight


def _q(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return min(max(float(parameter[2:]), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0
