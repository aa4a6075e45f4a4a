#!/bin/bash
# A job that works by sleeping, and keeps a journal of it:
#   sleeper.sh JOURNAL WORK_US LOAD_US
# Each line of the journal is what happened, when, and how much work was done by then, all in
# microseconds. SIGTERM stops it; started again it loads for LOAD_US and goes on where it was.
# Two processes and no loop: sixty of these at once cost next to nothing.

journal=$1 work_us=$2 load_us=$3

now() { now_us=${EPOCHREALTIME/[.,]/}; }

note() { echo "$1 $now_us $done_us" >>"$journal"; }

# Sleeps in the background, because a signal's trap can only interrupt a wait.
nap() {
    printf -v span '%d.%06d' $(($1 / 1000000)) $(($1 % 1000000))
    sleep "$span" &
    wait $!
}

book() {
    now
    ((from_us > 0)) && done_us=$((before_us + now_us - from_us))
}

leave() {
    book
    note stopped
    exit 143
}

done_us=0 from_us=0 restarts=no
if [[ -f $journal ]]; then
    while read -r _ _ before_us; do restarts=yes; done_us=$before_us; done <"$journal"
fi
before_us=$done_us
now
note started
trap leave TERM

if [[ $restarts == yes ]] && ((load_us > 0)); then
    until_us=$((now_us + load_us))
    while now && ((now_us < until_us)); do nap $((until_us - now_us)); done
fi

now
from_us=$now_us
# The signal may reach the sleep before this shell; then sleep for the rest of the time.
while book; ((done_us < work_us)); do nap $((work_us - done_us)); done
trap '' TERM
note ended
