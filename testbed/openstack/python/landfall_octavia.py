"""What stands in for Nova and for the virtual machines of amphorae, behind the real Octavia.

Nothing else is played: the API, the worker, the database and Neutron are the real ones.

landfall_compute   binds ports in Neutron as Nova does (device_id, device_owner). Octavia's own no-op
                   compute driver doesn't, and then its real Neutron driver can't plug a VIP.
landfall_network   Octavia's own Neutron driver, which asks once for Neutron's extensions. As it comes it asks
                   at every step of every flow: half of all that Neutron is asked here.
landfall_amphora   Octavia's own no-op amphora, with switches that a test turns while the worker runs.
                   They are files in $LANDFALL_STACK_RUN, read at every call of the driver:

    amphora-delay[.PROJECT]   seconds to sleep in every call: load balancers stay PENDING_*
    amphora-fail[.PROJECT]    calls fail: load balancers go to ERROR. Holds the names of the calls
                              that fail; empty means every one.

A switch with the id of a project counts for that project only, so that tests can run in parallel.
"""
import os
import time
import types

from octavia.amphorae.drivers.noop_driver import driver as noop
from octavia.common import clients
from octavia.common import constants
from octavia.common import data_models
from octavia.compute import compute_base
from octavia.network.drivers.neutron import allowed_address_pairs
from oslo_utils import uuidutils

RUN = os.environ["LANDFALL_STACK_RUN"]


def neutron():
    return clients.NeutronAuth.get_neutron_client().network


class Compute(compute_base.ComputeBase):
    """Servers that have an id and ports, and nothing else."""

    def build(self, *args, **kwargs):
        return uuidutils.generate_uuid()

    def status(self, compute_id):
        return constants.UP

    def get_amphora(self, compute_id, management_network_id=None):
        amphora = data_models.Amphora(
            compute_id=compute_id, status=constants.ACTIVE, lb_network_ip="192.0.2.1")
        return amphora, None

    def delete(self, compute_id):
        for port in neutron().ports(device_id=compute_id):
            neutron().update_port(port, device_id="", device_owner="")

    def attach_network_or_port(self, compute_id, network_id=None, ip_address=None, port_id=None):
        owner = {"device_id": compute_id, "device_owner": "compute:landfall"}
        if port_id:
            port = neutron().update_port(port_id, **owner)
        else:
            if ip_address:
                owner["fixed_ips"] = [{"ip_address": ip_address}]
            port = neutron().create_port(network_id=network_id, **owner)
        return types.SimpleNamespace(
            port_id=port.id, net_id=port.network_id, fixed_ips=[dict(ip) for ip in port.fixed_ips])

    def detach_port(self, compute_id, port_id):
        neutron().update_port(port_id, device_id="", device_owner="")

    def create_server_group(self, name, policy):
        return types.SimpleNamespace(id=uuidutils.generate_uuid())

    def delete_server_group(self, server_group_id):
        pass

    def validate_flavor(self, flavor_id):
        pass

    def validate_availability_zone(self, availability_zone):
        pass


class Network(allowed_address_pairs.AllowedAddressPairsDriver):
    """Neutron's extensions don't change while it runs."""

    extensions = {}

    def _check_extension_enabled(self, extension_alias):
        if extension_alias not in self.extensions:
            found = super()._check_extension_enabled(extension_alias)
            self.extensions[extension_alias] = found
        return self.extensions[extension_alias]


class Amphora(noop.NoopAmphoraLoadBalancerDriver):
    """The calls below are wrapped; the others do nothing anyway."""


def project_of(arguments):
    """The project of the load balancer (or of the listener) that a call is about."""
    for argument in arguments:
        for owner in (argument, getattr(argument, "load_balancer", None)):
            project = getattr(owner, "project_id", None)
            if project:
                return project
    return None


def switch(name, project):
    for file in ("%s.%s" % (name, project), name):
        try:
            with open(os.path.join(RUN, file)) as opened:
                return opened.read().strip()
        except OSError:
            continue
    return None


def switched(name):
    def call(self, *args, **kwargs):
        project = project_of(args + tuple(kwargs.values()))
        delay = switch("amphora-delay", project)
        if delay:
            time.sleep(float(delay))
        failing = switch("amphora-fail", project)
        if failing is not None and (not failing or name in failing.split()):
            raise RuntimeError("the test bed is configured to fail %s" % name)
        return getattr(super(Amphora, self), name)(*args, **kwargs)
    return call


for each in ("update", "update_amphora_listeners", "start", "reload", "delete", "post_vip_plug",
             "finalize_amphora"):
    setattr(Amphora, each, switched(each))
