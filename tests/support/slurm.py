"""A real Slurm on loopback: its controller, and nodes that are all this machine."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e import world
from tests.support.servers import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "sinfo")
STARTED_S = 30.0
SYSTEM = "/usr/sbin:/sbin"  # where daemons are, which few have in their path
SETTINGS = """\
ClusterName=party
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
ReturnToService=2
KillWait=1
PartitionName=all Nodes=ALL Default=YES State=UP
"""
NODE = "NodeName={} NodeHostname=localhost NodeAddr=127.0.0.1 Port={} CPUs=2 RealMemory=4096\n"


@dataclass(frozen=True)
class Slurm:
    """A cluster that somebody has started; its files are in `folder`."""

    folder: Path

    @property
    def env(self) -> dict[str, str]:
        path = f"{os.environ['PATH']}:{SYSTEM}"
        return os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": path}

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        """What a command of Slurm prints."""
        env = {**self.env, **(env or {})}
        done = subprocess.run(
            words, check=True, capture_output=True, text=True, cwd=self.folder, env=env
        )
        return done.stdout.strip()

    def idle(self) -> int:
        """How many nodes wait for work; none while nobody answers."""
        try:
            return self.run("sinfo", "-hNo", "%T").split().count("idle")
        except subprocess.CalledProcessError:
            return 0


@contextmanager
def slurm(folder: Path, nodes: int = 2) -> Iterator[Slurm]:
    """Slurm with so many nodes; the test is skipped where it is not installed."""
    path = f"{os.environ['PATH']}:{SYSTEM}"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing or os.getuid():  # its nodes begin work for others, which root alone may
        pytest.skip("needs root, and apt install slurmctld slurmd slurm-client munge")
    key, names = folder / "munge.key", [f"node{i}" for i in range(nodes)]
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    (folder / "state").mkdir()
    settings = SETTINGS.format(controller=free_port(), folder=folder, user="root")
    lines = [NODE.format(name, free_port()) for name in names]
    (folder / "slurm.conf").write_text(settings + "".join(lines))
    made = Slurm(folder)
    munged = [f"--{word}={folder}/munge.{word.split('-')[0]}" for word in ("pid-file", "log-file")]
    munged += [f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munged += [f"--seed-file={folder}/munge.seed", "--foreground", "--force"]
    commands = [
        ["munged", *munged],
        ["slurmctld", "-D"],
        *(["slurmd", "-D", "-N", n] for n in names),
    ]
    with ExitStack() as ends, (folder / "slurm.log").open("ab") as log:
        for command in commands:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=made.env, cwd=folder
            )
            ends.callback(_end, process)
            if command[0] == "munged":
                world.wait_for((folder / "munge.socket").exists, STARTED_S, "munged")
        world.wait_for(lambda: made.idle() == nodes, STARTED_S, "Slurm's nodes")
        yield made


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
