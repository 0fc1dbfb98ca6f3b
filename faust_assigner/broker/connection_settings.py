"""The broker's settings of listeners, log-ins, rights and connections, under Kafka's own names."""

from __future__ import annotations

from dataclasses import dataclass

from faust_assigner.broker.setting_kinds import (
    FLAG,
    INT64_MAX,
    POSITIVE,
    TEXT,
    TEXTS,
    config,
    one_of,
    some_of,
    whole,
)

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """The part of ``settings.Settings`` that concerns the connections of clients."""

    listeners: str = config(
        TEXTS,
        "",
        "the listeners, PROTOCOL://HOST:PORT separated by commas; empty: PLAINTEXT at --host "
        "and --port",
    )
    advertised_listeners: str = config(
        TEXTS,
        "",
        "the addresses that clients receive, [PROTOCOL://]HOST:PORT; empty: the listener's address, "
        "or for 0.0.0.0 the address of the connection",
    )
    socket_request_max_bytes: int = config(
        whole(1024, 2**30), 16_777_216, "the maximum size of a request frame"
    )
    queued_max_request_bytes: int = config(
        whole(65_536, 2**40),
        67_108_864,
        "the maximum bytes of waiting frames of all connections; above it, the "
        "connections with the oldest frames are closed",
    )
    ssl_keystore_location: str = config(
        TEXT, "", "the PEM file with the private key and the certificates; reloaded after a change"
    )
    ssl_truststore_location: str = config(
        TEXT,
        "",
        "the PEM file with the authorities of client certificates; reloaded after a change",
    )
    ssl_client_auth: str = config(
        one_of("none", "requested", "required"), "none", "whether clients need a certificate"
    )
    sasl_enabled_mechanisms: str = config(
        some_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        "SCRAM-SHA-256,SCRAM-SHA-512",
        "the log-in mechanisms of SASL listeners; PLAIN is offered only over TLS",
    )
    sasl_plain_without_tls: bool = config(
        FLAG,
        False,
        "whether SASL_PLAINTEXT also offers PLAIN; anyone on the network path can read the password",
    )
    sasl_users_file: str = config(
        TEXT,
        "",
        "the file of NAME=PASSWORD lines, read at the start; the store contains salted credentials only",
    )
    connection_failed_authentication_delay_ms: int = config(
        whole(0, 10_000),
        100,
        "the delay of the answer to a failed log-in; doubled after each failure, up to 5 s",
    )
    authorizer_class_name: str = config(
        one_of("", STANDARD_AUTHORIZER),
        "",
        "the authorizer that checks each request against access control lists; empty: "
        "every client may do everything",
    )
    super_users: str = config(
        TEXT,
        "",
        "the principals that may do everything, separated by semicolons, such as User:admin",
    )
    allow_everyone_if_no_acl_found: bool = config(
        FLAG, False, "whether access to a resource without an access control list is allowed"
    )
    max_connections: int = config(POSITIVE, 8_192, "the maximum number of connections")
    max_connections_per_ip: int = config(
        POSITIVE, 2_048, "the maximum number of connections from one address"
    )
    connections_max_idle_ms: int = config(
        whole(1_000, INT64_MAX), 600_000, "the time after which an idle connection is closed"
    )
