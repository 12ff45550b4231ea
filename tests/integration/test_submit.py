"""Jobs on a cluster that the tests start: submitted once, followed, ended with their own status.

The last two are `permcode submit`: the whole run as a job, from the command line.
"""

import asyncio
import io
import os
import platform
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from rich.console import Console

from cluster import job_client
from cluster.errors import RetryableError, UserError
from cluster.jobs import list_jobs, pack_code, show_log, stop_job, submit_job
from cluster.reporter import Reporter
from tests.integration.conftest import RayHead
from tests.integration.smoke_run import command, copy_corpus, only, run

# Ray's client passes it to aiohttp while it follows a log.
pytestmark = pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")

_PATIENCE_S = 240

JOB = """
import os, sys
from pathlib import Path
import cluster
from cluster.file_tasks import FileTask, run_file_tasks
from cluster.ray_session import RayConfig, ray_session
from cluster.storage import read_json, write_json

def work(value, output):
    write_json(output, [value * value, cluster.__file__])

folder = Path(sys.argv[1])
with ray_session(RayConfig(), folder / "logs"):
    run_file_tasks(work, [FileTask("six", folder / "six.json", (6,))], lambda task: None)
answer, where = read_json(folder / "six.json")
here = Path(cluster.__file__)
print("answer", answer, "packed", Path("job.py").exists() and Path(where) == here, flush=True)
print(here.is_relative_to(Path.cwd()), os.environ["GREETING"])
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def head(ray_head: RayHead, monkeypatch: pytest.MonkeyPatch) -> RayHead:
    """The head, with its token where a user would put it."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", ray_head.token)
    return ray_head


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """What a job works in: packed code with a small program of ours."""
    program = tmp_path / "program.py"
    program.write_text(JOB)
    with pack_code({"job.py": program}) as packed:
        yield packed


def submit(
    head: RayHead, folder: Path, entrypoint: list[str], key: str, shown: io.StringIO | None = None
) -> tuple[int, str]:
    """The exit status and what the terminal showed, which is in `shown` while the job runs."""
    shown = shown or io.StringIO()
    console = Console(file=shown, width=200)
    code = submit_job(
        entrypoint=entrypoint,
        working_folder=folder,
        address=head.address,
        submission_key=key,
        reporter=Reporter(console=console),
        environment={"GREETING": "hello with spaces"},
    )
    return code, shown.getvalue()


def wait_for(reached: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def test_job_runs_our_packed_code_and_ends_with_its_status(
    head: RayHead, folder: Path, tmp_path: Path
) -> None:
    code, text = submit(head, folder, ["python", "job.py", str(tmp_path / "out"), "0"], "0123456789abcdef")
    lines = text.splitlines()
    assert code == 0, text
    assert lines[-1] == "job permcode-0123456789ab-1 succeeded"
    assert "answer 36 packed True" in lines
    assert "True hello with spaces" in lines

    code, text = submit(head, folder, ["python", "job.py", str(tmp_path / "out"), "3"], "0123456789abcdef")
    assert code == 3
    assert "job permcode-0123456789ab-2 failed" in text
    assert "answer 36 packed True" in text.splitlines()


def test_running_job_is_followed_not_doubled(head: RayHead, folder: Path, tmp_path: Path) -> None:
    marker, released = tmp_path / "starts", tmp_path / "released"
    program = "echo started >> $0; echo begin; until [ -e $1 ]; do sleep 0.1; done; printf 'no newline'"
    entrypoint = ["sh", "-c", program, str(marker), str(released)]
    shown = [io.StringIO(), io.StringIO()]
    with ThreadPoolExecutor() as threads:
        try:
            first = threads.submit(submit, head, folder, entrypoint, "twice" * 4, shown[0])
            wait_for(lambda: marker.exists() or first.done())
            second = threads.submit(submit, head, folder, entrypoint, "twice" * 4, shown[1])
            wait_for(lambda: "following it" in shown[1].getvalue() or second.done())
        finally:
            released.touch()
    assert (first.result()[0], second.result()[0]) == (0, 0)
    assert "job permcode-twicetwicetw-1 already does this: following it" in shown[1].getvalue()
    for text in shown:
        lines = text.getvalue().splitlines()
        assert (lines.count("begin"), lines.count("no newline")) == (1, 1)
    assert marker.read_text() == "started\n"


def test_an_interrupt_ends_the_command_and_the_job_continues(
    head: RayHead, folder: Path, tmp_path: Path
) -> None:
    marker, released = tmp_path / "finished", tmp_path / "released"
    code = (
        "import sys; from pathlib import Path; from cluster.jobs import submit_job\n"
        "from cluster.reporter import Reporter\n"
        "sys.exit(submit_job(entrypoint=['sh', '-c', sys.argv[3], *sys.argv[4:]],\n"
        "  working_folder=Path(sys.argv[1]), address=sys.argv[2], submission_key='interrupted-job',\n"
        "  reporter=Reporter()))"
    )
    program = "echo begin; until [ -e $1 ]; do sleep 0.1; done; touch $0"
    command = [sys.executable, "-c", code, str(folder), head.address, program, str(marker), str(released)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as follower:
        assert follower.stdout is not None
        for line in follower.stdout:
            if line == "begin\n":
                break
        follower.send_signal(signal.SIGINT)
        rest = follower.stdout.read()
    assert follower.returncode == 130, rest
    assert "the job continues" in rest
    assert f"ray job stop --address {head.address} permcode-interrupted--1" in rest
    assert "Traceback" not in rest
    assert not marker.exists()
    released.touch()
    wait_for(marker.exists)


@pytest.mark.parametrize(
    ("token", "message"), [("wrong" * 10, "refuses the token"), ("", "asks for a token: set RAY_AUTH_TOKEN")]
)
def test_wrong_or_missing_token_is_one_clear_line(
    ray_head: RayHead, folder: Path, monkeypatch: pytest.MonkeyPatch, token: str, message: str
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(UserError, match=message) as caught:
        submit(ray_head, folder, ["true"], "token")
    assert "\n" not in str(caught.value)


def test_address_without_a_dashboard_is_one_clear_line(folder: Path) -> None:
    nobody = RayHead("http://127.0.0.1:1", "")
    with pytest.raises(RetryableError, match=r"no Ray dashboard answers at http://127\.0\.0\.1:1") as caught:
        submit(nobody, folder, ["true"], "nobody")
    assert caught.value.kind == "lost cluster"
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="give http://HEAD:8265"):
        submit(RayHead("127.0.0.1:6379", ""), folder, ["true"], "nobody")


def test_https_to_a_server_without_tls_is_one_clear_line(head: RayHead, folder: Path) -> None:
    other = RayHead(head.address.replace("http://", "https://"), head.token)
    with pytest.raises(UserError, match="does not speak TLS: give http://127"):
        submit(other, folder, ["true"], "tls")


def test_another_version_of_ray_is_refused_before_anything_is_sent(
    head: RayHead, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_client.metadata, "version", lambda name: "2.40.0")
    with pytest.raises(UserError, match=r"runs Ray 2\.6.*, this command Ray 2\.40\.0"):
        submit(head, folder, ["true"], "othervers1on")
    assert not [job for job in list_jobs_unchecked(head) if "othervers1on" in job]


def test_another_version_of_python_is_named(
    head: RayHead, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = platform.python_version()
    _, text = submit(head, folder, ["true"], "samepython00")
    assert "this command" not in text
    monkeypatch.setattr(job_client.platform, "python_version", lambda: "3.99.1")
    code, text = submit(head, folder, ["true"], "otherpython0")
    assert code == 0
    assert f"runs Python {here}, this command 3.99.1: the job runs with the cluster's" in text


def test_submit_over_tls(
    head: RayHead, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path)
    with tls_in_front_of(head, certificate) as port:
        secured = RayHead(f"https://127.0.0.1:{port}", head.token)
        with pytest.raises(UserError, match="is not trusted"):
            submit(secured, folder, ["true"], "over-tls")
        with pytest.raises(UserError, match="speaks TLS: give https"):
            submit(RayHead(f"http://127.0.0.1:{port}", head.token), folder, ["true"], "over-tls")
        # In a process of its own: aiohttp reads the variables when it is imported.
        code = (
            "import sys; from pathlib import Path; from cluster.jobs import submit_job\n"
            "from cluster.reporter import Reporter\n"
            "sys.exit(submit_job(entrypoint=['echo', 'hello over TLS'], working_folder=Path(sys.argv[1]),\n"
            "  address=sys.argv[2], submission_key='over-tls', reporter=Reporter()))"
        )
        trusted = {"REQUESTS_CA_BUNDLE": str(certificate), "SSL_CERT_FILE": str(certificate)}
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder), secured.address],
            env={**os.environ, "RAY_AUTH_TOKEN": head.token, **trusted},
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hello over TLS" in done.stdout.splitlines()


def make_certificate(folder: Path) -> Path:
    """A file with a key and its own certificate for 127.0.0.1."""
    both = folder / "certificate.pem"
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
    ]
    words += [
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        str(folder / "key"),
        "-out",
        str(folder / "own"),
    ]
    subprocess.run(words, check=True, capture_output=True)
    both.write_text((folder / "key").read_text() + (folder / "own").read_text())
    return both


@contextmanager
def tls_in_front_of(head: RayHead, certificate: Path) -> Iterator[int]:
    """A server that takes TLS off and passes all bytes on to the head; yields its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    host, _, port = head.address.removeprefix("http://").partition(":")

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pass_on(reader, inner_writer), pass_on(inner_reader, writer))

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # clients that do not trust us hang up
    server = loop.run_until_complete(asyncio.start_server(handle, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.close()


def list_jobs_unchecked(head: RayHead) -> list[str]:
    return [job.name for job in list_jobs(head.address)]


def test_a_stopped_job_has_time_for_its_checkpoint_and_is_listed_with_its_progress(
    head: RayHead, folder: Path, tmp_path: Path
) -> None:
    """Ray itself kills after 3 s."""
    program = (
        "import signal, sys, time\n"
        "def end(*_):\n"
        "    time.sleep(6)\n"
        "    print('pretrain: checkpoint step-00000007: 0.5 MB written in 6.0 s', flush=True)\n"
        "    sys.exit(130)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('pretrain: runs (no output yet)', flush=True)\n"
        "print('pretrain: 12.8k/768k tokens, 176 tokens/s, 1h11m left, loss 5.20', flush=True)\n"
        "time.sleep(600)\n"
    )
    with ThreadPoolExecutor() as threads:
        following = threads.submit(submit, head, folder, ["python", "-c", program], "stopped-here")
        name = "permcode-stopped-here-1"
        wait_for(
            lambda: (
                any(job.name == name and job.progress for job in list_jobs(head.address)) or following.done()
            )
        )
        (line,) = [job for job in list_jobs(head.address) if job.name == name]
        assert (line.state, line.stage, line.attempt) == ("running", "pretrain", 1)
        assert line.progress.startswith("12.8k/768k tokens, 176 tokens/s")
        shown = io.StringIO()
        stop_job(head.address, name, Reporter(console=Console(file=shown, width=200)))
        assert following.result()[0] == 130
    assert "has stopped; pretrain: checkpoint step-00000007" in shown.getvalue()
    log = io.StringIO()
    assert show_log(head.address, name, False, Reporter(console=Console(file=log, width=200))) == 0
    assert "pretrain: runs" in log.getvalue()
    with pytest.raises(UserError, match="has no job permcode-none-1"):
        stop_job(head.address, "permcode-none-1", Reporter())


def test_the_end_of_a_failed_job_keeps_its_cause(head: RayHead, folder: Path) -> None:
    cause = "permcode: failed for now (lost node): " + "long " * 80 + "end of the cause"
    code, text = submit(head, folder, ["sh", "-c", f"echo '{cause}'; exit 75"], "cause-of-end")
    assert code == 75
    assert "end of the cause" in " ".join(text.splitlines()[-4:])


def test_token_file_must_be_readable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", os.path.join(folder, "none"))
    with pytest.raises(UserError, match=r"RAY_AUTH_TOKEN_PATH=.*none cannot be read"):
        submit(RayHead("http://127.0.0.1:1", ""), folder, ["true"], "nobody")


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [(), ("completion", "search")], ids=["pretrained", "whole"])
def test_a_run_ends_on_the_cluster_as_it_does_here(
    head: RayHead, tmp_path: Path, tasks: tuple[str, ...]
) -> None:
    corpus, out = copy_corpus(tmp_path / "corpus"), tmp_path / "run"
    left_out = [f"finetune.{task}=null" for task in ("completion", "search") if task not in tasks]
    done = run([*command("submit", out, corpus, *left_out), "--address", head.address])
    for stage in ("pretrain", *tasks):
        assert f"{stage}: finished in" in done.stdout
    assert (out / "report.html").exists()
    assert only(out, "pretrain-*").joinpath("model", "model.safetensors").exists()


def test_a_job_that_fails_on_bad_input_gives_its_exit_status(head: RayHead, tmp_path: Path) -> None:
    arguments = command("submit", tmp_path / "run", tmp_path / "nowhere")
    done = run([*arguments, "--address", head.address], expect=2)
    assert "nowhere" in done.stdout + done.stderr
    assert not (tmp_path / "run").exists()
