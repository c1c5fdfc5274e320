"""Starts one API under gunicorn. The services read sys.argv, which is gunicorn's, so it is set here."""
import os
import sys

service = os.environ["LANDFALL_STACK_SERVICE"]
etc = os.environ["LANDFALL_STACK_ETC"]

if service == "keystone":
    sys.argv = ["keystone"]
    from keystone.wsgi.api import application
elif service == "neutron":
    sys.argv = ["neutron-api"]
    from neutron.wsgi.api import application
elif service == "octavia":
    sys.argv = ["octavia-api", "--config-file", etc + "/octavia.conf"]
    from octavia.wsgi.api import application
elif service == "barbican":
    # Its own module for this loads a file in /etc, whatever the environment says.
    sys.argv = ["barbican-api"]
    from paste import deploy
    application = deploy.loadapp("config:" + etc + "/barbican-api-paste.ini")
else:
    raise SystemExit("no such service: " + service)

__all__ = ["application"]
