"""Users, roles, the service catalogue and the external network. Finds what is there already.

Everything else belongs to the projects that tests make for themselves.
"""
import os

import openstack

password = os.environ["LANDFALL_STACK_PASSWORD"]


def identity(cloud):
    api = cloud.identity
    roles = {role.name: role for role in api.roles()}
    # Octavia's and Barbican's policies ask for roles that Keystone's bootstrap doesn't make.
    for name in ("load-balancer_member", "load-balancer_observer", "load-balancer_global_observer",
                 "load-balancer_quota_admin", "load-balancer_admin", "creator", "observer", "service"):
        if name not in roles:
            roles[name] = api.create_role(name=name)
    project = api.find_project("service", domain_id="default") or api.create_project(
        name="service", domain_id="default")
    for name in ("neutron", "octavia", "barbican"):
        user = api.find_user(name, domain_id="default") or api.create_user(
            name=name, domain_id="default", password=password, default_project_id=project.id)
        for role in ("admin", "service"):
            api.assign_project_role_to_user(project, user, roles[role])
    api.assign_project_role_to_user(
        api.find_project("admin", domain_id="default"), api.find_user("admin"),
        roles["load-balancer_admin"])
    known = {service.type for service in api.services()}
    for entry in os.environ["LANDFALL_STACK_CATALOGUE"].split():
        kind, name, url = entry.split("=")
        if kind in known:
            continue
        service = api.create_service(type=kind, name=name)
        for interface in ("public", "internal", "admin"):
            api.create_endpoint(
                service_id=service.id, interface=interface, url=url, region_id="RegionOne")


def external_network(cloud):
    api = cloud.network
    network = api.find_network("ext") or api.create_network(
        name="ext", is_router_external=True, provider_network_type="flat",
        provider_physical_network="physnet1")
    if not api.find_subnet("ext4"):
        # A /16, so that hundreds of tests may hold a router and floating IPs each.
        api.create_subnet(
            name="ext4", network_id=network.id, ip_version=4, cidr="198.18.0.0/16",
            gateway_ip="198.18.0.1", is_dhcp_enabled=False)
    if not api.find_subnet("ext6"):
        api.create_subnet(
            name="ext6", network_id=network.id, ip_version=6, cidr="2001:db8:100::/64",
            gateway_ip="2001:db8:100::1", is_dhcp_enabled=False)


if __name__ == "__main__":
    steps = {"identity": identity, "network": external_network}
    steps[os.environ["LANDFALL_STACK_STEP"]](openstack.connect(cloud="admin"))
