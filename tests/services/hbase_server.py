"""HBase on the loopback: master, region server and ZooKeeper in one process, and the Thrift gateway
in another; the files are in a folder, on the local disk."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.services.programs import HBASE
from tests.services.servers import Server, free_port

__all__ = ["HBaseServer"]

PATIENCE_S = 120
READY = "Master has completed initialization"
MASTER = "org.apache.hadoop.hbase.master.HMaster"
GATEWAY = "org.apache.hadoop.hbase.thrift.ThriftServer"
SPLITTER = "org.apache.hadoop.hbase.util.RegionSplitter"

OPENED = ["lang", "lang.reflect", "nio", "util", "util.concurrent", "net"]
EXPORTED = ("java.base/jdk.internal.misc", "java.security.jgss/sun.security.krb5")
FLAGS = [
    *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENED),
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    *(f"--add-exports={name}=ALL-UNNAMED" for name in EXPORTED),
    "--add-exports=java.base/sun.net.dns=ALL-UNNAMED",
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
    "-Djava.net.preferIPv4Stack=true",
    "-XX:+UseSerialGC",
]
LOG = """log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %-5p [%t] %c{2}: %m%n
log4j.logger.org.apache.zookeeper=WARN
"""


class HBaseServer(Server):
    """`port`: of the gateway."""

    program = HBASE
    heap: ClassVar[str] = "768m"
    gateway_heap: ClassVar[str] = "256m"
    flags: ClassVar[Sequence[str]] = ("-XX:TieredStopAtLevel=1",)
    """Of Java: to be up soon."""
    patience: ClassVar[Mapping[str, str]] = {
        "hbase.client.retries.number": "2",
        "hbase.client.operation.timeout": "5000",
    }
    """The gateway's own: tests have little."""

    def __init__(self, root: Path) -> None:
        super().__init__(root.resolve())
        self._master: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, again: bool = False) -> None:
        """Return when it answers; `again`, after it was killed, at the address that it had."""
        jars = self.program.path()
        (self._root / "conf").mkdir(parents=True, exist_ok=True)
        if not again:
            self.port = free_port()
            self._configure()
        self._master = self._java(
            jars, self.heap, "master", [MASTER, "--localRegionServers=1", "start"]
        )
        self._wait(READY)
        self.start_gateway()

    def start_gateway(self) -> None:
        """Also in place of one that runs: who was connected has to come again."""
        super().stop()
        told = ["start", "-b", "127.0.0.1", "-p", str(self.port), "-infoport", "-1"]
        jars = self.program.path()
        self._process = self._java(jars, self.gateway_heap, "gateway", [GATEWAY, *told])
        if not self._answers():
            raise AssertionError(f"no answer from {self.program.title}: {self._said()}")

    def make_table(self, name: str, regions: int) -> None:
        """With the family `e`, evenly split by the first bytes of keys."""
        told = [SPLITTER, name, "UniformSplit", "-c", str(regions), "-f", "e"]
        made = self._java(self.program.path(), self.gateway_heap, "splitter", told)
        if made.wait(PATIENCE_S):
            raise AssertionError((self._root / "splitter.log").read_text(errors="replace")[-500:])

    def kill(self) -> None:
        """SIGKILL for what holds the data; the gateway stays, and has nobody to ask."""
        if self._master is not None:
            self._master.kill()
            self._master.wait()
            self._master = None

    def stop(self) -> None:
        super().stop()
        self.kill()

    def _java(
        self, jars: Path, heap: str, name: str, told: Sequence[str]
    ) -> subprocess.Popen[bytes]:
        log = self._root / ("log" if name == "gateway" else f"{name}.log")
        path = f"{self._root / 'conf'}:{jars}/*"
        with open(log, "wb") as file:
            return subprocess.Popen(
                ["java", *FLAGS, *self.flags, f"-Xmx{heap}", "-cp", path, *told],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=self._root,
            )

    def _wait(self, text: str) -> None:
        behind = time.monotonic() + PATIENCE_S
        log = self._root / "master.log"
        while text not in (said := log.read_text(errors="replace")):
            assert self._master is not None
            if time.monotonic() > behind or self._master.poll() is not None:
                raise AssertionError(f"{self.program.title} does not come up: {said[-500:]}")
            time.sleep(0.1)

    def _configure(self) -> None:
        home = self._root
        told = {
            "hbase.rootdir": f"file://{home}/data/hbase",
            "hbase.zookeeper.property.dataDir": f"{home}/data/zk",
            "hbase.tmp.dir": f"{home}/tmp",
            "hbase.cluster.distributed": "false",
            "hbase.unsafe.stream.capability.enforce": "false",
            "hbase.wal.provider": "filesystem",
            "hbase.zookeeper.quorum": "127.0.0.1",
            "hbase.zookeeper.property.clientPort": free_port(),
            "hbase.zookeeper.property.clientPortAddress": "127.0.0.1",
            "hbase.zookeeper.property.admin.enableServer": "false",
            "hbase.localcluster.assign.random.ports": "false",
            "hbase.master.hostname": "127.0.0.1",
            "hbase.regionserver.hostname": "127.0.0.1",
            "hbase.master.ipc.address": "127.0.0.1",
            "hbase.regionserver.ipc.address": "127.0.0.1",
            "hbase.master.port": free_port(),
            "hbase.regionserver.port": free_port(),
            "hbase.master.info.port": "-1",
            "hbase.regionserver.info.port": "-1",
            "hbase.regionserver.handler.count": "8",
            "hbase.master.start.timeout.localHBaseCluster": "60000",
            "hbase.procedure.store.region.wal.hsync": "false",
            **self.patience,
        }
        properties = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>\n"
            for name, value in told.items()
        )
        text = f"<configuration>\n{properties}</configuration>\n"
        (home / "conf/hbase-site.xml").write_text(text, "utf-8")
        (home / "conf/log4j.properties").write_text(LOG, "utf-8")
