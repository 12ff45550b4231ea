"""One rank of a training run that notes how long each part of its start took, in a process of the fork server."""

import json
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from pretrain import pretrainer
from tests.distributed import train_main


def main(given: dict[str, Any]) -> None:
    """Train as `train_main` does; append the seconds of each part of the start to `times-ATTEMPT.jsonl`."""
    times = Path(given["folder"]).parent / f"times-{given['attempt']:04d}.jsonl"
    for place, name, part in (
        (train_main, "join_process_group", "rendezvous"),
        (pretrainer, "prepare_resume", "choose"),
        (pretrainer.Pretrainer, "_restore", "load"),
    ):
        setattr(place, name, _timed(times, part, getattr(place, name)))
    train_main.main(given)


def _timed(times: Path, part: str, act: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(act)
    def timed(*given: Any, **more: Any) -> Any:
        began_s = time.time()
        result = act(*given, **more)
        with times.open("a") as file:
            file.write(json.dumps({"part": part, "began_s": began_s, "ended_s": time.time()}) + "\n")
        return result

    return timed
