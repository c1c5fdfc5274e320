# Configuration of the services. Every option that isn't a default stands here.

url() { echo "http://$IP:$1"; } # PORT

database() { # NAME
  cat <<Y
[database]
connection = mysql+pymysql://$PASSWORD:$PASSWORD@$IP:$PORT_DATABASE/$1?charset=utf8
max_pool_size = 10
max_overflow = 20
Y
}

credentials() { # USER
  cat <<Y
auth_type = password
auth_url = $(url $PORT_KEYSTONE)/v3
username = $1
password = $PASSWORD
project_name = service
user_domain_id = default
project_domain_id = default
region_name = RegionOne
Y
}

authenticated() { # USER
  cat <<Y
[keystone_authtoken]
$(credentials "$1")
www_authenticate_uri = $(url $PORT_KEYSTONE)/v3
# Short, so that a revoked token is refused within seconds and not within minutes.
token_cache_time = 2
Y
}

configure() {
  mkdir -p "$ETC" "$DATA"/{fernet,credential,lock} "$HOME_/.barbican"
  chmod 700 "$DATA/fernet" "$DATA/credential"
  configure_clients
  configure_keystone
  configure_neutron
  configure_octavia
  configure_barbican
}

configure_clients() {
  cat >"$STATE/clouds.yaml" <<Y
clouds:
  admin:
    region_name: RegionOne
    identity_api_version: 3
    auth:
      auth_url: $(url $PORT_KEYSTONE)/v3
      username: admin
      password: $PASSWORD
      project_name: admin
      user_domain_id: default
      project_domain_id: default
Y
}

configure_keystone() {
  cat >"$ETC/keystone.conf" <<Y
[DEFAULT]
use_stderr = true
default_log_levels = sqlalchemy=WARN
$(database keystone)
[token]
provider = fernet
expiration = 86400
[fernet_tokens]
key_repository = $DATA/fernet
[fernet_receipts]
key_repository = $DATA/fernet
[credential]
key_repository = $DATA/credential
[identity]
# Every login hashes a password; four rounds make it fast.
password_hash_rounds = 4
[cache]
# Every call to another service asks whether its token is valid: 20 ms instead of 200. It is one
# process, so a revoked token is out of its own memory at once.
enabled = true
backend = oslo_cache.dict
[oslo_messaging_notifications]
driver = noop
Y
}

configure_neutron() {
  cp "$VENV/etc/neutron/api-paste.ini" "$ETC/neutron-api-paste.ini"
  cat >"$ETC/neutron.conf" <<Y
[DEFAULT]
use_stderr = true
core_plugin = ml2
service_plugins = ovn-router,qos,port_forwarding
auth_strategy = keystone
api_paste_config = $ETC/neutron-api-paste.ini
state_path = $DATA/neutron
transport_url = $BUS
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
dhcp_agent_notification = false
max_allowed_address_pair = 50
$(database neutron)
$(authenticated neutron)
[oslo_concurrency]
lock_path = $DATA/lock
[oslo_messaging_notifications]
driver = noop
[quotas]
quota_port = -1
quota_network = -1
quota_subnet = -1
quota_floatingip = -1
quota_router = -1
quota_security_group = -1
quota_security_group_rule = -1
[ml2]
type_drivers = flat,geneve,vlan,local
tenant_network_types = geneve
mechanism_drivers = ovn
extension_drivers = port_security,qos
[ml2_type_geneve]
vni_ranges = 1:65000
max_header_size = 38
[ml2_type_flat]
flat_networks = physnet1
[ovn]
ovn_nb_connection = tcp:$IP:$PORT_NORTH
ovn_sb_connection = tcp:$IP:$PORT_SOUTH
ovn_metadata_enabled = false
Y
}

configure_octavia() {
  cat >"$ETC/octavia.conf" <<Y
[DEFAULT]
use_stderr = true
transport_url = $BUS
host = landfall
[api_settings]
bind_host = $IP
bind_port = $PORT_OCTAVIA
auth_strategy = keystone
api_base_uri = $(url $PORT_OCTAVIA)
enabled_provider_drivers = amphora:The Octavia Amphora driver.,octavia:Alias of amphora.,ovn:Octavia OVN driver.
default_provider_driver = amphora
allow_tls_terminated_listeners = true
$(database octavia)
$(authenticated octavia)
[service_auth]
$(credentials octavia)
[neutron]
$(credentials octavia)
[oslo_messaging]
topic = octavia_prov
[oslo_messaging_notifications]
driver = noop
[certificates]
cert_generator = local_cert_generator
cert_manager = barbican_cert_manager
ca_certificate = $ETC/amphora-ca.pem
ca_private_key = $ETC/amphora-ca.key
ca_private_key_passphrase = $PASSWORD
server_certs_key_passphrase = insecure-key-do-not-use-this-key
signing_digest = sha256
[haproxy_amphora]
server_ca = $ETC/amphora-ca.pem
client_cert = $ETC/amphora-client.pem
[health_manager]
heartbeat_key = $PASSWORD
[controller_worker]
workers = 1
amp_image_tag = amphora
amp_flavor_id = 1
amp_boot_network_list = 11111111-1111-1111-1111-111111111111
# Has to exist although no amphora ever sees it; else every create ends in ERROR.
client_ca = $ETC/amphora-ca.pem
amphora_driver = landfall_amphora
compute_driver = landfall_compute
# The real one: VIP ports and security groups are in Neutron.
network_driver = landfall_network
image_driver = image_noop_driver
volume_driver = volume_noop_driver
loadbalancer_topology = SINGLE
event_notifications = false
[networking]
max_retries = 5
retry_interval = 1
retry_backoff = 1
[task_flow]
engine = parallel
max_workers = 5
[driver_agent]
enabled_provider_agents = ovn
status_max_processes = 2
stats_max_processes = 1
get_max_processes = 2
[ovn]
ovn_nb_connection = tcp:$IP:$PORT_NORTH
ovn_sb_connection = tcp:$IP:$PORT_SOUTH
Y
  [ -s "$ETC/amphora-client.pem" ] && return 0
  {
    openssl genrsa -aes256 -passout "pass:$PASSWORD" -out "$ETC/amphora-ca.key" 2048
    openssl req -x509 -new -key "$ETC/amphora-ca.key" -passin "pass:$PASSWORD" -subj /CN=amphora-ca -days 3650 -out "$ETC/amphora-ca.pem"
    openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=client -days 3650 -keyout "$ETC/amphora-client.key" -out "$ETC/amphora-client.crt"
  } 2>"$LOG/openssl.log" || die "no certificates; see $LOG/openssl.log"
  cat "$ETC/amphora-client.crt" "$ETC/amphora-client.key" >"$ETC/amphora-client.pem"
}

# Barbican looks into its home folder only, so it gets one of its own.
configure_barbican() {
  sed 's#^/v1: .*#/v1: barbican-api-keystone#' "$VENV/etc/barbican/barbican-api-paste.ini" >"$ETC/barbican-api-paste.ini"
  [ -s "$DATA/barbican.key" ] || head -c 32 /dev/urandom | base64 >"$DATA/barbican.key"
  cat >"$HOME_/.barbican/barbican.conf" <<Y
[DEFAULT]
use_stderr = true
host_href = $(url $PORT_BARBICAN)
db_auto_create = false
transport_url = $BUS
$(database barbican)
$(authenticated barbican)
[queue]
enable = false
[secretstore]
enabled_secretstore_plugins = store_crypto
[crypto]
enabled_crypto_plugins = simple_crypto
[simple_crypto_plugin]
kek = $(cat "$DATA/barbican.key")
Y
}
