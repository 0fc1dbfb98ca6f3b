"""Opens channels to the service, with TLS, tokens and message limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from faust_assigner.errors import ConfigError

#: Maximum bytes of one answer, equal to the service's limit; the service splits longer answers.
MESSAGE_BYTES: Final = 4 * 2**20


@dataclass(frozen=True, kw_only=True)
class Access:
    """The caller's credentials. ``ca`` verifies the service; ``cert`` and ``key`` are the caller's.

    These three are PEM files: ``cert`` and ``key`` require each other, and ``ca``; otherwise the
    constructor raises ConfigError. Each call sends ``token``, or the text of ``token_file``. The token's
    file is read for each call and may change; the other files are read for each connection. Without
    ``ca`` the channel is not encrypted, for loopback and tests. ``server_name`` is the name in the
    service's certificate, if it differs from the address.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token: str = ""
    token_file: Path | None = None
    server_name: str = ""

    def __post_init__(self) -> None:
        # gRPC ends the whole process if one of the pair is missing.
        if (self.cert is None) != (self.key is None):
            raise ConfigError("a certificate (cert) and its key (key) require each other")
        if self.cert is not None and self.ca is None:
            raise ConfigError(
                "a certificate (cert) requires the authority of the service's certificate (ca): "
                "without ca the connection has no encryption"
            )

    def __repr__(self) -> str:
        token = self.token_file or ("..." if self.token else None)
        return f"Access(ca={self.ca}, cert={self.cert}, token={token})"

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the headers of a call. Raises OSError if the token's file cannot be read."""
        token = self.token_file.read_text().strip() if self.token_file else self.token
        return (("authorization", f"Bearer {token}"),) if token else ()

    def open(self, target: str, options: Sequence[tuple[str, Any]] = ()) -> grpc.aio.Channel:
        """Return a channel to ``target``, which connects at the first call.

        Raises OSError if a file cannot be read.
        """
        chosen = [
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.enable_retries", 0),
            # Otherwise the channels of a process share one connection and its limit of streams.
            ("grpc.use_local_subchannel_pool", 1),
            *options,
        ]
        if self.server_name:
            chosen.append(("grpc.ssl_target_name_override", self.server_name))
        if self.ca is None:
            return grpc.aio.insecure_channel(target, chosen)
        credentials = grpc.ssl_channel_credentials(
            self.ca.read_bytes(),
            self.key.read_bytes() if self.key else None,
            self.cert.read_bytes() if self.cert else None,
        )
        return grpc.aio.secure_channel(target, credentials, chosen)
