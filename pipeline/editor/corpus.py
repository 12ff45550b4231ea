"""Search of the corpus that a model was trained on (`POST /v1/corpus`), in a thread beside the model's."""

import asyncio
import threading
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from data_prep.finished.prepared import PreparedCorpus
from data_prep.finished.text_search import Found, find_text
from pipeline.editor.asking import while_connected
from pipeline.editor.bodies import CorpusBody, as_bytes, checked
from pretrain.inference.worker import BusyError

_MOST_DOCUMENTS = 20
_MOST_SECONDS = 10.0
_MOST_LINE_CHARACTERS = 300


class CorpusSearch:
    """Runs one search at a time; a request during a search gets status 429."""

    def __init__(self, corpus: PreparedCorpus) -> None:
        self._corpus = corpus
        self._is_searched = threading.Lock()

    async def answer(self, request: Request, fields: dict[str, Any]) -> Response:
        """Return the documents that contain a text."""
        body = checked(CorpusBody, fields)
        text = as_bytes(body.text, "text")
        is_unwanted = threading.Event()
        try:
            found: Found = await while_connected(request, asyncio.to_thread(self._found, text, is_unwanted))
        finally:
            is_unwanted.set()
        documents = [
            {
                "split": one.split,
                "source": one.meta.source,
                "repository": one.meta.repository,
                "path": one.meta.path,
                "licence": one.meta.licence,
                "num_places": one.num_places,
                "line": one.first.line,
                "column": one.first.column,
                "text": one.first.text[:_MOST_LINE_CHARACTERS],
            }
            for one in found.documents
        ]
        return JSONResponse(
            {
                "object": "corpus",
                "documents": documents,
                "num_searched": found.num_searched,
                "num_documents": found.num_documents,
                "is_all": found.is_all,
            }
        )

    def _found(self, text: bytes, is_unwanted: threading.Event) -> Found:
        if not self._is_searched.acquire(blocking=False):
            raise BusyError("the corpus is being searched: ask again later")
        try:
            end = time.monotonic() + _MOST_SECONDS
            return find_text(
                self._corpus,
                text,
                _MOST_DOCUMENTS,
                must_stop=lambda: is_unwanted.is_set() or time.monotonic() > end,
            )
        finally:
            self._is_searched.release()
