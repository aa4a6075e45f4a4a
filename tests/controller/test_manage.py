"""Which jobs the configuration excludes."""

from __future__ import annotations

import pytest

from slurm_tiresias.config import parse
from slurm_tiresias.controller.manage import why_unmanaged
from tests.controller.test_job_store import pending


@pytest.mark.parametrize(
    ("exclude", "why"),
    [
        (["user=ann"], "its user is excluded"),
        (["qos=debug", "account=a=b"], "its account is excluded"),
        (["qos=Long"], "its QOS is excluded"),
        (["user=ben", "account=ann", "qos=long"], ""),
    ],
)
def test_jobs_of_excluded_users_accounts_and_qos_are_not_managed(
    exclude: list[str], why: str
) -> None:
    config = parse({"manage": {"partitions": ["gpu"], "exclude": exclude}}).manage
    assert why_unmanaged(pending("7", user="ann", account="a=b", qos="Long"), config) == why
