"""Invalid traces: the only output is one line that names the file and the line."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slurm_tiresias.errors import TraceError
from slurm_tiresias.simulator.traces import FORMATS, load_trace, sacct
from slurm_tiresias.simulator.traces.alibaba2020 import JOB_COLUMNS, TASK_COLUMNS

HEADER = b"job_id,submit_time_s,num_gpus,duration_s\n"
SACCT = "|".join(sacct.COLUMNS).encode() + b"\n"


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        (b"", 1, "the file is empty"),
        (b"\n \n", 1, "the file is empty"),
        (HEADER, 1, "there is no job in this file"),
        (b"job_id,submit_time_s,num_gpus\na,0,1\n", 1, "the header has no column 'duration_s'"),
        (b"job_id,job_id,x\na,0,1\n", 1, "the column 'job_id' occurs twice"),
        (HEADER + b"a,0,1,-5\n", 2, "the duration is negative: '-5'"),
        (HEADER + b"a,0,1,\n", 2, "the duration is missing"),
        (HEADER + b"a,0,1,nan\n", 2, "the duration is not a plausible number: 'nan'"),
        (HEADER + b"a,0,1,1e300\n", 2, "the duration is not a plausible number: '1e300'"),
        (HEADER + b"a,0,1,1_0\n", 2, "the duration is not a plausible number: '1_0'"),
        (HEADER + b"a,soon,1,5\n", 2, "the time of submission is not a plausible number: 'soon'"),
        (HEADER + b"a,0,0,5\n", 2, "the job requests no GPU"),
        (HEADER + b"a,0,-1,5\n", 2, "the number of GPUs is not a whole number"),
        (HEADER + b"a,0,1.5,5\n", 2, "the number of GPUs is not a whole number"),
        (HEADER + b"a,0,1,5\nb,1,1,5\na,2,1,5\n", 4, "the job id 'a' was already on line 2"),
        (HEADER + b",0,1,5\n", 2, "the job id is missing"),
        (HEADER + b"a,0,1,5\nb,1\n", 3, "has 2 columns, and the header 4"),
        (HEADER + b"a,0,1,5\nb,1,1,6", 3, "the file ends within this line"),
        (HEADER + b'a,0,1,"5\n', 2, "this is not CSV"),
        (HEADER + b"a,0,1,5\n\xff\xfe,0,1,5\n", 3, "the file is not text in UTF-8"),
        (HEADER + b"a,0,1,5\nb\0,0,1,5\n", 3, "the file is not text in UTF-8"),
        (b"\x1f\x8b\x08\x00\x00\x00", 1, "the file is not text in UTF-8"),
        (b"hello\n", 1, "the beginning matches no known trace format"),
        (HEADER + b"a,0,2000000,5\n", 2, "no job of this file can be simulated; this one asks for"),
        (b"; SWF\n1 0 0 5 1\n", 2, "has 5 fields, and the format 18"),
        (b"JobID|State\n1|COMPLETED\n", 1, "the header has no column Submit"),
        (b"JobID|Submit|State|AllocTRES|End\n", 1, "the header has no column ElapsedRaw"),
        (SACCT + b"1|2|3\n", 2, "has 3 columns, and the header 13"),
        (SACCT + b"1|0|0|9|9|0|GONE|gres/gpu=1||1|p|u|a\n", 2, "Slurm has no state 'GONE'"),
        (
            SACCT + b"1|0|0|9|9|0|FAILED|gres/gpu:a=x||1|p|u|a\n",
            2,
            "Slurm's answer has a GPU count",
        ),
        (SACCT + b"1||0|9|9|0|FAILED|gres/gpu=1||1|p|u|a\n", 2, "the job id or the time of"),
        (b",t,1,Terminated,1,5,1,1,100,V100\n", 1, "the job id is missing"),
    ],
)
def test_a_bad_trace_is_refused_with_its_file_and_line(
    tmp_path: Path, content: bytes, line: int, what: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(TraceError) as refused:
        load_trace(path)
    assert refused.value.what.startswith(f"{path}, line {line}: {what}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_file_of_another_format_is_refused_by_all(tmp_path: Path, format_name: str) -> None:
    path = tmp_path / "other"
    path.write_text("# a list of things\nbread, butter\n")
    with pytest.raises(TraceError):
        load_trace(path, format_name)


@pytest.mark.parametrize("format_name", ["auto", *FORMATS])
@pytest.mark.parametrize("name", ["missing", "folder", "nul\0"])
def test_an_unreadable_file_is_refused(tmp_path: Path, name: str, format_name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(TraceError, match=r"cannot be read|is a folder without"):
        load_trace(tmp_path / name, format_name)


# --------------------------------------------------------------------------- whatever is in it

HEADERS = st.sampled_from(
    [
        "",
        "job_id,submit_time_s,num_gpus,duration_s,model,vc",
        "job_id,submit_time_s,num_gpus,duration_s,limit_s",
        "timestamp,duration,num_gpus,gpu_time,cluster",
        "job_id,submission_time,duration,num_gpu",
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue",
        TASK_COLUMNS,
        JOB_COLUMNS,
        "name,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,scheduled_time",
        "; a comment",
        "|".join(sacct.COLUMNS),
        "|".join([*sacct.COLUMNS, "JobName"]),
        "JobID|Submit|Start|End|Suspended|State|AllocTRES|Timelimit",
        "JobID|Submit|Elapsed|State|ReqTRES",
    ]
)
WORDS = st.sampled_from(
    [
        *("", "0", "1", "-1", "2.5", "1e9", "1e999", "nan", "7_0", "9" * 30, "\u00b2", "\u0661"),
        *("2020-06-09 18:41:01", "0001-01-01T00:00:00+23:59", "Unknown", "00:10:00", "1-00:00:00"),
        *("COMPLETED", "RUNNING", "REQUEUED", "CANCELLED by 1", "Terminated", "Failed", "Running"),
        *("gres/gpu=1", "gres/gpu:a100=2,gres/gpu=2", "gres/gpu=x", "gres/gpu=999999999G", "cpu=1"),
        *("12", "12_3", "12.batch", "12+0", "UNLIMITED", '"', "a b", "x\x0by", "\u2028", "\r"),
    ]
)
ROWS = st.builds(
    lambda words, separator: separator.join(words),
    st.lists(WORDS | st.integers(0, 5000).map(str), max_size=18),
    st.sampled_from([",", "|", " "]),
)
NEARLY_TRACES = st.builds(
    lambda header, rows, end: ("\n".join([header, *rows]) + end).encode(),
    HEADERS,
    st.lists(ROWS, max_size=6),
    st.sampled_from(["\n", "\r\n", ""]),
)


@st.composite
def right_widths(draw: st.DrawFn) -> bytes:
    """A header, and rows of arbitrary words with as many columns."""
    header = draw(HEADERS)
    separator = "|" if "|" in header else ","
    width = 18 if header.startswith(";") else header.count(separator) + 1
    lines = draw(st.lists(st.lists(WORDS, min_size=width, max_size=width), max_size=5))
    joiner = " " if header.startswith(";") else separator
    return ("\n".join([header, *map(joiner.join, lines)]) + "\n").encode()


def load_or_refuse(content: bytes, format_name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(content)
        try:
            workload = load_trace(path, format_name)
        except TraceError as error:
            assert "\n" not in str(error)
            return
    submissions_s = [job.submitted_s for job in workload.jobs]
    assert submissions_s == sorted(submissions_s)
    assert submissions_s[0] == 0.0
    assert len({job.job_id for job in workload.jobs}) == len(workload.jobs)
    assert all(1 <= job.gpus <= 1_000_000 and job.duration_s > 0 for job in workload.jobs)


@given(
    st.binary(max_size=300)
    | st.text(max_size=200).map(str.encode)
    | NEARLY_TRACES
    | right_widths(),
    st.sampled_from(["auto", *FORMATS]),
)
@example(b"\x1c\n", "sacct")
@example(b"\xef\xbb\xbf\n", "sacct")
@example(b"\xef\xbb\xbf\n", "auto")
@example(b"a," + b"x" * 200_000 + b"\n", "csv")
def test_no_loader_raises_anything_but_its_own_error(content: bytes, format_name: str) -> None:
    load_or_refuse(content, format_name)
