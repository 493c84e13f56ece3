"""Whether an address is a platform's own. Our credentials go to no other, whoever names it."""

from __future__ import annotations

from yarl import URL

from shared.errors import Undeliverable


def require_own(address: str, api_url: str, *domains: str) -> URL:
    """The address, if it is at one of these domains by https, or where the platform's API is. Undeliverable otherwise."""
    try:
        url, api = URL(address), URL(api_url)
    except ValueError:
        raise Undeliverable("an address that cannot be read") from None
    host = url.host or ""
    is_api = (url.scheme, host, url.port) == (api.scheme, api.host, api.port)
    if is_api or (url.scheme == "https" and any(host == one or host.endswith(f".{one}") for one in domains)):
        return url
    raise Undeliverable("an address that is none of the platform's own")
