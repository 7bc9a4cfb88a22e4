"""The command serve."""

from __future__ import annotations

import secrets
import sys
import threading
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pisa_capc.cli import app
from pisa_capc.cli.listen import Listening, say, signals, summarise
from pisa_capc.cli.options import options_of
from pisa_capc.core.errors import ConfigError, MissingExtraError
from pisa_capc.core.progress import console as notes

if TYPE_CHECKING:
    from pisa_capc.live.serve.keys import Keys

PACKAGES = ("fastapi", "uvicorn", "websockets")


@app.command("serve")
@options_of(Listening)
def serve_(
    options: Listening,
    host: str = typer.Option("127.0.0.1", help="Address to listen at; any but this machine's own needs a token."),
    port: int = typer.Option(8642, min=0, max=65535, help="Port to listen at; 0: any that is free."),
    token_file: Path | None = typer.Option(
        None,
        help="File with the tokens of operators, a line each, as NAME TOKEN; readable by its owner only. By default "
        "a token is generated where one is needed.",
        show_default=False,
    ),
    viewer_token_file: Path | None = typer.Option(
        None, help="The same of those who may only look.", show_default=False
    ),
    name: list[str] = typer.Option(
        [], help="Name that the page is reached by, behind a proxy for instance; needs a token.", show_default=False
    ),
    certificate: Path | None = typer.Option(
        None, help="Speak TLS with this certificate, in PEM with those that it rests on.", show_default=False
    ),
    key: Path | None = typer.Option(
        None,
        help="Private key, in PEM without a password; by default in the file of --certificate.",
        show_default=False,
    ),
    proxy: list[str] = typer.Option(
        [], help="Address of a proxy that is believed whom it asks for (X-Forwarded-For).", show_default=False
    ),
    https: bool = typer.Option(
        False, "--https", help="A proxy in front speaks TLS: the cookie is sent over it alone; needs a token."
    ),
    out: Path | None = typer.Option(None, help="Where to write: lines, as `pisa listen` does.", show_default=False),
) -> None:
    """Show on a web page which devices are transmitting: `pisa listen` with a browser.

    The page has transmitters, a timeline, alarms with their evidence, and every recent frame; a JSON API, a websocket
    of events and Prometheus metrics are beside it. It is bound to this machine, and elsewhere it needs a token. Ctrl-C
    and SIGTERM end it, SIGHUP reloads the run. A source that ends leaves the page until then.
    """
    for package in PACKAGES:
        if find_spec(package) is None:
            raise MissingExtraError(package, "serve", "A page")
    from pisa_capc.live.listen import Event
    from pisa_capc.live.listen.output import Lines
    from pisa_capc.live.notify import Notifier
    from pisa_capc.live.serve.app import create_app
    from pisa_capc.live.serve.gate import Rules
    from pisa_capc.live.serve.hub import Hub
    from pisa_capc.live.serve.keepsakes import newest
    from pisa_capc.live.serve.keys import addresses
    from pisa_capc.live.serve.memory import Memory
    from pisa_capc.live.serve.server import Tls, bound, serving, url_of

    sinks = options.sinks()
    if key is not None and certificate is None:
        raise ConfigError("--key needs --certificate: give the certificate too, or leave the key out.")
    tls = None if certificate is None else Tls(certificate, key)
    proxies = addresses(proxy)
    at = bound(host, port)
    url = url_of(at, tls)
    needed = bool(name or proxies or https)  # each says that there is a proxy, which is asked by others
    own = keys(host, needed, token_file, viewer_token_file, at.getsockname()[1], https or tls is not None)
    rules = Rules(frozenset(one.lower() for one in name), own, proxies)
    begun = newest(options.state, options.run)
    if begun != options.run:
        say(f"going on with the devices that were enrolled: {begun}")
    listener = replace(options, run=begun).listener()
    hub = Hub(listener, Memory(), listener.source.name, options.alarms, options.state, options.run, say)
    lines, notifier = None if out is None else Lines(out), Notifier(sinks, say)
    stopped = threading.Event()

    def hear(event: Event) -> None:
        hub.memory.hear(event)
        notifier.hear(event)
        if lines is not None:
            lines.write(event)

    def stop() -> None:
        stopped.set()
        listener.stop()

    try:
        with serving(create_app(hub, rules), at, tls), signals(listener, begun, stop, options.engine):
            notes.print(f"page: {link(url, rules.keys, sys.stderr.isatty())}", soft_wrap=True)
            listener.run(hear)
            if not stopped.is_set():
                say("the source has ended; the page stays until Ctrl-C.")
            stopped.wait()
    finally:
        if lines is not None:
            lines.close()
        notifier.close()
        summarise(listener, notifier)


def link(url: str, keys: Keys | None, to_terminal: bool) -> str:
    """The link of the page, with a ticket only on a terminal: others may read a journal, and later."""
    from pisa_capc.live.serve.keys import TICKET_S

    if keys is None:
        return url
    if not to_terminal:
        return f"{url} (log in there with the token)"
    return f"{url}?token={keys.ticket} (this link is good once, within {TICKET_S / 60:.0f} minutes)"


def keys(host: str, needed: bool, operators: Path | None, viewers: Path | None, port: int, secure: bool) -> Keys | None:
    """Tokens; required wherever other users could connect, on request also on this machine."""
    from pisa_capc.live.serve.keys import Keys, Token, is_local, read_tokens

    if is_local(host) and not needed and operators is None and viewers is None:
        return None
    if operators is not None:
        tokens = read_tokens(operators)
    else:
        tokens = [Token(secrets.token_urlsafe(32))]
        notes.print(f"token: {tokens[0].value}", soft_wrap=True)
    if viewers is not None:
        tokens += read_tokens(viewers, operator=False)
    return Keys(tokens, f"pisa-{port}", secure)
