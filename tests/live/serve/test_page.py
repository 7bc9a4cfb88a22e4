"""The page in Debian's Chromium: empty, busy, alarmed, attacked. Pictures go to the folder PISA_PICTURES, if any."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pisa_capc.live.serve.gate import Rules
from pisa_capc.live.serve.hub import Hub
from pisa_capc.live.serve.keys import Keys, Token
from pisa_capc.live.serve.server import bound, serving, url_of
from tests.live.serve.fake import ADDRESSES, QUIET, Air6, FakeListener, a_decision, a_hub, an_alarm, an_app, utc

pytestmark = pytest.mark.slow
ANSWERED = "Failed to load resource"  # of 401 and 404, which the page tells in words
HOSTILE = '<img src="x" onerror="document.title=1"><script>document.title=1</script>'


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium: apt-get install chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@contextmanager
def page_of(browser: Any, hub: Hub, rules: Rules | None = None, path: str = "", **options: Any) -> Iterator[Any]:
    """The page of a hub; whatever it complains of fails."""
    at = bound("127.0.0.1", 0)
    with serving(an_app(hub, rules), at):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        page, wrong = context.new_page(), list[str]()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: said.type == "error" and ANSWERED not in said.text and wrong.append(said.text))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on("request", lambda asked: asked.url.startswith(("http://127.0.0.1", "data:")) or wrong.append(asked.url))
        page.goto(url_of(at) + path)
        yield page
        context.close()
    assert wrong == []


def kept(page: Any, name: str) -> None:
    if folder := os.environ.get("PISA_PICTURES"):
        page.wait_for_timeout(1500)
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def test_a_page_without_anybody_says_what_it_waits_for(browser: Any) -> None:
    hub = a_hub()
    listener: FakeListener = hub.listener  # type: ignore[assignment]
    listener.state = replace(QUIET, source="waiting", samples=0, since=utc(time.time()))
    with page_of(browser, hub) as page:
        page.get_by_text("Waiting for samples", exact=True).wait_for()
        assert page.locator("#state").inner_text() == "waiting for samples"
        assert page.locator("#banner .alarm").count() == 0
        kept(page, "empty")
        page.get_by_role("link", name="Alarms").click()
        page.get_by_text("No alarms").wait_for()
        listener.state = replace(listener.state, source="connected", samples=100)
        page.get_by_role("link", name="Now").click()
        page.get_by_text("No transmitter is active").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_busy_page_shows_who_is_on_the_air(browser: Any, scheme: str) -> None:
    hub = a_hub()
    air = Air6(hub, alarmed=False)
    air.past(600)
    with page_of(browser, hub, color_scheme=scheme) as page:
        row = page.get_by_role("row").filter(has_text=ADDRESSES[0])
        row.first.wait_for()
        assert "camera-hall" in row.first.inner_text()
        assert "genuine" in row.first.inner_text()
        assert row.first.locator("svg.spark path").count() == 2
        assert page.locator("table.timeline tbody tr").count() == 8
        assert page.locator("#banner .alarm").count() == 0
        before = row.first.locator("td").last.inner_text()
        for _ in range(20):
            air.moment(time.time())
        page.wait_for_function(
            "([address, before]) => [...document.querySelectorAll('table.cards tr')].some((row) =>"
            " row.innerText.includes(address) && row.lastChild.innerText !== before)",
            arg=[ADDRESSES[0], before],
        )
        kept(page, f"busy-{scheme}")


def test_an_alarm_is_seen_at_once_with_its_evidence_until_somebody_has_looked(browser: Any, tmp_path: Path) -> None:
    hub = a_hub(alarms=tmp_path)
    air = Air6(hub, alarmed=True)
    air.past(120)
    with page_of(browser, hub) as page:
        page.locator("#banner").get_by_text("Not its address").wait_for()
        assert page.locator("#unseen").inner_text() == "3"
        assert page.locator("tr.bad").filter(has_text=ADDRESSES[2]).count() == 1
        kept(page, "alarmed")
        air.alarm("changed", None, "printer", "printer does not sound as it did.", time.time())
        page.locator("#banner").get_by_text("printer does not sound as it did.").wait_for()
        page.locator("#banner").get_by_role("link", name="Look").click()
        page.get_by_role("heading", name="The frames that raised it").wait_for()
        with page.expect_download() as download:
            page.get_by_role("link", name="SigMF snippet").click()
        assert download.value.suggested_filename == "alarm-3.sigmf"
        page.get_by_role("link", name="Alarms", exact=False).first.click()
        page.get_by_role("button", name="Acknowledge all").click()
        page.locator("#unseen").wait_for(state="hidden")


def test_an_address_that_several_devices_use_is_marked(browser: Any) -> None:
    hub = a_hub()
    hub.memory.hear(a_decision(0))
    hub.memory.hear(a_decision(1, address=ADDRESSES[1], device="printer", verdict="several devices"))
    hub.memory.hear(an_alarm(kind="shared address", address=ADDRESSES[1]))
    with page_of(browser, hub) as page:
        page.locator("#banner").get_by_text("Shared address").wait_for()
        marked = page.locator("tr.bad")
        assert marked.count() == 1
        assert ADDRESSES[1] in marked.inner_text()
        assert "several devices" in marked.inner_text()
        assert page.locator("table.cards tbody tr").first.get_attribute("class") == "bad", "it comes first"
        kept(page, "shared")


def test_a_link_leads_to_a_frame(browser: Any) -> None:
    hub = a_hub()
    air = Air6(hub, alarmed=False)
    air.past(20)
    with page_of(browser, hub, path=f"#/frame/{air.number - 1}", viewport={"width": 390, "height": 844}) as page:
        page.get_by_text("Among the prototypes").wait_for()
        assert page.locator("figure svg").count() == 4
        assert page.get_by_text("this frame").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "fits a phone"
        page.get_by_label("Antenna", exact=True).select_option("2")
        page.get_by_label("I and Q of antenna 2").wait_for()
        kept(page, "frame-phone")
        page.get_by_role("link", name="next").click()
        page.get_by_text("no longer kept").wait_for()


def test_a_device_gets_a_name(browser: Any) -> None:
    hub = a_hub()
    hub.memory.hear(a_decision(0))
    with page_of(browser, hub) as page:
        page.get_by_role("button", name="Name camera-hall").click()
        page.get_by_label("Name", exact=True).fill("<b>The hall</b>")
        page.get_by_role("button", name="Save").click()
        page.get_by_role("link", name="<b>The hall</b>").wait_for()
        assert hub.keepsakes.names["device"] == {"camera-hall": "<b>The hall</b>"}


def test_what_came_over_the_air_is_text_and_nothing_else(browser: Any) -> None:
    hub = a_hub()
    listener: FakeListener = hub.listener  # type: ignore[assignment]
    listener.model.devices = (HOSTILE, *listener.model.devices[1:])
    decision = a_decision(0, address=HOSTILE, receiver=HOSTILE, kind=HOSTILE, device=None, like=HOSTILE)
    listener.keep(decision)
    hub.memory.hear(decision)
    hub.memory.hear(an_alarm(0, address=HOSTILE, text=HOSTILE + "x" * 5000, frames=(0,)))
    hub.memory.hear(a_decision(1, address="\u202e" + "y" * 5000, device=None))
    with page_of(browser, hub) as page:
        page.locator("#banner .alarm").wait_for()
        for path in ("#/", "#/alarms", "#/alarm/0", "#/frames", "#/frame/0", "#/transmitter/1", "#/receiver"):
            page.goto(page.url.split("#")[0] + path)
            page.wait_for_timeout(700)
            assert page.locator("main img, main script, #banner img, #banner script").count() == 0
            assert page.title() != "1"
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        kept(page, "hostile")


def test_with_a_token_the_page_asks_for_it(browser: Any) -> None:
    keys, hub = Keys([Token("a-token-that-nobody-guesses-0123")]), a_hub()
    hub.memory.hear(a_decision(0))
    with page_of(browser, hub, Rules(keys=keys)) as page:
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Go on").click()
        page.get_by_text("That is not the token.").wait_for()
        page.get_by_label("Token").fill("a-token-that-nobody-guesses-0123")
        page.get_by_role("button", name="Go on").click()
        page.get_by_role("link", name="camera-hall").wait_for()
    with page_of(browser, a_hub(), Rules(keys=keys), path=f"?token={keys.ticket}") as page:
        page.get_by_text("No transmitter is active").wait_for()
        assert "token" not in page.url


def test_a_service_that_comes_back_is_found_again(browser: Any) -> None:
    hub, at = a_hub(), bound("127.0.0.1", 0)
    port = at.getsockname()[1]
    page = browser.new_context().new_page()
    with serving(an_app(hub), at):
        page.goto(url_of(at))
        page.get_by_text("No transmitter is active").wait_for()
    page.get_by_text("lost", exact=False).first.wait_for()
    again = bound("127.0.0.1", port)
    hub = a_hub()
    hub.memory.hear(a_decision(0))
    with serving(an_app(hub), again):
        page.get_by_role("link", name="camera-hall").wait_for()
    page.context.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "page"]
