"""What others on this machine, or on the way to another, could read."""

from __future__ import annotations

import ipaddress
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from keyturn.cli.doctor.finding import Finding, ok, redacted, warn
from shared.redis_url import hosts_of, split_urls
from shared.settings import Settings

SETTINGS_FILES = (Path(".env"), Path("keyturn.toml"))


def check_exposure(settings: Settings) -> Iterator[Finding]:
    yield from readable_files((*SETTINGS_FILES, settings.data_dir))
    for url in split_urls(settings.redis_url.get_secret_value()) if settings.redis_url is not None else ():
        if url.startswith(("redis://", "redis+sentinel://")) and not all(map(is_this_machine, hosts_of(url))):
            yield warn(f"redis {redacted(url)}", "everything travels in the clear", "use rediss:// (TLS)")
    for block in settings.blocks:
        for name, url in block.addresses.items():
            if url.startswith("http://") and not is_here(url):
                yield warn(name, "what is sent there travels in the clear", "use an https:// address")


def readable_files(paths: Iterable[Path]) -> Iterator[Finding]:
    """Files that hold secrets or conversations should be for their owner alone."""
    open_to_others = []
    for path in paths:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue  # not there
        if mode & 0o077:
            open_to_others.append(f"{path} ({mode:04o})")
    if open_to_others:
        yield warn("permissions", f"open to other users: {', '.join(open_to_others)}", "chmod go= on them")
    else:
        yield ok("permissions", "settings and data are for their owner alone")


def is_here(url: str) -> bool:
    """Whether a URL stays on this machine."""
    try:
        return is_this_machine(urlsplit(url).hostname or "")
    except ValueError:
        return False


def is_this_machine(host: str) -> bool:
    """Whether a host is this one; no host at all is a socket in the file system."""
    try:
        return host in ("", "localhost") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
