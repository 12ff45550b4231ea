"""What only an any-order model answers: several holes together (`POST /v1/holes`), lines that surprise (`/v1/scan`).

They are done one after the other, between passes of other requests, which share the model's time with them.
"""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pipeline.editor.asking import sampling_of, while_connected
from pipeline.editor.bodies import (
    MAX_HOLES_BYTES,
    MAX_SCANNED_BYTES,
    BodyError,
    HolesBody,
    ScanBody,
    as_bytes,
    checked,
)
from pretrain.inference.language_model import PermutationLM
from pretrain.inference.results import FilledHoles
from pretrain.inference.scan_records import line_record, written_record
from pretrain.inference.worker import ServeOthers, Worker, pausing


async def fill_holes(request: Request, worker: Worker, model_name: str, fields: dict[str, Any]) -> Response:
    """Fill the holes between the parts of a text."""
    body = checked(HolesBody, fields)
    parts = [as_bytes(part, "parts") for part in body.parts]
    if sum(map(len, parts)) > MAX_HOLES_BYTES:
        limit = MAX_HOLES_BYTES >> 20
        raise BodyError(413, f"parts: longer than {limit} MiB together: send only the text around the holes")
    sampling = sampling_of(body.temperature or 0.0, body.top_k, body.top_p, body.seed)

    def fill(serve_others: ServeOthers) -> FilledHoles:
        return pausing(worker.model, serve_others).infill_holes(
            parts,
            length=body.lengths,
            max_new_tokens=body.max_tokens,
            sampling=sampling,
            order=body.order or "most_certain",
        )

    filled: FilledHoles = await while_connected(request, asyncio.wrap_future(worker.call(fill)))
    holes = [
        {
            "text": one.text,
            "num_tokens": one.num_tokens,
            "log_likelihood": one.log_likelihood,
            "finish_reason": "stop" if one.finish == "end" else "length",
        }
        for one in filled.holes
    ]
    return JSONResponse(
        {
            "object": "holes",
            "model": model_name,
            "holes": holes,
            "order": list(filled.order),
            "log_likelihood": filled.log_likelihood,
            "num_passes": filled.num_passes,
        }
    )


async def scan(request: Request, worker: Worker, model_name: str, fields: dict[str, Any]) -> Response:
    """Score every line of a text given the rest, and write what the model would write in place of the top ones."""
    body = checked(ScanBody, fields)
    text = as_bytes(body.text, "text")
    if len(text) > MAX_SCANNED_BYTES:
        limit = MAX_SCANNED_BYTES >> 10
        raise BodyError(
            413, f"text: longer than {limit} KiB, which takes a server too long: use `permcode scan`"
        )
    scanning = worker.call(lambda serve_others: _scanned(worker.model, text, body, serve_others))
    found = await while_connected(request, asyncio.wrap_future(scanning))
    return JSONResponse({"object": "scan", "model": model_name, **found})


def _scanned(model: PermutationLM, text: bytes, body: ScanBody, serve_others: ServeOthers) -> dict[str, Any]:
    (scanned,) = model.scan(text, fast=bool(body.fast), after_batch=serve_others)
    top = scanned.ranked()[: body.top or 0]
    instead = {
        line.number: written_record(written)
        for line, written in zip(top, pausing(model, serve_others).rewrite_lines(text, top), strict=True)
        if written is not None
    }
    return {
        "sees_all": scanned.sees_all,
        "num_tokens": scanned.num_tokens,
        "top": [line.number for line in top],
        "lines": [{**line_record(line), "instead": instead.get(line.number)} for line in scanned.lines],
    }
