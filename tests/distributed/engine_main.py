"""One rank that tries cases one after the other: `python -m tests.distributed.engine_main FOLDER CASES`."""

import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path

from cluster.process_group import configure_environment, join_process_group


def main() -> None:
    configure_environment()
    import torch
    import torch.distributed as dist

    from tests.distributed.engine_cases import Case, try_case

    torch.set_num_threads(1)
    folder, cases = Path(sys.argv[1]), [Case(**case) for case in json.loads(sys.argv[2])]
    join_process_group("gloo")
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    told, before = [], None
    for case in cases:
        seen, before = try_case(case, before)
        told.append(asdict(seen))
    if dist.get_rank() == 0:
        (folder / "seen.json").write_text(json.dumps(told))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
