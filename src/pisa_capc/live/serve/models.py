"""What is asked and answered, as OpenAPI describes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

LARGEST = (1 << 53) - 1  # that every reader of JSON can tell from its neighbours


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 3.0 is 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Number = Annotated[int, Field(ge=0, le=LARGEST), BeforeValidator(_whole)]
Two = Annotated[list[float], Field(min_length=2, max_length=2)]
Kind = Literal["unknown device", "not its address", "shared address", "changed", "receiver", "many alarms"]
Verdict = Literal["genuine", "not the device", "several devices", "undecided"]


class Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Question(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class DecisionAnswer(Answer):
    """Who sent one frame."""

    number: int = Field(description="Increasing, never given twice, restarts included")
    time_s: float = Field(description="Seconds in the stream")
    at: str = Field(description="When it was received: UTC, ISO 8601")
    start: int = Field(description="Its first sample in the stream, those missed counted")
    device: str | None = Field(description="None: a device that the model does not know")
    like: str = Field(description="The known device that it is most like")
    probability: float = Field(description="Of that device, among the known")
    address: str | None = Field(description="That it claims, as its header says")
    receiver: str | None
    kind: str | None
    rate_mbps: float | None
    cfo_hz: list[float | None] = Field(description="Of each antenna; none: it is dead")
    snr_db: list[float | None]
    quality: float | None
    verdict: Verdict | None = Field(description="Verdict on its address so far; none: no device is enrolled with it")


class AlarmAnswer(Answer):
    """Something that a person should look at. Each report of it is whole: the newest by its number counts."""

    number: int
    time_s: float = Field(description="Its beginning, in seconds in the stream")
    at: str = Field(description="Its beginning: UTC, ISO 8601")
    kind: Kind
    address: str | None
    device: str | None
    text: str
    frames: list[int] = Field(description="Numbers of the decisions that raised it")
    snippet: str | None = Field(description="Name of its SigMF metadata; get it from /api/alarms/{number}/snippet")
    state: Literal["open", "resolved", "acknowledged"]
    times: int = Field(description="How often its cause was found")
    updated_at: str = Field(description="When it was last reported")
    by: str | None = Field(description="Who acknowledged it")


class StatusAnswer(Answer):
    """How the listener is doing."""

    source: Literal["connected", "waiting", "ended"]
    since: str
    samples: int = Field(description="Of each antenna, those missed included")
    missed: int
    breaks: int
    rate_hz: float
    frames: int
    frames_per_s: float
    delay_ms: Two = Field(description="From a frame's last sample to its decision: median, 99 %")
    clipped: list[int] = Field(description="Antennas that clip")
    dead: list[int]
    waiting_s: float
    alarms: int
    open_alarms: int = Field(description="Alarms that are open")
    withheld: dict[str, int] = Field(description="Alarms by kind that had to wait, as there were too many")
    health: Literal["ok", "no samples", "stuck", "ended"]
    now: str = Field(description="The clock of the service: UTC, ISO 8601")
    unseen: int = Field(description="Alarms that are not acknowledged")
    lost: int = Field(description="Decisions that the page was too late for; the listener made them all the same")


class HistoryAnswer(Answer):
    """Steps of time with frames; each value is a mean over the step."""

    step: list[int] = Field(description="Number of the step: its beginning in UTC seconds, divided by step_s")
    frames: list[int]
    cfo_hz: list[float | None]
    snr_db: list[float | None]
    confidence: list[float | None]


class Transmitter(Answer):
    """Frames that belong together: by the address they claim, or else by the device they sound like."""

    id: int
    device: str | None = Field(description="That most of its newest frames sound like; none: no known one")
    like: str
    address: str | None
    confidence: float | None = Field(description="Mean probability of the frames that sound like that device")
    agree: int = Field(description="How many of its newest frames sound like that device")
    of: int
    verdict: Verdict | None
    frames: int
    first_at: str
    last_at: str
    newest: int = Field(description="Number of its newest decision")
    kind: str | None
    rate_mbps: float | None
    cfo_hz: float | None
    snr_db: float | None
    history: HistoryAnswer


class Transmitters(Answer):
    step_s: float
    steps: int = Field(description="How many steps are remembered")
    now: int = Field(description="Number of the step that it is")
    transmitters: list[Transmitter]


class Names(Answer):
    """What people call devices and addresses."""

    device: dict[str, str]
    address: dict[str, str]


class AboutAnswer(Answer):
    """What is listened to, with what."""

    version: str
    source: str
    waveform_rate_hz: float
    sample_rate_hz: float
    carrier_hz: float | None
    antennas: int
    devices: list[str]
    names: Names
    alarms_kept: bool = Field(description="Whether alarms have snippets to download")
    token: bool = Field(description="Whether a token is needed")
    operator: bool = Field(description="Whether who asks may change something")


class Place(Answer):
    """Where a frame lies in the picture of the prototypes."""

    x: float
    y: float


class QuantityAnswer(Answer):
    """A quantity of the transmitter's hardware: of a frame, and of the device it is most like."""

    name: str
    frame: str
    device: str


class Prototype(Place):
    device: str


class Prototypes(Answer):
    """The model's devices in the two directions in which its source frames differ most."""

    explained: float = Field(description="Share of the variance that these two directions show")
    devices: list[Prototype]
    frames: list[Two] = Field(description="Some frames of the source")


class Frame(Answer):
    """A frame to look at."""

    decision: DecisionAnswer | None = Field(description="None: it is no longer remembered")
    sample_rate_hz: float
    samples: int
    cfo_hz: list[float | None]
    scale: float = Field(description="What I, Q and the envelope are divided by")
    i: list[list[float]] = Field(description="Of each antenna, the beginning")
    q: list[list[float]]
    envelope: list[list[float]] = Field(description="Of each antenna, the largest magnitude in parts of the frame")
    spectrum_db: list[list[float]] = Field(description="Of each antenna, by frequency, in dB below the strongest")
    place: Place | None = Field(description="Among the prototypes; none where the model has no picture of them")
    measured: list[QuantityAnswer] = Field(description="Of the sender's hardware; empty where the model measures none")


class Naming(Question):
    kind: Literal["device", "address"]
    key: Annotated[str, Field(min_length=1, max_length=128)]
    name: Annotated[str, Field(max_length=256)] = Field(description="Nothing takes the name away")


class Enrolment(Question):
    transmitter: Number = Field(description="Whose recent frames that no device is known for are used")
    name: Annotated[str, Field(min_length=1, max_length=64)]
    anyway: bool = Field(default=False, description="Also where it sounds like a device that is known")


class Acknowledging(Question):
    numbers: Annotated[list[Number], Field(max_length=500)] = Field(description="Of alarms")


class Entry(Answer):
    """A change by a user."""

    at: str = Field(description="When: UTC, ISO 8601")
    by: str = Field(description="The holder of the token")
    address: str = Field(description="Where the request came from")
    action: Literal["name", "enrol", "enrol refused", "acknowledge"]
    asked: dict[str, Any] = Field(description="What was asked for")


class Enrolled(Answer):
    device: str
    model: str | None = Field(description="Folder of the model, within the state; none: it is forgotten at the end")


class Login(Question):
    token: Annotated[str, Field(max_length=512)]


class Said(Answer):
    said: str


class Wrong(Answer):
    """What is wrong with a question."""

    type: str
    loc: list[str | int] = Field(description="Where")
    msg: str


class Refusal(Answer):
    """Why there is no answer."""

    detail: str | list[Wrong]


REFUSALS = {
    400: "This is no HTTP request",
    401: "A token is needed, or this is not the token",
    403: "A page of another site asks, or the token is for looking, or X-Pisa is missing",
    404: "There is no such thing, or it is no longer remembered",
    408: "The body did not come to its end",
    409: "It cannot be done as things are, or with this name",
    413: "The body is too long",
    421: "The service is not known by this name",
    422: "The question makes no sense, as it is or for what it asks",
    429: "Too many requests, or too many wrong tokens; wait a moment",
    503: "The listener has ended or is stuck",
}


def answers(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Refusals, as routes list them."""
    return {code: {"model": Refusal, "description": REFUSALS[code]} for code in codes}


def file(kind: str) -> dict[int | str, dict[str, Any]]:
    """An answer that is a file."""
    return {200: {"content": {kind: {"schema": {"type": "string", "format": "binary"}}}}}
