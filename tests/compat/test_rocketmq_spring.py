"""A Spring Boot application with RocketMQ's starter: template, listener and transaction check-back."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from compat.cache import do, require
from compat.maven import classpath
from compat.programs import SOURCES, Conversation, Line, fingerprint
from compat.rocketmq_judges import await_producer
from compat.rocketmq_wire import Wire

from tools.download_cache import cached_folder
from trimq.testing import Broker

pytestmark = [pytest.mark.external, pytest.mark.timeout(300)]

STARTER = "org.apache.rocketmq:rocketmq-spring-boot-starter:2.3.5"


def application() -> list[str]:
    require("javac")
    libraries = classpath((STARTER,))
    sources = sorted((SOURCES / "rocketmq-spring").glob("*.java"))

    def compile_into(folder: Path) -> None:
        do(["javac", "-nowarn", "-Xlint:none", "-cp", libraries, "-d", str(folder), *map(str, sources)], folder)

    folder = cached_folder("java", f"rocketmq-spring-{fingerprint(sources)}", compile_into)
    quick = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *quick, "-cp", f"{folder}:{libraries}", "shop.Shop"]


def next_lines(talk: Conversation, count: int) -> list[Line]:
    return sorted((talk.heard() for _ in range(count)), key=str)


def test_a_shop_in_spring_boot(tmp_path: Path) -> None:
    command = application()
    with Broker() as broker:
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            wire.create_topic("orders", 4)
        settings = [f"--rocketmq.name-server={broker.addresses['rocketmq']}", "--rocketmq.producer.group=shop"]
        settings += ["--spring.main.banner-mode=off", "--logging.level.root=off"]
        with subprocess.Popen(
            [*command, *settings],
            env={**os.environ, "JAVA_TOOL_OPTIONS": f"-Duser.home={tmp_path}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                talk = Conversation(process)
                assert next_lines(talk, 5) == [
                    {"ran": "all"},
                    {"sent": "SEND_OK"},
                    {"took": "1 sent"},
                    {"took": "2 converted"},
                    {"took": "4 commit"},
                ]
                await_producer(broker, "shop")
                broker.advance("36s")
                assert next_lines(talk, 2) == [{"asked": "unknown 1"}, {"took": "4 unknown"}]
            finally:
                process.kill()
