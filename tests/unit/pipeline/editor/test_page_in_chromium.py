"""What one sees and does on the page, in a headless Chromium, on a wide screen and on that of a telephone."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.editor.app import Playground
from pipeline.editor.page import Page
from pretrain.inference.language_model import PermutationLM
from tests.unit.pipeline.editor.browser import CHROMIUM, Browser, browser
from tests.unit.pipeline.editor.conftest import Server, running

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

IDLE = "running === null"
SIZES = [(1280, 900), (390, 844)]
HOSTILE = "x = '<img src=x onerror=alert(1)>&amp;<b>'\n"
KEY = "the-key-of-this-test"
Use = Callable[[Browser], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def page_server(lm: PermutationLM, playground: Playground) -> Iterator[Server]:
    yield from running(lm, playground=playground)


@pytest.fixture
def locked_server(lm: PermutationLM, playground: Playground) -> Iterator[Server]:
    yield from running(lm, KEY, playground)


@pytest.fixture
def server_without_corpus(lm: PermutationLM) -> Iterator[Server]:
    yield from running(lm, playground=Playground(Page(), None))


def use(
    profile: Path, server: Server, do: Use, size: tuple[int, int] = SIZES[0], *, is_dark: bool = False
) -> None:
    """Load the page and use it; nothing may have been complained about, and nothing asked of another server."""

    async def run() -> None:
        async with browser(profile) as page:
            address = f"http://127.0.0.1:{server.port}/"
            await page.open(address, *size, is_dark=is_dark)
            await page.until("document.getElementById('model').textContent")
            await do(page)
            assert page.problems == []
            assert [one for one in page.requests if not one.startswith((address, "data:"))] == []

    asyncio.run(run())


async def write(page: Browser, text: str) -> None:
    await page.value("document.getElementById('text').select()")
    await page.click("#text")
    await page.value("document.getElementById('text').select()")
    await page.type(text)
    assert await page.value("document.getElementById('text').value") == text


async def do(page: Browser, button: str) -> None:
    await page.click(f"#{button}")
    await page.until(IDLE)
    assert await page.value("document.getElementById('error').hidden"), await page.text("#error")


async def shown(page: Browser) -> str:
    """The text of the tokens, without what the style adds."""
    return await page.text("#result")


async def check_width(page: Browser, width: int) -> None:
    """Nothing is wider than the screen, and no button lies outside of it."""
    assert await page.value("document.documentElement.scrollWidth") == width
    rights = "[...document.querySelectorAll('button:not([hidden]), input')].map((e) => e.getBoundingClientRect().right)"
    assert max(await page.value(rights)) <= width


@pytest.mark.parametrize("size", SIZES, ids=["wide", "narrow"])
def test_a_text_is_completed_filled_coloured_and_scanned(
    page_server: Server, tmp_path: Path, size: tuple[int, int]
) -> None:
    lm, text = page_server.lm, "def total(items):\n    result = "

    async def steps(page: Browser) -> None:
        assert await page.text("#model") == "tiny, on cpu"
        await write(page, text)
        await page.value("document.getElementById('tokens').value = 6")
        await do(page, "complete")
        new = lm.complete(text, max_new_tokens=6)[0].text
        assert await shown(page) == text + new
        assert (
            await page.value("[...document.querySelectorAll('.new')].map((e) => e.textContent).join('')")
            == new
        )
        await check_width(page, size[0])
        await page.screenshot(tmp_path / "completed.png")

        await page.point_at(".token.new")
        assert not await page.value("document.getElementById('tip').hidden")
        rows = await page.value("[...document.querySelectorAll('#tip .choice')].map((e) => e.textContent)")
        assert 2 <= len(rows) <= 9
        assert await page.value("document.querySelectorAll('#tip .taken').length") == 1
        box = await page.value(
            "(r => [r.left, r.right, r.top, r.bottom])(document.getElementById('tip').getBoundingClientRect())"
        )
        assert 0 <= box[0] < box[1] <= size[0]
        assert 0 <= box[2] < box[3] <= size[1]

        await page.click("#take")
        assert await page.value("document.getElementById('text').value") == text + new
        await do(page, "probabilities")
        assert await shown(page) == text + new
        (scored,) = lm.score(text + new)
        note = await page.text("#note")
        assert note.startswith(
            f"{len(scored.token_P)} tokens, {scored.scores.bits:.1f} bits, {scored.bits_per_byte:.3f}"
        )
        expected = [
            0
            if p >= 0.5
            else 1
            if p >= 0.2
            else 2
            if p >= 0.05
            else 3
            if p >= 0.01
            else 4
            if p >= 0.001
            else 5
            for p in np.exp(scored.scores.log_probability_P)
        ]
        classes = await page.value(
            "[...document.querySelectorAll('.token')].map((e) => Number(/p(\\d)/.exec(e.className)[1]))"
        )
        assert classes == expected

        await do(page, "scan")
        (scanned,) = lm.scan(text + new)
        figures = await page.value("[...document.querySelectorAll('.lines .number:nth-of-type(2n)')].length")
        assert figures >= 1
        bits = await page.value("[...document.querySelectorAll('.rank')].map((e) => e.textContent)")
        assert bits == [f"{line.surprise_bits:.1f}" for line in scanned.lines]
        await check_width(page, size[0])

    use(tmp_path / "profile", page_server, steps, size)


@pytest.mark.parametrize("size", SIZES, ids=["wide", "narrow"])
def test_holes_are_marked_filled_and_put_into_the_text(
    page_server: Server, tmp_path: Path, size: tuple[int, int]
) -> None:
    async def steps(page: Browser) -> None:
        await write(page, "def f(x):\n    return ")
        assert await page.value("document.getElementById('fill').disabled")
        await page.value("document.getElementById('text').setSelectionRange(6, 7)")
        await page.click("#mark")
        assert await page.value("document.getElementById('text').value") == "def f(<hole>):\n    return "
        await page.value("document.getElementById('text').setSelectionRange(99, 99)")
        await page.type("<hole:3>\n")
        assert await page.text("#hint") == "2 holes are marked: fill them, or remove the marks for the rest."
        for name in ("complete", "probabilities", "scan"):
            assert await page.value(f"document.getElementById('{name}').disabled")
        await do(page, "fill")
        parts = ["def f(", "):\n    return ", "\n"]
        found = page_server.lm.infill_holes(parts, length=[None, 3], order="most_certain")
        first, second = (hole.text for hole in found.holes)
        whole = parts[0] + first + parts[1] + second + parts[2]
        assert await shown(page) == whole
        assert await page.value("document.querySelectorAll('#holes li').length") == 2
        assert f"in {found.num_passes} passes" in await page.text("#note")
        assert second in await page.value(
            "[...document.querySelectorAll('.new')].map((e) => e.textContent).join('')"
        )
        await check_width(page, size[0])
        await page.click("#take")
        assert await page.value("document.getElementById('text').value") == whole

    use(tmp_path / "profile", page_server, steps, size)


def test_texts_are_shown_as_they_are_and_never_as_html(page_server: Server, tmp_path: Path) -> None:
    async def steps(page: Browser) -> None:
        await write(page, HOSTILE)
        for button in ("probabilities", "complete", "scan"):
            await do(page, button)
            assert HOSTILE.strip() in await shown(page)
            assert await page.value("document.querySelectorAll('img, #result b').length") == 0
        await page.point_at(".code")
        # What would insert HTML is an error.
        tried = "(() => { try { document.body.innerHTML = '<i>'; return 'inserted'; } catch (e) { return e.name; } })()"
        assert await page.value(tried) == "TypeError"
        assert len(page.problems) == 1
        assert "TrustedHTML" in page.problems.pop()

    use(tmp_path / "profile", page_server, steps)


@pytest.mark.parametrize("text", ["s = 'äöü € 𝔸 🙂'\n", "\ta\n\n\n  b\n", "a"])
def test_any_characters_are_shown_in_their_tokens(page_server: Server, tmp_path: Path, text: str) -> None:
    async def steps(page: Browser) -> None:
        await write(page, text)
        await do(page, "probabilities")
        parts = await page.value(
            "[...document.querySelectorAll('.token:not(.part)')].map((e) => e.textContent)"
        )
        assert "".join(parts) == text

    use(tmp_path / "profile", page_server, steps)


def test_the_colours_follow_the_system_s(page_server: Server, tmp_path: Path) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    found = {}

    async def steps(page: Browser) -> None:
        found[len(found)] = await page.value(background)

    use(tmp_path / "light", page_server, steps)
    use(tmp_path / "dark", page_server, steps, is_dark=True)
    assert found == {0: "rgb(246, 247, 249)", 1: "rgb(20, 23, 28)"}


def test_the_corpus_is_searched_and_bad_input_said_in_a_line(page_server: Server, tmp_path: Path) -> None:
    async def steps(page: Browser) -> None:
        await page.value("document.getElementById('sought').focus()")
        await page.type("sum(values)")
        await page.click("#search")
        await page.until(IDLE)
        assert await page.text("#found") == "1 of all 2 documents contain it:"
        assert await page.text("#documents") == "numbers/mean.py:2 (train)return sum(values) / len(values)"
        await write(page, "x = <hole:1000>")
        await page.click("#fill")
        await page.until(IDLE)
        assert (await page.text("#error")).startswith("a hole of 1000 tokens does not fit")
        await write(page, "x = ")
        await page.value("document.getElementById('tokens').value = 0")
        await page.click("#complete")
        await page.until(IDLE)
        assert await page.text("#error") == "New tokens: give a number from 1 to 4096"
        assert all("400 (Bad Request)" in one for one in page.problems)
        page.problems.clear()

    use(tmp_path / "profile", page_server, steps)


def test_what_is_under_way_can_be_stopped(page_server: Server, tmp_path: Path) -> None:
    async def steps(page: Browser) -> None:
        await write(page, "x = ")
        await page.value("document.getElementById('tokens').value = 4096")
        await page.click("#complete")
        await page.until("document.querySelectorAll('.new').length > 3")
        await page.click("#stop")
        await page.until(IDLE)
        assert (await page.text("#note")).endswith("Stopped.")
        await page.value("document.getElementById('tokens').value = 2")
        await do(page, "complete")

    use(tmp_path / "profile", page_server, steps)


def test_the_key_is_asked_for_and_kept_in_memory_only(locked_server: Server, tmp_path: Path) -> None:
    async def steps(page: Browser) -> None:
        await write(page, "x = ")
        for key in ("a wrong one", KEY):
            await page.click("#complete")
            await page.until("document.getElementById('ask').open")
            await page.value("document.getElementById('key').focus()")
            await page.type(key)
            await page.click("#use button")
            await page.until("document.getElementById('ask').open || running === null")
            if key == "a wrong one":  # it is asked for again; closing the dialog shows an error
                await page.value("document.getElementById('ask').close()")
                await page.until(IDLE)
                assert await page.text("#error") == "Without the key the server does not answer."
        assert (await shown(page)).startswith("x = ")
        kept = await page.value("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
        assert json.loads(kept) == [{}, {}, ""]
        assert KEY not in await page.value("document.documentElement.outerHTML")
        assert all("401 (Unauthorized)" in one for one in page.problems)
        page.problems.clear()

    use(tmp_path / "profile", locked_server, steps)


def test_tokens_are_reached_with_the_keyboard(page_server: Server, tmp_path: Path) -> None:
    async def press(page: Browser, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            await page.call("Input.dispatchKeyEvent", {"type": kind, "key": key})

    async def steps(page: Browser) -> None:
        await write(page, "x\n" * 40)
        await do(page, "probabilities")
        await page.value("document.getElementById('result').focus()")
        for key, number in (("ArrowRight", 0), ("ArrowRight", 1), ("ArrowLeft", 0), ("ArrowLeft", 0)):
            await press(page, key)
            index = "[...document.querySelectorAll('.token')].indexOf(document.querySelector('.on'))"
            assert await page.value(index) == number
            assert not await page.value("document.getElementById('tip').hidden")
        # On to tokens that are out of sight at first: the text is scrolled, and the alternatives stay beside the token.
        while await page.value("document.getElementById('result').scrollTop") == 0:
            await press(page, "ArrowRight")
        await page.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        before = await page.value(index)
        assert before > 1
        await press(page, "ArrowRight")
        assert await page.value(index) == before + 1
        gap = await page.value(
            "((t, r) => Math.min(Math.abs(t.top - r.bottom), Math.abs(r.top - t.bottom)))"
            "(document.getElementById('tip').getBoundingClientRect(),"
            " document.querySelector('.on').getBoundingClientRect())"
        )
        assert gap < 10
        await press(page, "Escape")
        assert await page.value("document.getElementById('tip').hidden")

    use(tmp_path / "profile", page_server, steps)


def test_a_page_without_a_corpus_works(server_without_corpus: Server, tmp_path: Path) -> None:
    async def steps(page: Browser) -> None:
        await page.value("document.getElementById('sought').focus()")
        await page.type("x")
        await page.click("#search")
        await page.until(IDLE)
        assert (await page.text("#found")).startswith("there is no corpus beside the model")
        page.problems.clear()

    use(tmp_path / "profile", server_without_corpus, steps)
