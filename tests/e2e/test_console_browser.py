"""The console in a real Chromium, before a real service and the demonstration's LLM."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2 as httpx
import pytest

from benchmarks.processes import PYTHON, ROOT, free_port, running, wait_for
from demo.tour import DEFAULTS, LLM_DEFAULTS
from service.llm.weights import MINILM
from tests.support.browser import Page, browser_page
from tests.support.services import PATIENCE_S, address, until

pytestmark = pytest.mark.browser

WEB = ROOT / "service/console/web"
WEIGHTS = ROOT / "data/weights"
HOSTILE = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>"
QUESTIONS = {
    "What is the capital of France?": "Paris",
    "What is the capital of Italy?": "Rome",
    "What is the capital of Japan?": "Tokyo",
    "What is the capital of Spain?": "Madrid",
    "What is the capital of Germany?": "Berlin",
    "What is the capital of Greece?": "Athens",
    "What colour is the sky?": "Blue",
    "What colour is snow?": "White",
    "How many legs does a dog have?": "Four",
    "How many days are in a week?": "Seven",
    "What is my name?": "Zebulon",
    "What is the name of my cat?": "Mitzi",
}


@dataclass(frozen=True)
class Settings:
    """Keys of a service; empty: none is needed."""

    admin_key: str = ""
    score_key: str = ""


@pytest.fixture(scope="module")
def llm_url() -> Iterator[str]:
    port = free_port()
    command = [PYTHON, "-m", "demo", "serve", "--port", str(port), "--data-dir", str(ROOT / "data")]
    with running(command) as process:
        wait_for(f"http://127.0.0.1:{port}/v1/models", process, PATIENCE_S)
        yield f"http://127.0.0.1:{port}/v1"


def start(stack: ExitStack, llm_url: str, folder: Path, settings: Settings) -> str:
    """Start a service in its own process and return its address."""
    folder.mkdir()
    env = {**DEFAULTS, **LLM_DEFAULTS, "EIGENCAL_LLM_URL": llm_url, "EIGENCAL_PORT": "0"}
    env |= {"EIGENCAL_EMBEDDER": str(WEIGHTS / MINILM), "EIGENCAL_DATA_DIR": str(folder)}
    env |= {
        "EIGENCAL_GET_TO_KNOW": "false",
        "EIGENCAL_SELF_CHECK": "false",
    }  # the LLM answers one call at a time
    env |= {"EIGENCAL_ADMIN_KEY": settings.admin_key, "EIGENCAL_SCORE_KEY": settings.score_key}
    process = stack.enter_context(running([PYTHON, "-m", "service"], env=env, log=folder / "log"))
    url = address(process, folder / "log")
    wait_for(f"{url}/readyz", process, PATIENCE_S)
    return url


@pytest.fixture(scope="module")
def url(llm_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service without keys."""
    with ExitStack() as stack:
        yield start(stack, llm_url, tmp_path_factory.mktemp("open") / "data", Settings())


@pytest.fixture(scope="module")
def locked_url(llm_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with both keys."""
    with ExitStack() as stack:
        keys = Settings("the-admin-key", "the-score-key")
        yield start(stack, llm_url, tmp_path_factory.mktemp("locked") / "data", keys)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser_page(tmp_path_factory.mktemp("profile")) as page:
        yield page


class Console:
    """The console in a tab, used as a person does: by the texts on it."""

    def __init__(self, tab: Page, url: str) -> None:
        self.tab, self.url = tab, url

    def open(self, place: str) -> None:
        """Load the page anew at a place, and wait for its heading."""
        self.tab.visit("about:blank")
        self.tab.visit(f"{self.url}/console/#{place}")
        self.until("document.querySelector('h1') && !document.body?.innerText.includes('Loading…')")

    def until(self, expression: str) -> None:
        self.tab.until(lambda: bool(self.tab.evaluate(f"!!({expression})")))

    def shows(self, text: str) -> None:
        """Wait until a text is on the page."""
        self.until(f"document.body?.innerText.includes({json.dumps(text)})")

    @property
    def text(self) -> str:
        return str(self.tab.evaluate("document.body.innerText"))

    def click(self, text: str, within: str = "body") -> None:
        """Click the last control that begins with a text, when it is there and enabled."""
        found = (
            f"[...document.querySelectorAll({json.dumps(within)} + ' :is(button, a, summary, label)')]"
            f".filter(e => e.innerText.trim().startsWith({json.dumps(text)}) && !e.disabled).at(-1)"
        )
        self.until(found)
        self.tab.evaluate(f"{found}.click()")

    def fill(self, label: str, value: str) -> None:
        """Give the control with a label a value, as typing does."""
        self.until(f"[...document.querySelectorAll('label')].find(e => e.innerText.startsWith({label!r}))")
        self.tab.evaluate(f"""(() => {{
          const label = [...document.querySelectorAll('label')].find(e => e.innerText.startsWith({label!r}));
          const control = document.getElementById(label.htmlFor);
          Object.getOwnPropertyDescriptor(Object.getPrototypeOf(control), 'value').set
            .call(control, {json.dumps(value)});
          control.dispatchEvent(new Event('input', {{bubbles: true}}));
          control.dispatchEvent(new Event('change', {{bubbles: true}}));
        }})()""")

    def press(self, *keys: str, modifiers: int = 0) -> None:
        """Press keys of the keyboard."""
        for key in keys:
            code = {"Tab": 9, "Enter": 13, " ": 32, "Escape": 27}.get(key, 0)
            text = {"Enter": "\r", "Tab": ""}.get(key, key if len(key) == 1 else "")
            event = {"key": key, "windowsVirtualKeyCode": code, "text": text, "modifiers": modifiers}
            self.tab.call("Input.dispatchKeyEvent", type="keyDown", **event)
            self.tab.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def write(self, text: str) -> None:
        """Type a text into the focused control."""
        self.tab.call("Input.insertText", text=text)

    def choose(self, path: Path) -> None:
        """Choose a file in the only file input."""
        root = self.tab.call("DOM.getDocument")["root"]["nodeId"]
        node = self.tab.call("DOM.querySelector", nodeId=root, selector="input[type=file]")["nodeId"]
        self.tab.call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def focus_by_tab(self, expression: str) -> None:
        """Press Tab until an expression about the focused element `e` is true."""
        for _ in range(60):
            if self.tab.evaluate(f"(e => !!({expression}))(document.activeElement)"):
                return
            self.press("Tab")
        raise AssertionError(f"Tab does not reach {expression}")

    def posted(self, path: str) -> list[dict[str, Any]]:
        """Return the requests other than GET to a path."""
        sent = (event["request"] for event in self.tab.named("Network.requestWillBeSent"))
        return [one for one in sent if one["method"] != "GET" and one["url"] == self.url + path]

    def is_clean(self) -> None:
        """Nothing was logged, no policy was violated, and nothing was asked of another host."""
        assert self.tab.complaints() == []
        own = (self.url, "data:", "blob:", "about:")
        assert [asked for asked in self.tab.requests() if not asked.startswith(own)] == []


@pytest.fixture
def console(tab: Page, url: str) -> Iterator[Console]:
    opened = Console(tab, url)
    yield opened
    opened.is_clean()


def rows(**fields: Any) -> str:
    return "".join(
        json.dumps({"prompt": prompt, "reference": reference, **fields}) + "\n"
        for prompt, reference in QUESTIONS.items()
    )


@pytest.fixture(scope="module")
def calibrated(url: str) -> list[str]:
    """Return the ids of two calibrations; the second one is not active."""
    ids = []
    for name in ("first", f"second {HOSTILE}"):
        examples = [json.loads(line) for line in rows().splitlines()]
        body = {"examples": examples, "num_samples": 3, "name": name, "activate": "always"}
        if ids:
            body["activate"] = "never"
        job = httpx.post(f"{url}/calibrate", json=body, timeout=60).raise_for_status().json()
        ids.append(calibration_of(url, job["id"]))
    return ids


def calibration_of(url: str, job_id: str) -> str:
    """Wait until a job has ended. Return the id of its calibration."""
    until(lambda: bool(httpx.get(f"{url}/jobs/{job_id}").json()["finished_at"]))
    return str(httpx.get(f"{url}/jobs/{job_id}").json()["calibration_id"])


def test_the_built_files_are_those_of_the_sources(tmp_path: Path) -> None:
    subprocess.run(["npm", "run", "check"], cwd=WEB, check=True)
    subprocess.run(["node", "build.mjs", str(tmp_path)], cwd=WEB, check=True)
    built = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert built == {file.name: file.read_bytes() for file in (WEB.parent / "static").iterdir()}, (
        "make console"
    )


def test_the_root_leads_a_browser_to_the_console(console: Console) -> None:
    console.tab.visit(console.url)
    console.shows("May I trust this answer?")
    assert console.tab.evaluate("location.pathname") == "/console/"


def test_an_answer_is_judged_by_keyboard_alone(console: Console) -> None:
    console.open("/try")
    console.focus_by_tab("e.type === 'radio'")
    console.press("ArrowDown", "ArrowDown")
    if not console.tab.evaluate("document.querySelectorAll('textarea').length > 1"):
        console.click("An answer of yours")  # headless arrow keys do not move between radios everywhere
    console.focus_by_tab("e.tagName === 'TEXTAREA'")
    console.write("What is the capital of France?")
    console.press("Tab")
    console.write("The capital of France is Lyon.")
    console.focus_by_tab("e.type === 'number'")
    console.press("Tab", "Tab")
    console.press("Enter")
    console.shows("No decision is possible.")  # without a calibration
    console.shows("What the answers say")
    assert "Paris" in console.tab.evaluate("document.querySelector('.meanings').innerText")
    assert "Lyon" in console.tab.evaluate("document.querySelector('.verdict').innerText")


def test_answers_are_shown_by_meaning(console: Console) -> None:
    console.open("/try")
    console.fill("Question", "What is the name of my dog?")
    console.fill("Answers to draw", "12")
    console.click("Ask")
    console.shows("What the answers say")
    shares = console.tab.evaluate("[...document.querySelectorAll('.meanings meter')].map(m => m.value)")
    assert 0 < sum(shares) <= 12 and len(shares) > 1


def test_form_is_kept_while_other_views_are_open(console: Console) -> None:
    console.open("/try")
    console.fill("Question", "What colour is the sky?")
    console.fill("Answers to draw", "")
    console.click("Ask")
    console.shows("What the answers say")
    [sent] = console.posted("/score")
    # Everything else is as set up in the service, so that its calibration fits.
    assert json.loads(sent["postData"]).keys() == {"prompt", "return"}
    console.click("Label", "nav")
    console.shows("Choose one:")
    console.click("Try", "nav")
    console.until("document.querySelector('form textarea')?.value === 'What colour is the sky?'")


def test_a_conversation_is_scored(console: Console) -> None:
    console.open("/try")
    console.click("A conversation")
    console.until("document.querySelector('.turn textarea')")
    console.tab.evaluate("document.querySelector('.turn textarea').focus()")
    console.write("Name a colour in one word.")
    console.fill("Answers to draw", "3")
    console.click("Ask")
    console.shows("What the answers say")


def test_doubtful_claims_of_a_long_answer_are_underlined_with_the_reason(console: Console) -> None:
    claims = [
        "The capital of France is Lyon.",
        "The tower there was built in 1989 and is 900 metres high.",
        "Its river is the Danube, which flows through eleven museums.",
        "The president of the country is elected for two years by a council of seventy mayors.",
        "Its most famous museum owns forty paintings of tulips, which were bought in 1702.",
        "The national holiday is on the third of May, when the bakeries are closed for a week.",
    ]
    console.open("/try")
    console.click("An answer of yours")
    console.fill("Question", "What is the capital of France?")
    console.fill("Answer to judge", " ".join(claims))
    console.fill("Answers to draw", "4")
    console.click("Ask")
    console.shows("claims, ")
    marked = console.tab.evaluate(
        "[...document.querySelectorAll('mark.doubtful')].map(mark => mark.innerText)"
    )
    assert marked and set(marked) <= set(claims)
    reasons = console.tab.evaluate(
        "[...document.querySelectorAll('.claims .doubtful')].map(e => e.innerText)"
    )
    assert len(reasons) == len(marked) and all("of 4 answers" in reason for reason in reasons)


def test_ten_verdicts_on_own_questions_move_the_probability(console: Console, calibrated: list[str]) -> None:
    console.open("/try")
    console.shows("Ten verdicts")
    asked = list(QUESTIONS)[:10]
    console.fill("Questions of your own", "\n".join([*asked, "", asked[0]]))
    console.click("Get answers")
    console.until("document.querySelectorAll('.ten > li').length === 10")
    for at in range(10):
        verdict = "Right" if at % 3 else "Wrong"
        console.click(verdict, f".ten > li:nth-child({at + 1})")
    console.shows("10 verdicts")
    console.tab.reload()  # loses nothing
    console.shows("10 verdicts")
    console.click("Use these verdicts")
    console.shows("Done")
    console.until("document.querySelectorAll('.ten .small').length === 10")
    console.until("[...document.querySelectorAll('.ten .small')].every(e => e.innerText.includes(', now '))")
    [sent] = console.posted("/calibrate")
    examples = json.loads(sent["postData"])["examples"]
    assert [row["prompt"] for row in examples] == asked
    assert [row["correct"] for row in examples] == [at % 3 > 0 for at in range(10)]
    console.click("Start again")
    console.until("document.querySelectorAll('.ten > li').length === 0")


def test_what_is_not_known_of_the_llm_is_told(tab: Page, locked_url: str) -> None:
    locked = Console(tab, locked_url)
    locked.open("/sign-in")
    locked.fill("Key", "the-admin-key")
    locked.click("Sign in", "main")
    locked.shows("This LLM has no calibration yet.")
    locked.click("Sign out")


def test_a_stopped_score_frees_the_page(console: Console) -> None:
    console.open("/try")
    console.fill("Question", "Tell me a long story.")
    console.fill("Answers to draw", "200")
    console.click("Ask")
    console.click("Stop")
    console.until("!document.querySelector('progress')")


def test_a_refused_score_names_the_request(console: Console) -> None:
    console.open("/try")
    console.fill("Question", "p" * 200_000)
    console.click("Ask")
    console.shows("Request id:")
    console.tab.events.clear()  # Chromium logs refused requests


def test_faults_of_a_file_are_shown_by_line_before_anything_is_sent(console: Console, tmp_path: Path) -> None:
    console.open("/calibrate")
    bad = tmp_path / f"bad {HOSTILE.replace('/', '_')}.jsonl"
    bad.write_text(rows() + '\n{"prompt": "no reference"}\n{"prompt": " ", "reference": "a"}\nnot json\n')
    console.choose(bad)
    console.shows("Nothing was sent")
    lines = console.tab.evaluate(
        "[...document.querySelectorAll('.faults tbody tr td:first-child')].map(e => e.innerText)"
    )
    assert lines == ["14", "15", "16"]
    assert console.posted("/calibrate") == []
    assert console.tab.evaluate("document.title") != "hacked"
    pairs = [("prompt", "reference"), *QUESTIONS.items()]
    for name, sign in (("good.csv", ","), ("semicolons.csv", ";")):
        (tmp_path / name).write_text("".join(f'"{prompt}"{sign}"{answer}"\n' for prompt, answer in pairs))
        console.choose(tmp_path / name)
        console.shows(f"{name}: 12 rows")


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("empty.jsonl", b"", None),
        ("array.jsonl", b'[{"prompt": "a"}]', None),
        ("latin.jsonl", b'{"prompt": "caf\xe9", "reference": "a"}', None),
        ("list.csv", b"""prompt,reference,samples\na,b,"['c', 'd']"\n""", 2),
        ("few.jsonl", b'{"prompt": "a", "reference": "b"}', None),
        ("column.csv", b"prompt,answers\na,b\n", None),
        ("width.csv", b'prompt,reference\n"a\nb",c\nd\n', 4),
        ("same.csv", b"id,prompt,reference\n1,a,b\n1,c,d\n", 3),
        ("both.jsonl", b'{"prompt": "a", "messages": [], "reference": "b"}', 1),
        ("assistant.jsonl", b'{"messages": [{"role": "assistant", "content": "a"}], "reference": "b"}', 1),
        ("samples.jsonl", b'\n{"prompt": "a", "reference": "b", "samples": ["c"]}', 2),
        ("verdict.jsonl", b'{"prompt": "a", "reference": "b", "correct": "maybe"}', 1),
        ("typo.jsonl", b'{"prompt": "a", "refrence": "b"}', 1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_file_is_refused_as_the_service_refuses_it(
    console: Console, tmp_path: Path, name: str, content: bytes, line: int | None
) -> None:
    console.open("/calibrate")
    path = tmp_path / name
    path.write_bytes(content)
    console.choose(path)
    console.until("document.querySelector('[role=alert]')")
    shown = console.tab.evaluate("document.querySelector('.faults td')?.innerText ?? '—'")
    answered = httpx.post(f"{console.url}/calibrate", files={"file": (name, content)})
    assert answered.status_code == 422
    lines = {error["line"] for error in answered.json()["errors"]}
    assert line is None or line in lines
    assert shown == ("—" if line is None else str(line))


def test_a_calibration_is_made_followed_left_and_found_again(console: Console, tmp_path: Path) -> None:
    console.open("/calibrate")
    file = tmp_path / "capitals.jsonl"
    file.write_text(rows())
    console.choose(file)
    console.shows("12 rows are enough to start.")
    console.fill("Answers per question", "3")
    console.click("Calibrate on 12 rows")
    console.until("location.hash.startsWith('#/calibrate/job_')")
    console.click("Try", "nav")
    console.shows("May I trust this answer?")
    console.click("Calibrate", "nav")
    console.click("capitals", ".history")
    console.shows("Not yet: 88 more rows are needed.")
    console.click("Open the calibration")
    console.shows("How much to let through")
    console.until("document.querySelector('iframe')")


def test_a_job_is_cancelled(console: Console, tmp_path: Path) -> None:
    console.open("/calibrate")
    file = tmp_path / "long.jsonl"
    prompts = [f"What is the name of city number {number}?" for number in range(200)]
    file.write_text("".join(json.dumps({"prompt": prompt, "reference": "a"}) + "\n" for prompt in prompts))
    console.choose(file)
    console.click("Calibrate on 200 rows")
    console.click("Cancel the job")
    console.click("Cancel the job", "dialog")
    console.shows("Cancelled")


def test_a_job_that_does_not_exist_is_reported(console: Console) -> None:
    console.open("/calibrate/job_00000000000000000000000000")
    console.shows("No job has this id.")
    console.tab.events.clear()  # Chromium logs refused requests


def test_a_calibration_is_activated_and_taken_back(console: Console, calibrated: list[str]) -> None:
    console.open(f"/calibrations/{calibrated[1]}")
    assert console.tab.evaluate("document.querySelector('h1').innerText").startswith("second <img")
    console.click("Activate")
    console.shows("It replaces “\u2068first\u2069”")
    console.click("Activate", "dialog")
    console.shows("Applies now")
    console.open("/calibrations")
    console.shows("Active\nsince ")
    console.click("Go back to \u2068first\u2069")
    console.click("Activate", "dialog")
    console.until("document.querySelector('.card.current')?.innerText.startsWith('first')")
    active = httpx.get(f"{console.url}/calibrations/active").json()
    assert calibrated[0] in [calibration["id"] for calibration in active]
    assert console.tab.evaluate("document.title") != "hacked"


def test_the_slider_says_what_a_target_error_lets_through(console: Console, calibrated: list[str]) -> None:
    report = httpx.get(f"{console.url}/calibrations/{calibrated[0]}/report").json()
    console.open(f"/calibrations/{calibrated[0]}")
    if not report["correctness"]["risk_coverage"]:
        console.shows("do not allow a promise")
        return
    before = console.tab.evaluate("document.querySelector('output').innerText")
    console.tab.evaluate("document.querySelector('input[type=range]').focus()")
    console.fill("Wrong among those let through", "0.6")
    console.until(f"document.querySelector('output').innerText !== {json.dumps(before)}")


def test_verdicts_are_corrected_by_keyboard(console: Console, calibrated: list[str]) -> None:
    report = httpx.get(f"{console.url}/calibrations/{calibrated[0]}/report").json()
    console.open(f"/label/{calibrated[0]}")
    console.shows("1 of 12.")
    shown = console.tab.evaluate("document.querySelector('.row-card').innerText")
    [first] = [row for row in report["verdicts"]["rows"] if f"line {row['line']}\n" in shown.lower()]
    console.press(*"s" * 12)
    console.shows("All rows have been shown.")
    console.click("Back")
    console.shows("12 of 12. 0 verdicts changed.")
    console.press(*"u" * 11)
    console.shows("1 of 12.")
    console.press("n" if first["correct"] else "y")
    console.shows("2 of 12. 1 verdict changed.")
    console.focus_by_tab("e.innerText.startsWith('Calibrate with 1 changed')")
    console.press("Enter")
    console.click("Open the calibration")
    console.shows("first, corrected")
    [sent] = console.posted(f"/calibrations/{calibrated[0]}/rows")
    assert json.loads(sent["postData"])["rows"] == [{"line": first["line"], "correct": not first["correct"]}]
    console.click("Activate")
    console.click("Activate", "dialog")
    console.shows("Applies now")
    active = httpx.get(f"{console.url}/calibrations/active").json()
    assert calibrated[0] not in [calibration["id"] for calibration in active]


def test_rows_are_exported_and_forgotten_only_after_their_name_was_typed(
    console: Console, calibrated: list[str]
) -> None:
    console.open(f"/calibrations/{calibrated[1]}")
    rows = f"{console.url}/calibrations/{calibrated[1]}/data"
    console.click("Export the rows")
    assert console.tab.evaluate("document.querySelector('dialog button[type=submit]').disabled")
    assert not console.tab.named("Page.downloadWillBegin")
    console.fill("Type", f"second {HOSTILE}")
    console.click("Export the rows", "dialog")
    console.tab.until(lambda: bool(console.tab.named("Page.downloadWillBegin")))
    assert [event["url"] for event in console.tab.named("Page.downloadWillBegin")] == [rows]
    console.until("!document.querySelector('dialog')")
    console.click("Delete the rows")
    assert console.tab.evaluate("document.querySelector('dialog button[type=submit]').disabled")
    console.fill("Type", f"second {HOSTILE}")
    console.click("Delete the rows", "dialog")
    console.shows("The rows of this calibration are not stored.")
    assert httpx.get(rows).status_code == 404


def test_hostile_texts_are_texts_everywhere(console: Console) -> None:
    console.open("/try")
    console.click("An answer of yours")
    console.fill("Question", f"What is this? {HOSTILE}")
    console.fill("Answer to judge", HOSTILE)
    console.fill("Answers to draw", "3")
    console.click("Ask")
    console.shows("What the answers say")
    assert HOSTILE in console.tab.evaluate("document.querySelector('.judged').innerText")
    assert console.tab.evaluate("document.querySelectorAll('#app :is(img, script)').length") == 0
    assert console.tab.evaluate("document.title") != "hacked"


def test_a_report_asks_for_a_key_and_opens_after_sign_in(tab: Page, locked_url: str) -> None:
    console = Console(tab, locked_url)
    tab.visit(f"{locked_url}/calibrations/cal_00000000000000000000000000/report")
    console.until("location.pathname === '/console/' && location.hash.startsWith('#/sign-in')")
    console.fill("Key", "wrong")
    console.click("Sign in", "form")
    console.shows("The key is not valid.")
    console.fill("Key", "the-admin-key")
    console.click("Sign in", "form")
    console.until("location.pathname.startsWith('/calibrations/')")
    console.shows("No calibration has this id.")
    console.open("/calibrations")
    console.shows("There is no calibration yet.")
    assert tab.evaluate("document.cookie") == ""
    console.click("Sign out")
    console.shows("Enter a key of this service")
    console.open("/try")
    console.shows("Enter a key of this service")


def test_a_score_key_opens_no_calibrations_and_no_other_host(tab: Page, locked_url: str) -> None:
    console = Console(tab, locked_url)
    for next_ in (
        "//example.com/",
        "/http://example.com",
        "/javascript:document.title='hacked'",
        "https://example.com",
    ):
        tab.visit("about:blank")
        tab.visit(f"{locked_url}/console/#/sign-in?next={quote(next_, safe='')}")
        has_left = "(location.pathname !== '/console/' || !location.hash.startsWith('#/sign-in'))"
        console.until(f"{has_left} || document.querySelector('input[type=password]')")
        if not tab.evaluate(has_left):  # a person who is signed in goes on at once
            console.fill("Key", "the-score-key")
            console.click("Sign in", "form")
        console.until(has_left)
        assert tab.evaluate("location.origin") == locked_url
        assert tab.evaluate("document.title") != "hacked"
    console.open("/calibrations")
    console.shows("Calibrations need an admin key.")
    console.open("/try")
    console.click("Sign out")
    console.shows("Enter a key of this service")


PLACES = (
    "try",
    "sign-in",
    "calibrate",
    "calibrate/JOB",
    "calibrations",
    "calibrations/ID",
    "label",
    "label/ID",
)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("place", PLACES)
def test_every_view_is_accessible_and_fits_every_width(
    console: Console, calibrated: list[str], theme: str, place: str
) -> None:
    axe = (WEB / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")
    job = httpx.get(f"{console.url}/jobs?limit=1").json()[0]["id"]
    console.tab.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}]
    )
    console.open("/" + place.replace("ID", calibrated[0]).replace("JOB", job))
    if place == "try":
        console.fill("Question", "What is the name of my dog?")
        console.fill("Answers to draw", "5")
        console.click("Ask")
        console.shows("What the answers say")
    for width in (390, 820, 1440):
        console.tab.resize(width, 900, phone=width == 390)
        console.until("document.documentElement.scrollWidth <= innerWidth")
        console.tab.evaluate(f"{axe}; 0")
        found = console.tab.call(
            "Runtime.evaluate",
            expression="axe.run(document, {iframes: false}).then(found => JSON.stringify("
            "found.violations.map(v => [v.impact, v.id, v.nodes.map(node => node.html)])))",
            awaitPromise=True,
            returnByValue=True,
        )
        violations = json.loads(found["result"]["value"])
        assert [one for one in violations if one[0] in ("serious", "critical")] == []
