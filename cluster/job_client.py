"""The connection to a Ray cluster's job server: address, token, TLS, version."""

import logging
import os
import platform
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cluster.errors import RetryableError, UserError, first_line
from cluster.reporter import Reporter

_NOISY_LOGGERS = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
"""These set their own level at import and log every upload to the terminal."""
_PROBE_TIMEOUT_S = 10.0


def connect(address: str) -> Any:
    """Return Ray's client for the dashboard at `address`.

    UserError if it refuses the token or speaks another protocol, RetryableError if nobody answers.
    """
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    if not address.startswith(("http://", "https://")):
        raise UserError(f"--address {address} is not a Ray dashboard: give http://HEAD:8265")
    for name in _NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    own_token = token()
    headers = {"Authorization": f"Bearer {own_token}"} if own_token else None
    try:
        return JobSubmissionClient(address, headers=headers)
    except AuthenticationError as error:
        if own_token:
            raise UserError(
                f"the cluster at {address} refuses the token: set RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) "
                "to its own, as `ray get-auth-token` prints it on the head"
            ) from error
        raise UserError(
            f"the cluster at {address} asks for a token: set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH to "
            "a file with it; `ray get-auth-token` prints it on the head"
        ) from error
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        _refuse_other_protocol(address)
        raise RetryableError(
            f"no Ray dashboard answers at {address} ({first_line(error)}): check the address, and that the "
            "head was started with --include-dashboard=true and a --dashboard-host you can reach",
            "lost cluster",
        ) from error


def _refuse_other_protocol(address: str) -> None:
    """Raise UserError if the server answers with TLS where http was given, or without it where https was."""
    url = urlsplit(address)
    try:
        port = url.port or (443 if url.scheme == "https" else 80)
        with socket.create_connection((url.hostname or "", port), timeout=_PROBE_TIMEOUT_S) as connection:
            connection.settimeout(_PROBE_TIMEOUT_S)
            try:
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                with context.wrap_socket(connection, server_hostname=url.hostname):
                    speaks_tls = True
            except ssl.SSLError as error:
                if error.reason not in (
                    "WRONG_VERSION_NUMBER",
                    "RECORD_LAYER_FAILURE",
                    "PACKET_LENGTH_TOO_LONG",
                ):
                    return
                speaks_tls = False
    except (OSError, ValueError):
        return  # nobody answers, which the caller reports
    other = address.partition("://")[2]
    if url.scheme == "https" and not speaks_tls:
        raise UserError(f"the server at {address} does not speak TLS: give http://{other}")
    if url.scheme == "http" and speaks_tls:
        raise UserError(f"the server at {address} speaks TLS: give https://{other}")
    if url.scheme == "https":
        try:
            with socket.create_connection((url.hostname or "", port), timeout=_PROBE_TIMEOUT_S) as connection:
                ssl.create_default_context().wrap_socket(connection, server_hostname=url.hostname).close()
        except ssl.SSLCertVerificationError as error:
            raise UserError(
                f"the certificate of {address} is not trusted ({error.verify_message}): set REQUESTS_CA_BUNDLE and "
                "SSL_CERT_FILE to the file of its authority's certificate"
            ) from error
        except OSError:
            return


def check_version(client: Any, address: str, reporter: Reporter) -> None:
    """Raise UserError if the cluster's Ray is of another version than this one: jobs would fail in odd ways.

    Another version of Python is only named, because a job runs with the cluster's.
    """
    here, here_python = metadata.version("ray"), platform.python_version()
    there, there_python = _versions_of(client)
    if there != here:
        raise UserError(
            f"the cluster at {address} runs Ray {there}, this command Ray {here}: install ray=={there} here, or "
            f"start the cluster with {here}"
        )
    if there_python not in (here_python, ""):
        reporter.warn(
            f"the cluster at {address} runs Python {there_python}, this command {here_python}: the job runs with the "
            "cluster's"
        )


@contextmanager
def lost_cluster_is_retryable(address: str) -> Iterator[None]:
    """Raise what the client raises in the block for a lost connection as a RetryableError."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        raise RetryableError(
            f"lost the cluster at {address} ({first_line(error)}): run the same command again", "lost cluster"
        ) from error


def _versions_of(client: Any) -> tuple[str, str]:
    """Return the versions of Ray and Python that the dashboard names; "" for a Python that it does not name.

    Its client has no public calls for that (Ray 2.60).
    """
    response = client._do_request("GET", "/api/version")
    response.raise_for_status()
    described = client._do_request("GET", "/api/v0/cluster_metadata")
    python = described.json().get("data", {}).get("pythonVersion", "") if described.ok else ""
    return str(response.json()["ray_version"]), str(python)


def token() -> str:
    """Return the user's token, read from where Ray looks for it; empty if there is none."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "disabled":
        return ""
    if given := os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return given
    named = os.environ.get("RAY_AUTH_TOKEN_PATH", "")
    try:
        path = Path(named) if named else Path.home() / ".ray" / "auth_token"
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        if named:
            raise UserError(
                f"RAY_AUTH_TOKEN_PATH={named} cannot be read ({error.strerror}): correct it"
            ) from error
        return ""
    except RuntimeError:  # no home folder
        return ""
