"""Settings that every pipeline takes: the broker, the login, the checkpoint, once or continuously."""

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

SINK_OPTIONS = ("compression", "delivery")  # options, beside those that begin with `kafka.`


@dataclasses.dataclass(frozen=True)
class How:
    """What every pipeline can be told. `once`: up to what is there now, then end; else on and on, a batch `every` so
    often, until `stop` is set or `for_seconds` have passed."""

    bootstrap: str = "http://127.0.0.1:8180"
    http: str = ""  # the HTTP port; "": the bootstrap if that is one, else where TRIMQ_HTTP says, else the standard one
    spark: SparkSession | None = None
    once: bool = True
    every: str = "10 seconds"
    checkpoint: str | Path | None = None
    rows_per_batch: int = 500_000
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of source and sink, beside ours
    user: str = ""  # who asks, where the broker has users
    password: str | None = dataclasses.field(default=None, repr=False)
    password_file: str | None = None  # where the password is; neither: TRIMQ_PASSWORD holds it
    show: bool | None = None  # bars in the terminal; None: if it is one
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
        """Whether the bootstrap is the HTTP port; else it is a Kafka port, of any broker."""
        return self.bootstrap.startswith(("http://", HTTPS))

    def login(self) -> Login | None:
        """Mistake: a user without a password."""
        given = {"user": self.user, "password": self.password, "passwordFile": self.password_file}
        return read_login(given.get)

    def encryption(self) -> Encryption | None:
        """None: connections are plain. Mistake: the option caFile makes no sense."""
        return read_encryption(self.bootstrap, self._ca_file())

    def _ca_file(self) -> str | None:
        """Of the options the one that is for source and sink alike."""
        return next((value for name, value in self.options.items() if name.lower() == CA_FILE.lower()), None)

    def address(self) -> dict[str, str]:
        """Where the broker is, who asks and who vouches, as options of the source and of the sink."""
        login, ca_file = self.login(), self._ca_file()
        login_options = {} if login is None else {"user": login.user, "password": login.password}
        ca_option = {} if ca_file is None else {CA_FILE: ca_file}
        return {"bootstrap": self.bootstrap, **login_options, **ca_option}

    def source_options(self) -> dict[str, str]:
        """Those of the options that are not for the sink."""
        return {name: value for name, value in self.options.items() if not _is_sink_option(name)}

    def sink_options(self) -> dict[str, str]:
        """Where to and as whom, and those of the options that are for the sink."""
        return {**self.address(), **{name: value for name, value in self.options.items() if _is_sink_option(name)}}

    def folder(self, default: Path | None) -> Path:
        """Where the checkpoint is. StartMistake: nobody said."""
        if self.checkpoint is not None:
            return Path(self.checkpoint)
        if default is None:
            raise StartupError("a checkpoint folder is needed: --checkpoint FOLDER")
        return default


def _is_sink_option(name: str) -> bool:
    return name.lower() in SINK_OPTIONS or name.lower().startswith("kafka.")


DEFAULT_HOW = How()
