"""`keyturn deploy`: files that a deployment of several processes needs."""

from __future__ import annotations

import os
import re
import secrets
from hashlib import sha256
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, unquote, urlsplit

import typer

from keyturn.cli import show
from shared.errors import CannotDo
from shared.private_directory import make_private_directory
from shared.redis_roles import REPLICA, ROLES, SENTINEL, RedisRole, acl_file
from shared.redis_url import sentinel_url, split_urls
from shared.setting_values import PREFIX

app = typer.Typer(no_args_is_help=True, help="Files that a deployment of several processes needs.")
VARIABLE = f"{PREFIX}REDIS_URL"
ACL_FILE = "users.acl"
_KEPT = re.compile(
    rf"^(?:{VARIABLE}=rediss?(?:\+sentinel)?://[a-z]+:([^@]+)@|masterauth (\S+)|sentinel auth-pass \S+ (\S+))", re.M
)


@app.callback()
def deploy() -> None:
    """Files that a deployment of several processes needs."""


@app.command()
def acl(
    directory: Annotated[Path, typer.Option("--dir", help="Where the files go; made if it is missing.")],
    url: Annotated[
        str,
        typer.Option(
            help="Where processes reach Redis, without user and password; several servers separated by commas."
        ),
    ] = "redis://localhost:6379/0",
    json: show.Json = False,
) -> None:
    """Write one Redis user per role: users.acl for the server, and ROLE.env with the URL for the processes of each role.

    Where the URL names Sentinels, replica.conf and sentinel.conf have the lines with which the servers log in to each other.
    Passwords are made up once: if the files are there, they keep theirs, so this can be repeated after every upgrade.
    """
    if not all(map(_is_of_a_server, split_urls(url))):
        text = "--url is redis://HOST:PORT/DB, redis+sentinel://HOST,HOST/SERVICE or with rediss, without user and password"
        raise typer.BadParameter(text)
    try:
        make_private_directory(directory)
        passwords = {role: _password(directory / f"{role.name}.env") for role in ROLES}
        services = dict.fromkeys(asked.service for asked in map(sentinel_url, split_urls(url)) if asked is not None)
        own = {role: _password(directory / f"{role.name}.conf") for role in ((REPLICA, SENTINEL) if services else ())}
        hashes = [(role, sha256(password.encode()).hexdigest()) for role, password in (passwords | own).items()]
        _write(directory / ACL_FILE, acl_file(hashes), mode=0o644)  # the server's user must read it; it holds hashes
        if services:
            _write(directory / "replica.conf", f"masteruser {REPLICA.name}\nmasterauth {own[REPLICA]}\n")
            _write(directory / "sentinel.conf", "".join(_sentinel_login(name, own[SENTINEL]) for name in services))
        for role, password in passwords.items():
            _write(directory / f"{role.name}.env", f"{VARIABLE}={_url(url, role, password)}\n")
    except OSError as error:
        raise CannotDo(f"{error.filename}: {error.strerror}") from None
    if json:
        show.as_json([{"role": role.name, "runs": role.runs, "rights": role.rights} for role in ROLES])
        return
    typer.echo(f"{directory / ACL_FILE}: give it to Redis as `aclfile`, then restart it or call ACL LOAD")
    if services:
        typer.echo(f"{directory / 'replica.conf'}: add it to the configuration of every server")
        typer.echo(f"{directory / 'sentinel.conf'}: add it to that of every Sentinel, behind its `sentinel monitor`")
    show.table(("role", "for", "its file"), [(r.name, r.runs, directory / f"{r.name}.env") for r in ROLES], empty="")


def _is_of_a_server(url: str) -> bool:
    asked, place = sentinel_url(url, "--url"), urlsplit(url)
    if asked is not None:
        return asked.username is None and asked.password is None
    return place.scheme in ("redis", "rediss") and bool(place.hostname) and not place.username and not place.password


def _password(file: Path) -> str:
    """The password that a role has, or a new one."""
    found = _KEPT.search(file.read_text()) if file.exists() else None
    return unquote(found[found.lastindex or 1]) if found is not None else secrets.token_urlsafe(32)


def _sentinel_login(service: str, password: str) -> str:
    return f"sentinel auth-user {service} {SENTINEL.name}\nsentinel auth-pass {service} {password}\n"


def _url(url: str, role: RedisRole, password: str) -> str:
    """The same user on every server: all of them take the same file."""
    user = f"{role.name}:{quote(password, safe='')}@"
    return ",".join(one.replace("://", f"://{user}", 1) for one in split_urls(url))


def _write(path: Path, text: str, mode: int = 0o600) -> None:
    """Put a file in place at once; unless `mode` says otherwise, for its owner alone."""
    new = path.with_name(f".{path.name}.new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
    new.replace(path)
