# Processes: started in a session of their own, known by process id and start time, so that a process
# id that means another program by now is never signalled.

# The start time of a live process, else nothing. Titles may hold blanks and brackets, hence the cut.
# A zombie whose parent is slow is not alive.
start_time() { sed 's/^.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 !~ /[ZX]/ {print $20}'; }

alive() { # FILE OF A PROCESS ID
  local id started
  [ -s "$1" ] || return 1
  read -r id started <"$1"
  [ -n "$started" ] && [ "$(start_time "$id")" = "$started" ]
}

running() { alive "$RUN/$1.pid"; } # NAME

launch() { # NAME COMMAND...
  local name=$1 id
  shift
  running "$name" && return 0
  # Without the lock: it is to be free once this script ends.
  setsid "$@" </dev/null >>"$LOG/$name.log" 2>&1 9>&- &
  id=$!
  echo "$id $(start_time "$id")" >"$RUN/$name.pid"
  disown "$id" 2>/dev/null || true
}

wait_for() { # NAME SECONDS COMMAND...: until the command succeeds
  local name=$1 end=$((SECONDS + $2))
  shift 2
  until "$@" >/dev/null 2>&1; do
    running "$name" || { tail -n 15 "$LOG/$name.log" >&2; die "$name ended; its log: $LOG/$name.log"; }
    [ $SECONDS -lt $end ] || { tail -n 15 "$LOG/$name.log" >&2; die "$name was not ready in time; its log: $LOG/$name.log"; }
    sleep 0.2
  done
}

# TERM to each named program of a stack, then KILL to what is left after some seconds.
end_all() { # FOLDER OF PROCESS IDS, SECONDS, NAMES...
  local run=$1 end=$((SECONDS + $2)) name id rest
  shift 2
  for name in "$@"; do
    alive "$run/$name.pid" || continue
    read -r id rest <"$run/$name.pid"
    kill -CONT -- "-$id" 2>/dev/null || true # a paused program never sees TERM
    kill -TERM -- "-$id" 2>/dev/null || true
  done
  for name in "$@"; do
    while alive "$run/$name.pid" && [ $SECONDS -lt $end ]; do sleep 0.1; done
    if alive "$run/$name.pid"; then
      read -r id rest <"$run/$name.pid"
      kill -KILL -- "-$id" 2>/dev/null || true
    fi
    rm -f "$run/$name.pid"
  done
}

answers_tcp() { (exec 3<>"/dev/tcp/$IP/$1") 2>/dev/null; }                       # PORT
answers_http() { curl -s -o /dev/null --noproxy '*' -m 20 "http://$IP:$1$2"; }   # PORT PATH
