"""A Slurm cluster of pretended machines: the controller here, a slurmd in each machine's namespaces; no cgroups."""

import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.machines import ROOT, Machines
from tests.cluster.machines import why_not as why_no_machines

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel")
_START_S = 60


def why_not() -> str:
    """Why there can be no Slurm here; empty if there can."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)} (packages slurmctld, slurmd, slurm-client, munge)"
    return why_no_machines()


@dataclass
class Slurm:
    """Machines 0 to `nodes` - 1 under a controller on this machine."""

    machines: Machines
    nodes: int = 2

    @property
    def folder(self) -> Path:
        return self.machines.shared / "slurm"

    @property
    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        ours = {"SLURM_CONF": str(self.folder / "slurm.conf"), "PYTHONPATH": str(ROOT), "PATH": path}
        return {**os.environ, **ours, "RAY_worker_niceness": "0", "RAY_raylet_start_wait_time_s": "180"}

    def up(self) -> None:
        self.machines.make_network()
        for name in ("state", "log", "run", "munge"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._start_munge()
        (self.folder / "slurm.conf").write_text(self._config())
        # Otherwise slurmd looks for cgroups, which it does not use here, and ends where it sees none.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self._run("slurmctld")
        for number in range(self.nodes):
            name = self.machines.name(number)
            (self.folder / f"spool-{name}").mkdir(exist_ok=True)
            slurmd = ["env", f"SLURM_CONF={self.folder / 'slurm.conf'}", shutil.which("slurmd") or "", "-D"]
            self.machines.switch_on(number, [*slurmd, "-N", name])
        deadline_s = time.monotonic() + _START_S
        while (said := self._run("sinfo", "--noheader", "--format=%T %D").split()) != [
            "idle",
            str(self.nodes),
        ]:
            assert time.monotonic() < deadline_s, f"{said}: {self._logs()}"
            time.sleep(0.5)

    def submit(self, script: Path, *options: str) -> int:
        """Return the job's number."""
        said = self._run("sbatch", "--parsable", f"--chdir={self.machines.shared}", *options, str(script))
        return int(said.strip().partition(";")[0])

    def cancel(self, job: int) -> None:
        self._run("scancel", str(job))

    def control(self, *words: str) -> str:
        return self._run("scontrol", *words)

    def state(self, job: int) -> dict[str, str]:
        """What the controller says of a job: JobState, Restarts, ExitCode, ..."""
        words = self._run("scontrol", "show", "job", str(job), "--oneliner").split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def down(self) -> None:
        for file in (self.folder / "run").glob("*.pid"):
            subprocess.run(["kill", "-9", file.read_text().strip()], capture_output=True)
        self.machines.down()

    def _logs(self) -> str:
        return "".join(f"== {log}\n{log.read_text()[-1000:]}" for log in (self.folder / "log").glob("slurm*"))

    def _run(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        (self.folder / "munge").chmod(0o755)
        self._run(
            "munged", "--force", f"--key-file={key}", f"--socket={self.folder}/munge/sock",
            f"--pid-file={self.folder}/run/munged.pid", f"--log-file={self.folder}/log/munged.log",
            f"--seed-file={self.folder}/munge/seed",
        )  # fmt: skip

    def _config(self) -> str:
        folder, subnet = self.folder, self.machines.subnet
        lines = [
            "ClusterName=tests", f"SlurmctldHost={socket.gethostname()}({subnet}.254)", "SlurmctldPort=16817",
            "AuthType=auth/munge", f"AuthInfo=socket={folder}/munge/sock", "CryptoType=crypto/munge",
            "SlurmUser=root", "SlurmdUser=root", f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool-%n", f"SlurmctldPidFile={folder}/run/slurmctld.pid",
            f"SlurmdPidFile={folder}/run/slurmd-%n.pid.in-its-namespace",
            f"SlurmctldLogFile={folder}/log/slurmctld.log", f"SlurmdLogFile={folder}/log/slurmd-%n.log",
            "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none", "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core", "SwitchType=switch/none", "MpiDefault=none", "ReturnToService=2",
            "JobRequeue=1", "KillWait=60", "SlurmdTimeout=30", "InactiveLimit=0", "SlurmdParameters=config_overrides",
        ]  # fmt: skip
        for number in range(self.nodes):
            name = self.machines.name(number)
            lines.append(
                f"NodeName={name} NodeHostname={name} NodeAddr={self.machines.address_of(number)} Port=16818 CPUs=2"
            )
        names = ",".join(self.machines.name(number) for number in range(self.nodes))
        lines.append(f"PartitionName=main Nodes={names} Default=YES MaxTime=120 State=UP")
        return "\n".join(lines) + "\n"
