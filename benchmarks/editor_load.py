"""How fast `permcode serve RUN --editor` answers: one client that types in a large file, then many at once.

    .venv/bin/python -m benchmarks.editor_load runs/demo

The files are parts of Python's standard library. A client types a character after the other in the middle of its file
and asks for a hole after each, as an editor does. Printed are p50 and p95 of the time from request to answer, the
processor time of an answer (of clients and server, which a busy machine does not change much), errors, and the load.
"""

import argparse
import http.client
import json
import os
import statistics
import sysconfig
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import uvicorn

from data_prep.tokenizer import CodeTokenizer
from pipeline.editor.app import application
from pipeline.editor.listening import listen
from pretrain.inference.language_model import PermutationLM
from pretrain.inference.worker import Worker


@dataclass(frozen=True)
class Timings:
    """Seconds from request to answer, the tokens of each hole, and what went wrong."""

    answer_s: Sequence[float]
    num_tokens: Sequence[int]
    errors: Sequence[str]

    def line(self, name: str) -> str:
        """Return a line about all answers."""
        if len(self.answer_s) < 2:
            return f"{name}: {len(self.errors)} errors, first {self.errors[:1]}"
        p = statistics.quantiles(self.answer_s, n=100, method="inclusive")
        return (
            f"{name}: {len(self.answer_s)} answers, p50 {1000 * p[49]:.0f} ms, p95 {1000 * p[94]:.0f} ms, "
            f"{statistics.mean(self.num_tokens):.1f} tokens each, {len(self.errors)} errors"
        )


@contextmanager
def running_server(worker: Worker) -> Iterator[int]:
    """Run the server in a thread and yield its port."""
    with listen("127.0.0.1", 0) as listening:
        started = threading.Event()
        app = application(worker, "benchmark", on_start=started.set)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        started.wait()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()


def files(tokenizer: CodeTokenizer, num_files: int, num_tokens: int) -> list[str]:
    """Return texts of so many tokens, each the beginning of another module of the standard library."""
    found = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="ignore")
        tokens = tokenizer.encode(text)
        if len(tokens) >= num_tokens:
            found.append(tokenizer.decode(tokens[:num_tokens].tolist()))
        if len(found) == num_files:
            return found
    raise SystemExit(f"the standard library has only {len(found)} modules of {num_tokens} tokens")


def type_in(port: int, text: str, num_requests: int, hole_tokens: int) -> Timings:
    """Type in the middle of a file and ask for a hole after every character; return how long each answer took."""
    middle = text.index("\n", len(text) // 2)
    answer_s, num_tokens, errors = [], [], []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    for number in range(num_requests):
        body = {
            "input_prefix": text[: middle - num_requests + number],
            "input_suffix": text[middle:],
            "n_predict": hole_tokens,
        }
        started = time.perf_counter()
        try:
            connection.request("POST", "/infill", json.dumps(body))
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, ValueError) as error:
            errors.append(str(error))
            connection.close()
            continue
        if response.status == 200:
            answer_s.append(time.perf_counter() - started)
            num_tokens.append(answer["tokens_predicted"])
        else:
            errors.append(answer["error"]["message"])
    connection.close()
    return Timings(answer_s, num_tokens, errors)


def joined(parts: Sequence[Timings]) -> Timings:
    """Return the timings of several clients as one."""
    return Timings(
        [one for part in parts for one in part.answer_s],
        [one for part in parts for one in part.num_tokens],
        [one for part in parts for one in part.errors],
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="the folder of a run")
    parser.add_argument("--requests", type=int, default=50, help="of each client")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--file-tokens", type=int, default=2000)
    parser.add_argument("--hole-tokens", type=int, default=24)
    options = parser.parse_args()
    model = PermutationLM.from_run(options.run)
    texts = files(model.tokenizer, options.clients + 1, options.file_tokens)
    worker = Worker(model)
    worker.warm_up()
    print(
        f"{os.cpu_count()} cores, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f} at the start"
    )
    with running_server(worker) as port:
        cpu_s = time.process_time()
        alone = type_in(port, texts[0], options.requests, options.hole_tokens)
        cpu_s = time.process_time() - cpu_s
        print(
            alone.line("1 client"), f"{1000 * cpu_s / options.requests:.0f} ms of a processor each", sep=", "
        )
        with ThreadPoolExecutor(options.clients) as pool:
            started, cpu_s = time.perf_counter(), time.process_time()
            parts = list(
                pool.map(lambda text: type_in(port, text, options.requests, options.hole_tokens), texts[1:])
            )
            spent_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_s
    together = joined(parts)
    cpu_ms = 1000 * cpu_s / (options.requests * options.clients)
    name = f"{options.clients} clients at once"
    print(together.line(name), f"{cpu_ms:.0f} ms of a processor each", sep=", ")
    print(f"{len(together.answer_s) / spent_s:.1f} answers/s, load {os.getloadavg()[0]:.1f} at the end")
    if alone.errors or together.errors:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
