"""What the service answers."""

from __future__ import annotations

import io
import json
import re
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from pisa_capc.decide.identification.verification import GENUINE, REFUTED, SEVERAL, UNDECIDED
from pisa_capc.live.listen.alarms import Folder
from pisa_capc.live.listen.events import ALARMS
from pisa_capc.live.serve import audit, models
from pisa_capc.live.serve.api import STATIC
from pisa_capc.live.serve.audit import Audit, AuditEntry
from pisa_capc.live.serve.hub import Hub
from pisa_capc.signal.recordings.sigmf import validate
from tests.live.serve.fake import ADDRESSES, DEVICES, Air6, FakeListener, a_decision, a_hub, an_alarm
from tests.live.serve.tools import PAGE, a_client, asked

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    '"><script>alert(1)</script>',
    "\x1b[2J\x00\x07",
    "\u202egnp.exe",
    "\ud800",
    "x" * 9999,
    "${7*7}",
    "../../etc/passwd",
    "%2e%2e%2f",
    "')--",
    "a\r\nSet-Cookie: pisa=1",
)


def hear(hub: Hub, *events: Any) -> None:
    for event in events:
        hub.memory.hear(event)


def test_the_page_and_its_parts_are_there_without_script_in_the_page_itself() -> None:
    client = a_client()
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    for path in re.findall(r'(?:src|href)="(/[^"]+)"', page.text):
        assert client.get(path).status_code == 200, path
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=|https?://", page.text)


def test_scripts_import_only_what_is_there_and_nothing_reads_text_as_markup() -> None:
    client = a_client()
    for file in STATIC.glob("*.js"):
        text = file.read_text(encoding="utf-8")
        for other in re.findall(r'from "\./([^"]+)"', text):
            assert client.get(f"/static/{other}").status_code == 200
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|DOMParser", text
        )
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), "works without a network"


def test_about_says_what_is_listened_to() -> None:
    found = a_client().get("/api/about").json()
    assert found["devices"] == list(DEVICES)
    assert found["source"] == "zmq:tcp://radio:5555"
    assert (found["token"], found["operator"]) == (False, True)


def test_status_and_health_are_those_of_the_listener() -> None:
    hub = a_hub()
    listener: FakeListener = hub.listener  # type: ignore[assignment]
    listener.state = replace(listener.state, missed=7, delay_ms=(float("nan"), 3.0))
    listener.state = replace(listener.state, delay_ms=(2.0, 3.0), dead=(1,))
    client = a_client(hub)
    found = client.get("/api/status").json()
    assert (found["missed"], found["dead"], found["delay_ms"]) == (7, [1], [2.0, 3.0])
    assert client.get("/healthz").json() == {"said": "ok"}
    for health, code in (("no samples", 200), ("stuck", 503), ("ended", 503)):
        listener.state = replace(listener.state, health=health)
        assert client.get("/healthz").status_code == code


def test_transmitters_and_decisions_are_there_as_soon_as_they_were_heard() -> None:
    hub = a_hub()
    client = a_client(hub)
    assert client.get("/api/transmitters").json()["transmitters"] == []
    hear(hub, *(a_decision(n, address=ADDRESSES[n % 3]) for n in range(30)))
    found = client.get("/api/transmitters").json()["transmitters"]
    assert [row["address"] for row in found] == [ADDRESSES[2], ADDRESSES[1], ADDRESSES[0]]
    assert [one["number"] for one in client.get("/api/decisions?limit=3&before=20").json()] == [19, 18, 17]
    own = client.get(f"/api/decisions?transmitter={found[0]['id']}").json()
    assert {one["address"] for one in own} == {ADDRESSES[2]}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text_everywhere(name: str) -> None:
    hub = a_hub()
    hear(hub, a_decision(0, address=name, receiver=name, kind=name), an_alarm(0, address=name, text=name, frames=()))
    client = a_client(hub)
    for path in ("/api/transmitters", "/api/decisions", "/api/alarms", "/api/annotations", "/metrics"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert not answer.headers["content-type"].startswith("text/html")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in answer.headers
    for text in (client.get("/api/decisions").json()[0]["address"], client.get("/api/alarms").json()[0]["text"]):
        assert text.isprintable()
        assert len(text) <= 500
    assert name[:20] not in client.get("/metrics").text


def test_a_frame_has_samples_a_spectrum_and_a_place_near_its_device() -> None:
    hub = a_hub()
    listener: FakeListener = hub.listener  # type: ignore[assignment]
    decision = a_decision(5, like=DEVICES[2], device=DEVICES[2], cfo_hz=(1.0, float("nan"), 2.0, 3.0))
    listener.keep(decision)
    hear(hub, decision)
    client = a_client(hub)
    frame, picture = client.get("/api/frames/5").json(), client.get("/api/prototypes").json()
    iq = listener.kept[5].iq
    assert np.allclose(np.array(frame["i"]) * frame["scale"], iq[:, :640].real, atol=1e-4 * frame["scale"])
    assert frame["cfo_hz"] == [1.0, None, 2.0, 3.0]
    assert len(frame["spectrum_db"]) == 4
    assert max(map(max, frame["spectrum_db"])) == pytest.approx(0.0, abs=0.01)
    assert frame["measured"] == [{"name": "image rejection", "frame": "38.90 ± 0.50 dB", "device": "29.40 ± 0.50 dB"}]
    place = frame["place"]
    near = min(picture["devices"], key=lambda d: (d["x"] - place["x"]) ** 2 + (d["y"] - place["y"]) ** 2)
    assert near["device"] == DEVICES[2]
    assert client.get("/api/frames/6").status_code == 404


def test_a_tone_is_at_its_frequency_in_the_spectrum() -> None:
    hub = a_hub()
    listener: FakeListener = hub.listener  # type: ignore[assignment]
    tone = np.exp(2j * np.pi * 0.25 * np.arange(1000))[None].astype(np.complex64)
    listener.kept[0] = a_decision(0, iq=np.repeat(tone, 4, axis=0))
    [first, *_] = a_client(hub).get("/api/frames/0").json()["spectrum_db"]
    assert int(np.argmax(first)) == round(0.75 * len(first))


@pytest.mark.parametrize("samples", [1, 7, 127])
def test_short_frames_can_be_looked_at(samples: int) -> None:
    hub = a_hub()
    hub.listener.kept[0] = a_decision(0, iq=np.zeros((4, samples), np.complex64))  # type: ignore[attr-defined]
    assert a_client(hub).get("/api/frames/0").status_code == 200


def test_files_to_download_are_valid_sigmf(tmp_path: Path) -> None:
    hub = a_hub(alarms=tmp_path)
    air = Air6(hub, alarmed=True)
    air.past(5)
    client = a_client(hub)
    newest = client.get("/api/decisions?limit=1").json()[0]["number"]
    annotated = client.get("/api/annotations")
    assert "attachment" in annotated.headers["content-disposition"]
    metadata = annotated.json()
    validate(metadata, "annotations")
    assert metadata["annotations"][-1]["pisa:number"] == newest
    for path in (f"/api/frames/{newest}/sigmf", "/api/alarms/2/snippet"):
        answer = client.get(path)
        assert "attachment" in answer.headers["content-disposition"]
        with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
            meta, data = (tar.extractfile(member) for member in tar)
            assert meta is not None
            assert data is not None
            described = json.load(meta)
            validate(described, path)
            notes = described["annotations"]
            assert len(data.read()) == 4 * 8 * sum(note["core:sample_count"] for note in notes)


@pytest.mark.parametrize(
    "name",
    [
        "../secret.sigmf-meta",
        "/etc/passwd",
        "alarm-1.sigmf-meta/../../x",
        "alarm-0000000001.sigmf-meta\n",
        "secret.sigmf-meta",
    ],
)
def test_a_snippet_is_never_a_file_outside_its_folder(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "alarms"
    inside.mkdir()
    for folder in (inside, tmp_path):
        for ending in ("meta", "data"):
            (folder / f"secret.sigmf-{ending}").write_text("secret")
    hub = a_hub(alarms=inside)
    hear(hub, an_alarm(1, snippet=name))
    answer = a_client(hub).get("/api/alarms/1/snippet")
    assert answer.status_code == 404
    assert b"secret" not in answer.content


@pytest.mark.parametrize("stranger", [False, True])
def test_every_snippet_that_a_listener_writes_can_be_downloaded(tmp_path: Path, stranger: bool) -> None:
    folder = Folder(tmp_path, 20e6, 5.825e9, 1 << 20)
    name = folder.write(1, "why", [a_decision(0, iq=np.zeros((4, 100), np.complex64))], stranger)
    hub = a_hub(alarms=tmp_path)
    hear(hub, an_alarm(1, snippet=name))
    assert a_client(hub).get("/api/alarms/1/snippet").status_code == 200


def test_a_snippet_that_is_a_link_or_gone_is_not_sent(tmp_path: Path) -> None:
    inside = tmp_path / "alarms"
    inside.mkdir()
    (tmp_path / "secret").write_text("secret")
    for ending in ("meta", "data"):
        (inside / f"alarm-1.sigmf-{ending}").symlink_to(tmp_path / "secret")
    hub = a_hub(alarms=inside)
    hear(hub, an_alarm(1, snippet="alarm-1.sigmf-meta"), an_alarm(2, snippet="alarm-2.sigmf-meta"), an_alarm(3))
    client = a_client(hub)
    assert [client.get(f"/api/alarms/{n}/snippet").status_code for n in (1, 2, 3, 4)] == [404] * 4


@pytest.mark.parametrize(
    "path",
    [
        "/static/../api.py",
        "/static/..//../../../../../../../../etc/passwd",
        "/static//etc/passwd",
        "/static/..\\api.py",
        "/static/",
        "/static/..",
        "/static/\x00",
        "/static/" + "x" * 5000,
        "/..",
        "/../api.py",
        "//etc/passwd",
        "/docs",
        "/redoc",
        "/api/alarms/../../x",
    ],
)
def test_no_path_leads_out_of_the_page(path: str) -> None:
    status, body = asked(path)
    assert status in (404, 405, 422)
    assert len(body) < 500
    assert b"root:" not in body


@pytest.mark.parametrize(
    "path",
    [
        "/api/decisions?limit=0",
        "/api/decisions?limit=100000",
        "/api/decisions?before=-1",
        "/api/decisions?before=x",
        "/api/frames/x",
        "/api/frames/-1",
        "/api/frames/99999999999999999999999",
        "/api/transmitters?limit=1000000",
        "/api/annotations?limit=1e9",
        "/api/alarms?limit=nan",
    ],
)
def test_what_is_out_of_range_is_refused_in_words(path: str) -> None:
    answer = a_client().get(path)
    assert answer.status_code == 422
    assert answer.json()["detail"]


def test_alarms_are_new_until_somebody_has_seen_them() -> None:
    hub = a_hub()
    hear(hub, *(an_alarm(n) for n in range(3)))
    client = a_client(hub)
    assert client.get("/api/status").json()["unseen"] == 3
    done = client.post("/api/alarms/1/acknowledge", headers=PAGE).json()
    assert (done["state"], done["by"]) == ("acknowledged", "operator")
    states = [alarm["state"] for alarm in client.get("/api/alarms").json()]
    assert states == ["open", "acknowledged", "open"]
    both = client.post("/api/acknowledge", headers=PAGE, json={"numbers": [0, 1, 2]})
    assert [alarm["number"] for alarm in both.json()] == [0, 2], "those that were acknowledged before stay as they are"
    assert hub.listener.acknowledged == [  # type: ignore[attr-defined]
        (1, "operator"),
        (0, "operator"),
        (2, "operator"),
    ]
    assert client.get("/api/status").json()["unseen"] == 0
    assert client.get("/api/alarms/0").json()["state"] == "acknowledged"
    assert client.post("/api/alarms/9/acknowledge", headers=PAGE).status_code == 404
    assert client.post("/api/acknowledge", headers=PAGE, json={"numbers": [0, 9]}).status_code == 404


def test_devices_and_addresses_have_names_that_can_be_taken_away() -> None:
    hub = a_hub()
    hear(hub, a_decision(0))
    client = a_client(hub)

    def name(kind: str, key: str, text: str) -> int:
        return client.put("/api/names", headers=PAGE, json={"kind": kind, "key": key, "name": text}).status_code

    assert name("device", DEVICES[0], "  The  hall ") == 200
    assert name("address", ADDRESSES[0], "<b>bold</b>") == 200
    assert client.get("/api/names").json() == {
        "device": {DEVICES[0]: "The hall"},
        "address": {ADDRESSES[0]: "<b>bold</b>"},
    }
    assert name("device", DEVICES[0], "") == 200
    assert client.get("/api/names").json()["device"] == {}
    assert name("device", "nobody", "x") == 404
    assert name("address", "02:00", "x") == 404
    assert name("colour", DEVICES[0], "x") == 422
    assert [name("device", DEVICES[0], text) for text in ("\x1b[2J", "\u202e", "y" * 65, "z" * 3000)] == [422] * 4


def test_who_is_not_known_becomes_a_device() -> None:
    hub = a_hub()
    hear(hub, *(a_decision(n, device=None) for n in range(12)), a_decision(12, address=ADDRESSES[1]))
    client = a_client(hub)
    rows = {row["address"]: row["id"] for row in client.get("/api/transmitters").json()["transmitters"]}

    def enrol(address: str, name: str) -> Any:
        return client.post("/api/enrol", headers=PAGE, json={"transmitter": rows.get(address, 99), "name": name})

    assert enrol(ADDRESSES[0], "gate").json() == {"device": "gate", "model": None}
    assert client.get("/api/about").json()["devices"][-1] == "gate"
    assert client.get("/api/prototypes").status_code == 200
    assert "gate" in enrol(ADDRESSES[0], "gate").json()["detail"]
    assert enrol(ADDRESSES[1], "known").status_code == 409, "its frames are a device's already"
    assert enrol("nobody", "x").status_code == 404


def test_metrics_are_as_prometheus_reads_them() -> None:
    hub = a_hub()
    hub.listener.model.devices = ('de"v\\ice\n', *DEVICES[1:])  # type: ignore[misc]
    hear(hub, a_decision(0, device='de"v\\ice\n'), a_decision(1, device=None, probability=0.4), an_alarm(0))
    text = a_client(hub).get("/metrics").text
    value = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) pisa_\w+ .+", line)
            continue
        found = re.fullmatch(r'(pisa_\w+(?:\{\w+="(?:[^"\\\n]|\\.)*"\})?) (\S+)', line)
        assert found, line
        value[found[1]] = float(found[2])
    assert value['pisa_decisions_total{device="de\\"v\\\\ice\\n"}'] == 1
    assert value['pisa_decisions_total{device=""}'] == 1
    assert value['pisa_alarms_total{kind="not its address"}'] == 1
    assert value['pisa_confidence_bucket{le="0.4"}'] == 1
    assert value['pisa_confidence_bucket{le="+Inf"}'] == value["pisa_confidence_count"] == 2


def test_every_verdict_and_alarm_of_a_listener_has_its_place_in_an_answer() -> None:
    assert set(get_args(models.Kind)) == set(ALARMS)
    assert set(get_args(models.Verdict)) == {GENUINE, REFUTED, SEVERAL, UNDECIDED}
    shown = (STATIC / "parts.js").read_text(encoding="utf-8")
    for name in (*get_args(models.Kind), *get_args(models.Verdict)):
        assert f'"{name}": [' in shown or f" {name}: [" in shown, name


def test_who_changed_what_is_kept_and_told(tmp_path: Path) -> None:
    hub = a_hub(state=tmp_path)
    hear(hub, *(a_decision(n, device=None) for n in range(12)), an_alarm(3))
    client = a_client(hub)
    row = client.get("/api/transmitters").json()["transmitters"][0]["id"]
    naming = {"kind": "device", "key": DEVICES[0], "name": "the <b>hall</b>"}
    client.put("/api/names", headers=PAGE, json=naming)
    client.put("/api/names", headers=PAGE, json={**naming, "key": "nobody"})
    client.post("/api/enrol", headers=PAGE, json={"transmitter": row, "name": "gate"})
    for _ in range(2):
        client.post("/api/acknowledge", headers=PAGE, json={"numbers": [3]})
    asked = [
        ("acknowledge", {"numbers": [3]}),
        ("enrol", {"transmitter": row, "name": "gate", "anyway": False}),
        ("name", naming),
    ]
    for service in (client, a_client(a_hub(state=tmp_path))):
        found = service.get("/api/audit").json()
        assert [(one["action"], one["asked"]) for one in found] == asked, "only what changed something"
        assert {(one["by"], one["address"]) for one in found} == {("operator", "testclient")}
    assert [one["action"] for one in client.get("/api/audit?limit=1").json()] == ["acknowledge"]
    client.post("/api/enrol", headers=PAGE, json={"transmitter": row, "name": "gate"})
    assert [one["action"] for one in client.get("/api/audit?limit=2").json()] == ["enrol refused", "enrol"]


def test_the_audit_is_bounded_and_a_cut_line_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MOST_BYTES", 2000)
    log = Audit(tmp_path)
    for n in range(300):
        log.write(AuditEntry("now", "anna", "::1", "name", {"n": n}))
    files = sorted(tmp_path.iterdir())
    assert len(files) == 1 + audit.KEPT
    assert all(path.stat().st_size < 2200 for path in files)
    with (tmp_path / audit.FILE).open("a") as file:
        file.write('[1]\n{"at": "now"}\n"' + "[" * 5000 + '\n{"at": "n')
    assert Audit(tmp_path).newest(1)[0].asked == {"n": 299}


def test_openapi_describes_every_route_with_typed_fields() -> None:
    described = a_client().get("/api/openapi.json").json()
    assert {"/api/transmitters", "/api/decisions", "/api/alarms/{number}/snippet", "/metrics", "/healthz"} <= set(
        described["paths"]
    )
    assert "verdict" in described["components"]["schemas"]["Transmitter"]["properties"]
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            assert {"400", "403", "421", "429"} <= set(route["responses"]), path
            assert ("401" in route["responses"]) == (path != "/healthz"), path
            assert ("404" in route["responses"]) >= ("{" in path), path
            assert ({"408", "413"} <= set(route["responses"])) == (method != "get"), path
