"""SLURM through dask-jobqueue: jobs as the user's own jobqueue.yaml describes them, with what a sweep needs of them."""

from __future__ import annotations

import logging
import shutil
import signal
import threading
import time
from importlib.util import find_spec
from typing import Any

from bookkit.pages.catalogue import UserError, one_line

__all__ = ["check_slurm", "start_slurm"]


def check_slurm() -> None:
    if find_spec("dask_jobqueue") is None:
        raise UserError("cluster slurm needs dask-jobqueue: python -m pip install dask-jobqueue")
    if shutil.which("sbatch") is None:
        raise UserError("cluster slurm needs sbatch, which is not on this machine: run the command on a login node")


def _slurm_classes() -> tuple[type, type]:
    """dask-jobqueue's cluster and job; its import takes SIGINT for itself, and Ctrl-C would end with exit code 0."""
    before = signal.getsignal(signal.SIGINT)
    from dask_jobqueue.slurm import SLURMCluster, SLURMJob

    if threading.current_thread() is threading.main_thread():  # only there handlers can be set
        signal.signal(signal.SIGINT, before)
    return SLURMCluster, SLURMJob


def start_slurm(jobs: int) -> Any:
    """`jobs` SLURM jobs as the user's jobqueue.yaml describes them, a worker process of one thread for each core."""
    import dask
    from distributed.deploy.spec import ProcessInterface

    cluster_class, job_class = _slurm_classes()
    refusals: list[Exception] = []

    class Job(job_class):
        """A job that keeps what sbatch answers (Dask would wait for ever) and knows when it has ended."""

        async def start(self) -> None:
            try:
                await super().start()
            except (RuntimeError, ValueError, OSError) as error:
                refusals.append(error)
                await ProcessInterface.close(self)

        async def close(self) -> None:
            await super().close()
            await ProcessInterface.close(self)  # left out there, and the cluster's own end then fails

    cores = dask.config.get("jobqueue.slurm.cores", None)
    if not cores or not dask.config.get("jobqueue.slurm.memory", None):
        raise UserError(
            "cluster slurm needs `cores` and `memory` of a job under jobqueue: slurm: in ~/.config/dask/jobqueue.yaml"
        )
    scheduler = {"dashboard": False, "dashboard_address": ":0"}  # else it takes, or warns about, port 8787
    try:
        cluster = cluster_class(
            job_cls=Job, processes=cores, silence_logs=logging.CRITICAL, scheduler_options=scheduler
        )
    except (TypeError, ValueError, OSError) as error:
        raise UserError(f"cluster slurm: jobqueue.yaml does not describe a job: {one_line(error)}") from error
    cluster.scale(jobs=jobs)
    while len(cluster.workers) < jobs and not refusals:
        time.sleep(0.1)
    if refusals:
        cluster.close(timeout=10)
        said = str(refusals[0]).rpartition("stderr:")[2].strip() or str(refusals[0])
        raise UserError(f"cluster slurm: sbatch refused the job ({one_line(said)}): correct jobqueue.yaml")
    return cluster
