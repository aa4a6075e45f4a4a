"""The limits that jobs share, from Slurm's output: that of test_shared_limits.py, on 22.05."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from scripts.testbed import user_text
from scripts.testbed.job_views import changed
from slurm_tiresias.model import Amount, JobSpec, Request
from slurm_tiresias.slurm.commands import CommandSlurm
from slurm_tiresias.slurm.parse_limits import Limits, licenses_of, limits
from slurm_tiresias.slurm.protocol import Limit
from tests.controller.test_job_store import pending

CONFIG = "AccountingStorageEnforce = associations,limits,qos\n"
LICENSES = """\
LicenseName=cad Total=10 Used=2 Free=8 Reserved=0 Remote=no
LicenseName=solver Total=1 Used=1 Free=0 Reserved=0 Remote=no
"""
ASSOCIATIONS = """\
Current Association Manager state
Association Records
ClusterName=c Account=root UserName= Partition= Priority=0 ID=1 ParentAccount= Lft=1 GrpJobs=N(2) \
GrpTRES=cpu=N(2),mem=N(1000),gres/gpu=N(3) MaxJobs= MaxTRESPJ=
ClusterName=c Account=lab UserName= Partition= Priority=0 ID=3 ParentAccount=root(1) Lft=2 \
GrpJobs=6(1) GrpWall=N(0.00) GrpTRES=cpu=N(1),gres/gpu=8(2) GrpTRESMins=cpu=N(0) MaxJobs=
ClusterName=c Account=lab UserName=ann(1000) Partition= Priority=0 ID=4 ParentAccount= Lft=3 \
GrpJobs=N(1) GrpTRES=cpu=N(1),gres/gpu=N(2) MaxJobs=3(1) MaxTRESPJ=gres/gpu=4
QOS Records
QOS=short(2) UsageRaw=0.000000 GrpJobs=N(1) GrpTRES=cpu=N(1),mem=1000(500),gres/gpu=N(1) \
GrpTRESMins=cpu=N(0),gres/gpu=1000(10) MaxWallPJ= Priority=0 Account Limits= \
lab={MaxJobsPA=5(1) MaxSubmitJobsPA=9(1) MaxTRESPA=cpu=N(1),gres/gpu=N(2)} User Limits= \
1000={MaxJobsPU=2(1) MaxTRESPU=cpu=N(1),gres/gpu=4(2)} 1001={MaxJobsPU=2(2)}
QOS=night(3) UsageRaw=0.000000 GrpJobs=7(0) MaxWallPJ= Account Limits= No Accounts User Limits= \
No Users
"""
PARTITIONS = """\
PartitionName=gpu AllowGroups=ALL Default=YES QoS=night DefaultTime=NONE Nodes=n[1-4]
PartitionName=other AllowGroups=ALL Default=NO QoS=N/A DefaultTime=NONE Nodes=n[1-4]
"""


def asks(**changes: object) -> JobSpec:
    """A job of ann that requests two nodes with two GPUs and three CPUs each."""
    request = Request(Amount({"": 2}, 3), chunks=2, min_nodes=2)
    asked = {"request": request, "user": "ann", "account": "lab", "qos": "short"} | changes
    return changed(pending("8"), **asked).spec


def known(config: str = CONFIG, associations: str = ASSOCIATIONS) -> Limits:
    return limits(config, LICENSES, associations, PARTITIONS)


def test_a_job_is_bound_by_its_qos_its_partitions_qos_its_account_and_its_user() -> None:
    assert set(known().of(asks(partitions=("gpu",)))) == {
        Limit("GrpTRES=mem of QOS short", 500, 1, math.inf),
        Limit("GrpTRESMins=gres/gpu of QOS short", 990, 1, math.inf),
        Limit("MaxJobsPA of account lab in QOS short", 4, 1, 1),
        Limit("MaxJobsPU of user ann in QOS short", 1, 1, 1),
        Limit("MaxTRESPU=gres/gpu of user ann in QOS short", 2, 4, 4),
        Limit("GrpJobs of QOS night", 7, 1, 1),
        Limit("MaxJobs of user ann in account lab", 2, 1, 1),
        Limit("GrpJobs of account lab", 5, 1, 1),
        Limit("GrpTRES=gres/gpu of account lab", 6, 4, 4),
    }


def test_a_job_is_bound_only_by_the_limits_of_its_own_qos_and_account() -> None:
    bound = asks(user="bob", account="root", qos="night", partitions=("other",))
    assert set(known().of(bound)) == {Limit("GrpJobs of QOS night", 7, 1, 1)}


def test_licences_count_even_if_limits_are_not_enforced() -> None:
    cads, solver = known("AccountingStorageEnforce = associations\n").of(
        asks(licenses="cad:2,solver")
    )
    assert cads == Limit("licence cad", 8, 2, 2)
    assert solver == Limit("licence solver", 0, 1, 1)


def test_an_unreadable_limit_counts_as_exhausted() -> None:
    strange = "QOS=short(2) GrpJobs=some GrpTRES=cpu=12G(3) Priority=0\n"
    lefts = {one.name: one.left for one in known(associations=strange).of(asks())}
    assert lefts == {"GrpJobs of QOS short": 0, "GrpTRES=cpu of QOS short": 0}


@pytest.mark.parametrize(
    ("asked", "counts"),
    [
        ("", {}),
        ("solver", {"solver": 1}),
        ("solver:2,cad@server:3", {"solver": 2, "cad@server": 3}),
        ("a:1|b:2", {"a": 1, "b": 2}),
        ("a;b:x", {"a": 1, "b": 1}),
    ],
)
def test_license_requests_are_parsed_into_counts(asked: str, counts: dict[str, int]) -> None:
    assert licenses_of(asks(licenses=asked)) == counts


def test_the_limits_are_read_once_a_reading_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 10,000 associations slurmctld prints seven megabytes, under a lock."""
    answers = {"config": CONFIG, "licenses": LICENSES, "partition": PARTITIONS}
    asked: list[str] = []

    def show(_slurm: CommandSlurm, questions: Sequence[str]) -> Sequence[str]:
        asked.extend(questions)
        words = [question.split()[1] for question in questions]
        return [answers.get(word, ASSOCIATIONS) for word in words]

    slurm = CommandSlurm()
    job = asks()
    with user_text.commands():
        slurm.observe()
        with monkeypatch.context() as shown:
            shown.setattr(CommandSlurm, "_show", show)
            first, second = slurm.limits([job]), slurm.limits([job])
        slurm.observe()
        monkeypatch.setattr(CommandSlurm, "_show", show)
        third = slurm.limits([job])
    assert first == second == third == {"8": tuple(known().of(job))}
    assert asked.count("show assoc_mgr flags=qos,assoc") == 2


def test_a_layer_of_a_hierarchical_resource_is_enough_in_mode_1_and_all_count_in_others() -> None:
    lines = [
        f"LicenseName={name} Total=9 Used=0 Free={free} Reserved=0 Remote=no Nodes={nodes} Mode={n}"
        for name, n in (("any", 1), ("power", 3))
        for nodes, free in (("n[1-4]", 5), ("n[1-2]", 2))
    ]
    found = limits("", LICENSES + "\n".join(lines), "", "")
    assert set(found.of(asks(licenses="any:1,power:1,cad:1"))) == {
        Limit("licence any", 5, 1, math.inf),
        Limit("licence power", 2, 1, math.inf),
        Limit("licence cad", 8, 1, 1),
    }
