"""E27, RocketMQ: a Spring Boot application with RocketMQ's starter sends orders and takes them in a listener.

The application is in `spring_boot`, a Maven project that needs Java 17: `mvn spring-boot:run` starts it with a broker
on the default ports. This program builds it in a temporary folder and runs it. Needs TRIMQ_ROCKETMQ and
TRIMQ_ROCKETMQ_BROKER."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.rocketmq_wire import Wire

BROKER = os.environ["TRIMQ_ROCKETMQ_BROKER"]
PROJECT = Path(__file__).parent / "spring_boot"
TOPIC = "e27-orders"


def main() -> None:
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            sys.exit(f"this example needs {program}: install a Java 17 development kit and Maven")
    with Wire(BROKER) as wire:  # a listener starts more quickly if its topic exists
        wire.create_topic(TOPIC, 4)
    with tempfile.TemporaryDirectory(prefix="trimq-e27-") as folder:
        shutil.copytree(PROJECT, folder, dirs_exist_ok=True)
        subprocess.run(["mvn", "-q", "-B", "package"], cwd=folder, check=True)
        # The client writes its log and its offsets into the user's home folder.
        command = ["java", f"-Duser.home={folder}", "-XX:TieredStopAtLevel=1", "-jar", "target/shop-1.0.jar"]
        subprocess.run(command, cwd=folder, check=True)


if __name__ == "__main__":
    main()
