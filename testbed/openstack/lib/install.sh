# What is installed, and where.

# PROGRAM OR FILE, PACKAGE: the first shows that the second is here.
PACKAGES=(
  mariadbd mariadb-server
  /usr/lib/rabbitmq/bin/rabbitmq-server rabbitmq-server
  /usr/share/ovn/ovn-nb.ovsschema ovn-central
  /usr/bin/ovn-northd ovn-central
  ovsdb-server ovn-central
  curl curl
  openssl openssl
)

require_packages() {
  local index sign missing=" "
  PATH=$PATH:/usr/sbin:/sbin
  for ((index = 0; index < ${#PACKAGES[@]}; index += 2)); do
    sign=${PACKAGES[index]}
    [ -e "$sign" ] || command -v "$sign" >/dev/null ||
      case "$missing" in *" ${PACKAGES[index + 1]} "*) ;; *) missing+="${PACKAGES[index + 1]} " ;; esac
  done
  /usr/bin/python3 -c 'import ensurepip, venv' 2>/dev/null || missing+="python3-venv "
  [ "$missing" = " " ] ||
    die "missing Debian packages:${missing% }. Install them by \`cargo xtask install\` (as root), or: apt-get install --no-install-recommends${missing% }"
}

# Debian's Python, since the constraints were tried with it. Marked as done at the end, so that an
# interrupted installation is begun again.
install_python() {
  [ -e "$VENV/done" ] && return 0
  say "installing OpenStack from Python packages, once: a minute or two"
  rm -rf "$VENV"
  mkdir -p "$PLACE"
  /usr/bin/python3 -m venv "$VENV"
  local log=$VENV/install.log
  {
    "$VENV/bin/pip" install -c "$HERE/constraints.txt" wheel setuptools &&
      "$VENV/bin/pip" install -c "$HERE/constraints.txt" -r "$HERE/packages.txt"
  } >"$log" 2>&1 9>&- || { tail -n 5 "$log" >&2; die "pip failed; see $log"; }
  : >"$VENV/done"
}
