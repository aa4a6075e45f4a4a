"""A job name with which a user might try to fake other jobs' records."""

HOSTILE_TEXT = (
    "|evil\nJobId=1 JobName=x UserId=root(0) JobState=RUNNING NodeList=n[1-4] NumNodes=4\n"
    "\x1erecorded \x1e 7|7|7|RUNNING| \"quote' é\t"
    "UserId=root(0) Nodes=n[1-4] CPU_IDs=0-9 Mem=100 GRES=gpu:4(IDX:0-3) MinTmpDiskNode=0"
)
