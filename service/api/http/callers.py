"""Where a request comes from: a program on this machine, a page in its browser, or elsewhere."""

import ipaddress

from fastapi import Request

# What proxies add: one on this machine connects from loopback for callers who are elsewhere.
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")


def on_loopback(request: Request) -> bool:
    """Tell whether the caller is a program on this machine that meant to call us.

    A proxy on this machine, or a page in a browser here (by its own script, or by a name that resolves to
    loopback), also connects from loopback: forwarding headers, a foreign Host or Origin give them away.
    """
    if request.client is None or any(name in request.headers for name in _FORWARDED):
        return False
    return _is_loopback(request.client.host) and _named_as_ours(request)


def from_a_page(request: Request) -> bool:
    """Tell whether a request that came over loopback may be that of a foreign page in a browser here.

    Told by our own address: that of the caller may be one that a forwarding header claims, and a page under a
    name that resolves to loopback may send such a header.
    """
    ours: str = (request.scope.get("server") or ("",))[0]
    return _is_loopback(ours) and not (_nameless(request) or _named_as_ours(request))


def _nameless(request: Request) -> bool:
    """Tell whether no host was named, as HTTP/1.0 allows.

    No page sends this: browsers speak HTTP/1.1 and always name the host, and a script cannot take it away.
    """
    old = request.scope.get("http_version") == "1.0"
    return old and "host" not in request.headers and "origin" not in request.headers


def _named_as_ours(request: Request) -> bool:
    """Tell whether Host, and Origin if there is one, name loopback."""
    origin = request.headers.get("origin")
    named = [_host(request.headers.get("host", ""))]
    return all(map(_is_loopback, named if origin is None else [*named, _host(origin.partition("//")[2])]))


def _host(host: str) -> str:
    """Return the host of `host:port`, brackets of IPv6 and the dot that ends a full name taken off."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    # ::ffff:127.0.0.1: so a socket of both families names a caller by IPv4.
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
