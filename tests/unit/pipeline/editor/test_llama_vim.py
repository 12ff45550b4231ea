"""llama.vim in Vim in a terminal: what its user sees, and what is in the file once the suggestion is taken.

The plug-in (ggml-org/llama.vim) is not part of this repository: it is in the folder that LLAMA_VIM names, else in
`../shared/clients/llama.vim` beside the project.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.pipeline.editor.conftest import CODE, Server

PLUGIN = Path(os.environ.get("LLAMA_VIM") or Path(__file__).parents[5] / "shared" / "clients" / "llama.vim")
LINES = CODE.splitlines()[:10]
TOKENS = 6

pytestmark = [
    pytest.mark.skipif(
        any(shutil.which(program) is None for program in ("vim", "tmux", "curl")),
        reason="vim, tmux or curl is not installed",
    ),
    pytest.mark.skipif(
        not (PLUGIN / "autoload" / "llama.vim").is_file(),
        reason=f"{PLUGIN} is no folder of llama.vim (LLAMA_VIM may name another)",
    ),
]


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, folder: Path) -> None:
        self._socket = str(folder / "tmux")

    def __call__(self, *arguments: str) -> str:
        return subprocess.run(
            ["tmux", "-S", self._socket, "-f", os.devnull, *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout

    def screen(self) -> list[str]:
        return self("capture-pane", "-p").splitlines()

    def wait_for(self, condition: Callable[[list[str]], bool]) -> list[str]:
        end = time.monotonic() + 60
        while not condition(screen := self.screen()):
            assert time.monotonic() < end, "\n".join(screen)
            time.sleep(0.05)
        return screen


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    with suppress(subprocess.CalledProcessError):  # it ends with its last window
        terminal("kill-server")


def test_vim_shows_the_models_suggestion_and_takes_it(
    server: Server, terminal: Terminal, tmp_path: Path
) -> None:
    settings, added = tmp_path / "vimrc", tmp_path / "added" / "autoload"
    added.mkdir(parents=True)
    # The plug-in's log, which copies of it may lack.
    (added / "llama_debug.vim").write_text(
        "".join(f"function! llama_debug#{name}(...)\nendfunction\n" for name in ("log", "setup", "toggle"))
    )
    config = {
        "endpoint_fim": f"http://127.0.0.1:{server.port}/infill",
        "n_predict": TOKENS,
        "show_info": 0,
    }
    settings.write_text(
        f"set nocompatible noswapfile\nset rtp^={PLUGIN},{added.parent}\nlet g:llama_config = {config}\n"
    )
    file = tmp_path / "total.py"
    file.write_text("\n".join(LINES) + "\n")
    line = LINES[2] + " a"
    expected = server.lm.infill(
        "\n".join([*LINES[:2], line]), "\n" + "\n".join(LINES[3:]) + "\n", max_new_tokens=TOKENS
    )[0].text
    assert expected.strip()

    vim = f"env no_proxy=* vim -u {settings} {file}"
    terminal("new-session", "-d", "-x", "150", "-y", "30", vim)
    screen = terminal.wait_for(lambda screen: any(LINES[0] in one or "Press ENTER" in one for one in screen))
    if LINES[0] not in screen[0]:  # what the plug-in says about old versions of Vim
        terminal("send-keys", "Enter")
        terminal.wait_for(lambda screen: LINES[0] in screen[0])
    terminal("send-keys", ":3", "Enter", "A", " a")
    screen = terminal.wait_for(lambda screen: (line + expected).rstrip() in screen[2])
    assert screen[3] == LINES[3]
    terminal("send-keys", "Tab")
    time.sleep(0.3)
    terminal("send-keys", "Escape", ":wq", "Enter")
    end = time.monotonic() + 30
    while line not in file.read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
    assert file.read_text().splitlines() == [*LINES[:2], line + expected, *LINES[3:]]
