"""The report in real Chromium: drawn, moved, read in both schemes, on a phone, on a desk and on paper."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fedassay.documents import explorer
from study_documents import study_document, study_page

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None and "FEDASSAY_BROWSER" not in os.environ:
    pytest.skip("there is no chromium on this machine (CI installs it)", allow_module_level=True)

from playwright.sync_api import Browser, BrowserContext, Page, Route, sync_playwright  # noqa: E402

WIDTHS = (400, 1400)
SCHEMES = ("light", "dark")
NOISES = (True, False)


@dataclass
class Seen:
    """A page that is open, and everything that it has complained of or asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def quiet(self) -> bool:
        return not self.complaints and all(url.startswith("file://") for url in self.requests)


Opener = Callable[..., Seen]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    folder = tmp_path_factory.mktemp("reports")
    made = {noise: folder / f"report-{noise}.html" for noise in NOISES}
    for noise, path in made.items():
        path.write_text(study_page(noise=noise), encoding="utf-8")
    return made


@pytest.fixture
def opened(browser: Browser, files: dict[bool, Path]) -> Iterator[Opener]:
    contexts: list[BrowserContext] = []

    def open_page(*, noise: bool = True, width: int = 1400, html: str = "", **options: Any) -> Seen:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        seen = Seen(page=context.new_page())
        seen.page.on("console", lambda message: seen.complaints.append(message.text))
        seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))

        def guard(route: Route) -> None:
            seen.requests.append(route.request.url)
            if route.request.url.startswith("file://"):
                route.continue_()
            else:
                route.abort()

        context.route("**/*", guard)
        path = files[noise]
        if html:
            path = path.with_name("changed.html")
            path.write_text(html, encoding="utf-8")
        seen.page.goto(path.as_uri())
        return seen

    yield open_page
    for context in contexts:
        context.close()


# --- what is drawn ----------------------------------------------------------------------------------------------------

_DRAWN = """figures => figures.map(figure => {
  const svg = figure.querySelector("svg"), box = svg.getBoundingClientRect();
  const marks = [...svg.querySelectorAll("path")].filter(path => path.getTotalLength() > 1);
  const words = [...svg.querySelectorAll("text")].filter(text => text.getBoundingClientRect().width > 0);
  const boxes = words.map(text => [text.textContent, text.getBoundingClientRect()]);
  const over = boxes.flatMap(([one, a], at) => boxes.slice(at + 1)
    .filter(([, b]) => a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom)
    .map(([other]) => [one, other]));
  return {id: figure.id, width: box.width, height: box.height, marks: marks.length, words: words.length, over};
})"""
"""What is in each plot; boxes of letters are higher than what is seen of them, so three pixels may overlap."""


@pytest.mark.parametrize("noise", NOISES)
def test_every_plot_is_drawn(opened: Opener, noise: bool) -> None:
    seen = opened(noise=noise)
    drawn = seen.page.eval_on_selector_all("figure", _DRAWN)
    assert len(drawn) == study_page(noise=noise).count("<figure") >= 10
    for figure in drawn:
        assert figure["width"] > 200, figure
        assert figure["height"] > 60, figure
        assert figure["marks"] >= 3, figure
        assert figure["words"] >= 3, figure
        assert figure["over"] == [], figure  # no word on another
    assert seen.quiet, (seen.complaints, seen.requests)
    assert len(seen.requests) == 1
    # A plot in which a word covers another is noticed.
    seen.page.evaluate(
        """() => {
          const [one, other] = document.querySelectorAll("figure .role-axis-label text");
          other.setAttribute("transform", one.getAttribute("transform"));
        }"""
    )
    assert len(seen.page.eval_on_selector_all("figure", _DRAWN)[0]["over"]) == 1


# --- the threshold explorer -------------------------------------------------------------------------------------------


def shown(page: Page) -> tuple[int, dict[str, dict[str, float | None]], dict[str, tuple[str, str]]]:
    """Where the slider is, the raw numbers beside it, and the texts that people see."""
    numbers: dict[str, dict[str, float | None]] = {}
    texts: dict[str, tuple[str, str]] = {}
    for tile in page.locator("[data-metric]").all():
        name = tile.get_attribute("data-metric") or ""
        raw = {end: tile.get_attribute(f"data-{end}") or "" for end in explorer.ENDS}
        numbers[name] = {end: None if text == "null" else float(text) for end, text in raw.items()}
        texts[name] = (tile.locator("dd b").inner_text(), tile.locator("dd small").inner_text())
    return int(page.locator("input[type=range]").input_value()), numbers, texts


def assert_equal_to_the_result(page: Page, points: dict[str, Any], place: int) -> None:
    at, numbers, texts = shown(page)
    assert at == place
    assert numbers == {
        name: {end: points[name][end][place] for end in explorer.ENDS} for name in explorer.names(points)
    }
    assert texts == {name: explorer.told(name, *found.values()) for name, found in numbers.items()}
    sentence = page.locator("[data-shown=sentence]").inner_text()
    assert sentence == explorer.embedded(points)["sentence"][place]
    assert page.locator("output").inner_text().startswith(f"{points['thresholds'][place]:.2f}")


def test_the_slider_moves_by_keyboard_and_shows_the_result(opened: Opener) -> None:
    seen = opened()
    points = study_document()["results"]["tasks"]["evaluate"]["results"]["operating_points"]
    assert_equal_to_the_result(seen.page, points, 49)
    slider = seen.page.locator("input[type=range]")
    slider.focus()
    for keys, place in ((["ArrowRight"] * 3, 52), (["ArrowLeft"], 51), (["End"], 98), (["Home"], 0)):
        for key in keys:
            seen.page.keyboard.press(key)
        assert_equal_to_the_result(seen.page, points, place)
        assert slider.get_attribute("aria-valuetext") == seen.page.locator("output").inner_text()
    assert seen.page.locator("[aria-live=polite]").count() == 1
    assert seen.quiet


@pytest.mark.parametrize("noise", NOISES)
def test_the_slider_moves_by_mouse_and_marks_the_plots(opened: Opener, noise: bool) -> None:
    seen = opened(noise=noise)
    points = study_document(noise=noise)["results"]["tasks"]["evaluate"]["results"]["operating_points"]
    slider = seen.page.locator("input[type=range]")
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    assert box is not None
    for part in (0.2, 0.8):
        seen.page.mouse.click(box["x"] + part * box["width"], box["y"] + box["height"] / 2)
        place = int(slider.input_value())
        assert abs(place - 98 * part) < 3
        assert_equal_to_the_result(seen.page, points, place)
        recall, precision, specificity = (
            points[name]["value"][place] for name in ("recall", "precision", "specificity")
        )
        assert marked(seen.page, "roc") == pytest.approx((1 - specificity, recall), abs=0.005)
        assert marked(seen.page, "precision-recall") == pytest.approx((recall, precision), abs=0.005)
        assert marked(seen.page, "threshold")[0] == pytest.approx(points["applied"][place], abs=0.005)


def marked(page: Page, name: str) -> tuple[float, float]:
    """Where the explorer's mark is in a plot, in units of the axes, which go from 0 to 1."""
    found = page.locator(f"[data-marks={name}] .marker").first.evaluate(
        """mark => {
          const frame = mark.closest("svg").querySelector(".background").getBoundingClientRect();
          const box = mark.getBoundingClientRect();
          return [(box.x + box.width / 2 - frame.x) / frame.width,
                  1 - (box.y + box.height / 2 - frame.y) / frame.height];
        }"""
    )
    return found[0], found[1]


def test_without_scripts_there_is_a_table_instead(opened: Opener) -> None:
    page = opened(java_script_enabled=False).page
    assert page.locator(".explorer table").is_visible()
    assert not page.locator("input[type=range]").is_visible()
    assert not page.locator("[data-theme-button]").is_visible()
    with_script = opened().page
    assert not with_script.locator(".explorer table").is_visible()
    assert with_script.locator("input[type=range]").is_visible()


# --- light, dark, small, large, paper ---------------------------------------------------------------------------------

_LOWEST_CONTRAST = """() => {
  const parsed = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let one = element; one; one = one.parentElement) {
      const colour = parsed(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  let lowest = [99, ""];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const ink = parsed(element instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < lowest[0]) lowest = [ratio, element.tagName + " " + element.textContent.slice(0, 40)];
  }
  return lowest;
}"""


def paper(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_has_contrast_in_both_schemes(opened: Opener, scheme: str) -> None:
    page = opened(color_scheme=scheme).page
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    ratio, where = page.evaluate(_LOWEST_CONTRAST)
    assert 4.5 <= ratio < 22, where
    assert (paper(page) == "rgb(255, 255, 255)") == (scheme == "light")
    # A page that fails is seen to fail.
    page.evaluate("document.querySelector('.note').style.color = '#777'")
    assert page.evaluate(_LOWEST_CONTRAST)[0] < 4.5


def test_a_button_changes_the_scheme(opened: Opener) -> None:
    seen = opened(color_scheme="dark")
    button = seen.page.get_by_role("button", name="Light colours")
    dark = paper(seen.page)
    ink = "getComputedStyle(document.querySelector('svg text')).fill"
    words = seen.page.evaluate(ink)
    button.click()
    assert paper(seen.page) == "rgb(255, 255, 255)" != dark
    assert seen.page.evaluate(ink) != words
    seen.page.get_by_role("button", name="Dark colours").focus()
    seen.page.keyboard.press("Enter")
    assert paper(seen.page) == dark
    assert seen.page.evaluate(ink) == words
    assert seen.quiet


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("noise", NOISES)
def test_nothing_is_wider_than_the_page(opened: Opener, noise: bool, width: int) -> None:
    page = opened(noise=noise, width=width).page
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    held = "all => all.every(one => one.getBoundingClientRect().right <= innerWidth)"
    assert page.eval_on_selector_all("p, h1, h2, h3, figure, .tile, .scrolls, dl, nav", held)
    # What has to be scrolled can be, with the keyboard; what has not is no stop on the way.
    stops = "all => all.every(one => (one.tabIndex === 0) === (one.scrollWidth > one.clientWidth + 1))"
    page.wait_for_function(f"({stops})([...document.querySelectorAll('.scrolls')])")
    if width == WIDTHS[0]:
        assert page.eval_on_selector_all(".scrolls[tabindex]", "all => all.length") > 0
        smallest = "all => Math.min(...all.map(t => t.getBoundingClientRect().height))"
        assert page.eval_on_selector_all("svg text", smallest) >= 7


def test_on_paper_everything_is_there_in_light_colours(opened: Opener) -> None:
    page = opened(color_scheme="dark").page
    page.get_by_role("button").first.click()
    page.get_by_role("button").first.click()  # dark by choice, too
    page.emulate_media(media="print")
    assert paper(page) == "rgb(255, 255, 255)"
    for hidden in ("button", "nav", "input[type=range]", ".skip"):
        assert not page.locator(hidden).is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_the_keyboard_skips_to_the_results_and_motion_can_be_reduced(opened: Opener) -> None:
    page = opened(reduced_motion="reduce").page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#content"
    behaviour = "getComputedStyle(document.documentElement).scrollBehavior"
    assert page.evaluate(behaviour) == "auto"
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(behaviour) == "smooth"


# --- the checks themselves --------------------------------------------------------------------------------------------


def test_a_page_that_asks_the_network_or_fails_is_noticed(opened: Opener) -> None:
    html = re.sub(r"<meta http-equiv=[^>]*>", "", study_page())
    asks = opened(html=html.replace("<main", "<img src='http://127.0.0.1:9/x.png' alt=''><main"))
    assert not asks.quiet
    assert any(url.startswith("http://") for url in asks.requests)
    fails = opened(html=html.replace("themed(button);", "themed(button, missing);"))
    assert any("missing" in text for text in fails.complaints)


def test_a_script_that_is_not_ours_does_not_run(opened: Opener) -> None:
    html = study_page().replace("<main", "<script>document.title = 'taken'</script><main")
    seen = opened(html=html)
    assert seen.page.title() == "Readmission within 30 days - fedassay"
    assert any("Content Security Policy" in text for text in seen.complaints)
