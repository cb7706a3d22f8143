"""Settings that every pipeline has: broker, login, checkpoint, and whether it runs once or continuously."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_trimq.broker.encryption import CA_FILE, HTTPS, Encryption, read_encryption
from pyspark_trimq.broker.login import Login, read_login
from pyspark_trimq.pipelines.runner.broker_admin import BrokerAdmin
from trimq.errors import StartupError

SINK_OPTIONS = ("compression", "delivery")  # besides options that begin with `kafka.`


@dataclasses.dataclass(frozen=True)
class PipelineContext:
    """Settings of a run. With `once` it processes the messages present at the start and ends. Otherwise it runs a batch
    `every` interval until `stop` is set or `for_seconds` have passed."""

    bootstrap: str = "http://127.0.0.1:8180"
    http: str = ""  # HTTP port; "": bootstrap if it is HTTP, else TRIMQ_HTTP, else 127.0.0.1:8180
    spark: SparkSession | None = None
    once: bool = True
    every: str = "10 seconds"
    checkpoint: str | Path | None = None
    rows_per_batch: int = 500_000
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)  # further options of source and sink
    user: str = ""  # needed if the broker requires a login
    password: str | None = dataclasses.field(default=None, repr=False)
    password_file: str | None = None  # file with the password; without both: TRIMQ_PASSWORD
    show: bool | None = None  # progress bar; None: only on a terminal
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)
    for_seconds: float | None = None

    def session(self) -> SparkSession:
        if self.spark is not None:
            return self.spark
        from pyspark_trimq.session import make_session

        return make_session()

    def administration(self) -> BrokerAdmin:
        url = self.http or (self.bootstrap if self.is_http() else os.environ.get("TRIMQ_HTTP", "127.0.0.1:8180"))
        return BrokerAdmin(url, self.login(), self.encryption())

    def is_http(self) -> bool:
        """Returns True if the bootstrap is an HTTP port, False if it is a Kafka port, of this broker or Apache
        Kafka."""
        return self.bootstrap.startswith(("http://", HTTPS))

    def login(self) -> Login | None:
        """Raises Mistake for a user without a password."""
        given = {"user": self.user, "password": self.password, "passwordFile": self.password_file}
        return read_login(given.get)

    def encryption(self) -> Encryption | None:
        """Returns None if connections are not encrypted. Raises Mistake if the option caFile is invalid."""
        return read_encryption(self.bootstrap, self._ca_file())

    def _ca_file(self) -> str | None:
        """Returns the option caFile, which applies to source and sink."""
        return next((value for name, value in self.options.items() if name.lower() == CA_FILE.lower()), None)

    def address(self) -> dict[str, str]:
        """Returns address, login and trusted certificates as options of source and sink."""
        login, ca_file = self.login(), self._ca_file()
        login_options = {} if login is None else {"user": login.user, "password": login.password}
        ca_option = {} if ca_file is None else {CA_FILE: ca_file}
        return {"bootstrap": self.bootstrap, **login_options, **ca_option}

    def source_options(self) -> dict[str, str]:
        """Returns the further options that are not for the sink."""
        return {name: value for name, value in self.options.items() if not _is_sink_option(name)}

    def sink_options(self) -> dict[str, str]:
        """Returns `address()` and the further options for the sink."""
        return {**self.address(), **{name: value for name, value in self.options.items() if _is_sink_option(name)}}

    def folder(self, default: Path | None) -> Path:
        """Returns the checkpoint folder. Raises StartupError if none is given and there is no default."""
        if self.checkpoint is not None:
            return Path(self.checkpoint)
        if default is None:
            raise StartupError("a checkpoint folder is needed: --checkpoint FOLDER")
        return default


def _is_sink_option(name: str) -> bool:
    return name.lower() in SINK_OPTIONS or name.lower().startswith("kafka.")


DEFAULT_CONTEXT = PipelineContext()
