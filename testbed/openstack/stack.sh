#!/usr/bin/env bash
# A real OpenStack for tests: Keystone, Neutron with OVN's databases, Octavia (providers amphora and
# ovn) and Barbican, all on 127.0.0.1, without systemd and without containers. Missing are only Nova
# and the virtual machines of amphorae; python/landfall_octavia.py stands in for them.
#
#   stack.sh up [--fresh]   start what doesn't run (--fresh: from empty databases); print clouds.yaml
#   stack.sh down           stop it; databases are kept
#   stack.sh env            print where clouds.yaml is, or will be
#   stack.sh running        succeed if all of it runs
#   stack.sh install        only install the Python packages
#
# It lives in $LANDFALL_CACHE/openstack (default ~/.cache/landfall/openstack): the Python packages by
# the hash of their versions, everything else by the hash of this folder. A stack of another version
# is stopped first: there can be one per machine, for its ports and for /run/octavia.
set -euo pipefail
umask 022
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
COMMAND=${1:-}
BEGUN=$(date +%s%N)
say() { printf '[%5.1f s] %s\n' "$((($(date +%s%N) - BEGUN) / 100000000))e-1" "$*" >&2; }
die() {
  echo "error: $*" >&2
  exit 1
}

hash_of() { cat "$@" | sha256sum | cut -c1-12; }
CACHE=${LANDFALL_CACHE:-}
if [ -z "$CACHE" ]; then
  case "${XDG_CACHE_HOME:-}" in
  /*) CACHE=$XDG_CACHE_HOME/landfall ;;
  *) CACHE=${HOME:?no home folder: set LANDFALL_CACHE to a folder}/.cache/landfall ;;
  esac
fi
case "$CACHE" in /*) ;; *) die "LANDFALL_CACHE is $CACHE, not an absolute path" ;; esac
PLACE=$CACHE/openstack
VENV=$PLACE/venv-$(hash_of "$HERE"/packages.txt "$HERE"/constraints.txt)
STATE=$PLACE/stack-$(hash_of "$HERE"/packages.txt "$HERE"/constraints.txt "$HERE"/stack.sh "$HERE"/lib/*.sh \
  "$HERE"/python/*.py "$HERE"/python/*.dist-info/*)
ETC=$STATE/etc RUN=$STATE/run LOG=$STATE/log DATA=$STATE/data HOME_=$STATE/home

IP=127.0.0.1
PORT_DATABASE=13306 PORT_BUS=15672 PORT_BUS_PEERS=15673 PORT_EPMD=14369 PORT_NORTH=16641 PORT_SOUTH=16642
PORT_KEYSTONE=15000 PORT_NEUTRON=19696 PORT_OCTAVIA=19876 PORT_BARBICAN=19311
PASSWORD=landfall # of every user: nothing of it can be reached from outside
BUS=rabbit://$PASSWORD:$PASSWORD@$IP:$PORT_BUS/

. "$HERE/lib/process.sh"
. "$HERE/lib/install.sh"
. "$HERE/lib/configure.sh"
. "$HERE/lib/services.sh"

all_runs() {
  local name
  for name in "${ALL[@]}"; do running "$name" || return 1; done
}

# Held until this script ends, so that tests that begin together start one stack together.
lock() {
  mkdir -p "$PLACE"
  exec 9>"$PLACE/lock"
  flock -w 900 9 || die "another process has been starting or stopping the stack for 15 minutes"
}

stop_others() {
  local run name
  for run in "$PLACE"/stack-*/run; do
    [ -d "$run" ] && [ "$run" != "$RUN" ] || continue
    for name in "${ALL[@]}"; do
      alive "$run/$name.pid" || continue
      say "stopping a stack of another version: ${run%/run}"
      stop_everything "$run"
      break
    done
  done
}

refuse_foreign_servers() {
  local port
  for port in $PORT_DATABASE $PORT_BUS $PORT_KEYSTONE $PORT_NEUTRON $PORT_OCTAVIA $PORT_BARBICAN $PORT_NORTH; do
    if answers_tcp "$port"; then
      die "port $port of $IP is taken by a program that isn't of this stack; if that is another OpenStack for tests, stop it, or let LANDFALL_OPENSTACK name its clouds.yaml"
    fi
  done
}

some_runs() {
  local name
  for name in "${ALL[@]}"; do running "$name" && return 0; done
  return 1
}

up() {
  lock
  if [ "${1:-}" = --fresh ]; then
    [ ! -d "$RUN" ] || stop_everything "$RUN"
    rm -rf "$STATE"
  fi
  if ! all_runs; then
    [ "$(id -u)" = 0 ] || die "only root can start the stack: it needs /run/octavia"
    require_packages
    stop_others
    some_runs || refuse_foreign_servers
    install_python
    mkdir -p "$RUN" "$LOG" "$DATA" "$STATE/tmp"
    [ ${#RUN} -le 80 ] || die "$RUN is too long for the sockets in it: set LANDFALL_CACHE to a shorter folder"
    rm -rf "$STATE/python"
    cp -r "$HERE/python" "$STATE/python"
    configure
    start_everything
    say "ready"
  fi
  echo "$STATE/clouds.yaml"
}

# Some images set the first; it would make every start compile everything.
unset PYTHONDONTWRITEBYTECODE PYTHONHOME PYTHONPATH
export PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore NO_PROXY=$IP no_proxy=$IP

case "$COMMAND" in
up) up "${2:-}" ;;
down)
  lock
  stop_others
  [ ! -d "$RUN" ] || stop_everything "$RUN"
  ;;
env) echo "$STATE/clouds.yaml" ;;
running) all_runs ;;
install)
  lock
  require_packages
  install_python
  ;;
*)
  sed -n 's/^# \{0,1\}//; 6,10p' "$HERE/stack.sh" >&2
  exit 2
  ;;
esac
