# What runs, in the order in which it has to start.

# MariaDB, since the migrations of Neutron and Octavia refuse SQLite. It runs as root, since no other
# user may enter root's cache folder, and without fsync: schemas are ready in a third of the time,
# and what it holds is a test's.
start_database() {
  if [ ! -d "$DATA/mysql/mysql" ]; then
    mariadb-install-db --no-defaults --user=root --datadir="$DATA/mysql" \
      --auth-root-authentication-method=normal --skip-test-db >"$LOG/mariadb-install.log" 2>&1 ||
      die "no database; see $LOG/mariadb-install.log"
  fi
  launch mariadb mariadbd --no-defaults --user=root --datadir="$DATA/mysql" --socket="$RUN/mysql.sock" \
    --pid-file="$RUN/mysql-own.pid" --bind-address=$IP --port=$PORT_DATABASE --skip-name-resolve \
    --character-set-server=utf8mb3 --collation-server=utf8mb3_general_ci --max-connections=400 \
    --innodb-buffer-pool-size=192M --innodb-log-file-size=48M --innodb-flush-log-at-trx-commit=0 \
    --innodb-doublewrite=0 --innodb-flush-method=nosync --skip-log-bin --performance-schema=0
}

sql() { mariadb --no-defaults --socket="$RUN/mysql.sock" --user=root "$@"; }

# Octavia's API sends its worker jobs over RabbitMQ. Our own epmd comes first: the server would
# leave one behind whose process id is recorded nowhere.
start_bus() {
  mkdir -p "$DATA/rabbit"
  cat >"$ETC/rabbitmq.conf" <<Y
listeners.tcp.1 = $IP:$PORT_BUS
default_user = $PASSWORD
default_pass = $PASSWORD
loopback_users = none
vm_memory_high_watermark.absolute = 512MB
disk_free_limit.absolute = 50MB
log.file.level = warning
Y
  echo "[]." >"$ETC/rabbit-plugins"
  launch epmd epmd -port $PORT_EPMD -address $IP
  wait_for epmd 10 answers_tcp $PORT_EPMD
  launch rabbit env HOME="$HOME_" \
    RABBITMQ_NODENAME=landfall@localhost RABBITMQ_CONFIG_FILE="$ETC/rabbitmq.conf" \
    RABBITMQ_CONF_ENV_FILE=/dev/null RABBITMQ_ENABLED_PLUGINS_FILE="$ETC/rabbit-plugins" \
    RABBITMQ_MNESIA_BASE="$DATA/rabbit" RABBITMQ_LOG_BASE="$LOG" RABBITMQ_PID_FILE="$RUN/rabbit-own.pid" \
    RABBITMQ_NODE_IP_ADDRESS=$IP RABBITMQ_NODE_PORT=$PORT_BUS RABBITMQ_DIST_PORT=$PORT_BUS_PEERS \
    ERL_EPMD_ADDRESS=$IP ERL_EPMD_PORT=$PORT_EPMD \
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}" \
    /usr/lib/rabbitmq/bin/rabbitmq-server
}

# OVN's two databases and what translates between them. No switch and no kernel module: nothing is
# forwarded here.
start_ovn() {
  local side port
  for side in nb sb; do
    [ $side = nb ] && port=$PORT_NORTH || port=$PORT_SOUTH
    [ -e "$DATA/ovn$side.db" ] || ovsdb-tool create "$DATA/ovn$side.db" "/usr/share/ovn/ovn-$side.ovsschema"
    launch "ovn-$side" ovsdb-server "$DATA/ovn$side.db" --remote="ptcp:$port:$IP" \
      --unixctl="$RUN/ovn$side.ctl" --no-chdir -vconsole:warn
    wait_for "ovn-$side" 10 answers_tcp "$port"
  done
  launch ovn-northd env OVN_RUNDIR="$RUN" ovn-northd --ovnnb-db="tcp:$IP:$PORT_NORTH" \
    --ovnsb-db="tcp:$IP:$PORT_SOUTH" --unixctl="$RUN/northd.ctl" -vconsole:warn
}

# Each schema once, all at the same time.
make_schemas() {
  local name ids=() names=()
  for name in keystone neutron octavia barbican; do
    [ -e "$DATA/schema-$name" ] && continue
    sql -e "CREATE DATABASE IF NOT EXISTS $name CHARACTER SET utf8mb3;
      GRANT ALL ON $name.* TO '$PASSWORD'@'%' IDENTIFIED BY '$PASSWORD';
      GRANT ALL ON $name.* TO '$PASSWORD'@'localhost' IDENTIFIED BY '$PASSWORD';"
    ( "schema_$name" >"$LOG/schema-$name.log" 2>&1 && : >"$DATA/schema-$name" ) 9>&- &
    ids+=($!)
    names+=("$name")
  done
  for name in "${!ids[@]}"; do
    wait "${ids[$name]}" || die "no schema for ${names[$name]}; see $LOG/schema-${names[$name]}.log"
  done
}

schema_keystone() (
  set -e
  manage() { "$VENV/bin/keystone-manage" --config-file "$ETC/keystone.conf" "$@"; }
  manage db_sync
  manage fernet_setup --keystone-user root --keystone-group root
  manage credential_setup --keystone-user root --keystone-group root
  manage bootstrap --bootstrap-password "$PASSWORD" --bootstrap-region-id RegionOne \
    --bootstrap-admin-url "$(url $PORT_KEYSTONE)/v3/" --bootstrap-public-url "$(url $PORT_KEYSTONE)/v3/" \
    --bootstrap-internal-url "$(url $PORT_KEYSTONE)/v3/"
)
schema_neutron() { "$VENV/bin/neutron-db-manage" --config-file "$ETC/neutron.conf" upgrade heads; }
schema_octavia() { "$VENV/bin/octavia-db-manage" --config-file "$ETC/octavia.conf" upgrade head; }
schema_barbican() { HOME="$HOME_" "$VENV/bin/barbican-manage" db upgrade; }

# One API under gunicorn. The access log is what testkit counts calls by: Apache's combined format,
# and behind it the project that the token was for (which the services leave in their environment).
api() { # NAME PORT
  launch "$1" env HOME="$HOME_" TMPDIR="$STATE/tmp" PYTHONPATH="$STATE/python" \
    LANDFALL_STACK_SERVICE="$1" LANDFALL_STACK_ETC="$ETC" LANDFALL_STACK_RUN="$RUN" \
    OS_KEYSTONE_CONFIG_FILES="$ETC/keystone.conf" OS_NEUTRON_CONFIG_DIR="$ETC" OS_NEUTRON_CONFIG_FILES=neutron.conf \
    ASGI_WORKERS=1 \
    "$VENV/bin/gunicorn" --chdir "$STATE/tmp" -b "$IP:$2" -k gthread -w 1 --threads 6 --timeout 300 \
    --graceful-timeout 3 --keep-alive 30 --worker-tmp-dir "$STATE/tmp" --access-logfile "$LOG/$1-access.log" \
    --access-logformat '%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s" %({HTTP_X_PROJECT_ID}e)s' \
    landfall_wsgi:application
}

octavia_program() { # NAME
  launch "$1" env HOME="$HOME_" PYTHONPATH="$STATE/python" LANDFALL_STACK_RUN="$RUN" \
    "$VENV/bin/$1" --config-file "$ETC/octavia.conf"
}

seed() { # STEP: once
  [ -e "$DATA/seed-$1" ] && return 0
  OS_CLIENT_CONFIG_FILE="$STATE/clouds.yaml" LANDFALL_STACK_STEP="$1" LANDFALL_STACK_PASSWORD="$PASSWORD" \
    LANDFALL_STACK_CATALOGUE="network=neutron=$(url $PORT_NEUTRON) load-balancer=octavia=$(url $PORT_OCTAVIA) key-manager=barbican=$(url $PORT_BARBICAN)" \
    "$VENV/bin/python" "$STATE/python/landfall_seed.py" >"$LOG/seed-$1.log" 2>&1 ||
    { tail -n 5 "$LOG/seed-$1.log" >&2; die "seeding ($1) failed; see $LOG/seed-$1.log"; }
  : >"$DATA/seed-$1"
}

start_everything() {
  start_database
  start_bus
  start_ovn
  wait_for mariadb 60 sql -e 'select 1'
  say "schemas"
  make_schemas
  wait_for rabbit 90 answers_tcp $PORT_BUS
  say "keystone"
  api keystone $PORT_KEYSTONE
  wait_for keystone 90 answers_http $PORT_KEYSTONE /v3
  seed identity
  say "neutron, octavia, barbican"
  # Neutron keeps files by the id of its parent, which may come again.
  rm -f "$STATE"/tmp/neutron_*
  # The OVN provider opens sockets in this folder whatever the configuration says, hence one stack per
  # machine. It waits minutes for them, so what makes them comes first.
  mkdir -p /run/octavia
  octavia_program octavia-driver-agent
  api neutron $PORT_NEUTRON
  api octavia $PORT_OCTAVIA
  octavia_program octavia-worker
  api barbican $PORT_BARBICAN
  wait_for neutron 120 answers_http $PORT_NEUTRON /
  seed network
  wait_for octavia 120 answers_http $PORT_OCTAVIA /
  wait_for barbican 60 answers_http $PORT_BARBICAN /
}

ALL=(octavia-driver-agent octavia-worker octavia barbican neutron keystone ovn-northd ovn-sb ovn-nb rabbit mariadb epmd)

stop_everything() { # FOLDER OF PROCESS IDS
  # OVN's threads in Neutron and in the agent ignore TERM for long; nothing is lost with them.
  end_all "$1" 3 octavia-driver-agent octavia-worker octavia barbican neutron keystone
  end_all "$1" 30 ovn-northd ovn-sb ovn-nb rabbit mariadb
  end_all "$1" 3 epmd
  rm -f "$1"/amphora-delay* "$1"/amphora-fail*
}
