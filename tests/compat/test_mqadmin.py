"""RocketMQ's own `mqadmin` (Maven `rocketmq-tools`), many commands in one process, each judged by its output."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat.cache import do, require
from compat.maven import classpath
from compat.programs import SOURCES, fingerprint
from compat.rocketmq_wire import Wire

from tools.broker import running
from tools.download_cache import cached_folder

pytestmark = [pytest.mark.external, pytest.mark.timeout(240)]

VERSION = "5.5.0"
FLAGS = ["--rocketmq-listen", "127.0.0.1:0", "--rocketmq-broker-listen", "127.0.0.1:0"]
UNIQUE = "7F0000010000TRIMQ000000000000001"
CLUSTER = "-c DefaultCluster"

# Commands, and patterns that must match a line of the output. NAMES, BROKER and ID are replaced by the values of the
# run. The order matters: commands that delete are last.
COMMANDS: dict[str, tuple[str, ...]] = {
    f"updateTopic {CLUSTER} -t made -r 4 -w 3": ("create topic to BROKER success", "writeQueueNums=3, perm=RW-"),
    "topicList": (r"^made$", r"^t$", r"^SCHEDULE_TOPIC_XXXX$"),
    "topicRoute -t made": ('"BROKER"', '"readQueueNums":4', '"writeQueueNums":3'),
    "topicClusterList -t t": ("^DefaultCluster$",),
    "topicStatus -t t": (r"broker-trimq +0 +0 +2 +20\d\d-", r"broker-trimq +1 +0 +0"),
    "clusterList": (r"DefaultCluster +broker-trimq +0 +BROKER +V5_5_0 .* true$",),
    "clusterList -m": (r"DefaultCluster +broker-trimq +0 +\d+ +2 +\d+",),
    "brokerStatus -b BROKER": (r"msgPutTotalTodayNow +: 2", r"putTps +: [0-9.]+ [0-9.]+ [0-9.]+"),
    "brokerConsumeStats -b BROKER": (r"t +g +broker-trimq +0 +2 +1 +1 ", "Diff Total: "),
    "consumerProgress -g g": (r"t +broker-trimq +0 +2 +1 +1 +0 ", "Consume Diff Total: 1"),
    "consumerProgress": (r"g +1 +V5_3_3 +PUSH +CLUSTERING",),
    "consumerConnection -g g": (r"wire +127.0.0.1:\d+ +JAVA", r"^t +\*", "ConsumeType: CONSUME_PASSIVELY"),
    "producerConnection -g pg -t t": (r"wire +127.0.0.1:\d+ +JAVA",),
    "producer -b BROKER": (r"producer group \(pg\) instance : clientId=wire",),
    "consumerStatus -g watched": (r"CLIENT|watched", "V5_5_0"),
    "consumerStatus -g watched -i CLIENT": ("#Consumer Properties#", "#Consumer Subscription#"),
    "queryMsgById -t t -i ID": (r"Tags: +\[A\]", r"Keys: +\[k1\]", "consumerGroup=g, trackType=CONSUMED"),
    "queryMsgById -t t -i ID -g watched -d CLIENT": ("consumeResult=CR_SUCCESS",),
    "queryMsgByKey -t t -k k1": (rf"{UNIQUE} +0 +0",),
    f"queryMsgByUniqueKey -t t -i {UNIQUE}": (r"Queue Offset: +0",),
    "queryMsgByOffset -t t -b broker-trimq -i 0 -o 1": (r"Keys: +\[k2\]",),
    "queryCq -t t -q 0 -i 0 -c 2 -g g": ("max: 2, min: 0", "tagsCode=65", "eval=true"),
    "printMsg -t t": ("BODY: body one", "BODY: body two"),
    "allocateMQ -t t -i a,b": (r'"a":\[\{"brokerName":"broker-trimq"', r'"b":\[\{"brokerName":"broker-trimq"'),
    f"updateSubGroup {CLUSTER} -g h -r 5": ("create subscription group to BROKER success", "retryMaxTimes=5"),
    "getConsumerConfig -g h": (r"retryMaxTimes += +5",),
    "cloneGroupOffset -s g -d h -t t": (r"clone group offset success. srcGroup\[g\], destGroup=\[h\]",),
    "resetOffsetByTime -g h -t t -s -1": (r"broker-trimq +0 +2",),
    "skipAccumulatedMessage -g h -t t": (r"broker-trimq +0 +2",),
    "sendMessage -t made -p hello": (r"broker-trimq +\d +SEND_OK",),
    "consumeMessage -t made -g readers": ("Consume ok", "BODY: hello"),
    "checkMsgSendRT -t made -a 3 -s 10": (r"broker-trimq +\d +true", "Avg RT: "),
    "sendMsgStatus -b broker-trimq -c 1 -s 10": ("sendStatus=SEND_OK",),
    "statsAll -t t": (r"t +g +1 +[0-9.]+ +[0-9.]+ +2 +0",),
    "getBrokerConfig -b BROKER": (r"brokerName += +broker-trimq", r"flushDiskType += +SYNC_FLUSH"),
    "updateBrokerConfig -b BROKER -k longPollingEnable -v true": ("update broker config success",),
    "updateBrokerConfig -b BROKER -k nonsense -v 1": ("CODE: 29 ",),
    "getNamesrvConfig": (r"orderMessageEnable += +false", r"listenPort += +[1-9]"),
    "updateKvConfig -s space -k key -v value": ("create or update kv config to namespace success",),
    "deleteKvConfig -s space -k key": ("delete kv config from namespace success",),
    "updateOrderConf -t t -m put -v broker-trimq:4": ("update orderConf success",),
    "wipeWritePerm -b broker-trimq": (r"wipe write perm of broker\[broker-trimq\] in name server\[NAMES\] OK, \d\d",),
    "topicRoute -t made  ": ('"perm":4',),
    "addWritePerm -b broker-trimq": (r"add write perm of broker\[broker-trimq\] in name server\[NAMES\] OK, \d\d",),
    f"updateTopicPerm {CLUSTER} -t made -p 4": ("update topic perm from 6 to 4 in BROKER success",),
    "cleanUnusedTopic -b BROKER": ("success",),
    "cleanExpiredCQ -b BROKER": ("success",),
    f"deleteSubGroup {CLUSTER} -g h": (r"delete subscription group \[h\] from broker \[BROKER\]",),
    f"deleteTopic {CLUSTER} -t made": (r"delete topic \[made\] from NameServer success",),
    "topicRoute -t made ": ("No topic route info in name server for the topic: made",),
}


def run_all(names: str, broker: str, id: str, home: Path) -> list[str]:
    require("javac")
    libraries = classpath((f"org.apache.rocketmq:rocketmq-tools:{VERSION}",))
    sources = sorted((SOURCES / "rocketmq-tools").glob("*.java"))

    def compile_into(folder: Path) -> None:
        do(["javac", "-nowarn", "-cp", libraries, "-d", str(folder), *map(str, sources)], folder)

    folder = cached_folder("java", f"rocketmq-tools-{VERSION}-{fingerprint(sources)}", compile_into)
    command = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Duser.home={home}"]
    command += ["-cp", f"{folder}:{libraries}", "Admin", names, "watched", "t"]
    lines = []
    for typed in COMMANDS:
        name, *words = typed.replace("BROKER", broker).replace("ID", id).split()
        lines.append("\t".join([name, "-n", names, *words]))
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False, timeout=200, cwd=home
    )
    outputs = [line.replace("\\n", "\n") for line in done.stdout.splitlines()]
    if len(outputs) != len(COMMANDS):
        pytest.fail(f"{len(outputs)} of {len(COMMANDS)} commands were answered:\n{done.stderr[-3000:]}", pytrace=False)
    return outputs


class Answers:
    def __init__(self, outputs: dict[str, str], names: str, broker: str) -> None:
        self.outputs = outputs
        self._names = names
        self._broker = broker

    def pattern(self, wanted: str) -> str:
        return wanted.replace("NAMES", re.escape(self._names)).replace("BROKER", re.escape(self._broker))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    folder = tmp_path_factory.mktemp("broker")
    with running(folder, FLAGS) as addresses, Wire(addresses["rocketmq_broker"]) as wire:
        wire.create_topic("t", 2)
        sent = wire.send("t", b"body one", KEYS="k1", TAGS="A", UNIQ_KEY=UNIQUE)
        wire.send("t", b"body two", KEYS="k2")
        wire.heartbeat("g", "t")
        wire.commit_offset("g", "t", 0, 1)
        names, broker = addresses["rocketmq"], addresses["rocketmq_broker"]
        outputs = run_all(names, broker, sent["msgId"], tmp_path_factory.mktemp("home"))
        for body in Path("/tmp/rocketmq/msgbodys").glob(f"*{UNIQUE}*"):
            body.unlink()  # the tool ignores the option for its folder
        yield Answers(dict(zip(COMMANDS, outputs, strict=True)), names, broker)


@pytest.mark.parametrize("typed", COMMANDS)
def test_the_output_of_mqadmin(answers: Answers, typed: str) -> None:
    output = answers.outputs[typed]
    for wanted in COMMANDS[typed]:
        assert re.search(answers.pattern(wanted), output, re.MULTILINE), f"{wanted} is not in:\n{output[:3000]}"
