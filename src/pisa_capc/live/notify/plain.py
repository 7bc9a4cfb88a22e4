"""Sinks that take one line each: a command, a web address, and everything that Apprise reaches."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from base64 import b64encode
from contextlib import suppress
from urllib.error import HTTPError, URLError
from urllib.parse import unquote
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.live.listen.events import OPEN, RESOLVED, Alarm
from pisa_capc.live.notify.base import APPRISE, TIMEOUT_S, AlarmSink, parsed, register_sink


@register_sink("exec")
class Command(AlarmSink):
    """Runs a command for each report, with the alarm as a line of JSON on its standard input; never through a shell."""

    shape = "exec:COMMAND"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        try:
            self._words = shlex.split(url.partition(":")[2])
        except ValueError as error:
            raise ConfigError(f"--notify {self.name}: {error}. Quote words as a shell does.") from error
        if not self._words or shutil.which(self._words[0]) is None:
            raise ConfigError(
                f"--notify {self.name}: no such command. Give a program and its arguments; no shell reads them."
            )

    def send(self, alarm: Alarm) -> None:
        quiet = subprocess.DEVNULL
        own = {} if os.name == "nt" else {"start_new_session": True}  # so that what it starts can be ended too
        with subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, **own) as process:  # type: ignore[call-overload]
            try:
                process.communicate(json.dumps(alarm.to_json()).encode() + b"\n", timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired as error:
                _end(process)
                raise DataError(f"it did not end within {TIMEOUT_S:g} s") from error
        if process.returncode:
            raise DataError(f"it ended with exit code {process.returncode}")


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        if os.name == "nt":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


class _NoRedirects(HTTPRedirectHandler):
    """An alarm goes where it was sent to, and nowhere else."""

    def redirect_request(self, *_: object) -> None:
        return None


@register_sink("https")
@register_sink("http")
class Webhook(AlarmSink):
    """Posts each report as JSON; USER:PASSWORD@ in the URL is sent as basic authentication."""

    shape = "https://HOST/PATH"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        parts, _, _ = parsed(url, 443)
        self._headers = {"Content-Type": "application/json", "User-Agent": "pisa-capc"}
        if parts.username is not None:
            words = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {b64encode(words).decode()}"
        self._url = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
        self._opener = build_opener(_NoRedirects)

    def send(self, alarm: Alarm) -> None:
        request = Request(self._url, json.dumps(alarm.to_json()).encode(), self._headers, method="POST")
        try:
            with self._opener.open(request, timeout=TIMEOUT_S):
                pass
        except HTTPError as error:
            with error:
                raise DataError(f"the server answers {error.code} {error.reason}") from None
        except URLError as error:
            raise DataError(str(error.reason)) from None


@register_sink(APPRISE)
class ByApprise(AlarmSink):
    """Sends a title and a sentence by Apprise: mail, chat, syslog, push messages, and your own schemes."""

    shape = "a URL of Apprise, as mailto://…"

    def __init__(self, url: str) -> None:
        import apprise

        super().__init__(url)
        self._service = apprise.Apprise()
        if not self._service.add(url):
            raise ConfigError(f"--notify {self.name}: Apprise does not take this URL. Correct it by its documentation.")
        kinds = apprise.NotifyType
        self._kinds = {OPEN: kinds.WARNING, RESOLVED: kinds.SUCCESS}
        self._usual, self._text = kinds.INFO, apprise.NotifyFormat.TEXT

    def send(self, alarm: Alarm) -> None:
        kind = self._kinds.get(alarm.state, self._usual)
        title = f"pisa: {alarm.kind} ({alarm.state})"
        if not self._service.notify(alarm.text, title, kind, body_format=self._text):
            raise DataError("Apprise could not deliver it")
